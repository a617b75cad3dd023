"""Writes record batches, however small, to a Parquet file in row groups of a good size.

A reader pays for each row group, whatever it holds: one for each batch of a journal (a tenth of a second of frames) makes a million frames
ten times as dear to read. The file has another name until it is whole, so that a killed run leaves nothing that looks like a table.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from klamm.machine.replaced_file import temporary_path

ROWS = 1 << 17
BYTES = 64 << 20
"""A row group is written when it has this number of rows or bytes."""


class RowGroups:
    """The row groups of one file. `close` gives the file its name; without a row there is no file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._unfinished = temporary_path(path)
        self._waiting: list[Any] = []
        self._rows = self._bytes = 0
        self._writer: Any = None
        self.rows = 0
        """That were added."""

    def add(self, batch: Any) -> None:
        """A record batch; all have one schema."""
        if not batch.num_rows:
            return
        self._waiting.append(batch)
        self._rows += batch.num_rows
        self._bytes += batch.nbytes
        self.rows += batch.num_rows
        if self._rows >= ROWS or self._bytes >= BYTES:
            self._write()

    def close(self) -> None:
        """Write what waits, and end the file."""
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
