"""Makes Arrow batches from packed rows, without a Python object for each value: a column is every n-th number of the packed bytes.

A row of `frames` is packed into 56 bytes. Values that are the same for many frames of a connection are a context, and a row has the number
of its context. The strings of contexts are dictionary-encoded, with one dictionary per segment.
"""

from __future__ import annotations

import struct
import sys
import time
from array import array
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from klamm.journal.columns import EVENTS
from klamm.journal.json_text import to_json

_SIZE = 56
PLAIN_REQUEST = struct.Struct("=qqqIi24x")
"""The row of a received request: seq, monotonic clock, context, API key and version as one number, correlation id; then zeros."""
RESPONSE = struct.Struct("=32sqqib3x")
"""The row of a response: the row of its request, then its own seq and monotonic clock, flags, direction."""
OTHER = struct.Struct("=32s8xqibb2x")
"""Any other row, also of a request with more values: like that of a plain request, then cause (0: null), flags, direction, and which
columns are null (`NO_CORRELATION`, `NO_API`).
"""

NO_CORRELATION = 1
NO_API = 2

_LONGS, _INTS, _SHORTS, _BYTES = _SIZE // 8, _SIZE // 4, _SIZE // 2, _SIZE
_KEY, _VERSION = (13, 12) if sys.byteorder == "little" else (12, 13)
"""Positions of API key and version, in units of int16."""
breathe = time.sleep
"""`breathe(0)` lets the thread of the event loop run if it waits for the GIL."""

LARGEST_DICTIONARY = 4096
"""Maximum number of contexts in a dictionary. After that a new dictionary begins."""


class ContextValues(NamedTuple):
    """Values that the frames of a connection share until one of them changes."""

    conn_id: int
    kind: str
    listener: str | None
    peer: str
    peer_id: int | None
    principal: str | None
    client_id: str | None
    client_sw: str | None


_NUMBERS = {"conn_id": pa.int64(), "peer_id": pa.int32()}
"""Columns of a context that are not strings."""


class Contexts:
    """The contexts of one segment, as columns. `values` has all contexts by number."""

    def __init__(self, values: Mapping[int, ContextValues]) -> None:
        self._values = values
        self.clear()

    def clear(self) -> None:
        """Drop the dictionaries, because a new segment begins."""
        self._index: dict[int, int] = {}
        self._used: list[ContextValues] = []
        self._arrays: dict[str, tuple[pa.Array, pa.Array]] = {}
        # The first array of a process imports pandas if it is installed. This takes half a second, which must not delay the first batch.
        self._numbers = {name: pa.array([], kind) for name, kind in _NUMBERS.items()}

    def columns(self, numbers: list[int]) -> dict[str, pa.Array]:
        """The context columns of rows with these context numbers."""
        breathe(0)
        missing = set(numbers) - self._index.keys()
        if missing:
            if len(self._index) + len(missing) > LARGEST_DICTIONARY:
                self.clear()
                missing = set(numbers)
            for number in sorted(missing):
                self._index[number] = len(self._used)
                self._used.append(self._values[number])
            self._encode()
        breathe(0)
        rows = pa.Array.from_buffers(pa.int32(), len(numbers), [None, pa.py_buffer(array("i", map(self._index.__getitem__, numbers)))])
        breathe(0)
        found = {
            name: pa.DictionaryArray.from_arrays(pc.take(indices, rows), dictionary) for name, (indices, dictionary) in self._arrays.items()
        }
        for name, values in self._numbers.items():
            found[name] = pc.take(values, rows)
        return found

    def _encode(self) -> None:
        for name, values in zip(ContextValues._fields, zip(*self._used, strict=True), strict=True):
            if name in _NUMBERS:
                self._numbers[name] = pa.array(values, _NUMBERS[name])
            else:
                distinct: dict[str, int] = {}
                indices = pa.array([None if v is None else distinct.setdefault(v, len(distinct)) for v in values], pa.int32())
                self._arrays[name] = indices, pa.array(distinct, pa.string())


class Where(NamedTuple):
    """Values that all rows of a process share."""

    run_id: str
    node_id: int
    process: int


class Constants:
    """The columns of `Where`. Those of large batches are made once."""

    def __init__(self, where: Where) -> None:
        self._where = where
        self._size = 0

    def columns(self, size: int) -> dict[str, pa.Array]:
        """For a batch of `size` rows."""
        if size > self._size:
            self._size = max(size, 1024)
            zeros = pa.Array.from_buffers(pa.int32(), self._size, [None, pa.py_buffer(bytes(4 * self._size))])
            self._run = pa.DictionaryArray.from_arrays(zeros, pa.array([self._where.run_id], pa.string()))
            self._node = pa.repeat(pa.scalar(self._where.node_id, pa.int32()), self._size)
            self._process = pa.repeat(pa.scalar(self._where.process, pa.int32()), self._size)
        return {"run_id": self._run.slice(0, size), "node_id": self._node.slice(0, size), "process": self._process.slice(0, size)}


