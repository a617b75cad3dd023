"""Decodes batches of journaled frames inside Spark: one row in, one row out, with all that other tables need of it.

A row that comes out has the frame's header, its body as JSON or the reason why there is none, and lists with the partition states, the
brokers and the error codes that it holds. So one pass over the data serves all tables of silver, each of which takes its columns. It runs
in Spark's Python workers; nothing here needs Spark.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from functools import cache
from struct import Struct
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from klamm.journal.columns import Column
from klamm.pipeline.decode import Plan, Reason, decode_frame, plan
from klamm.pipeline.flatten import BROKER_FIELDS, ERROR_FIELDS, STATE_FIELDS, ErrorCounter, listed_brokers, partition_states
from klamm.pipeline.reencoding import difference, is_sampled, is_second_sampled
from klamm.pipeline.tables import API_ERRORS, BROKER_STATE, HEADER, PARTITION_STATE, SIZES, SPARK_TYPES, Table, ddl
from klamm.protocol.apis import ApiKey

MAX_BODY = 12_000_000
"""Bytes of JSON that a body may have; Spark's variants end at 16 MiB. A longer one is left out, and `err` says so."""
BATCH_BYTES = 32_000_000
"""About as many bytes of frames are decoded at a time, so that no batch of results exceeds what Arrow and the worker can hold."""

ARROW_TYPES = {
    "int8": pa.int8(), "int16": pa.int16(), "int32": pa.int32(), "int64": pa.int64(), "bool": pa.bool_(), "string": pa.string(),
    "binary": pa.binary(), "double": pa.float64(), "list<int32>": pa.list_(pa.int32()), "list<int64>": pa.list_(pa.int64()),
}  # fmt: skip


def _of(table: Table, names: tuple[str, ...]) -> tuple[Column, ...]:
    by_name = {column.name: column for column in table.columns}
    return tuple(by_name[name] for name in names)


LISTS = {
    "states": _of(PARTITION_STATE, STATE_FIELDS),
    "brokers": _of(BROKER_STATE, BROKER_FIELDS),
    "codes": _of(API_ERRORS, ERROR_FIELDS),
}
"""Columns of decoded rows that are lists of structures."""

OWN = (
    *SIZES,
    Column("body_json", "string", True, ""),
    Column("left", "int32", True, ""),
    Column("err", "string", True, ""),
    Column("error_code", "int16", True, ""),
    Column("errors", "int32", True, ""),
    Column("reason", "string", True, ""),
    Column("detail", "string", True, ""),
    Column("frame", "binary", True, "only where there is a reason"),
)

_STRUCTS = ", ".join(
    f"{name} array<struct<{', '.join(f'{field.name}: {SPARK_TYPES[field.type]}' for field in fields)}>>" for name, fields in LISTS.items()
)
DECODED = f"{ddl(HEADER)}, {ddl(OWN)}, {_STRUCTS}"
"""Spark's schema of the rows that come out."""

INPUT = (*(column.name for column in HEADER), "frame")
"""Columns of the rows that go in, in this order."""

STATE_REQUESTS = frozenset((ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA))
"""Requests that have rows for other tables."""

_LENGTH = Struct(">i").unpack


def decode_batches(batches: Iterator[Any]) -> Iterator[Any]:
    """Decode record batches with the columns `INPUT` to record batches of the schema `DECODED`. For `DataFrame.mapInArrow`."""
    for batch in batches:
        for part in _parts(batch):
            gc.disable()  # the objects of a part have no cycles, and are so many that it would look through them again and again
            try:
                rows = decode_batch(part)
            finally:
                gc.enable()
            yield rows


