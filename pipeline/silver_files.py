"""Writes all tables of silver except `messages`, in Spark's workers, while they decode frames or pass on events.

Most of these tables get few rows from a batch, fewer than a job of Spark is worth. So the task that decodes frames writes them to Parquet
itself: one file per table and run, named after the number of the task. A task that is repeated writes the same files again. A file has a
temporary name until it is complete.

`decode_into` and `events_into` make the same rows without files and without Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from klamm.journal.columns import EVENTS
from klamm.pipeline.decode.batches import LISTS, OWN, decode_batches
from klamm.pipeline.lake.column_types import arrow_type
from klamm.pipeline.lake.row_groups import RowGroups
from klamm.pipeline.lake.table_parts import folder_of_run, stage
from klamm.pipeline.lake.tables import (
    API_ERRORS,
    BROKER_STATE,
    DECISIONS,
    EVENT_TABLE,
    FIELD_TABLE,
    HEADER,
    PARTITION_STATE,
    QUARANTINE,
    REASSIGN,
    SIZES,
    Table,
    ddl,
)

FLAT = {"states": PARTITION_STATE, "brokers": BROKER_STATE, "codes": API_ERRORS, "fields": FIELD_TABLE}
"""Column of a decoded row with a list → the table that gets a row for each element."""

FROM_FRAMES = (QUARANTINE, *FLAT.values())
FROM_EVENTS = (EVENT_TABLE, DECISIONS, REASSIGN)

REASSIGN_KINDS = ("reassign_phase", "assignment", "throttle_step", "throttle_set", "throttle_removed")

_OF_MESSAGES = ("body_json", "bytes_left", "err", "error_code", "errors", "throttle_ms")
_DECODABLE = (*HEADER, *SIZES, *(column for column in OWN if column.name in _OF_MESSAGES))
DECODABLE = ddl(_DECODABLE)
"""Spark's schema of what `decode_and_write` returns: `messages` with the body as JSON."""

WRITTEN = "rows bigint"
"""Spark's schema of what `write_events` returns."""

Add = Callable[[Table, Any], None]
"""What takes rows of a table, of any runs; at least one row."""

_INT32 = 1 << 31
_INT64 = 1 << 63


class Files:
    """The files of one task. `close` gives them their names."""

    def __init__(self, lake: str, batch: str, task: int) -> None:
        self._lake, self._batch = Path(lake), batch
        self._name = f"part-{task:05d}.parquet"
        self._files: dict[tuple[Table, str], RowGroups] = {}

    def add(self, table: Table, rows: Any) -> None:
        """Add rows of a table, of any runs; at least one row."""
        run_ids = rows.column("run_id")
        runs = pc.unique(run_ids).to_pylist()
        for run in runs:
            file = self._files.get((table, run))
            if file is None:
                path = stage(self._lake, table, self._batch) / folder_of_run(run) / self._name
                file = self._files[table, run] = RowGroups(path)
            file.add(rows if len(runs) == 1 else rows.filter(pc.equal(run_ids, run)))

    def close(self) -> None:
        """Write the remaining rows and complete the files."""
        for file in self._files.values():
            file.close()


def decode_and_write(lake: str, batch: str, batches: Iterator[Any]) -> Iterator[Any]:
    """Decode frames, yield those that are messages, and write the rows of all other tables. For `DataFrame.mapInArrow`."""
    files = Files(lake, batch, _task())
    yield from decode_into(files.add, batches)
    files.close()


def decode_into(add: Add, batches: Iterator[Any]) -> Iterator[Any]:
    """Decode frames, yield those that are messages, and pass the rows of all other tables to `add`."""
    for rows in decode_batches(batches):
        for name, table in FLAT.items():
            flat = _flat(rows, name, table)
            if flat is not None:
                add(table, flat)
        decodable = pc.is_null(rows.column("reason"))
        if decodable.false_count:
            add(QUARANTINE, rows.filter(pc.invert(decodable)).select(list(QUARANTINE.names)))
            rows = rows.filter(decodable)
        yield rows.select([column.name for column in _DECODABLE])