def frames_batch(
    rows: Sequence[bytes], frames: Sequence[bytes], offset_ns: int, contexts: Contexts, constants: Constants, schema: pa.Schema
) -> pa.RecordBatch:
    """A batch of `frames`. `offset_ns` is the wall clock minus the monotonic clock."""
    size = len(rows)
    data = memoryview(b"".join(rows))
    breathe(0)
    longs, ints, shorts, single = data.cast("q"), data.cast("i"), data.cast("h"), data.cast("b")
    nulls = single[53::_BYTES].tobytes()
    content = _binary(frames)
    breathe(0)
    first, began = _array(pa.int64(), longs[0::_LONGS]), _array(pa.int64(), longs[1::_LONGS])
    own, last = _array(pa.int64(), longs[4::_LONGS]), _array(pa.int64(), longs[5::_LONGS])  # if it is not a response: 0 and its cause
    is_response = pc.not_equal(own, 0)
    mono = pc.if_else(is_response, last, began)
    cause = pc.if_else(is_response, first, last)
    columns = {
        **constants.columns(size),
        **contexts.columns(longs[2::_LONGS].tolist()),
        "seq": pc.if_else(is_response, own, first),
        "ts_ns": pc.add(mono, offset_ns),
        "mono_ns": mono,
        "latency_ns": _with_nulls(pc.subtract(mono, began), is_response),
        "cause_seq": _with_nulls(cause, pc.not_equal(cause, 0)),
        "correlation_id": _array(pa.int32(), ints[7::_INTS]),
        "flags": _array(pa.int32(), ints[12::_INTS]),
        "api_key": _array(pa.int16(), shorts[_KEY::_SHORTS]),
        "api_version": _array(pa.int16(), shorts[_VERSION::_SHORTS]),
        "dir": _array(pa.int8(), single[52::_BYTES]),
        "frame": content,
    }
    breathe(0)
    if any(nulls):
        bits = _array(pa.int8(), memoryview(nulls))
        has_api = pc.equal(pc.bit_wise_and(bits, pa.scalar(NO_API, pa.int8())), 0)
        has_correlation = pc.equal(pc.bit_wise_and(bits, pa.scalar(NO_CORRELATION, pa.int8())), 0)
        columns["correlation_id"] = _with_nulls(columns["correlation_id"], has_correlation)
        columns["api_key"] = _with_nulls(columns["api_key"], has_api)
        columns["api_version"] = _with_nulls(columns["api_version"], has_api)
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


Event = tuple[Any, ...]
"""seq and monotonic clock, then the columns of `EVENTS` after `kind`, with `kind`, in order; input and output are not converted yet."""

_EVENT_COLUMNS = EVENTS[6:]


def events_batch(events: Sequence[Event], offset_ns: int, constants: Constants, schema: pa.Schema) -> pa.RecordBatch:
    """A batch of `events`."""
    seqs, monos, *others = zip(*events, strict=True)
    mono = pa.array(monos, pa.int64())
    columns = {**constants.columns(len(events)), "seq": pa.array(seqs, pa.int64()), "ts_ns": pc.add(mono, offset_ns), "mono_ns": mono}
    for column, values in zip(_EVENT_COLUMNS, others, strict=True):
        if column.name in ("input", "output"):
            values = tuple(map(_json_of, values))
        made = _made(values, pa.type_for_alias(column.type))
        columns[column.name] = made.dictionary_encode() if column.name == "kind" else made
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


def _json_of(value: object) -> str | None:
    """The JSON of a value. If the conversion fails, the JSON has the error, and other rows are not affected."""
    try:
        return to_json(value)
    except Exception as error:  # noqa: BLE001 a callable can raise anything
        return to_json({"unwritable": f"{type(error).__name__}: {error}"})


def _made(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """An array of values. Single surrogates, which JSON from ZooKeeper can contain, become question marks."""
    try:
        return pa.array(values, kind)
    except UnicodeEncodeError:
        return pa.array([v.encode("utf-8", "replace").decode() if isinstance(v, str) else v for v in values], kind)


def _array(kind: pa.DataType, values: memoryview) -> pa.Array:
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values.tobytes())])


def _with_nulls(values: pa.Array, valid: pa.Array) -> pa.Array:
    return pa.Array.from_buffers(values.type, len(values), [valid.buffers()[1], values.buffers()[1]])


def _binary(values: Sequence[bytes]) -> pa.Array:
    offsets = array("i", accumulate(map(len, values), initial=0))
    breathe(0)
    return pa.Array.from_buffers(pa.binary(), len(values), [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(values))])
