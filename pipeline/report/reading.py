"""Reads the tables of one run for the report: from the files of a lake, as plain Parquet, or from a database (`quick/run_tables.py`)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from klamm.pipeline.lake import delta_log
from klamm.pipeline.lake import parquet_files as plain
from klamm.pipeline.lake.folder import Lake
from klamm.pipeline.lake.tables import BRONZE, Table
from klamm.protocol.apis import APIS
from klamm.protocol.errors import ErrorCode

Row = dict[str, Any]

FRAMES, EVENTS = BRONZE


class Place(NamedTuple):
    """A row of a journal."""

    node_id: int
    seq: int


def to_ms(ns: int) -> float:
    """Nanoseconds as milliseconds."""
    return ns / 1e6


def api_name(key: int | None) -> str:
    """The name of an API, or its number."""
    if key is None:
        return "no request"
    return APIS[key].name if key in APIS else f"API {key}"


def error_name(code: int) -> str:
    """The name of an error code, or its number."""
    return ErrorCode(code).name if code in ErrorCode._value2member_map_ else f"error {code}"


def by_node(places: Iterable[Place]) -> dict[int, list[int]]:
    """The rows at these places by broker: numbers of a journal are those of one broker."""
    found: dict[int, list[int]] = defaultdict(list)
    for place in places:
        found[place.node_id].append(place.seq)
    return found


class RunTables(Protocol):
    """The tables of one run, wherever they are."""

    @property
    def run(self) -> str: ...

    def read(self, table: Table, columns: Iterable[str]) -> pa.Table:
        """These columns of a table; a table that was never written is empty."""

    def by_file(self, table: Table, columns: Iterable[str]) -> Iterator[pa.Table]:
        """These columns of a table that may have many rows, some rows at a time."""

    def where(self, table: Table, names: Collection[str] | None = None, **wanted: Collection[Any]) -> list[Row]:
        """The rows that have one of the wanted values in each of these columns; with `names` only these columns."""

    def rows(self, table: Table) -> int:
        """How many rows a table has."""


class StoredTables:
    """The tables of one run in the files of a lake, read as plain Parquet."""

    def __init__(self, lake: Lake, run: str) -> None:
        self._lake = lake
        self._run = run

    @property
    def run(self) -> str:
        """The name of the run."""
        return self._run

    def read(self, table: Table, columns: Iterable[str]) -> pa.Table:
        """These columns of a table; a table that was never written is empty."""
        return plain.columns(delta_log.files(self._lake, table.path, [self._run]), list(columns))

    def by_file(self, table: Table, columns: Iterable[str]) -> Iterator[pa.Table]:
        """These columns of a table that may have many rows, one file at a time."""
        for file in delta_log.files(self._lake, table.path, [self._run]):
            rows = plain.columns([file], list(columns))
            if rows.num_rows:
                yield rows

    def where(self, table: Table, names: Collection[str] | None = None, **wanted: Collection[Any]) -> list[Row]:
        """The rows that have one of the wanted values in each of these columns; with `names` only these columns."""
        if not all(wanted.values()):
            return []
        return plain.rows_where(delta_log.files(self._lake, table.path, [self._run]), wanted, None if names is None else list(names))

    def rows(self, table: Table) -> int:
        """How many rows a table has."""
        return delta_log.rows(self._lake, table.path, [self._run])
