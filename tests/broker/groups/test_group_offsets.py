"""Offsets are committed, expire, and belong to transactions."""

from __future__ import annotations

import pytest

from klamm.broker.groups.log_records import GroupKey, OffsetKey, read_key
from klamm.broker.groups.requests import OffsetCommit
from klamm.broker.groups.states import COMPLETING, DEAD, EMPTY, MOVES, PREPARING, STABLE
from klamm.protocol.errors import ErrorCode as E
from klamm.protocol.nouns import TopicPartition
from klamm.tests.broker.groups.group_driver import (
    DAY_MS,
    GROUP,
    START_MS,
    SUBSCRIPTION_TO_T,
    SUBSCRIPTION_TO_U,
    T0,
    T1,
    GroupDriver,
    state_of,
)


def test_a_commit_from_outside_makes_an_empty_group() -> None:
    driver = GroupDriver()
    assert driver.commit({T0: 5, T1: 6}) is E.NONE
    assert driver.offsets() == {T0: 5, T1: 6}
    group = driver.groups.get(GROUP)
    assert group is not None
    assert (group.state, group.protocol_type) == (EMPTY, None)


def test_a_commit_of_a_generation_of_an_unknown_group_is_refused_and_makes_no_group() -> None:
    driver = GroupDriver()
    assert driver.commit({T0: 5}, "m", 3) is E.ILLEGAL_GENERATION
    assert driver.groups.get(GROUP) is None


@pytest.mark.parametrize(
    ("member", "generation", "error"),
    [
        ("own", 1, E.NONE),
        ("own", 2, E.ILLEGAL_GENERATION),
        ("own", -1, E.ILLEGAL_GENERATION),
        ("", -1, E.UNKNOWN_MEMBER_ID),
        ("x", 1, E.UNKNOWN_MEMBER_ID),
    ],
)
def test_only_members_of_the_generation_commit_to_a_group_with_members(member: str, generation: int, error: E) -> None:
    driver = GroupDriver()
    (a,) = driver.stable(1)
    assert driver.commit({T0: 1}, a if member == "own" else member, generation) is error
    assert driver.offsets() == ({T0: 1} if error is E.NONE else {})


def test_members_commit_while_others_join_and_not_while_the_assignment_is_awaited() -> None:
    driver = GroupDriver()
    a, b = driver.stable()
    rejoin = driver.join("c0", a, metadata=b"other")
    assert driver.commit({T0: 1}, b, 1) is E.NONE
    driver.join("c1", b)
    assert driver.joined(rejoin).generation == 2
    assert driver.commit({T0: 2}, b, 2) is E.REBALANCE_IN_PROGRESS


def test_a_commit_keeps_the_session_alive() -> None:
    driver = GroupDriver()
    (a,) = driver.stable(1, session_ms=10_000)
    for _ in range(3):
        driver.advance(9_000)
        assert driver.commit({T0: 1}, a, 1) is E.NONE
    assert driver.heartbeat(a, 1) is E.NONE


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (E.NOT_ENOUGH_REPLICAS, E.COORDINATOR_NOT_AVAILABLE),
        (E.NOT_ENOUGH_REPLICAS_AFTER_APPEND, E.COORDINATOR_NOT_AVAILABLE),
        (E.UNKNOWN_TOPIC_OR_PARTITION, E.COORDINATOR_NOT_AVAILABLE),
        (E.REQUEST_TIMED_OUT, E.COORDINATOR_NOT_AVAILABLE),
        (E.KAFKA_STORAGE_ERROR, E.NOT_COORDINATOR),
        (E.NOT_LEADER_OR_FOLLOWER, E.NOT_COORDINATOR),
        (E.MESSAGE_TOO_LARGE, E.INVALID_COMMIT_OFFSET_SIZE),
        (E.RECORD_LIST_TOO_LARGE, E.INVALID_COMMIT_OFFSET_SIZE),
        (E.INVALID_FETCH_SIZE, E.INVALID_COMMIT_OFFSET_SIZE),
    ],
)
def test_an_offset_that_cannot_be_appended_does_not_count(error: E, told: E) -> None:
    driver = GroupDriver()
    driver.error = error
    assert driver.commit({T0: 1}) is told
    assert driver.offsets() == {}


