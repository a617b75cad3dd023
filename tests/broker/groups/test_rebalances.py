"""Members join, rebalance, keep their sessions and leave."""

from __future__ import annotations

import pytest

from klamm.broker.groups.rebalances import NEW_MEMBER_MS, Limits
from klamm.broker.groups.requests import JoinResult, Leaving
from klamm.broker.groups.states import COMPLETING, EMPTY, PREPARING, STABLE
from klamm.protocol.errors import ErrorCode as E
from klamm.tests.broker.groups.group_driver import GROUP, GroupDriver, state_of


def test_a_member_without_an_id_is_given_one_and_joins_with_it() -> None:
    driver = GroupDriver()
    first = driver.joined(driver.join("me"))
    assert first == JoinResult(E.MEMBER_ID_REQUIRED, "me-id1")
    assert driver.groups.get(GROUP).members == {}  # type: ignore[union-attr]
    ticket = driver.join("me", "me-id1")
    driver.advance(3_000)
    result = driver.joined(ticket)
    assert (result.error, result.generation, result.leader, result.protocol) == (E.NONE, 1, "me-id1", "range")
    assert [each.member_id for each in result.members] == ["me-id1"]


def test_a_member_before_version_4_joins_without_a_second_request() -> None:
    driver = GroupDriver()
    ticket = driver.join("old", version=3)
    driver.advance(3_000)
    assert driver.joined(ticket).member_id == "old-id1"


def test_a_new_group_waits_for_more_members_as_long_as_members_come() -> None:
    driver = GroupDriver(Limits(initial_delay_ms=3_000))
    _, first = driver.new_member("a")
    driver.advance(2_900)
    _, second = driver.new_member("b")
    driver.advance(2_900)
    assert first not in driver.results
    driver.advance(200)
    assert driver.joined(first).generation == driver.joined(second).generation == 1


def test_the_delay_of_a_new_group_is_no_longer_than_the_rebalance_timeout() -> None:
    driver = GroupDriver(Limits(initial_delay_ms=3_000))
    _, first = driver.new_member("a", rebalance_ms=5_000)
    for _ in range(4):
        driver.advance(1_240)
        driver.new_member("b", rebalance_ms=5_000)
    assert first not in driver.results
    driver.advance(40)
    assert driver.joined(first).generation == 1


def test_only_the_leader_is_given_the_members() -> None:
    driver = GroupDriver()
    ids = [driver.new_member(name) for name in "abc"]
    driver.advance(10_000)
    results = [driver.joined(ticket) for _, ticket in ids]
    assert [bool(result.members) for result in results] == [True, False, False]
    assert {result.leader for result in results} == {ids[0][0]}


def test_followers_that_sync_wait_for_the_leader() -> None:
    driver = GroupDriver()
    (a, _), (b, _) = driver.new_member("a"), driver.new_member("b")
    driver.advance(10_000)
    waiting = driver.sync(b, 1)
    assert waiting not in driver.results
    driver.sync(a, 1, {a: b"A", b: b"B"})
    assert driver.synced(waiting).assignment == b"B"
    assert state_of(driver) is STABLE


def test_a_member_that_the_leader_forgot_gets_an_empty_assignment() -> None:
    driver = GroupDriver()
    (a, _), (b, _) = driver.new_member("a"), driver.new_member("b")
    driver.advance(10_000)
    waiting = driver.sync(b, 1)
    driver.sync(a, 1, {a: b"A", "stranger": b"S"})
    assert driver.synced(waiting).assignment == b""


def test_a_third_member_makes_the_others_rejoin_and_the_generation_grows() -> None:
    driver = GroupDriver()
    a, b = driver.stable()
    c, third = driver.new_member("c")
    assert [driver.heartbeat(each, 1) for each in (a, b)] == [E.REBALANCE_IN_PROGRESS] * 2
    first, second = driver.join("c0", a), driver.join("c1", b)
    assert {driver.joined(ticket).generation for ticket in (first, second, third)} == {2}
    driver.complete([a, b, c], 2)


