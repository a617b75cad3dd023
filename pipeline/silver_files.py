"""Writes all tables of silver in Spark's workers, which read the files of bronze themselves: Spark never sees a row.

A task writes one file per table and run. A task that is repeated writes files of its own, and those that are reported become valid. Tasks
have the rows of a run together and end its files before those of the next run begin, so a worker holds at most one row group of each table,
two of a table with frequent APIs apart.

`decode_into` and `events_into` make the same rows without files and without Spark.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import groupby
from typing import NamedTuple

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from klamm.journal.columns import EVENTS, FRAMES, Column, Direction
from klamm.pipeline.decode.batches import INPUT, LISTS, decode_batches, joined
from klamm.pipeline.decode.fields import Values
from klamm.pipeline.lake.column_types import arrow_type
from klamm.pipeline.lake.delta_log import Entry
from klamm.pipeline.lake.folder import Lake, PipelineFailed
from klamm.pipeline.lake.parquet_files import opened
from klamm.pipeline.lake.row_groups import RowGroups
from klamm.pipeline.lake.store import Store
from klamm.pipeline.lake.table_parts import new_file
from klamm.pipeline.lake.tables import (
    API_ERRORS,
    BROKER_STATE,
    DECISIONS,
    EVENT_TABLE,
    FIELD_TABLE,
    FOR_PEOPLE,
    MESSAGES,
    PARTITION_STATE,
    QUARANTINE,
    REASSIGN,
    Table,
    direction_words,
)
from klamm.protocol.apis import APIS

FLAT = {"states": PARTITION_STATE, "brokers": BROKER_STATE, "codes": API_ERRORS, "fields": FIELD_TABLE}
"""Column of a decoded row with a list → the table that gets a row for each element."""

FROM_FRAMES = (MESSAGES, QUARANTINE, *FLAT.values())
FROM_EVENTS = (EVENT_TABLE, DECISIONS, REASSIGN)

REASSIGN_KINDS = ("reassign_phase", "assignment", "throttle_step", "throttle_set", "throttle_removed")

WRITTEN = "report string"
"""Spark's schema of what `write_tasks` returns: the report of each task, as JSON."""

READ_ROWS = 8_192
"""Rows of bronze that are read at a time."""

READ = {"frames": FRAMES, "events": EVENTS}
"""Table of bronze → the columns that are read."""

Add = Callable[[Table, pa.RecordBatch], None]
"""What takes rows of a table; at least one row."""

_MESSAGES, _QUARANTINE = ([column.name for column in table.judged] for table in (MESSAGES, QUARANTINE))
_INT32 = 1 << 31
_INT64 = 1 << 63


class Piece(NamedTuple):
    """A file of bronze (`path` is relative to the lake), or one of its row groups. All rows are of one run."""

    table: str
    run: str
    path: str
    group: int | None


class Files:
    """The files of one run that a task writes. `close` completes them."""

    def __init__(self, lake: Lake, batch: str, run: str, task: int) -> None:
        self._lake, self._batch, self._run, self._task = lake, batch, run, task
        self._files: dict[Table, tuple[str, RowGroups]] = {}

    def add(self, table: Table, rows: pa.RecordBatch) -> None:
        """Add rows with the columns of a table but those for people, which are added here; at least one row."""
        if table not in self._files:
            name = new_file(table, self._run, self._batch, self._task)
            self._files[table] = name, RowGroups(Store(self._lake), name, frequent=table.frequent)
        self._files[table][1].add(with_names(table, rows))

    def close(self) -> list[Entry]:
        """Write the remaining rows and complete the files; what the logs of their tables are to say of them."""
        for _, file in self._files.values():
            file.close()
        return [Entry(table.path, self._run, self._batch, name, *file.told) for table, (name, file) in self._files.items()]


class TaskReport(NamedTuple):
    """What a task has read of bronze, in rows, and the files that it wrote."""

    rows: int
    files: list[Entry]


def received(report: str) -> TaskReport:
    """The report of a task from its JSON."""
    rows, files = orjson.loads(report)
    return TaskReport(rows, [Entry(*file) for file in files])


