"""Partitions are added to transactions, and transactions end."""

from __future__ import annotations

import pytest

from klamm.broker.transactions.log_records import key_of
from klamm.broker.transactions.requests import Description, Listed, ProducerIdResult, SendMarkers, TransactionLimits
from klamm.broker.transactions.states import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    STATES,
    TransactionState,
)
from klamm.broker.transactions.transactions import RETRY_MS
from klamm.protocol.errors import ErrorCode as E
from klamm.protocol.nouns import TopicPartition
from klamm.seams.clock import Now
from klamm.tests.broker.transactions.transaction_driver import ID, START_MS, T0, T1, U0, TransactionDriver

DAY_MS = 86_400_000


def in_state(state: TransactionState) -> TransactionDriver:
    """A transaction of producer 0, epoch 0, in this state; of Prepare* the markers are held, so that nothing is pending but they."""
    driver = TransactionDriver()
    if state is EMPTY:
        driver.init()
        return driver
    driver.begun(T0, T1)
    if state is not ONGOING:
        driver.holds = state in (PREPARE_COMMIT, PREPARE_ABORT)
        driver.end(0, 0, state in (PREPARE_COMMIT, COMPLETE_COMMIT))
        driver.release()
    assert driver.get().state is state
    return driver


# --- AddPartitionsToTxn


@pytest.mark.parametrize(
    ("state", "error"),
    [
        (EMPTY, E.NONE),
        (ONGOING, E.NONE),
        (PREPARE_COMMIT, E.CONCURRENT_TRANSACTIONS),
        (PREPARE_ABORT, E.CONCURRENT_TRANSACTIONS),
        (COMPLETE_COMMIT, E.NONE),
        (COMPLETE_ABORT, E.NONE),
    ],
)
@pytest.mark.parametrize("partition", [T0, U0])
def test_partitions_are_added_unless_the_transaction_ends(state: TransactionState, error: E, partition: TopicPartition) -> None:
    driver = in_state(state)
    assert driver.add(0, 0, partition) is error
    if error is E.NONE:
        assert driver.get().state is ONGOING
        assert partition in driver.get().stored.partitions


def test_partitions_keep_their_order_by_topic_and_are_in_a_transaction_once() -> None:
    driver = TransactionDriver()
    driver.begun(T1, U0)
    driver.add(0, 0, T0, T1, T0)
    assert driver.get().stored.partitions == (T1, T0, U0)


def test_partitions_that_are_in_the_transaction_are_not_written_again() -> None:
    driver = TransactionDriver()
    driver.begun(T0, T1)
    written = len(driver.log)
    assert driver.add(0, 0, T1) is E.NONE
    assert len(driver.log) == written


def test_a_transaction_starts_with_its_first_partitions() -> None:
    driver = TransactionDriver()
    driver.init()
    driver.advance(10)
    driver.add(0, 0, T0)
    driver.advance(10)
    driver.add(0, 0, T1)
    assert (driver.get().stored.start_ms, driver.get().stored.update_ms) == (START_MS + 10, START_MS + 20)
    driver.end(0, 0)
    driver.advance(10)
    driver.add(0, 0, T0)
    assert (driver.get().stored.start_ms, driver.get().stored.partitions) == (START_MS + 30, (T0,))


@pytest.mark.parametrize(
    ("transactional_id", "producer_id", "epoch", "error"),
    [
        ("", 0, 0, E.INVALID_REQUEST),
        ("unknown", 0, 0, E.INVALID_PRODUCER_ID_MAPPING),
        (ID, 1, 0, E.INVALID_PRODUCER_ID_MAPPING),
        (ID, 1, 9, E.INVALID_PRODUCER_ID_MAPPING),
        (ID, 0, 1, E.PRODUCER_FENCED),
        (ID, 0, -1, E.PRODUCER_FENCED),
    ],
)
@pytest.mark.parametrize("state", [EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT])
def test_only_the_current_producer_has_a_transaction(
    state: TransactionState, transactional_id: str, producer_id: int, epoch: int, error: E
) -> None:
    driver = in_state(state)
    assert driver.add(producer_id, epoch, U0, transactional_id=transactional_id) is error
    assert driver.end(producer_id, epoch, True, transactional_id) is error
    assert driver.transactions.verify(transactional_id, producer_id, epoch, [T0, U0]) == {T0: error, U0: error}


