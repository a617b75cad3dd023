"""A move is held at a phase while the other partitions of its topics go on, in a cluster of real brokers in this process."""

from __future__ import annotations

from typing import Any

import pytest

from klamm.controller.phases import ReassignmentCaughtUp, ReassignmentLeaderMoved, ReassignmentPhase, ReassignmentReplicasStarted
from klamm.controller.values import Assignment
from klamm.protocol import messages
from klamm.protocol.nouns import Ints, TopicPartition
from klamm.server.local.arguments import SeedTopic
from klamm.server.local.cluster import LocalCluster
from klamm.tests.harness.waits import eventually
from klamm.tests.server.brokers import request
from klamm.tests.server.registered_brokers import split

BROKERS = (1, 2, 3, 4, 5)
CONFIG = {"auto.leader.rebalance.enable": "false", "replica.lag.time.max.ms": "3000"}
TOPICS = [SeedTopic("t", 251, 2), SeedTopic("u", 250, 2)]


async def reassign(cluster: LocalCluster, targets: dict[TopicPartition, Ints | None]) -> set[int]:
    """The error codes of AlterPartitionReassignments."""
    row = messages.AlterPartitionReassignmentsRequest
    by_topic: dict[str, list[Any]] = {}
    for tp, replicas in targets.items():
        by_topic.setdefault(tp.topic, []).append(row.ReassignablePartition(partition_index=tp.partition, replicas=replicas))
    topics = [row.ReassignableTopic(name=name, partitions=rows) for name, rows in by_topic.items()]
    controller, _ = split(cluster)
    response = await request(controller, 45, 0, row(timeout_ms=1000, topics=topics))
    assert response.error_code == 0
    return {p.error_code for t in response.responses for p in t.partitions}


def assignments(cluster: LocalCluster) -> dict[TopicPartition, Assignment]:
    """As the controller knows them."""
    controller, _ = split(cluster)
    term = controller.controller.term
    return {} if term is None else {p.key: p.assignment for p in term.cluster.partitions()}


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    "kind",
    [
        ReassignmentReplicasStarted,
        pytest.param(ReassignmentCaughtUp, marks=pytest.mark.slow),
        pytest.param(ReassignmentLeaderMoved, marks=pytest.mark.slow),
    ],
)
async def test_five_hundred_others_move_elect_shrink_and_complete_while_one_is_held(
    zookeeper: str, chroot: str, kind: type[ReassignmentPhase]
) -> None:
    cluster = LocalCluster(5, zookeeper=zookeeper + chroot, config=CONFIG, topics=TOPICS)
    await cluster.start()
    try:
        held, before = TopicPartition("t", 0), assignments(cluster)
        hold = cluster.steering.hold(kind, where={"topic": held[0], "partition": held[1]})
        targets: dict[TopicPartition, Ints | None] = {}
        for tp, assignment in before.items():  # another leader, and another follower
            first, second = assignment.replicas
            targets[tp] = (next(b for b in BROKERS if b not in (first, second)), first)
        assert await reassign(cluster, targets) == {0}
        await hold.reached()
        others = {tp: Assignment(target) for tp, target in targets.items() if tp != held and target is not None}

        def moved() -> bool:
            now = assignments(cluster)
            return all(now[tp] == target for tp, target in others.items())

        await eventually(moved, "500 partitions have moved", within_s=60)
        assert len(others) == 500 and [phase.partition for phase in hold.held] == [0]

        def leaders() -> dict[TopicPartition, int]:
            _, other = split(cluster)
            return {tp: -1 if (at := other.metadata.leader(*tp)) is None else at for tp in others}

        controller, _ = split(cluster)
        elect = messages.ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=20_000)
        answer = await request(controller, 43, 2, elect)
        rows = [(t.topic, row) for t in answer.replica_election_results for row in t.partition_result]
        assert {row.error_code for topic, row in rows if (topic, row.partition_id) != held} == {0}
        await eventually(lambda: leaders() == {tp: a.replicas[0] for tp, a in others.items()}, "the new replicas lead", within_s=30)
        stopped = next(b for b in BROKERS if b != controller.id and b not in assignments(cluster)[held].replicas)
        await cluster.stop_broker(stopped)
        await eventually(lambda: stopped not in leaders().values(), "others lead instead of it")
        await cluster.start_broker(stopped)

        def in_sync() -> bool:
            term = controller.controller.term
            infos = [] if term is None else [p.info for p in term.cluster.partitions() if p.key != held]
            return all(info is not None and len(info.isr) == 2 for info in infos)

        await eventually(in_sync, "the ISRs are whole again", within_s=60)
        assert [phase.partition for phase in hold.held] == [0]
        hold.release()
        target = targets[held]
        assert target is not None
        await eventually(lambda: assignments(cluster)[held] == Assignment(target), "the held one moves too", within_s=30)
    finally:
        await cluster.stop()
