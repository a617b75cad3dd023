"""Reassignments (KIP-455, controller 11): what is written and sent for each, and in which order; what ends, replaces and resumes them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from klamm.controller.decisions.decision import Refusal, Refuse, Situation, Write
from klamm.controller.events import catalogue as events
from klamm.controller.phases import ReassignmentReplicasOnline
from klamm.controller.reassignment import steps as reassignment_steps
from klamm.controller.values import Assignment, LeaderAndIsr, StoredTopic, WriteOutcome
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.hash_order import in_hash_order
from klamm.protocol.nouns import Ints, TopicPartition
from klamm.tests.controller.stage import Stage, isr_request
from klamm.tests.server.turns import Turns
from klamm.zk.layout.paths import state_path

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
OK = (ErrorCode.NONE, None)
NO_SUCH = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
NOTHING_TO_CANCEL = (ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress.")


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    one = Stage()
    yield one
    await one.close()


async def reassign(stage: Stage, *target: int, key: TopicPartition = T0) -> None:
    """One partition is to go there; it is begun."""
    assert await stage.controller.alter_reassignments({key: target}) == {key: OK}
    await stage.settle()


async def cancel(stage: Stage, key: TopicPartition = T0) -> None:
    assert await stage.controller.alter_reassignments({key: None}) == {key: OK}
    await stage.settle()


async def propose(stage: Stage, *isr: int, key: TopicPartition = T0) -> int:
    """The leader proposes this ISR; the error code."""
    state, topic_id = stage.world.states[key], stage.world.topics[key.topic].topic_id
    assert topic_id is not None
    broker = stage.world.brokers[state.leader]
    request = isr_request(broker.id, broker.epoch, topic_id, key.partition, state.leader_epoch, state.partition_epoch, list(isr))
    response = await stage.controller.alter_partition(request, 2)
    await stage.settle()
    code: int = response.topics[0].partitions[0].error_code
    return code


def epoch(stage: Stage, key: TopicPartition = T0) -> int:
    return stage.world.states[key].leader_epoch


def assignment(stage: Stage, key: TopicPartition = T0) -> Assignment:
    """As ZooKeeper has it; the controller must know the same."""
    stored = stage.world.topics[key.topic].assignments[key.partition]
    assert stage.partition(*key).assignment == stored
    return stored


def is_over(stage: Stage) -> bool:
    """Nothing is being reassigned, nothing is remembered of it."""
    cluster = stage.cluster
    return not cluster.reassigning and not cluster.reassignments.held and not cluster.reassignments.stored


def kinds(stage: Stage, mark: int) -> list[str]:
    """The transcript without what is the same for every broker: `UMR`, and of each other request the broker."""
    found: list[str] = []
    for text in stage.since(mark):
        short = "UMR" if text.startswith("UMR") else text
        if not found or short != found[-1]:
            found.append(short)
    return found


# --- the sequence ---


async def test_one_replica_moves_to_another_broker(stage: Stage) -> None:
    await stage.open(1, 2)
    await stage.create("t", (1,))
    mark = stage.mark()
    await reassign(stage, 2)
    assert kinds(stage, mark) == [
        "TOPIC t {0: [2, 1]}",
        "WROTE t-0 1 e1 [1] v1",
        "LISR 1: t-0 1 e1 [1] v1 +[2] -[1]",
        "LISR 2: t-0 1 e1 [1] v1 +[2] -[1] new",
        "UMR",
        "LISR 2: t-0 1 e1 [1] v1 +[2] -[1] new",
        "UMR",
    ]
    assert stage.cluster.reassigning == {stage.partition("t")} and stage.replica(2, "t") == "NEW"
    mark = stage.mark()
    assert await propose(stage, 1, 2) == 0
    assert kinds(stage, mark) == [
        "WROTE t-0 1 e1 [1, 2] v2",
        "UMR",
        "WROTE t-0 2 e2 [1, 2] v3",
        "LISR 2: t-0 2 e2 [1, 2] v3",
        "UMR",
        "WROTE t-0 2 e3 [2] v4",
        "LISR 2: t-0 2 e3 [2] v4",
        "UMR",
        "SR 1: t-0 e2",
        "SR 1: t-0 e3 delete",
        "TOPIC t {0: [2]}",
        "UMR",
    ]
    assert assignment(stage) == Assignment((2,)) and is_over(stage)
    assert (stage.replica(1, "t"), stage.replica(2, "t")) == ("NON_EXISTENT", "ONLINE")


async def test_all_three_replicas_move(stage: Stage) -> None:
    await stage.open(1, 2, 3, 4, 5, 6)
    await stage.create("t", (1, 2, 3))
    mark = stage.mark()
    await reassign(stage, 4, 5, 6)
    assert stage.writes(mark) == ["TOPIC t {0: [4, 5, 6, 1, 2, 3]}", "WROTE t-0 1 e1 [1, 2, 3] v1"]
    state = "t-0 1 e1 [1, 2, 3] v1 +[4, 5, 6] -[1, 2, 3]"
    assert stage.frames(mark, "LISR") == [
        *(f"LISR {b}: {state}" for b in (1, 2, 3)),
        *(f"LISR {b}: {state} new" for b in (4, 5, 6, 4, 5, 6)),
    ], "the new ones are started one by one, each a second time"
    await propose(stage, 1, 2, 3, 4, 5)
    assert assignment(stage).is_reassigning, "one is missing"
    mark = stage.mark()
    await propose(stage, 1, 2, 3, 4, 5, 6)
    assert stage.writes(mark) == [
        "WROTE t-0 1 e1 [1, 2, 3, 4, 5, 6] v3",
        "WROTE t-0 4 e2 [1, 2, 3, 4, 5, 6] v4",
        "WROTE t-0 4 e3 [2, 3, 4, 5, 6] v5",
        "WROTE t-0 4 e4 [3, 4, 5, 6] v6",
        "WROTE t-0 4 e5 [4, 5, 6] v7",
        "TOPIC t {0: [4, 5, 6]}",
    ]
    assert stage.frames(mark, "SR") == [
        "SR 1: t-0 e2", "SR 2: t-0 e3", "SR 3: t-0 e4", "SR 1: t-0 e5 delete", "SR 2: t-0 e5 delete", "SR 3: t-0 e5 delete",
    ]
    assert [text for text in stage.frames(mark, "LISR") if text.startswith("LISR 5")] == [
        "LISR 5: t-0 4 e2 [1, 2, 3, 4, 5, 6] v4", "LISR 5: t-0 4 e5 [4, 5, 6] v7",
    ], "one for all three that leave, with the last leader epoch"
    assert is_over(stage)


async def test_replicas_leave_the_isr_in_the_order_of_apache_kafka(stage: Stage) -> None:
    brokers = (1, 1000, 2000, 3000, 7)
    await stage.open(*brokers)
    await stage.create("t", brokers)
    mark = stage.mark()
    await reassign(stage, 7)
    left = [text.split(":")[0] for text in stage.frames(mark, "SR") if "delete" not in text]
    order = in_hash_order(brokers[:4])
    assert order != sorted(order)
    isrs = [state.isr for key, state in stage.world.history if key == T0][-4:]
    assert isrs == [tuple(b for b in brokers if b not in order[:n]) for n in (1, 2, 3, 4)]
    assert sorted(left) == sorted(f"SR {b}" for b in order)


@pytest.mark.parametrize(
    ("replicas", "target", "raised", "leader"),
    [
        ((1,), (2,), 3, 2),
        ((1, 2, 3), (4, 5, 6), 5, 4),
        ((1, 2), (1, 3), 3, 1),
        ((1, 2), (3, 1), 3, 1),
        ((1, 2), (1, 2, 3), 2, 1),
        ((1, 2, 3), (3, 1, 2), 1, 1),
        ((1, 2, 3), (1, 2, 3), 1, 1),
        ((1, 2, 3), (1, 2), 2, 1),
        ((1, 2, 3), (3, 2), 2, 3),
        ((1, 2, 3), (3,), 3, 3),
    ],
    ids=str,
)
async def test_leader_epochs_of_a_move(stage: Stage, replicas: Ints, target: Ints, raised: int, leader: int) -> None:
    await stage.open(1, 2, 3, 4, 5, 6)
    await stage.create("t", replicas)
    await reassign(stage, *target)
    if not is_over(stage):
        await propose(stage, *dict.fromkeys((*replicas, *target)))
    assert is_over(stage) and assignment(stage) == Assignment(target)
    state = stage.world.states[T0]
    assert (state.leader_epoch, state.leader, set(state.isr)) == (raised, leader, set(target))


@pytest.mark.parametrize(("target", "writes"), [((3, 1, 2), 2), ((1, 2, 3), 1)], ids=["another order", "the same list"])
async def test_a_change_of_order_writes_the_topic_before_and_after(stage: Stage, target: Ints, writes: int) -> None:
    await stage.open(1, 2, 3)
    await stage.create("t", (1, 2, 3))
    mark = stage.mark()
    await reassign(stage, *target)
    assert [text for text in stage.writes(mark) if text.startswith("TOPIC")] == [f"TOPIC t {{0: {list(target)}}}"] * writes
    assert len(stage.frames(mark, "LISR")) == 3 and not stage.frames(mark, "SR")


async def test_a_thousand_partitions_take_each_step_together(stage: Stage) -> None:
    await stage.open(1, 2, 3, 4)
    for name in ("a", "b"):
        await stage.create(name, *[(1, 2, 3)] * 500)
    mark, keys = stage.mark(), [TopicPartition(name, i) for name in ("a", "b") for i in range(500)]
    assert set((await stage.controller.alter_reassignments(dict.fromkeys(keys, (1, 2, 4)))).values()) == {OK}
    await stage.settle()
    sent = stage.since(mark)
    assert sum(text.startswith("TOPIC") for text in sent) == 2
    assert sum(text.startswith("LISR") for text in sent) == 4 + 1, "one to each broker, a second one to the new one"
    for name in ("a", "b"):
        broker = stage.world.brokers[1]
        request: Any = None
        for i in range(500):
            one = isr_request(1, broker.epoch, name.encode().ljust(16, b"\1"), i, 1, 1, [1, 2, 3, 4])
            if request is None:
                request = one
            else:
                request.topics[0].partitions.append(one.topics[0].partitions[0])
        await stage.controller.alter_partition(request, 2)
    mark = stage.mark()
    await stage.settle()
    assert is_over(stage) and all(stage.world.states[key].isr == (1, 2, 4) for key in keys)
    assert {assignment(stage, key) for key in keys} == {Assignment((1, 2, 4))}


# --- what is refused ---


@pytest.mark.parametrize(
    ("target", "code", "words"),
    [
        ((), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Empty replica list"),
        ((1, 3, 3), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Duplicate replica ids"),
        ((1, -3), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Invalid broker id"),
        ((-1, -1), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Duplicate replica ids"),
        ((1, 9), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "not alive"),
        ((1, 5), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "not alive"),
        ((1, 6), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "not alive"),
        (None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment"),
    ],
    ids=["empty", "twice", "negative", "negative twice", "unknown", "dead", "shutting down", "nothing to cancel"],
)
async def test_a_target_that_is_refused_changes_nothing_and_others_are_begun(
    stage: Stage, target: Ints | None, code: ErrorCode, words: str
) -> None:
    await stage.open(1, 2, 3, 5, 6)
    await stage.create("t", (1, 2), (1, 2))
    await stage.stop(5)
    await stage.controller.controlled_shutdown(6, -1)
    mark = stage.mark()
    results = await stage.controller.alter_reassignments({T0: target, T1: (1, 3), TopicPartition("t", 7): target})
    assert results[T0][0] is code and words in (results[T0][1] or "")
    assert results[T1] == OK and results[TopicPartition("t", 7)][0] is code
    assert assignment(stage) == Assignment((1, 2)) and assignment(stage, T1).adding == (3,)
    assert not [text for text in stage.since(mark) if "t-0" in text]


async def test_partitions_that_do_not_exist(stage: Stage) -> None:
    await stage.open(1)
    await stage.create("t", (1,))
    unknown = [TopicPartition("t", 1), TopicPartition("no", 0), TopicPartition("", -1)]
    assert await stage.controller.alter_reassignments(dict.fromkeys(unknown, (1,))) == dict.fromkeys(unknown, NO_SUCH)
    assert await stage.controller.alter_reassignments(dict.fromkeys(unknown)) == dict.fromkeys(unknown, NOTHING_TO_CANCEL)


async def test_a_dead_replica_that_is_assigned_already_is_accepted(stage: Stage) -> None:
    await stage.open(1, 2, 3)
    await stage.create("t", (1, 2))
    await stage.stop(2)
    await reassign(stage, 2, 1, 3)
    assert assignment(stage) == Assignment((2, 1, 3), (3,))


async def test_a_partition_without_a_leader_yet_is_refused_before_anything_is_written(stage: Stage) -> None:
    await stage.open(1)
    stage.world.create_topic("t", {0: (2,)}, b"t" * 16)
    await stage.settle()
    mark = stage.mark()
    assert (await stage.controller.alter_reassignments({T0: (1,)}))[T0][0] is ErrorCode.UNKNOWN_SERVER_ERROR
    assert not stage.writes(mark) and is_over(stage)


async def test_a_topic_whose_znode_is_gone_is_not_begun(stage: Stage) -> None:
    await stage.open(1, 2)
    await stage.create("t", (1,))
    del stage.world.topics["t"]
    assert (await stage.controller.alter_reassignments({T0: (2,)}))[T0][0] is ErrorCode.UNKNOWN_SERVER_ERROR
    assert is_over(stage) and stage.partition("t").assignment == Assignment((1,))


async def test_a_state_of_a_later_controller_is_not_touched(stage: Stage) -> None:
    await stage.open(1, 2)
    await stage.create("t", (1,))
    stage.somebody_writes("t", controller_epoch=9)
    mark = stage.mark()
    assert (await stage.controller.alter_reassignments({T0: (2,)}))[T0][0] is ErrorCode.UNKNOWN_SERVER_ERROR
    assert stage.writes(mark) == ["TOPIC t {0: [2, 1]}"] and not stage.frames(mark, "LISR")
    assert stage.cluster.reassigning == {stage.partition("t")}, "as in Apache Kafka: it is listed, and tried again"


@pytest.mark.parametrize(("by", "raised"), [(0, True), (6, True), (7, True), (8, False), (9, False)])
def test_the_leader_epoch_rises_unless_a_later_controller_wrote_the_state(by: int, raised: bool) -> None:
    state = LeaderAndIsr(1, 3, (1, 2), 0, 5, by)
    situation = Situation(state, Assignment((3, 1, 2), (3,), (2,)), frozenset(), frozenset(), frozenset(), 7)
    decision = reassignment_steps.RaiseLeaderEpoch()(situation)
    after = state._replace(leader_epoch=4, partition_epoch=6, controller_epoch=7)
    assert decision == (Write(after, (1, 2)) if raised else Refuse(Refusal.NEWER_CONTROLLER, at_once=True))
    assert reassignment_steps.RaiseLeaderEpoch()(situation._replace(state=None)) == Refuse(Refusal.NO_STATE)


async def test_a_controller_that_has_moved_answers_so(stage: Stage) -> None:
    await stage.open(1, 2)
    await stage.create("t", (1,))
    stage.world.steal(77)
    with pytest.raises(ApiError) as refused:
        await stage.controller.alter_reassignments({T0: (2,)})
    assert refused.value.code is ErrorCode.NOT_CONTROLLER
    with pytest.raises(ApiError) as refused:
        await stage.controller.alter_reassignments({T0: (2,)})
    assert refused.value.code is ErrorCode.NOT_CONTROLLER


# --- override, cancel ---


async def test_another_target_replaces_the_first_one(stage: Stage) -> None:
    await stage.open(1, 2, 3, 4)
    await stage.create("t", (1, 2))
    await reassign(stage, 3, 2)
    await propose(stage, 1, 2)
    mark = stage.mark()
    await reassign(stage, 4, 2)
    assert assignment(stage) == Assignment((4, 2, 1), (4,), (1,))
    assert stage.writes(mark) == ["TOPIC t {0: [4, 2, 1]}", "WROTE t-0 1 e2 [1, 2] v2"]
    assert stage.frames(mark, "SR") == ["SR 3: t-0 e1", "SR 3: t-0 e1 delete"]
    assert stage.replica(3, "t") == "NON_EXISTENT"


async def test_an_old_new_replica_that_is_in_sync_leaves_the_isr_when_it_is_replaced(stage: Stage) -> None:
    await stage.open(1, 2, 3, 4, 5)
    await stage.create("t", (1, 2))
    await reassign(stage, 3, 4)
    await propose(stage, 1, 2, 3)
    mark = stage.mark()
    await reassign(stage, 5, 4)
    assert stage.writes(mark) == ["TOPIC t {0: [5, 4, 1, 2]}", "WROTE t-0 1 e2 [1, 2] v3", "WROTE t-0 1 e3 [1, 2] v4"]
    assert assignment(stage) == Assignment((5, 4, 1, 2), (5, 4), (1, 2))


async def test_cancelled_before_anything_was_in_sync(stage: Stage) -> None:
    await stage.open(1, 2, 3)
    await stage.create("t", (1, 2))
    await reassign(stage, 3, 2)
    before = epoch(stage)
    await cancel(stage)
    assert is_over(stage) and assignment(stage) == Assignment((2, 1)), "the order of the target stays where they overlap"
    assert epoch(stage) == before + 1
    assert await stage.controller.alter_reassignments({T0: None}) == {T0: NOTHING_TO_CANCEL}


@pytest.mark.parametrize(
    ("replicas", "target", "after"),
    [((1, 2, 3), (4, 2, 1), (2, 1, 3)), ((1, 2, 3), (4, 5), (1, 2, 3)), ((1, 2), (3, 1, 2), (1, 2)), ((1,), (2,), (1,))],
)
async def test_what_a_cancelled_reassignment_leaves(stage: Stage, replicas: Ints, target: Ints, after: Ints) -> None:
    await stage.open(1, 2, 3, 4, 5)
    await stage.create("t", replicas)
    await reassign(stage, *target)
    await cancel(stage)
    assert assignment(stage) == Assignment(after) and is_over(stage)
    assert stage.world.states[T0].isr == replicas


async def test_cancelled_when_a_new_replica_leads(stage: Stage) -> None:
    """It is taken out, which leaves no leader, and the origin elects one."""
    await stage.open(1, 2, 3, 4)
    await stage.create("t", (1, 2))
    await reassign(stage, 3, 4)
    await propose(stage, 1, 2, 3)
    await stage.stop(1, 2)
    assert stage.state("t") == "3 e2 [3] v3"
    await stage.start(1, 2)
    await propose(stage, 3, 1, 2)
    mark = stage.mark()
    await cancel(stage)
    states = [text for text in stage.writes(mark) if text.startswith("WROTE")]
    assert [text.split(" ")[2] for text in states] == ["-1", "1"] and is_over(stage)
    assert assignment(stage) == Assignment((1, 2))
    assert set(stage.world.states[T0].isr) == {1, 2}


# --- brokers ---


async def test_a_new_replica_that_dies_and_returns_is_started_again(stage: Stage) -> None:
    """One more leader epoch."""
    await stage.open(1, 2)
    await stage.create("t", (1,))
    await reassign(stage, 2)
    await stage.stop(2)
    assert epoch(stage) == 1 and assignment(stage).is_reassigning
    mark = stage.mark()
    await stage.start(2)
    assert epoch(stage) == 2
    assert stage.frames(mark, "LISR 2")[-1] == "LISR 2: t-0 1 e2 [1] v2 +[2] -[1] new"
    await propose(stage, 1, 2)
    assert is_over(stage) and epoch(stage) == 4


async def test_a_broker_that_is_to_go_resumes_nothing_when_it_starts(stage: Stage) -> None:
    await stage.open(1, 2, 3)
    await stage.create("t", (1, 2))
    await reassign(stage, 1, 3)
    await stage.stop(2)
    before = epoch(stage)
    await stage.start(2)
    assert epoch(stage) == before
    await propose(stage, 1, 3)
    assert is_over(stage) and assignment(stage) == Assignment((1, 3))


async def test_a_removed_replica_on_a_dead_broker_is_forgotten(stage: Stage) -> None:
    await stage.open(1, 2)
    await stage.create("t", (1, 2))
    await stage.stop(2)
    mark = stage.mark()
    await reassign(stage, 1)
    assert is_over(stage) and assignment(stage) == Assignment((1,))
    assert not stage.frames(mark, "SR") and stage.replica(2, "t") == "NON_EXISTENT"


async def test_no_leader_of_the_target_is_there_and_the_rest_is_done_all_the_same(stage: Stage) -> None:
    await stage.open(1, 2)
    await stage.create("t", (1, 2))
    stage.world.offline_dirs.add((2, T0))
    stage.world.notify_log_dir(2)
    await stage.settle()
    stage.somebody_writes("t", isr=(1, 2))
    stage.world.notify_isr_change([T0])
    await stage.settle()
    await reassign(stage, 2)
    assert is_over(stage) and assignment(stage) == Assignment((2,))
    assert stage.world.states[T0].leader == -1 and stage.world.states[T0].isr == (2,)


async def test_a_leader_of_the_target_that_died_just_now_is_replaced_when_it_is_completed(stage: Stage) -> None:
    """The event of its death is still to come: the leader is in the state that is known, and not alive."""
    await stage.open(1, 2, 3)
    await stage.create("t", (1, 2, 3))
    p = stage.partition("t")
    stage.cluster.brokers_unregistered([1])
    stage.cluster.assignment_changed(p, Assignment((1, 2)))
    assert await reassignment_steps.move_leaders(stage.term, {p: Assignment((1, 2, 3), (), (3,))})
    assert stage.world.states[T0].leader == 2


async def test_a_completion_whose_new_epoch_is_refused_leaves_the_partition_as_it_was(stage: Stage) -> None:
    await stage.open(1, 2)
    await stage.create("t", (1,))
    await reassign(stage, 1, 2)
    whole = stage.partition("t").assignment
    hold = stage.steering.hold(ReassignmentReplicasOnline)
    await propose(stage, 1, 2)
    assert stage.partition("t").assignment == Assignment((1, 2)), "B2: the target is what counts"
    stage.somebody_writes("t", controller_epoch=9)
    hold.release()
    await stage.settle()
    assert stage.cluster.reassigning == {stage.partition("t")} and not stage.cluster.reassignments.stored
    assert assignment(stage) == whole == Assignment((1, 2), (2,), ())


async def test_a_request_that_is_complete_at_once_fails_if_its_completion_cannot_be_written(stage: Stage) -> None:
    await stage.open(1, 2, 3)
    await stage.create("t", (1, 2, 3))
    write_topics = stage.store.write_topics

    async def refuse_completion(writes: Any) -> Any:
        if any(not write.assignments[0].is_reassigning for write in writes):
            return [WriteOutcome.FAILED for _ in writes]
        return await write_topics(writes)

    stage.store.write_topics = refuse_completion  # type: ignore[method-assign]
    (result,) = (await stage.controller.alter_reassignments({T0: (1, 2)})).values()
    assert result[0] is ErrorCode.UNKNOWN_SERVER_ERROR


async def test_a_topic_znode_that_could_not_be_written_at_the_end_is_written_whole_with_the_next_change(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise the next write completes the reassignment in ZooKeeper alone, which knows what has to be deleted."""
    await stage.open(1, 2)
    await stage.create("t", (1,), (1,))
    await reassign(stage, 2)
    write_topics = stage.store.write_topics

    async def refuse_completion(writes: Any) -> Any:
        if any(write.assignments[0] == Assignment((2,)) for write in writes):
            return [WriteOutcome.FAILED for _ in writes]
        return await write_topics(writes)

    stage.store.write_topics = refuse_completion  # type: ignore[method-assign]
    await propose(stage, 1, 2)
    assert "could not be written" in caplog.text
    whole = Assignment((2, 1), (2,), (1,))
    assert stage.world.topics["t"].assignments[0] == whole and stage.partition("t").assignment == Assignment((2,))
    await reassign(stage, 2, key=T1)
    assert stage.world.topics["t"].assignments == {0: whole, 1: whole}
    stage.store.write_topics = write_topics  # type: ignore[method-assign]
    await stage.fail_over()
    assert assignment(stage) == Assignment((2,)) and stage.cluster.reassigning == {stage.partition("t", 1)}


