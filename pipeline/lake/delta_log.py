"""The log of a lake: which files are valid in each table. It is Delta's log, written by delta-rs.

This is all that says whether a file is valid. Who writes files or reads tables calls `append`, `replace`, `drop` and `entries`. Each table
has a log of its own, the folder `_delta_log`, so all programs that know Delta Lake read the tables where they are. The workers write
Parquet; only the driver commits, and reads no file for it: the writers report what it has to say.

A commit adds and removes files at a single moment. Of several processes that commit, one is first, and the others try again behind it. A
part is what one batch wrote of a run: if the batch comes again, its new files take the place of the old ones, so it counts once. With a
batch of silver its number is committed (a transaction of Delta): a batch whose number is there changes nothing.

There is no transaction over tables. When a run is finished, or a batch while a lake is watched, a small object names the versions that
belong together (`name_version`), and readers take those (`one_version`).

Run and batch are in the path of a file, as `silver/messages/run=…/batch=…/NAME.parquet`; bronze has `run=…/node=…/SEGMENT.parquet`.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

from klamm.pipeline.lake.column_types import arrow_type
from klamm.pipeline.lake.folder import CHECKPOINTS, LAYERS, Lake, PipelineFailed
from klamm.pipeline.lake.store import Address, Store, why
from klamm.pipeline.lake.tables import Table

if TYPE_CHECKING:
    from deltalake import DeltaTable

LOG = "_delta_log"
APPLICATION = "klamm"
"""The application whose transactions are the batches of silver."""
RETRIES = 50
"""How often a commit is tried again behind those of others."""
VERSION = f"{CHECKPOINTS}/version.json"
"""The version of the lake: of each table the number of the commit that belongs to it."""
SETTINGS = {"delta.logRetentionDuration": "interval 1 hours"}
"""A lake that is watched has a commit each second: old ones go when the log has a checkpoint."""

_TYPES = {
    "int8": "byte", "int16": "short", "int32": "integer", "int64": "long", "double": "double", "bool": "boolean", "string": "string",
    "binary": "binary", "timestamp[us, tz=UTC]": "timestamp",
}


class Entry(NamedTuple):
    """A file of a table: `path` is relative to the lake; `table` is as `silver/messages`.

    `first_ts_ns` and `last_ts_ns` are the least and the greatest `ts_ns` of its rows, None if the table has no such column. `statistics`
    are those of Delta, for a file that is to be added. An entry of no bytes has no file: it only takes the place of what its batch had.
    """

    table: str
    run: str
    batch: str
    path: str
    rows: int
    first_ts_ns: int | None = None
    last_ts_ns: int | None = None
    bytes: int = 0
    statistics: str = ""


Changed = tuple[Iterable[Entry], Iterable[Entry]]
"""Files that are added to a table, and files that are removed."""


def append(lake: Lake, tables: Iterable[Table], entries: Sequence[Entry], number: int | None = None) -> None:
    """Add files to these tables, in their order, each in place of what its run and batch had. All of them are complete.

    With the `number` of a batch of silver, a table that has this batch stays as it is, and one without entries gets only the number.
    """
    for table in tables:
        new = [entry for entry in entries if entry.table == table.path]
        if new or number is not None:
            _commit(lake, table.path, partial(_in_place, new), table, number)


def _in_place(new: Sequence[Entry], there: Sequence[Entry]) -> Changed:
    added = {entry.path: entry for entry in new if entry.bytes}  # the same file again takes its own place
    parts = {(entry.run, entry.batch) for entry in new}
    return list(added.values()), [entry for entry in there if (entry.run, entry.batch) in parts and entry.path not in added]


def replace(lake: Lake, entry: Entry, dropped: Sequence[Entry]) -> bool:
    """Put a file in the place of others, at a single moment; False if one of those is gone already, and then nothing changes.

    The replaced files stay until `sweep`.
    """
    old = {one.path for one in dropped}
    return _commit(lake, entry.table, lambda there: ([entry], dropped) if old <= {one.path for one in there} else None)


def change(lake: Lake, table: Table, added: Sequence[Entry], gone: Sequence[Entry]) -> None:
    """Add files to a copy of a table and remove others, at a single moment. The copy keeps its earlier versions."""
    _commit(lake, table.path, lambda _: (added, gone), table, settings={})


def drop(lake: Lake, table: str, dropped: Iterable[Entry]) -> None:
    """Remove files from their table. They stay where they are until `sweep`."""
    old = {entry.path for entry in dropped}
    _commit(lake, table, lambda there: ((), gone) if (gone := [entry for entry in there if entry.path in old]) else None)


def committed(lake: Lake, table: str) -> int:
    """The number of the last batch of silver that a table has; -1 if it has none."""
    present = _open(lake, table) if _newest(lake, table) is not None else None
    return -1 if present is None else _number(present)


def _number(present: DeltaTable) -> int:
    number = present.transaction_version(APPLICATION)
    return -1 if number is None else number


def version(lake: Lake, table: str) -> int:
    """The number of the last commit of a table that has a log."""
    return _number_of(_commits(lake, table)[-1])


def name_version(lake: Lake, of: Collection[str] | None = None) -> None:
    """Let readers see the versions that the tables have now; if some are given, only `of` these. Raises PipelineFailed."""
    store = Store(lake)
    before = store.stamped(VERSION)
    if before is None and of is not None:
        return
    store.assure()
    found = {table: version(lake, table) for table in tables(lake) if of is None or table in of}
    named = json.dumps(found if of is None else _named(before) | found).encode()
    if before is not None and before[0] == named:
        return
    store.put_over(VERSION, named, None if before is None else before[1])


def _named(found: tuple[bytes, str] | None) -> dict[str, int]:
    return {} if found is None else dict(json.loads(found[0]))


_seen: dict[str, Mapping[str, int]] = {}
"""Lake → the version of it that this process reads."""
_readers: Counter[str] = Counter()
"""Lake → how many read that version now, in whatever threads."""
_lock = Lock()


@contextmanager
def one_version(lake: Lake) -> Iterator[None]:
    """`entries` are those of one version of the lake meanwhile, whatever a driver commits.

    A table whose version is not there any more is read in its newest one, and so are all if no run of this Klamm was finished.
    """
    where = str(Store(lake))
    with _lock:
        if where not in _seen:
            _seen[where] = _named(Store(lake).stamped(VERSION))
        _readers[where] += 1
    try:
        yield
    finally:
        with _lock:
            _readers[where] -= 1
            if not _readers[where]:
                _seen.pop(where, None)


@contextmanager
def newest_version(lake: Lake) -> Iterator[None]:
    """`entries` are those of the last commit of each table meanwhile, also within `one_version`."""
    where = str(Store(lake))
    outer = _seen.pop(where, None)
    try:
        yield
    finally:
        if outer is not None:
            _seen[where] = outer


def entries(lake: Lake, table: str, runs: Collection[str] | None = None) -> list[Entry]:
    """The files of a table, of all runs or of these, in the order in which they were added."""
    names, where = _commits(lake, table), str(Store(lake))
    version_seen = _seen.get(where)
    if not names or (version_seen and table not in version_seen):
        return []
    seen = f"{table}/{LOG}/{version_seen[table]:020d}.json" if version_seen else names[-1]
    name = seen if seen in names else names[-1]
    try:
        found = _entries(where, table, Store(lake).read(name) or b"", None if name == names[-1] else _number_of(name))
    except PipelineFailed:
        if name == names[-1]:
            raise
        found = _entries(where, table, Store(lake).read(names[-1]) or b"", None)  # commits before it are gone
    return [entry for entry in found if runs is None or entry.run in runs]


def _number_of(commit: str) -> int:
    return int(commit.rpartition("/")[2].removesuffix(".json"))


def files(lake: Lake, table: str, runs: Collection[str] | None = None) -> list[Address]:
    """The Parquet files of a table that have rows, for any reader of Parquet."""
    store = Store(lake)
    return [store.address(entry.path) for entry in entries(lake, table, runs) if entry.rows]


def rows(lake: Lake, table: str, runs: Collection[str] | None = None) -> int:
    """The rows of a table, as its log counts them."""
    return sum(entry.rows for entry in entries(lake, table, runs))


def rows_by_run(lake: Lake, table: str) -> Counter[str]:
    """The rows of each run in a table, as its log counts them."""
    counts: Counter[str] = Counter()
    for entry in entries(lake, table):
        counts[entry.run] += entry.rows
    return counts


def tables(lake: Lake) -> list[str]:
    """The tables that ever had a file."""
    store = Store(lake)
    return [name for layer in LAYERS for name in store.folders(layer) if store.has(f"{name}/{LOG}")]


def sweep(lake: Lake, table: str) -> list[str]:
    """Remove the files that are not valid; return their names. Only while nobody writes the table, or reads an older version of it.

    The version of the lake stays, also if a killed run has committed something behind it.
    """
    store = Store(lake)
    valid = {entry.path for entry in entries(lake, table)}
    with one_version(lake):
        valid |= {entry.path for entry in entries(lake, table)}
    removed = [name for name in store.unused(table) if name not in valid and not name.startswith(f"{table}/{LOG}/")]
    store.delete_files(removed)
    return removed


def schema(table: Table) -> Any:
    """The columns as Delta has them."""
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


def _commits(lake: Lake, table: str) -> list[str]:
    return Store(lake).names(f"{table}/{LOG}", ".json")


def _newest(lake: Lake, table: str) -> bytes | None:
    """What the newest commit of a table says, which no other commit does; None if the table has no log."""
    names = _commits(lake, table)
    return Store(lake).read(names[-1]) if names else None


@lru_cache(maxsize=128)
def _entries(lake: str, table: str, _content: bytes, number: int | None) -> tuple[Entry, ...]:
    """The files of a version of a table, the newest one or that with this number, whose commit has this content."""
    return tuple(_listed(_open(lake, table, number), table))


def _open(lake: Lake, table: str, number: int | None = None) -> DeltaTable:
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    where = f"{Store(lake)}/{table}"
    try:
        present = DeltaTable(where, number, storage_options=Store(lake).options)
        if present.protocol().min_reader_version > 1:
            raise PipelineFailed(f"{where} was changed by another program, and others may only read the tables of a lake")
        return present
    except (OSError, DeltaError) as problem:
        raise PipelineFailed(f"{where}/{LOG} cannot be read ({why(problem)[:120]})") from problem


def _listed(present: DeltaTable, table: str) -> list[Entry]:
    actions = present.get_add_actions(flatten=True)  # it needs no pyarrow, whose first table imports pandas
    names = ["modification_time", "path", "size_bytes", "num_records", "min.ts_ns", "max.ts_ns"]
    columns = [actions.column(name).to_pylist() if name in actions.column_names else [None] * actions.num_rows for name in names]
    return [_entry(table, unquote(path), *told) for _, path, *told in sorted(zip(*columns, strict=True), key=lambda one: one[:2])]


def _entry(table: str, path: str, size: int, rows: int, first_ts_ns: int | None, last_ts_ns: int | None) -> Entry:
    if not path.startswith("run="):
        raise PipelineFailed(f"{table}/{path} was not written by Klamm, and others may only read the tables of a lake")
    run, part, name = path.split("/", 2)
    batch = unquote(part.removeprefix("batch=")) if part.startswith("batch=") else f"{part}/{name.removesuffix('.parquet')}.arrows"
    return Entry(table, unquote(run.removeprefix("run=")), batch, f"{table}/{path}", rows, first_ts_ns, last_ts_ns, size)


def _commit(
    lake: Lake, table: str, change: Callable[[list[Entry]], Changed | None], made: Table | None = None, number: int | None = None,
    settings: Mapping[str, str] = SETTINGS,
) -> bool:
    """Commit what `change` says of the files that are there; it is asked again if another commit came first. False if it says nothing.

    A table that has no log is made, with these settings, if it is given.
    """
    from deltalake.exceptions import CommitFailedError, DeltaError

    store, where = Store(lake), f"{Store(lake)}/{table}"
    for _ in range(RETRIES):
        present = None if _newest(lake, table) is None else _open(lake, table)
        if present is None and made is None:
            return False
        if present is not None and number is not None and number <= _number(present):
            return False
        changed = change([] if present is None else _listed(present, table))
        if changed is None:
            return False
        try:
            store.assure()
            _write(store, where, present, made, changed, number, settings)
        except CommitFailedError:
            continue
        except (OSError, DeltaError) as problem:
            if present is None and "already exists" in str(problem):
                continue  # another process has made the table meanwhile
            raise PipelineFailed(f"{where}: {why(problem)}") from problem
        return True
    raise PipelineFailed(f"{where}: {RETRIES} commits of other processes came first")


def _write(
    store: Store, where: str, present: DeltaTable | None, made: Table | None, changed: Changed, number: int | None,
    settings: Mapping[str, str],
) -> None:
    from deltalake import CommitProperties, Transaction
    from deltalake.transaction import AddAction, RemoveAction, create_table_with_add_actions

    now, (added, gone) = time.time_ns() // 1_000_000, changed
    adds = [AddAction(_within(entry), entry.bytes, {}, now, True, entry.statistics) for entry in added]
    removes = [RemoveAction(_within(entry), data_change=True, deletion_timestamp=now, partition_values={}) for entry in gone]
    transactions = None if number is None else [Transaction(APPLICATION, number)]
    properties = CommitProperties(app_transactions=transactions, max_commit_retries=0)
    if present is not None:
        present.create_write_transaction([*adds, *removes], mode="append", schema=present.schema(), commit_properties=properties)
    elif made is not None:
        create_table_with_add_actions(
            where, schema(made), adds, mode="error", name=made.name, description=made.meaning, configuration=settings,
            commit_properties=properties, storage_options=store.options,
        )


def _within(entry: Entry) -> str:
    """The path of a file in the folder of its table."""
    return entry.path.removeprefix(f"{entry.table}/")