def test_an_offset_counts_once_it_is_in_the_log_and_is_unstable_until_then() -> None:
    driver = GroupDriver()
    driver.holds = True
    assert driver.commit({T0: 1}) is None
    group = driver.groups.get(GROUP)
    assert group is not None
    assert (driver.offsets(), group.offsets.is_unstable(T0), group.offsets.is_unstable(T1)) == ({}, True, False)
    driver.release()
    assert (driver.offsets(), group.offsets.is_unstable(T0)) == ({T0: 1}, False)


def test_offsets_survive_a_new_coordinator_and_the_last_commit_wins() -> None:
    driver = GroupDriver()
    for offset in (1, 2, 3):
        driver.commit({T0: offset})
    driver.commit({T0: 9}, group="other")
    loaded = driver.reloaded()
    assert (loaded.offsets(), loaded.offsets("other")) == ({T0: 3}, {T0: 9})


# --- transactions


@pytest.mark.parametrize(("is_committed", "after"), [(True, {T0: 7}), (False, {T0: 1})])
def test_offsets_of_a_transaction_count_from_its_commit_marker_on(is_committed: bool, after: dict[TopicPartition, int]) -> None:
    driver = GroupDriver()
    driver.commit({T0: 1})
    assert driver.commit({T0: 7}, producer_id=5) is E.NONE
    for each in (driver, driver.reloaded()):
        group = each.groups.get(GROUP)
        assert group is not None
        assert (each.offsets(), group.offsets.is_unstable(T0)) == ({T0: 1}, True)
        each.groups.transaction_ended(5, is_committed)
        assert (each.offsets(), group.offsets.is_unstable(T0)) == (after, False)


def test_offsets_of_a_producer_without_an_epoch_make_no_batch() -> None:
    driver = GroupDriver()
    assert driver.commit({T0: 7}, producer_id=5, producer_epoch=-1) is E.UNKNOWN_SERVER_ERROR
    assert driver.commit({T0: 7}, "m", 3, producer_id=5, producer_epoch=-1) is E.UNKNOWN_MEMBER_ID
    assert (driver.offsets(), driver.log) == ({}, [])
    assert driver.commit({T0: 7}, producer_epoch=-1) is E.NONE


def test_a_commit_after_that_of_an_open_transaction_wins_over_it() -> None:
    driver = GroupDriver()
    driver.commit({T0: 7}, producer_id=5)
    driver.commit({T0: 8})
    driver.groups.transaction_ended(5, True)
    assert driver.offsets() == {T0: 8}


def test_a_transaction_of_an_old_client_needs_no_member_and_of_a_new_one_the_generation() -> None:
    driver = GroupDriver()
    (a,) = driver.stable(1)
    assert driver.commit({T0: 1}, producer_id=5) is E.NONE
    assert driver.commit({T0: 1}, a, 1, producer_id=5) is E.NONE
    assert driver.commit({T0: 1}, a, 0, producer_id=5) is E.ILLEGAL_GENERATION
    assert driver.commit({T0: 1}, "x", 1, producer_id=5) is E.UNKNOWN_MEMBER_ID


def test_a_transaction_makes_its_group_whose_members_it_then_has_to_name() -> None:
    driver = GroupDriver()
    assert driver.commit({T0: 1}, "m", 3, producer_id=5) is E.UNKNOWN_MEMBER_ID
    assert driver.commit({T0: 1}, producer_id=5) is E.NONE


def test_a_transaction_commits_while_the_assignment_is_awaited() -> None:
    driver = GroupDriver()
    a, _ = driver.new_member("a")
    driver.advance(3_000)
    assert driver.commit({T0: 1}, a, 1) is E.REBALANCE_IN_PROGRESS
    assert driver.commit({T0: 1}, a, 1, producer_id=5) is E.NONE


def test_a_transaction_that_names_a_generation_names_its_member() -> None:
    driver = GroupDriver()
    driver.stable(1)
    assert driver.commit({T0: 1}, "", 1, producer_id=5) is E.UNKNOWN_MEMBER_ID


def test_an_open_transaction_keeps_its_group_although_none_of_its_offsets_is_left() -> None:
    driver = GroupDriver()
    driver.commit({T0: 1}, producer_id=5)
    driver.groups.topics_deleted([T0], driver.now)
    assert driver.groups.delete_offsets(GROUP, [T0], driver.now) == (E.NONE, {T0: E.NONE})
    assert driver.groups.get(GROUP) is not None
    driver.groups.transaction_ended(5, True)
    assert driver.groups.get(GROUP) is not None and not driver.offsets()
    driver.groups.topics_deleted([T1], driver.now)
    assert driver.groups.get(GROUP) is None