def test_nothing_else_happens_while_a_record_is_appended() -> None:
    driver = TransactionDriver()
    driver.init()
    driver.holds = True
    assert driver.add(0, 0, T0) is None
    assert driver.add(0, 0, T1) is E.CONCURRENT_TRANSACTIONS
    assert driver.end(0, 0) is E.CONCURRENT_TRANSACTIONS
    assert driver.init() == ProducerIdResult(E.CONCURRENT_TRANSACTIONS)
    assert driver.get().state is EMPTY
    driver.release()
    assert driver.get().state is ONGOING


def test_partitions_that_cannot_be_appended_are_not_added() -> None:
    driver = TransactionDriver()
    driver.init()
    driver.errors = [E.NOT_ENOUGH_REPLICAS]
    assert driver.add(0, 0, T0) is E.COORDINATOR_NOT_AVAILABLE
    assert driver.get().state is EMPTY
    assert driver.add(0, 0, T1) is E.NONE
    assert driver.get().stored.partitions == (T1,)


# --- verification by leaders


@pytest.mark.parametrize(
    ("state", "inside", "outside"),
    [
        (EMPTY, E.TRANSACTION_ABORTABLE, E.TRANSACTION_ABORTABLE),
        (ONGOING, E.NONE, E.TRANSACTION_ABORTABLE),
        (PREPARE_COMMIT, E.CONCURRENT_TRANSACTIONS, E.CONCURRENT_TRANSACTIONS),
        (PREPARE_ABORT, E.CONCURRENT_TRANSACTIONS, E.CONCURRENT_TRANSACTIONS),
        (COMPLETE_COMMIT, E.TRANSACTION_ABORTABLE, E.TRANSACTION_ABORTABLE),
        (COMPLETE_ABORT, E.TRANSACTION_ABORTABLE, E.TRANSACTION_ABORTABLE),
    ],
)
def test_a_leader_learns_whether_its_partition_is_in_the_transaction(state: TransactionState, inside: E, outside: E) -> None:
    assert in_state(state).transactions.verify(ID, 0, 0, [T0, U0]) == {T0: inside, U0: outside}


def test_a_partition_whose_record_is_being_appended_is_not_in_the_transaction_yet() -> None:
    driver = TransactionDriver()
    driver.begun(T0)
    driver.holds = True
    driver.add(0, 0, T1)
    assert driver.transactions.verify(ID, 0, 0, [T0, T1]) == {T0: E.NONE, T1: E.TRANSACTION_ABORTABLE}


# --- EndTxn


@pytest.mark.parametrize(
    ("state", "is_commit", "error"),
    [
        (EMPTY, True, E.INVALID_TXN_STATE),
        (EMPTY, False, E.INVALID_TXN_STATE),
        (ONGOING, True, E.NONE),
        (ONGOING, False, E.NONE),
        (COMPLETE_COMMIT, True, E.NONE),
        (COMPLETE_COMMIT, False, E.INVALID_TXN_STATE),
        (COMPLETE_ABORT, True, E.INVALID_TXN_STATE),
        (COMPLETE_ABORT, False, E.NONE),
        (PREPARE_COMMIT, True, E.CONCURRENT_TRANSACTIONS),
        (PREPARE_COMMIT, False, E.CONCURRENT_TRANSACTIONS),
        (PREPARE_ABORT, True, E.CONCURRENT_TRANSACTIONS),
        (PREPARE_ABORT, False, E.CONCURRENT_TRANSACTIONS),
    ],
)
def test_a_transaction_ends_once_and_its_end_may_be_repeated(state: TransactionState, is_commit: bool, error: E) -> None:
    assert in_state(state).end(0, 0, is_commit) is error


