"""A leader appends the first records of a transaction only after a verification that nothing has made void."""

from __future__ import annotations

import pytest

from klamm.broker.log.config import LogConfig
from klamm.broker.log.local_log import LogEnvironment
from klamm.broker.log.log import Log
from klamm.broker.log.memory import MemoryBudget
from klamm.protocol.errors import ApiError
from klamm.protocol.errors import ErrorCode as E
from klamm.protocol.records.batch import TRANSACTIONAL
from klamm.protocol.records.record import ControlType, Record, control_batch, encode_batch
from klamm.protocol.records.validation import Origin

PRODUCER = 7


@pytest.fixture
def log() -> Log:
    return Log("t", 0, bytes(16), LogConfig(), LogEnvironment(MemoryBudget(), lambda: 0, lambda bound: 0))


def append(log: Log, epoch: int = 0, sequence: int = 0, attributes: int = TRANSACTIONAL) -> None:
    records = encode_batch(
        [Record(0, 1, None, b"v")], attributes=attributes, producer_id=PRODUCER, producer_epoch=epoch, base_sequence=sequence
    )
    log.append_as_leader(records, 0, 9, Origin.CLIENT, 1)


def end(log: Log, epoch: int = 0) -> None:
    log.append_as_leader(control_batch(ControlType.ABORT, 0, 0, PRODUCER, epoch, 0, 1), 0, 9, Origin.COORDINATOR, 1)


def code(log: Log, verification: object) -> E:
    try:
        log.check_verified(PRODUCER, verification)  # type: ignore[arg-type]
    except ApiError as error:
        return error.code
    return E.NONE


def test_records_without_a_verification_are_refused_while_no_transaction_is_open(log: Log) -> None:
    assert code(log, None) is E.INVALID_TXN_STATE
    append(log)
    assert code(log, None) is E.NONE
    end(log)
    assert code(log, None) is E.INVALID_TXN_STATE


def test_an_open_transaction_needs_no_verification_whatever_its_epoch(log: Log) -> None:
    append(log)
    assert log.begin_verification(PRODUCER, 5, 0, 1) is None


def test_requests_that_verify_at_the_same_time_share_the_verification(log: Log) -> None:
    first, second = (log.begin_verification(PRODUCER, 0, sequence, 1) for sequence in (0, 1))
    assert first is second
    assert code(log, first) is E.NONE


def test_a_marker_makes_a_verification_void_also_for_the_next_transaction(log: Log) -> None:
    old = log.begin_verification(PRODUCER, 0, 0, 1)
    end(log)
    assert code(log, old) is E.INVALID_TXN_STATE
    new = log.begin_verification(PRODUCER, 0, 0, 1)
    assert code(log, old) is E.INVALID_TXN_STATE
    assert code(log, new) is E.NONE


def test_the_records_of_one_transaction_do_not_verify_the_next_one(log: Log) -> None:
    verification = log.begin_verification(PRODUCER, 0, 0, 1)
    append(log)
    end(log)
    assert code(log, verification) is E.INVALID_TXN_STATE


@pytest.mark.parametrize("attributes", [TRANSACTIONAL, 0], ids=["of a transaction", "without a transaction"])
def test_the_first_records_are_those_with_the_lowest_sequence_that_was_verified(log: Log, attributes: int) -> None:
    log.begin_verification(PRODUCER, 0, 5, 1)
    log.begin_verification(PRODUCER, 0, 2, 1)
    with pytest.raises(ApiError) as caught:
        append(log, sequence=5, attributes=attributes)
    assert caught.value.code is E.OUT_OF_ORDER_SEQUENCE_NUMBER
    append(log, sequence=2, attributes=attributes)


def test_an_old_epoch_is_refused_before_the_sequence_of_a_verification(log: Log) -> None:
    append(log, epoch=3)
    end(log, epoch=3)
    log.begin_verification(PRODUCER, 0, 2, 1)
    with pytest.raises(ApiError) as caught:
        append(log, epoch=0, sequence=5)
    assert caught.value.code is E.INVALID_PRODUCER_EPOCH


def test_a_later_epoch_begins_with_its_own_sequence(log: Log) -> None:
    log.begin_verification(PRODUCER, 0, 2, 1)
    log.begin_verification(PRODUCER, 1, 4, 1)
    log.begin_verification(PRODUCER, 0, 0, 1)
    append(log, epoch=1, sequence=4)


def test_verifications_that_lead_to_nothing_are_forgotten(log: Log) -> None:
    verification = log.begin_verification(PRODUCER, 0, 0, 1_000)
    log.expire_producers(1_999, 1_000)
    assert code(log, verification) is E.NONE
    log.expire_producers(2_000, 1_000)
    assert code(log, verification) is E.INVALID_TXN_STATE