def test_a_rebalance_removes_dynamic_members_that_do_not_rejoin_in_time() -> None:
    driver = GroupDriver()
    a, b = driver.stable(rebalance_ms=5_000, session_ms=30_000)
    third, ticket = driver.new_member("c", rebalance_ms=5_000, session_ms=30_000)
    driver.join("c0", a, rebalance_ms=5_000, session_ms=30_000)
    driver.advance(4_999)
    assert ticket not in driver.results
    driver.advance(1)
    assert {each.member_id for each in driver.joined(ticket).members} | set(driver.groups.get(GROUP).members) == {a, third}  # type: ignore[union-attr]
    assert driver.heartbeat(b, 1) is E.UNKNOWN_MEMBER_ID


def test_a_pending_member_holds_a_rebalance_up_until_its_session_ends() -> None:
    driver = GroupDriver()
    (a,) = driver.stable(1)
    driver.join("late", session_ms=6_000)
    rejoin = driver.join("c0", a, metadata=b"other")
    assert rejoin not in driver.results
    driver.advance(6_000)
    assert driver.joined(rejoin).generation == 2


def test_the_first_join_of_a_member_waits_at_most_five_minutes() -> None:
    driver = GroupDriver()
    (a,) = driver.stable(1, rebalance_ms=2 * NEW_MEMBER_MS, session_ms=1_000_000)
    _, ticket = driver.new_member("b", session_ms=6_000)
    for _ in range(NEW_MEMBER_MS // 5_000 - 1):
        driver.advance(5_000)
        driver.heartbeat(a, 1)
    assert ticket not in driver.results
    driver.advance(5_000)
    assert driver.joined(ticket) == JoinResult(E.UNKNOWN_MEMBER_ID, "")


@pytest.mark.parametrize(
    ("session_ms", "error"), [(5_999, E.INVALID_SESSION_TIMEOUT), (6_000, E.MEMBER_ID_REQUIRED), (1_800_001, E.INVALID_SESSION_TIMEOUT)]
)
def test_session_timeouts_have_bounds(session_ms: int, error: E) -> None:
    driver = GroupDriver()
    assert driver.joined(driver.join(session_ms=session_ms)).error is error


def test_the_session_timeout_is_checked_before_the_member_id() -> None:
    assert (driver := GroupDriver()).joined(driver.join("x", "x-unknown", session_ms=1)).error is E.INVALID_SESSION_TIMEOUT


def test_an_unknown_member_makes_no_group() -> None:
    driver = GroupDriver()
    assert driver.joined(driver.join("x", "x-unknown")) == JoinResult(E.UNKNOWN_MEMBER_ID, "x-unknown")
    assert driver.groups.get(GROUP) is None


def test_a_group_has_at_most_as_many_members_as_allowed() -> None:
    driver = GroupDriver(Limits(max_size=2))
    a, b = driver.stable(2)
    assert driver.joined(driver.join("c")).error is E.GROUP_MAX_SIZE_REACHED
    assert driver.heartbeat(a, 1) is driver.heartbeat(b, 1) is E.NONE


def test_a_loaded_group_that_is_too_large_rebalances_and_sheds_members() -> None:
    before = GroupDriver()
    ids = before.stable(3)
    driver = before.reloaded(Limits(max_size=2))
    assert state_of(driver) is PREPARING
    tickets = [driver.join(f"c{index}", member_id) for index, member_id in enumerate(ids)]
    assert driver.joined(tickets[2]).error is E.GROUP_MAX_SIZE_REACHED
    assert {driver.joined(ticket).generation for ticket in tickets[:2]} == {2}


def test_a_full_group_refuses_a_member_whatever_its_protocols_are() -> None:
    driver = GroupDriver(Limits(max_size=1))
    driver.stable(1)
    assert driver.joined(driver.join("b", protocols=("sticky",))).error is E.GROUP_MAX_SIZE_REACHED


def test_members_of_a_full_group_may_join_again() -> None:
    driver = GroupDriver(Limits(max_size=2))
    a, b = driver.stable(2)
    assert driver.joined(driver.join("c1", b)).error is E.NONE
    tickets = [driver.join("c0", a, metadata=b"other"), driver.join("c1", b)]
    assert {driver.joined(ticket).generation for ticket in tickets} == {2}


def test_while_members_join_those_that_wait_keep_their_place_and_no_others_find_one() -> None:
    driver = GroupDriver(Limits(max_size=2))
    (a, first), _ = driver.new_member("a"), driver.new_member("b")
    assert driver.joined(driver.join("c")).error is E.GROUP_MAX_SIZE_REACHED
    again = driver.join("a", a)
    assert driver.joined(first).error is E.REBALANCE_IN_PROGRESS
    driver.advance(10_000)
    assert len(driver.joined(again).members) == 2


def test_a_loaded_group_of_the_largest_size_goes_on() -> None:
    before = GroupDriver()
    before.stable(2)
    assert state_of(before.reloaded(Limits(max_size=2))) is STABLE


# --- repeats


def test_a_follower_that_joins_again_unchanged_gets_its_generation() -> None:
    driver = GroupDriver()
    a, b = driver.stable()
    again = driver.joined(driver.join("c1", b))
    assert (again.error, again.generation, again.leader, again.members) == (E.NONE, 1, a, ())
    assert state_of(driver) is STABLE


def test_a_leader_that_joins_again_begins_a_rebalance() -> None:
    driver = GroupDriver()
    a, _ = driver.stable()
    ticket = driver.join("c0", a)
    assert ticket not in driver.results
    assert state_of(driver) is PREPARING


def test_a_leader_that_lost_its_join_response_gets_it_again() -> None:
    driver = GroupDriver()
    a, _ = driver.new_member("a")
    driver.advance(3_000)
    again = driver.joined(driver.join("a", a))
    assert (again.generation, len(again.members)) == (1, 1)
    assert state_of(driver) is COMPLETING


def test_a_join_that_is_overtaken_by_another_of_the_same_member_is_answered() -> None:
    driver = GroupDriver()
    a, _ = driver.stable()
    first = driver.join("c0", a)
    second = driver.join("c0", a)
    assert driver.joined(first).error is E.REBALANCE_IN_PROGRESS
    assert second not in driver.results


def test_a_follower_that_lost_its_join_response_gets_it_without_the_members() -> None:
    driver = GroupDriver()
    (a, _), (b, _) = driver.new_member("a"), driver.new_member("b")
    driver.advance(10_000)
    again = driver.joined(driver.join("b", b))
    assert (again.generation, again.leader, again.members) == (1, a, ())


def test_a_sync_that_is_overtaken_by_another_of_the_same_member_is_answered() -> None:
    driver = GroupDriver()
    (a, _), (b, _) = driver.new_member("a"), driver.new_member("b")
    driver.advance(10_000)
    first, second = driver.sync(b, 1), driver.sync(b, 1)
    assert driver.synced(first).error is E.REBALANCE_IN_PROGRESS
    driver.sync(a, 1, {a: b"A", b: b"B"})
    assert driver.synced(second).assignment == b"B"


def test_a_member_that_joins_again_changes_its_session_timeout() -> None:
    driver = GroupDriver()
    (a,) = driver.stable(1, session_ms=30_000)
    driver.join("c0", a, session_ms=10_000)
    driver.sync(a, 2)
    began = driver.ms
    driver.advance(9_999)
    assert driver.heartbeat(a, 2) is E.NONE
    driver.advance(9_999)
    assert driver.heartbeat(a, 2) is E.NONE
    driver.advance(10_000)
    assert driver.heartbeat(a, 2) is E.UNKNOWN_MEMBER_ID
    assert driver.ms == began + 29_998


def test_a_member_that_joins_again_changes_its_rebalance_timeout() -> None:
    driver = GroupDriver()
    a, b = driver.stable(2, rebalance_ms=60_000, session_ms=100_000)
    tickets = [driver.join(f"c{index}", each, metadata=b"x", rebalance_ms=5_000, session_ms=100_000) for index, each in enumerate((a, b))]
    assert {driver.joined(ticket).generation for ticket in tickets} == {2}
    driver.complete([a, b], 2)
    rejoin = driver.join("c0", a, rebalance_ms=5_000, session_ms=100_000)
    driver.advance(4_999)
    assert rejoin not in driver.results
    driver.advance(1)
    assert [each.member_id for each in driver.joined(rejoin).members] == [a]


def test_sync_after_the_assignment_is_stored_gets_it_again() -> None:
    driver = GroupDriver()
    a, _ = driver.stable()
    assert driver.synced(driver.sync(a, 1)).assignment == a.encode()


# --- SyncGroup


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"generation": 0}, E.ILLEGAL_GENERATION),
        ({"generation": 2}, E.ILLEGAL_GENERATION),
        ({"kind": "connect"}, E.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol": "sticky"}, E.INCONSISTENT_GROUP_PROTOCOL),
        ({"kind": None, "protocol": None}, E.NONE),
        ({"member_id": "nobody"}, E.UNKNOWN_MEMBER_ID),
        ({"instance": "nobody"}, E.UNKNOWN_MEMBER_ID),
    ],
)
def test_sync_checks_member_generation_and_protocol(options: dict[str, object], error: E) -> None:
    driver = GroupDriver()
    (a,) = driver.stable(1)
    assert driver.synced(driver.sync(**{"member_id": a, "generation": 1, **options})).error is error  # type: ignore[arg-type]


