"""After `restore` a cluster is whole, and as it was at its start: what tests changed is undone, and no later test sees its traces."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient as ConfluentAdmin
from confluent_kafka.admin import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

import klamm.testing
from klamm.admin import Acl, AdminClient, ConfigResource, ResourceType
from klamm.protocol.security.acls import Entry, Pattern
from klamm.server.local import changed_configs
from klamm.testing import BlockingCluster
from klamm.tests.harness.names import unique_name

CONFIG: dict[str, str | int | bool] = {
    "group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1,
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer", "allow.everyone.if.no.acl.found": "true",
    "super.users": "User:ANONYMOUS",
}
BOTH = [pytest.param(False, id="one-process"), pytest.param(True, id="processes", marks=pytest.mark.slow)]
EVERYWHERE = ConfigResource(ResourceType.BROKER, "")


@pytest.fixture(scope="module", params=BOTH)
def shared(zookeeper: str, request: pytest.FixtureRequest) -> Iterator[BlockingCluster]:
    path = f"{zookeeper}/{unique_name('testing-restore')}"
    with klamm.testing.Cluster(config=CONFIG, zookeeper=path, processes=request.param) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared: BlockingCluster) -> BlockingCluster:
    """With topics of its own."""
    return shared.again()


def commit_in_a_transaction(cluster: BlockingCluster) -> list[str | None]:
    """The errors that a transactional producer gets."""
    topic = cluster.create_topic(cluster.topic_name("orders"))
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "client.id": topic, "transactional.id": topic})
    producer.init_transactions(10)
    producer.begin_transaction()
    producer.produce(topic, b"x")
    producer.commit_transaction(10)
    return [request.error for request in cluster.requests(client_id=topic, error="any")]


def kill_two(cluster: BlockingCluster) -> None:
    cluster.kill_broker(1)
    cluster.kill_broker(2)


def cut_off_until_isrs_shrink(cluster: BlockingCluster) -> None:
    topic = cluster.create_topic(cluster.topic_name("cut"), replicas=[[1, 2, 3]])
    cluster.move_controller(to=1)
    cluster.cut_link(1, 2)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": 1})
    producer.produce(topic, b"x")
    assert producer.flush(10) == 0
    cluster.advance(100)
    cluster.wait_until(lambda: cluster.topic(topic)["partitions"][0]["isr"] == [1, 3], "the ISR shrinks")


MESSES: list[Callable[[BlockingCluster], object]] = [
    kill_two, lambda cluster: cluster.move_controller(), lambda cluster: cluster.restart_broker(1),
    lambda cluster: cluster.expire_session(2), lambda cluster: cluster.cut_zookeeper(3), lambda cluster: cluster.pause_broker(1),
    cut_off_until_isrs_shrink,
]


@pytest.mark.parametrize("mess", MESSES, ids=["kills", "moves", "restart", "expiry", "cut-zookeeper", "pause", "cut-link"])
def test_a_transaction_after_a_restore_meets_no_trace_of_what_was_before(
    cluster: BlockingCluster, mess: Callable[[BlockingCluster], object]
) -> None:
    commit_in_a_transaction(cluster)  # so that the topic of transactional ids is there
    mess(cluster)
    assert cluster.restore() == []
    states = [cluster.topic(each["name"])["partitions"] for each in cluster.topics()]
    assert all(row["leader"] == row["replicas"][0] and set(row["isr"]) == set(row["replicas"]) for rows in states for row in rows)
    later = cluster.again()
    assert commit_in_a_transaction(later) == []
    assert not [line for line in later.transcript() if "isr [" in line and f"-{later.topic_name('')[1:]}" not in line], "no ISR changes"


def test_configs_users_quotas_and_acls_are_as_they_were_at_the_start(cluster: BlockingCluster) -> None:
    with AdminClient(cluster.bootstrap_servers) as admin:
        throttled = {"leader.replication.throttled.rate": "1"}
        changes = {EVERYWHERE: {"message.max.bytes": "100"}, ConfigResource(ResourceType.BROKER, "1"): throttled}
        admin.incremental_alter_configs(changes).all()
        admin.create_acls([Acl(Pattern(2, "secret"), Entry("User:eve", "*", 3, 2))]).all()
    users = ConfluentAdmin({"bootstrap.servers": cluster.bootstrap_servers})
    credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    for future in users.alter_user_scram_credentials([UserScramCredentialUpsertion("eve", credential, b"secret")]).values():
        future.result(10)
    cluster.wait_for_configs()
    cluster.advance(1000)  # notifications of changes are deleted after 15 minutes of ZooKeeper's time
    cluster.restore()
    with AdminClient(cluster.bootstrap_servers) as admin:
        for broker in ("1", "2", "3"):
            resource = ConfigResource(ResourceType.BROKER, broker)
            shown = admin.describe_configs([resource])[resource]
            assert {name for name, each in shown.items() if "DYNAMIC" in each.source.name} == set()
        assert not list(admin.describe_acls())
    described: Any = users.describe_user_scram_credentials()
    assert described.result(10) == {}
    topic = cluster.create_topic(cluster.topic_name("orders"))
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    producer.produce(topic, b"x" * 500)
    assert producer.flush(10) == 0


def test_a_restore_after_which_nothing_is_to_be_done_reads_no_configs(cluster: BlockingCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.restore()
    cluster.restore()

    async def unexpected(_: object) -> None:
        raise AssertionError("nothing has changed")

    monkeypatch.setattr(changed_configs, "_stored", unexpected)
    begun = time.monotonic()
    assert cluster.restore() == []
    print(f"restore: {time.monotonic() - begun:.4f} s")


def test_brokers_that_were_added_are_named_and_stay(zookeeper: str) -> None:
    with klamm.testing.Cluster(brokers=1, zookeeper=f"{zookeeper}/{unique_name('testing-added')}") as cluster:
        assert cluster.add_broker() == 2
        cluster.kill_broker(2)
        assert cluster.restore() == [2]
        assert [each["state"] for each in cluster.brokers()] == ["running", "running"]


@pytest.mark.parametrize("processes", BOTH)
def test_a_broker_that_could_not_be_added_leaves_the_cluster_as_it_was(zookeeper: str, tmp_path: Path, processes: bool) -> None:
    (tmp_path / "file").write_text("")
    place = f"{zookeeper}/{unique_name('testing-not-added')}"
    with klamm.testing.Cluster(brokers=1, zookeeper=place, processes=processes) as cluster:
        with pytest.raises(Exception, match="" if processes else str(tmp_path)):
            cluster.add_broker({"log.dirs": str(tmp_path / "file")})
        assert [each["id"] for each in cluster.brokers()] == [1]
        assert cluster.restore() == []
        assert cluster.add_broker() == 2