def write_tasks(lake: Lake, batch: str, tasks: Sequence[Sequence[Piece]], numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Do the tasks with these numbers, and yield the report of each. For `DataFrame.mapInArrow` over a column of numbers."""
    for some in numbers:
        for number in some.column(0).to_pylist():
            report = json.dumps(write_task(lake, batch, number, tasks[number]))
            yield pa.RecordBatch.from_arrays([pa.array([report], pa.string())], names=["report"])


def write_task(lake: Lake, batch: str, number: int, pieces: Sequence[Piece]) -> TaskReport:
    """Write all tables of silver that these rows of bronze fill. Pieces of a run stand together."""
    count, written = 0, list[Entry]()

    def counted(table: str, chosen: Iterable[Piece]) -> Iterator[pa.RecordBatch]:
        nonlocal count
        for rows in read_bronze(lake, [piece for piece in chosen if piece.table == table]):
            count += rows.num_rows
            yield rows

    for run, found in groupby(pieces, lambda piece: piece.run):
        files, chosen = Files(lake, batch, run, number), list(found)
        decode_into(files.add, counted("frames", chosen))
        for events in joined(counted("events", chosen)):
            events_into(files.add, events)
        written += files.close()
    return TaskReport(count, written)


def read_bronze(lake: Lake, pieces: Iterable[Piece]) -> Iterator[pa.RecordBatch]:
    """The rows, some thousand at a time; a column that a file of an older Klamm lacks is null.

    Row groups are read one after the other: a batch over several of them would have no limit in bytes. Raises PipelineFailed.
    """
    for piece in pieces:
        columns = READ[piece.table]
        try:
            with opened(Store(lake).address(piece.path)) as file:
                present = [column.name for column in columns if column.name in file.schema_arrow.names]
                for group in range(file.num_row_groups) if piece.group is None else (piece.group,):
                    for rows in file.iter_batches(READ_ROWS, [group], present, use_threads=False):
                        yield _with_all(rows, columns)
        except (OSError, pa.ArrowException) as problem:
            raise PipelineFailed(f"{piece.path} cannot be read: {' '.join(str(problem).split())}") from problem


def _with_all(rows: pa.RecordBatch, columns: Sequence[Column]) -> pa.RecordBatch:
    """The rows with exactly these columns and their types."""
    names, count = rows.schema.names, rows.num_rows
    arrays = [
        _cast(rows.column(column.name), arrow_type(column.type)) if column.name in names else pa.nulls(count, arrow_type(column.type))
        for column in columns
    ]
    return pa.RecordBatch.from_arrays(arrays, names=[column.name for column in columns])


def decode_into(add: Add, batches: Iterator[pa.RecordBatch]) -> None:
    """Decode frames, which have at least the columns `INPUT`, and pass the rows of all tables made from them to `add`."""
    for rows in decode_batches(joined(batch.select(list(INPUT)) for batch in batches)):
        for name, table in FLAT.items():
            flat = _flat(rows, name, table)
            if flat is not None:
                add(table, flat)
        decodable = pc.is_null(rows.column("reason"))
        if decodable.false_count:
            add(QUARANTINE, rows.filter(pc.invert(decodable)).select(_QUARANTINE))
            rows = rows.filter(decodable)
        if rows.num_rows:
            add(MESSAGES, rows.select(_MESSAGES))


def _flat(rows: pa.RecordBatch, name: str, table: Table) -> pa.RecordBatch | None:
    """A row for each element of a list, with the columns of its frame; None if there are no elements."""
    lists = rows.column(name)
    structs = lists.flatten()
    if not len(structs):
        return None
    parents = pc.list_parent_indices(lists)
    own = {field.name: structs.field(field.name) for field in LISTS[name]}
    arrays = []
    names = [column.name for column in table.judged]
    for column in names:
        if column in own:
            arrays.append(own[column])
        elif column == "request_seq":
            is_response = pc.is_in(rows.column("dir"), pa.array([1, 3], pa.int8()))
            arrays.append(pc.if_else(is_response, rows.column("cause_seq"), pa.scalar(None, pa.int64())).take(parents))
        else:
            arrays.append(rows.column(column).take(parents))
    return pa.RecordBatch.from_arrays(arrays, names=names)


def with_names(table: Table, rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows with the columns for people that the table has."""
    if len(table.judged) == len(table.columns):
        return rows
    arrays = [_NAMES[name](rows) if name in FOR_PEOPLE else rows.column(name) for name in table.names]
    return pa.RecordBatch.from_arrays(arrays, names=list(table.names))


def _words(column: str, words: Mapping[int, str]) -> Callable[[pa.RecordBatch], pa.Array]:
    """What makes words of the numbers in a column; null where a number has none."""

    @cache  # not when this module is imported: the first array of Arrow imports pandas, which takes a second
    def arrays() -> tuple[pa.Array, pa.Array]:
        return pa.array(words.keys(), pa.int16()), pa.array(words.values())

    def made(rows: pa.RecordBatch) -> pa.Array:
        keys, texts = arrays()
        return pa.DictionaryArray.from_arrays(pc.index_in(rows.column(column).cast(pa.int16()), keys), texts)

    return made


_NAMES: Mapping[str, Callable[[pa.RecordBatch], pa.Array]] = {
    "ts": lambda rows: pc.divide(rows.column("ts_ns"), 1000).cast(pa.timestamp("us", "UTC")),
    "direction": _words("dir", {int(one): direction_words(one) for one in Direction}),
    "api": _words("api_key", {int(key): api.name for key, api in APIS.items()}),
}


def events_into(add: Add, rows: pa.RecordBatch) -> None:
    """Pass events, at least one, and the rows of the tables made from them to `add`."""
    arrays = [_cast(rows.column(column.name), arrow_type(column.type)) for column in EVENTS]
    events = pa.RecordBatch.from_arrays(arrays, names=[column.name for column in EVENTS])
    add(EVENT_TABLE, events)
    kinds = events.column("kind")
    for table, chosen, derive in ((DECISIONS, ("decision",), _decision), (REASSIGN, REASSIGN_KINDS, _reassign)):
        some = events.filter(pc.is_in(kinds, pa.array(chosen)))
        if some.num_rows:
            add(table, _derived(some, table, derive))


def _derived(events: pa.RecordBatch, table: Table, derive: Callable[[str | None, str | None], Values]) -> pa.RecordBatch:
    """Rows of a table with the columns of events, and with columns that `derive` makes from input and output."""
    made = [derive(*texts) for texts in zip(events.column("input").to_pylist(), events.column("output").to_pylist(), strict=True)]
    arrays = [
        pa.array([row[column.name] for row in made], arrow_type(column.type))
        if column.name in made[0]
        else events.column(column.name)
        for column in table.columns
    ]
    return pa.RecordBatch.from_arrays(arrays, names=list(table.names))


def _decision(given: str | None, _: str | None) -> Values:
    said = _object(given)
    rule, partitions = said.get("rule"), said.get("partitions")
    name = rule.get("name") if isinstance(rule, dict) else None
    count = len(partitions) if isinstance(partitions, list) else 0
    return {"rule": _text(name) or "", "partition_count": count, "partitions": _text(partitions), "input": given or ""}


def _reassign(_: str | None, output: str | None) -> Values:
    said = _object(output)
    step = said.get("step")
    is_number = isinstance(step, int) and not isinstance(step, bool) and -_INT64 <= step < _INT64
    ids = {name: _ids(said.get(name)) for name in ("replicas", "adding", "removing")}
    return {"phase": _text(said.get("phase")), "step": step if is_number else None, "request": _text(said.get("request")), **ids}


def _object(text: str | None) -> Values:
    """The JSON object in a text; an empty one if the text is not a JSON object."""
    try:
        found = orjson.loads(text) if text is not None else None
    except orjson.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def _text(value: object) -> str | None:
    """A string as it is, any other value as JSON."""
    return value if value is None or isinstance(value, str) else orjson.dumps(value).decode()


def _ids(value: object) -> list[int] | None:
    if isinstance(value, list) and all(isinstance(one, int) and -_INT32 <= one < _INT32 for one in value):
        return value
    return None


def _cast(array: pa.Array, kind: pa.DataType) -> pa.Array:
    return array if array.type.equals(kind) else array.cast(kind)
