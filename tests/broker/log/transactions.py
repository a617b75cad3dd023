"""A naive second log of transactions: a list of what was written, from which open and aborted transactions and last values follow."""

from __future__ import annotations

import random
from typing import NamedTuple

from klamm.broker.log.compaction import LogCleaner, candidate
from klamm.broker.log.local_log import FileRead
from klamm.broker.log.log import Log
from klamm.broker.log.retention import delete_old_segments
from klamm.protocol.records.batch import TRANSACTIONAL, each_header
from klamm.protocol.records.record import read_records
from klamm.protocol.records.validation import Origin
from klamm.seams.clock import SYSTEM_CLOCK
from klamm.tests.broker.log.batches import batch, marker, record
from klamm.tests.services import broker_config

NOBODY, IDEMPOTENT, FIRST, SECOND = -1, 3, 1, 2
FAR = 2**62
KEYS = [b"a", b"b", b"c", b"d", b"e"]


class Written(NamedTuple):
    """One batch: data of a producer, or a marker, which has no pairs and says whether it commits."""

    base: int
    last: int
    producer: int
    last_sequence: int
    pairs: tuple[tuple[bytes, bytes | None], ...]
    commits: bool | None = None


class Transaction(NamedTuple):
    """`marker` is None while it is open."""

    producer: int
    first: int
    marker: int | None
    commits: bool


class NaiveTransactions:
    """Whatever segments there are, deletion of records changes nothing of what was written: only a truncation does."""

    def __init__(self) -> None:
        self.all: list[Written] = []
        self.stable_before = 0
        """Transactions that ended before it count as replicated: a start knows no others."""

    @property
    def end(self) -> int:
        return self.all[-1].last + 1 if self.all else 0

    def truncate(self, offset: int) -> None:
        self.all = [one for one in self.all if one.last < offset]

    def transactions(self) -> list[Transaction]:
        """In the order of their ends, the open ones last."""
        begun: dict[int, int] = {}
        ended = []
        for one in self.all:
            if one.commits is not None:
                ended.append(Transaction(one.producer, begun.pop(one.producer), one.base, one.commits))
            elif one.producer in (FIRST, SECOND):
                begun.setdefault(one.producer, one.base)
        return ended + [Transaction(producer, first, None, False) for producer, first in begun.items()]

    def last_stable_offset(self, high_watermark: int, start: int) -> int:
        bound = max(high_watermark, self.stable_before)
        firsts = [one.first for one in self.transactions() if one.marker is None or one.marker >= bound]
        return min(max(min(firsts), start), high_watermark) if firsts else high_watermark

    def aborted(self, offset: int, end: int) -> list[tuple[int, int]]:
        return [
            (one.producer, one.first)
            for one in self.transactions()
            if one.marker is not None and not one.commits and one.marker >= offset and one.first < end
        ]

    def values(self, start: int, end: int) -> dict[bytes, bytes]:
        """What a reader of committed records has of each key when it has read from `start` to `end`."""
        kept: dict[bytes, bytes] = {}
        spans = [(one.producer, one.first, one.marker) for one in self.transactions() if one.marker is not None and not one.commits]
        for one in self.all:
            if any(one.producer == producer and first <= one.base < last for producer, first, last in spans):
                continue
            for offset, (key, value) in enumerate(one.pairs, one.base):
                if start <= offset < end:
                    _put(kept, key, value)
        return kept

    def sequences(self) -> dict[int, int]:
        """The last sequence number of each producer."""
        return {one.producer: one.last_sequence for one in self.all if one.producer != NOBODY and one.commits is None}


def _put(kept: dict[bytes, bytes], key: bytes | None, value: bytes | None) -> None:
    assert key is not None
    if value is None:
        kept.pop(key, None)
    else:
        kept[key] = value


