"""Segments of a journal, read into a database for one question. Nothing is written to the lake."""

from __future__ import annotations

import gc
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import duckdb

from klamm.journal.segments import Segment
from klamm.pipeline.lake.folder import PipelineFailed
from klamm.pipeline.quick import tables
from klamm.pipeline.quick.tables import Loaded
from klamm.pipeline.quick.translations import translations


@contextmanager
def database(found: Sequence[Segment], memory: str) -> Iterator[tuple[duckdb.DuckDBPyConnection, Loaded]]:
    """A database with the rows of segments in the tables of silver. `memory` is DuckDB's: what exceeds it is written to a temporary folder.

    Raises PipelineFailed where memory or disk are too small.
    """
    with tempfile.TemporaryDirectory(prefix="klamm-quick-") as folder, _no_garbage(), _one_line():
        opened = tables.opened(memory, folder)
        try:
            yield opened, tables.load(opened, found)
        finally:
            opened.close()
    translations().save()


@contextmanager
def _one_line() -> Iterator[None]:
    """Raise PipelineFailed where memory or disk are too small for DuckDB. Other errors are faults of queries."""
    try:
        yield
    except duckdb.OperationalError as problem:
        advice = "; --memory gives it more" if isinstance(problem, duckdb.OutOfMemoryException) else ""
        raise PipelineFailed(f"DuckDB: {str(problem).strip().splitlines()[0]}{advice}") from problem


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
