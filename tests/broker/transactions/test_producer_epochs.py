"""InitProducerId with a transactional id: who gets which producer id and epoch."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from klamm.broker.transactions.requests import ProducerIdResult, TransactionLimits
from klamm.broker.transactions.states import COMPLETE_ABORT, EMPTY, MOVES, ONGOING, PREPARE_ABORT, PREPARE_COMMIT, TransactionState
from klamm.broker.transactions.transaction import LAST_EPOCH, Transaction
from klamm.protocol.errors import ErrorCode as E
from klamm.tests.broker.transactions.transaction_driver import ID, T0, T1, TransactionDriver

FENCED = ProducerIdResult(E.PRODUCER_FENCED)
CONCURRENT = ProducerIdResult(E.CONCURRENT_TRANSACTIONS)


def given(producer_id: int, epoch: int) -> ProducerIdResult:
    return ProducerIdResult(E.NONE, producer_id, epoch)


def with_epoch(epoch: int) -> TransactionDriver:
    """A coordinator that has loaded a producer with id 7 and this epoch."""
    driver = TransactionDriver()
    driver.next_id = 7
    driver.init()
    (key, value, _), = driver.log
    assert value is not None
    driver.log = [(key, value[:10] + epoch.to_bytes(2, "big") + value[12:], 0)]
    return driver.reloaded()


def test_a_new_transactional_id_gets_a_new_producer_id_and_epoch_0_and_later_the_next_epochs() -> None:
    driver = TransactionDriver()
    assert [driver.init(), driver.init(), driver.init("other"), driver.init()] == [given(0, 0), given(0, 1), given(1, 0), given(0, 2)]
    assert driver.get().state is EMPTY


@pytest.mark.parametrize(
    ("timeout_ms", "error"), [(0, E.INVALID_TRANSACTION_TIMEOUT), (-1, E.INVALID_TRANSACTION_TIMEOUT), (1, E.NONE), (500, E.NONE),
                              (501, E.INVALID_TRANSACTION_TIMEOUT)],
)
def test_the_timeout_is_positive_and_at_most_the_broker_s(timeout_ms: int, error: E) -> None:
    result = TransactionDriver(TransactionLimits(max_timeout_ms=500)).init(timeout_ms=timeout_ms)
    assert result is not None
    assert result.error is error


def test_an_empty_transactional_id_is_refused_before_its_timeout() -> None:
    assert TransactionDriver().init("", timeout_ms=-1) == ProducerIdResult(E.INVALID_REQUEST)


def test_without_a_producer_id_from_outside_nothing_is_created() -> None:
    driver = TransactionDriver()
    driver.ids_error = E.COORDINATOR_LOAD_IN_PROGRESS
    assert driver.init() == ProducerIdResult(E.COORDINATOR_LOAD_IN_PROGRESS)
    assert len(driver.transactions) == 0


def test_a_new_timeout_counts_from_the_next_epoch_on() -> None:
    driver = TransactionDriver()
    driver.init(timeout_ms=1_000)
    driver.init(timeout_ms=2_000)
    assert driver.get().stored.timeout_ms == 2_000


# --- producers that say what they have (KIP-360)


def test_a_producer_continues_with_its_id_and_epoch_and_may_repeat_the_request() -> None:
    driver = TransactionDriver()
    driver.init()
    assert driver.init(producer_id=0, producer_epoch=0) == given(0, 1)
    assert driver.init(producer_id=0, producer_epoch=0) == given(0, 1), "the response was lost"
    assert driver.init(producer_id=0, producer_epoch=0) == given(0, 1)
    assert driver.init(producer_id=0, producer_epoch=1) == given(0, 2)
    assert driver.init(producer_id=0, producer_epoch=0) == FENCED


def test_a_request_is_not_a_repetition_after_another_producer_has_come() -> None:
    driver = TransactionDriver()
    driver.init()
    driver.init(producer_id=0, producer_epoch=0)
    assert driver.init() == given(0, 2)
    assert driver.init(producer_id=0, producer_epoch=1) == FENCED


def test_a_request_is_not_a_repetition_after_the_coordinator_has_moved() -> None:
    driver = TransactionDriver()
    driver.init()
    assert driver.init(producer_id=0, producer_epoch=0) == given(0, 1)
    assert driver.reloaded().init(producer_id=0, producer_epoch=0) == FENCED


@pytest.mark.parametrize(("producer_id", "epoch"), [(1, 0), (0, 1), (0, 5)])
def test_another_id_or_epoch_than_the_current_one_is_fenced(producer_id: int, epoch: int) -> None:
    driver = TransactionDriver()
    driver.init()
    assert driver.init(producer_id=producer_id, producer_epoch=epoch) == FENCED


def test_an_unknown_transactional_id_takes_any_id_and_epoch_and_gives_its_own() -> None:
    assert TransactionDriver().init(producer_id=88, producer_epoch=3) == given(0, 0)


def test_a_repetition_is_possible_after_a_transaction_too() -> None:
    driver = TransactionDriver()
    driver.init()
    driver.init(producer_id=0, producer_epoch=0)
    driver.add(0, 1, T0)
    driver.end(0, 1)
    assert driver.init(producer_id=0, producer_epoch=0) == given(0, 1)


# --- the last epochs


def test_the_last_epoch_of_a_producer_is_one_below_the_coordinator_s() -> None:
    driver = with_epoch(LAST_EPOCH - 2)
    assert driver.init() == given(7, LAST_EPOCH - 1)
    assert driver.init() == given(8, 0)


def test_a_producer_whose_epochs_are_used_gets_another_id_and_may_repeat_the_request() -> None:
    driver = with_epoch(LAST_EPOCH - 1)
    assert driver.init(producer_id=7, producer_epoch=LAST_EPOCH - 1) == given(8, 0)
    assert driver.init(producer_id=7, producer_epoch=LAST_EPOCH - 1) == given(8, 0), "the response was lost"
    assert driver.init(producer_id=7, producer_epoch=LAST_EPOCH - 2) == FENCED
    assert driver.init(producer_id=8, producer_epoch=0) == given(8, 1)


def test_who_has_another_epoch_does_not_get_an_id_when_epochs_are_used() -> None:
    driver = with_epoch(LAST_EPOCH - 1)
    assert driver.init(producer_id=7, producer_epoch=4) == FENCED
    assert driver.init(producer_id=6, producer_epoch=LAST_EPOCH - 1) == FENCED


def test_the_coordinator_fences_with_the_very_last_epoch_and_the_next_producer_gets_another_id() -> None:
    driver = with_epoch(LAST_EPOCH - 1)
    driver.add(7, LAST_EPOCH - 1, T0)
    assert driver.init() == CONCURRENT
    assert driver.get().producer_epoch == LAST_EPOCH
    assert driver.markers == [(T0, 7, LAST_EPOCH, False)]
    assert driver.init() == given(8, 0)


def test_the_largest_epoch_is_that_of_java_s_short() -> None:
    assert LAST_EPOCH == 32_767


@pytest.mark.parametrize("epoch", [0, 5, LAST_EPOCH - 2])
def test_a_producer_id_that_was_replaced_continues_only_with_its_last_epoch(epoch: int) -> None:
    driver = with_epoch(LAST_EPOCH - 1)
    assert driver.init(producer_id=7, producer_epoch=LAST_EPOCH - 1) == given(8, 0)
    assert driver.init(producer_id=7, producer_epoch=epoch) == FENCED
    driver.add(8, 0, T0)
    assert driver.init(producer_id=7, producer_epoch=epoch) == FENCED
    assert driver.get().state is ONGOING
    assert driver.init(producer_id=7, producer_epoch=LAST_EPOCH - 1) == CONCURRENT
    assert driver.get().state is COMPLETE_ABORT


def test_the_next_coordinator_does_not_know_the_producer_id_that_was_replaced() -> None:
    driver = with_epoch(LAST_EPOCH - 1)
    assert driver.init(producer_id=7, producer_epoch=LAST_EPOCH - 1) == given(8, 0)
    driver.add(8, 0, T0)
    other = driver.reloaded()
    assert other.init(producer_id=7, producer_epoch=LAST_EPOCH - 1) == FENCED
    assert other.get().state is ONGOING


# --- a transaction that is open


def test_an_open_transaction_is_aborted_first_with_an_epoch_that_nobody_gets() -> None:
    driver = TransactionDriver()
    assert driver.begun(T0, T1) == (0, 0)
    assert driver.init() == CONCURRENT
    assert driver.get().state is COMPLETE_ABORT
    assert sorted(driver.markers) == [(T0, 0, 1, False), (T1, 0, 1, False)]
    assert driver.init() == given(0, 2)
    assert driver.end(0, 0) is E.PRODUCER_FENCED


def test_an_open_transaction_is_not_aborted_for_a_producer_that_is_fenced() -> None:
    driver = TransactionDriver()
    driver.begun()
    assert driver.init(producer_id=5, producer_epoch=0) == FENCED
    assert driver.get().state is ONGOING


def test_an_open_transaction_is_aborted_whatever_epoch_its_producer_says() -> None:
    driver = TransactionDriver()
    driver.begun()
    assert driver.init(producer_id=0, producer_epoch=31) == CONCURRENT
    assert driver.get().producer_epoch == 1


def test_an_epoch_that_fences_counts_before_its_record_is_in_the_log() -> None:
    driver = TransactionDriver()
    driver.begun()
    driver.holds = True
    assert driver.init() is None
    assert driver.end(0, 0) is E.PRODUCER_FENCED
    assert driver.add(0, 1, T1) is E.CONCURRENT_TRANSACTIONS


def test_a_fence_whose_record_is_not_appended_raises_the_epoch_once() -> None:
    driver = TransactionDriver()
    driver.begun()
    driver.errors = [E.NOT_ENOUGH_REPLICAS, E.NOT_LEADER_OR_FOLLOWER]
    assert driver.init() == ProducerIdResult(E.COORDINATOR_NOT_AVAILABLE)
    assert (driver.get().state, driver.get().producer_epoch, driver.end(0, 0)) == (ONGOING, 1, E.PRODUCER_FENCED)
    assert driver.init() == ProducerIdResult(E.NOT_COORDINATOR)
    assert driver.init() == CONCURRENT
    assert driver.get().producer_epoch == 1
    assert driver.init() == given(0, 2)
    driver.add(0, 2, T0)
    assert driver.init() == CONCURRENT
    assert driver.get().producer_epoch == 3


# --- while something is under way


def test_one_request_at_a_time_gets_an_epoch() -> None:
    driver = TransactionDriver()
    driver.holds = True
    assert driver.init() is None
    assert driver.init() == CONCURRENT
    driver.release()
    assert driver.results["ticket 1"] == given(0, 0)


def test_of_two_requests_for_an_unknown_id_one_gets_the_producer_id() -> None:
    driver = TransactionDriver()
    driver.holds = True
    assert driver.init(producer_id=3, producer_epoch=3) is None
    assert driver.init(producer_id=4, producer_epoch=4) == CONCURRENT


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_transaction_that_ends_lets_no_new_producer_in(is_commit: bool) -> None:
    driver = TransactionDriver()
    driver.begun()
    driver.holds = True
    driver.end(0, 0, is_commit)
    driver.release()
    assert driver.get().state is (PREPARE_COMMIT if is_commit else PREPARE_ABORT)
    assert driver.init() == CONCURRENT
    driver.release()
    driver.release()
    driver.holds = False
    assert driver.init() == given(0, 1)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (E.UNKNOWN_TOPIC_OR_PARTITION, E.COORDINATOR_NOT_AVAILABLE),
        (E.NOT_ENOUGH_REPLICAS, E.COORDINATOR_NOT_AVAILABLE),
        (E.NOT_ENOUGH_REPLICAS_AFTER_APPEND, E.COORDINATOR_NOT_AVAILABLE),
        (E.REQUEST_TIMED_OUT, E.COORDINATOR_NOT_AVAILABLE),
        (E.NOT_LEADER_OR_FOLLOWER, E.NOT_COORDINATOR),
        (E.KAFKA_STORAGE_ERROR, E.NOT_COORDINATOR),
        (E.MESSAGE_TOO_LARGE, E.UNKNOWN_SERVER_ERROR),
        (E.RECORD_LIST_TOO_LARGE, E.UNKNOWN_SERVER_ERROR),
        (E.CORRUPT_MESSAGE, E.CORRUPT_MESSAGE),
    ],
)
def test_an_epoch_that_cannot_be_appended_is_not_given_and_comes_again(error: E, told: E) -> None:
    driver = TransactionDriver()
    driver.errors = [error]
    assert driver.init() == ProducerIdResult(told)
    assert driver.init() == given(0, 0)


def test_a_producer_whose_first_epoch_was_not_appended_cannot_begin() -> None:
    driver = TransactionDriver()
    driver.errors = [E.NOT_ENOUGH_REPLICAS]
    driver.init()
    assert driver.add(0, -1, T0) is E.UNKNOWN_SERVER_ERROR


def test_a_request_is_not_a_repetition_after_a_transaction_was_aborted_with_another_epoch() -> None:
    driver = TransactionDriver()
    driver.init()
    assert driver.init(producer_id=0, producer_epoch=0) == given(0, 1)
    driver.add(0, 1, T0)
    assert driver.init() == CONCURRENT
    assert driver.init(producer_id=0, producer_epoch=0) == FENCED
    assert driver.init() == given(0, 3)


# --- the table of moves


def test_each_state_comes_from_those_of_apache_kafka() -> None:
    before = {target: {source.text for source, targets in MOVES.items() if target in targets} for target in TransactionState}
    ended = {"Empty", "CompleteCommit", "CompleteAbort"}
    assert {state.text: sources for state, sources in before.items()} == {
        "Empty": ended, "Ongoing": ended | {"Ongoing"}, "PrepareCommit": {"Ongoing"},
        "PrepareAbort": ended | {"Ongoing", "PrepareEpochFence"},  # from those that have ended, since 4.0 and only in transactions v2
        "CompleteCommit": {"PrepareCommit"}, "CompleteAbort": {"PrepareAbort"}, "Dead": ended, "PrepareEpochFence": {"Ongoing"},
    }


@dataclass
class Case:
    source: TransactionState
    target: TransactionState


@pytest.mark.parametrize("case", [Case(source, target) for source in TransactionState for target in TransactionState], ids=str)
def test_only_moves_of_the_table_are_made(case: Case) -> None:
    stored = with_epoch(0).get().stored._replace(state=case.source)
    transaction = Transaction(ID, stored)
    if case.target in MOVES[case.source]:
        transaction.begin(case.target)
        assert transaction.pending is case.target
        with pytest.raises(AssertionError):
            transaction.begin(case.target)
    else:
        with pytest.raises(AssertionError):
            transaction.begin(case.target)


def test_a_transaction_of_the_last_epoch_is_not_aborted_after_its_time_out_and_others_are() -> None:
    """Only a coordinator should use that epoch. There is none after it to fence the producer with, as in Apache Kafka."""
    driver = with_epoch(LAST_EPOCH)
    assert driver.add(7, LAST_EPOCH, T0) is E.NONE
    driver.next_id = 8
    assert driver.init("other") == given(8, 0)
    assert driver.add(8, 0, T1, transactional_id="other") is E.NONE
    driver.ms += 3_600_000
    driver.transactions.abort_timed_out(driver.now)
    driver.settle()
    assert driver.get().state is ONGOING
    assert driver.get("other").state is COMPLETE_ABORT
    assert not driver.transactions.time_out(ID, driver.now)
    assert driver.init() == ProducerIdResult(E.UNKNOWN_SERVER_ERROR)
    assert driver.end(7, LAST_EPOCH, False) is E.NONE
    assert driver.get().state is COMPLETE_ABORT