class TransactionStory:
    """Random steps on a log and on the naive one, and a comparison of both."""

    def __init__(self, log: Log, chance: random.Random) -> None:
        self.log = log
        self.naive = NaiveTransactions()
        self.chance = chance
        self.written = 0
        self.is_compacted = False
        """Then an aborted transaction of which nothing is left need not be named."""

    def append(self) -> None:
        producer = self.chance.choice((NOBODY, IDEMPOTENT, FIRST, FIRST, SECOND))
        pairs = tuple((self.chance.choice(KEYS), self._value()) for _ in range(self.chance.choice((1, 1, 2, 4))))
        sequence = -1 if producer == NOBODY else self.naive.sequences().get(producer, -1) + 1
        data = batch(
            producer=producer, epoch=-1 if producer == NOBODY else 0, sequence=sequence, timestamp=SYSTEM_CLOCK.now_ms(),
            attributes=TRANSACTIONAL if producer in (FIRST, SECOND) else 0,
            records=[record(delta, value, key) for delta, (key, value) in enumerate(pairs)],
        )
        base = self.log.append_as_leader(data, 0, 9, Origin.CLIENT, SYSTEM_CLOCK.now_ms()).base_offset
        assert base == self.naive.end
        self.naive.all.append(Written(base, base + len(pairs) - 1, producer, sequence + len(pairs) - 1, pairs))

    def _value(self) -> bytes | None:
        self.written += 1
        return None if self.chance.random() < 0.1 else b"%d" % self.written + bytes(self.chance.choice((0, 0, 100)))

    def end_transaction(self) -> None:
        open_now = [one.producer for one in self.naive.transactions() if one.marker is None]
        if not open_now:
            return
        producer, commits = self.chance.choice(open_now), self.chance.random() < 0.5
        data = marker(producer, 0, commit=commits, timestamp=SYSTEM_CLOCK.now_ms())
        base = self.log.append_as_leader(data, 0, 9, Origin.COORDINATOR, SYSTEM_CLOCK.now_ms()).base_offset
        self.naive.all.append(Written(base, base, producer, -1, (), commits))

    def boundary(self) -> int:
        """The high watermark, or where a batch behind it begins, or the end of the log."""
        log = self.log
        bases = [one.base for one in self.naive.all if one.base >= log.high_watermark]
        return self.chance.choice([log.high_watermark, *bases, log.log_end_offset])

    async def truncate(self) -> None:
        if self.log.storage is None and self.is_compacted:
            return  # in memory there is no snapshot of the producers whose batches the cleaner took
        offset = self.boundary()
        unfinished = self.log.truncate_to(offset)
        if unfinished is not None:
            await unfinished
        self.naive.truncate(offset)

    def delete_records(self) -> None:
        self.log.set_log_start_offset(self.chance.randint(self.log.log_start_offset, self.log.high_watermark))

    def delete_old_segments(self) -> None:
        delete_old_segments(self.log, SYSTEM_CLOCK.now_ms())

    async def compact(self) -> None:
        log = self.log
        chosen = candidate(log, SYSTEM_CLOCK.now_ms())
        if chosen is not None:
            assert chosen.end <= self.naive.last_stable_offset(log.high_watermark, log.log_start_offset)
            self.is_compacted = True
            await LogCleaner(lambda: [log], broker_config(), SYSTEM_CLOCK).clean(chosen)

    async def step(self) -> None:
        """One of them."""
        match self.chance.randrange(20):
            case 0 | 1 | 2 | 3 | 4 | 5 | 6 | 7:
                self.append()
            case 8 | 9 | 10 | 11:
                self.end_transaction()
            case 12 | 13 | 14:
                self.log.set_high_watermark(self.boundary())
            case 15 | 16:
                await self.truncate()
            case 17:
                self.delete_records()
            case 18:
                self.delete_old_segments()
            case _:
                await self.compact()

    async def compare(self) -> None:
        """All that a client could tell, of what is written."""
        log, naive = self.log, self.naive
        assert log.log_end_offset == log.next_offset == naive.end
        start, stable = log.log_start_offset, naive.last_stable_offset(log.high_watermark, log.log_start_offset)
        assert log.last_stable_offset == stable
        for producer in (FIRST, SECOND):
            is_open = any(one.producer == producer and one.marker is None for one in naive.transactions())
            assert log.has_open_transaction(producer, 0) == is_open
        producers = {one.producer_id: one.batches[-1].last_sequence for one in log.active_producers() if one.batches}
        assert producers == naive.sequences()
        offset = self.chance.randint(start, stable)
        end = self.chance.randint(offset, stable)
        aborted = [(one.producer_id, one.first_offset) for one in log.aborted_transactions(offset, end)]
        named = naive.aborted(offset, end)
        assert aborted == ([one for one in named if one in aborted] if self.is_compacted else named)
        assert await committed(log, start, stable) == naive.values(start, stable)


async def committed(log: Log, start: int, end: int) -> dict[bytes, bytes]:
    """What a consumer with `read_committed` has of each key: it leaves out what the aborted transactions name, as Kafka's clients do."""
    aborted = sorted((one.first_offset, one.producer_id) for one in log.aborted_transactions(start, end))
    skipped: set[int] = set()
    kept: dict[bytes, bytes] = {}
    at = start
    while at < end:
        piece = log.read(at, 1 << 20, end, True)
        data = await piece.load() if isinstance(piece, FileRead) else piece
        if not data:
            break
        for position, header in each_header(data):
            at = header.next_offset
            while aborted and aborted[0][0] <= header.last_offset:
                skipped.add(aborted.pop(0)[1])
            if header.is_control:
                control = read_records(data, header, position)
                if control and control[0].key is not None and control[0].key[3] == 0:
                    skipped.discard(header.producer_id)
            elif not (header.attributes & TRANSACTIONAL and header.producer_id in skipped):
                for one in read_records(data, header, position):
                    if start <= one.offset < end:
                        _put(kept, one.key, one.value)
    return kept
