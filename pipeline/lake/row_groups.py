"""Writes record batches, however small, to a Parquet file in row groups of a good size.

Reading a row group has a fixed cost. With one row group per batch of a journal (a tenth of a second of frames), reading a million frames
takes ten times as long. The file has a temporary name until it is complete, so that a killed run leaves nothing that looks like a table.

Rows of APIs that have nearly all rows can be apart, in row groups of their own. Parquet keeps the least and the largest key of each row
group, so who looks for other APIs skips these row groups, with all columns.

Columns whose values seldom repeat have no dictionary: making one costs more than it saves. Those that grow from row to row are written as
differences. Bytes and bodies have no statistics, for nobody looks for a range of them. The schema is Parquet's alone, without Arrow's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from klamm.pipeline.lake.parquet_files import WRITTEN, Told, told
from klamm.pipeline.lake.store import NewFile, NewObject, Store

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import parquet

ROWS = 1 << 17
BYTES = 64 << 20
"""A row group is written when it has this number of rows or bytes."""

RUN_ROWS = 256
"""A batch whose rows are apart, or not, in runs of this number on average is cut. Where runs are shorter, copies of the rows cost less."""

GROWING = ("seq", "ts_ns", "mono_ns", "correlation_id", "cause_seq", "request_seq")
LONG = ("frame", "body_json")
VARIED = frozenset((*GROWING, *LONG, "latency_ns", "ts"))


class _Waiting:
    """Rows that are not written yet."""

    def __init__(self) -> None:
        self._batches: list[pa.RecordBatch] = []
        self.rows = self.bytes = 0

    def add(self, batch: pa.RecordBatch) -> None:
        self._batches.append(batch)
        self.rows += batch.num_rows
        self.bytes += batch.nbytes

    def take(self) -> list[pa.RecordBatch]:
        """The batches, which do not wait any more."""
        batches, self._batches = self._batches, []
        self.rows = self.bytes = 0
        return batches


class RowGroups:
    """The row groups of one file. `close` completes and names the file; without rows there is no file."""

    def __init__(self, store: Store, name: str, rows: int | None = None, frequent: Sequence[int] = ()) -> None:
        """`rows`: of a row group, if not ROWS. `frequent`: API keys whose rows are apart from all others."""
        self._store, self._name = store, name
        self._file: NewFile | NewObject | None = None
        self._limit = ROWS if rows is None else rows
        self._frequent = frequent
        self._waiting, self._waiting_apart = _Waiting(), _Waiting()
        self._writer: parquet.ParquetWriter | None = None
        self._metadata: list[parquet.FileMetaData] = []
        self._bytes = 0
        self.rows = 0
        """Number of rows that were added."""

    def add(self, batch: pa.RecordBatch) -> None:
        """Add a record batch; all batches have the same schema."""
        if not batch.num_rows:
            return
        self.rows += batch.num_rows
        for rows, is_apart in self._split(batch) if self._frequent else ((batch, False),):
            waiting = self._waiting_apart if is_apart else self._waiting
            waiting.add(rows)
            if waiting.rows >= self._limit or waiting.bytes >= BYTES:
                self._write(waiting)

    def close(self, about: Mapping[str, str] | None = None) -> None:
        """Write the remaining rows and complete the file, which says `about` itself at its end."""
        for waiting in (self._waiting_apart, self._waiting):
            if waiting.rows:
                self._write(waiting)
        if self._writer is not None and self._file is not None:
            if about is not None:
                self._writer.add_key_value_metadata(about)
            self._writer.close()
            self._bytes = self._file.complete()

    @property
    def told(self) -> Told:
        """What the end of the complete file says, as its writer knows it; nothing is read."""
        return told(self._metadata[0] if self._metadata else None, self._bytes)

    def _split(self, batch: pa.RecordBatch) -> Iterator[tuple[pa.RecordBatch, bool]]:
        """The rows in batches, each of which has only rows of frequent APIs, or none; and whether it has."""
        import pyarrow as pa
        import pyarrow.compute as pc

        keys = batch.column("api_key")
        is_apart = pc.is_in(keys, pa.array(self._frequent, keys.type))
        runs = pc.run_end_encode(is_apart)
        if len(runs.values) > max(3, batch.num_rows // RUN_ROWS):
            yield batch.filter(is_apart), True
            yield batch.filter(pc.invert(is_apart)), False
            return
        first = 0
        for end, value in zip(runs.run_ends.to_pylist(), runs.values.to_pylist(), strict=True):
            yield batch.slice(first, end - first), value
            first = end

    def _write(self, waiting: _Waiting) -> None:
        import pyarrow as pa

        batches = waiting.take()
        if self._writer is None:
            self._file = self._store.create(self._name)
            self._writer = _writer(self._file.sink, batches[0].schema, self._metadata)
        self._writer.write_table(pa.Table.from_batches(batches))


def _writer(sink: pa.NativeFile, schema: pa.Schema, metadata: list[parquet.FileMetaData]) -> parquet.ParquetWriter:
    import pyarrow.parquet as pq

    leaves = [leaf for field in schema for leaf in _leaves(field.name, field.type)]
    return pq.ParquetWriter(
        sink,
        schema,
        **WRITTEN,
        compression_level=1,
        use_dictionary=[leaf for leaf in leaves if leaf not in VARIED],
        write_statistics=[leaf for leaf in leaves if leaf not in LONG],
        column_encoding={name: "DELTA_BINARY_PACKED" for name in GROWING if name in schema.names},
        store_schema=False,
        metadata_collector=metadata,
    )


def _leaves(path: str, kind: pa.DataType) -> Iterator[str]:
    """The paths of a column's parts that have values, as Parquet names them."""
    import pyarrow as pa

    if pa.types.is_list(kind):
        yield from _leaves(f"{path}.list.element", kind.value_type)
    elif pa.types.is_struct(kind):
        for field in kind:
            yield from _leaves(f"{path}.{field.name}", field.type)
    else:
        yield path