def test_sync_of_a_group_that_nobody_knows_is_from_an_unknown_member() -> None:
    driver = GroupDriver()
    assert driver.synced(driver.sync("a", 1)).error is E.UNKNOWN_MEMBER_ID


def test_members_that_do_not_sync_are_removed_after_the_rebalance_timeout() -> None:
    driver = GroupDriver()
    (a, _), (b, _) = driver.new_member("a", rebalance_ms=20_000), driver.new_member("b", rebalance_ms=20_000)
    driver.advance(10_000)
    leader = driver.sync(a, 1, {a: b"A"})
    assert driver.synced(leader).error is E.NONE
    generation_began = 6_000
    while driver.ms < generation_began + 20_000 - 1:
        driver.advance(min(5_000, generation_began + 20_000 - 1 - driver.ms))
        assert driver.heartbeat(a, 1) is driver.heartbeat(b, 1) is E.NONE
    driver.advance(1)
    assert driver.heartbeat(a, 1) is E.REBALANCE_IN_PROGRESS
    assert driver.heartbeat(b, 1) is E.UNKNOWN_MEMBER_ID


def test_the_time_to_sync_of_an_earlier_generation_removes_nobody() -> None:
    driver = GroupDriver()
    a, b = driver.stable(rebalance_ms=30_000)
    generation_began = 6_000
    driver.beat(generation_began + 29_000, a, b)
    tickets = [driver.join("c0", a, metadata=b"other", rebalance_ms=30_000), driver.join("c1", b, rebalance_ms=30_000)]
    assert {driver.joined(ticket).generation for ticket in tickets} == {2}
    driver.advance(5_000)
    assert driver.heartbeat(a, 2) is driver.heartbeat(b, 2) is E.NONE


