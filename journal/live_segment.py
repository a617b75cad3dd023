"""Reads a segment while it is being written: each call returns the batches that were completed since the last call.

Arrow's reader cannot continue after it has reached the end of a file. So it reads a batch only if the batch is complete: the messages of
the stream are first checked one by one, through another view of the file. The file stays open, so its renaming when it is sealed does not
matter.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from klamm.journal.reading import WRONG, BadChecksum, metadata_of, present, sound_batch
from klamm.journal.segments import SCHEMA_LIMIT, schema_checksum, segment_of, table_schema

_MARK = b"\xff\xff\xff\xff"
_END = _MARK + bytes(4)


class GrowingSegment:
    """A segment that a writer may extend."""

    def __init__(self, path: Path) -> None:
        """Raises FileNotFoundError if it was sealed, and therefore renamed, after it was listed."""
        segment = segment_of(path)
        self._schema = table_schema(segment.table if segment is not None else path.name.partition("-")[0])
        self._file = open(path, "rb")  # noqa: SIM115 open until `close`
        self._messages = pa.PythonFile(self._file, mode="r")
        self._view = _View(self._file.fileno())
        self._stream: pa.RecordBatchStreamReader | None = None
        self._metadata: dict[str, str] = {}
        self._of_schema = 0
        self._whole = 0
        self._has_ended = False

    @property
    def unread(self) -> int:
        """Bytes after the last complete message; 0 if the stream has its end mark."""
        return 0 if self._has_ended else max(0, os.fstat(self._file.fileno()).st_size - self._whole)

    def new_batches(self) -> Iterator[pa.RecordBatch]:
        """The batches that were completed since the last call, with the current columns. After damaged data there are no more."""
        while not self._has_ended:
            try:
                kind = self._next_message()
                if kind is None:
                    return
                if self._stream is None:
                    self._stream = pa.ipc.open_stream(pa.PythonFile(self._view, mode="r"))
                    self._metadata = metadata_of(self._stream.schema)
                    self._of_schema = schema_checksum(os.pread(self._file.fileno(), SCHEMA_LIMIT, 0))
                elif kind == "record batch":
                    yield present(sound_batch(self._stream, self._of_schema), self._schema, self._metadata)
            except BadChecksum:
                continue
            except (*WRONG, StopIteration):
                return

    def _next_message(self) -> str | None:
        """The type of the next message, which is then skipped; None if it is incomplete."""
        start = os.pread(self._file.fileno(), 8, self._whole)
        self._has_ended = start == _END
        if len(start) < 8 or self._has_ended or not start.startswith(_MARK):
            return None
        self._messages.seek(self._whole)
        message = pa.ipc.read_message(self._messages)  # raises if bytes are missing
        self._whole = self._messages.tell()
        return str(message.type)

    def close(self) -> None:
        """Close the file."""
        self._stream = None
        self._file.close()


class _View:
    """A view of a file for Arrow, with its own position."""

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
        """The position of the next bytes."""
        return self._position

    def close(self) -> None:
        """Nothing to do: the owner closes the file."""
