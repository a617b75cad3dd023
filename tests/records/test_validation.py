"""What a leader makes of produced records drawn from seeds, beside what `LogValidator` of Apache Kafka 3.9.1 made of them."""

from __future__ import annotations

from functools import cache
from random import Random
from typing import Any

import pytest

from klamm.protocol.errors import ErrorCode
from klamm.protocol.records.batch import Codec, check_crcs, each_header, read_header
from klamm.protocol.records.compression import compress
from klamm.protocol.records.legacy import encode_messages
from klamm.protocol.records.record import Record, encode_batch, read_records, seal
from klamm.protocol.records.validation import AppendRules, Origin, Refused, assign, costs_much
from klamm.tests.protocol import golden
from klamm.tests.records.comparison import EPOCH, OFFSET, judged, outcome
from klamm.tests.records.judge import judging
from klamm.tests.records.random_batches import NOW, Produced, draw

PARTS = 20
CODEC_NAMES = ("none", "gzip", "snappy", "lz4", "zstd")


@cache
def lines() -> list[dict[str, Any]]:
    return list(golden.lines("validation.jsonl.gz"))


def produced(line: dict[str, Any]) -> Produced:
    rules = dict(line["rules"])
    if rules["compression"] is not None:
        rules["compression"] = Codec(rules["compression"])
    return Produced(line["what"], bytes.fromhex(line["hex"]), line["version"], AppendRules(**rules))


def described(data: bytes) -> list[dict[str, Any]]:
    """Batches as `RecordJudge.java` writes them."""
    rows = []
    for position, header in each_header(data):
        records = [
            [record.offset, record.timestamp, *(None if part is None else part.hex() for part in (record.key, record.value)),
             *(part for name, content in record.headers for part in (name.decode(), None if content is None else content.hex()))]
            for record in read_records(data, header, position)
        ]
        rows.append({
            "magic": 2, "first": header.base_offset, "last": header.last_offset, "codec": CODEC_NAMES[header.codec],
            "time": "LogAppendTime" if header.is_log_append_time else "CreateTime", "max_timestamp": header.max_timestamp,
            "producer": header.producer_id, "sequence": header.base_sequence, "transactional": header.is_transactional,
            "epoch": header.leader_epoch, "records": records,
        })
    return rows


def differs_by_library(case: Produced, mine: dict[str, Any], theirs: dict[str, Any]) -> bool:
    """Where a broken compressed block breaks, and how small a block gets, depends on the library."""
    errors = {mine.get("error"), theirs.get("error")}
    if "packed" in case.what and errors == {"INVALID_RECORD", "UNKNOWN_SERVER_ERROR"}:
        return True
    return case.rules.max_message_bytes < 1000 and errors == {None, "MESSAGE_TOO_LARGE"}


@pytest.mark.parametrize("part", range(PARTS))
def test_produced_records_are_stored_or_refused_as_by_kafka(part: int) -> None:
    tried = 0
    for line in lines()[part::PARTS]:
        case, result = produced(line), line["result"]
        data, mine = outcome(case)
        theirs = judged(case, result)
        if differs_by_library(case, mine, theirs):
            continue
        tried += 1
        assert mine == theirs, (line["seed"], case)
        if data:
            assert result["batches"] is None or described(data) == result["batches"], (line["seed"], case)
            check_crcs(data)
            if case.rules.compression is None and case.data[16] == 2:
                assert data.hex() == result["hex"], (line["seed"], case)
    assert tried > 50


@pytest.mark.slow
@pytest.mark.reference
def test_new_records_are_stored_or_refused_as_by_kafka(request: pytest.FixtureRequest) -> None:
    seed = Random().randrange(10**9)
    wrong = []
    with judging() as judge:
        for number in range(seed, seed + 3000):
            case = draw(Random(number))
            result = judge.assign(case.data, case.version, OFFSET, EPOCH, case.rules, NOW)
            data, mine = outcome(case)
            theirs = judged(case, result)
            if differs_by_library(case, mine, theirs):
                continue
            if mine != theirs or (data and result["batches"] and judge.read(data).get("batches") != result["batches"]):
                wrong.append((number, case, mine, theirs))
    assert not wrong, f"{len(wrong)} differ: {wrong[:3]}"


def one(value: bytes = b"v", key: bytes | None = None, timestamp: int = NOW) -> Record:
    return Record(0, timestamp, key, value)


