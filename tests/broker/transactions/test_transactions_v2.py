"""Transactions v2 (KIP-890) of one transactional id: the epoch rises with each end. The steps are those of a broker of 4.4.0."""

from __future__ import annotations

import pytest

from klamm.broker.transactions.log_records import VALUE, VALUE_OF_V2
from klamm.broker.transactions.requests import EndTransaction, ProducerIdResult
from klamm.broker.transactions.states import COMPLETE_ABORT, COMPLETE_COMMIT, EMPTY
from klamm.broker.transactions.transaction import LAST_EPOCH
from klamm.protocol.errors import ErrorCode
from klamm.tests.broker.transactions.transaction_driver import ID, T0, T1, TransactionDriver


def end(driver: TransactionDriver, producer_id: int, producer_epoch: int, is_commit: bool = True) -> ProducerIdResult:
    ticket = driver.ticket()
    driver.transactions.end(EndTransaction(ticket, ID, producer_id, producer_epoch, is_commit, raises_epoch=True), driver.now)
    driver.settle()
    result = driver.results[ticket]
    assert isinstance(result, ProducerIdResult)
    return result


@pytest.mark.parametrize("is_commit", [True, False])
def test_the_next_transaction_has_the_next_epoch_and_so_have_the_markers(is_commit: bool) -> None:
    driver = TransactionDriver()
    producer_id, epoch = driver.begun(T0, T1)
    assert end(driver, producer_id, epoch, is_commit) == (ErrorCode.NONE, producer_id, epoch + 1)
    assert sorted(driver.markers) == [(each, producer_id, epoch + 1, is_commit) for each in (T0, T1)]
    assert driver.get().state is (COMPLETE_COMMIT if is_commit else COMPLETE_ABORT)
    assert driver.add(producer_id, epoch, T0) is ErrorCode.PRODUCER_FENCED
    assert driver.add(producer_id, epoch + 1, T0) is ErrorCode.NONE


@pytest.mark.parametrize("moves", [False, True])
def test_a_repeated_end_has_the_same_result_also_at_the_next_coordinator(moves: bool) -> None:
    driver = TransactionDriver()
    producer_id, epoch = driver.begun()
    first = end(driver, producer_id, epoch)
    if moves:
        driver = driver.reloaded()
    assert end(driver, producer_id, epoch) == first
    assert end(driver, producer_id, epoch, False) == ProducerIdResult(ErrorCode.INVALID_TXN_STATE)
    assert end(driver, producer_id, epoch + 7) == ProducerIdResult(ErrorCode.PRODUCER_FENCED)
    assert end(driver, producer_id + 1, epoch) == ProducerIdResult(ErrorCode.INVALID_PRODUCER_ID_MAPPING)