@pytest.mark.parametrize(
    ("state", "is_commit", "error"),
    [
        (PREPARE_COMMIT, True, E.CONCURRENT_TRANSACTIONS),
        (PREPARE_COMMIT, False, E.INVALID_TXN_STATE),
        (PREPARE_ABORT, True, E.INVALID_TXN_STATE),
        (PREPARE_ABORT, False, E.CONCURRENT_TRANSACTIONS),
    ],
)
def test_a_transaction_whose_complete_record_is_lost_tells_how_it_ends(state: TransactionState, is_commit: bool, error: E) -> None:
    driver = in_state(state)
    driver.release()
    driver.release(E.NOT_LEADER_OR_FOLLOWER)
    assert (driver.get().state, driver.get().pending) == (state, None)
    assert driver.end(0, 0, is_commit) is error
    assert driver.init() == ProducerIdResult(E.CONCURRENT_TRANSACTIONS)
    assert driver.add(0, 0, T0) is E.CONCURRENT_TRANSACTIONS


def test_the_client_has_its_response_once_the_decision_is_in_the_log_and_the_record_of_the_end_comes_after_all_markers() -> None:
    driver = TransactionDriver()
    driver.begun(T0, T1)
    driver.holds = True
    assert driver.end(0, 0) is None
    driver.release()
    assert driver.results[f"ticket {driver.tickets}"] is E.NONE
    assert driver.held == [SendMarkers(ID, 0, 0, 0, True, (T0, T1))]
    assert driver.get().state is PREPARE_COMMIT
    driver.release()
    driver.release()
    assert driver.get().state is COMPLETE_COMMIT
    assert driver.get().stored.partitions == ()
    assert sorted(driver.markers) == [(T0, 0, 0, True), (T1, 0, 0, True)]


def test_a_transaction_without_partitions_needs_no_markers() -> None:
    driver = TransactionDriver()
    driver.init()
    assert driver.add(0, 0) is E.NONE
    assert driver.get().state is ONGOING
    assert driver.end(0, 0) is E.NONE
    assert driver.get().state is COMPLETE_COMMIT


def test_an_end_that_cannot_be_appended_leaves_the_transaction_open() -> None:
    driver = TransactionDriver()
    driver.begun()
    driver.errors = [E.KAFKA_STORAGE_ERROR]
    assert driver.end(0, 0) is E.NOT_COORDINATOR
    assert (driver.get().state, driver.get().pending, driver.markers) == (ONGOING, None, [])
    assert driver.end(0, 0, False) is E.NONE


@pytest.mark.parametrize(
    "error",
    [
        E.UNKNOWN_TOPIC_OR_PARTITION, E.NOT_LEADER_OR_FOLLOWER, E.NOT_ENOUGH_REPLICAS, E.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        E.REQUEST_TIMED_OUT, E.KAFKA_STORAGE_ERROR, E.NETWORK_EXCEPTION, E.LEADER_NOT_AVAILABLE, E.UNKNOWN_SERVER_ERROR,
    ],
)
def test_markers_that_were_not_written_are_sent_again_until_they_are(error: E) -> None:
    driver = TransactionDriver()
    driver.begun(T0, T1, U0)
    driver.marker_errors = {T1: [error, error, error]}
    assert driver.end(0, 0, False) is E.NONE
    assert driver.get().state is PREPARE_ABORT
    driver.advance(RETRY_MS * 3 - 1)
    assert driver.get().state is PREPARE_ABORT
    driver.advance(1)
    assert driver.get().state is COMPLETE_ABORT
    assert sorted(driver.markers) == [(T0, 0, 0, False), (T1, 0, 0, False), (U0, 0, 0, False)]
    assert driver.transactions.next_deadline_ms is None


@pytest.mark.parametrize("error", [E.UNSUPPORTED_FOR_MESSAGE_FORMAT, E.UNSUPPORTED_VERSION])
def test_a_partition_that_cannot_have_markers_does_not_hold_the_transaction(error: E) -> None:
    driver = TransactionDriver()
    driver.begun(T0, T1)
    driver.marker_errors = {T1: [error]}
    driver.end(0, 0)
    assert driver.get().state is COMPLETE_COMMIT


