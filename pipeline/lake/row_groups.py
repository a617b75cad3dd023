"""Writes record batches, however small, to a Parquet file in row groups of a good size.

Reading a row group has a fixed cost. With one row group per batch of a journal (a tenth of a second of frames), reading a million frames
takes ten times as long. The file has a temporary name until it is complete, so that a killed run leaves nothing that looks like a table.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from klamm.machine.replaced_file import temporary_path

ROWS = 1 << 17
BYTES = 64 << 20
"""A row group is written when it has this number of rows or bytes."""


class RowGroups:
    """The row groups of one file. `close` completes and names the file; without rows there is no file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._unfinished = temporary_path(path)
        self._waiting: list[Any] = []
        self._rows = self._bytes = 0
        self._writer: Any = None
        self.rows = 0
        """Number of rows that were added."""

    def add(self, batch: Any) -> None:
        """Add a record batch; all batches have the same schema."""
        if not batch.num_rows:
            return
        self._waiting.append(batch)
        self._rows += batch.num_rows
        self._bytes += batch.nbytes
        self.rows += batch.num_rows
        if self._rows >= ROWS or self._bytes >= BYTES:
            self._write()

    def close(self) -> None:
        """Write the remaining rows and complete the file."""
        if self._waiting:
            self._write()
        if self._writer is not None:
            self._writer.close()
            self._unfinished.replace(self._path)

    def _write(self) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        batches, self._waiting = self._waiting, []
        self._rows = self._bytes = 0
        if self._writer is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = pq.ParquetWriter(self._unfinished, batches[0].schema, compression="zstd", compression_level=1)
        self._writer.write_table(pa.Table.from_batches(batches))