# --- fail-over ---


async def test_a_new_controller_resumes_what_waits(stage: Stage) -> None:
    await stage.open(1, 2)
    await stage.create("t", (1,))
    await reassign(stage, 2)
    await stage.fail_over()
    assert stage.state("t") == "1 e2 [1] v2" and stage.cluster.reassigning == {stage.partition("t")}
    await propose(stage, 1, 2)
    assert is_over(stage) and epoch(stage) == 4


async def test_a_new_controller_completes_what_is_in_sync(stage: Stage) -> None:
    await stage.open(1, 2)
    await stage.create("t", (1,))
    await reassign(stage, 2)
    await stage.close()
    stage.somebody_writes("t", isr=(1, 2))
    stage.take_office()
    stage.controller.start()
    await stage.settle()
    assert is_over(stage) and assignment(stage) == Assignment((2,)) and stage.state("t") == "2 e3 [2] v4"


# --- the legacy znode ---


async def test_the_znode_begins_reassignments_and_is_gone_when_they_are_complete(stage: Stage) -> None:
    await stage.open(1, 2, 3)
    await stage.create("t", (1,), (1, 2))
    stage.world.ask_reassignment({T0: (2,), T1: (2, 1)})
    await stage.settle()
    assert assignment(stage) == Assignment((2, 1), (2,), (1,)) and assignment(stage, T1) == Assignment((2, 1))
    assert stage.world.reassignments == {T0: (2,)}, "what is complete has left it"
    await propose(stage, 1, 2)
    assert is_over(stage) and stage.world.reassignments is None
    stage.world.ask_reassignment({T0: (3,)})
    await stage.settle()
    assert assignment(stage) == Assignment((3, 2), (3,), (2,)), "the next znode is seen"


