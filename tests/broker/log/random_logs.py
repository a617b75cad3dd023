"""Logs for the cleaner, drawn from a seed: keys, tombstones, transactions, gaps, emptied batches, delete horizons."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from klamm.broker.log.cleaner import LastRecord
from klamm.broker.log.storage import AbortedTransaction
from klamm.protocol.records.batch import DELETE_HORIZON, TRANSACTIONAL, Codec, each_header, read_header
from klamm.protocol.records.record import ControlType, Record, control_batch, encode_batch, seal

NOW = 1_700_000_000_000
PLAIN, IDEMPOTENT, FIRST_TRANSACTIONAL, SECOND_TRANSACTIONAL = -1, 7, 8, 9
PRODUCERS = (PLAIN, PLAIN, IDEMPOTENT, FIRST_TRANSACTIONAL, SECOND_TRANSACTIONAL)


class DrawnLog(NamedTuple):
    """The batches, the transaction index, the producers that are active, and the offset from which keys are read."""

    data: bytes
    aborted: list[AbortedTransaction]
    producers: dict[int, LastRecord]
    start: int


def draw_log(random: Random) -> DrawnLog:
    parts: list[bytes] = []
    aborted: list[AbortedTransaction] = []
    open_transactions: dict[int, int] = {}
    last: dict[int, int] = {}
    offset = random.choice((0, 5))
    for _ in range(random.randrange(1, 12)):
        if open_transactions and random.random() < 0.3:
            producer = random.choice(list(open_transactions))
            first = open_transactions.pop(producer)
            kind = random.choice((ControlType.ABORT, ControlType.COMMIT))
            parts.append(control_batch(kind, offset, 1, producer, 0, 3, NOW - random.randrange(10)))
            if kind is ControlType.ABORT:
                aborted.append(AbortedTransaction(producer, first, offset, offset + 1))
            offset += 1
            continue
        producer = random.choice(PRODUCERS)
        if producer >= FIRST_TRANSACTIONAL:
            open_transactions.setdefault(producer, offset)
        parts.append(draw_batch(random, producer, offset))
        header = read_header(parts[-1])
        if producer >= 0:
            last[producer] = header.last_offset
        offset = header.next_offset + random.choice((0, 0, 3))
    data = b"".join(parts)
    producers = {
        producer: LastRecord(random.choice((end, end, None)), 0) for producer, end in last.items() if random.random() < 0.7
    }
    start = random.choice((0, 0, random.choice([header.base_offset for _, header in each_header(data)])))
    return DrawnLog(data, aborted, producers, start)


def draw_batch(random: Random, producer: int, offset: int) -> bytes:
    records = []
    following = offset
    for _ in range(random.choice((1, 1, 2, 5))):
        key = random.choice((b"a", b"b", b"c", b"d", None))
        value = random.choice((None, b"v1", b"v2" * random.randrange(30)))
        headers = ((b"h", None),) if random.random() < 0.1 else ()
        records.append(Record(following, NOW - random.randrange(1000), key, value, headers))
        following += random.choice((1, 1, 1, 2))
    horizon = random.choice((None, None, None, NOW - 1, NOW, NOW + 1))
    made = encode_batch(
        records,
        base_offset=offset,
        last_offset=following - 1,
        codec=random.choice(tuple(Codec)) if random.random() < 0.5 else Codec.NONE,
        leader_epoch=2,
        attributes=(TRANSACTIONAL if producer >= FIRST_TRANSACTIONAL else 0) | (0 if horizon is None else DELETE_HORIZON),
        base_timestamp=horizon,
        append_time_ms=random.choice((None, None, NOW - 5)),
        producer_id=producer,
        producer_epoch=0 if producer >= 0 else -1,
        base_sequence=offset if producer >= 0 else -1,
    )
    if random.random() < 0.1:
        header = read_header(made)
        return seal(header._replace(attributes=header.attributes & TRANSACTIONAL, record_count=0), b"")
    return made
