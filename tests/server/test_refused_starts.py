"""A broker does not start without what it must know, and starts from what is stored; a kill leaves no row that says it stopped."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from klamm.server.broker_server import BrokerServer
from klamm.server.lifecycle.start_failure import StartFailed
from klamm.tests.journal.journaled_world import rows
from klamm.tests.server.brokers import node
from klamm.zk.session.session import ZkSession


@pytest.fixture
async def zk(zookeeper: str, chroot: str) -> AsyncIterator[ZkSession]:
    session = ZkSession(zookeeper + chroot, 6000)
    await session.start(10_000)
    yield session
    await session.stop()


async def write(zk: ZkSession, path: str, data: bytes) -> None:
    """Create a znode, and what is above it."""
    parts = path.split("/")
    for end in range(2, len(parts)):
        above = "/".join(parts[:end])
        if await zk.get(above) is None:
            await zk.create(above, b"")
    await zk.create(path, data)


async def refused(broker: BrokerServer) -> str:
    """Why the broker does not start."""
    with pytest.raises(StartFailed) as raised:
        await broker.start()
    return str(raised.value)


async def test_a_broker_that_lacks_finalised_features_does_not_start(zk: ZkSession, zookeeper: str, chroot: str) -> None:
    feature = {"version": 2, "status": 1, "features": {"of.the.future": {"max_version_level": 3}}}
    await write(zk, "/feature", json.dumps(feature).encode())
    reason = await refused(node(zookeeper + chroot, 1))
    assert "of.the.future" in reason
    assert await zk.children("/brokers/ids") in ([], None)


async def test_a_broker_that_cannot_read_an_acl_does_not_start(zk: ZkSession, zookeeper: str, chroot: str) -> None:
    await write(zk, "/kafka-acl/Topic/orders", b'{"version":9}')
    broker = node(zookeeper + chroot, 1, authorizer_class_name="kafka.security.authorizer.AclAuthorizer")
    assert (await refused(broker)).startswith("cannot read the ACLs: ")
    assert await zk.children("/brokers/ids") in ([], None)


async def test_groups_are_where_the_stored_topic_says_and_not_where_the_config_says(zk: ZkSession, zookeeper: str, chroot: str) -> None:
    for topic, count in (("__consumer_offsets", 3), ("__transaction_state", 2)):
        stored = {
            "version": 3, "topic_id": "AAAAAAAAAAAAAAAAAAAA" + topic[2:4], "adding_replicas": {}, "removing_replicas": {},
            "partitions": {str(index): [1] for index in range(count)},
        }
        await write(zk, f"/brokers/topics/{topic}", json.dumps(stored).encode())
    broker = node(zookeeper + chroot, 1, offsets_topic_num_partitions=50)
    await broker.start()
    try:
        groups, transactions = broker.services.groups.partitions, broker.services.transactions.partitions
        assert (groups.count, transactions.count) == (3, 2)
    finally:
        await broker.stop()


@pytest.mark.parametrize("is_killed", [False, True], ids=["stopped", "killed"])
async def test_only_a_broker_that_was_stopped_says_so_in_its_journal(zookeeper: str, chroot: str, tmp_path: Path, is_killed: bool) -> None:
    broker = node(zookeeper + chroot, 1, klamm_journal_dir=tmp_path)
    await broker.start()
    await (broker.kill() if is_killed else broker.stop())
    kinds = [row["kind"] for row in rows(tmp_path, "events")]
    assert "broker_started" in kinds
    assert ("broker_stopped" in kinds) is not is_killed