async def test_entries_that_fail_leave_the_znode(stage: Stage) -> None:
    await stage.open(1, 2)
    await stage.create("t", (1,), (1,))
    stage.world.ask_reassignment({TopicPartition("no", 0): (1,), T1: (), T0: (2,)})
    await stage.settle()
    assert stage.world.reassignments == {T0: (2,)}
    assert assignment(stage, T1) == Assignment((1,)), "an empty list is refused before anything is written"


async def test_a_znode_of_which_every_entry_fails_goes_and_the_next_one_is_seen(stage: Stage) -> None:
    await stage.open(1, 2)
    await stage.create("t", (1,))
    stage.world.ask_reassignment({TopicPartition("no", 0): (1,)})
    await stage.settle()
    assert stage.world.reassignments is None
    stage.world.ask_reassignment({T0: (2,)})
    await stage.settle()
    assert assignment(stage).adding == (2,)


async def test_a_znode_without_entries_goes_with_the_next_request_and_the_next_one_is_seen(stage: Stage) -> None:
    await stage.open(1, 2, 3)
    await stage.create("t", (1,), (1,))
    stage.world.ask_reassignment({})
    await stage.settle()
    await reassign(stage, 2)
    assert stage.world.reassignments is None
    stage.world.ask_reassignment({T1: (3,)})
    await stage.settle()
    assert assignment(stage, T1).adding == (3,)


