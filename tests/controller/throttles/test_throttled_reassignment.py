"""ReassignPartitions in the controller: throttles, reassignment, and the removal of the throttles (KIP-179; controller 22.2, 22.5)."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from klamm.controller.decisions.throttled_replicas import UNTHROTTLED
from klamm.controller.phases import (
    BrokerThrottlesSet,
    ReassignmentReplicasStarted,
    ReassignmentsRecorded,
    ThrottledBrokersRecorded,
    ThrottledTopicsRecorded,
    TopicThrottlesSet,
)
from klamm.controller.values import Assignment, Result, StoreRefused, WriteOutcome
from klamm.protocol.errors import ErrorCode
from klamm.protocol.nouns import Ints, TopicPartition
from klamm.tests.controller.simulated_brokers import proposals
from klamm.tests.controller.stage import Stage, isr_request
from klamm.tests.controller.throttles.throttle_tree import (
    BROKERS,
    KEPT,
    MOVES,
    REMOVALS,
    TOPICS,
    config,
    content,
    opened,
    put,
    rate,
    replicas,
    set_config,
    throttle,
    tree,
    written,
)

A0, A1, T0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("t", 0)
NONE = (None, None)
DONE = (ErrorCode.NONE, None)
KINDS = (ThrottledTopicsRecorded, TopicThrottlesSet, ThrottledBrokersRecorded, BrokerThrottlesSet, ReassignmentsRecorded)


async def catch_up(stage: Stage) -> None:
    """Every replica that follows comes in sync, as its leader tells the controller."""
    for _ in range(5):
        for key, proposal in proposals(stage.world, stage.told).items():
            topic_id = stage.world.topics[key.topic].topic_id
            assert topic_id is not None
            leader = stage.world.brokers[proposal.leader]
            isr = list(proposal.isr)
            request = isr_request(leader.id, leader.epoch, topic_id, key.partition, proposal.leader_epoch, proposal.partition_epoch, isr)
            await stage.controller.alter_partition(request, 2)
            await stage.settle()


def assigned(stage: Stage, key: TopicPartition) -> Assignment:
    return stage.world.topics[key.topic].assignments[key.partition]


def codes(results: dict[TopicPartition, Result]) -> list[ErrorCode]:
    return [code for code, _ in results.values()]


def unthrottled(stage: Stage) -> bool:
    """Whether no throttle is left, and nothing that tells of one; other properties are as they were."""
    entities = ("topics/a", "topics/t", *(f"brokers/{b}" for b in (1, 2, 3, 4)))
    clean = all(config(stage.world, entity) == KEPT[entity.partition("/")[0]] for entity in entities)
    return clean and all(content(stage.world, path) is None for path in (*REMOVALS, MOVES))


# --- checks ---


@pytest.mark.requirement("R179-3")
async def test_partitions_with_an_error_are_reported_and_the_others_move(stage: Stage) -> None:
    await opened(stage, 1, 2, 3, 4)
    await stage.create("doomed", (4,))
    stage.channels.silent.add(4)
    stage.world.delete_topic("doomed")
    await stage.settle()
    targets: dict[TopicPartition, Ints] = {
        TopicPartition("nowhere", 0): (1,),
        TopicPartition("t", 7): (1,),
        TopicPartition("doomed", 0): (1,),
        A0: (),
        A1: (3, 3),
        TopicPartition("a", -1): (1,),
        T0: (3, 1),
    }
    results = await stage.controller.reassign_partitions(targets, 5000)
    unknown, invalid = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert codes(results) == [unknown, unknown, unknown, invalid, invalid, unknown, ErrorCode.NONE]
    assert all((message is None) == (code is ErrorCode.NONE) for code, message in results.values())
    await stage.settle()
    assert assigned(stage, T0) == Assignment((3, 1, 2), (3,), (2,)) and assigned(stage, A0) == Assignment((1, 2))
    assert content(stage.world, TOPICS) == {"version": 1, "topics": ["t"]}


@pytest.mark.requirement("R179-3")
@pytest.mark.parametrize(
    ("target", "message"),
    [
        ((), "The list of replicas is empty."),
        ((3, 3), "The list of replicas names a broker twice: 3, 3."),
        ((-1, 3), "A broker id is negative: -1, 3."),
        ((1, 99, 98), "New replicas are on brokers that are not alive: 99, 98. Live brokers: 1, 2, 3, 4."),
        (tuple(range(1_000_000)), "The replica list names more brokers than there are."),
    ],
    ids=["empty", "twice", "negative", "dead", "long"],
)
async def test_a_list_that_can_be_no_target_is_refused(stage: Stage, target: Ints, message: str) -> None:
    await opened(stage, 1, 2, 3, 4)
    assert await stage.controller.reassign_partitions({T0: target}, 5000) == {T0: (ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)}


@pytest.mark.requirement("R179-3")
async def test_a_partition_without_a_leader_yet_is_refused_before_anything_is_written(stage: Stage) -> None:
    await opened(stage, 1, 2, 3, 4)
    await stage.create("new", (99,))
    before = tree(stage.world)
    assert codes(await stage.controller.reassign_partitions({TopicPartition("new", 0): (1,)}, 5000)) == [ErrorCode.UNKNOWN_SERVER_ERROR]
    assert tree(stage.world) == before


@pytest.mark.requirement("R179-5")
@pytest.mark.parametrize("bytes_per_second", [0, -1, -(2**63)])
async def test_a_throttle_below_one_is_refused_for_every_partition(stage: Stage, bytes_per_second: int) -> None:
    await opened(stage, 1, 2, 3, 4)
    before = tree(stage.world)
    results = await stage.controller.reassign_partitions({T0: (3, 1), TopicPartition("nowhere", 0): (1,)}, bytes_per_second)
    assert codes(results) == [ErrorCode.INVALID_REQUEST] * 2
    assert tree(stage.world) == before


@pytest.mark.requirement("R179-5")
@pytest.mark.parametrize(("bytes_per_second", "warned"), [(1, True), (1023, True), (1024, False), (2**63 - 2, False)])
async def test_a_throttle_below_1024_is_accepted_with_a_warning(
    stage: Stage, bytes_per_second: int, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    await opened(stage, 1, 2, 3, 4)
    assert await stage.controller.reassign_partitions({T0: (3, 1)}, bytes_per_second) == {T0: DONE}
    assert rate(stage.world, 3) == (str(bytes_per_second), str(bytes_per_second))
    assert (f"throttled to {bytes_per_second} bytes per second" in caplog.text) == warned


@pytest.mark.requirement("R179-5")
async def test_the_largest_throttle_means_none(stage: Stage) -> None:
    await opened(stage, 1, 2, 3, 4)
    seen = written(stage.world)
    assert await stage.controller.reassign_partitions({T0: (3, 1)}, UNTHROTTLED) == {T0: DONE}
    assert seen == [MOVES]
    await stage.settle()
    await catch_up(stage)
    assert assigned(stage, T0) == Assignment((3, 1)) and unthrottled(stage)
    assert not any(path.startswith("/config/") for path in seen)


@pytest.mark.requirement("R179-4")
async def test_validate_only_makes_all_checks_and_changes_nothing(stage: Stage) -> None:
    await opened(stage, 1, 2, 3, 4)
    before = tree(stage.world)
    results = await stage.controller.reassign_partitions({T0: (3, 1), A0: (99,), TopicPartition("t", 7): (1,)}, 5000, validate_only=True)
    assert codes(results) == [ErrorCode.NONE, ErrorCode.INVALID_REPLICA_ASSIGNMENT, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    await stage.settle()
    assert tree(stage.world) == before


@pytest.mark.requirement("R179-12")
async def test_a_request_without_an_accepted_partition_does_none_of_the_steps(stage: Stage) -> None:
    await opened(stage, 1, 2, 3, 4)
    put(stage.world, TOPICS, {"version": 1, "topics": ["t"]})
    throttle(stage.world, "topics/t")
    before = tree(stage.world)
    assert codes(await stage.controller.reassign_partitions({T0: (99,), A0: ()}, 5000)) == [ErrorCode.INVALID_REPLICA_ASSIGNMENT] * 2
    assert await stage.controller.reassign_partitions({}, 5000) == {}
    assert tree(stage.world) == before


@pytest.mark.requirement("R179-11")
async def test_a_partition_that_is_being_reassigned_is_refused_and_others_are_added(stage: Stage) -> None:
    await opened(stage, 1, 2, 3, 4)
    assert await stage.controller.reassign_partitions({T0: (3, 1)}, 5000) == {T0: DONE}
    at_once = await stage.controller.reassign_partitions({T0: (4, 1), A0: (3, 2)}, 7000)
    await stage.settle()
    later = await stage.controller.reassign_partitions({T0: (4, 1), A1: (4, 2)}, 9000)
    await stage.settle()
    assert codes(at_once) == codes(later) == [ErrorCode.REASSIGNMENT_IN_PROGRESS, ErrorCode.NONE]
    assert [assigned(stage, key).adding for key in (T0, A0, A1)] == [(3,), (3,), (4,)]
    assert content(stage.world, MOVES) is not None and len(content(stage.world, MOVES)["partitions"]) == 3
    assert replicas(stage.world, "a") == ("0:1,0:2,1:1,1:2", "0:3,1:4")
    await catch_up(stage)
    assert [assigned(stage, key) for key in (T0, A0, A1)] == [Assignment((3, 1)), Assignment((3, 2)), Assignment((4, 2))]
    assert unthrottled(stage)


@pytest.mark.requirement("R179-11")
async def test_each_partition_of_requests_that_come_together_is_begun_once(stage: Stage) -> None:
    """Whether the znode existed or not: the leader epoch rises once for each partition that waits for a replica."""
    await opened(stage, 1, 2, 3, 4)
    asking = [stage.controller.reassign_partitions({key: (3, *rest)}, 5000) for key, rest in ((T0, (1,)), (A0, (1,)), (A1, (2,)))]
    assert [codes(results) for results in await asyncio.gather(*asking)] == [[ErrorCode.NONE]] * 3
    await stage.settle()
    assert [stage.state(*key) for key in (T0, A0, A1)] == ["1 e1 [1, 2] v1", "1 e1 [1, 2] v1", "2 e1 [2, 1] v1"]


async def test_more_partitions_than_fit_into_the_znode_are_refused_before_anything_is_written(stage: Stage) -> None:
    await stage.open(1, 2)
    many = {TopicPartition("m" * 200, p): (2, 1) for p in range(4_000)}
    stage.world.create_topic("m" * 200, dict.fromkeys(range(len(many)), (1, 2)), bytes([9] * 16))
    await stage.settle()
    before = tree(stage.world)
    results = await stage.controller.reassign_partitions({**many, T0: (1,)}, 5000)
    assert {code for key, (code, _) in results.items() if key != T0} == {ErrorCode.INVALID_REQUEST}
    assert results[T0][0] is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert tree(stage.world) == before


# --- steps ---


@pytest.mark.requirement("R179-6", "R179-2")
async def test_the_steps_come_in_order(stage: Stage) -> None:
    await opened(stage, 1, 2, 3, 4)
    seen = written(stage.world)
    assert await stage.controller.reassign_partitions({T0: (3, 1), A0: (3, 2)}, 5000) == {T0: DONE, A0: DONE}
    change = "/config/changes/config_change"
    rates = [path for b in (1, 2, 3) for path in (f"/config/brokers/{b}", change)]
    assert seen == [TOPICS, "/config/topics/a", change, "/config/topics/t", change, BROKERS, *rates, MOVES]
    assert content(stage.world, TOPICS) == {"version": 1, "topics": ["a", "t"]}
    assert content(stage.world, BROKERS) == {"version": 1, "brokers": [1, 2, 3]}
    assert (replicas(stage.world, "a"), replicas(stage.world, "t")) == (("0:1,0:2", "0:3"), ("0:1,0:2", "0:3"))
    assert [rate(stage.world, b) for b in (1, 2, 3, 4)] == [("5000", "5000")] * 3 + [NONE]
    moves = {(e["topic"], e["partition"]): e["replicas"] for e in content(stage.world, MOVES)["partitions"]}
    assert moves == {("t", 0): [3, 1], ("a", 0): [3, 2]}
    await stage.settle()
    await catch_up(stage)
    assert assigned(stage, T0) == Assignment((3, 1)) and assigned(stage, A0) == Assignment((3, 2))
    assert stage.state("t") is not None and stage.partition("t").assignment.replicas[0] == 3
    assert unthrottled(stage)


@pytest.mark.requirement("R179-6")
async def test_lists_are_merged_with_reassignments_that_run(stage: Stage) -> None:
    await opened(stage, 1, 2, 3, 4)
    await stage.controller.alter_reassignments({A1: (4, 2)})
    await stage.controller.reassign_partitions({A0: (3, 2)}, 5000)
    assert replicas(stage.world, "a") == ("0:1,0:2,1:1,1:2", "0:3,1:4")
    assert [rate(stage.world, b) for b in (1, 2, 3, 4)] == [("5000", "5000")] * 3 + [NONE], "brokers of the accepted partitions only"


@pytest.mark.requirement("R179-6")
async def test_entries_that_are_in_the_znode_already_stay_and_are_not_begun_again(stage: Stage) -> None:
    await opened(stage, 1, 2, 3, 4)
    put(stage.world, MOVES, {"version": 1, "partitions": [{"topic": "a", "partition": 1, "replicas": [4, 2]}]})
    await stage.settle()
    assert await stage.controller.reassign_partitions({T0: (3, 1)}, 5000) == {T0: DONE}
    await stage.settle()
    assert len(content(stage.world, MOVES)["partitions"]) == 2
    assert (stage.state("a", 1), stage.state("t")) == ("2 e1 [2, 1] v1", "1 e1 [1, 2] v1")
    await catch_up(stage)
    assert unthrottled(stage)


@pytest.mark.requirement("R179-7")
async def test_without_remove_throttle_no_removal_znode_is_written_and_throttles_stay(stage: Stage) -> None:
    await opened(stage, 1, 2, 3, 4)
    seen = written(stage.world)
    await stage.controller.reassign_partitions({T0: (3, 1)}, 5000, remove_throttle=False)
    await stage.settle()
    await catch_up(stage)
    assert assigned(stage, T0) == Assignment((3, 1))
    assert not set(seen) & set(REMOVALS)
    assert [rate(stage.world, b) for b in (1, 2, 3)] == [("5000", "5000")] * 3 and replicas(stage.world, "t") == ("0:1,0:2", "0:3")


@pytest.mark.requirement("R179-7")
async def test_rates_of_brokers_that_an_earlier_request_wants_removed_go_whatever_a_later_one_wants(stage: Stage) -> None:
    await opened(stage, 1, 2, 3, 4)
    await stage.controller.reassign_partitions({A0: (1, 3)}, 5000)
    await stage.controller.reassign_partitions({T0: (3, 1)}, 7000, remove_throttle=False)
    await stage.settle()
    assert [rate(stage.world, b) for b in (1, 2, 3)] == [("7000", "7000")] * 3
    await catch_up(stage)
    assert assigned(stage, T0) == Assignment((3, 1)) and assigned(stage, A0) == Assignment((1, 3))
    assert [rate(stage.world, b) for b in (1, 2, 3)] == [NONE] * 3
    assert (replicas(stage.world, "a"), replicas(stage.world, "t")) == (NONE, ("0:1,0:2", "0:3"))


@pytest.mark.requirement("R179-7")
@pytest.mark.parametrize("remove_throttle", [True, False])
async def test_what_removal_znodes_name_already_stays_there(stage: Stage, remove_throttle: bool) -> None:
    await opened(stage, 1, 2, 3, 4)
    put(stage.world, TOPICS, {"version": 1, "topics": ["a"]})
    put(stage.world, BROKERS, {"version": 1, "brokers": [4]})
    throttle(stage.world, "brokers/4")
    await stage.controller.reassign_partitions({T0: (3, 1)}, 5000, remove_throttle=remove_throttle)
    assert content(stage.world, TOPICS)["topics"] == (["a", "t"] if remove_throttle else ["a"])
    assert content(stage.world, BROKERS)["brokers"] == ([1, 2, 3, 4] if remove_throttle else [4])
    await stage.settle()
    await catch_up(stage)
    assert rate(stage.world, 4) == NONE and unthrottled(stage) is remove_throttle


@pytest.mark.requirement("R179-10")
async def test_the_results_are_there_when_the_reassignment_is_recorded_not_when_it_is_done(stage: Stage) -> None:
    await opened(stage, 1, 2, 3, 4)
    hold = stage.steering.hold(ReassignmentsRecorded)
    asking = asyncio.ensure_future(stage.controller.reassign_partitions({T0: (3, 1)}, 5000))
    await stage.settle()
    assert content(stage.world, MOVES) is not None and not asking.done()
    hold.release()
    assert await asking == {T0: DONE}
    assert assigned(stage, T0).is_reassigning


# --- crashes and what is held ---


@pytest.mark.requirement("R179-8")
@pytest.mark.parametrize("stop", range(9))
async def test_after_a_crash_behind_any_step_no_throttle_is_left_and_what_was_recorded_is_moved(stage: Stage, stop: int) -> None:
    """Behind the last step the reassignment is recorded: the next controller takes it to its end."""
    await opened(stage, 1, 2, 3, 4)
    throttle(stage.world, "brokers/4")
    hold = stage.steering.hold(*KINDS)
    asking = asyncio.ensure_future(stage.controller.reassign_partitions({T0: (3, 1), A0: (3, 2)}, 5000))
    await stage.settle()
    for _ in range(stop):
        hold.step()
        await stage.settle()
    steps = [ThrottledTopicsRecorded, TopicThrottlesSet, TopicThrottlesSet, ThrottledBrokersRecorded, *[BrokerThrottlesSet] * 3]
    assert [type(phase) for phase in hold.held] == [[*steps, ReassignmentsRecorded, None][stop]] * (stop < 8)
    await stage.close()
    hold.release()
    await stage.fail_over()
    recorded = stop >= 7
    assert assigned(stage, T0).is_reassigning == assigned(stage, A0).is_reassigning == recorded
    if recorded:
        assert rate(stage.world, 1) == ("5000", "5000") and content(stage.world, TOPICS) is not None
        await catch_up(stage)
        assert assigned(stage, T0) == Assignment((3, 1)) and assigned(stage, A0) == Assignment((3, 2))
    assert rate(stage.world, 4) == ("100", "200"), "set by a person"
    set_config(stage.world, "brokers/4", KEPT["brokers"])
    assert unthrottled(stage)
    await asyncio.gather(asking, return_exceptions=True)


@pytest.mark.requirement("R179-6")
@pytest.mark.parametrize("kind", KINDS)
async def test_everything_else_goes_on_while_a_request_is_held(stage: Stage, kind: Any) -> None:
    await opened(stage, 1, 2, 3, 4)
    hold = stage.steering.hold(kind)
    asking = asyncio.ensure_future(stage.controller.reassign_partitions({T0: (3, 1)}, 5000))
    await stage.settle()
    assert [type(phase) for phase in hold.held] == [kind]
    await stage.create("meanwhile", (1, 2))
    await stage.controller.alter_reassignments({A0: (2, 1), A1: (4, 2)})
    await stage.settle()
    await catch_up(stage)
    assert assigned(stage, A1) == Assignment((4, 2)) and assigned(stage, A0) == Assignment((2, 1))
    assert hold.held and content(stage.world, TOPICS) is not None, "throttles stay while the request is under way"
    hold.release()
    await stage.settle()
    assert await asking == {T0: DONE}
    await catch_up(stage)
    assert assigned(stage, T0) == Assignment((3, 1)) and unthrottled(stage)


async def test_partitions_that_changed_while_the_request_was_held_are_looked_at_again(stage: Stage) -> None:
    await opened(stage, 1, 2, 3, 4)
    hold = stage.steering.hold(ThrottledBrokersRecorded)
    asking = asyncio.ensure_future(stage.controller.reassign_partitions({T0: (3, 1), A0: (3, 2), A1: (4, 1)}, 5000))
    await stage.settle()
    await stage.stop(4)
    await stage.controller.alter_reassignments({A0: (3, 1)})
    hold.release()
    await stage.settle()
    assert codes(await asking) == [ErrorCode.NONE, ErrorCode.REASSIGNMENT_IN_PROGRESS, ErrorCode.INVALID_REPLICA_ASSIGNMENT]
    await catch_up(stage)
    assert assigned(stage, A0) == Assignment((3, 1)) and assigned(stage, A1) == Assignment((2, 1)) and unthrottled(stage)


async def test_throttles_of_a_request_of_which_nothing_is_left_go_at_once(stage: Stage) -> None:
    await opened(stage, 1, 2, 3, 4)
    hold = stage.steering.hold(ThrottledBrokersRecorded)
    asking = asyncio.ensure_future(stage.controller.reassign_partitions({T0: (3, 1)}, 5000))
    await stage.settle()
    await stage.stop(3)
    hold.release()
    await stage.settle()
    assert codes(await asking) == [ErrorCode.INVALID_REPLICA_ASSIGNMENT]
    assert unthrottled(stage)


async def test_when_zookeeper_refuses_the_last_step_nothing_moves_and_throttles_go(stage: Stage) -> None:
    await opened(stage, 1, 2, 3, 4)

    async def refused(entries: Any) -> None:
        raise StoreRefused("no")

    stage.store.write_reassignments = refused  # type: ignore[method-assign]
    results = await stage.controller.reassign_partitions({T0: (3, 1), TopicPartition("t", 7): (3, 1)}, 5000)
    assert results[T0] == (ErrorCode.UNKNOWN_SERVER_ERROR, "no")
    assert codes(results) == [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION], "each error is its own"
    await stage.settle()
    assert assigned(stage, T0) == Assignment((1, 2)) and unthrottled(stage)


@pytest.mark.parametrize("entity", ["topics/t", "brokers/3"])
async def test_a_partition_whose_throttle_cannot_be_set_is_not_moved(stage: Stage, entity: str) -> None:
    await opened(stage, 1, 2, 3, 4)
    put(stage.world, f"/config/{entity}", {"version": 1, "config": {"k": 7}})
    results = await stage.controller.reassign_partitions({T0: (3, 1), A0: (2, 1)}, 5000)
    assert codes(results) == [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NONE]
    await stage.settle()
    assert assigned(stage, T0) == Assignment((1, 2)) and assigned(stage, A0) == Assignment((2, 1))


# --- the end ---


@pytest.mark.requirement("R179-24")
async def test_throttles_go_when_the_last_reassignment_ends_whatever_began_it(stage: Stage) -> None:
    await opened(stage, 1, 2, 3, 4)
    await stage.controller.reassign_partitions({T0: (3, 1)}, 5000)
    await stage.settle()
    hold = stage.steering.hold(ReassignmentReplicasStarted, where={"topic": "a"})
    await stage.controller.alter_reassignments({A0: (4, 2)})
    await stage.settle()
    await catch_up(stage)
    assert assigned(stage, T0) == Assignment((3, 1)) and rate(stage.world, 3) == ("5000", "5000"), "a-0 is under way"
    hold.release()
    await stage.settle()
    await catch_up(stage)
    assert assigned(stage, A0) == Assignment((4, 2)) and unthrottled(stage)


@pytest.mark.requirement("R179-24")
async def test_throttles_go_when_the_last_reassignment_is_cancelled(stage: Stage) -> None:
    await opened(stage, 1, 2, 3, 4)
    await stage.controller.reassign_partitions({T0: (3, 1), A0: (3, 2)}, 5000)
    await stage.settle()
    await stage.controller.alter_reassignments({T0: None})
    assert rate(stage.world, 1) == ("5000", "5000")
    await stage.controller.alter_reassignments({A0: None})
    await stage.settle()
    assert not assigned(stage, T0).is_reassigning and not assigned(stage, A0).is_reassigning and unthrottled(stage)


async def test_a_partition_that_the_znode_names_is_in_progress_although_nothing_moves(stage: Stage) -> None:
    await opened(stage, 1, 2, 3, 4)
    await stage.create("s", (1,))
    s0 = TopicPartition("s", 0)
    stage.world.ask_reassignment({s0: (1, 1)})
    await stage.settle()
    assert not stage.cluster.reassigning and stage.world.reassignments == {s0: (1, 1)}
    results = await stage.controller.reassign_partitions({s0: (2,), T0: (3, 1)}, 5000)
    await stage.settle()
    assert codes(results) == [ErrorCode.REASSIGNMENT_IN_PROGRESS, ErrorCode.NONE]
    assert stage.world.reassignments == {s0: (1, 1), T0: (3, 1)} and assigned(stage, s0) == Assignment((1,))


async def test_an_entry_that_is_added_and_cannot_begin_leaves_the_znode_and_the_others_stay(stage: Stage) -> None:
    await opened(stage, 1, 2, 3, 4)
    await stage.controller.reassign_partitions({A0: (3, 2)}, 5000)
    await stage.settle()
    write_topics = stage.store.write_topics

    async def refuse(writes: Any) -> Any:
        return [WriteOutcome.FAILED if write.topic == "t" else (await write_topics([write]))[0] for write in writes]

    stage.store.write_topics = refuse  # type: ignore[method-assign]
    results = await stage.controller.reassign_partitions({T0: (3, 1), A1: (4, 1)}, 5000)
    await stage.settle()
    assert codes(results) == [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NONE]
    assert stage.world.reassignments == {A0: (3, 2), A1: (4, 1)}


@pytest.mark.requirement("R179-24")
async def test_throttles_go_when_a_reassignment_that_no_znode_names_is_cancelled(stage: Stage) -> None:
    await opened(stage, 1, 2, 3, 4)
    await stage.controller.alter_reassignments({T0: (3, 1)})
    throttle(stage.world, "topics/t")
    put(stage.world, TOPICS, {"version": 1, "topics": ["t"]})
    await stage.controller.alter_reassignments({T0: None})
    await stage.settle()
    assert unthrottled(stage)


@pytest.mark.requirement("R179-24")
async def test_throttles_go_when_the_topic_of_the_last_reassignment_is_deleted(stage: Stage) -> None:
    await opened(stage, 1, 2, 3, 4)
    await stage.controller.reassign_partitions({T0: (3, 1)}, 5000)
    await stage.settle()
    stage.world.delete_topic("t")
    await stage.settle()
    assert "t" not in stage.world.topics and stage.world.zk.get("/config/topics/t") is None
    assert [rate(stage.world, b) for b in (1, 2, 3)] == [NONE] * 3
    assert [content(stage.world, path) for path in (*REMOVALS, MOVES)] == [None] * 5


@pytest.mark.requirement("R179-25")
async def test_a_new_controller_removes_throttles_when_nothing_is_ongoing_and_else_does_nothing(stage: Stage) -> None:
    await opened(stage, 1, 2, 3, 4)
    await stage.controller.reassign_partitions({T0: (3, 1)}, 5000)
    await stage.settle()
    await stage.fail_over()
    assert rate(stage.world, 1) == ("5000", "5000") and content(stage.world, TOPICS) is not None
    await catch_up(stage)
    assert assigned(stage, T0) == Assignment((3, 1)) and unthrottled(stage)
    throttle(stage.world, "topics/t")
    put(stage.world, TOPICS, {"version": 1, "topics": ["t"]})
    await stage.fail_over()
    assert unthrottled(stage)


@pytest.mark.requirement("R179-27")
async def test_a_reassignment_without_such_a_request_touches_no_throttle(stage: Stage) -> None:
    await opened(stage, 1, 2, 3, 4)
    for entity in ("topics/t", "brokers/1", "brokers/3"):
        throttle(stage.world, entity)
    await stage.controller.alter_reassignments({T0: (3, 1)})
    await stage.settle()
    await catch_up(stage)
    assert assigned(stage, T0) == Assignment((3, 1))
    assert replicas(stage.world, "t") == ("0:1", "0:2") and rate(stage.world, 1) == rate(stage.world, 3) == ("100", "200")


async def test_the_znode_of_moves_is_json_that_kafka_reads(stage: Stage) -> None:
    await opened(stage, 1, 2, 3, 4)
    hold = stage.steering.hold(ReassignmentsRecorded)
    asking = asyncio.ensure_future(stage.controller.reassign_partitions({T0: (3, 1)}, 5000))
    await stage.settle()
    node = stage.world.zk.get(MOVES)
    assert node is not None and json.loads(node.data or b"") == {
        "version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [3, 1]}]
    }
    hold.release()
    await asking
