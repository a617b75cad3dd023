"""The cleaner's rules one by one, and drawn logs beside the cleaner of Apache Kafka 3.9.1."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from klamm.broker.log.cleaner import AbortedReader, CleanRules, LastRecord, clean, note_keys
from klamm.broker.log.storage import AbortedTransaction
from klamm.protocol.records.batch import TRANSACTIONAL, Codec, check_crcs, each_header
from klamm.protocol.records.record import ControlType, Record, control_batch, encode_batch, read_records
from klamm.tests.broker.log.cleaner_rounds import RETENTION, judge_rounds, order_of
from klamm.tests.broker.log.random_logs import NOW
from klamm.tests.protocol import golden
from klamm.tests.records.judge import running

PRODUCER = 8


def data_batch(*records: tuple[int, bytes | None, bytes | None], codec: Codec = Codec.NONE, producer: int = -1, more: int = 0) -> bytes:
    made = [Record(offset, NOW, key, value) for offset, key, value in records]
    return encode_batch(
        made, codec=codec, attributes=more, producer_id=producer, producer_epoch=0 if producer >= 0 else -1,
        base_sequence=0 if producer >= 0 else -1,
    )


def round_of(
    data: bytes,
    *,
    now_ms: int = NOW,
    aborted: tuple[AbortedTransaction, ...] = (),
    producers: dict[int, LastRecord] | None = None,
    dirty: bytes | None = None,
) -> bytes:
    latest: dict[bytes, int] = {}
    end = note_keys(data if dirty is None else dirty, latest, AbortedReader(aborted))
    rules = CleanRules(now_ms, RETENTION, end - 1, {} if producers is None else producers)
    return clean(data, latest, rules, AbortedReader(aborted))


def contents(data: bytes) -> list[tuple[int, bytes | None, bytes | None]]:
    check_crcs(data)
    return [
        (record.offset, record.key, record.value)
        for position, header in each_header(data)
        for record in read_records(data, header, position)
    ]


def offsets(data: bytes) -> list[tuple[int, int]]:
    return [(header.base_offset, header.last_offset) for _, header in each_header(data)]


@pytest.mark.parametrize("codec", list(Codec))
def test_the_last_record_of_each_key_stays_at_its_offset(codec: Codec) -> None:
    data = data_batch((0, b"a", b"1"), (1, b"b", b"1"), codec=codec) + data_batch((2, b"a", b"2"), codec=codec)
    cleaned = round_of(data)
    assert contents(cleaned) == [(1, b"b", b"1"), (2, b"a", b"2")]
    assert offsets(cleaned) == [(0, 1), (2, 2)]
    assert [header.codec for _, header in each_header(cleaned)] == [codec, codec]


def test_a_batch_that_loses_nothing_stays_byte_for_byte() -> None:
    data = data_batch((0, b"a", b"1"), codec=Codec.GZIP) + data_batch((1, b"b", b"1"))
    assert round_of(data) == data


def test_a_record_without_key_goes() -> None:
    assert contents(round_of(data_batch((0, None, b"1"), (1, b"a", b"2")))) == [(1, b"a", b"2")]


def test_a_tombstone_gets_a_delete_horizon_and_goes_when_it_has_passed() -> None:
    data = data_batch((0, b"a", b"1")) + data_batch((1, b"a", None), (2, b"b", b"3"))
    first = round_of(data)
    assert contents(first) == [(1, b"a", None), (2, b"b", b"3")]
    assert [header.delete_horizon_ms for _, header in each_header(first)] == [NOW + RETENTION]
    assert round_of(first, now_ms=NOW + RETENTION - 1) == first
    assert contents(round_of(first, now_ms=NOW + RETENTION)) == [(2, b"b", b"3")]


def test_records_behind_those_whose_keys_were_noted_stay() -> None:
    noted = data_batch((0, b"a", b"1")) + data_batch((1, b"a", b"2"))
    assert contents(round_of(noted + data_batch((2, None, b"3")), dirty=noted)) == [(1, b"a", b"2"), (2, None, b"3")]


def test_an_aborted_transaction_replaces_no_key_and_its_records_go_before_its_marker() -> None:
    data = (
        data_batch((0, b"a", b"1"))
        + data_batch((1, b"a", b"2"), producer=PRODUCER, more=TRANSACTIONAL)
        + control_batch(ControlType.ABORT, 2, 0, PRODUCER, 0, 0, NOW)
    )
    aborted = (AbortedTransaction(PRODUCER, 1, 2, 3),)
    first = round_of(data, aborted=aborted)
    assert offsets(first) == [(0, 0), (2, 2)]
    second = round_of(first, aborted=aborted)
    assert [header.delete_horizon_ms for _, header in each_header(second)] == [None, NOW + RETENTION]
    assert offsets(round_of(second, aborted=aborted, now_ms=NOW + RETENTION)) == [(0, 0)]


def test_the_index_keeps_a_transaction_while_its_marker_follows_batches_of_it() -> None:
    aborted = (AbortedTransaction(PRODUCER, 0, 1, 2),)
    data = data_batch((0, b"a", b"1"), producer=PRODUCER, more=TRANSACTIONAL) + control_batch(ControlType.ABORT, 1, 0, PRODUCER, 0, 0, NOW)
    reader = AbortedReader(aborted)
    left = clean(data, {}, CleanRules(NOW, RETENTION), reader)
    assert reader.retained == list(aborted)
    reader = AbortedReader(aborted)
    clean(left, {}, CleanRules(NOW, RETENTION), reader)
    assert reader.retained == []


def test_a_commit_marker_stays_while_records_of_its_transaction_do() -> None:
    data = data_batch((0, b"a", b"1"), producer=PRODUCER, more=TRANSACTIONAL) + control_batch(ControlType.COMMIT, 1, 0, PRODUCER, 0, 0, NOW)
    assert round_of(round_of(data), now_ms=NOW + 10 * RETENTION) == data
    replaced = data + data_batch((2, b"a", b"2"))
    first = round_of(replaced)
    assert offsets(first) == [(1, 1), (2, 2)]
    second = round_of(first)
    assert offsets(round_of(second, now_ms=NOW + RETENTION)) == [(2, 2)]


def test_the_last_batch_of_an_active_producer_stays_without_records() -> None:
    data = data_batch((0, b"a", b"1"), (1, b"a", b"1"), producer=PRODUCER) + data_batch((2, b"a", b"2"))
    assert offsets(round_of(data)) == [(2, 2)]
    cleaned = round_of(data, producers={PRODUCER: LastRecord(1, 0)})
    assert contents(cleaned) == [(2, b"a", b"2")]
    [empty, _] = [header for _, header in each_header(cleaned)]
    assert (empty.base_offset, empty.last_offset, empty.record_count, empty.producer_id, empty.last_sequence) == (0, 1, 0, PRODUCER, 1)
    assert round_of(cleaned, producers={PRODUCER: LastRecord(1, 0)}) == cleaned


def test_keys_are_noted_batch_by_batch_up_to_a_number() -> None:
    latest: dict[bytes, int] = {}
    data = data_batch((0, b"a", b"1"), (1, b"b", b"1")) + data_batch((2, b"c", b"1"))
    assert note_keys(data, latest, AbortedReader(()), most_keys=2) == 2
    assert latest == {b"a": 0, b"b": 1}
    assert note_keys(data, latest, AbortedReader(())) == 3


def rounds(order: dict[str, Any], judged: list[dict[str, Any]]) -> None:
    """Clean as often as the other cleaner did, each time what it left."""
    data = bytes.fromhex(order["hex"])
    aborted = [AbortedTransaction(*row) for row in order["aborted"]]
    producers = {int(producer): LastRecord(*row) for producer, row in order["producers"].items()}
    for number, result in enumerate(judged):
        latest: dict[bytes, int] = {}
        clean_bytes = sum(header.size for _, header in each_header(data) if header.base_offset < order["start"])
        noting = AbortedReader(aborted)
        note_keys(data[:clean_bytes], {}, noting)
        note_keys(data[clean_bytes:], latest, noting)
        reader = AbortedReader(aborted)
        made = clean(data, latest, CleanRules(NOW + 200 * number, RETENTION, result["latest"], producers), reader)
        data = bytes.fromhex(result["hex"])
        assert described(made) == described(data)
        check_crcs(made)
        assert [list(entry) for entry in reader.retained] == result["aborted"]
        aborted = reader.retained


def described(data: bytes) -> list[Any]:
    """Headers and records, without what depends on the compression library."""
    return [
        (header._replace(crc=0, batch_length=0), header.delete_horizon_ms, read_records(data, header, position))
        for position, header in each_header(data)
    ]


def test_recorded_logs_are_cleaned_as_by_kafka() -> None:
    tried = 0
    for line in golden.lines("compaction.jsonl.gz"):
        rounds(line["order"], line["results"])
        tried += 1
    assert tried > 200


@pytest.mark.slow
@pytest.mark.reference
def test_new_logs_are_cleaned_as_by_kafka() -> None:
    seed = Random().randrange(10**9)
    with running("CleanerJudge.java") as judge:
        for number in range(seed, seed + 300):
            order = order_of(number)
            rounds(order, judge_rounds(judge, order))
