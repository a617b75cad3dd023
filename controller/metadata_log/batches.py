"""The batches of the metadata log in memory: appended by the controller, read by brokers that fetch (controller 25.1).

What is appended is kept as it came and becomes bytes when somebody reads it: once, for all readers. So a log that nobody reads costs
little more than a list. Offsets are known at once. A batch holds about a megabyte at most; a longer append becomes several batches.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from struct import Struct
from typing import NamedTuple, Protocol, TypeAlias

from klamm.protocol.records.batch import HEADER_SIZE
from klamm.protocol.records.metadata_records import batch
from klamm.protocol.records.record import write_varint

MOST_RECORDS, MOST_BYTES = 8192, 1 << 20
"""Of one batch; a single record may be larger."""

BATCH_BYTES = HEADER_SIZE + 250
"""About the memory that a batch takes beside its records."""
PARTITION_BYTES = 120
"""About the memory that a record about a partition takes until it is encoded; it takes less then."""


PartitionRest: TypeAlias = tuple[int, bytes, bytes]
"""A record about a partition without what names the partition: partitions in the same situation share it.

Bytes of the record without its length and its offset; its part from the null key to the prefix of the value, before index and topic id; and
its part behind them.
"""
PartitionEntry: TypeAlias = tuple[int, bytes, PartitionRest]
"""A record about one partition: its index, the id of its topic, and the rest."""
Entry: TypeAlias = bytes | PartitionEntry
"""A record: its value, or what the value of a record about a partition is made of."""


def partition_rest(prefix: bytes, rest: bytes) -> PartitionRest:
    """For records whose value is `prefix`, the index, the topic id and `rest`."""
    size, head = _head(prefix, len(rest))
    return size, head, rest + b"\0"


@lru_cache(maxsize=4096)
def _head(prefix: bytes, rest: int) -> tuple[int, bytes]:
    length = len(prefix) + 20 + rest
    head = b"\x01" + write_varint(length) + prefix
    return 2 + len(head) + 20 + rest + 1, head


class Part(Protocol):
    """Records for one batch, which are worked out when they are encoded."""

    def entries(self) -> Iterable[Entry]: ...


_index = Struct(">i").pack
_offset = lru_cache(maxsize=MOST_RECORDS)(write_varint)


@lru_cache(maxsize=4096)
def _start(size: int) -> bytes:
    """Length, attributes and timestamp of a record that has `size` bytes after its length."""
    return write_varint(size) + b"\0\0"


def encode_entries(entries: Iterable[Entry]) -> bytes:
    """The records of one batch."""
    parts: list[bytes] = []
    put = parts.append
    for delta, entry in enumerate(entries):
        offset = _offset(delta)
        if isinstance(entry, bytes):
            head = b"\x01" + write_varint(len(entry))
            parts += (_start(len(offset) + len(head) + len(entry) + 3), offset, head, entry, b"\0")
            continue
        index, topic_id, (size, head, tail) = entry
        put(_start(size + len(offset)))
        put(offset)
        put(head)
        put(_index(index))
        put(topic_id)
        put(tail)
    return b"".join(parts)


def split(entries: Sequence[Entry]) -> Iterator[tuple[Sequence[Entry], int]]:
    """Entries for one batch each, and about how much memory they take."""
    start = size = 0
    for position, entry in enumerate(entries):
        more = len(entry) + 50 if isinstance(entry, bytes) else PARTITION_BYTES
        if position > start and (size + more > MOST_BYTES or position - start >= MOST_RECORDS):
            yield entries[start:position], size
            start, size = position, 0
        size += more
    if start < len(entries):
        yield (entries[start:] if start else entries), size


class Values:
    """Records that are known already."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._entries = entries

    def entries(self) -> Sequence[Entry]:
        return self._entries


class _Pending(NamedTuple):
    """A batch that nobody has read yet, and about the bytes of memory that it takes."""

    part: Part
    records: int
    size: int
    timestamp_ms: int


class LogBatches:
    """A log of one controller epoch. `size` is about the memory that it takes, in bytes."""

    def __init__(self, controller_epoch: int) -> None:
        self.controller_epoch = controller_epoch
        self.start_offset = 0
        self.next_offset = 0
        self.size = 0
        self._batches: list[_Pending | bytes] = []
        self._bases: list[int] = []
        self._last_read: tuple[int, int, bytes] | None = None
        self._waiting: dict[object, Callable[[], None]] = {}

    def append(self, entries: Sequence[Entry], timestamp_ms: int) -> None:
        """Append records: one batch where they fit into one. Who waits is not called yet."""
        for part, size in split(entries):
            self.append_part(Values(part), len(part), size, timestamp_ms)

    def append_part(self, part: Part, count: int, size: int, timestamp_ms: int) -> None:
        """Append one batch, of at least one record, that takes about so much memory. Who waits is not called yet."""
        size += BATCH_BYTES
        self._bases.append(self.next_offset)
        self._batches.append(_Pending(part, count, size, timestamp_ms))
        self.size += size
        self.next_offset += count
        self._last_read = None

    def appended(self) -> None:
        """What belongs together is appended: call who waits."""
        if self._waiting:
            waiting, self._waiting = self._waiting, {}
            for callback in waiting.values():
                callback()

    def drop_before(self, offset: int) -> None:
        """Forget the batches before the one that begins at `offset`, which is the start of the log now."""
        gone = bisect_right(self._bases, offset - 1)
        self.size -= sum(len(each) + BATCH_BYTES if isinstance(each, bytes) else each.size for each in self._batches[:gone])
        del self._batches[:gone], self._bases[:gone]
        self.start_offset = offset
        self._last_read = None

    def read(self, offset: int, max_bytes: int) -> bytes:
        """Whole batches from the one that holds `offset`, at least one if there is one; nothing at the end of the log.

        Raises ValueError for an offset that is not in the log.
        """
        if not self.start_offset <= offset <= self.next_offset:
            raise ValueError(f"offset {offset} is not in the log, which has {self.start_offset} to {self.next_offset}")
        if offset == self.next_offset:
            return b""
        if self._last_read is not None and self._last_read[:2] == (offset, max_bytes):
            return self._last_read[2]
        position = bisect_right(self._bases, offset) - 1
        batches = [self._encoded(position)]
        size = len(batches[0])
        for following in range(position + 1, len(self._batches)):
            if size >= max_bytes:
                break
            data = self._encoded(following)
            size += len(data)
            if size > max_bytes:
                break
            batches.append(data)
        result = batches[0] if len(batches) == 1 else b"".join(batches)
        self._last_read = offset, max_bytes, result
        return result

    def _encoded(self, position: int) -> bytes:
        """The bytes of a batch, which are made when it is read first."""
        each = self._batches[position]
        if isinstance(each, bytes):
            return each
        part, count, size, timestamp_ms = each
        data = self._batches[position] = batch(
            encode_entries(part.entries()), count, self._bases[position], self.controller_epoch, timestamp_ms
        )
        self.size += len(data) + BATCH_BYTES - size
        return data

    def on_append(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` once, at the next append; what is returned takes it back, and does nothing afterwards.

        It is called in the controller's turn of the event loop, before the write is answered: it must be quick, and must not raise.
        """
        ticket = object()
        self._waiting[ticket] = callback

        def remove() -> None:
            self._waiting.pop(ticket, None)

        return remove