@pytest.mark.parametrize("error", [E.INVALID_PRODUCER_EPOCH, E.TRANSACTION_COORDINATOR_FENCED])
def test_a_coordinator_that_is_fenced_sends_no_more_markers_and_writes_no_end(error: E) -> None:
    driver = TransactionDriver()
    driver.begun(T0, T1)
    driver.marker_errors = {T0: [error], T1: [E.NOT_LEADER_OR_FOLLOWER]}
    driver.end(0, 0)
    driver.advance(10 * RETRY_MS)
    assert (driver.get().state, driver.markers) == (PREPARE_COMMIT, [])
    assert driver.end(0, 0) is E.CONCURRENT_TRANSACTIONS


@pytest.mark.parametrize("refused", [T0, T1, U0])
def test_markers_that_are_written_count_although_another_one_is_refused(refused: TopicPartition) -> None:
    driver = TransactionDriver()
    driver.begun(T0, T1, U0)
    driver.marker_errors = {refused: [E.TRANSACTION_COORDINATOR_FENCED]}
    driver.end(0, 0)
    assert driver.transactions.describe(ID) == Description(0, 0, "PrepareCommit", 60_000, START_MS, (refused,))


def test_markers_that_are_written_after_another_one_was_refused_count() -> None:
    driver = TransactionDriver()
    driver.begun(T0, T1)
    driver.holds = True
    driver.end(0, 0)
    driver.release()
    (sent,) = (each for each in driver.held if isinstance(each, SendMarkers))
    driver.transactions.markers_sent(sent, {T0: E.INVALID_PRODUCER_EPOCH}, driver.now)
    driver.transactions.markers_sent(sent, {T1: E.NONE}, driver.now)
    assert driver.transactions.describe(ID) == Description(0, 0, "PrepareCommit", 60_000, START_MS, (T0,))
    assert not driver.transactions.take_effects()


def test_while_markers_are_written_the_open_partitions_are_those_without() -> None:
    driver = TransactionDriver()
    driver.begun(T0, T1)
    driver.marker_errors = {T1: [E.NOT_LEADER_OR_FOLLOWER]}
    driver.end(0, 0)
    assert driver.transactions.describe(ID) == Description(0, 0, "PrepareCommit", 60_000, START_MS, (T1,))


@pytest.mark.parametrize("error", [E.NOT_ENOUGH_REPLICAS, E.REQUEST_TIMED_OUT])
def test_the_record_of_the_end_is_appended_again_until_it_is_in_the_log(error: E) -> None:
    driver = TransactionDriver()
    driver.begun()
    driver.errors = [E.NONE, error, error]
    assert driver.end(0, 0) is E.NONE
    assert driver.get().state is PREPARE_COMMIT
    driver.advance(RETRY_MS)
    assert driver.end(0, 0) is E.CONCURRENT_TRANSACTIONS
    driver.advance(RETRY_MS)
    assert driver.get().state is COMPLETE_COMMIT
    assert driver.markers == [(T0, 0, 0, True)]


def test_the_end_has_the_time_at_which_its_markers_began() -> None:
    driver = TransactionDriver()
    driver.begun()
    driver.advance(5)
    driver.marker_errors = {T0: [E.NOT_LEADER_OR_FOLLOWER]}
    driver.end(0, 0)
    driver.advance(RETRY_MS)
    assert (driver.get().state, driver.get().stored.update_ms) == (COMPLETE_COMMIT, START_MS + 5)


def test_a_decision_has_the_time_of_its_request_and_the_end_that_of_the_decision_in_the_log() -> None:
    driver = TransactionDriver()
    driver.begun()
    driver.advance(3)
    driver.holds = True
    driver.end(0, 0)
    driver.advance(5)
    driver.release()
    assert (driver.get().state, driver.get().stored.update_ms) == (PREPARE_COMMIT, START_MS + 3)
    driver.advance(7)
    driver.release()
    driver.release()
    assert (driver.get().state, driver.get().stored.update_ms) == (COMPLETE_COMMIT, START_MS + 8)


