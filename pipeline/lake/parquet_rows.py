"""Reads rows of a lake's tables as plain Parquet, without Spark."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from klamm.pipeline.lake.parquet_files import opened


def columns(files: Iterable[Path], names: Sequence[str]) -> pa.Table:
    """These columns of all rows; without files a table without rows."""
    read = [opened(file).read(list(names)) for file in files]
    return pa.concat_tables(read, promote_options="default") if read else pa.table({name: pa.array([], pa.null()) for name in names})


def rows_where(files: Iterable[Path], wanted: Mapping[str, Collection[Any]], names: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """The rows that have one of the wanted values in each of these columns; with `names` only these columns.

    Row groups without such values are not read, if their statistics say so.
    """
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
