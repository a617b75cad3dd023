"""Rows of silver, read into a database for one question."""

from __future__ import annotations

import gc
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import duckdb
import pyarrow as pa

from klamm.pipeline.lake.folder import Lake, PipelineFailed
from klamm.pipeline.lake.unjudged_rows import Missing, Torn, empty_segments, missing_rows
from klamm.pipeline.quick import tables
from klamm.pipeline.quick.tables import Loaded
from klamm.pipeline.quick.translations import translations

T = TypeVar("T")


@contextmanager
def database(
    read: Callable[[duckdb.DuckDBPyConnection], T], memory: str, advice: str
) -> Iterator[tuple[duckdb.DuckDBPyConnection, T]]:
    """A database with the tables of silver, whose rows `read` inserts, and what it returns. `memory` is DuckDB's: what exceeds it is
    written to a temporary folder. `advice` says what to do where it is too small.

    Raises PipelineFailed where memory or disk are too small.
    """
    with tempfile.TemporaryDirectory(prefix="klamm-quick-") as folder, _no_garbage(), _one_line(advice):
        opened = tables.opened(memory, folder)
        try:
            yield opened, read(opened)
        finally:
            opened.close()
    translations().save()


@contextmanager
def _one_line(advice: str) -> Iterator[None]:
    """Raise PipelineFailed where memory or disk are too small for DuckDB. Other errors are faults of queries."""
    try:
        yield
    except duckdb.OperationalError as problem:
        what = f"; {advice}" if isinstance(problem, duckdb.OutOfMemoryException) else ""
        raise PipelineFailed(f"DuckDB: {str(problem).strip().splitlines()[0]}{what}") from problem


def lost_rows(
    lake: Lake, runs: Sequence[str], database: duckdb.DuckDBPyConnection, loaded: Loaded
) -> tuple[list[Missing], list[Torn]]:
    """The rows that the journals of these runs lack, and the segments whose ends are lost."""
    missing = missing_rows(lake, runs, lambda run: _numbers(database, run))
    return missing, sorted(one for one in (*loaded.torn, *empty_segments(lake)) if one.run in runs)


def _numbers(database: duckdb.DuckDBPyConnection, run: str) -> Iterator[pa.Table]:
    """Broker, process and `seq` of the rows of a run."""
    for name in ("messages", "quarantine", "events"):
        yield database.sql(f"SELECT node_id, process, seq FROM {name} WHERE run_id = $run", params={"run": run}).to_arrow_table()


@contextmanager
def _no_garbage() -> Iterator[None]:
    """What is made meanwhile has no cycles that matter: the garbage collector would look through decoded bodies again and again."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
