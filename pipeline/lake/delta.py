"""Publishes a lake's tables as Delta Lake tables, which Spark, Trino, DuckDB, Polars and others read without Klamm.

Without a target only Delta's log is written, a folder `_delta_log` in each table's folder: the files of the table stay where they are, and
none is copied. With a target, a folder or a URL such as `s3://bucket/lake`, files are copied that are not there yet. Each publication of a
table with changes is one commit, so readers see all parts of it or none, and earlier versions can be read as long as their files exist.

The log states the least and the greatest value of columns in each file, so readers that ask for a time, a run or a broker open only the
files that have it.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

from klamm.pipeline.lake import manifest
from klamm.pipeline.lake.column_types import arrow_type
from klamm.pipeline.lake.folder import PipelineFailed
from klamm.pipeline.lake.sql_views import TABLES
from klamm.pipeline.lake.tables import Table

if TYPE_CHECKING:
    from deltalake import DeltaTable

_TYPES: Mapping[str, str] = {
    "int8": "byte", "int16": "short", "int32": "integer", "int64": "long", "double": "double", "bool": "boolean", "string": "string",
    "binary": "binary", "timestamp[us, tz=UTC]": "timestamp",
}

HOUR_NS = 3_600_000_000_000
LONGEST_STATED = 64
"""Longer texts have no least and greatest value in the log."""


class _Stamp(NamedTuple):
    """By which a file that was written again under the same name is known."""

    size: int
    modified_ms: int

    @classmethod
    def of(cls, file: Path) -> _Stamp:
        status = file.stat()
        return cls(status.st_size, status.st_mtime_ns // 1_000_000)


class Published(NamedTuple):
    """A table that was published: its version in Delta, and the files that this version adds and removes."""

    table: str
    version: int
    added: int
    removed: int


class Removed(NamedTuple):
    """Files that were removed from the folder of a published table."""

    table: str
    files: int


def publish(lake: Path, target: str | None = None) -> Iterator[Published]:
    """Publish the tables that changed since they were last published, one after the other; tables that never had a row are left out.

    Credentials and endpoints of an object store are read from its usual environment variables. Raises PipelineFailed.
    """
    for table in TABLES:
        try:
            done = _publish(lake, table, target)
        except _errors() as problem:
            raise PipelineFailed(f"{table.path} cannot be published: {str(problem).splitlines()[0]}") from problem
        if done is not None:
            yield done


def remove_old(target: str, keep_ns: int) -> Iterator[Removed]:
    """Remove the files from a target that no version of its tables had within this time. Versions that need them cannot be read after it.

    Delta counts hours; a part of one counts as a whole. Raises PipelineFailed.
    """
    from deltalake import DeltaTable

    hours = math.ceil(keep_ns / HOUR_NS)
    for table in TABLES:
        where = _place(target, table)
        try:
            if DeltaTable.is_deltatable(where):
                removing = partial(DeltaTable(where).vacuum, hours, enforce_retention_duration=False, full=True)
                gone = _present(where).intersection(removing(dry_run=True))  # those that went earlier are named too
                if gone:
                    removing(dry_run=False)
                    yield Removed(table.path, len(gone))
        except _errors() as problem:
            raise PipelineFailed(f"files of {table.path} cannot be removed: {str(problem).splitlines()[0]}") from problem


def _place(target: str, table: Table) -> str:
    return f"{target.rstrip('/')}/{table.path}"


def _publish(lake: Path, table: Table, target: str | None) -> Published | None:
    from deltalake import DeltaTable
    from deltalake.transaction import AddAction, CommitProperties, RemoveAction, create_table_with_add_actions

    folder = lake / table.path
    where = str(folder) if target is None else _place(target, table)
    files = {str(file.relative_to(folder)): _Stamp.of(file) for file in manifest.files(lake, table.path)}
    present = DeltaTable(where) if DeltaTable.is_deltatable(where) else None
    known = {} if present is None else _known(present)
    added = sorted(path for path, stamp in files.items() if known.get(path) != stamp)
    gone = sorted(known.keys() - files.keys())
    if not added and not gone:
        return None
    if target is not None:
        _copy(added, folder, where)
    actions = [AddAction(path, files[path].size, {}, files[path].modified_ms, True, _statistics(folder / path)) for path in added]
    properties = CommitProperties(custom_metadata={"klamm.table": table.path})
    if present is None:
        create_table_with_add_actions(
            where, _schema(table), actions, mode="append", name=table.name, description=table.meaning, commit_properties=properties
        )
    else:
        removals = [RemoveAction(path, data_change=True, deletion_timestamp=int(time.time() * 1000), partition_values={}) for path in gone]
        present.create_write_transaction([*actions, *removals], mode="append", schema=_schema(table), commit_properties=properties)
    return Published(table.path, DeltaTable(where).version(), len(added), len(gone))


def _known(present: DeltaTable) -> dict[str, _Stamp]:
    """The files of a table's version, relative to it."""
    import pyarrow as pa

    actions = pa.table(present.get_add_actions(flatten=True)).to_pylist()
    return {unquote(one["path"]): _Stamp(one["size_bytes"], one["modification_time"]) for one in actions}


def _schema(table: Table) -> Any:
    from deltalake import Schema

    fields = [_field(column.name, _type(arrow_type(column.type)), column.meaning) for column in table.columns]
    return Schema.from_json(json.dumps({"type": "struct", "fields": fields}))


def _field(name: str, kind: Any, meaning: str = "") -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": {"comment": meaning} if meaning else {}}


def _type(kind: Any) -> Any:
    """A type of Arrow as the JSON of Delta's schema has it."""
    import pyarrow as pa

    if pa.types.is_list(kind):
        return {"type": "array", "elementType": _type(kind.value_type), "containsNull": True}
    if pa.types.is_struct(kind):
        return {"type": "struct", "fields": [_field(field.name, _type(field.type)) for field in kind]}
    return _TYPES[str(kind)]


def _statistics(file: Path) -> str:
    import pyarrow.parquet as pq

    told = pq.read_metadata(file)
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    for number, name in enumerate(column.path for column in told.schema):
        if "." in name:  # within a list or a struct
            continue
        stated = [told.row_group(group).column(number).statistics for group in range(told.num_row_groups)]
        if stated and all(one is not None and one.has_min_max for one in stated):
            least, greatest = min(one.min for one in stated), max(one.max for one in stated)
            if _is_stated(least) and _is_stated(greatest):
                low[name], high[name] = _as_json(least), _as_json(greatest, up=True)
    return json.dumps({"numRecords": told.num_rows, "minValues": low, "maxValues": high})


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


def _copy(paths: Iterable[str], folder: Path, where: str) -> None:
    from obstore import put

    there = _store(where)
    for path in paths:
        put(there, path, folder / path)


def _present(where: str) -> set[str]:
    """All files in a folder, of Delta's log too."""
    from obstore import list as listed

    return {one["path"] for some in listed(_store(where)) for one in some}


def _store(where: str) -> Any:
    from obstore.store import LocalStore, from_url

    return from_url(where) if "://" in where else LocalStore(where, mkdir=True)


def _errors() -> tuple[type[Exception], ...]:
    """What Delta Lake and object stores raise."""
    from deltalake.exceptions import DeltaError
    from obstore.exceptions import BaseError

    return OSError, DeltaError, BaseError
