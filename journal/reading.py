"""Reads journals: lists segments and reads their rows, including those of killed processes and older versions.

A reader returns the current columns: columns that an older segment does not have are null, unknown columns are left out, and
dictionary-encoded strings become plain strings. A segment with a damaged end is read up to its last complete batch.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from klamm.journal.segments import (
    CHECKSUM,
    CHECKSUM_ALONE,
    ENDED,
    LOCK,
    OPEN,
    RETAINED,
    SCHEMA_LIMIT,
    SEAL,
    Segment,
    checksum,
    ended_process,
    journal_folder,
    schema_checksum,
    segment_of,
    table_schema,
)

WRONG = (pa.ArrowException, OSError, ValueError, KeyError, TypeError)
"""Exceptions of pyarrow for bytes that are not a valid stream."""


class SegmentReader:
    """The rows of a segment in batches. Iterate only once. Afterwards `torn` is the reason why it ended before its end mark, or None.

    `metadata` is the schema's information about the writer; empty if even the schema is damaged.
    """

    def __init__(self, path: Path, table: str | None = None) -> None:
        """`table` is needed only if the path is not that of a segment in a lake."""
        segment = segment_of(path)
        self.path = path
        self.table = table if table is not None else segment.table if segment is not None else path.name.partition("-")[0]
        self.schema = table_schema(self.table)
        self.metadata: dict[str, str] = {}
        self.torn: str | None = None
        self._batches = self._read()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self._batches

    def __next__(self) -> pa.RecordBatch:
        return next(self._batches)

    def _read(self) -> Iterator[pa.RecordBatch]:
        try:
            size = self.path.stat().st_size
            source = pa.memory_map(str(self.path)) if size else pa.BufferReader(b"")
            of_schema = schema_checksum(source.read_at(min(size, SCHEMA_LIMIT), 0))
            with source, pa.ipc.open_stream(source) as stream:
                self.metadata = metadata_of(stream.schema)
                while True:
                    try:
                        batch = sound_batch(stream, of_schema)
                    except StopIteration:
                        break
                    except BadChecksum as bad:  # the next batch is where this one ends
                        self.torn = str(bad)
                        continue
                    yield present(batch, self.schema, self.metadata)
                if source.tell() < size:
                    self.torn = f"{size - source.tell()} bytes after the end mark"
                elif self.torn is None and not _has_end_mark(self.path, size):
                    self.torn = "no end mark"
        except FileNotFoundError:
            raise
        except WRONG as error:
            self.torn = " ".join(str(error).split()) or type(error).__name__


class BadChecksum(ValueError):
    """The rows of a batch are not those that were written."""


def sound_batch(stream: pa.RecordBatchStreamReader, of_schema: int) -> pa.RecordBatch:
    """The next batch of a stream whose schema message has this checksum. Raises StopIteration at its end, BadChecksum, and `WRONG` for
    other damage."""
    batch, about = stream.read_next_batch_with_custom_metadata()
    for key, start in ((CHECKSUM, of_schema), (CHECKSUM_ALONE, 0)):
        told = None if about is None else about.get(key)
        if told is not None and checksum(batch, start) != _text(told):
            raise BadChecksum(f"a batch of {batch.num_rows} rows has another checksum than was written")
    batch.validate(full=True)
    return batch


def present(batch: pa.RecordBatch, schema: pa.Schema, metadata: Mapping[str, str]) -> pa.RecordBatch:
    """The batch with the columns of `schema`, which are the current ones."""
    arrays = []
    for field in schema:
        index = batch.schema.get_field_index(field.name)
        if index >= 0:
            array = batch.column(index)
            if pa.types.is_dictionary(array.type):
                array = array.dictionary_decode()
            arrays.append(array if array.type == field.type else array.cast(field.type))
        elif field.name in metadata:  # the same value for the whole segment
            arrays.append(pa.repeat(pa.scalar(metadata[field.name]).cast(field.type), batch.num_rows))
        else:
            arrays.append(pa.nulls(batch.num_rows, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def written_by(path: Path) -> dict[str, str]:
    """What the schema of a segment says about its writer: `run_id`, `node_id`, … Empty if the schema is damaged."""
    try:
        with pa.OSFile(str(path)) as source, pa.ipc.open_stream(source) as stream:
            return metadata_of(stream.schema)
    except WRONG:
        return {}


def metadata_of(schema: pa.Schema) -> dict[str, str]:
    """The information about the writer in the schema of a segment."""
    return {_text(key): _text(value) for key, value in (schema.metadata or {}).items()}


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _has_end_mark(path: Path, size: int) -> bool:
    with open(path, "rb") as file:
        file.seek(max(0, size - 8))
        return file.read() == b"\xff\xff\xff\xff\x00\x00\x00\x00"


def open_segment(path: Path) -> SegmentReader:
    """The rows of a segment with the current columns. Raises FileNotFoundError if it was sealed, and therefore renamed, after it was
    listed.
    """
    if not path.exists():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    return SegmentReader(path)


def count_rows(path: Path) -> int:
    """The number of rows in the whole batches of a segment. Their columns are not looked at."""
    rows = 0
    try:
        with pa.memory_map(str(path)) as source, pa.ipc.open_stream(source) as stream:
            while True:
                rows += stream.read_next_batch().num_rows
    except (StopIteration, *WRONG):
        return rows


def last_number(segment: Segment) -> int:
    """The number of the last row in the whole batches of a segment; that before its first one if there is none. Other columns are not
    looked at."""
    last = segment.first_seq - 1
    try:
        with pa.memory_map(str(segment.path)) as source, pa.ipc.open_stream(source) as stream:
            while True:
                numbers = stream.read_next_batch().column("seq")
                last = numbers[-1].as_py() if len(numbers) else last
    except (StopIteration, *WRONG):
        return last


def segments(lake: Path) -> list[Segment]:
    """All segments of a lake, sorted by run, node, table and first row; empty for a missing lake. Other files are skipped."""
    found = (segment_of(path) for path in journal_folder(lake).glob("run=*/node=*/*"))
    return sorted((segment for segment in found if segment is not None), key=place_of)


def place_of(segment: Segment) -> tuple[str, int, str, int, str]:
    """What segments are sorted by: run, node, table and first row."""
    return segment.run, segment.node, segment.table, segment.first_seq, segment.path.name


def node_folders(lake: Path) -> list[Path]:
    """The folders of all brokers in all runs of a lake."""
    return sorted(path for path in journal_folder(lake).glob("run=*/node=*") if path.is_dir())


@contextmanager
def locked(folder: Path) -> Iterator[bool]:
    """A context that holds the lock of a broker's folder. It yields False, and holds no lock, if a broker is writing there."""
    try:
        lock = os.open(folder / LOCK, os.O_RDONLY)
    except FileNotFoundError:  # no broker has written here, or the folder was copied without the lock file
        yield True
        return
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True
    finally:
        os.close(lock)


