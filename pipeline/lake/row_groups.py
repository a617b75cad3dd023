"""Writes record batches, however small, to a Parquet file in row groups of a good size.

Reading a row group has a fixed cost. With one row group per batch of a journal (a tenth of a second of frames), reading a million frames
takes ten times as long. The file has a temporary name until it is complete, so that a killed run leaves nothing that looks like a table.

Columns whose values seldom repeat have no dictionary: making one costs more than it saves. Those that grow from row to row are written as
differences. Bytes and bodies have no statistics, for nobody looks for a range of them. The schema is Parquet's alone, without Arrow's own.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from klamm.machine.replaced_file import temporary_path

ROWS = 1 << 17
BYTES = 64 << 20
"""A row group is written when it has this number of rows or bytes."""

GROWING = ("seq", "ts_ns", "mono_ns", "correlation_id", "cause_seq", "request_seq")
LONG = ("frame", "body_json")
VARIED = frozenset((*GROWING, *LONG, "latency_ns", "ts"))


class RowGroups:
    """The row groups of one file. `close` completes and names the file; without rows there is no file."""

    def __init__(self, path: Path, rows: int | None = None) -> None:
        """`rows`: of a row group, if not ROWS."""
        self._path = path
        self._unfinished = temporary_path(path)
        self._limit = ROWS if rows is None else rows
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
        if self._rows >= self._limit or self._bytes >= BYTES:
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

        batches, self._waiting = self._waiting, []
        self._rows = self._bytes = 0
        if self._writer is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = _writer(self._unfinished, batches[0].schema)
        self._writer.write_table(pa.Table.from_batches(batches))


def _writer(path: Path, schema: Any) -> Any:
    import pyarrow.parquet as pq

    leaves = [leaf for field in schema for leaf in _leaves(field.name, field.type)]
    return pq.ParquetWriter(
        path,
        schema,
        compression="zstd",
        compression_level=1,
        use_dictionary=[leaf for leaf in leaves if leaf not in VARIED],
        write_statistics=[leaf for leaf in leaves if leaf not in LONG],
        column_encoding={name: "DELTA_BINARY_PACKED" for name in GROWING if name in schema.names},
        store_schema=False,
    )


def _leaves(path: str, kind: Any) -> Iterator[str]:
    """The paths of a column's parts that have values, as Parquet names them."""
    import pyarrow as pa

    if pa.types.is_list(kind):
        yield from _leaves(f"{path}.list.element", kind.value_type)
    elif pa.types.is_struct(kind):
        for field in kind:
            yield from _leaves(f"{path}.{field.name}", field.type)
    else:
        yield path
