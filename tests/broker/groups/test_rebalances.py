"""Members join, rebalance, keep their sessions and leave."""

from __future__ import annotations

import pytest

from klamm.broker.groups.rebalances import NEW_MEMBER_MS, Limits
from klamm.broker.groups.requests import JoinResult
from klamm.broker.groups.states import COMPLETING, EMPTY, PREPARING, STABLE
from klamm.protocol.errors import ErrorCode as E
from klamm.tests.broker.groups.group_driver import GROUP, GroupDriver


def state_of(driver: GroupDriver) -> object:
    group = driver.groups.get(GROUP)
    return None if group is None else group.state


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


def test_an_unknown_member_makes_no_group() -> None:
    driver = GroupDriver()
    assert driver.joined(driver.join("x", "x-unknown")) == JoinResult(E.UNKNOWN_MEMBER_ID, "x-unknown")
    assert driver.groups.get(GROUP) is None


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"kind": "connect"}, E.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": ("sticky",)}, E.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": ()}, E.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": ("sticky", "range")}, E.MEMBER_ID_REQUIRED),
    ],
)
def test_members_need_a_protocol_in_common(options: dict[str, object], error: E) -> None:
    driver = GroupDriver()
    driver.stable(1)
    assert driver.joined(driver.join("b", **options)).error is error  # type: ignore[arg-type]


def test_the_protocol_that_most_members_prefer_is_chosen_among_those_that_all_know() -> None:
    driver = GroupDriver()
    tickets = [driver.new_member(name, protocols=protocols)[1] for name, protocols in (
        ("a", ("range", "sticky", "own")), ("b", ("sticky", "range")), ("c", ("other", "sticky", "range")),
    )]
    driver.advance(10_000)
    assert {driver.joined(ticket).protocol for ticket in tickets} == {"sticky"}


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


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (E.NOT_ENOUGH_REPLICAS, E.COORDINATOR_NOT_AVAILABLE),
        (E.NOT_LEADER_OR_FOLLOWER, E.NOT_COORDINATOR),
        (E.REQUEST_TIMED_OUT, E.REBALANCE_IN_PROGRESS),
        (E.MESSAGE_TOO_LARGE, E.UNKNOWN_SERVER_ERROR),
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


# --- sessions


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


def test_heartbeats_of_a_member_without_its_assignment_are_good() -> None:
    driver = GroupDriver()
    a, _ = driver.new_member("a")
    driver.advance(3_000)
    assert state_of(driver) is COMPLETING
    assert driver.heartbeat(a, 1) is E.NONE


@pytest.mark.parametrize(
    ("member", "generation", "error"), [("x", 1, E.UNKNOWN_MEMBER_ID), (None, 2, E.ILLEGAL_GENERATION), (None, 0, E.ILLEGAL_GENERATION)]
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


# --- static members


def static_group(driver: GroupDriver) -> tuple[str, str]:
    """A stable group of the static members one, which leads, and two."""
    tickets = [driver.join("c", instance=name) for name in ("one", "two")]
    driver.advance(10_000)
    a, b = (driver.joined(ticket).member_id for ticket in tickets)
    driver.complete([a, b], 1)
    return a, b


def test_a_static_member_that_returns_gets_a_new_id_without_a_rebalance() -> None:
    driver = GroupDriver()
    a, b = static_group(driver)
    back = driver.joined(driver.join("c", instance="two"))
    assert (back.error, back.generation, back.leader, back.skip_assignment) == (E.NONE, 1, a, False)
    assert back.member_id != b
    assert driver.synced(driver.sync(back.member_id, 1, instance="two")).assignment == b.encode()
    assert driver.heartbeat(b, 1, "two") is E.FENCED_INSTANCE_ID
    assert driver.reloaded().heartbeat(back.member_id, 1, "two") is E.NONE


@pytest.mark.parametrize(("version", "skips"), [(9, True), (8, False)])
def test_a_static_leader_that_returns_skips_the_assignment_or_does_not_know_that_it_leads(version: int, skips: bool) -> None:
    driver = GroupDriver()
    a, _ = static_group(driver)
    back = driver.joined(driver.join("c", instance="one", version=version))
    assert back.skip_assignment is skips
    assert (back.leader == back.member_id, len(back.members)) == ((True, 2) if skips else (False, 0))
    assert back.leader == (back.member_id if skips else a)


def test_a_static_member_that_returns_with_other_protocols_begins_a_rebalance() -> None:
    driver = GroupDriver()
    ticket = driver.join("c", instance="one", protocols=("range", "sticky"))
    driver.advance(10_000)
    a = driver.joined(ticket).member_id
    driver.complete([a], 1)
    back = driver.joined(driver.join("c", instance="one", protocols=("sticky",)))
    assert (back.generation, back.protocol) == (2, "sticky")


def test_a_static_member_whose_new_id_cannot_be_stored_keeps_its_old_one() -> None:
    driver = GroupDriver()
    _, b = static_group(driver)
    driver.error = E.NOT_ENOUGH_REPLICAS
    back = driver.joined(driver.join("c", instance="two"))
    assert (back.error, back.member_id) == (E.COORDINATOR_NOT_AVAILABLE, "")
    assert driver.heartbeat(b, 1, "two") is E.NONE


def test_a_second_process_with_the_same_instance_id_fences_the_first_while_it_waits() -> None:
    driver = GroupDriver()
    first = driver.join("c", instance="one")
    second = driver.join("c", instance="one")
    assert driver.joined(first).error is E.FENCED_INSTANCE_ID
    driver.advance(10_000)
    assert driver.joined(second).error is E.NONE


def test_a_static_member_survives_a_rebalance_without_joining_until_its_session_ends() -> None:
    driver = GroupDriver()
    a, b = static_group(driver)
    _, third = driver.new_member("x", rebalance_ms=20_000, session_ms=30_000)
    rejoin = driver.join("c", a, instance="one", rebalance_ms=20_000, session_ms=30_000)
    driver.advance(9_999)
    assert b in driver.groups.get(GROUP).members  # type: ignore[union-attr]
    assert rejoin not in driver.results
    driver.advance(1)
    assert b not in driver.groups.get(GROUP).members  # type: ignore[union-attr]
    assert driver.joined(third).generation == 2


def test_an_administrator_removes_a_static_member_by_its_name() -> None:
    driver = GroupDriver()
    a, b = static_group(driver)
    assert driver.leave("", "two") is E.NONE
    assert driver.heartbeat(b, 1, "two") is E.UNKNOWN_MEMBER_ID
    assert driver.heartbeat(a, 1, "one") is E.REBALANCE_IN_PROGRESS


# --- another coordinator


def test_a_new_coordinator_knows_members_and_assignments_and_gives_each_its_full_session() -> None:
    before = GroupDriver()
    a, b = before.stable(session_ms=10_000)
    before.advance(9_000)
    driver = before.reloaded()
    assert driver.synced(driver.sync(a, 1)).assignment == a.encode()
    driver.advance(9_999)
    assert driver.heartbeat(b, 1) is E.NONE


def test_members_that_wait_are_told_that_the_coordinator_has_moved() -> None:
    driver = GroupDriver()
    _, ticket = driver.new_member("a")
    driver.groups.unload(driver.now)
    driver.settle()
    assert driver.joined(ticket).error is E.NOT_COORDINATOR
    assert len(driver.groups) == 0
