"""The thread that writes the rows of the event loop: a batch at most 100 ms after its first row, in segments that roll.

The loop only appends to lists, and the thread removes items at their start. Both are atomic operations of the interpreter, so there is no
lock. If the disk fails, or is so slow that too many rows wait, the journal ends. One line in the log and a file beside the segments have
the reason, and the broker continues.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from klamm.journal.batches import Constants, Contexts, ContextValues, Event, Where, breathe, events_batch, frames_batch
from klamm.journal.segments import SEAL, EndMark, OpenSegment, disk_schema
from klamm.journal.unmasked_frame import UnmaskedFrame, mask_all

log = logging.getLogger(__name__)

FLUSH_S = 0.1
"""Maximum time that a row waits."""

APART_S = 0.03
"""Minimum time between two batches of a table: a batch costs about as much as three hundred rows."""

SEGMENT_BYTES = 64 << 20
SEGMENT_S = 60.0
BATCH_ROWS = 16_384
BATCH_BYTES = 64 << 20
WAITING_ROWS = 2_000_000
WAITING_BYTES = 1 << 30
"""Maximum of bytes that wait for the disk. More than this ends the journal. A fail-over with 300,000 partitions makes a million rows at
once.
"""


class Rows:
    """Rows that the loop has appended and the thread has not written yet. A row is appended to `rows` before its frame to `frames`."""

    def __init__(self) -> None:
        self.rows: list[bytes] = []
        self.frames: list[bytes | UnmaskedFrame] = []
        self.events: list[Event] = []
        self.contexts: list[tuple[int, ContextValues]] = []
        self.closed_contexts: list[int] = []

    def clear(self) -> None:
        """Drop all waiting rows."""
        for each in (self.rows, self.frames, self.events, self.contexts, self.closed_contexts):
            each.clear()


class Disk:
    """Writes the segments of one broker. `offset_ns` returns the wall clock minus the monotonic clock."""

    def __init__(
        self, folder: Path, where: Where, metadata: dict[str, str], rows: Rows, offset_ns: Callable[[], int], end_mark: EndMark
    ) -> None:
        self._end_mark = end_mark
        self._reason = ""
        self.wake = threading.Event()
        self.failed = False
        self._folder = folder
        self._name = f"the journal of broker {where.node_id} in {folder}"
        self._waiting = rows
        self._offset_ns = offset_ns
        self._schemas = {table: disk_schema(table, metadata) for table in ("frames", "events")}
        self._constants = Constants(where)
        self._values: dict[int, ContextValues] = {}
        self._contexts = Contexts(self._values)
        self._open: dict[str, OpenSegment] = {}
        self._began: dict[str, float] = {}
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"journal-{where.node_id}", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """Write and seal everything. Returns when it is done."""
        self._closing.set()
        self.wake.set()
        self._thread.join()

    def end(self, reason: str) -> None:
        """End the journal: no more rows are written. Can be called in any thread."""
        if not self.failed:
            self._reason = reason
            self.failed = True
            log.error("%s has ended: %s. The broker continues without it.", self._name, reason)

    def _run(self) -> None:
        marker, next_look = self._folder / SEAL, 0.0
        while not self.failed:
            self._closing.wait(APART_S)
            self.wake.wait(FLUSH_S - APART_S)
            self.wake.clear()
            closing = self._closing.is_set()
            try:
                self._write()
                now = time.monotonic()
                if now >= next_look:
                    next_look = now + 0.25
                    if marker.exists():
                        self._write()
                        self._seal(tuple(self._open))
                        marker.unlink(missing_ok=True)
                self._seal([t for t, s in self._open.items() if s.size >= SEGMENT_BYTES or now - self._began[t] >= SEGMENT_S])
                if closing and not self.failed:  # the loop may have ended the journal
                    self._seal(tuple(self._open))
                    self._end_mark.remove()
                    return
            except OSError as error:
                self.end(error.strerror or str(error))
            except Exception as error:  # noqa: BLE001 a bad row must not stop the broker
                self.end(f"{type(error).__name__}: {error}")
        for segment in self._open.values():
            segment.give_up()
        self._end_mark.say(self._reason)
        while not self._closing.is_set():  # further rows are dropped
            self._waiting.clear()
            self.wake.wait(FLUSH_S)
            self.wake.clear()
        self._waiting.clear()

    def _write(self) -> None:
        """Write all rows that wait now. Rows that arrive during the write are left for the next one, so that no table waits for the other.
        """
        waiting = self._waiting
        closed = waiting.closed_contexts[:]
        del waiting.closed_contexts[: len(closed)]
        frames, events = len(waiting.frames), len(waiting.events)
        last: tuple[str, pa.RecordBatch] | None = None
        while (frames > 0 or events > 0) and not self.failed:
            if events > 0:
                batch = self._events_batch(min(events, BATCH_ROWS))
                events -= batch.num_rows
                made = "events", batch
            else:
                batch = self._frames_batch(frames)
                frames -= batch.num_rows
                made = "frames", batch
            if last is not None:
                self._append(*last)
            last = made
        if last is not None:  # the last two batches are written together, so that a killed process loses the end of both tables, not of one
            self._append(*last)
        if closed:
            self._take_contexts()
            for number in closed:
                self._values.pop(number, None)

    def _events_batch(self, count: int) -> pa.RecordBatch:
        waiting = self._waiting
        events = waiting.events[:count]
        del waiting.events[:count]
        return events_batch(events, self._offset_ns(), self._constants, self._schemas["events"])

    def _frames_batch(self, most: int) -> pa.RecordBatch:
        waiting = self._waiting
        count = self._count(waiting.frames, most)
        breathe(0)
        taken, rows = waiting.frames[:count], waiting.rows[:count]
        del waiting.frames[:count]
        del waiting.rows[:count]
        frames = mask_all(rows, taken)
        breathe(0)
        self._take_contexts()
        return frames_batch(rows, frames, self._offset_ns(), self._contexts, self._constants, self._schemas["frames"])

    def _count(self, frames: list[bytes | UnmaskedFrame], most: int) -> int:
        """Number of frames for the next batch."""
        count = min(most, BATCH_ROWS)
        if sum(map(len, frames[:count])) <= BATCH_BYTES:
            return count
        size = 0
        for index in range(count):
            size += len(frames[index])
            if size > BATCH_BYTES:
                return max(index, 1)
        return count

    def _take_contexts(self) -> None:
        contexts = self._waiting.contexts
        taken = contexts[:]
        del contexts[: len(taken)]
        self._values.update(taken)

    def _append(self, table: str, batch: pa.RecordBatch) -> None:
        segment = self._open.get(table)
        if segment is None:
            segment = self._open[table] = OpenSegment(self._folder, table, batch.column("seq")[0].as_py(), self._schemas[table])
            self._began[table] = time.monotonic()
        segment.write(batch)

    def _seal(self, tables: tuple[str, ...] | list[str]) -> None:
        for table in tables:
            self._open.pop(table).seal()
            if table == "frames":
                self._contexts.clear()


