"""The files of a journal: their names and schemas, and the writer of a segment.

    LAKE/journal/run=<run id>/node=<id>/
        frames-<first seq>.arrows        a sealed segment: an Arrow IPC stream
        frames-<first seq>.arrows.open   being written, or left by a process that was killed
        events-…                         the same for the other table
        lock                             locked (flock) by the running writer
        seal                             requests the writer to seal its segments; the writer removes it
        ended-<process>                  why the journal of a process ended before the process

A segment is written with the suffix `.open` and renamed when it is complete, so a file without the suffix never changes. The name has the
`seq` of the first row with 20 digits, so names sort like rows. Repeated strings are dictionary-encoded on disk.

The file `retained` has the number up to which `klamm pipeline retain` may have removed rows, `shipped` the segments that
`klamm journal ship` has put into a store.

A writer creates its file `ended-` at its start and fills it with spaces, so that it can write the reason even if the disk is full. It
removes the file when it is closed. So a file with only spaces belongs to a running or killed process.
"""

from __future__ import annotations

import json
import logging
import os
import re
import zlib
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
RETAINED = "retained"
"""File with the number up to which retention may have removed rows (`klamm pipeline retain`)."""
SHIPPED = "shipped"
"""File with the segments that are in another place too (`klamm journal ship`): a line for each, its name and the place."""

ENCODED: Mapping[str, frozenset[str]] = {
    "frames": frozenset({"run_id", "kind", "listener", "peer", "principal", "client_id", "client_sw"}),
    "events": frozenset({"run_id", "kind"}),
}
"""String columns that are dictionary-encoded on disk."""

CHECKSUM = "crc32.schema"
"""Key of the metadata of a batch that has its `checksum`, with that of the schema message before it."""
CHECKSUM_ALONE = "crc32"
"""The same without the schema, as older journals have it. Still older ones have none."""

SCHEMA_LIMIT = 1 << 16
"""A schema message is shorter."""

ENDED = "ended-"
ENDED_BYTES = 1024
"""Size of the file with the reason why a journal ended early."""

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
    """The number of the first row, from the name."""
    sealed: bool

    @property
    def name(self) -> str:
        """The name of the segment after it is sealed."""
        return segment_name(self.table, self.first_seq)


def journal_folder(lake: Path) -> Path:
    """The folder of all journals of a lake."""
    return lake / "journal"


def node_folder(lake: Path, run_id: str, node_id: int) -> Path:
    """The folder of one broker's journal in one run."""
    return journal_folder(lake) / f"run={run_id}" / f"node={node_id}"


def segment_name(table: str, first_seq: int) -> str:
    """The name of a sealed segment."""
    return f"{table}-{first_seq:020d}.arrows"


def segment_number(name: str) -> int | None:
    """The number of the first row of the segment with this name; None if it is not the name of a segment."""
    parts = _NAME.fullmatch(name)
    return None if parts is None else int(parts[2])


def segment_of(path: Path) -> Segment | None:
    """The segment with this path; None if it is not the path of a segment."""
    name = _NAME.fullmatch(path.name)
    node = _NODE.fullmatch(path.parent.name)
    run = _RUN.fullmatch(path.parent.parent.name)
    if name is None or node is None or run is None:
        return None
    return Segment(run[1], int(node[1]), name[1], path, int(name[2]), name[3] is None)


def ended_process(path: Path) -> int | None:
    """The process whose early end this file describes; None for other files."""
    name = _ENDED.fullmatch(path.name)
    return None if name is None else int(name[1])


def is_part(path: Path) -> bool:
    """Whether a file in a broker's folder belongs to a journal, but is not a segment."""
    return path.name in (LOCK, SEAL, RETAINED, SHIPPED) or ended_process(path) is not None


