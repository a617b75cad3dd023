"""Which requests `klamm reassign-partitions --bootstrap-server` sends, with the APIs of KIP-179 and without them."""

from __future__ import annotations

from typing import Any, cast

import pytest

from klamm.admin import (
    MAX_THROTTLE,
    AsyncAdminClient,
    Broker,
    ClusterDescription,
    ConfigResource,
    Described,
    LogDir,
    LogDirReplica,
    PartitionResult,
    ResourceType,
    Result,
)
from klamm.admin.calls.errors import response_error
from klamm.cli.reassign_partitions import actions
from klamm.cli.reassign_partitions.bootstrap import BrokersCluster
from klamm.cli.reassign_partitions.plan import throttles_of
from klamm.cli.tools.failures import ToolFailed
from klamm.cli.tools.files import Move
from klamm.controller.values import Assignment
from klamm.protocol.errors import ErrorCode
from klamm.protocol.nouns import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
CURRENT = {T0: (1, 2), T1: (2,)}
LIVE = {1, 2, 3}


class Recorder:
    """Stands for the admin client: notes the calls, and all of them succeed."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    async def reassign_partitions(self, assignments: Any, *, throttle: int, auto_remove_throttle: bool) -> PartitionResult:
        self.calls.append(("reassign", dict(assignments), throttle, auto_remove_throttle))
        return PartitionResult(dict.fromkeys(assignments))

    async def alter_partition_reassignments(self, targets: Any) -> PartitionResult:
        self.calls.append(("alter", dict(targets)))
        return PartitionResult(dict.fromkeys(targets))

    async def alter_interbroker_throttled_replicas(self, replicas: Any, *, auto_remove_throttle: bool) -> PartitionResult:
        self.calls.append(("replicas", dict(replicas), auto_remove_throttle))
        return PartitionResult(dict.fromkeys(replicas))

    async def alter_interbroker_throttled_rates(self, rates: Any, *, auto_remove_throttle: bool) -> Result[int]:
        self.calls.append(("rates", dict(rates), auto_remove_throttle))
        return Result(dict.fromkeys(rates))

    async def incremental_alter_configs(self, changes: Any) -> Result[ConfigResource]:
        named = {key: {change.name: change.value for change in each} for key, each in changes.items()}
        self.calls.append(("configs", named))
        return Result(dict.fromkeys(changes))


class Hosting(Recorder):
    """Two live brokers; on broker 2 a log goes to another directory that nobody cancels."""

    async def describe_cluster(self) -> ClusterDescription:
        return ClusterDescription("c", None, (Broker(1, "h", 1, None), Broker(2, "h", 2, None)))

    async def list_partition_reassignments(self) -> dict[Any, Any]:
        return {}

    async def describe_log_dirs(self, brokers: list[int]) -> Described[int, dict[str, LogDir]]:
        def directory(path: str, **replicas: bool) -> LogDir:
            found = {TopicPartition("t", int(name[1:])): LogDirReplica(1, 0, is_future) for name, is_future in replicas.items()}
            return LogDir(path, None, found, 0, 0)

        held = {1: [directory("/a", p0=False)], 2: [directory("/a", p0=False, p1=False), directory("/b", p1=True)]}
        return Described({broker: {one.path: one for one in held[broker]} for broker in brokers}, {})


class Refusing:
    """Stands for the admin client of somebody who may do nothing."""

    async def alter_partition_reassignments(self, targets: Any) -> PartitionResult:
        raise response_error(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

    async def list_partition_reassignments(self) -> dict[Any, Any]:
        raise response_error(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Request ListPartitionReassignments is not authorized.")


async def test_a_refusal_names_the_operation_that_is_needed() -> None:
    cluster = BrokersCluster(cast("AsyncAdminClient", Refusing()), False)
    with pytest.raises(ToolFailed, match=r"Request ListPartitionReassignments is not authorized\. \(it needs DESCRIBE on the cluster\)$"):
        await cluster.reassignments()
    for changed in (cluster.start({T0: (3,)}, None, {}), cluster.cancel([T0])):
        with pytest.raises(ToolFailed, match=r"CLUSTER_AUTHORIZATION_FAILED.* \(it needs ALTER on the cluster\)$"):
            await changed


@pytest.mark.requirement("R179-24")
async def test_where_the_controller_removes_throttles_cancel_removes_only_those_of_directories_without_a_move() -> None:
    recorder, said = Hosting(), list[str]()
    cluster = BrokersCluster(cast("AsyncAdminClient", recorder), True)
    moves = {T0: Move((1, 2, 9), ("/b", "/b", "/b"))}
    await actions.cancel(cluster, moves, False, actions.Console(said.append, said.append))
    assert recorder.calls == [
        ("configs", {ConfigResource(ResourceType.BROKER, "1"): {"replica.alter.log.dirs.io.max.bytes.per.second": None}})
    ]
    assert said[-2:] == [
        "Clearing the replica-alter-dir throttle on broker 1",
        "The controller removes the inter-broker throttle when the last reassignment ends.",
    ]
    await actions.cancel(cluster, moves, True, actions.Console(said.append, said.append))
    assert len(recorder.calls) == 1


async def calls(
    targets: dict[TopicPartition, tuple[int, ...]], rate: int | None, running: Any = None, *, kip_179: bool = True
) -> list[Any]:
    """What starting these reassignments sends."""
    recorder = Recorder()
    in_progress = {} if running is None else running
    throttled = None if rate is None else throttles_of(rate, targets, CURRENT, in_progress, LIVE)
    cluster = BrokersCluster(cast("AsyncAdminClient", recorder), kip_179)
    assert await cluster.start(targets, throttled, in_progress) == {}
    return recorder.calls


@pytest.mark.requirement("R179-29")
async def test_a_throttle_is_sent_with_its_removal() -> None:
    assert await calls({T0: (3,)}, 5000) == [("reassign", {T0: (3,)}, 5000, True)]


@pytest.mark.requirement("R179-29")
async def test_without_a_throttle_the_maximum_is_sent() -> None:
    assert await calls({T0: (3,)}, None) == [("reassign", {T0: (3,)}, MAX_THROTTLE, True)]


async def test_what_is_being_reassigned_is_throttled_then_replaced() -> None:
    running = {T0: Assignment((2, 1), (2,), (1,))}
    assert await calls({T0: (3,), T1: (1,)}, 5000, running) == [
        ("replicas", {T0: ([1], [3]), T1: ([2], [1])}, True),
        ("rates", {1: (5000, 5000), 2: (5000, 5000), 3: (5000, 5000)}, True),
        ("alter", {T0: (3,), T1: (1,)}),
    ]


async def test_without_the_draft_lists_come_before_rates_and_rates_before_the_reassignment() -> None:
    assert await calls({T0: (3,)}, 5000, kip_179=False) == [
        ("configs", {ConfigResource(ResourceType.TOPIC, "t"): {
            "leader.replication.throttled.replicas": "0:1,0:2", "follower.replication.throttled.replicas": "0:3"}}),
        ("configs", {ConfigResource(ResourceType.BROKER, str(broker)): {
            "leader.replication.throttled.rate": "5000", "follower.replication.throttled.rate": "5000"} for broker in (1, 2, 3)}),
        ("alter", {T0: (3,)}),
    ]


@pytest.mark.requirement("R179-37")
async def test_a_new_throttle_of_running_moves_sends_lists_and_rates_and_no_reassignment() -> None:
    recorder = Recorder()
    running = {T0: Assignment((3, 1, 2), (3,), (1, 2))}
    await BrokersCluster(cast("AsyncAdminClient", recorder), True).change_throttle(throttles_of(9, {T0: (3,)}, CURRENT, running, LIVE))
    assert recorder.calls == [("replicas", {T0: ([1, 2], [3])}, True), ("rates", {1: (9, 9), 2: (9, 9), 3: (9, 9)}, True)]
