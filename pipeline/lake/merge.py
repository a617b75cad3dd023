"""Merges small parts of silver into larger ones, without Spark, when a run has many of them in a table.

A lake that is brought up to date each minute gets a part in each table each time. Parts that follow each other in time are merged until a
part has about `ROWS` rows or `BYTES` bytes, or covers a week, so that retention can remove it some day; such a part is not merged again.
Rows are sorted by broker, connection and row; those of frequent APIs are apart, as in all files of silver (`row_groups.py`). The new part
has a name of its own; one commit puts it in the place of the old ones, and then their files are deleted. What a killed merge leaves
is in no log, and the next run removes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from klamm.pipeline.lake import delta_log
from klamm.pipeline.lake.delta_log import Entry
from klamm.pipeline.lake.folder import Lake, PipelineFailed
from klamm.pipeline.lake.parquet_files import opened
from klamm.pipeline.lake.row_groups import RowGroups
from klamm.pipeline.lake.store import Address, Store
from klamm.pipeline.lake.table_parts import new_file
from klamm.pipeline.lake.tables import SILVER, Table

if TYPE_CHECKING:
    import pyarrow as pa

MANY = 16
"""Number of small parts that a run may have in a table."""

ROWS = 500_000
BYTES = 256 << 20
"""Size of a merged part. The rows of one are in memory, twice while they are sorted."""

WEEK_NS = 7 * 24 * 3600 * 1_000_000_000

SORTED_BY = ("node_id", "conn_id", "seq")
PREFIX = "compact-"


class Part(NamedTuple):
    """The files that a batch wrote of a run, their rows, and the bounds of their time."""

    files: list[Entry]
    rows: int
    first_ts_ns: int
    last_ts_ns: int


class Merged(NamedTuple):
    """Parts of one run of one table that became one part."""

    table: str
    run: str
    parts: int
    rows: int


def merge_small(lake: Lake, many: int = MANY) -> list[Merged]:
    """Merge the small parts of runs that have more than `many` of them in a table.

    The caller holds the lock of the lake, and no batch is being made. Raises PipelineFailed, and replaces nothing, if rows get lost.
    """
    done = []
    for table in SILVER:
        by_part: dict[tuple[str, str], list[Entry]] = {}
        for entry in delta_log.entries(lake, table.path):
            by_part.setdefault((entry.run, entry.batch), []).append(entry)
        by_run: dict[str, list[Part]] = {}
        for (run, _), files in by_part.items():
            if sum(file.rows for file in files) < ROWS // 2:
                by_run.setdefault(run, []).append(_part(files))
        for run, small in by_run.items():
            if len(small) > many:
                done += [_merge(lake, table, run, group) for group in _groups(lake, small)]
    return done


def _part(files: list[Entry]) -> Part:
    first, last = (file.first_ts_ns for file in files), (file.last_ts_ns for file in files)
    return Part(files, sum(file.rows for file in files), min(one or 0 for one in first), max(one or 0 for one in last))


def _groups(lake: Lake, parts: Sequence[Part]) -> Iterator[list[Part]]:
    """Parts that become one, at least two each, in the order of their time."""
    group: list[Part] = []
    rows = size = 0
    for part in sorted(parts, key=lambda part: (part.first_ts_ns, part.last_ts_ns)):
        here = sum(_uncompressed(Store(lake).address(file.path)) for file in part.files)
        is_long = bool(group) and part.last_ts_ns - group[0].first_ts_ns > WEEK_NS
        if group and (rows + part.rows > ROWS or size + here > BYTES or is_long):
            if len(group) > 1:
                yield group
            group, rows, size = [], 0, 0
        group.append(part)
        rows, size = rows + part.rows, size + here
    if len(group) > 1:
        yield group


def _uncompressed(file: Address) -> int:
    """Bytes of a file's columns before they were compressed. Bodies, which can be long, have no dictionary there."""
    about = opened(file).metadata
    return sum(about.row_group(number).total_byte_size for number in range(about.num_row_groups))


def _merge(lake: Lake, table: Table, run: str, parts: Sequence[Part]) -> Merged:
    numbers = [entry.batch for entry in delta_log.entries(lake, table.path, {run}) if entry.batch.startswith(PREFIX)]
    batch = f"{PREFIX}{1 + max((int(name.removeprefix(PREFIX)) for name in numbers), default=-1)}"
    store, old, rows = Store(lake), [file for part in parts for file in part.files], sum(part.rows for part in parts)
    name = new_file(table, run, batch)
    groups = RowGroups(store, name, frequent=table.frequent)
    _write(groups, _sorted([store.address(file.path) for file in old]))
    if groups.told.rows != rows:
        raise PipelineFailed(f"{table.path} of run {run}: {len(parts)} parts have {rows} rows, their compaction {groups.told.rows}")
    if delta_log.replace(lake, Entry(table.path, run, batch, name, *groups.told), old):
        delta_log.name_version(lake)  # it has none of the old ones
        store.delete_files({file.path for file in old}.intersection(store.unused(table.path)))
    return Merged(table.path, run, len(parts), rows)


def _sorted(files: Sequence[Address]) -> pa.Table:
    """The rows of these files; columns that some of them lack are null."""
    import pyarrow as pa

    rows = pa.concat_tables([opened(file).read() for file in files], promote_options="default")
    by = [(name, "ascending") for name in SORTED_BY if name in rows.column_names]
    return rows.sort_by(by)


def _write(groups: RowGroups, rows: pa.Table) -> None:
    for batch in rows.to_batches(max_chunksize=1 << 16):
        groups.add(batch)
    groups.close()
