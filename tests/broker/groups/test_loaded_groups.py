"""What a new coordinator makes of the records of a partition."""

from __future__ import annotations

from klamm.broker.groups.log_records import GroupKey, StoredGroup, group_key, group_record, offset_key, read_group, read_key
from klamm.broker.groups.states import EMPTY, STABLE
from klamm.protocol.errors import ErrorCode as E
from klamm.protocol.nouns import TopicPartition
from klamm.tests.broker.groups.group_driver import DAY_MS, GROUP, START_MS, SUBSCRIPTION_TO_T, T0, GroupDriver, state_of


def test_the_last_record_of_a_group_says_who_its_members_are() -> None:
    before = GroupDriver()
    a, b = before.stable()
    before.leave(b)
    before.join("c0", a)
    before.complete([a], 2)
    driver = before.reloaded()
    assert list(driver.groups.get(GROUP).members) == [a]  # type: ignore[union-attr]
    assert state_of(driver) is STABLE


def test_a_loaded_group_without_members_is_empty_and_its_offsets_expire_from_the_time_it_became_empty() -> None:
    before = GroupDriver()
    (a,) = before.stable(1)
    before.commit({T0: 1}, a, 1)
    before.advance(9_000)
    before.leave(a)
    emptied_ms = before.ms
    driver = before.reloaded()
    assert state_of(driver) is EMPTY
    driver.advance(emptied_ms + 19_999 - driver.ms)
    driver.groups.expire(20_000, driver.now)
    assert driver.offsets() == {T0: 1}
    driver.advance(1)
    driver.groups.expire(20_000, driver.now)
    assert driver.groups.get(GROUP) is None


def test_offsets_expire_from_their_commit_if_the_record_of_the_group_has_no_time() -> None:
    before = GroupDriver()
    before.commit({T0: 1})
    key, value = group_record(GROUP, StoredGroup("consumer", 4, None, None, -1, ()))
    before.log.append((key, value, 1, -1))
    driver = before.reloaded()
    driver.advance(DAY_MS - 1)
    driver.groups.expire(DAY_MS, driver.now)
    assert driver.offsets() == {T0: 1}
    driver.advance(1)
    driver.groups.expire(DAY_MS, driver.now)
    assert driver.offsets() == {}


def test_the_subscriptions_of_a_loaded_group_are_known() -> None:
    before = GroupDriver()
    (a,) = before.stable(1, metadata=SUBSCRIPTION_TO_T)
    before.commit({T0: 1, TopicPartition("u", 0): 2}, a, 1)
    driver = before.reloaded()
    driver.groups.expire(0, driver.now)
    assert driver.offsets() == {T0: 1}


def test_the_protocols_of_loaded_members_are_known() -> None:
    before = GroupDriver()
    before.stable(1)
    driver = before.reloaded()
    assert driver.joined(driver.join("b", protocols=("sticky",))).error is E.INCONSISTENT_GROUP_PROTOCOL
    assert driver.joined(driver.join("b", protocols=("sticky", "range"))).error is E.MEMBER_ID_REQUIRED


def test_a_group_that_was_deleted_and_has_offsets_again_has_no_generation() -> None:
    before = GroupDriver()
    (a,) = before.stable(1)
    before.leave(a)
    before.commit({T0: 1})
    before.log.append((group_key(GROUP), None, len(before.log), -1))
    driver = before.reloaded()
    group = driver.groups.get(GROUP)
    assert group is not None
    assert (group.state, group.generation, group.protocol_type, driver.offsets()) == (EMPTY, 0, None, {T0: 1})


def test_a_deletion_in_the_log_makes_no_group() -> None:
    driver = GroupDriver()
    for key in (offset_key(GROUP, T0), group_key(GROUP)):
        driver.groups.load([(key, None, 0, -1)])
        assert len(driver.groups) == 0


def test_members_that_a_new_coordinator_never_hears_of_are_removed_after_their_session_timeout() -> None:
    before = GroupDriver()
    before.stable(session_ms=10_000)
    driver = before.reloaded()
    driver.advance(9_999)
    assert state_of(driver) is STABLE
    driver.advance(1)
    assert state_of(driver) is EMPTY


def test_a_group_that_never_had_members_has_no_record_of_its_own() -> None:
    driver = GroupDriver()
    driver.commit({T0: 1})
    driver.groups.delete(GROUP, driver.now)
    driver.settle()
    assert not [key for key, _, _, _ in driver.log if isinstance(read_key(key), GroupKey)]


def test_the_record_of_a_group_without_members_names_no_leader_and_the_time_it_became_empty() -> None:
    driver = GroupDriver()
    (a,) = driver.stable(1)
    driver.advance(1_000)
    driver.leave(a)
    key, value, _, _ = driver.log[-1]
    assert isinstance(read_key(key), GroupKey)
    assert value is not None
    assert read_group(value) == StoredGroup("consumer", 2, None, None, START_MS + driver.ms, ())