async def test_a_list_of_the_znode_is_not_looked_at(stage: Stage) -> None:
    """A broker that is not there is waited for; a list that names one twice never leaves the znode."""
    await stage.open(1, 2)
    await stage.create("t", (1,), (1,))
    stage.world.ask_reassignment({T0: (9,), T1: (1, 1)})
    await stage.settle()
    assert assignment(stage) == Assignment((9, 1), (9,), (1,)) and assignment(stage, T1) == Assignment((1,))
    assert stage.world.reassignments == {T0: (9,), T1: (1, 1)}
    await stage.start(9)
    await propose(stage, 1, 9)
    assert is_over(stage) and assignment(stage) == Assignment((9,))
    assert stage.world.reassignments == {T1: (1, 1)}


async def test_a_request_takes_its_partitions_out_of_the_znode(stage: Stage) -> None:
    await stage.open(1, 2, 3)
    await stage.create("t", (1,), (1,))
    stage.world.ask_reassignment({T0: (2,), T1: (2,)})
    await stage.settle()
    await reassign(stage, 3)
    assert stage.world.reassignments == {T1: (2,)} and assignment(stage) == Assignment((3, 1), (3,), (1,))
    await cancel(stage, T1)
    assert stage.world.reassignments is None and assignment(stage, T1) == Assignment((1,))
    stage.world.ask_reassignment({T1: (3,)})
    await stage.settle()
    assert assignment(stage, T1).adding == (3,), "the next znode is seen"


