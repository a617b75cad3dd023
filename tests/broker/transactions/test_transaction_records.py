"""The records of the transaction topic are those of Apache Kafka."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from klamm.broker.transactions import log_records
from klamm.broker.transactions.log_records import StoredTransaction
from klamm.broker.transactions.log_replay import replay_batches
from klamm.broker.transactions.requests import TransactionLimits
from klamm.broker.transactions.states import COMPLETE_COMMIT, EMPTY, ONGOING, PREPARE_COMMIT
from klamm.broker.transactions.transactions import Transactions
from klamm.protocol.errors import RemoteProtocolError
from klamm.protocol.nouns import TopicPartition
from klamm.protocol.records.record import ControlType, Record, control_batch, encode_batch

RECORDED = json.loads((Path(__file__).parents[2] / "golden" / "transaction_records.json").read_text())["records"]


def bytes_of(record: dict[str, str | None]) -> tuple[bytes, bytes | None]:
    key, value = record["key"], record["value"]
    assert key is not None
    return bytes.fromhex(key), None if value is None else bytes.fromhex(value)


@pytest.mark.parametrize("record", RECORDED, ids=lambda record: str(record["offset"]))
def test_a_record_of_apache_kafka_is_read_and_written_again_byte_by_byte(record: dict[str, str | None]) -> None:
    key, value = bytes_of(record)
    transactional_id = log_records.read_key(key)
    assert transactional_id is not None
    if value is None:
        assert log_records.key_of(transactional_id) == key
    else:
        assert log_records.record_of(transactional_id, log_records.read_value(value)) == (key, value)


def test_the_recorded_transaction_goes_from_empty_to_complete() -> None:
    values = [log_records.read_value(value) for _, value in map(bytes_of, RECORDED[:6]) if value is not None]
    assert [each.state for each in values] == [EMPTY, ONGOING, ONGOING, ONGOING, PREPARE_COMMIT, COMPLETE_COMMIT]
    assert [len(each.partitions) for each in values] == [0, 2, 3, 4, 4, 0]
    assert values[4].partitions == (*(TopicPartition("t", 2), TopicPartition("t", 0)), ("u", 0), ("__consumer_offsets", 1))
    assert values[0].start_ms == -1
    assert values[5].start_ms == values[1].start_ms == values[1].update_ms


def test_recorded_records_are_replayed_until_the_ids_expire() -> None:
    transactions = Transactions(TransactionLimits(), 1, 3)
    for record in RECORDED[:-3]:
        transactions.replay(*bytes_of(record))
    assert [(each.transactional_id, each.stored.producer_id, each.producer_epoch, each.state.text) for each in transactions] == [
        ("tx", 0, 1, "Empty"), ("short", 1, 1, "CompleteAbort"), ("fence", 2, 2, "Empty"),
    ]
    for record in RECORDED[-3:]:
        transactions.replay(*bytes_of(record))
    assert len(transactions) == 0


def test_a_value_in_flexible_form_is_read() -> None:
    partitions = "02" "02" "74" "02" "00000005" "00"
    value = bytes.fromhex("0001" "0000000000000007" "0003" "0000ea60" "01" + partitions + "0000000000000009" "0000000000000008" "00")
    assert log_records.read_value(value) == StoredTransaction(7, 3, 60_000, ONGOING, (TopicPartition("t", 5),), 9, 8)


@pytest.mark.parametrize("key", [None, b"", b"\0", b"\0\0\0\5tx"])
def test_bytes_that_are_not_a_key_are_refused(key: bytes | None) -> None:
    with pytest.raises(RemoteProtocolError):
        log_records.read_key(key)


@pytest.mark.parametrize("state", [6, 7, 8, -1])
def test_states_that_are_never_in_the_log_are_refused(state: int) -> None:
    _, value = log_records.record_of("tx", StoredTransaction(7, 3, 60_000, ONGOING, (), 9, 8))
    assert value is not None
    with pytest.raises(RemoteProtocolError):
        log_records.read_value(value[:16] + state.to_bytes(1, "big", signed=True) + value[17:])


def test_keys_of_later_brokers_are_passed_over() -> None:
    transactions = Transactions(TransactionLimits(), 1, 0)
    transactions.replay(b"\0\1\0\2tx", b"anything")
    assert len(transactions) == 0


def test_a_batch_is_replayed_but_for_the_records_that_cannot_be_read() -> None:
    stored = StoredTransaction(7, 3, 60_000, ONGOING, (), 9, 8)
    key, value = log_records.record_of("good", stored)
    records = [Record(5, 1, b"\0\0\0\3bad", b"\0\7"), Record(6, 1, key, value), Record(7, 1, None, value)]
    transactions = Transactions(TransactionLimits(), 1, 0)
    assert replay_batches(transactions, encode_batch(records)) == 8
    assert [(each.transactional_id, each.stored) for each in transactions] == [("good", stored)]


def test_an_empty_id_has_no_partitions_whatever_its_record_says() -> None:
    _, value = log_records.record_of("tx", StoredTransaction(7, 3, 60_000, ONGOING, (TopicPartition("t", 5),), 9, 8))
    assert value is not None
    assert log_records.read_value(value[:16] + b"\0" + value[17:]) == StoredTransaction(7, 3, 60_000, EMPTY, (), 9, 8)


def test_control_batches_are_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    transactions = Transactions(TransactionLimits(), 1, 0)
    assert replay_batches(transactions, control_batch(ControlType.COMMIT, 4, 0, 7, 0, 0, 1)) == 5
    assert (len(transactions), caplog.records) == (0, [])


def test_no_bytes_replay_nothing() -> None:
    assert replay_batches(Transactions(TransactionLimits(), 1, 0), b"") == -1