def test_what_failed_is_not_tried_again_before_its_pause_is_over() -> None:
    driver = TransactionDriver()
    driver.begun()
    driver.marker_errors = {T0: [E.NOT_LEADER_OR_FOLLOWER]}
    driver.end(0, 0)
    assert driver.transactions.next_deadline_ms == RETRY_MS
    driver.transactions.tick(Now(RETRY_MS - 1, START_MS))
    assert driver.transactions.take_effects() == []
    driver.transactions.tick(Now(RETRY_MS, START_MS))
    assert driver.transactions.take_effects() == [SendMarkers(ID, 0, 0, 0, True, (T0,))]


def test_an_append_waits_as_long_as_a_transaction_may_be_open() -> None:
    driver = TransactionDriver()
    driver.holds = True
    driver.init(timeout_ms=1_234)
    (append,) = driver.held
    assert not isinstance(append, SendMarkers)
    assert append.timeout_ms == 1_234


# --- time


def test_a_transaction_that_is_open_for_too_long_is_aborted_and_its_producer_fenced() -> None:
    driver = TransactionDriver()
    driver.begun(timeout_ms=1_000)
    driver.advance(1_000)
    driver.abort_timed_out()
    assert driver.get().state is ONGOING
    driver.advance(1)
    driver.abort_timed_out()
    assert (driver.get().state, driver.get().producer_epoch, driver.markers) == (COMPLETE_ABORT, 1, [(T0, 0, 1, False)])
    assert driver.add(0, 0, T0) is E.PRODUCER_FENCED
    assert driver.init(producer_id=0, producer_epoch=0) == ProducerIdResult(E.PRODUCER_FENCED)
    assert driver.init() == ProducerIdResult(E.NONE, 0, 2)


def test_the_time_out_counts_from_the_start_whatever_is_added_later() -> None:
    driver = TransactionDriver()
    driver.begun(T0, timeout_ms=1_000)
    driver.advance(900)
    driver.add(0, 0, T1)
    driver.advance(101)
    driver.abort_timed_out()
    assert driver.get().state is COMPLETE_ABORT


def test_an_epoch_that_fences_is_shown_before_it_is_stored() -> None:
    driver = TransactionDriver()
    driver.begun()
    driver.holds = True
    driver.init()
    assert driver.transactions.describe(ID) == Description(0, 1, "Ongoing", 60_000, START_MS, (T0,))


def test_only_open_transactions_time_out() -> None:
    driver = TransactionDriver()
    driver.begun(timeout_ms=1_000)
    driver.end(0, 0)
    written = len(driver.log)
    driver.advance(DAY_MS)
    driver.abort_timed_out()
    assert len(driver.log) == written


def test_a_transaction_with_a_record_under_way_does_not_time_out() -> None:
    driver = TransactionDriver()
    driver.begun(timeout_ms=1_000)
    driver.holds = True
    driver.end(0, 0)
    driver.advance(5_000)
    driver.abort_timed_out()
    assert len(driver.held) == 1


def test_a_timeout_whose_record_cannot_be_appended_is_tried_again_with_the_same_epoch() -> None:
    driver = TransactionDriver()
    driver.begun(timeout_ms=1_000)
    driver.advance(2_000)
    driver.errors = [E.NOT_ENOUGH_REPLICAS]
    driver.abort_timed_out()
    assert driver.get().state is ONGOING
    driver.abort_timed_out()
    assert (driver.get().state, driver.get().producer_epoch) == (COMPLETE_ABORT, 1)


def test_ids_that_were_not_used_for_long_are_deleted_unless_a_transaction_is_open() -> None:
    driver = TransactionDriver(TransactionLimits(expiration_ms=DAY_MS))
    driver.init("empty")
    driver.begun(transactional_id="open")
    driver.begun(transactional_id="complete")
    driver.end(2, 0, transactional_id="complete")
    driver.advance(DAY_MS - 1)
    driver.init("fresh")
    driver.expire()
    assert len(driver.transactions) == 4
    driver.advance(1)
    driver.expire()
    assert {each.transactional_id for each in driver.transactions} == {"open", "fresh"}
    assert {each.transactional_id for each in driver.reloaded().transactions} == {"open", "fresh"}
    assert driver.init("empty") == ProducerIdResult(E.NONE, 4, 0)


