"""Members with an instance id come back without a rebalance, and fence the process that had their name before."""

from __future__ import annotations

import pytest

from klamm.broker.groups.requests import JoinResult
from klamm.broker.groups.states import COMPLETING, PREPARING, STABLE
from klamm.protocol.errors import ErrorCode as E
from klamm.tests.broker.groups.group_driver import GROUP, GroupDriver, state_of


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


def test_the_id_of_a_static_member_begins_with_its_name() -> None:
    driver = GroupDriver()
    a, b = static_group(driver)
    assert (a[:4], b[:4]) == ("one-", "two-")


def test_the_leader_learns_who_is_static() -> None:
    driver = GroupDriver()
    tickets = [driver.join("c", instance="one"), driver.new_member("d")[1]]
    driver.advance(10_000)
    assert [each.instance_id for each in driver.joined(tickets[0]).members] == ["one", None]


def test_the_new_id_of_a_static_member_is_stored_with_its_assignment() -> None:
    driver = GroupDriver()
    a, b = static_group(driver)
    back = driver.joined(driver.join("c", instance="two")).member_id
    loaded = driver.reloaded()
    assert loaded.synced(loaded.sync(back, 1, instance="two")).assignment == b.encode()
    assert loaded.synced(loaded.sync(a, 1, instance="one")).assignment == a.encode()


def test_a_static_leader_that_came_back_leads_the_next_generation() -> None:
    driver = GroupDriver()
    _, b = static_group(driver)
    back = driver.joined(driver.join("c", instance="one")).member_id
    tickets = [driver.join("c", b, instance="two", metadata=b"other"), driver.join("c", back, instance="one")]
    assert {driver.joined(ticket).leader for ticket in tickets} == {back}


def test_a_static_leader_that_does_not_join_again_stays_a_member_and_leads_no_more() -> None:
    driver = GroupDriver()
    tickets = [driver.join("c", instance=name, rebalance_ms=5_000, session_ms=60_000) for name in ("one", "two")]
    driver.advance(6_000)
    a, b = (driver.joined(ticket).member_id for ticket in tickets)
    driver.complete([a, b], 1)
    rejoin = driver.join("c", b, instance="two", metadata=b"other", rebalance_ms=5_000, session_ms=60_000)
    driver.advance(5_000)
    result = driver.joined(rejoin)
    assert (result.generation, result.leader, {each.member_id for each in result.members}) == (2, b, {a, b})


def test_a_rebalance_that_no_static_member_joins_waits_on() -> None:
    driver = GroupDriver()
    tickets = [driver.join("c", instance=name, rebalance_ms=5_000, session_ms=60_000) for name in ("one", "two")]
    driver.advance(6_000)
    a, b = (driver.joined(ticket).member_id for ticket in tickets)
    driver.complete([a, b], 1)
    driver.leave("", "two")
    driver.advance(12_000)
    assert state_of(driver) is PREPARING
    rejoin = driver.join("c", a, instance="one", rebalance_ms=5_000, session_ms=60_000)
    assert driver.joined(rejoin).generation == 2


def test_a_second_process_fences_the_first_while_it_waits_for_its_assignment() -> None:
    driver = GroupDriver()
    tickets = [driver.join("c", instance=name) for name in ("one", "two")]
    driver.advance(10_000)
    _, b = (driver.joined(ticket).member_id for ticket in tickets)
    waiting = driver.sync(b, 1, instance="two")
    driver.join("c", instance="two")
    assert driver.synced(waiting).error is E.FENCED_INSTANCE_ID


def test_a_static_member_that_returns_while_the_assignment_is_awaited_begins_a_rebalance() -> None:
    driver = GroupDriver()
    tickets = [driver.join("c", instance=name) for name in ("one", "two")]
    driver.advance(10_000)
    a, _ = (driver.joined(ticket).member_id for ticket in tickets)
    assert state_of(driver) is COMPLETING
    back = driver.join("c", instance="two")
    assert state_of(driver) is PREPARING
    assert driver.joined(driver.join("c", a, instance="one")).generation == driver.joined(back).generation == 2


def test_nobody_waits_for_the_sync_of_a_process_that_was_replaced() -> None:
    driver = GroupDriver()
    tickets = [driver.join("c", instance=name, rebalance_ms=20_000, session_ms=60_000) for name in ("one", "two")]
    driver.advance(10_000)
    a, b = (driver.joined(ticket).member_id for ticket in tickets)
    driver.sync(a, 1, {a: b"A", b: b"B"}, instance="one")
    back = driver.joined(driver.join("c", instance="two", rebalance_ms=20_000, session_ms=60_000)).member_id
    driver.advance(20_000)
    assert state_of(driver) is STABLE
    assert driver.heartbeat(back, 1, "two") is E.NONE


