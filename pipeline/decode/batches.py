"""Decodes batches of journaled frames: one row in, one row out, with everything that the tables of silver need.

A decoded row has the frame's header, its body as JSON or the reason why it has none, and lists of the partition states, brokers and error
codes in it. So one pass over the frames fills all tables of silver. Nothing here needs Spark itself.
"""

from __future__ import annotations

import gc
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import accumulate
from struct import Struct, unpack
from typing import Any, NamedTuple

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from klamm.journal.columns import Column, Direction, Flag
from klamm.pipeline.decode.fields import ALWAYS, Reader, Values
from klamm.pipeline.decode.flatten import BROKER_FIELDS, ERROR_FIELDS, STATE_FIELDS, listed_brokers, partition_states
from klamm.pipeline.decode.flaw_finders import part_reader, reader
from klamm.pipeline.decode.frame_decoder import Plan, Reason, decode_frame, plan
from klamm.pipeline.decode.json_codec import Body, Decode
from klamm.pipeline.decode.reencoding import difference, is_sampled, is_second_sampled
from klamm.pipeline.lake.column_types import arrow_type
from klamm.pipeline.lake.field_columns import FIELDS
from klamm.pipeline.lake.tables import API_ERRORS, BROKER_STATE, HEADER, PARTITION_STATE, SIZES, Table
from klamm.protocol.apis import OF_CONTROLLERS, ApiKey
from klamm.protocol.exchanges.error_codes import NO_CODES, PathCounter, Paths
from klamm.protocol.primitives import skip_tags

MAX_BODY = 12_000_000
"""Limit of a body's JSON in bytes, below the 16 MiB of Spark's variants. A longer body is left out, and `err` says so."""
BATCH_BYTES = 32_000_000
"""Approximate bytes of frames that are decoded at a time, so that their results fit into an Arrow batch and the worker's memory."""
JOINED_ROWS = 8_192
"""Each batch has a fixed cost, so smaller ones are joined."""


def _of(table: Table, names: tuple[str, ...]) -> tuple[Column, ...]:
    by_name = {column.name: column for column in table.columns}
    return tuple(by_name[name] for name in names)


LISTS = {
    "states": _of(PARTITION_STATE, STATE_FIELDS),
    "brokers": _of(BROKER_STATE, BROKER_FIELDS),
    "codes": _of(API_ERRORS, ERROR_FIELDS),
    "fields": FIELDS,
}
"""Columns of decoded rows that are lists."""

OWN = (
    *SIZES,
    Column("body_json", "string", True, ""),
    Column("bytes_left", "int32", True, ""),
    Column("err", "string", True, ""),
    Column("error_code", "int16", True, ""),
    Column("errors", "int32", True, ""),
    Column("throttle_ms", "int32", True, ""),
    Column("session_id", "int32", True, ""),
    Column("session_epoch", "int32", True, ""),
    Column("replica_id", "int32", True, ""),
    Column("reason", "string", True, ""),
    Column("detail", "string", True, ""),
    Column("frame", "binary", True, "only where there is a reason"),
)

INPUT = (*(column.name for column in HEADER), "frame")
"""Columns of the rows that go in, in this order."""

_LISTENER = ("run_id", "node_id", "process", "listener")

_LENGTH = Struct(">i").unpack