def test_an_id_that_expires_lets_nobody_in_and_stays_if_its_deletion_fails() -> None:
    driver = TransactionDriver(TransactionLimits(expiration_ms=DAY_MS))
    driver.init()
    driver.advance(DAY_MS)
    driver.holds = True
    driver.expire()
    assert driver.add(0, 0, T0) is E.CONCURRENT_TRANSACTIONS
    assert driver.init() == ProducerIdResult(E.CONCURRENT_TRANSACTIONS)
    driver.expire()
    assert len(driver.held) == 1
    driver.release(E.NOT_ENOUGH_REPLICAS)
    assert driver.get().pending is None
    driver.holds = False
    driver.expire()
    assert len(driver.transactions) == 0


def test_deletions_are_written_in_batches_that_the_log_takes() -> None:
    driver = TransactionDriver(TransactionLimits(expiration_ms=DAY_MS))
    for index in range(10):
        driver.init(f"id{index}")
    driver.advance(DAY_MS)
    driver.holds = True
    driver.expire(batch_bytes=250)
    sizes = [len(each.records) for each in driver.held if not isinstance(each, SendMarkers)]
    assert sizes == [3, 3, 3, 1]


def test_a_batch_of_deletions_may_be_as_large_as_the_log_takes() -> None:
    driver = TransactionDriver(TransactionLimits(expiration_ms=DAY_MS))
    for index in range(4):
        driver.init(f"id{index}")
    driver.advance(DAY_MS)
    driver.holds = True
    driver.expire(batch_bytes=2 * (64 + len(key_of("id0"))))
    assert [len(each.records) for each in driver.held if not isinstance(each, SendMarkers)] == [2, 2]


# --- another coordinator


@pytest.mark.parametrize(("is_commit", "state"), [(True, COMPLETE_COMMIT), (False, COMPLETE_ABORT)])
def test_the_next_coordinator_writes_the_markers_of_a_decision_with_its_own_epoch(is_commit: bool, state: TransactionState) -> None:
    driver = TransactionDriver()
    driver.begun(T0, T1)
    driver.marker_errors = {T1: [E.NOT_LEADER_OR_FOLLOWER]}
    driver.end(0, 0, is_commit)
    other = driver.reloaded()
    assert other.end(0, 0, is_commit) is E.CONCURRENT_TRANSACTIONS
    assert sorted(other.markers) == [(T0, 0, 0, is_commit), (T1, 0, 0, is_commit)]
    assert (other.get().state, other.end(0, 0, is_commit)) == (state, E.NONE)


def test_a_transaction_that_is_open_goes_on_with_the_next_coordinator() -> None:
    driver = TransactionDriver()
    driver.begun(T0)
    other = driver.reloaded()
    assert other.add(0, 0, T1) is E.NONE
    assert other.end(0, 0) is E.NONE
    assert sorted(other.markers) == [(T0, 0, 0, True), (T1, 0, 0, True)]


def test_a_former_coordinator_has_no_transactions_and_answers_what_waits() -> None:
    driver = TransactionDriver()
    driver.begun(T0)
    driver.holds = True
    assert driver.end(0, 0) is None
    driver.transactions.unload(driver.now)
    driver.release()
    assert driver.results[f"ticket {driver.tickets}"] is E.NOT_COORDINATOR
    assert driver.held == []
    assert driver.init() == ProducerIdResult(E.NOT_COORDINATOR)
    assert (driver.add(0, 0, T0), driver.end(0, 0)) == (E.NOT_COORDINATOR, E.NOT_COORDINATOR)
    assert driver.transactions.describe(ID) is E.NOT_COORDINATOR
    assert driver.transactions.verify(ID, 0, 0, [T0]) == {T0: E.NOT_COORDINATOR}


