"""Holds and their filters: which phases are held, how many, by which values of their fields; and phases by their names."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import get_args

import pytest

from klamm.controller.phases import PHASES as CONTROLLER_PHASES
from klamm.controller.phases import (
    BrokersFailed,
    BrokerStatesStored,
    DeletionPropagated,
    DeletionQueued,
    FailoverLoaded,
    PartitionsAppeared,
    Phase,
)
from klamm.controller.values import BrokerState, StoreLost
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.nouns import TopicPartition
from klamm.seams.steering import HeldPhase, Steering, failing
from klamm.server.phases import KINDS, PHASES, error_named, phase_named, phase_table

QUEUED = DeletionQueued(1, "t")


def test_every_phase_is_in_the_table_by_its_name() -> None:
    assert list(CONTROLLER_PHASES.values()) == list(get_args(Phase))
    assert PHASES["DeletionPropagated"] is DeletionPropagated
    assert CONTROLLER_PHASES.items() <= PHASES.items()
    assert [row.name for row in phase_table()] == list(PHASES)
    assert len(PHASES) == sum(len(kind.phases) for kind in KINDS), "no name twice"


def test_the_table_says_which_fields_a_phase_has_and_their_types_in_json() -> None:
    rows = {row.name: row for row in phase_table()}
    assert rows["DeletionPropagated"].fields == {"controller_epoch": "integer", "topic": "string"}
    assert rows["DeletionPropagated"].kind == "between events"
    assert rows["PartitionsAppeared"].fields["partitions"] == "array of [topic, partition]"
    assert rows["BrokersFailed"].fields["broker_ids"] == "array of integer"
    assert rows["BrokerStatesStored"].fields["state"].startswith("string: ")
    assert all(row.text.endswith(".") for row in rows.values())


def test_a_name_that_is_wrong_is_refused_with_the_name_that_may_be_meant() -> None:
    assert phase_named("DeletionQueued") is DeletionQueued
    with pytest.raises(ValueError, match="there is no phase 'deletionqueue'; did you mean DeletionQueued"):
        phase_named("deletionqueue")
    with pytest.raises(ValueError, match=r"there is no phase 'xyz'$"):
        phase_named("xyz")


def test_an_error_is_named_by_its_code_or_by_what_happens() -> None:
    error = error_named("NOT_COORDINATOR")
    assert isinstance(error, ApiError) and error.code is ErrorCode.NOT_COORDINATOR
    assert isinstance(error_named("StoreLost"), StoreLost)
    with pytest.raises(ValueError, match="did you mean NOT_COORDINATOR"):
        error_named("NOT_CORDINATOR")


# --- where


def test_a_field_equals_its_value_or_one_of_several() -> None:
    one = Steering().hold(DeletionPropagated, where={"topic": "t", "controller_epoch": 3})
    assert one.wants(DeletionPropagated(controller_epoch=3, topic="t"))
    assert not one.wants(DeletionPropagated(controller_epoch=4, topic="t"))
    assert not one.wants(DeletionPropagated(controller_epoch=3, topic="tt"))
    assert not one.wants(DeletionQueued(controller_epoch=3, topic="t"))
    several = Steering().hold(DeletionPropagated, where={"topic": ["a", "b"]})
    assert several.wants(DeletionPropagated(controller_epoch=1, topic="b"))
    assert not several.wants(DeletionPropagated(controller_epoch=1, topic="c"))
    assert not Steering().hold(DeletionPropagated, where={"topic": set()}).wants(DeletionPropagated(controller_epoch=1, topic="c"))


def test_a_text_with_a_star_at_its_end_is_a_prefix() -> None:
    hold = Steering().hold(DeletionPropagated, where={"topic": ["orders-*", "x"]})
    for topic, is_wanted in (("orders-1", True), ("orders-", True), ("x", True), ("orders", False), ("xy", False)):
        assert hold.wants(DeletionPropagated(controller_epoch=1, topic=topic)) is is_wanted, topic


@pytest.mark.parametrize("value", [TopicPartition("b", 0), ["b", 0], {"topic": "b", "partition": 0}, [["c", 1], ["b", 0]]])
def test_a_field_that_is_a_collection_holds_the_value(value: object) -> None:
    hold = Steering().hold(PartitionsAppeared, where={"partitions": value})
    assert hold.wants(PartitionsAppeared(controller_epoch=1, partitions=(TopicPartition("a", 0), TopicPartition("b", 0))))
    assert not hold.wants(PartitionsAppeared(controller_epoch=1, partitions=(TopicPartition("b", 1),)))
    assert Steering().hold(BrokersFailed, where={"broker_ids": [0, 5]}).wants(BrokersFailed(controller_epoch=1, broker_ids=(0,)))


def test_a_state_is_given_as_itself_or_by_its_name() -> None:
    phase = BrokerStatesStored(1, (9,), BrokerState.FENCED)
    for value in ("FENCED", BrokerState.FENCED, ["ONLINE", "FENCED"]):
        assert Steering().hold(BrokerStatesStored, where={"state": value}).wants(phase) is True
    assert not Steering().hold(BrokerStatesStored, where={"state": "ONLINE"}).wants(phase)


def test_a_field_that_a_kind_lacks_is_refused_with_the_fields_that_it_has() -> None:
    with pytest.raises(ValueError, match="BrokersFailed has no field 'topic'; it has controller_epoch, broker_ids"):
        Steering().hold(DeletionPropagated, BrokersFailed, where={"topic": "t"})


@pytest.mark.parametrize(
    ("kind", "where", "message"),
    [
        (DeletionQueued, {"controller_epoch": "3"}, "controller_epoch of DeletionQueued is an integer, not '3'"),
        (DeletionQueued, {"controller_epoch": True}, "controller_epoch of DeletionQueued is an integer, not True"),
        (DeletionQueued, {"topic": ["a", 5]}, "topic of DeletionQueued is a string, not 5"),
        (BrokersFailed, {"broker_ids": "1"}, "broker_ids of BrokersFailed is an integer, not '1'"),
        (PartitionsAppeared, {"partitions": "t-0"}, r"partitions of PartitionsAppeared is \[topic, partition\], not 't-0'"),
        (PartitionsAppeared, {"partitions": {"topic": "t"}}, "partitions of PartitionsAppeared is"),
        (PartitionsAppeared, {"partitions": [["t", "0"]]}, "partitions of PartitionsAppeared is"),
        (BrokerStatesStored, {"state": "ASLEEP"}, "state of BrokerStatesStored is a string: .*FENCED.*, not 'ASLEEP'"),
    ],
)
def test_a_value_of_another_type_than_its_field_is_refused(kind: type[Phase], where: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Steering().hold(kind, where=where)


# --- holds


def parked(steering: Steering, phase: object = QUEUED, broker_id: int = 1) -> tuple[HeldPhase[object] | None, list[str]]:
    """A procedure comes to a phase; what was done with it."""
    done: list[str] = []
    return steering.park(phase, lambda: done.append("went on"), broker_id, lambda error: done.append(repr(error))), done


def test_holds_are_numbered_and_have_a_state() -> None:
    steering = Steering()
    first, second = steering.hold(DeletionQueued), steering.hold(DeletionPropagated)
    assert (first.number, second.number) == (1, 2) and steering.present == (first, second)
    assert (first.state, first.hits) == ("armed", 0)
    held, done = parked(steering, broker_id=7)
    assert (first.state, first.hits, first.held) == ("reached", 1, [QUEUED]) and steering.held_phases == first.held_phases == (held,)
    assert held is not None and held.broker_id == 7, "a caller knows which broker it may kill"
    first.step()
    assert (first.state, done) == ("armed", ["went on"])
    first.release()
    second.release()
    assert {first.state, second.state} == {"released"} and not steering.holds


def test_the_first_phases_pass_so_many_are_held_and_then_the_hold_ends() -> None:
    steering = Steering()
    hold = steering.hold(DeletionQueued, nth=3, count=2)
    assert [parked(steering)[0] for _ in range(2)] == [None, None]
    assert (hold.state, hold.hits, hold.passed) == ("armed", 2, 2)
    assert parked(steering)[0] is not None and parked(steering)[0] is not None
    assert not hold.wants(QUEUED) and parked(steering)[0] is None, "no more than two"
    assert (hold.state, hold.hits, hold.passed) == ("reached", 4, 2)
    hold.step()
    assert hold.state == "reached" and steering.holds
    hold.step()
    assert not steering.holds and str(hold.state) == "released"


def test_a_phase_that_passes_one_hold_is_held_by_the_next_one() -> None:
    steering = Steering()
    late, early = steering.hold(DeletionQueued, nth=2), steering.hold(DeletionQueued)
    parked(steering)
    assert (late.held, early.held) == ([], [QUEUED])
    parked(steering)
    assert (late.held, early.held) == ([QUEUED], [QUEUED]), "the oldest one that wants it"


def test_to_look_whether_a_phase_is_wanted_does_not_count_it() -> None:
    steering = Steering()
    hold = steering.hold(DeletionQueued, nth=2)
    assert not steering.wants(QUEUED) and not steering.wants(QUEUED) and hold.hits == 0
    parked(steering)
    assert steering.wants(QUEUED) and steering.wants_any(DeletionQueued) and not steering.wants_any(DeletionPropagated)


@pytest.mark.parametrize("arguments", [{"nth": 0}, {"count": 0}, {"count": -1}])
def test_nth_and_count_are_at_least_one(arguments: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Steering().hold(DeletionQueued, **arguments)  # type: ignore[arg-type]


def test_a_phase_goes_on_once() -> None:
    steering = Steering()
    steering.hold(DeletionQueued)
    held, done = parked(steering)
    assert held is not None
    held.step()
    held.step()
    held.fail(RuntimeError())
    assert done == ["went on"] and not held.is_held


def test_what_was_held_and_has_ended_does_not_go_on() -> None:
    steering = Steering()
    hold = steering.hold(DeletionQueued, count=1)
    held, done = parked(steering)
    assert held is not None
    held.drop()
    held.step()
    assert (hold.held, hold.state, done) == ([], "released", [])


def fault() -> Exception:
    return RuntimeError("a fault of ours")


@pytest.mark.parametrize(
    ("action", "outcome"), [(failing(fault), "RuntimeError('a fault of ours')"), (lambda held: held.step(), "went on")]
)
def test_an_action_decides_at_once(action: Callable[[HeldPhase[object]], None], outcome: str) -> None:
    steering = Steering()
    hold = steering.on_reach((DeletionQueued,), {"topic": "t"}, action, count=1)
    held, done = parked(steering)
    assert done == [outcome] and held is not None and not held.is_held and hold.state == "released"


def test_an_action_that_lets_phases_fail_lets_those_go_on_that_cannot() -> None:
    steering, done = Steering(), []
    steering.on_reach((DeletionQueued,), None, failing(fault))
    steering.park(QUEUED, lambda: done.append(1), 1)
    assert done == [1]
    held = steering.hold(DeletionPropagated)
    steering.park(DeletionPropagated(1, "t"), lambda: None, 1)
    with pytest.raises(ValueError, match="DeletionPropagated cannot fail"):
        held.fail(fault())


def test_an_action_kills_what_it_is_told_and_the_rest_stays_held() -> None:
    steering, killed = Steering(), []
    hold = steering.on_reach((DeletionQueued,), None, lambda held: killed.append(held.broker_id))
    parked(steering, broker_id=3)
    assert killed == [3] and hold.held == [QUEUED]


async def test_who_waits_inside_an_event_goes_on_fails_or_ends() -> None:
    steering, phase = Steering(), FailoverLoaded(1, 2)
    await steering.reach(phase, 2)
    hold = steering.hold(FailoverLoaded)
    with pytest.raises(TimeoutError, match=r"0 of 1 held within 0.001 s: FailoverLoaded"):
        await hold.reached(timeout_s=0.001)
    waiting = [asyncio.ensure_future(steering.reach(phase, 2)) for _ in range(3)]
    assert await hold.reached(3) is phase
    hold.step()
    hold.fail(fault())
    waiting[2].cancel()
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(each) for each in outcomes] == [type(None), RuntimeError, asyncio.CancelledError] and hold.held == []
    steering.on_reach((FailoverLoaded,), None, failing(fault))
    hold.release()
    with pytest.raises(RuntimeError, match="a fault of ours"):
        await steering.reach(phase, 2)