def test_several_batches_in_an_old_request_are_refused_and_a_cut_one_is_left_out() -> None:
    batch = encode_batch([one()])
    with pytest.raises(Refused) as caught:
        assign(batch + batch, 2, 0, 0, AppendRules(), NOW)
    assert caught.value.code == ErrorCode.INVALID_RECORD
    assert len(assign(batch + batch[:-1], 2, 0, 0, AppendRules(), NOW).headers) == 1
    assert assign(batch[:-1], 2, 0, 0, AppendRules(), NOW).headers == []


@pytest.mark.parametrize(("compression", "code"), [(None, ErrorCode.UNKNOWN_SERVER_ERROR), (Codec.GZIP, ErrorCode.INVALID_RECORD)])
def test_old_messages_are_converted_in_turn_unless_they_are_compressed(compression: Codec | None, code: ErrorCode) -> None:
    """The first message has a time that cannot be converted, the second one another magic."""
    data = encode_messages(1, [one(timestamp=-2)], Codec.NONE) + encode_messages(0, [one()], Codec.NONE)
    with pytest.raises(Refused) as caught:
        assign(data, 2, 0, 0, AppendRules(compression=compression), NOW)
    assert caught.value.code == code


def test_a_coordinator_may_write_control_records_at_any_offset() -> None:
    batch = encode_batch([one()._replace(offset=77)], attributes=0x20)
    assigned = assign(batch, 11, 5, 1, AppendRules(compression=Codec.ZSTD), NOW, Origin.COORDINATOR)
    assert (assigned.headers[0].base_offset, assigned.headers[0].codec, assigned.headers[0].is_control) == (5, Codec.NONE, True)
    with pytest.raises(Refused):
        assign(batch, 11, 5, 1, AppendRules(), NOW)


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec])
def test_a_batch_that_would_become_huge_is_refused_without_taking_the_memory(codec: Codec) -> None:
    import tracemalloc

    huge = compress(codec, bytes(150 * 1024 * 1024))
    batch = seal(read_header(encode_batch([one()], codec=codec)), huge)
    rules = AppendRules(max_message_bytes=2**31 - 1)
    assert costs_much(batch, rules)
    tracemalloc.start()
    with pytest.raises(Refused) as caught:
        assign(batch, 11, 0, 0, rules, NOW)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert caught.value.code == ErrorCode.MESSAGE_TOO_LARGE
    assert peak < 250 * 1024 * 1024


def test_a_false_size_in_the_trailer_of_gzip_does_not_bring_a_huge_batch_into_the_loop() -> None:
    packed = compress(Codec.GZIP, bytes(20 * 1024 * 1024))
    batch = seal(read_header(encode_batch([one()], codec=Codec.GZIP)), packed[:-4] + (100).to_bytes(4, "little"))
    assert not costs_much(batch[:200], AppendRules())
    with pytest.raises(Refused) as caught:
        assign(batch, 11, 0, 0, AppendRules(), NOW)
    assert caught.value.code == ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize(
    ("codec", "size", "rules", "much"),
    [
        (Codec.NONE, 100, AppendRules(), False),
        (Codec.NONE, 300_000, AppendRules(), True),
        (Codec.ZSTD, 100, AppendRules(), False),
        (Codec.ZSTD, 300_000, AppendRules(), True),
        (Codec.LZ4, 300_000, AppendRules(), True),
        (Codec.SNAPPY, 300_000, AppendRules(), True),
        (Codec.GZIP, 3_000_000, AppendRules(), True),
        (Codec.GZIP, 100, AppendRules(), False),
        (Codec.NONE, 100, AppendRules(compression=Codec.GZIP), True),
        (Codec.GZIP, 100, AppendRules(compression=Codec.GZIP), False),
    ],
)
def test_what_takes_long_is_known_before_it_is_done(codec: Codec, size: int, rules: AppendRules, much: bool) -> None:
    assert costs_much(encode_batch([one(bytes(size))], codec=codec), rules) is much


@pytest.mark.parametrize(
    ("codec", "count", "size", "much"),
    [(Codec.NONE, 10, 10, False), (Codec.NONE, 1000, 10, True), (Codec.GZIP, 2, 10, False), (Codec.GZIP, 1, 3_000_000, True)],
)
def test_old_messages_take_long_when_they_are_many_or_may_decompress_to_much(codec: Codec, count: int, size: int, much: bool) -> None:
    data = encode_messages(1, [Record(offset, NOW, None, bytes(size)) for offset in range(count)], codec)
    assert costs_much(data, AppendRules()) is much