def decode_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Decode record batches with the columns `INPUT` to batches with the columns `HEADER`, `OWN` and `LISTS`."""
    for batch in batches:
        for part in _parts(batch):
            gc.disable()  # the objects have no cycles, and the garbage collector would look through them again and again
            try:
                rows = decode_batch(part)
            finally:
                gc.enable()
            yield rows


def joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Batches that may have few rows as larger ones of at least JOINED_ROWS rows or BATCH_BYTES; the last one may be smaller."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        waiting.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= JOINED_ROWS or size >= BATCH_BYTES:
            yield from _combined(waiting)
            waiting, rows, size = [], 0, 0
    yield from _combined(waiting)


def _combined(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    return batches if len(batches) < 2 else pa.Table.from_batches(batches).combine_chunks().to_batches()


def _parts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The batch in slices of about BATCH_BYTES of frames."""
    if batch.num_rows == 0:
        return
    if batch.nbytes <= BATCH_BYTES:
        yield batch
        return
    rows = max(1, batch.num_rows * BATCH_BYTES // batch.nbytes)
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


def decode_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """One record batch, decoded."""
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    frames = columns["frame"]
    prefixes = _prefixes(frames)
    made = {column.name: [None] * batch.num_rows for column in OWN if column not in SIZES}
    lists: tuple[list[Any], ...] = ([], [], [], [])
    counts = tuple([0] * batch.num_rows for _ in lists)
    kinds = zip(*(columns[name].to_pylist() for name in ("dir", "api_key", "api_version")), strict=True)
    flags, seqs = columns["flags"].to_pylist(), columns["seq"].to_pylist()
    connections = cache(lambda: list(zip(*(columns[name].to_pylist() for name in _LISTENER), strict=True)))
    _decode_rows(zip(kinds, flags, prefixes, frames.to_pylist(), seqs, strict=True), made, lists, counts, connections)
    header = [_cast(columns[column.name], arrow_type(column.type)) for column in HEADER]
    own = [pc.binary_length(frames).cast(pa.int32()), pa.array(prefixes, pa.int32())]
    own += [pa.array(made[column.name], arrow_type(column.type)) for column in OWN[len(own) :]]
    flat = [_list_array(values, each, fields) for values, each, fields in zip(lists, counts, LISTS.values(), strict=True)]
    return pa.RecordBatch.from_arrays([*header, *own, *flat], names=[*INPUT[:-1], *(column.name for column in OWN), *LISTS])


def _prefixes(frames: pa.Array) -> Sequence[int | None]:
    """The first four bytes of each frame as a number; None where it has fewer."""
    starts = pc.binary_slice(frames, 0, 4).to_pylist()
    joined = b"".join(starts)
    if len(joined) == 4 * len(starts):
        return unpack(f">{len(starts)}i", joined)
    return [_LENGTH(start)[0] if len(start) == 4 else None for start in starts]


def _cast(array: pa.Array, kind: pa.DataType) -> pa.Array:
    return array if array.type.equals(kind) else array.cast(kind)


class _Way(NamedTuple):
    """How frames of one direction, API key and version are decoded. `decode` is None where `decode_frame` has to look at each of them."""

    decode: Decode | None
    is_request: bool
    is_sent: bool
    header: int
    count_errors: PathCounter | None
    has_states: bool
    read_fields: Reader | None = None
    is_same: bool = False
    """Most of these frames are equal but for their correlation ids."""
    is_fetch: bool = False
    """A request or response of Fetch."""


Kind = tuple[int, Any, Any]
"""Direction, API key, version; the last two may be None."""


@cache
def _way(direction: int, key: int | None, version: int | None) -> _Way:
    is_request = direction in (Direction.REQUEST_IN, Direction.REQUEST_OUT)
    is_sent = direction in (Direction.RESPONSE_OUT, Direction.REQUEST_OUT)
    if key is None or version is None:
        return _Way(None, is_request, is_sent, 0, None, False)
    how = plan(is_request, key, version)
    count_errors = None if is_request else _counter(key, version)
    has_states = key in OF_CONTROLLERS if is_request else key == ApiKey.METADATA
    read_fields = reader(is_request, key)
    if not isinstance(how, Plan) or (key == ApiKey.API_VERSIONS and not is_request):  # its error says in which version it is written
        is_same = key == ApiKey.API_VERSIONS and direction == Direction.RESPONSE_OUT
        return _Way(None, is_request, is_sent, 0, count_errors, has_states, read_fields, is_same)
    return _Way(how.decode, is_request, is_sent, how.header, count_errors, has_states, read_fields, is_fetch=key == ApiKey.FETCH)


def _counter(key: int, version: int) -> PathCounter:
    how = plan(False, key, version)
    if not isinstance(how, Plan):
        how = plan(False, key, 0)  # the response to an ApiVersions request of an unknown version
    return _no_errors if not isinstance(how, Plan) or how.count_errors is None else how.count_errors


def _no_errors(body: Body) -> Paths:
    return NO_CODES


def _decode_rows(
    rows: Iterable[tuple[Kind, int, int | None, bytes, int]],
    made: dict[str, list[Any]],
    lists: tuple[list[Any], ...],
    counts: tuple[list[int], ...],
    connections: Callable[[], list[Any]],
) -> None:
    """Decode frames: what is not null goes into the columns `made`, rows for other tables to `lists`, and how many come of each frame to
    `counts`. A row is a kind, flags, the first four bytes as a number, the frame, and its number in the journal. `connections` are the
    listeners of all rows.

    A complete frame without flags that is decoded to its end is handled here, with one call, that of the decoder. All others go to
    `decode_frame`, which also finds what is wrong with them.
    """
    texts, lefts, tops, errors = made["body_json"], made["bytes_left"], made["error_code"], made["errors"]
    throttles, fields, field_counts = made["throttle_ms"], lists[3], counts[3]
    known: dict[Any, tuple[Any, ...]] = {}
    ways: dict[Kind, _Way] = {}
    dumps = orjson.dumps
    for number, (kind, flags, prefix, frame, seq) in enumerate(rows):
        way = ways.get(kind)
        if way is None:
            way = ways[kind] = _way(*kind)
        decode, is_request, is_sent, header, count_errors, has_states, read_fields, is_same, is_fetch = way
        same = None
        if is_same and not flags and prefix == len(frame) - 4:
            same = kind, connections()[number], frame[8:]
            if same in known and not is_sampled(seq):
                texts[number], lefts[number], tops[number], throttles[number], errors[number] = known[same]
                continue
        reason = detail = None
        body: Body | None = None
        left: int | None = -1
        if decode is not None and not flags and prefix == len(frame) - 4:
            try:
                if not is_request:
                    start = 8
                elif header:
                    start = 14 + (frame[12] << 8 | frame[13]) if frame[12] < 128 else 14
                else:
                    start = 12
                if header > is_request:
                    start = skip_tags(frame, start) if frame[start] else start + 1
                body, end = decode(frame, start)
                left = len(frame) - end
            except Exception:  # noqa: BLE001 `decode_frame` says what is wrong
                left = -1
        if left:
            body, left, reason, detail = decode_frame(*kind, flags, frame)
        if body is not None:
            try:
                text = dumps(body)
                if has_states:
                    _add_states(kind[1], body, number, lists, counts)
                if count_errors is not None:
                    tops[number], found = body.get("errorCode"), count_errors(body)
                    throttles[number] = body.get("throttleTimeMs")
                    errors[number] = _add_codes(found, number, lists, counts) if found else 0
                if is_fetch:
                    _set_session(body, number, made)
                if len(text) > MAX_BODY:
                    made["err"][number] = f"left out: {len(text)} bytes of JSON, at most {MAX_BODY} are kept"
                else:
                    texts[number] = text
                    if read_fields is not None and same not in known:
                        read = part_reader(is_request, kind[1]) if flags & Flag.CUT else read_fields
                        field_counts[number] = _add_fields(fields, read(kind[2], body, text))
                    if is_sent and left == 0 and is_sampled(seq):
                        made["err"][number] = difference(*kind, frame, second=is_second_sampled(seq))
            except Exception as error:  # noqa: BLE001 as in `decode_frame`
                _forget(number, lists, counts)
                left = texts[number] = None
                reason, detail = Reason.MALFORMED, f"{type(error).__name__}: {error}"
        lefts[number] = left
        if same is not None and not errors[number] and texts[number] is not None:
            known[same] = texts[number], left, tops[number], throttles[number], errors[number]
        if texts[number] is None and reason is None and read_fields is not None and kind[1] in ALWAYS:
            fields.append({"has_body": False})
            field_counts[number] = 1
        if reason is not None:
            made["reason"][number], made["detail"][number], made["frame"][number] = reason.value, detail, frame


def _set_session(body: Body, number: int, made: dict[str, list[Any]]) -> None:
    """Which session a Fetch is about, and who fetches."""
    made["session_id"][number], made["session_epoch"][number] = body.get("sessionId"), body.get("sessionEpoch")
    made["replica_id"][number] = body["replicaState"]["replicaId"] if "replicaState" in body else body.get("replicaId")


def _add_fields(fields: list[Values], read: Values | None) -> int:
    """Add what rules read of a body, if that is anything; returns the number of rows."""
    if read is None:
        return 0
    fields.append(read | {"has_body": True})
    return 1


def _add_codes(found: Paths, number: int, lists: tuple[list[Any], ...], counts: tuple[list[int], ...]) -> int:
    """Add the error codes of a response; returns how many there are."""
    lists[2].extend((path, code, each) for (path, code), each in found.items())
    counts[2][number] = len(found)
    return sum(found.values())


def _forget(number: int, lists: tuple[list[Any], ...], counts: tuple[list[int], ...]) -> None:
    """Take away what was added of a frame."""
    for values, each in zip(lists, counts, strict=True):
        del values[len(values) - each[number] :]
        each[number] = 0


def _add_states(key: int, body: Body, number: int, lists: tuple[list[Any], ...], counts: tuple[list[int], ...]) -> None:
    """Add the partition states and brokers of a message."""
    states = partition_states(key, body)
    lists[0].extend(states)
    counts[0][number] = len(states)
    if key in (ApiKey.METADATA, ApiKey.UPDATE_METADATA):
        brokers = listed_brokers(key, body, orjson.dumps)
        lists[1].extend(brokers)
        counts[1][number] = len(brokers)


def _list_array(rows: list[Any], counts: list[int], fields: tuple[Column, ...]) -> pa.Array:
    arrays = _arrays_of_some(rows) if fields is FIELDS else _arrays(rows, fields)
    structs = pa.StructArray.from_arrays(arrays, names=[field.name for field in fields])
    return pa.ListArray.from_arrays(pa.array(array("i", accumulate(counts, initial=0)), pa.int32()), structs)


def _arrays(rows: list[tuple[Any, ...]], columns: tuple[Column, ...]) -> list[pa.Array]:
    """Rows as one Arrow array for each column."""
    values = zip(*rows, strict=True) if rows else ((),) * len(columns)
    return [pa.array(each, arrow_type(column.type)) for each, column in zip(values, columns, strict=True)]


def _arrays_of_some(rows: list[Values]) -> list[pa.Array]:
    """Rows of `FIELDS`, each with few of these columns, as one Arrow array for each column."""
    columns: dict[str, tuple[list[int], list[Any]]] = {column.name: ([], []) for column in FIELDS}
    for number, row in enumerate(rows):
        for name, value in row.items():
            if value is not None:
                numbers, values = columns[name]
                numbers.append(number)
                values.append(value)
    return [_spread(*columns[column.name], len(rows), arrow_type(column.type)) for column in FIELDS]


def _spread(numbers: list[int], values: list[Any], rows: int, kind: pa.DataType) -> pa.Array:
    """An Arrow array with these values in the rows of these numbers; other rows are null."""
    if not values:
        return pa.nulls(rows, kind)
    if len(values) == rows:
        return pa.array(values, kind)
    places = array("i", [len(values)]) * rows
    for place, number in enumerate(numbers):
        places[number] = place
    values.append(None)
    return pa.array(values, kind).take(pa.Array.from_buffers(pa.int32(), rows, [None, pa.py_buffer(places)]))
