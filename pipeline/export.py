"""Writes rows of a journal to files, frames decoded: lines of JSON, or Parquet. Only a part of the rows is in memory at a time.

A file is written under a temporary name, and renamed when it is complete.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from klamm.journal.rows import Row
from klamm.journal.segments import table_schema
from klamm.machine.replaced_file import replacing, temporary_path
from klamm.pipeline.decode.row_text import body_json, decoded, json_line
from klamm.pipeline.lake.parquet_files import WRITTEN

PART_ROWS = 8_192
PART_BYTES = 32 << 20
"""Rows and bytes that are written at once."""


def export_jsonl(rows: Iterable[Row], path: Path) -> int:
    """Write a line for each row; returns their number."""
    count = 0
    with replacing(path) as temporary, temporary.open("w", encoding="ascii") as file:
        for row in rows:
            file.write(json_line(decoded(row.table, row.columns)) + "\n")
            count += 1
    return count


def export_parquet(rows: Iterable[Row], folder: Path) -> int:
    """Write `frames.parquet` and `events.parquet` to a folder, each only if it has rows; returns the number of rows.

    The columns are those of the journal. Frames also have `body` (JSON) and `error` (why the frame cannot be decoded).
    """
    folder.mkdir(parents=True, exist_ok=True)
    files = {table: _ParquetFile(folder / f"{table}.parquet", table) for table in ("frames", "events")}
    count = 0
    try:
        for row in rows:
            files[row.table].add(row.columns)
            count += 1
        for file in files.values():
            file.end()
    finally:
        for file in files.values():
            file.give_up()
    return count


class _ParquetFile:
    def __init__(self, path: Path, table: str) -> None:
        self._path, self._table = path, table
        self._temporary = temporary_path(path)
        self._schema = table_schema(table)
        if table == "frames":
            self._schema = self._schema.append(pa.field("body", pa.string())).append(pa.field("error", pa.string()))
        self._rows: list[dict[str, Any]] = []
        self._bytes = 0
        self._writer: pq.ParquetWriter | None = None

    def add(self, columns: dict[str, Any]) -> None:
        if self._table == "frames":
            body, error = body_json(columns)
            columns = {**columns, "body": body, "error": error}
            self._bytes += len(columns["frame"] or b"") + len(body or "")
        self._rows.append(columns)
        if len(self._rows) >= PART_ROWS or self._bytes >= PART_BYTES:
            self._write()

    def _write(self) -> None:
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._temporary, self._schema, **WRITTEN)
        self._writer.write_batch(pa.RecordBatch.from_pylist(self._rows, schema=self._schema))
        self._rows, self._bytes = [], 0

    def end(self) -> None:
        """Write what is left, and name the file."""
        if self._rows:
            self._write()
        if self._writer is not None:
            self._writer.close()
            self._writer = None
            self._temporary.replace(self._path)
        else:
            self._path.unlink(missing_ok=True)  # an earlier export may have left one

    def give_up(self) -> None:
        """Remove the unfinished file. Does nothing after `end`."""
        if self._writer is not None:
            with suppress(OSError):
                self._writer.close()
        self._temporary.unlink(missing_ok=True)
