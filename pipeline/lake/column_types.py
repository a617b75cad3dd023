"""Types of columns as text, and what Arrow and Spark call them: `int32`, `list<int64>`, `list<struct<name string, isr list<int32>>>`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING

from klamm.journal.columns import Column

if TYPE_CHECKING:
    import pyarrow as pa

SPARK_TYPES = {
    "int8": "tinyint",
    "int16": "smallint",
    "int32": "int",
    "int64": "bigint",
    "double": "double",
    "bool": "boolean",
    "string": "string",
    "binary": "binary",
    "timestamp": "timestamp",
    "list": "array",
}

_WORD = re.compile(r"\w+|[<>,]")


def spark_type(kind: str) -> str:
    """The type as Spark's DDL has it."""
    return re.sub(r"\w+(?=[<>,]|$)", lambda word: SPARK_TYPES.get(word[0], word[0]), kind)


@cache
def arrow_type(kind: str) -> pa.DataType:
    """The type as Arrow has it."""
    words = _WORD.findall(kind)
    found = _read(words)
    if words:
        raise ValueError(f"{kind!r}: not a type of a column")
    return found


def arrow_schema(columns: Iterable[Column]) -> pa.Schema:
    """The columns as Arrow has them."""
    import pyarrow as pa

    return pa.schema([(column.name, arrow_type(column.type)) for column in columns])


def _read(words: list[str]) -> pa.DataType:
    """Take one type from the beginning of `words`."""
    import pyarrow as pa

    word = words.pop(0)
    if word == "list":
        words.pop(0)
        inner = pa.list_(_read(words))
        words.pop(0)
        return inner
    if word == "struct":
        fields = []
        while words.pop(0) in "<,":
            name = words.pop(0)
            fields.append((name, _read(words)))
            if words[0] == ">":
                words.pop(0)
                break
        return pa.struct(fields)
    if word == "timestamp":
        return pa.timestamp("us", "UTC")
    return getattr(pa, {"double": "float64", "bool": "bool_"}.get(word, word))()


_DUCKDB_TYPES = {
    "int8": "TINYINT", "int16": "SMALLINT", "int32": "INTEGER", "int64": "BIGINT", "double": "DOUBLE", "bool": "BOOLEAN",
    "string": "VARCHAR", "binary": "BLOB", "timestamp[us, tz=UTC]": "TIMESTAMPTZ",
}


def duckdb_type(kind: str) -> str:
    """The type as DuckDB has it."""
    return _in_duckdb(arrow_type(kind))


def _in_duckdb(kind: pa.DataType) -> str:
    import pyarrow as pa

    if pa.types.is_list(kind):
        return f"{_in_duckdb(kind.value_type)}[]"
    if pa.types.is_struct(kind):
        return f"STRUCT({', '.join(f'{chr(34)}{field.name}{chr(34)} {_in_duckdb(field.type)}' for field in kind)})"
    return _DUCKDB_TYPES[str(kind)]


def as_type(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """The values as this type."""
    return array if array.type.equals(kind) else array.cast(kind)


def with_columns(rows: pa.RecordBatch, columns: Iterable[Column]) -> pa.RecordBatch:
    """The rows with exactly these columns and their types; a column that they lack is null."""
    import pyarrow as pa

    names, kinds = rows.schema.names, {column.name: arrow_type(column.type) for column in columns}
    arrays = [as_type(rows.column(name), kind) if name in names else pa.nulls(rows.num_rows, kind) for name, kind in kinds.items()]
    return pa.RecordBatch.from_arrays(arrays, names=list(kinds))
