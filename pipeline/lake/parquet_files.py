"""Files of Parquet in a lake, their rows without Spark, and what the log says of them.

Each page has a checksum, and who reads a page compares it.

Without it a flipped bit may be another value that nobody notices.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from klamm.pipeline.lake.store import Address, Store

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import parquet

WRITTEN: Mapping[str, str | bool] = {"compression": "zstd", "write_page_checksum": True}
"""Options of pyarrow's writers."""

LONGEST_STATED = 64
"""Longer texts have no least and greatest value in the log."""


class Told(NamedTuple):
    """What the log says of a file (`delta_log.Entry`): its rows, the bounds of their `ts_ns`, its size, and Delta's statistics."""

    rows: int
    first_ts_ns: int | None
    last_ts_ns: int | None
    bytes: int
    statistics: str


def told(about: parquet.FileMetaData | None, size: int) -> Told:
    """What the end of a file of this size says. Readers that ask for a time or a broker open only the files that may have it.

    Without the end of a file there is none.
    """
    if about is None:
        return Told(0, None, None, 0, "")
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    groups = [about.row_group(number) for number in range(about.num_row_groups)]
    groups = [group for group in groups if group.num_rows]
    for number, name in enumerate(column.path for column in about.schema):
        if "." in name:  # within a list or a struct
            continue
        stated = [group.column(number).statistics for group in groups]
        if stated and all(one is not None and one.has_min_max for one in stated):
            least, greatest = min(one.min for one in stated), max(one.max for one in stated)
            if _is_stated(least) and _is_stated(greatest):
                low[name], high[name] = _as_json(least), _as_json(greatest, up=True)
    statistics = json.dumps({"numRecords": about.num_rows, "minValues": low, "maxValues": high})
    return Told(about.num_rows, low.get("ts_ns"), high.get("ts_ns"), size, statistics)


def _is_stated(value: object) -> bool:
    if isinstance(value, str):
        return len(value) <= LONGEST_STATED
    return isinstance(value, int | datetime) and not isinstance(value, bool)


def _as_json(value: Any, up: bool = False) -> Any:
    """A value as Delta's statistics have it: a time has milliseconds there, and the greatest must not be less than it is."""
    if not isinstance(value, datetime):
        return value
    rounded = value + timedelta(microseconds=-value.microsecond % 1000) if up else value
    return rounded.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def opened(path: Address) -> parquet.ParquetFile:
    """A file whose pages are compared with their checksums when they are read; a page without one, of an older file, is read as it is.

    An object is fetched as a whole: that is one request. Raises OSError and pyarrow.ArrowException, and so do its methods.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    if isinstance(path, Path):
        return pq.ParquetFile(path, page_checksum_verification=True)
    content = Store(path.lake).read(path.name)
    if content is None:
        raise FileNotFoundError(str(path))
    return pq.ParquetFile(pa.BufferReader(content), page_checksum_verification=True)


def columns(files: Iterable[Address], names: Sequence[str]) -> pa.Table:
    """These columns of all rows; without files a table without rows."""
    import pyarrow as pa

    read = [opened(file).read(list(names)) for file in files]
    return pa.concat_tables(read, promote_options="default") if read else pa.table({name: pa.array([], pa.null()) for name in names})


def rows_where(files: Iterable[Address], wanted: Mapping[str, Collection[Any]], names: Sequence[str] | None = None) -> list[dict[str, Any]]:
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