class EndMark:
    """The file with the reason why a journal ended early."""

    def __init__(self, folder: Path, process: int) -> None:
        """Create the file and reserve its space. Raises OSError."""
        for old in folder.glob(ENDED + "*"):
            if ended_process(old) is not None and not old.read_bytes().strip():
                old.unlink()
        self._path = folder / f"{ENDED}{process}"
        self._path.write_bytes(b" " * ENDED_BYTES)

    def say(self, reason: str) -> None:
        """Write the reason into the reserved space. If the disk refuses this too, it is only logged."""
        text = json.dumps({"reason": reason[: ENDED_BYTES // 8]})
        try:
            with self._path.open("r+b") as file:
                file.write(text.encode())
        except OSError as error:
            log.warning("%s cannot be written: %s", self._path, error.strerror)

    def remove(self) -> None:
        """Remove the file, because all rows were written."""
        self._path.unlink(missing_ok=True)


def table_schema(table: str) -> pa.Schema:
    """The schema of a table for readers: plain columns, all nullable because an older journal may not have them."""
    return pa.schema([pa.field(column.name, pa.type_for_alias(column.type)) for column in TABLES[table]])


def disk_schema(table: str, metadata: Mapping[str, str]) -> pa.Schema:
    """The schema of a table on disk."""
    encoded = ENCODED[table]
    fields = []
    for column in TABLES[table]:
        plain = pa.type_for_alias(column.type)
        fields.append(pa.field(column.name, pa.dictionary(pa.int32(), plain) if column.name in encoded else plain, column.nullable))
    return pa.schema(fields, dict(metadata))


def segment_metadata(run_id: str, node_id: int, process: int, started_ns: int, version: str) -> dict[str, str]:
    """The metadata in the schema of each segment. `started_ns` is the wall clock at the start of the process, `version` that of Klamm."""
    return {
        "klamm.columns": str(VERSION), "run_id": run_id, "node_id": str(node_id), "process": str(process), "started_ns": str(started_ns),
        "klamm.version": version,
    }


def schema_checksum(start: bytes) -> int:
    """The CRC-32 of the schema message with which a segment begins. `start` are the segment's first `SCHEMA_LIMIT` bytes, or all."""
    return zlib.crc32(start[: 8 + int.from_bytes(start[4:8], "little")])


def checksum(batch: pa.RecordBatch, value: int = 0) -> str:
    """The CRC-32 of a batch as it is on disk, with the dictionaries of its columns: 8 hexadecimal digits. It goes on from `value`."""
    value = zlib.crc32(batch.serialize(), value)
    for column in batch.columns:
        if pa.types.is_dictionary(column.type):
            value = zlib.crc32(pa.RecordBatch.from_arrays([column.dictionary], ["values"]).serialize(), value)
    return f"{value:08x}"


def _stream_without_rows(schema: pa.Schema) -> bytes:
    with pa.BufferOutputStream() as sink:
        pa.ipc.new_stream(sink, schema).close()
        return sink.getvalue().to_pybytes()


class OpenSegment:
    """A segment that is being written. `write` passes a complete batch to the kernel; nothing is fsynced."""

    def __init__(self, folder: Path, table: str, first_seq: int, schema: pa.Schema) -> None:
        """Raises FileExistsError if the caller does not hold the lock of the folder or uses a wrong number."""
        self.path = folder / (segment_name(table, first_seq) + OPEN)
        self.path.touch(exist_ok=False)
        self._file = pa.OSFile(str(self.path), "wb")
        self._buffer = pa.BufferedOutputStream(self._file, 1 << 20)
        self._writer = pa.ipc.new_stream(self._buffer, schema)
        self._schema_checksum = schema_checksum(_stream_without_rows(schema))
        self._whole = 0
        self.rows = 0

    @property
    def size(self) -> int:
        """Number of bytes written."""
        return self._whole

    def write(self, batch: pa.RecordBatch) -> None:
        """Append a batch. Raises OSError, for example if the disk is full."""
        self._writer.write_batch(batch, {CHECKSUM: checksum(batch, self._schema_checksum)})
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
        """Called if `write` or `seal` failed: keep the complete batches, without an end mark."""
        try:
            self._buffer.close()  # also closes the file, and retries the failed write, whose bytes are then truncated
        except (OSError, pa.ArrowException):
            pass
        try:
            self._file.close()
            os.truncate(self.path, self._whole)
            if self.rows:
                self._rename()
        except OSError:  # not possible on this disk now; `seal_leftovers` will do it later
            pass

    def abandon(self) -> None:
        """Close the file without sealing it, as if the process had been killed."""
        self._buffer.flush()
        self._file.close()

    def _rename(self) -> Path:
        final = self.path.with_name(self.path.name.removesuffix(OPEN))
        self.path.rename(final)
        return final
