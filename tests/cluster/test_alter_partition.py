"""AlterPartition as the controller answers it (controller 14)."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest

from klamm.protocol import messages
from klamm.tests.harness.cluster import Cluster
from klamm.tests.harness.decoded import decoded
from klamm.tests.harness.fake_broker import LISR, UMR

DEAD = 987654
UNCLEAN = {"unclean.leader.election.enable": "true"}


@pytest.mark.parametrize("version", [0, 1, 2, 3])
async def test_isr_shrinks_and_expands_with_the_partition_epoch(cluster: Cluster, version: int) -> None:
    a, b, c = await cluster.fakes(3)
    topic = await cluster.create([[a, b]])
    await cluster.settled(a, b, c)
    marks = {f.id: f.mark() for f in (a, b, c)}
    for pe, isr in ((1, [a]), (2, [a, b])):
        ids = [f.id for f in isr]
        top, answer = await cluster.alter_partition(topic, a, isr, version=version)
        assert (top, answer.error_code, answer.leader_id, answer.leader_epoch, answer.isr, answer.partition_epoch) == (
            0,
            0,
            a.id,
            0,
            ids,
            pe,
        )
        assert answer.leader_recovery_state == 0
        assert cluster.state(topic) == (a.id, ids, 0, pe, cluster.tree.controller_epoch(), 0)
        for fake in (a, b, c):
            shown = await fake.told(UMR, topic, mark=marks[fake.id], zk_version=pe)
            assert (shown.isr, shown.leader, shown.leader_epoch) == (ids, a.id, 0)
    await cluster.settled(a, b, c)
    for fake in (a, b, c):
        assert fake.states(LISR, topic, mark=marks[fake.id]) == [], "no LeaderAndIsr for a change of the ISR"


async def refused(cluster: Cluster, code: int, topic: str, *args: Any, **more: Any) -> None:
    """The request is answered with `code` for the partition and changes nothing."""
    before = cluster.tree.state(topic)
    top, answer = await cluster.alter_partition(topic, *args, **more)
    assert top == 0
    assert (answer.error_code, answer.leader_id, answer.leader_epoch, answer.isr, answer.partition_epoch) == (code, 0, 0, [], 0)
    assert answer.leader_recovery_state == 0
    assert cluster.tree.state(topic) == before


@pytest.mark.parametrize("version", [1, 3])
async def test_each_wrong_proposal_gets_its_error_code(cluster: Cluster, version: int) -> None:
    a, b, c = await cluster.fakes(3)
    topic = await cluster.create([[a, b]])
    await cluster.move_away(topic, [a, b])
    assert cluster.state(topic)[:3] == (b.id, [b.id, a.id], 1)
    await refused(cluster, 3, topic, b, [b], partition=7, version=version)
    await refused(cluster, 41, topic, b, [b], pe=1, version=version)
    await refused(cluster, 41, topic, b, [b], le=1, version=version)
    await refused(cluster, 74, topic, b, [b], le=-1, version=version)
    await refused(cluster, 42, topic, a, [a, b], version=version)
    await refused(cluster, 95, topic, b, [b], pe=-1, version=version)
    await refused(cluster, 42, topic, b, [b, a], recovery=1, version=version)
    await refused(cluster, 42, topic, b, [b], recovery=1, version=version)
    ineligible = 107 if version >= 2 else 55
    await refused(cluster, ineligible, topic, b, [b, DEAD], version=version)
    await cluster.lost(c)
    await refused(cluster, ineligible, topic, b, [b, c], version=version)
    await refused(cluster, 74, topic, b, [b, a], le=-1, recovery=1, version=version)


async def test_nothing_to_change_is_no_write(cluster: Cluster) -> None:
    a, b = await cluster.fakes(2)
    topic = await cluster.create([[a, b]])
    await cluster.isr(topic, a, [a])
    await cluster.isr(topic, a, [a, b])
    before = cluster.state(topic)
    for pe in (0, -1, -2):
        top, answer = await cluster.alter_partition(topic, a, [a, b], pe=pe)
        assert (top, answer.error_code, answer.isr, answer.partition_epoch) == (0, 0, [a.id, b.id], before.pe)
    assert cluster.state(topic) == before
    top, answer = await cluster.alter_partition(topic, a, [b, a])
    assert (top, answer.error_code, answer.isr, answer.partition_epoch) == (0, 0, [b.id, a.id], before.pe + 1), "order counts"
    assert cluster.state(topic).isr == [b.id, a.id]


async def test_unknown_topic_id_is_refused(cluster: Cluster) -> None:
    a, b = await cluster.fakes(2)
    topic = await cluster.create([[a, b]])
    await refused(cluster, 100, topic, a, [a], topic_id=os.urandom(16))
    await refused(cluster, 100, topic, a, [a], topic_id=os.urandom(16), version=2)


async def test_broker_epoch_must_be_the_registered_one(cluster: Cluster) -> None:
    a, b = await cluster.fakes(2)
    topic = await cluster.create([[a, b]])
    before = cluster.state(topic)
    for epoch in (a.epoch - 1, a.epoch + 1, -1):
        assert await cluster.alter_partition(topic, a, [a], epoch=epoch) == (77, None)
    await cluster.lost(b)
    assert await cluster.alter_partition(topic, b, [b]) == (77, None)
    assert cluster.state(topic).leader == before.leader


async def test_unknown_recovery_state_is_refused(cluster: Cluster) -> None:
    a, b = await cluster.fakes(2)
    topic = await cluster.create([[a, b]])
    before = cluster.state(topic)
    top, _ = await cluster.alter_partition(topic, a, [a], recovery=2)
    assert top == -1
    assert cluster.state(topic) == before


@pytest.mark.parametrize(("grows", "version"), [(False, 3), (True, 3), (False, 0)])
async def test_recovering_ends_with_the_next_request(cluster: Cluster, grows: bool, version: int) -> None:
    a, b, c = await cluster.fakes(3)
    topic = await cluster.create([[a, b, c]], UNCLEAN)
    await cluster.isr(topic, a, [a])
    await cluster.lost(a)
    before = await cluster.becomes(topic, leader=b.id)
    assert (before.recovery, before.isr) == (1, [b.id])
    isr = [b, c] if grows else [b]
    if version:
        await refused(cluster, 42, topic, b, [b, c], recovery=1)
        top, answer = await cluster.alter_partition(topic, b, [b], recovery=1)
        assert (top, answer.error_code, answer.leader_recovery_state, answer.partition_epoch) == (0, 0, 1, before.pe), "still recovering"
    top, answer = await cluster.alter_partition(topic, b, isr, version=version)
    assert (top, answer.error_code, answer.leader_recovery_state) == (0, 0, 0)
    after = cluster.state(topic)
    assert (after.recovery, after.isr, after.le, after.pe) == (0, [f.id for f in isr], before.le, before.pe + 1)


async def test_update_metadata_follows_even_when_all_was_refused(cluster: Cluster) -> None:
    a, b = await cluster.fakes(2)
    topic = await cluster.create([[a, b]])
    await cluster.settled(a, b)
    mark = b.mark()
    await refused(cluster, 95, topic, a, [a], pe=-1) if cluster.state(topic).pe else await refused(cluster, 41, topic, a, [a], pe=1)
    shown = await b.told(UMR, topic, mark=mark)
    assert (shown.isr, shown.zk_version) == ([a.id, b.id], 0)


async def test_shutting_down_broker_may_not_join(cluster: Cluster) -> None:
    a, b = await cluster.fakes(2)
    topic = await cluster.create([[a, b]])
    await cluster.controlled_shutdown(b)
    await refused(cluster, 107, topic, a, [a, b])


async def test_many_partitions_of_many_topics_in_one_request(cluster: Cluster) -> None:
    a, b = await cluster.fakes(2)
    topics = [await cluster.create([[a, b]] * 8) for _ in range(5)]
    request = messages.AlterPartitionRequest
    wanted = [
        request.TopicData(
            topic_id=cluster.tree.topic_id(topic) or bytes(16),
            partitions=[
                request.PartitionData(
                    partition_index=p,
                    leader_epoch=0,
                    partition_epoch=0 if p != 3 else 9,
                    new_isr_with_epochs=[request.BrokerState(broker_id=a.id)],
                )
                for p in range(8)
            ],
        )
        for topic in topics
    ]
    answer = await cluster.ask(request(broker_id=a.id, broker_epoch=a.epoch, topics=wanted), 3)
    assert answer.error_code == 0
    codes = {(t.topic_id, p.partition_index): p.error_code for t in answer.topics for p in t.partitions}
    assert codes == {(cluster.tree.topic_id(topic), p): 41 if p == 3 else 0 for topic in topics for p in range(8)}
    for topic in topics:
        for p in range(8):
            assert cluster.state(topic, p)[:4] == ((a.id, [a.id, b.id], 0, 0) if p == 3 else (a.id, [a.id], 0, 1))


async def test_second_of_two_requests_for_one_partition_epoch_is_refused(cluster: Cluster) -> None:
    """The second was made without knowing of the first: its partition epoch is too low."""
    a, b, c = await cluster.fakes(3)
    topic = await cluster.create([[a, b, c]])
    await cluster.isr(topic, a, [a, b])
    top, answer = await cluster.alter_partition(topic, a, [a], pe=-1)
    assert (top, answer.error_code) == (0, 95)
    assert cluster.state(topic).isr == [a.id, b.id]


async def test_state_written_by_somebody_else_meanwhile_is_an_invalid_update_version(cluster: Cluster) -> None:
    a, b = await cluster.fakes(2)
    topic = await cluster.create([[a, b]])
    cluster.tree.put_state(topic, 0, a.id, [a.id, b.id], 0, cluster.tree.controller_epoch())
    top, answer = await cluster.alter_partition(topic, a, [a], pe=-1)
    assert (top, answer.error_code) == (0, 95), "its cached version is no longer that of the node"
    assert cluster.state(topic).isr == [a.id, b.id]


async def test_pipelined_requests_are_joined(cluster: Cluster) -> None:
    """Many small requests on one connection, none waiting for the one before: few UpdateMetadata, and every answer its own."""
    a, b = await cluster.fakes(2)
    topic = await cluster.create([[a, b]] * 40)
    await cluster.settled(a, b)
    mark = b.mark()
    request, topic_id = messages.AlterPartitionRequest, cluster.tree.topic_id(topic) or bytes(16)
    frames = b""
    for p in range(40):
        member = request.BrokerState(broker_id=a.id)
        one = request.PartitionData(partition_index=p, leader_epoch=0, partition_epoch=0, new_isr_with_epochs=[member])
        body = request(broker_id=a.id, broker_epoch=a.epoch, topics=[request.TopicData(topic_id=topic_id, partitions=[one])])
        frames += messages.encode_request(56, 3, p, "test", messages.encode(body, 3))
    reader, writer = await asyncio.open_connection("127.0.0.1", cluster.brokers[0].port)
    writer.write(frames)
    for p in range(40):
        payload = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
        correlation_id, offset = messages.decode_response_header(56, 3, payload)
        answer = decoded("AlterPartitionResponse", 3, payload, offset)[0]
        (row,) = answer.topics[0].partitions
        assert (correlation_id, row.partition_index, row.error_code, row.isr, row.partition_epoch) == (p, p, 0, [a.id], 1)
    writer.close()
    await cluster.settled(a, b)
    assert [b.states(UMR, topic, p, mark)[-1].isr for p in range(40)] == [[a.id]] * 40
    telling = [f for f in b.since(mark, UMR) if f.partitions()]
    assert len(telling) <= 10