def test_a_commit_of_a_transaction_does_not_keep_the_session_alive() -> None:
    driver = GroupDriver()
    (a,) = driver.stable(1, session_ms=10_000)
    driver.advance(9_000)
    assert driver.commit({T0: 1}, a, 1, producer_id=5) is E.NONE
    driver.advance(1_000)
    assert driver.heartbeat(a, 1) is E.UNKNOWN_MEMBER_ID


# --- expiry


def test_offsets_of_a_group_without_members_expire_from_their_commit_and_the_group_with_them() -> None:
    driver = GroupDriver()
    driver.commit({T0: 1})
    driver.advance(1_000)
    driver.commit({T1: 1})
    driver.advance(DAY_MS - 1_000)
    driver.groups.expire(DAY_MS, driver.now)
    driver.settle()
    assert driver.offsets() == driver.reloaded().offsets() == {T1: 1}
    driver.advance(1_000)
    driver.groups.expire(DAY_MS, driver.now)
    driver.settle()
    assert driver.groups.get(GROUP) is driver.reloaded().groups.get(GROUP) is None


def test_offsets_of_a_group_with_members_expire_from_the_time_it_became_empty() -> None:
    driver = GroupDriver()
    (a,) = driver.stable(1, session_ms=DAY_MS // 100)
    driver.commit({T0: 1}, a, 1)
    for _ in range(200):
        driver.advance(DAY_MS // 100 - 1)
        driver.heartbeat(a, 1)
    driver.groups.expire(DAY_MS, driver.now)
    assert driver.offsets() == {T0: 1}
    driver.leave(a)
    driver.advance(DAY_MS - 1)
    driver.groups.expire(DAY_MS, driver.now)
    assert driver.offsets() == {T0: 1}
    driver.advance(1)
    driver.groups.expire(DAY_MS, driver.now)
    driver.settle()
    assert driver.groups.get(GROUP) is driver.reloaded().groups.get(GROUP) is None


def test_offsets_of_topics_that_no_member_is_subscribed_to_expire_in_a_stable_group() -> None:
    driver = GroupDriver()
    (a,) = driver.stable(1, metadata=SUBSCRIPTION_TO_T, session_ms=1_800_000)
    driver.commit({T0: 1, TopicPartition("u", 0): 2}, a, 1)
    driver.groups.expire(0, driver.now)
    driver.settle()
    assert driver.offsets() == {T0: 1}


def test_an_offset_with_an_expiry_time_of_its_own_keeps_it_over_a_new_coordinator() -> None:
    driver = GroupDriver()
    driver.commit({T0: 1}, expire_ms=START_MS + 5)
    loaded = driver.reloaded()
    loaded.groups.expire(DAY_MS, loaded.now)
    assert loaded.offsets() == {T0: 1}
    loaded.advance(5)
    loaded.groups.expire(DAY_MS, loaded.now)
    assert loaded.offsets() == {}


def test_an_offset_whose_append_is_under_way_does_not_expire() -> None:
    driver = GroupDriver()
    driver.commit({T0: 1})
    driver.holds = True
    driver.commit({T0: 2})
    driver.groups.expire(0, driver.now)
    assert driver.offsets() == {T0: 1}


def test_what_is_under_way_keeps_a_group_without_offsets() -> None:
    appending, in_transaction = GroupDriver(), GroupDriver()
    appending.holds = True
    appending.commit({T0: 1})
    in_transaction.commit({T0: 1}, producer_id=5)
    for driver in (appending, in_transaction):
        driver.groups.expire(0, driver.now)
    appending.release()
    in_transaction.groups.transaction_ended(5, True)
    assert appending.offsets() == in_transaction.offsets() == {T0: 1}


def test_an_expiry_time_of_its_own_goes_before_the_time_since_the_group_is_empty() -> None:
    driver = GroupDriver()
    (a,) = driver.stable(1)
    driver.commit({T0: 1}, a, 1, expire_ms=START_MS + 2 * DAY_MS)
    driver.leave(a)
    driver.advance(2 * DAY_MS - driver.ms - 1)
    driver.groups.expire(DAY_MS, driver.now)
    assert driver.offsets() == {T0: 1}
    driver.advance(1)
    driver.groups.expire(DAY_MS, driver.now)
    assert driver.offsets() == {}


def test_an_offset_that_two_appends_write_is_unstable_until_both_have_ended() -> None:
    driver = GroupDriver()
    driver.holds = True
    driver.commit({T0: 1})
    driver.commit({T0: 2})
    first, second = driver.held
    group = driver.groups.get(GROUP)
    assert group is not None
    driver.append(first)
    assert group.offsets.is_unstable(T0)
    driver.append(second)
    assert not group.offsets.is_unstable(T0)


def test_offsets_of_a_stable_group_expire_from_their_commit() -> None:
    driver = GroupDriver()
    (a,) = driver.stable(1, metadata=SUBSCRIPTION_TO_T, session_ms=1_800_000)
    driver.advance(60_000)
    driver.commit({TopicPartition("u", 0): 2}, a, 1)
    driver.advance(999)
    driver.groups.expire(1_000, driver.now)
    assert driver.offsets() == {("u", 0): 2}
    driver.advance(1)
    driver.groups.expire(1_000, driver.now)
    assert driver.offsets() == {}


def test_no_offset_expires_while_a_group_rebalances() -> None:
    driver = GroupDriver()
    (a,) = driver.stable(1, metadata=SUBSCRIPTION_TO_T)
    driver.commit({TopicPartition("u", 0): 2}, a, 1)
    driver.new_member("b", metadata=SUBSCRIPTION_TO_T)
    assert state_of(driver) is PREPARING
    driver.groups.expire(0, driver.now)
    assert driver.offsets() == {("u", 0): 2}


def test_no_offset_of_a_group_of_another_type_expires_while_it_has_members() -> None:
    driver = GroupDriver()
    a, _ = driver.new_member("a", kind="connect", session_ms=1_800_000)
    driver.advance(3_000)
    driver.sync(a, 1, kind="connect")
    driver.commit({T0: 1}, a, 1)
    assert state_of(driver) is STABLE
    driver.groups.expire(0, driver.now)
    assert driver.offsets() == {T0: 1}


@pytest.mark.parametrize("subscriptions", [(SUBSCRIPTION_TO_T, SUBSCRIPTION_TO_U), (SUBSCRIPTION_TO_U, SUBSCRIPTION_TO_T)])
def test_a_topic_that_one_of_the_members_is_subscribed_to_is_kept(subscriptions: tuple[bytes, bytes]) -> None:
    driver = GroupDriver()
    ids = [driver.new_member(f"c{index}", metadata=each)[0] for index, each in enumerate(subscriptions)]
    driver.advance(6_000)
    driver.complete(ids, 1)
    driver.commit({T0: 1, TopicPartition("u", 0): 2, TopicPartition("v", 0): 3}, ids[0], 1)
    driver.groups.expire(0, driver.now)
    assert driver.offsets() == {T0: 1, ("u", 0): 2}


@pytest.mark.parametrize(
    "subscription",
    [
        b"", b"\0", SUBSCRIPTION_TO_T[:8], b"\xff\xff" + SUBSCRIPTION_TO_T[2:], b"\0\0\xff\xff\xff\xff", b"\0\0\0\0\0\1\xff\xff",
        b"\0\0\0\0\0\1\0\2t", b"\0\0\0\0\0\1\0\1\xff", b"\0\0\x7f\xff\xff\xff\0\0",
    ],
    ids=["empty", "short", "cut", "version", "count", "null topic", "cut topic", "not UTF-8", "more topics than bytes"],
)
def test_a_subscription_that_cannot_be_read_keeps_every_topic(subscription: bytes) -> None:
    driver = GroupDriver()
    (a,) = driver.stable(1, metadata=subscription, session_ms=1_800_000)
    driver.commit({T0: 1}, a, 1)
    driver.groups.expire(0, driver.now)
    assert driver.offsets() == {T0: 1}
    assert driver.groups.delete_offsets(GROUP, [T0], driver.now) == (E.NONE, {T0: E.GROUP_SUBSCRIBED_TO_TOPIC})


# --- deletion


def test_a_group_with_members_is_not_deleted_and_an_empty_one_is_with_its_offsets() -> None:
    driver = GroupDriver()
    (a,) = driver.stable(1)
    driver.commit({T0: 1}, a, 1)
    assert driver.groups.delete(GROUP, driver.now) is E.NON_EMPTY_GROUP
    assert driver.groups.delete("unknown", driver.now) is E.GROUP_ID_NOT_FOUND
    driver.leave(a)
    assert driver.groups.delete(GROUP, driver.now) is E.NONE
    driver.settle()
    assert driver.groups.get(GROUP) is driver.reloaded().groups.get(GROUP) is None


def test_offsets_of_subscribed_topics_are_not_deleted() -> None:
    driver = GroupDriver()
    (a,) = driver.stable(1, metadata=SUBSCRIPTION_TO_T)
    other = TopicPartition("u", 0)
    driver.commit({T0: 1, other: 2}, a, 1)
    assert driver.groups.delete_offsets(GROUP, [T0, other], driver.now) == (E.NONE, {T0: E.GROUP_SUBSCRIBED_TO_TOPIC, other: E.NONE})
    driver.settle()
    assert driver.offsets() == driver.reloaded().offsets() == {T0: 1}


def test_offsets_of_a_group_that_is_no_consumer_group_are_not_deleted_while_it_has_members() -> None:
    driver = GroupDriver()
    ticket = driver.new_member("a", kind="connect")[1]
    driver.advance(3_000)
    assert driver.joined(ticket).protocol_type == "connect"
    assert driver.groups.delete_offsets(GROUP, [T0], driver.now) == (E.NON_EMPTY_GROUP, {})
    assert driver.groups.delete_offsets("unknown", [T0], driver.now) == (E.GROUP_ID_NOT_FOUND, {})


def test_offsets_that_no_member_is_subscribed_to_are_deleted_while_the_assignment_is_awaited() -> None:
    driver = GroupDriver()
    driver.commit({T0: 1, TopicPartition("u", 0): 2})
    driver.new_member("a", metadata=SUBSCRIPTION_TO_T)
    driver.advance(3_000)
    assert state_of(driver) is COMPLETING
    driver.groups.delete_offsets(GROUP, [T0, TopicPartition("u", 0)], driver.now)
    assert driver.offsets() == {T0: 1}


def test_offsets_of_a_group_without_members_are_deleted_whatever_its_type() -> None:
    simple, connect = GroupDriver(), GroupDriver()
    a, _ = connect.new_member("a", kind="connect")
    connect.advance(3_000)
    connect.leave(a)
    for driver in (simple, connect):
        driver.commit({T0: 1, T1: 1})
        assert driver.groups.delete_offsets(GROUP, [T0], driver.now) == (E.NONE, {T0: E.NONE})
        assert driver.offsets() == {T1: 1}


def test_only_what_is_in_the_log_is_deleted_there() -> None:
    driver = GroupDriver()
    driver.commit({T0: 1})
    driver.groups.delete_offsets(GROUP, [T1, T0], driver.now)
    driver.settle()
    assert [(read_key(key), value) for key, value, _, _ in driver.log[1:]] == [(OffsetKey(GROUP, T0), None)]


def test_a_group_that_had_members_is_deleted_in_the_log_too() -> None:
    driver = GroupDriver()
    (a,) = driver.stable(1)
    driver.leave(a)
    driver.groups.delete(GROUP, driver.now)
    driver.settle()
    assert [(read_key(key), value) for key, value, _, _ in driver.log][-1] == (GroupKey(GROUP), None)
    driver.advance(60_000)
    assert driver.groups.get(GROUP) is None


def test_a_group_and_its_offsets_are_deleted_with_one_batch() -> None:
    driver = GroupDriver()
    (a,) = driver.stable(1)
    driver.leave(a)
    driver.commit({T0: 1, T1: 2})
    driver.holds = True
    driver.groups.delete(GROUP, driver.now)
    driver.settle()
    (append,) = driver.held
    assert [read_key(key) for key, _ in append.records] == [OffsetKey(GROUP, T0), OffsetKey(GROUP, T1), GroupKey(GROUP)]


def test_offsets_whose_append_ends_after_their_group_was_deleted_do_not_bring_it_back() -> None:
    driver = GroupDriver()
    driver.commit({T0: 1})
    driver.holds = True
    driver.commit({T0: 2})
    commit = driver.held.pop()
    assert driver.groups.delete(GROUP, driver.now) is E.NONE
    driver.append(commit)
    assert driver.groups.get(GROUP) is None


def test_an_empty_group_is_gone_with_its_last_offset_and_one_with_members_is_not() -> None:
    driver = GroupDriver()
    (a,) = driver.stable(1, metadata=SUBSCRIPTION_TO_T)
    other = TopicPartition("u", 0)
    driver.commit({T0: 1, other: 2}, a, 1)
    driver.groups.delete_offsets(GROUP, [other], driver.now)
    driver.leave(a)
    assert driver.groups.get(GROUP) is not None
    driver.groups.delete_offsets(GROUP, [T0], driver.now)
    driver.settle()
    assert driver.groups.get(GROUP) is driver.reloaded().groups.get(GROUP) is None
    driver.commit({T0: 1, T1: 2})
    driver.groups.topics_deleted([T0], driver.now)
    assert driver.groups.get(GROUP) is not None
    driver.groups.topics_deleted([T1], driver.now)
    assert driver.groups.get(GROUP) is None


def test_a_member_that_has_not_joined_with_its_id_does_not_keep_an_empty_group() -> None:
    driver = GroupDriver()
    member_id = driver.joined(driver.join("a")).member_id
    assert driver.groups.get(GROUP) is not None
    driver.groups.delete_offsets(GROUP, [T0], driver.now)
    assert driver.groups.get(GROUP) is None
    assert driver.joined(driver.join("a", member_id)).error is E.UNKNOWN_MEMBER_ID


def test_offsets_of_deleted_topics_are_forgotten_also_those_of_open_transactions() -> None:
    driver = GroupDriver()
    driver.commit({T0: 1, T1: 2})
    driver.commit({T0: 3}, producer_id=5)
    driver.groups.topics_deleted([T0], driver.now)
    driver.settle()
    driver.groups.transaction_ended(5, True)
    assert driver.offsets() == {T1: 2}


# --- the log


def test_records_of_later_brokers_are_passed_over_and_broken_ones_are_counted() -> None:
    driver = GroupDriver()
    driver.commit({T0: 1})
    good = driver.log[0]
    later = (b"\x00\x03\x00\x01g", b"\x00\x00", 1, -1)
    broken = [(b"\x00", None, 2, -1), (None, b"x", 3, -1), (good[0], b"\x00\x09", 4, -1), (good[0], good[1][:9], 5, -1)]  # type: ignore[index]
    loaded = GroupDriver()
    assert loaded.groups.load([good, later, *broken]) == len(broken)
    assert loaded.offsets() == {T0: 1}


def test_the_tables_of_moves_names_every_state_and_dead_is_final() -> None:
    assert set(MOVES) == {state for targets in MOVES.values() for state in targets}
    assert MOVES[DEAD] == {DEAD}
    assert PREPARING in MOVES[STABLE]


def test_a_commit_is_written_as_apache_kafka_writes_it() -> None:
    driver = GroupDriver()
    driver.commit({T0: 258})
    assert driver.log[0][0] == b"\x00\x01" + b"\x00\x01g" + b"\x00\x01t" + b"\x00\x00\x00\x00"
    assert driver.log[0][1] == b"\x00\x03" + (258).to_bytes(8, "big") + b"\xff\xff\xff\xff" + b"\x00\x00" + START_MS.to_bytes(8, "big")
    assert driver.reloaded().groups.get(GROUP).offsets.committed[T0].commit == OffsetCommit(258, -1, "", START_MS)  # type: ignore[union-attr]


# --- what is under way while offsets are removed


def test_an_offset_that_a_transaction_holds_outlives_the_expiry_of_the_committed_one() -> None:
    driver = GroupDriver()
    assert driver.commit({T0: 5}) is E.NONE
    driver.ms = 6 * DAY_MS
    assert driver.commit({T0: 10}, producer_id=5) is E.NONE
    driver.ms = 8 * DAY_MS
    driver.groups.expire(7 * DAY_MS, driver.now)
    driver.settle()
    assert driver.offsets() == {}
    driver.groups.transaction_ended(5, True)
    assert driver.offsets() == {T0: 10}


@pytest.mark.parametrize("is_transactional", [False, True])
def test_a_commit_under_way_does_not_bring_back_the_offset_of_a_deleted_topic(is_transactional: bool) -> None:
    driver = GroupDriver()
    driver.holds = True
    driver.commit({T0: 5, ("u", 0): 1}, producer_id=7 if is_transactional else -1)
    driver.groups.topics_deleted([TopicPartition(*T0)], driver.now)
    driver.release()
    driver.groups.transaction_ended(7, True)
    assert driver.offsets() == {("u", 0): 1}
    group = driver.groups.get(GROUP)
    assert group is not None
    assert not group.offsets.is_unstable(T0)


def test_a_topic_that_was_made_again_takes_new_commits_while_an_old_one_is_under_way() -> None:
    driver = GroupDriver()
    driver.holds = True
    driver.commit({T0: 5})
    driver.groups.topics_deleted([TopicPartition(*T0)], driver.now)
    driver.settle()
    driver.release()
    driver.holds = False
    assert driver.commit({T0: 1}) is E.NONE
    assert driver.offsets() == {T0: 1}
