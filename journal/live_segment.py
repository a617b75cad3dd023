"""Reads a segment while it is written: each call returns the batches that became whole since the last one.

Arrow's reader does not go on after it has met the end of a file, so it is asked for a batch only when all of it is there: the messages of
the stream are looked at first, one by one, through another view of the file. The file stays open: that it is renamed when it is
sealed changes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from klamm.journal.reading import WRONG, metadata_of, present
from klamm.journal.segments import segment_of, table_schema

_MARK = b"\xff\xff\xff\xff"
_END = _MARK + bytes(4)


class GrowingSegment:
    """A segment that may grow."""

    def __init__(self, path: Path) -> None:
        """Raises FileNotFoundError: it was sealed, hence renamed, since it was listed."""
        segment = segment_of(path)
        self._schema = table_schema(segment.table if segment is not None else path.name.partition("-")[0])
        self._file = open(path, "rb")  # noqa: SIM115 it stays open until `close`
        self._messages = pa.PythonFile(self._file, mode="r")
        self._view = _View(self._file.fileno())
        self._stream: pa.RecordBatchStreamReader | None = None
        self._metadata: dict[str, str] = {}
        self._whole = 0
        self._has_ended = False

    @property
    def unread(self) -> int:
        """Bytes behind the last whole message; 0 where the stream has its end mark."""
        return 0 if self._has_ended else max(0, os.fstat(self._file.fileno()).st_size - self._whole)

    def new_batches(self) -> Iterator[pa.RecordBatch]:
        """What became whole since the last call, in the present columns. After damage nothing more comes."""
        while not self._has_ended:
            try:
                kind = self._next_message()
                if kind is None:
                    return
                if self._stream is None:
                    self._stream = pa.ipc.open_stream(pa.PythonFile(self._view, mode="r"))
                    self._metadata = metadata_of(self._stream.schema)
                elif kind == "record batch":
                    batch = self._stream.read_next_batch()
                    batch.validate(full=True)
                    yield present(batch, self._schema, self._metadata)
            except (*WRONG, StopIteration):
                return

    def _next_message(self) -> str | None:
        """The type of the next message, which is passed over; None where it is not whole."""
        start = os.pread(self._file.fileno(), 8, self._whole)
        self._has_ended = start == _END
        if len(start) < 8 or self._has_ended or not start.startswith(_MARK):
            return None
        self._messages.seek(self._whole)
        message = pa.ipc.read_message(self._messages)  # raises where bytes are missing
        self._whole = self._messages.tell()
        return str(message.type)

    def close(self) -> None:
        """Close the file."""
        self._stream = None
        self._file.close()


class _View:
    """A file as Arrow reads it, with a position of its own."""

    closed = False

    def __init__(self, number: int) -> None:
        self._number = number
        self._position = 0

    def read(self, size: int) -> bytes:
        """The next bytes."""
        data = os.pread(self._number, size, self._position)
        self._position += len(data)
        return data

    def tell(self) -> int:
        """Where the next bytes are read from."""
        return self._position

    def close(self) -> None:
        """The file is its owner's."""