def test_a_group_whose_members_have_all_synced_goes_on() -> None:
    driver = GroupDriver()
    a, b = driver.stable(rebalance_ms=20_000)
    driver.beat(60_000, a, b)
    assert driver.heartbeat(a, 1) is driver.heartbeat(b, 1) is E.NONE


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (E.NOT_ENOUGH_REPLICAS, E.COORDINATOR_NOT_AVAILABLE),
        (E.UNKNOWN_TOPIC_OR_PARTITION, E.COORDINATOR_NOT_AVAILABLE),
        (E.NOT_LEADER_OR_FOLLOWER, E.NOT_COORDINATOR),
        (E.REQUEST_TIMED_OUT, E.REBALANCE_IN_PROGRESS),
        (E.MESSAGE_TOO_LARGE, E.UNKNOWN_SERVER_ERROR),
        (E.RECORD_LIST_TOO_LARGE, E.UNKNOWN_SERVER_ERROR),
        (E.INVALID_FETCH_SIZE, E.UNKNOWN_SERVER_ERROR),
    ],
)
def test_an_assignment_that_cannot_be_stored_fails_all_syncs_and_begins_a_rebalance(error: E, told: E) -> None:
    driver = GroupDriver()
    (a, _), (b, _) = driver.new_member("a"), driver.new_member("b")
    driver.advance(10_000)
    driver.error = error
    waiting = driver.sync(b, 1)
    leader = driver.sync(a, 1, {a: b"A", b: b"B"})
    assert [driver.synced(each).error for each in (waiting, leader)] == [told, told]
    assert state_of(driver) is PREPARING