def _flat(rows: Any, name: str, table: Table) -> Any:
    """A row for each element of a list, with the columns of its frame; None if there are no elements."""
    lists = rows.column(name)
    structs = lists.flatten()
    if not len(structs):
        return None
    parents = pc.list_parent_indices(lists)
    own = {field.name: structs.field(field.name) for field in LISTS[name]}
    arrays = []
    for column in table.names:
        if column in own:
            arrays.append(own[column])
        elif column == "request_seq":
            is_response = pc.is_in(rows.column("dir"), pa.array([1, 3], pa.int8()))
            arrays.append(pc.if_else(is_response, rows.column("cause_seq"), pa.scalar(None, pa.int64())).take(parents))
        else:
            arrays.append(rows.column(column).take(parents))
    return pa.RecordBatch.from_arrays(arrays, names=list(table.names))


def write_events(lake: str, batch: str, batches: Iterator[Any]) -> Iterator[Any]:
    """Write events and the tables made from them, and yield their number. For `DataFrame.mapInArrow` over the columns of EVENTS."""
    files = Files(lake, batch, _task())
    for rows in batches:
        if rows.num_rows:
            events_into(files.add, rows)
            yield pa.RecordBatch.from_arrays([pa.array([rows.num_rows], pa.int64())], names=["rows"])
    files.close()


def events_into(add: Add, rows: Any) -> None:
    """Pass events, at least one, and the rows of the tables made from them to `add`."""
    arrays = [_cast(rows.column(column.name), arrow_type(column.type)) for column in EVENTS]
    events = pa.RecordBatch.from_arrays(arrays, names=list(EVENT_TABLE.names))
    add(EVENT_TABLE, events)
    kinds = events.column("kind")
    for table, chosen, derive in ((DECISIONS, ("decision",), _decision), (REASSIGN, REASSIGN_KINDS, _reassign)):
        some = events.filter(pc.is_in(kinds, pa.array(chosen)))
        if some.num_rows:
            add(table, _derived(some, table, derive))


def _derived(events: Any, table: Table, derive: Any) -> Any:
    """Rows of a table with the columns of events, and with columns that `derive` makes from input and output."""
    made = [derive(*texts) for texts in zip(events.column("input").to_pylist(), events.column("output").to_pylist(), strict=True)]
    arrays = [
        pa.array([row[column.name] for row in made], arrow_type(column.type))
        if column.name in made[0]
        else events.column(column.name)
        for column in table.columns
    ]
    return pa.RecordBatch.from_arrays(arrays, names=list(table.names))


def _decision(given: str | None, _: str | None) -> dict[str, Any]:
    said = _object(given)
    rule, partitions = said.get("rule"), said.get("partitions")
    name = rule.get("name") if isinstance(rule, dict) else None
    count = len(partitions) if isinstance(partitions, list) else 0
    return {"rule": _text(name) or "", "partition_count": count, "partitions": _text(partitions), "input": given or ""}


def _reassign(_: str | None, output: str | None) -> dict[str, Any]:
    said = _object(output)
    step = said.get("step")
    is_number = isinstance(step, int) and not isinstance(step, bool) and -_INT64 <= step < _INT64
    ids = {name: _ids(said.get(name)) for name in ("replicas", "adding", "removing")}
    return {"phase": _text(said.get("phase")), "step": step if is_number else None, "request": _text(said.get("request")), **ids}


def _object(text: str | None) -> dict[str, Any]:
    """The JSON object in a text; an empty one if the text is not a JSON object."""
    try:
        found = orjson.loads(text) if text is not None else None
    except orjson.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def _text(value: Any) -> str | None:
    """A string as it is, any other value as JSON."""
    return value if value is None or isinstance(value, str) else orjson.dumps(value).decode()


def _ids(value: Any) -> list[int] | None:
    is_list = isinstance(value, list) and all(isinstance(one, int) and -_INT32 <= one < _INT32 for one in value)
    return value if is_list else None


def _cast(array: Any, kind: Any) -> Any:
    return array if array.type.equals(kind) else array.cast(kind)


def _task() -> int:
    """The number of the task that runs here."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else context.partitionId()