def _parts(batch: Any) -> Iterator[Any]:
    """The batch in slices of about BATCH_BYTES of frames."""
    if batch.num_rows == 0:
        return
    if batch.nbytes <= BATCH_BYTES:
        yield batch
        return
    rows = max(1, batch.num_rows * BATCH_BYTES // batch.nbytes)
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


def decode_batch(batch: Any) -> Any:
    """One record batch, decoded."""
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    made = {column.name: [None] * batch.num_rows for column in OWN if column not in SIZES}
    lists: tuple[list[Any], ...] = ([], [], [])
    ends: tuple[list[int], ...] = ([0], [0], [0])
    inputs = (columns[name].to_pylist() for name in ("dir", "api_key", "api_version", "flags", "frame", "seq"))
    _decode_rows(zip(*inputs, strict=True), made, lists, ends)
    header = [_cast(columns[column.name], ARROW_TYPES[column.type]) for column in HEADER]
    frames = columns["frame"]
    own = [pc.binary_length(frames).cast(pa.int32()), _prefixes(frames)]
    own += [pa.array(made[column.name], ARROW_TYPES[column.type]) for column in OWN[len(own) :]]
    flat = [_list_array(values, end, fields) for values, end, fields in zip(lists, ends, LISTS.values(), strict=True)]
    return pa.RecordBatch.from_arrays([*header, *own, *flat], names=[*INPUT[:-1], *(column.name for column in OWN), *LISTS])


def _prefixes(frames: Any) -> Any:
    """The first four bytes of each frame as a number; null where it has fewer."""
    starts = pc.binary_slice(frames, 0, 4).to_pylist()
    return pa.array([_LENGTH(start)[0] if len(start) == 4 else None for start in starts], pa.int32())


def _cast(array: Any, kind: Any) -> Any:
    return array if array.type.equals(kind) else array.cast(kind)


def _decode_rows(
    rows: Iterable[tuple[Any, ...]], made: dict[str, list[Any]], lists: tuple[list[Any], ...], ends: tuple[list[int], ...]
) -> None:
    """Decode frames: what is not null goes into the columns `made`, rows for other tables to `lists`, where each frame's end to `ends`."""
    texts, lefts, tops, errors = made["body_json"], made["left"], made["error_code"], made["errors"]
    states, brokers, codes = lists
    states_end, brokers_end, codes_end = (end.append for end in ends)
    for number, (direction, key, version, flags, frame, seq) in enumerate(rows):
        body, left, reason, detail = decode_frame(direction, key, version, flags, frame)
        lefts[number] = left
        if body is not None:
            try:
                text = orjson.dumps(body)
                if direction in (1, 3):
                    tops[number], errors[number] = _flatten_response(key, version, body, lists)
                elif key in STATE_REQUESTS:
                    _flatten_request(key, body, lists)
                if len(text) > MAX_BODY:
                    made["err"][number] = f"left out: {len(text)} bytes of JSON, at most {MAX_BODY} are kept"
                else:
                    texts[number] = text
                    if direction in (1, 2) and left == 0 and is_sampled(seq):
                        made["err"][number] = difference(direction, key, version, frame, second=is_second_sampled(seq))
            except Exception as error:  # noqa: BLE001 as in `decode_frame`
                for values, end in zip(lists, ends, strict=True):
                    del values[end[-1] :]
                lefts[number] = None
                reason, detail = Reason.MALFORMED, f"{type(error).__name__}: {error}"
        if reason is not None:
            made["reason"][number], made["detail"][number], made["frame"][number] = reason.value, detail, frame
        states_end(len(states))
        brokers_end(len(brokers))
        codes_end(len(codes))


def _flatten_request(key: int, body: dict[str, Any], lists: tuple[list[Any], ...]) -> None:
    """Add the rows that this request has for other tables."""
    lists[0].extend(partition_states(key, body))
    if key == ApiKey.UPDATE_METADATA:
        lists[1].extend(listed_brokers(key, body))


def _flatten_response(key: int, version: int, body: dict[str, Any], lists: tuple[list[Any], ...]) -> tuple[int | None, int]:
    """Add the rows that this response has for other tables; its error code and how many it holds."""
    if key == ApiKey.METADATA:
        lists[0].extend(partition_states(key, body))
        lists[1].extend(listed_brokers(key, body))
    count = _counter(key, version)
    if count is None:
        return None, 0
    top, counts = count(body)
    if not counts:
        return top, 0
    lists[2].extend([(path, code, each) for (path, code), each in counts.items()])
    return top, sum(counts.values())


@cache
def _counter(key: int, version: int) -> ErrorCounter | None:
    how = plan(False, key, version)
    if not isinstance(how, Plan):
        how = plan(False, key, 0)  # an ApiVersions response to a version that does not exist
    return how.count_errors if isinstance(how, Plan) else None


def _list_array(rows: list[tuple[Any, ...]], ends: list[int], fields: tuple[Column, ...]) -> Any:
    structs = pa.StructArray.from_arrays(_arrays(rows, fields), names=[field.name for field in fields])
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), structs)


def _arrays(rows: list[tuple[Any, ...]], columns: tuple[Column, ...]) -> list[Any]:
    """Rows as one Arrow array for each column."""
    values = zip(*rows, strict=True) if rows else ((),) * len(columns)
    return [pa.array(each, ARROW_TYPES[column.type]) for each, column in zip(values, columns, strict=True)]