def test_an_assignment_that_is_stored_after_another_rebalance_began_counts_for_nobody() -> None:
    driver = GroupDriver()
    (a, _), (b, _) = driver.new_member("a"), driver.new_member("b")
    driver.advance(10_000)
    driver.holds = True
    syncs = [driver.sync(b, 1), driver.sync(a, 1, {a: b"A", b: b"B"})]
    driver.join("b", b, metadata=b"other")
    assert [driver.synced(each).error for each in syncs] == [E.REBALANCE_IN_PROGRESS] * 2
    driver.release()
    assert state_of(driver) is PREPARING
    assert {member.assignment for member in driver.groups.get(GROUP).members.values()} == {b""}  # type: ignore[union-attr]


@pytest.mark.parametrize("error", [E.NONE, E.NOT_ENOUGH_REPLICAS])
def test_an_assignment_of_an_earlier_generation_changes_nothing_in_a_later_one(error: E) -> None:
    driver = GroupDriver()
    (a, _), (b, _) = driver.new_member("a"), driver.new_member("b")
    driver.advance(10_000)
    driver.holds = True
    driver.sync(a, 1, {a: b"A", b: b"B"})
    tickets = [driver.join("b", b, metadata=b"other"), driver.join("a", a)]
    assert {driver.joined(ticket).generation for ticket in tickets} == {2}
    waiting = driver.sync(b, 2)
    driver.release(error)
    assert state_of(driver) is COMPLETING
    assert waiting not in driver.results
    driver.holds = False
    driver.sync(a, 2, {a: b"A", b: b"2"})
    assert driver.synced(waiting).assignment == b"2"


# --- deadlines and leaders of rebalances


def test_the_deadline_of_an_earlier_rebalance_does_not_end_a_later_one() -> None:
    driver = GroupDriver()
    a, b = driver.stable(session_ms=100_000)
    tickets = [driver.join("c0", a, metadata=b"x", session_ms=100_000), driver.join("c1", b, session_ms=100_000)]
    first_began = driver.ms
    assert {driver.joined(ticket).generation for ticket in tickets} == {2}
    driver.complete([a, b], 2)
    driver.advance(30_000)
    rejoin = driver.join("c0", a, metadata=b"y", session_ms=100_000)
    driver.advance(first_began + 60_000 - driver.ms)
    assert rejoin not in driver.results
    driver.advance(30_000)
    assert [each.member_id for each in driver.joined(rejoin).members] == [a]


def test_a_group_that_had_members_waits_no_longer_for_more_of_them() -> None:
    driver = GroupDriver(Limits(initial_delay_ms=3_000))
    (a,) = driver.stable(1)
    driver.leave(a)
    _, first = driver.new_member("a")
    driver.advance(2_900)
    _, second = driver.new_member("b")
    driver.advance(100)
    assert driver.joined(first).generation == driver.joined(second).generation == 3


def test_when_the_leader_leaves_the_member_that_joined_first_leads() -> None:
    driver = GroupDriver()
    a, b, c = driver.stable(3)
    driver.leave(a)
    last = driver.join("c2", c)
    first = driver.join("c1", b)
    assert driver.joined(last).leader == driver.joined(first).leader == b
    assert [bool(driver.joined(ticket).members) for ticket in (first, last)] == [True, False]


# --- sessions


def test_a_member_that_waits_for_others_keeps_its_session() -> None:
    driver = GroupDriver()
    a, b = driver.stable(session_ms=10_000)
    rejoin = driver.join("c0", a, metadata=b"other")
    driver.beat(driver.ms + 50_000, b)
    assert driver.joined(driver.join("c1", b)).generation == driver.joined(rejoin).generation == 2


def test_the_session_of_a_member_begins_with_its_generation() -> None:
    driver = GroupDriver()
    driver.new_member("a", session_ms=10_000)
    driver.advance(3_000)
    driver.advance(9_999)
    assert state_of(driver) is COMPLETING
    driver.advance(1)
    assert state_of(driver) is EMPTY


def test_an_assignment_begins_the_session_again() -> None:
    driver = GroupDriver()
    (a, _), (b, _) = driver.new_member("a", session_ms=30_000), driver.new_member("b", session_ms=10_000)
    driver.advance(6_000)
    waiting = driver.sync(b, 1)
    driver.advance(9_000)
    driver.sync(a, 1, {a: b"A", b: b"B"})
    assert driver.synced(waiting).assignment == b"B"
    driver.advance(9_999)
    assert driver.heartbeat(b, 1) is E.NONE


