"""The files of a journal: their names, their schemas, and one open segment.

    LAKE/journal/run=<run id>/node=<id>/frames-<first seq>.arrows        a sealed segment: an Arrow IPC stream
                                        frames-<first seq>.arrows.open   being written, or left by a process that was killed
                                        events-…                         the same for the other table
                                        lock                             locked (flock) by the writer that lives
                                        seal                             a request to the writer to seal; the writer removes it
                                        ended-<process>                  why the journal of a process ended before the process did

A segment is written under its name with `.open` and renamed when it is whole, so a name without it never changes any more. The first
row's `seq` has 20 digits in the name: names sort as rows do. Strings that repeat are dictionary-encoded on disk.

A writer makes its file `ended-` when it starts and fills it with blanks, so that it can say in it that the disk is full. It removes the
file when it closes: one that has blanks is that of a process that lives or was killed.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from klamm.journal.columns import EVENTS, FRAMES, VERSION, Column

log = logging.getLogger("klamm.journal.disk")

TABLES: Mapping[str, tuple[Column, ...]] = {"frames": FRAMES, "events": EVENTS}
OPEN = ".open"
LOCK = "lock"
SEAL = "seal"

ENCODED: Mapping[str, frozenset[str]] = {
    "frames": frozenset({"run_id", "kind", "listener", "peer", "principal", "client_id", "client_sw"}),
    "events": frozenset({"run_id", "kind"}),
}
"""The strings that are dictionary-encoded on disk."""

ENDED = "ended-"
ENDED_BYTES = 1024
"""Of the file that says why a journal ended early."""

_ENDED = re.compile(r"ended-([0-9]{1,10})")
_NAME = re.compile(r"(frames|events)-([0-9]{20})\.arrows(\.open)?")
_RUN = re.compile(r"run=(.+)")
_NODE = re.compile(r"node=([0-9]{1,10})")


class Segment(NamedTuple):
    """One file of rows."""

    run: str
    node: int
    table: str
    """`frames` or `events`."""
    path: Path
    first_seq: int
    """As the name says it."""
    sealed: bool

    @property
    def name(self) -> str:
        """The name that it has, or will have, when it is sealed."""
        return segment_name(self.table, self.first_seq)


def journal_folder(lake: Path) -> Path:
    """Where all journals of a lake are."""
    return lake / "journal"


def node_folder(lake: Path, run_id: str, node_id: int) -> Path:
    """Where one broker's journal of one run is."""
    return journal_folder(lake) / f"run={run_id}" / f"node={node_id}"


def segment_name(table: str, first_seq: int) -> str:
    """The name of a sealed segment."""
    return f"{table}-{first_seq:020d}.arrows"


def segment_of(path: Path) -> Segment | None:
    """The segment that is stored under this path; None when the path is not that of a segment."""
    name = _NAME.fullmatch(path.name)
    node = _NODE.fullmatch(path.parent.name)
    run = _RUN.fullmatch(path.parent.parent.name)
    if name is None or node is None or run is None:
        return None
    return Segment(run[1], int(node[1]), name[1], path, int(name[2]), name[3] is None)


def ended_process(path: Path) -> int | None:
    """The process whose early end this file is about; None where it is another file."""
    name = _ENDED.fullmatch(path.name)
    return None if name is None else int(name[1])


def is_part(path: Path) -> bool:
    """Whether a file in a broker's folder belongs to a journal, although it is no segment."""
    return path.name in (LOCK, SEAL) or ended_process(path) is not None


class EndMark:
    """The file in which a writer says that its journal ended early."""

    def __init__(self, folder: Path, process: int) -> None:
        """Make room for what it may have to say. Raises OSError."""
        for old in folder.glob(ENDED + "*"):
            if ended_process(old) is not None and not old.read_bytes().strip():
                old.unlink()
        self._path = folder / f"{ENDED}{process}"
        self._path.write_bytes(b" " * ENDED_BYTES)

    def say(self, reason: str) -> None:
        """Why no more rows are written; into the room that there is. A disk that refuses this too is left alone."""
        text = json.dumps({"reason": reason[: ENDED_BYTES // 8]})
        try:
            with self._path.open("r+b") as file:
                file.write(text.encode())
        except OSError as error:
            log.warning("%s cannot be written: %s", self._path, error.strerror)

    def remove(self) -> None:
        """All rows are written."""
        self._path.unlink(missing_ok=True)


def table_schema(table: str) -> pa.Schema:
    """A table as readers return it: plain columns, all of which may be null because an older journal may lack one."""
    return pa.schema([pa.field(column.name, pa.type_for_alias(column.type)) for column in TABLES[table]])


def disk_schema(table: str, metadata: Mapping[str, str]) -> pa.Schema:
    """A table as it is on disk."""
    encoded = ENCODED[table]
    fields = []
    for column in TABLES[table]:
        plain = pa.type_for_alias(column.type)
        fields.append(pa.field(column.name, pa.dictionary(pa.int32(), plain) if column.name in encoded else plain, column.nullable))
    return pa.schema(fields, dict(metadata))


def segment_metadata(run_id: str, node_id: int, process: int, started_ns: int, version: str) -> dict[str, str]:
    """What stands in the schema of each segment. `started_ns` is the wall clock at the start of the process; `version` that of Klamm."""
    return {
        "klamm.columns": str(VERSION), "run_id": run_id, "node_id": str(node_id), "process": str(process), "started_ns": str(started_ns),
        "klamm.version": version,
    }


class OpenSegment:
    """A segment that is being written. Whole batches are given to the kernel before `write` returns; nothing is fsynced."""

    def __init__(self, folder: Path, table: str, first_seq: int, schema: pa.Schema) -> None:
        """Raises FileExistsError: the caller does not hold the lock of the folder, or counts wrongly."""
        self.path = folder / (segment_name(table, first_seq) + OPEN)
        self.path.touch(exist_ok=False)
        self._file = pa.OSFile(str(self.path), "wb")
        self._buffer = pa.BufferedOutputStream(self._file, 1 << 20)
        self._writer = pa.ipc.new_stream(self._buffer, schema)
        self._whole = 0
        self.rows = 0

    @property
    def size(self) -> int:
        """Bytes written."""
        return self._whole

    def write(self, batch: pa.RecordBatch) -> None:
        """Append a batch. Raises OSError, for example when the disk is full."""
        self._writer.write_batch(batch)
        self._buffer.flush()
        self._whole = self._file.tell()
        self.rows += batch.num_rows

    def seal(self) -> Path:
        """End the stream and give the segment its final name."""
        self._writer.close()
        self._buffer.close()
        self._file.close()
        return self._rename()

    def give_up(self) -> None:
        """After `write` or `seal` failed: seal what is whole, without end mark."""
        try:
            self._buffer.close()  # and the file; writes again what could not be written, which is cut off then
        except (OSError, pa.ArrowException):
            pass
        try:
            self._file.close()
            os.truncate(self.path, self._whole)
            if self.rows:
                self._rename()
        except OSError:  # the disk is in no state to do even this; the next run that seals leftovers will
            pass

    def abandon(self) -> None:
        """Close the file and leave it as it is, as a process that is killed does."""
        self._buffer.flush()
        self._file.close()

    def _rename(self) -> Path:
        final = self.path.with_name(self.path.name.removesuffix(OPEN))
        self.path.rename(final)
        return final
