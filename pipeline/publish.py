"""Copies a lake's tables to another place, a folder or a URL such as `s3://bucket/lake`, with a Delta log of their own there.

The tables of a lake are Delta Lake tables, which Spark, Trino, DuckDB, Polars and others read without Klamm. Programs that cannot reach the
lake read the copy. Each publication of a table with changes is one commit, so readers see all files of it or none, and earlier versions can
be read as long as their files exist.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from klamm.pipeline.lake import delta_log
from klamm.pipeline.lake.folder import Lake, PipelineFailed
from klamm.pipeline.lake.parquet_files import opened, told
from klamm.pipeline.lake.sql_views import TABLES
from klamm.pipeline.lake.store import Store, why
from klamm.pipeline.lake.tables import Table

HOUR_NS = 3_600_000_000_000


class Published(NamedTuple):
    """A table that was published: its version in Delta, and the files that this version adds and removes."""

    table: str
    version: int
    added: int
    removed: int


class Removed(NamedTuple):
    """Files that were removed from the folder of a published table."""

    table: str
    files: int


def publish(lake: Lake, target: str) -> Iterator[Published]:
    """Publish the tables that changed since they were last published, one after the other; tables that never had a row are left out.

    It is the version of the lake that readers see. Credentials and endpoints of an object store are read from its usual environment
    variables. Raises PipelineFailed.
    """
    with delta_log.one_version(lake):
        for table in TABLES:
            done = _publish(lake, table, target)
            if done is not None:
                yield done


def remove_old(target: str, keep_ns: int) -> Iterator[Removed]:
    """Remove the files from a target that no version of its tables had within this time. Versions that need them cannot be read after it.

    Delta counts hours; a part of one counts as a whole. Raises PipelineFailed.
    """
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    options = Store(target).options
    hours = math.ceil(keep_ns / HOUR_NS)
    for table in TABLES:
        where = _place(target, table)
        try:
            if DeltaTable.is_deltatable(where, options):
                removing = partial(DeltaTable(where, storage_options=options).vacuum, hours, enforce_retention_duration=False, full=True)
                there = Store(target).names(table.path)
                gone = {f"{table.path}/{name}" for name in removing(dry_run=True)}.intersection(there)  # some went earlier
                if gone:
                    removing(dry_run=False)
                    yield Removed(table.path, len(gone))
        except (OSError, DeltaError) as problem:
            raise PipelineFailed(f"files of {table.path} cannot be removed: {why(problem)}") from problem


def _place(target: str, table: Table) -> str:
    return f"{target.rstrip('/')}/{table.path}"


def _publish(lake: Lake, table: Table, target: str) -> Published | None:
    there = {entry.path: entry for entry in delta_log.entries(target, table.path)}
    here = {entry.path: entry for entry in delta_log.entries(lake, table.path) if entry.rows}
    gone = [entry for path, entry in there.items() if path not in here]
    added = []
    for path in here.keys() - there.keys():
        file = Store(lake).local(path)
        about = told(opened(file).metadata, here[path].bytes)
        added.append(here[path]._replace(statistics=about.statistics))
        Store(target).copy(path, file)
    if not added and not gone:
        return None
    delta_log.change(target, table, added, gone)
    return Published(table.path, delta_log.version(target, table.path), len(added), len(gone))