def test_sync_in_a_stable_group_begins_the_session_again() -> None:
    driver = GroupDriver()
    (a,) = driver.stable(1, session_ms=10_000)
    driver.advance(9_000)
    driver.sync(a, 1)
    driver.advance(9_999)
    assert driver.heartbeat(a, 1) is E.NONE


def test_syncs_that_fail_begin_the_sessions_again() -> None:
    driver = GroupDriver()
    (a, _), (b, _) = driver.new_member("a", session_ms=30_000), driver.new_member("b", session_ms=10_000)
    driver.advance(6_000)
    waiting = driver.sync(b, 1)
    driver.advance(9_000)
    driver.error = E.NOT_ENOUGH_REPLICAS
    driver.sync(a, 1, {a: b"A", b: b"B"})
    assert driver.synced(waiting).error is E.COORDINATOR_NOT_AVAILABLE
    driver.advance(9_999)
    assert driver.heartbeat(b, 1) is E.REBALANCE_IN_PROGRESS


def test_a_session_that_becomes_shorter_ends_earlier() -> None:
    driver = GroupDriver()
    a, b = driver.stable(session_ms=100_000)
    driver.join("c0", a, session_ms=10_000)
    driver.join("c1", b, session_ms=100_000)
    driver.advance(10_000)
    assert driver.heartbeat(a, 2) is E.UNKNOWN_MEMBER_ID


def test_a_member_that_sends_no_heartbeat_is_removed_and_the_others_rebalance() -> None:
    driver = GroupDriver()
    a, b = driver.stable(session_ms=10_000)
    driver.advance(6_000)
    assert driver.heartbeat(a, 1) is E.NONE
    driver.advance(4_000)
    assert driver.heartbeat(a, 1) is E.REBALANCE_IN_PROGRESS
    assert driver.heartbeat(b, 1) is E.UNKNOWN_MEMBER_ID
    assert driver.joined(driver.join("c0", a)).generation == 2


def test_the_last_member_that_goes_leaves_an_empty_group_with_a_grown_generation() -> None:
    driver = GroupDriver()
    (a,) = driver.stable(1)
    assert driver.leave(a) is E.NONE
    group = driver.groups.get(GROUP)
    assert group is not None
    assert (group.state, group.generation, group.protocol_type, group.leader, group.protocol) == (EMPTY, 2, "consumer", None, None)
    assert driver.reloaded().groups.get(GROUP).generation == 2  # type: ignore[union-attr]


def test_a_heartbeat_to_a_group_that_nobody_knows_is_from_an_unknown_member() -> None:
    assert GroupDriver().heartbeat("a", 1) is E.UNKNOWN_MEMBER_ID


def test_heartbeats_of_a_member_without_its_assignment_are_good() -> None:
    driver = GroupDriver()
    a, _ = driver.new_member("a")
    driver.advance(3_000)
    assert state_of(driver) is COMPLETING
    assert driver.heartbeat(a, 1) is E.NONE


@pytest.mark.parametrize(
    ("member", "generation", "error"),
    [("x", 1, E.UNKNOWN_MEMBER_ID), ("x", 2, E.UNKNOWN_MEMBER_ID), (None, 2, E.ILLEGAL_GENERATION), (None, 0, E.ILLEGAL_GENERATION)],
)
def test_heartbeats_check_member_and_generation(member: str | None, generation: int, error: E) -> None:
    driver = GroupDriver()
    (a,) = driver.stable(1)
    assert driver.heartbeat(a if member is None else member, generation) is error


def test_a_thousand_heartbeats_add_no_deadline() -> None:
    driver = GroupDriver()
    (a,) = driver.stable(1)
    deadlines = len(driver.groups._timers)
    for _ in range(1_000):
        driver.advance(1)
        driver.heartbeat(a, 1)
    assert len(driver.groups._timers) == deadlines


# --- LeaveGroup


def test_leave_of_unknown_members_and_groups_names_them() -> None:
    driver = GroupDriver()
    assert driver.leave("x") is E.UNKNOWN_MEMBER_ID
    driver.stable(1)
    assert driver.leave("x") is E.UNKNOWN_MEMBER_ID
    assert driver.leave("", "x") is E.UNKNOWN_MEMBER_ID
    assert driver.leave("") is E.UNKNOWN_MEMBER_ID