def test_a_repetition_waits_while_the_markers_are_written() -> None:
    driver = TransactionDriver()
    producer_id, epoch = driver.begun()
    driver.marker_errors[T0] = [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert end(driver, producer_id, epoch).error is ErrorCode.NONE
    assert end(driver, producer_id, epoch) == ProducerIdResult(ErrorCode.CONCURRENT_TRANSACTIONS)
    assert driver.add(producer_id, epoch + 1, T0) is ErrorCode.CONCURRENT_TRANSACTIONS
    driver.advance(1_000)
    assert end(driver, producer_id, epoch).producer_epoch == epoch + 1


def test_without_a_transaction_an_abort_raises_the_epoch_and_a_commit_is_refused() -> None:
    driver = TransactionDriver()
    made = driver.init()
    assert made is not None
    assert end(driver, made.producer_id, 0) == ProducerIdResult(ErrorCode.INVALID_TXN_STATE)
    assert driver.get().state is EMPTY
    assert end(driver, made.producer_id, 0, False) == (ErrorCode.NONE, made.producer_id, 1)
    assert end(driver, made.producer_id, 1) == ProducerIdResult(ErrorCode.INVALID_TXN_STATE)
    assert end(driver, made.producer_id, 1, False) == (ErrorCode.NONE, made.producer_id, 2)
    assert driver.get().state is COMPLETE_ABORT and driver.markers == []


def test_a_producer_can_end_in_version_1_after_version_2_and_the_other_way_round() -> None:
    driver = TransactionDriver()
    producer_id, epoch = driver.begun()
    assert end(driver, producer_id, epoch).producer_epoch == 1
    assert driver.add(producer_id, 1, T0) is ErrorCode.NONE
    assert driver.end(producer_id, 1) is ErrorCode.NONE
    assert driver.get().stored.producer_epoch == 1, "version 1 does not raise it"
    assert driver.add(producer_id, 1, T0) is ErrorCode.NONE
    assert end(driver, producer_id, 1).producer_epoch == 2


def test_only_records_of_version_2_are_written_in_the_flexible_form() -> None:
    driver = TransactionDriver()
    producer_id, epoch = driver.begun()
    end(driver, producer_id, epoch)
    versions = [int.from_bytes((value or b"")[:2], "big") for _, value, _ in driver.log]
    assert versions == [VALUE, VALUE, VALUE_OF_V2, VALUE_OF_V2]


def test_a_commit_of_version_2_is_known_by_the_epoch_of_its_records() -> None:
    driver = TransactionDriver()
    producer_id, epoch = driver.begun()
    end(driver, producer_id, epoch)
    for each in (driver, driver.reloaded()):
        assert each.get().is_committed(T0, epoch) and not each.get().is_committed(T0, epoch + 1)


def exhausted(driver: TransactionDriver) -> int:
    """A transaction with the last epoch that a producer can have; its producer id."""
    producer_id, _ = driver.begun()
    transaction = driver.get()
    transaction.stored, transaction.producer_epoch = transaction.stored._replace(producer_epoch=LAST_EPOCH - 1), LAST_EPOCH - 1
    return producer_id


@pytest.mark.parametrize("is_commit", [True, False])
def test_after_the_last_epoch_the_next_transaction_has_a_new_producer_id(is_commit: bool) -> None:
    driver = TransactionDriver()
    old = exhausted(driver)
    ended = end(driver, old, LAST_EPOCH - 1, is_commit)
    assert ended == (ErrorCode.NONE, old + 1, 0)
    assert driver.markers == [(T0, old, LAST_EPOCH, is_commit)], "the markers have the last epoch of the old id"
    for each in (driver, driver.reloaded()):
        assert end(each, old, LAST_EPOCH - 1, is_commit) == ended, "the same request again has the same result"
        assert end(each, old, LAST_EPOCH - 1, not is_commit) == ProducerIdResult(ErrorCode.INVALID_TXN_STATE)
        assert end(each, old, 7) == ProducerIdResult(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        assert each.add(old, LAST_EPOCH - 1, T0) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert each.add(old + 1, 0, T0) is ErrorCode.NONE
        assert end(each, old, LAST_EPOCH - 1) == ProducerIdResult(ErrorCode.INVALID_PRODUCER_ID_MAPPING), "another transaction has begun"
        assert end(each, old + 1, 0) == (ErrorCode.NONE, old + 1, 1)


def test_the_next_coordinator_completes_with_the_producer_id_that_the_client_was_given() -> None:
    driver = TransactionDriver()
    old = exhausted(driver)
    driver.marker_errors[T0] = [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert end(driver, old, LAST_EPOCH - 1) == (ErrorCode.NONE, old + 1, 0)
    assert end(driver, old, LAST_EPOCH - 1) == ProducerIdResult(ErrorCode.CONCURRENT_TRANSACTIONS)
    assert driver.get().stored.producer_id == old
    driver = driver.reloaded()
    driver.settle()
    assert driver.get().state is COMPLETE_COMMIT
    assert driver.add(old + 1, 0, T0) is ErrorCode.NONE


def test_an_end_that_gets_no_producer_id_changes_nothing() -> None:
    driver = TransactionDriver()
    old = exhausted(driver)
    driver.ids_error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert end(driver, old, LAST_EPOCH - 1) == ProducerIdResult(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert driver.get().pending is None and driver.markers == []
    driver.ids_error = None
    assert end(driver, old, LAST_EPOCH - 1).producer_id == old + 1


def test_an_abort_without_a_transaction_after_the_last_epoch_gives_a_new_producer_id() -> None:
    driver = TransactionDriver()
    old = exhausted(driver)
    transaction = driver.get()
    transaction.stored = transaction.stored._replace(state=EMPTY, partitions=())
    assert end(driver, old, LAST_EPOCH - 1, False) == (ErrorCode.NONE, old + 1, 0)
