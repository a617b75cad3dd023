"""Reads journals: which segments there are, and their rows, whatever a killed process or an older version left.

A reader returns the present columns: those that an older segment lacks are null, those that it has beyond are left out, and
dictionary-encoded strings are plain. A segment whose end is torn is read up to its last whole batch.
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

from klamm.journal.segments import ENDED, LOCK, OPEN, SEAL, Segment, ended_process, journal_folder, segment_of, table_schema

WRONG = (pa.ArrowException, OSError, ValueError, KeyError, TypeError)
"""What pyarrow raises for bytes that are no stream."""


class SegmentReader:
    """The rows of a segment, batch by batch; iterate once. `torn` is then why it ended before its end mark, or None.

    `metadata` is what the schema says of the writer, empty where even the schema is torn.
    """

    def __init__(self, path: Path, table: str | None = None) -> None:
        """`table` is needed only where the path is not that of a segment in a lake."""
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
            with source, pa.ipc.open_stream(source) as stream:
                self.metadata = metadata_of(stream.schema)
                while True:
                    try:
                        batch = stream.read_next_batch()
                    except StopIteration:
                        break
                    batch.validate(full=True)
                    yield present(batch, self.schema, self.metadata)
                if source.tell() < size:
                    self.torn = f"{size - source.tell()} bytes after the end mark"
                elif not _has_end_mark(self.path, size):
                    self.torn = "no end mark"
        except FileNotFoundError:
            raise
        except WRONG as error:
            self.torn = " ".join(str(error).split()) or type(error).__name__


def present(batch: pa.RecordBatch, schema: pa.Schema, metadata: Mapping[str, str]) -> pa.RecordBatch:
    """The batch with the columns of `schema`, the present ones."""
    arrays = []
    for field in schema:
        index = batch.schema.get_field_index(field.name)
        if index >= 0:
            array = batch.column(index)
            if pa.types.is_dictionary(array.type):
                array = array.dictionary_decode()
            arrays.append(array if array.type == field.type else array.cast(field.type))
        elif field.name in metadata:  # of the whole segment
            arrays.append(pa.repeat(pa.scalar(metadata[field.name]).cast(field.type), batch.num_rows))
        else:
            arrays.append(pa.nulls(batch.num_rows, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def metadata_of(schema: pa.Schema) -> dict[str, str]:
    """What the schema of a segment says of its writer."""
    return {_text(key): _text(value) for key, value in (schema.metadata or {}).items()}


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _has_end_mark(path: Path, size: int) -> bool:
    with open(path, "rb") as file:
        file.seek(max(0, size - 8))
        return file.read() == b"\xff\xff\xff\xff\x00\x00\x00\x00"


def open_segment(path: Path) -> SegmentReader:
    """The rows of a segment in the present column set. Raises FileNotFoundError: it was sealed, hence renamed, since it was listed."""
    if not path.exists():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    return SegmentReader(path)


def segments(lake: Path) -> list[Segment]:
    """All segments of a lake, by run, node, table and first row. An empty or missing lake has none; other files are passed over."""
    found = (segment_of(path) for path in journal_folder(lake).glob("run=*/node=*/*"))
    return sorted((segment for segment in found if segment is not None), key=lambda s: (s.run, s.node, s.table, s.first_seq, s.path.name))


def node_folders(lake: Path) -> list[Path]:
    """The folders of all brokers in all runs of a lake."""
    return sorted(path for path in journal_folder(lake).glob("run=*/node=*") if path.is_dir())


@contextmanager
def locked(folder: Path) -> Iterator[bool]:
    """Hold the lock of a broker's folder meanwhile; yields False, and holds nothing, when a writer lives there."""
    try:
        lock = os.open(folder / LOCK, os.O_RDONLY)
    except FileNotFoundError:  # nobody wrote here, or the folder was copied without it
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
    """Whether a writer lives in this broker's folder."""
    with locked(folder) as free:
        return not free


def early_ends(folder: Path) -> dict[int, str]:
    """Process → why its journal ended before it did, as the broker's folder says it."""
    ends: dict[int, str] = {}
    for path in folder.glob(ENDED + "*"):
        process = ended_process(path)
        try:
            said = json.loads(path.read_bytes()) if process is not None else None
        except (OSError, ValueError):  # blanks: nothing was said
            continue
        if process is not None and isinstance(said, dict) and isinstance(said.get("reason"), str):
            ends[process] = said["reason"]
    return dict(sorted(ends.items()))


def seal_leftovers(lake: Path) -> list[Segment]:
    """Seal what processes that are gone left open; returns those segments under their new names.

    Nothing happens to the segments of living writers, nor on a disk that cannot be written: their `.open` files can be read as they are.
    """
    sealed: list[Segment] = []
    for folder in node_folders(lake):
        with locked(folder) as free:
            if free:
                sealed += seal_folder(folder)
    return sealed


def seal_folder(folder: Path) -> list[Segment]:
    """Seal the open segments of one folder; the caller holds its lock. One without a whole row gets a name with `.torn`."""
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
    """Ask living writers to seal what they have, and wait until they did; returns the folders of those that did not in time.

    On a disk that cannot be written nobody is asked.
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