def test_each_member_that_leaves_an_unknown_group_has_its_code() -> None:
    driver = GroupDriver()
    assert driver.groups.leave(GROUP, [Leaving("x", None), Leaving("y", None)], driver.now) == [E.UNKNOWN_MEMBER_ID] * 2


def test_a_member_that_leaves_while_it_joins_is_answered() -> None:
    driver = GroupDriver()
    driver.stable(1)
    b, ticket = driver.new_member("b")
    assert driver.leave(b) is E.NONE
    assert driver.joined(ticket).error is E.UNKNOWN_MEMBER_ID


def test_a_member_that_leaves_while_it_syncs_is_answered() -> None:
    driver = GroupDriver()
    driver.new_member("a")
    b, _ = driver.new_member("b")
    driver.advance(10_000)
    waiting = driver.sync(b, 1)
    assert driver.leave(b) is E.NONE
    assert driver.synced(waiting).error is E.UNKNOWN_MEMBER_ID


def test_a_pending_member_that_leaves_lets_the_rebalance_end() -> None:
    driver = GroupDriver()
    (a,) = driver.stable(1)
    pending = driver.joined(driver.join("late")).member_id
    rejoin = driver.join("c0", a, metadata=b"other")
    assert driver.leave(pending) is E.NONE
    assert driver.joined(rejoin).generation == 2


# --- another coordinator


def test_a_new_coordinator_knows_members_and_assignments_and_gives_each_its_full_session() -> None:
    before = GroupDriver()
    a, b = before.stable(session_ms=10_000)
    before.advance(9_000)
    driver = before.reloaded()
    assert driver.synced(driver.sync(a, 1)).assignment == a.encode()
    driver.advance(9_999)
    assert driver.heartbeat(b, 1) is E.NONE
    driver.advance(1)
    assert driver.heartbeat(a, 1) is E.UNKNOWN_MEMBER_ID


def test_members_that_wait_are_told_that_the_coordinator_has_moved() -> None:
    driver = GroupDriver()
    _, ticket = driver.new_member("a")
    driver.groups.unload(driver.now)
    driver.settle()
    assert driver.joined(ticket).error is E.NOT_COORDINATOR
    assert len(driver.groups) == 0


def test_members_that_wait_for_their_assignment_are_told_that_the_coordinator_has_moved() -> None:
    driver = GroupDriver()
    driver.new_member("a")
    b, _ = driver.new_member("b")
    driver.advance(10_000)
    waiting = driver.sync(b, 1)
    driver.groups.unload(driver.now)
    driver.settle()
    assert driver.synced(waiting).error is E.NOT_COORDINATOR


def test_ten_thousand_groups_that_nobody_joins_are_forgotten() -> None:
    driver = GroupDriver()
    for number in range(10_000):
        refused = driver.joined(driver.join("c", group=f"group-{number}"))
        assert refused.error is E.MEMBER_ID_REQUIRED
    assert len(list(driver.groups)) == 10_000
    driver.advance(10_000)
    driver.groups.expire(1, driver.now)
    assert (list(driver.groups), driver.log, driver.groups.next_deadline_ms) == ([], [], None)


def test_the_sync_deadline_of_a_deleted_group_means_nothing_to_a_later_group_of_its_name() -> None:
    driver = GroupDriver()
    first, _ = driver.new_member("a", rebalance_ms=300_000, session_ms=1_800_000)
    driver.advance(3_000)
    assert driver.leave(first) is E.NONE
    driver.advance(300_000 - 6_000 - driver.ms)
    assert driver.groups.delete(GROUP, driver.now) is E.NONE
    driver.settle()
    second, ticket = driver.new_member("b", rebalance_ms=300_000, session_ms=1_800_000)
    driver.advance(3_000)
    assert driver.joined(ticket).error is E.NONE
    driver.advance(60_000)
    group = driver.groups.get(GROUP)
    assert group is not None
    assert (list(group.members), group.generation) == ([second], 1), "its own time to send SyncGroup is not over"
    driver.advance(300_000)
    assert not group.members