def is_written(folder: Path) -> bool:
    """Whether a broker is writing to this folder."""
    with locked(folder) as free:
        return not free


def early_ends(folder: Path) -> dict[int, str]:
    """Process → why its journal ended before the process, from the files in the broker's folder."""
    ends: dict[int, str] = {}
    for path in folder.glob(ENDED + "*"):
        process = ended_process(path)
        try:
            said = json.loads(path.read_bytes()) if process is not None else None
        except (OSError, ValueError):  # only spaces: no reason was written
            continue
        if process is not None and isinstance(said, dict) and isinstance(said.get("reason"), str):
            ends[process] = said["reason"]
    return dict(sorted(ends.items()))


def retained_to(folder: Path) -> int:
    """The number up to which retention may have removed rows of a broker's journal; 0 if it never did."""
    try:
        return int(json.loads((folder / RETAINED).read_bytes()))
    except (OSError, ValueError, TypeError):
        return 0


def seal_leftovers(lake: Path) -> list[Segment]:
    """Seal segments that ended processes left open. Returns these segments with their new names.

    Segments of running writers are not changed. Nothing is changed on a read-only disk either; `.open` files can be read as they are.
    """
    sealed: list[Segment] = []
    for folder in node_folders(lake):
        with locked(folder) as free:
            if free:
                sealed += seal_folder(folder)
    return sealed


def seal_folder(folder: Path) -> list[Segment]:
    """Seal the open segments of one folder. The caller holds its lock. A segment without a complete row gets a name with `.torn`."""
    sealed: list[Segment] = []
    for path in sorted(folder.glob("*" + OPEN)):
        segment = segment_of(path)
        if segment is None:
            continue
        final = path.with_name(segment.name)
        has_rows = any(batch.num_rows for batch in open_segment(path))
        if not has_rows or final.exists():
            final = path.with_name(segment.name + ".torn")
        try:
            path.rename(final)
        except OSError as error:
            if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
                return sealed
            raise
        if final.suffix != ".torn":
            sealed.append(segment._replace(path=final, sealed=True))
    return sealed


def ask_to_seal(lake: Path, wait_s: float = 5.0) -> list[Path]:
    """Request running writers to seal their segments, and wait until they have. Returns the folders of those that did not in time.

    On a read-only disk nothing is requested.
    """
    asked: list[Path] = []
    for folder in node_folders(lake):
        if is_written(folder):
            try:
                (folder / SEAL).touch()
            except OSError:
                return []
            asked.append(folder)
    end = time.monotonic() + wait_s
    while asked and time.monotonic() < end:
        asked = [folder for folder in asked if (folder / SEAL).exists() and is_written(folder)]
        if asked:
            time.sleep(0.02)
    return asked