def test_a_former_coordinator_does_not_try_again() -> None:
    driver = TransactionDriver()
    driver.begun(T0, T1)
    driver.marker_errors = {T0: [E.NOT_LEADER_OR_FOLLOWER]}
    driver.end(0, 0)
    driver.transactions.unload(driver.now)
    driver.advance(10 * RETRY_MS)
    assert driver.markers == [(T1, 0, 0, True)]


def test_a_former_coordinator_does_not_append_the_end_again() -> None:
    driver = TransactionDriver()
    driver.begun()
    driver.holds = True
    driver.end(0, 0)
    driver.release()
    driver.release()
    driver.transactions.unload(driver.now)
    driver.release(E.NOT_ENOUGH_REPLICAS)
    assert (driver.held, driver.transactions.next_deadline_ms) == ([], None)


def test_an_init_that_waits_for_an_id_learns_that_the_coordinator_has_moved() -> None:
    driver = TransactionDriver()
    driver.transactions.unload(driver.now)
    assert driver.init() == ProducerIdResult(E.NOT_COORDINATOR)


# --- what administrators see


def test_a_transaction_is_described() -> None:
    driver = TransactionDriver()
    driver.init(timeout_ms=1_000)
    assert driver.transactions.describe(ID) == Description(0, 0, "Empty", 1_000, -1, ())
    driver.advance(7)
    driver.add(0, 0, T0, U0)
    assert driver.transactions.describe(ID) == Description(0, 0, "Ongoing", 1_000, START_MS + 7, (T0, U0))
    driver.end(0, 0)
    assert driver.transactions.describe(ID) == Description(0, 0, "CompleteCommit", 1_000, START_MS + 7, ())


def test_the_start_of_a_transaction_is_shown_until_the_coordinator_moves() -> None:
    driver = TransactionDriver()
    driver.begun()
    driver.end(0, 0)
    driver.init()
    assert driver.transactions.describe(ID) == Description(0, 1, "Empty", 60_000, START_MS, ())
    assert driver.transactions.listed(driver.now, longer_than_ms=1) == []
    other = driver.reloaded()
    assert other.transactions.describe(ID) == Description(0, 1, "Empty", 60_000, -1, ())
    assert other.transactions.listed(driver.now, longer_than_ms=1) == [Listed(ID, 0, "Empty")]


def test_an_unknown_and_an_empty_id_are_not_described() -> None:
    driver = TransactionDriver()
    assert driver.transactions.describe("unknown") is E.TRANSACTIONAL_ID_NOT_FOUND
    assert driver.transactions.describe("") is E.INVALID_REQUEST


def test_transactions_are_listed_by_state_producer_and_duration() -> None:
    driver = TransactionDriver()
    driver.init("empty")
    driver.begun(transactional_id="old")
    driver.advance(100)
    driver.begun(transactional_id="new")
    listed = driver.transactions.listed
    everything = [Listed("empty", 0, "Empty"), Listed("old", 1, "Ongoing"), Listed("new", 2, "Ongoing")]
    assert listed(driver.now) == everything
    assert listed(driver.now, {ONGOING}) == everything[1:]
    assert listed(driver.now, set()) == []
    assert listed(driver.now, producer_ids=[0, 2]) == [everything[0], everything[2]]
    assert listed(driver.now, {ONGOING}, [0, 1], 99) == [everything[1]]
    assert listed(driver.now, {ONGOING}, longer_than_ms=100) == []
    assert listed(driver.now, {ONGOING}, longer_than_ms=0) == [everything[1]]


def test_states_have_the_texts_of_apache_kafka() -> None:
    assert list(STATES) == [
        "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead", "PrepareEpochFence",
    ]


def test_an_open_transaction_times_out_on_request_and_says_so() -> None:
    driver = TransactionDriver()
    driver.begun()
    assert driver.transactions.time_out(ID, driver.now) is True
    assert driver.transactions.time_out("none", driver.now) is False