async def test_the_znode_counts_at_fail_over_more_than_what_is_under_way(stage: Stage) -> None:
    await stage.open(1, 2, 3)
    await stage.create("t", (1,), (1,))
    await reassign(stage, 2)
    await reassign(stage, 2, key=T1)
    await stage.close()
    stage.world.ask_reassignment({T0: (3,)})
    before = epoch(stage), epoch(stage, T1)
    stage.take_office()
    stage.controller.start()
    await stage.settle()
    assert (epoch(stage) - before[0], epoch(stage, T1) - before[1]) == (1, 1), "each is begun or resumed, not both"
    assert assignment(stage) == Assignment((3, 1), (3,), (1,)) and assignment(stage, T1) == Assignment((2, 1), (2,), (1,))


# --- deletion ---


async def test_a_topic_is_deleted_at_once_new_replicas_included(stage: Stage) -> None:
    await stage.open(1, 2)
    await stage.create("t", (1,))
    stage.world.ask_reassignment({T0: (2,)})
    await stage.settle()
    mark = stage.mark()
    stage.world.delete_topic("t")
    await stage.settle()
    assert "t" not in stage.world.topics and is_over(stage)
    assert [text for text in stage.frames(mark, "SR") if "delete" in text] == ["SR 1: t-0 e-2 delete", "SR 2: t-0 e-2 delete"]
    assert stage.world.reassignments is None, "and nothing of it is left"
    await stage.create("t", (1,))
    await propose(stage, 1)
    assert stage.state("t") == "1 e0 [1] v0", "a later topic of this name is none of its business"


