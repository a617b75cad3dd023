"""The journal of a broker: numbers the rows, and passes them to a thread that writes them.

    writer = JournalWriter(lake, "20261122T211500Z-a1b2", 1)       # raises JournalRefused
    tap = writer.connection(info)                                   # tap.received(data), tap.sent(data), tap.closed("peer")
    seq = writer.event("controller_elected", controller_epoch=3)
    writer.close()

If this broker has written in the same run before, the writer seals the old segments, increases `process` by one, and continues `seq`. The
folder is locked, so two writers cannot write for the same broker in the same run. All methods except the constructor and `close` must be
called in one thread, that of the event loop.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Set
from importlib import metadata
from pathlib import Path

from klamm.journal.batches import ContextValues, Where
from klamm.journal.connection import ConnectionJournal
from klamm.journal.disk import WAITING_BYTES, WAITING_ROWS, Disk, Rows
from klamm.journal.reading import open_segment, seal_folder
from klamm.journal.segments import LOCK, RETAINED, SEAL, EndMark, node_folder, segment_metadata, segment_of
from klamm.machine.folder_lock import lock_file
from klamm.protocol.exchanges.connections import ConnectionInfo, ConnectionKind
from klamm.seams.clock import SYSTEM_CLOCK, Clock

_MUCH = 1 << 20
"""A frame of this size is checked against the limit immediately."""

LOCK_S = 1.0
"""How long a writer waits for another writer that is ending, or for a reader that seals."""


class JournalRefused(Exception):
    """The journal cannot be written. The message is one line with the reason."""


class JournalWriter:
    """The journal of one process of one broker."""

    def __init__(
        self,
        folder: Path,
        run_id: str,
        node_id: int,
        *,
        clock: Clock = SYSTEM_CLOCK,
        frames: str | int | None = None,
        public_configs: Set[str] = frozenset(),
        is_midway: bool = False,
    ) -> None:
        """`folder` is the lake. `frames` is `full`, `headers`, a number of bytes of each frame, or None for everything except records.
        `public_configs` are names of configs whose values may be written. `is_midway`: the broker has run before, as it has behind a proxy,
        so what it was told then is not in the journal, which begins as one whose first row was removed. Raises JournalRefused.
        """
        if not run_id or "/" in run_id or run_id in (".", ".."):
            raise JournalRefused(f"{run_id!r} cannot be the name of a run: it names a folder")
        self.keeps = frames
        self.cuts_records = frames is None
        self.public_configs = public_configs
        waiting = self._waiting = Rows()
        self.rows = waiting.rows
        self.frames = waiting.frames
        self.events = waiting.events
        self.contexts = waiting.contexts
        self.closed_contexts = waiting.closed_contexts
        self.now_ns: Callable[[], int] = time.monotonic_ns if clock is SYSTEM_CLOCK else lambda: int(clock.monotonic() * 1e9)
        self._clock = clock
        self._folder = node_folder(folder, run_id, node_id)
        self._connection_number = 0
        self._context_number = 0
        self._by_id: dict[str, ConnectionJournal] = {}
        self._names: dict[int, tuple[str, int | None]] = {}
        self._channels: dict[int, ConnectionJournal] = {}
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._lock = _lock(self._folder, run_id, node_id)
        except OSError as error:
            raise JournalRefused(f"the journal cannot be written to {folder}: {error.strerror or error}") from error
        try:
            seal_folder(self._folder)
            process, last = _last_row(self._folder)
            if is_midway and not last:
                (self._folder / RETAINED).write_text("1")
                last = 1
            (self._folder / SEAL).unlink(missing_ok=True)
            end_mark = EndMark(self._folder, process + 1)
        except OSError as error:
            os.close(self._lock)
            raise JournalRefused(f"the journal cannot be written to {folder}: {error.strerror or error}") from error
        self.process = process + 1
        self.seq = last + 1
        """The number of the next row."""
        where = Where(run_id, node_id, self.process)
        started_ns = self._offset_ns() + self.now_ns()
        described = segment_metadata(run_id, node_id, self.process, started_ns, metadata.version("klamm"))
        self._disk = Disk(self._folder, where, described, waiting, self._offset_ns, end_mark)
        self._disk.start()

    @property
    def has_ended(self) -> bool:
        """Whether the disk has failed, so that nothing is written any more."""
        return self._disk.failed

    def event(
        self,
        kind: str,
        *,
        conn_id: int | None = None,
        topic: str | None = None,
        topic_id: str | None = None,
        partition: int | None = None,
        broker: int | None = None,
        controller_epoch: int | None = None,
        leader_epoch: int | None = None,
        partition_epoch: int | None = None,
        cause_seq: int | None = None,
        input: object = None,
        output: object = None,
    ) -> int:
        """Write an event and return its `seq`. `input` and `output` are JSON text, values that are not changed later, or functions that
        return one of these. The writing thread converts them to JSON (`json_text.py`).
        """
        seq = self.seq
        self.seq = seq + 1
        self.events.append((
            seq, self.now_ns(), kind, conn_id, topic, topic_id, partition, broker, controller_epoch, leader_epoch, partition_epoch,
            cause_seq, input, output,
        ))
        if not seq & 511:
            self.wake()
        return seq

    def connection(self, info: ConnectionInfo) -> ConnectionJournal:
        """The journal of a new connection. Also writes its `conn_open`."""
        kind = info.kind
        self._connection_number += 1
        made = ConnectionJournal(self, self._connection_number, info)
        self._names[made.conn_id] = info.id, info.peer_id
        self._by_id[info.id] = made
        if info.peer_id is not None and kind is ConnectionKind.CHANNEL:
            self._channels[info.peer_id] = made
        opened = {"kind": kind.value, "peer": info.peer, "listener": info.listener}
        self.event("conn_open", conn_id=made.conn_id, broker=info.peer_id, input=opened)
        return made

    def request_seq(self, connection_id: str, correlation_id: int) -> int | None:
        """The row of the latest request without a response on this connection that has this correlation id."""
        found = self._by_id.get(connection_id)
        return None if found is None else found.request_seq(correlation_id)

    def response_seq(self, broker_id: int) -> int | None:
        """The row of the last response on the controller's channel to this broker."""
        found = self._channels.get(broker_id)
        return None if found is None else found.last_response_seq

    def close(self) -> None:
        """Write and seal everything. A second call has no effect. Nothing may be written afterwards."""
        if self._lock >= 0:
            self._disk.close()
            os.close(self._lock)
            self._lock = -1

    # --- called by connections

    def new_context(self, values: ContextValues) -> int:
        """Add a context and return its number."""
        self._context_number += 1
        self.contexts.append((self._context_number, values))
        return self._context_number

    def connection_authenticated(self, conn_id: int, principal: str, mechanism: str) -> None:
        """Called when the peer of a connection has authenticated."""
        self.event("authenticated", conn_id=conn_id, output={"principal": principal, "mechanism": mechanism})

    def connection_closed(self, conn_id: int, by: str, reason: str | None) -> None:
        """Called when a connection is closed."""
        name = self._names.pop(conn_id, None)
        if name is not None:
            connection_id, peer_id = name
            self._by_id.pop(connection_id, None)
            if peer_id is not None and (channel := self._channels.get(peer_id)) is not None and channel.conn_id == conn_id:
                del self._channels[peer_id]
            self.event("conn_close", conn_id=conn_id, broker=peer_id, output={"by": by, "reason": reason})

    def wake(self, size: int = 0) -> None:
        """Let the thread write all waiting rows now, or end the journal if too many wait. `size` is the size of a large frame that is the
        reason.
        """
        self._disk.wake.set()
        if self._disk.failed:  # the thread may be blocked by the disk
            self._waiting.clear()
            return
        rows = len(self.frames) + len(self.events)
        if rows > WAITING_ROWS or ((rows > 16_384 or size > _MUCH) and sum(map(len, self.frames)) > WAITING_BYTES):
            self._disk.end(f"the disk is too slow: {rows} rows wait for it")

    def _offset_ns(self) -> int:
        if self._clock is SYSTEM_CLOCK:
            return time.time_ns() - time.monotonic_ns()
        return self._clock.now_ms() * 1_000_000 - self.now_ns()


def _lock(folder: Path, run_id: str, node_id: int) -> int:
    """A file descriptor with the lock of the folder. Raises JournalRefused."""
    lock = lock_file(folder / LOCK, LOCK_S)
    if lock is None:
        raise JournalRefused(f"another broker {node_id} is writing its journal of run {run_id} to {folder}")
    return lock


def _last_row(folder: Path) -> tuple[int, int]:
    """The last process number and the last `seq` in a folder; zeros if it is empty."""
    process = last = 0
    for table in ("frames", "events"):
        found = sorted((s for s in map(segment_of, folder.iterdir()) if s is not None and s.table == table), key=lambda s: s.first_seq)
        for segment in reversed(found):
            rows = 0
            for batch in open_segment(segment.path):
                rows += batch.num_rows
                if batch.num_rows:
                    last = max(last, batch.column("seq")[-1].as_py())
                    process = max(process, batch.column("process")[-1].as_py())
            if rows:
                break
    return process, last
