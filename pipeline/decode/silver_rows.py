"""The rows of all tables of silver, made of frames and events: without files, and without an engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from klamm.journal.columns import EVENTS
from klamm.pipeline.decode.batches import INPUT, LISTS, decode_batches, joined
from klamm.pipeline.decode.fields import Values
from klamm.pipeline.lake.column_types import arrow_type, as_type
from klamm.pipeline.lake.tables import (
    API_ERRORS,
    BROKER_STATE,
    DECISIONS,
    EVENT_TABLE,
    FIELD_TABLE,
    MESSAGES,
    PARTITION_STATE,
    QUARANTINE,
    REASSIGN,
    Table,
)

FLAT = {"states": PARTITION_STATE, "brokers": BROKER_STATE, "codes": API_ERRORS, "fields": FIELD_TABLE}
"""Column of a decoded row with a list → the table that gets a row for each element."""

REASSIGN_KINDS = ("reassign_phase", "assignment", "throttle_step", "throttle_set", "throttle_removed")

Add = Callable[[Table, pa.RecordBatch], None]
"""What takes rows of a table; at least one row."""

_MESSAGES, _QUARANTINE = ([column.name for column in table.judged] for table in (MESSAGES, QUARANTINE))
_INT32 = 1 << 31
_INT64 = 1 << 63


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


def events_into(add: Add, rows: pa.RecordBatch) -> None:
    """Pass events, at least one, and the rows of the tables made from them to `add`."""
    arrays = [as_type(rows.column(column.name), arrow_type(column.type)) for column in EVENTS]
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