async def test_a_topic_that_waits_for_its_deletion_is_not_reassigned(stage: Stage) -> None:
    await stage.open(1, 2)
    await stage.create("t", (1, 2))
    await stage.stop(2)
    stage.world.delete_topic("t")
    await stage.settle()
    assert await stage.controller.alter_reassignments({T0: (1,)}) == {T0: NO_SUCH}


# --- ISRs that leaders write themselves ---


async def test_a_notification_completes_what_is_in_sync(stage: Stage) -> None:
    await stage.open(1, 2)
    await stage.create("t", (1,))
    await reassign(stage, 2)
    stage.somebody_writes("t", isr=(1, 2))
    stage.world.notify_isr_change([T0])
    await stage.settle()
    assert is_over(stage) and stage.state("t") == "2 e3 [2] v4"


async def test_an_isr_that_shrank_behind_the_controllers_back_is_not_in_sync(stage: Stage) -> None:
    """What counts is the ISR in ZooKeeper."""
    await stage.open(1, 2, 3)
    await stage.create("t", (1, 2, 3))
    stage.somebody_writes("t", isr=(1, 3))
    await reassign(stage, 1, 2)
    assert assignment(stage) == Assignment((1, 2, 3), (), (3,)) and not is_over(stage)


async def test_a_partition_whose_state_is_gone_from_zookeeper_is_not_in_sync(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    await stage.open(1, 2, 3)
    await stage.create("t", (1, 2, 3))
    stage.world.zk.delete_tree(state_path("t", 0))
    await stage.controller.alter_reassignments({T0: (1, 2)})
    await stage.settle()
    assert stage.world.topics["t"].assignments[0] == Assignment((1, 2, 3), (), (3,)) and not is_over(stage)
    assert "the reassignment of t-0 does not begin: NO_STATE" in caplog.text and "cannot be completed" not in caplog.text


async def test_a_proposal_that_changes_nothing_is_looked_at_too(stage: Stage) -> None:
    await stage.open(1, 2)
    await stage.create("t", (1, 2))
    stage.world.topics["t"] = StoredTopic(b"t".ljust(16, b"\1"), {0: Assignment((1, 2), (2,))})
    stage.cluster.assignment_changed(stage.partition("t"), Assignment((1, 2), (2,)))
    stage.cluster.reassignments_began([stage.partition("t")])
    assert await propose(stage, 1, 2) == 0
    assert is_over(stage) and assignment(stage) == Assignment((1, 2))


async def test_a_proposal_that_is_refused_completes_nothing(stage: Stage) -> None:
    await stage.open(1, 2)
    await stage.create("t", (1,))
    await reassign(stage, 2)
    state = stage.world.states[T0]
    request = isr_request(1, stage.world.brokers[1].epoch, b"t".ljust(16, b"\1"), 0, state.leader_epoch - 1, 0, [1, 2])
    response = await stage.controller.alter_partition(request, 2)
    await stage.settle()
    assert response.topics[0].partitions[0].error_code == ErrorCode.FENCED_LEADER_EPOCH and not is_over(stage)


async def test_listed_are_those_that_are_under_way(stage: Stage) -> None:
    await stage.open(1, 2)
    await stage.create("t", (1,), (1,))
    await reassign(stage, 2)
    assert await stage.controller.list_reassignments(None) == {T0: Assignment((2, 1), (2,), (1,))}
    assert await stage.controller.list_reassignments([T1, T0]) == {T0: Assignment((2, 1), (2,), (1,))}


async def test_a_big_request_lets_the_loop_go_round(stage: Stage) -> None:
    await stage.open(1)
    turns = 0
    asked = asyncio.ensure_future(stage.controller.alter_reassignments({TopicPartition("no", i): (1,) for i in range(100_000)}))
    while not asked.done():
        await asyncio.sleep(0)
        turns += 1
    assert set((await asked).values()) == {NO_SUCH} and turns > 90


async def test_the_event_that_another_controller_processes_is_refused(stage: Stage) -> None:
    event = events.AlterPartitionReassignments({T0: (1,)}, asyncio.get_running_loop().create_future())
    events.preempt(event)
    with pytest.raises(ApiError) as refused:
        await event.future
    assert refused.value.code is ErrorCode.NOT_CONTROLLER


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_a_request_for_a_hundred_thousand_partitions_stops_nobody_for_long(stage: Stage) -> None:
    """All of them get another order, and the loop goes round meanwhile: no turn has more than a tenth of the work."""
    await stage.open(1, 2)
    topics = [f"t{n}" for n in range(20)]
    for n, name in enumerate(topics, start=1):
        stage.world.create_topic(name, dict.fromkeys(range(5000), (1, 2)), bytes([n]) * 16)
    await stage.settle()
    async with Turns() as turns:
        results = await stage.controller.alter_reassignments({TopicPartition(name, i): (2, 1) for name in topics for i in range(5000)})
    assert len(results) == 100_000 and set(results.values()) == {OK} and is_over(stage)
    assert turns.longest < turns.total / 10


@pytest.mark.parametrize("later", [0, 1])
async def test_partitions_whose_event_is_behind_a_reassignment_are_kept(stage: Stage, later: int) -> None:
    """CreatePartitions wrote the topic znode, and its event waits in the queue while reassignments of the topic write it too."""
    await stage.open(1, 2)
    await stage.create("t", (1,), (1,))
    reassignments = [asyncio.ensure_future(stage.controller.alter_reassignments({key: (2,)})) for key in (T0, T1)[: later + 1]]
    await asyncio.sleep(0)
    stage.world.grow_topic("t", {2: (2,)})
    await asyncio.gather(*reassignments)
    await stage.settle()
    assert stage.world.topics["t"].assignments[2] == Assignment((2,))
    assert stage.cluster.topics["t"].partitions[2].assignment == Assignment((2,))
    assert stage.world.topics["t"].assignments[0] == Assignment((2, 1), (2,), (1,))
