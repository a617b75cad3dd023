"""Reassignments that are held between two steps: only that partition is parked, and what happens to it meanwhile is lawful."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, get_args

import pytest

from klamm.controller.phases import (
    PartitionsAppeared,
    ReassignmentCaughtUp,
    ReassignmentEpochRaised,
    ReassignmentForgotten,
    ReassignmentLeaderMoved,
    ReassignmentPhase,
    ReassignmentReplicasDeleted,
    ReassignmentReplicasOnline,
    ReassignmentReplicasStarted,
    ReassignmentReplicasStopped,
    ReassignmentTargetStored,
)
from klamm.controller.values import Assignment, Election
from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode
from klamm.protocol.nouns import Ints, TopicPartition
from klamm.seams.steering import Hold
from klamm.tests.controller.stage import Stage, isr_request

T0 = TopicPartition("t", 0)
PHASES: tuple[type[ReassignmentPhase], ...] = get_args(ReassignmentPhase)
WAITING: tuple[type[ReassignmentPhase], ...] = (ReassignmentTargetStored, ReassignmentEpochRaised, ReassignmentReplicasStarted)
COMPLETING = tuple(kind for kind in PHASES if kind not in (*WAITING, ReassignmentCaughtUp))
"""Those at which old replicas may be gone already."""
BEFORE, AFTER = Assignment((4, 2, 3, 1), (4,), (1,)), Assignment((4, 2, 3))


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    one = Stage()
    await one.open(1, 2, 3, 4, 5)
    yield one
    await one.close()


async def ask(stage: Stage, targets: dict[TopicPartition, Ints | None]) -> set[ErrorCode]:
    results = await stage.controller.alter_reassignments(targets)
    await stage.settle()
    return {code for code, _ in results.values()}


async def catch_up(stage: Stage, keys: list[TopicPartition], *more: int) -> None:
    """The leaders take all replicas that are alive into the ISRs, each in one request."""
    request = messages.AlterPartitionRequest
    topic_id = {t: stored.topic_id for t, stored in stage.world.topics.items() if stored.topic_id is not None}
    by_leader: dict[int, list[TopicPartition]] = {}
    for key in keys:
        by_leader.setdefault(stage.world.states[key].leader, []).append(key)
    for leader, led in by_leader.items():
        topics = []
        for topic in dict.fromkeys(key.topic for key in led):
            rows = []
            for key in (key for key in led if key.topic == topic):
                state, replicas = stage.world.states[key], stage.world.topics[topic].assignments[key.partition].replicas
                isr = [*state.isr, *(r for r in replicas if r not in state.isr and r in stage.world.brokers)]
                rows.append(
                    request.PartitionData(
                        partition_index=key.partition, leader_epoch=state.leader_epoch, new_isr=isr, partition_epoch=state.partition_epoch
                    )
                )
            topics.append(request.TopicData(topic_id=topic_id[topic], partitions=rows))
        broker_epoch = stage.world.brokers[leader].epoch
        await stage.controller.alter_partition(request(broker_id=leader, broker_epoch=broker_epoch, topics=topics), 2)
    await stage.settle()


async def held(stage: Stage, kind: type[ReassignmentPhase], key: TopicPartition = T0) -> Hold[Any]:
    """This partition is on its way from [1, 2, 3] to [4, 2, 3], and held there."""
    hold = stage.steering.hold(kind, where={"topic": key[0], "partition": key[1]})
    assert await ask(stage, {key: (4, 2, 3)}) == {ErrorCode.NONE}
    if kind not in WAITING:
        await catch_up(stage, [key])
    assert hold.held == [kind(1, *key)]
    return hold


def is_over(stage: Stage) -> bool:
    cluster = stage.cluster
    return not cluster.reassigning and not cluster.reassignments.held and not cluster.reassignments.stored


def stored(stage: Stage, key: TopicPartition = T0) -> Assignment:
    return stage.world.topics[key.topic].assignments[key.partition]


@pytest.mark.parametrize(("kind", "count"), [(kind, 500 if kind is PHASES[0] else 50) for kind in PHASES])
async def test_up_to_five_hundred_others_of_the_same_topics_go_on_while_one_is_held(
    stage: Stage, kind: type[ReassignmentPhase], count: int
) -> None:
    """They move, elect, shrink, grow and complete; the held one stays where it is, and the topic znodes keep what is to be removed."""
    of_t, of_u, tenth = count // 2 + 1, count // 2, count // 10
    await stage.create("t", *[(1, 2, 3)] * of_t)
    await stage.create("u", *[(2, 3, 1)] * of_u)
    hold = await held(stage, kind)
    before = stage.world.states[T0], stored(stage)
    others = [TopicPartition(t, i) for t, partitions in (("t", of_t), ("u", of_u)) for i in range(partitions) if (t, i) != T0]
    assert len(others) == count
    moved, cancelled, ordered = others[: 4 * tenth], others[4 * tenth : 5 * tenth], others[5 * tenth : 6 * tenth]
    shrunk, rest = others[6 * tenth : 8 * tenth], others[8 * tenth :]

    targets: dict[TopicPartition, Ints | None] = dict.fromkeys(moved, (4, 2, 3))
    targets |= dict.fromkeys(cancelled, (5, 3)) | dict.fromkeys(ordered, (3, 1, 2))
    assert await ask(stage, targets) == {ErrorCode.NONE}
    assert {stored(stage, key) for key in ordered} == {Assignment((3, 1, 2))}
    assert await ask(stage, dict.fromkeys(cancelled)) == {ErrorCode.NONE}
    assert {set(stored(stage, key).replicas) == {1, 2, 3} for key in cancelled} == {True}
    await catch_up(stage, moved)
    assert {stored(stage, key) for key in moved} == {AFTER} and {stage.world.states[key].leader for key in moved} == {4}
    elected = await stage.controller.elect_leaders(ordered, Election.PREFERRED)
    assert {result.error for result in elected.values()} == {ErrorCode.NONE}
    await stage.stop(5)
    for key in shrunk[:20]:
        state, topic_id = stage.world.states[key], stage.world.topics[key.topic].topic_id
        assert topic_id is not None
        epoch = stage.world.brokers[state.leader].epoch
        request = isr_request(state.leader, epoch, topic_id, key.partition, state.leader_epoch, state.partition_epoch, [state.leader])
        await stage.controller.alter_partition(request, 2)
        assert stage.world.states[key].isr == (state.leader,)
    await catch_up(stage, shrunk[:20])
    await stage.create("new", (1, 2))
    assert stage.state("new") == "1 e0 [1, 2] v0" and {stage.world.states[key].leader_epoch for key in rest} == {0}

    assert hold.held == [kind(1, "t", 0)] and (stage.world.states[T0], stored(stage)) == before
    hold.release()
    await stage.settle()
    await catch_up(stage, [T0])
    assert is_over(stage) and stored(stage) == AFTER and stage.world.states[T0].isr == (2, 3, 4)


async def test_a_move_is_stepped_from_its_beginning_to_its_end(stage: Stage) -> None:
    await stage.create("t", (1, 2, 3))
    hold = stage.steering.hold(*PHASES)
    seen: list[tuple[str, list[str]]] = []

    async def step_all(mark: int) -> None:
        while hold.held:
            lines = [line for line in stage.since(mark) if not line.startswith("UMR")]
            done = [line.split(":" if line.startswith(("LISR", "SR")) else " ")[0] for line in lines]
            seen.append((type(hold.step()).__name__, done))
            mark = stage.mark()
            await stage.settle()

    mark = stage.mark()
    await ask(stage, {T0: (4, 2, 3)})
    await step_all(mark)
    mark = stage.mark()
    await catch_up(stage, [T0])
    await step_all(mark)
    assert seen == [
        ("ReassignmentTargetStored", ["TOPIC"]),
        ("ReassignmentEpochRaised", ["WROTE", "LISR 1", "LISR 2", "LISR 3", "LISR 4"]),
        ("ReassignmentReplicasStarted", ["LISR 4"]),
        ("ReassignmentCaughtUp", ["WROTE"]),
        ("ReassignmentReplicasOnline", []),
        ("ReassignmentLeaderMoved", ["WROTE", "LISR 2", "LISR 3", "LISR 4"]),
        ("ReassignmentReplicasStopped", ["WROTE", "LISR 2", "LISR 3", "LISR 4", "SR 1"]),
        ("ReassignmentReplicasDeleted", ["SR 1"]),
        ("ReassignmentCompletionStored", ["TOPIC"]),
        ("ReassignmentForgotten", []),
    ]
    assert [name for name, _ in seen] == [kind.__name__ for kind in PHASES]
    assert is_over(stage) and stored(stage) == AFTER


@pytest.mark.parametrize("kind", PHASES)
async def test_a_controller_that_crashes_where_a_move_is_held_is_followed_by_one_that_ends_it(
    stage: Stage, kind: type[ReassignmentPhase]
) -> None:
    await stage.create("t", (1, 2, 3))
    hold = await held(stage, kind)
    await stage.close()
    assert hold.held == []
    hold.release()
    await stage.fail_over()
    if not is_over(stage):
        await catch_up(stage, [T0])
    assert is_over(stage) and stored(stage) == AFTER and stage.world.states[T0].isr == (2, 3, 4)
    last = [line for line in stage.frames(0, "SR 1") if line.endswith("delete")]
    assert last, "the replica on broker 1 is deleted"


@pytest.mark.parametrize("kind", (*WAITING, ReassignmentCaughtUp))
async def test_another_target_replaces_a_move_that_is_held_before_its_completion(stage: Stage, kind: type[ReassignmentPhase]) -> None:
    await stage.create("t", (1, 2, 3))
    hold = await held(stage, kind)
    assert await ask(stage, {T0: (5, 2, 3)}) == {ErrorCode.NONE}
    assert hold.held == [] or kind is not ReassignmentCaughtUp
    hold.release()
    await stage.settle()
    assert stored(stage) == Assignment((5, 2, 3, 1), (5,), (1,)) and stage.replica(4, "t") == "NON_EXISTENT"
    await catch_up(stage, [T0])
    assert is_over(stage) and stored(stage) == Assignment((5, 2, 3))


@pytest.mark.parametrize("kind", (*WAITING, ReassignmentCaughtUp))
async def test_a_move_that_is_held_before_its_completion_is_cancelled(stage: Stage, kind: type[ReassignmentPhase]) -> None:
    await stage.create("t", (1, 2, 3))
    hold = await held(stage, kind)
    stage.steering.ended(hold)
    assert await ask(stage, {T0: None}) == {ErrorCode.NONE}
    assert hold.held == [] and is_over(stage) and stored(stage).replicas == (2, 3, 1)
    assert set(stage.world.states[T0].isr) == {1, 2, 3}


@pytest.mark.parametrize("kind", COMPLETING)
@pytest.mark.parametrize("target", [(5, 2, 3), (1, 2, 3), None], ids=str)
async def test_a_move_that_is_held_in_its_completion_is_completed_before_a_request_counts(
    stage: Stage, kind: type[ReassignmentPhase], target: Ints | None
) -> None:
    """Its old replicas may be gone already: there is no way back, only a new reassignment."""
    await stage.create("t", (1, 2, 3))
    hold = await held(stage, kind)
    codes = await ask(stage, {T0: target})
    if target is None:
        assert codes == {ErrorCode.NO_REASSIGNMENT_IN_PROGRESS} and hold.held == [kind(1, "t", 0)]
        hold.release()
        await stage.settle()
        assert is_over(stage) and stored(stage) == AFTER
        return
    assert codes == {ErrorCode.NONE} and hold.held == []
    stage.steering.ended(hold)
    assert stored(stage) == Assignment(tuple(dict.fromkeys((*target, 4, 2, 3))), (target[0],), (4,))
    await catch_up(stage, [T0])
    assert is_over(stage) and stored(stage) == Assignment(target)


@pytest.mark.parametrize("kind", PHASES)
async def test_brokers_die_and_return_while_a_move_is_held(stage: Stage, kind: type[ReassignmentPhase]) -> None:
    await stage.create("t", (1, 2, 3))
    hold = await held(stage, kind)
    for b in (1, 4):
        await stage.stop(b)
        await stage.start(b)
    hold.release()
    await stage.settle()
    if not is_over(stage):
        await catch_up(stage, [T0])
    assert is_over(stage) and stored(stage) == AFTER
    state = stage.world.states[T0]
    assert state.leader in (2, 3, 4) and set(state.isr) <= {2, 3, 4}


async def test_a_target_that_falls_out_of_sync_while_its_completion_is_held_is_waited_for_again(stage: Stage) -> None:
    await stage.create("t", (1, 2, 3))
    hold = await held(stage, ReassignmentCaughtUp)
    await stage.stop(4)
    hold.release()
    await stage.settle()
    assert stored(stage) == BEFORE and stage.cluster.reassigning == {stage.partition("t")}
    await stage.start(4)
    await catch_up(stage, [T0])
    assert is_over(stage) and stored(stage) == AFTER


@pytest.mark.parametrize("kind", PHASES)
async def test_a_topic_is_deleted_whose_move_is_held(stage: Stage, kind: type[ReassignmentPhase]) -> None:
    """At once, unless old replicas are being removed: then behind the end of that."""
    await stage.create("t", (1, 2, 3))
    hold = await held(stage, kind)
    stage.world.delete_topic("t")
    await stage.settle()
    waits = kind in COMPLETING and kind is not ReassignmentForgotten and kind.__name__ != "ReassignmentCompletionStored"
    assert ("t" in stage.world.topics) == waits
    hold.release()
    await stage.settle()
    assert "t" not in stage.world.topics and is_over(stage) and not stage.cluster.deletions
    assert {line for line in stage.frames(0, "SR") if line.endswith("delete")} >= {f"SR {b}: t-0 e-2 delete" for b in (2, 3, 4)}


async def test_a_release_that_waits_behind_the_end_of_its_move_is_ignored(stage: Stage) -> None:
    await stage.create("t", (1, 2, 3))
    hold = await held(stage, ReassignmentReplicasStarted)
    busy = stage.steering.hold(PartitionsAppeared)
    stage.world.create_topic("slow", {0: (1,)}, b"s" * 16)
    await busy.reached()
    asked = asyncio.ensure_future(stage.controller.alter_reassignments({T0: (5, 2, 3)}))
    await asyncio.sleep(0)
    hold.release()
    busy.release()
    await asked
    await stage.settle()
    assert stored(stage) == Assignment((5, 2, 3, 1), (5,), (1,))


async def test_a_release_that_waits_behind_the_end_of_its_move_does_not_release_the_next_one(stage: Stage) -> None:
    await stage.create("t", (1, 2, 3))
    hold = await held(stage, ReassignmentReplicasStarted)
    busy = stage.steering.hold(PartitionsAppeared)
    stage.world.create_topic("slow", {0: (1,)}, b"s" * 16)
    await busy.reached()
    asked = asyncio.ensure_future(stage.controller.alter_reassignments({T0: (5, 2, 3)}))
    await asyncio.sleep(0)
    hold.step()
    busy.release()
    await asked
    await stage.settle()
    assert set(stage.cluster.reassignments.held) == {stage.partition("t")}
    hold.release()
    await stage.settle()
    assert not stage.cluster.reassignments.held and stored(stage) == Assignment((5, 2, 3, 1), (5,), (1,))


async def test_what_is_held_has_ended_with_the_session(stage: Stage) -> None:
    await stage.create("t", (1, 2, 3))
    hold = await held(stage, ReassignmentReplicasOnline)
    await stage.controller.expire()
    await stage.settle()
    assert hold.held == []


async def test_partitions_of_one_request_are_held_and_released_together(stage: Stage) -> None:
    await stage.create("t", *[(1, 2, 3)] * 20)
    keys = [TopicPartition("t", i) for i in range(20)]
    hold = stage.steering.hold(ReassignmentReplicasDeleted, ReassignmentReplicasStopped, ReassignmentLeaderMoved)
    assert await ask(stage, dict.fromkeys(keys, (2, 3))) == {ErrorCode.NONE}
    assert len(hold.held) == 20 and {stored(stage, key) for key in keys} == {Assignment((2, 3, 1), (), (1,))}
    hold.release()
    await stage.settle()
    assert is_over(stage) and {stored(stage, key) for key in keys} == {Assignment((2, 3))}
