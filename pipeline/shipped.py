"""Segments that brokers put into a lake as bronze: how a segment is packed, and how those that nobody has committed are found.

A segment is one object, `bronze/TABLE/run=RUN/node=ID/SEGMENT.parquet`. It is put if it is absent, so it is there as a whole or not at all,
and once. Its end says what a commit of bronze has to know, so that no row is read to commit it.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Container
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

from klamm.journal.segments import TABLES, Segment
from klamm.pipeline.lake.bronze import SEGMENT, WRITER, Converted, convert_into
from klamm.pipeline.lake.folder import PipelineFailed
from klamm.pipeline.lake.parquet_files import told
from klamm.pipeline.lake.row_numbers import Span
from klamm.pipeline.lake.store import NewFile, Store

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import parquet

log = logging.getLogger(__name__)

END = 1 << 16
"""Bytes at the end of a file that are read first; what a file says of itself is seldom longer."""

_NAME = re.compile(r"bronze/(?P<table>frames|events)/run=(?P<run>[^/]+)/(?P<batch>node=[0-9]+/(?P=table)-[0-9]{20})\.parquet")


class Packed(NamedTuple):
    """A segment as an object of a lake. One without rows has no data."""

    name: str
    data: bytes
    rows: int


class _File(NewFile):
    """A file in memory."""

    def __init__(self) -> None:
        import pyarrow as pa

        self.sink: pa.NativeFile = pa.BufferOutputStream()
        self.data = b""

    def complete(self) -> int:
        """Keep the bytes; returns how many."""
        self.data = self.sink.getvalue().to_pybytes()
        return len(self.data)


class _Memory(Store):
    """A place for one file, in memory."""

    def __init__(self) -> None:
        super().__init__("")
        self.file = _File()

    def __new__(cls) -> _Memory:
        return object.__new__(cls)

    def create(self, name: str) -> NewFile:
        """The file."""
        return self.file


def packed(segment: Segment) -> Packed:
    """A segment as bronze, in memory. Raises PipelineFailed, as `bronze.convert`."""
    memory = _Memory()
    converted = convert_into(memory, segment)
    return Packed(converted.path, memory.file.data, converted.rows)


def put(store: Store, segment: Segment, made: Packed) -> None:
    """Put a packed segment into a lake, unless it is there. Raises OtherRows, and PipelineFailed or OSError if the store fails."""
    if not made.rows or store.put_new(made.name, made.data):
        return
    there = _end(store, made.name)
    ours, theirs = _said(_metadata(made.data)), {} if there is None else _said(there)
    if any(ours.get(each) != theirs.get(each) for each in (*WRITER, "rows")):  # another Klamm may have written the same rows
        raise OtherRows(
            f"{store}/{made.name} has rows of another process of broker {segment.node} in this run; a broker whose journal begins again "
            "needs a run of its own (klamm.journal.run)"
        )


class OtherRows(PipelineFailed):
    """The lake has something else under the name of a segment."""


def waiting(lake: Path | str, done: Container[tuple[str, str]]) -> list[Converted]:
    """The segments that were put into a lake and are not committed, by name. `done` has (run, batch) of those that are."""
    store, found = Store(lake), []
    for table in TABLES:
        for name in store.names(f"bronze/{table}", ".parquet"):
            parts = _NAME.fullmatch(name)
            if parts is None or (unquote(parts["run"]), f"{parts['batch']}.arrows") in done:
                continue
            one = _converted(store, name, parts)
            if one is not None:
                found.append(one)
    return found


def _converted(store: Store, name: str, parts: re.Match[str]) -> Converted | None:
    """What the end of a file says; None if it was not put there by a broker, is damaged or gone."""
    try:
        about = _end(store, name)
    except OtherRows as problem:
        _tell(str(problem))
        return None
    said = {} if about is None else _said(about)
    if about is None or not said:
        return None
    size = store.size(name)
    if size is None:
        return None
    end = told(about, size)
    spans = None if said["spans"] is None else [Span(*span) for span in said["spans"]]
    return Converted(
        parts["table"], unquote(parts["run"]), f"{parts['batch']}.arrows", name, end.rows, said["torn"], end.first_ts_ns, end.last_ts_ns,
        spans, end.bytes, end.statistics,
    )


def _said(about: parquet.FileMetaData) -> dict[str, Any]:
    """What bronze says of its segment; empty if an older Klamm wrote it."""
    said: dict[str, Any] = json.loads((about.metadata or {}).get(SEGMENT.encode(), b"{}"))
    return said


def _end(store: Store, name: str) -> parquet.FileMetaData | None:
    """The end of a file, which alone is read; None if there is none. Raises OtherRows if it is damaged."""
    import pyarrow as pa

    end = store.end(name, END)
    if end is None:
        return None
    needed = int.from_bytes(end[-8:-4], "little") + 8
    try:
        return _metadata(end if needed <= len(end) else store.end(name, needed) or end)
    except (OSError, pa.ArrowException) as problem:
        remedy = "remove it, and its segment is put again if a journal has it"
        raise OtherRows(f"{store.address(name)} is damaged ({problem}): {remedy}") from problem


@cache
def _tell(problem: str) -> None:
    """Tell it once."""
    log.warning("%s", problem)


def _metadata(data: bytes) -> parquet.FileMetaData:
    import pyarrow as pa
    import pyarrow.parquet as pq

    return pq.read_metadata(pa.BufferReader(data))