def test_a_new_id_that_is_stored_while_others_are_waited_for_has_no_response_yet() -> None:
    driver = GroupDriver()
    a, _ = static_group(driver)
    driver.holds = True
    back = driver.join("c", instance="two")
    _, third = driver.new_member("x")
    driver.release()
    assert back not in driver.results
    driver.holds = False
    rejoin = driver.join("c", a, instance="one")
    assert {driver.joined(ticket).generation for ticket in (back, third, rejoin)} == {2}


def test_a_static_member_whose_new_id_cannot_be_stored_is_as_it_was_before() -> None:
    driver = GroupDriver()
    a, b = static_group(driver)
    driver.error = E.NOT_ENOUGH_REPLICAS
    driver.advance(5_000)
    driver.join("c", instance="two", metadata=b"new", session_ms=60_000)
    driver.error = E.NONE
    driver.heartbeat(a, 1, "one")
    driver.advance(9_999)
    assert driver.heartbeat(a, 1, "one") is E.NONE
    driver.advance(1)
    assert driver.heartbeat(a, 1, "one") is E.REBALANCE_IN_PROGRESS
    assert driver.heartbeat(b, 1, "two") is E.UNKNOWN_MEMBER_ID


def test_the_subscription_of_a_static_member_whose_new_id_cannot_be_stored_is_the_old_one() -> None:
    driver = GroupDriver()
    a, b = static_group(driver)
    driver.error = E.NOT_ENOUGH_REPLICAS
    driver.join("c", instance="two", metadata=b"new")
    driver.error = E.NONE
    assert driver.joined(driver.join("c", b, instance="two")).generation == 1
    assert state_of(driver) is STABLE
    rejoin = driver.join("c", a, instance="one")
    driver.join("c", b, instance="two")
    assert {each.metadata for each in driver.joined(rejoin).members} == {b"m"}


def test_a_member_that_leaves_with_the_name_of_another_is_fenced() -> None:
    driver = GroupDriver()
    a, b = static_group(driver)
    assert driver.leave(b, "one") is E.FENCED_INSTANCE_ID
    assert driver.heartbeat(a, 1, "one") is driver.heartbeat(b, 1, "two") is E.NONE


def test_who_commits_with_a_name_and_without_its_id_is_fenced() -> None:
    driver = GroupDriver()
    static_group(driver)
    assert driver.commit({("t", 0): 1}, instance="two") is E.FENCED_INSTANCE_ID
    assert driver.commit({("t", 0): 1}, instance="three") is E.UNKNOWN_MEMBER_ID


def test_a_static_member_that_left_is_new_when_it_comes_back() -> None:
    driver = GroupDriver()
    _, b = static_group(driver)
    assert driver.leave(b, "two") is E.NONE
    driver.join("c", instance="two")
    assert driver.heartbeat(b, 1, "two") is E.FENCED_INSTANCE_ID
    assert len(driver.groups.get(GROUP).members) == 2  # type: ignore[union-attr]


def test_a_member_that_was_given_an_id_cannot_become_static_with_it() -> None:
    driver = GroupDriver()
    member_id = driver.joined(driver.join("a")).member_id
    assert driver.joined(driver.join("a", member_id, instance="one")) == JoinResult(E.UNKNOWN_SERVER_ERROR, "")
    driver.join("a", member_id)
    assert list(driver.groups.get(GROUP).members) == [member_id]  # type: ignore[union-attr]


def test_a_rebalance_that_no_static_member_joined_in_time_ends_after_another_time_out_with_those_who_have() -> None:
    driver = GroupDriver()
    a, b = static_group(driver)
    driver.groups.begin_rebalance(GROUP, driver.now)
    driver.settle()
    beat_60_s(driver, {a: "one", b: "two"})  # the time to join is over
    assert state_of(driver) is PREPARING
    ticket = driver.join("c", a, instance="one")
    beat_60_s(driver, {b: "two"})
    result = driver.joined(ticket)
    assert (result.error, result.generation, result.leader) == (E.NONE, 2, a)


def beat_60_s(driver: GroupDriver, members: dict[str, str]) -> None:
    """Let the rebalance time-out pass; these members keep their sessions."""
    for _ in range(12):
        driver.advance(5_000)
        for member_id, instance in members.items():
            driver.heartbeat(member_id, 1, instance)
