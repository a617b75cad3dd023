"""Files of Parquet in a lake, and their rows without Spark: each page has a checksum, and who reads a page compares it.

Without it a flipped bit may be another value that nobody notices.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import parquet

WRITTEN: Mapping[str, str | bool] = {"compression": "zstd", "write_page_checksum": True}
"""Options of pyarrow's writers."""


def opened(path: Path) -> parquet.ParquetFile:
    """A file whose pages are compared with their checksums when they are read; a page without one, of an older file, is read as it is.

    Raises OSError and pyarrow.ArrowException, and so do its methods.
    """
    import pyarrow.parquet as pq

    return pq.ParquetFile(path, page_checksum_verification=True)


def columns(files: Iterable[Path], names: Sequence[str]) -> pa.Table:
    """These columns of all rows; without files a table without rows."""
    import pyarrow as pa

    read = [opened(file).read(list(names)) for file in files]
    return pa.concat_tables(read, promote_options="default") if read else pa.table({name: pa.array([], pa.null()) for name in names})


def rows_where(files: Iterable[Path], wanted: Mapping[str, Collection[Any]], names: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """The rows that have one of the wanted values in each of these columns; with `names` only these columns.

    Row groups without such values are not read, if their statistics say so.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    found: list[dict[str, Any]] = []
    for path in files:
        file = opened(path)
        groups = [number for number in range(file.num_row_groups) if _may_have(file.metadata.row_group(number), wanted)]
        if not groups:
            continue
        rows = file.read_row_groups(groups, columns=None if names is None else list({*names, *wanted}))
        for name, values in wanted.items():
            column = rows.column(name)
            rows = rows.filter(pc.is_in(column, pa.array(sorted(values), column.type)))
        found += (rows if names is None else rows.select(list(names))).to_pylist()
    return found


def _may_have(group: parquet.RowGroupMetaData, wanted: Mapping[str, Collection[Any]]) -> bool:
    for number in range(group.num_columns):
        column = group.column(number)
        values = wanted.get(column.path_in_schema)
        if values is not None and column.statistics is not None and column.statistics.has_min_max:
            low, high = column.statistics.min, column.statistics.max
            if not any(low <= value <= high for value in values):
                return False
    return True
