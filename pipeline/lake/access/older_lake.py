"""Takes over a lake whose tables an older Klamm made, which had a manifest for each table in place of a log.

Bronze stays as it is and gets a log. Silver and gold are removed; they are made again from bronze. Each step can be repeated.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from klamm.pipeline.lake import delta_log
from klamm.pipeline.lake.access.driver import has_manifests
from klamm.pipeline.lake.commits import PURGED, Commits
from klamm.pipeline.lake.delta_log import Entry
from klamm.pipeline.lake.folder import CHECKPOINTS, MANIFEST, PipelineFailed
from klamm.pipeline.lake.parquet_files import opened, told
from klamm.pipeline.lake.tables import BRONZE, Table


def take_over(lake: Path) -> list[str]:
    """A line about what was taken over, if the tables have manifests. Raises PipelineFailed if silver could not be made again."""
    if not has_manifests(lake):
        return []
    found = {table: _files(lake, table) for table in BRONZE}
    committed = Commits(lake).rows
    named = [table for table in BRONZE if (lake / table.path / MANIFEST).exists()]  # a takeover that was killed may have removed one
    if any(sum(entry.rows for entry in found[table]) < committed[table.name] for table in named):
        raise PipelineFailed(PURGED.format(lake))
    for table, entries in found.items():
        delta_log.append(lake, [table], entries)
    for folder in ("silver", "gold"):
        shutil.rmtree(lake / folder, ignore_errors=True)
    for path in (lake / CHECKPOINTS).glob("*"):
        if path.is_dir():
            shutil.rmtree(path)
    for table in BRONZE:
        (lake / table.path / MANIFEST).unlink(missing_ok=True)
    return [f"an older Klamm made the tables of {lake}: bronze is taken over, silver and gold are made again from it"]


def _files(lake: Path, table: Table) -> list[Entry]:
    """The files that a manifest names: a later line counts in place of earlier ones, and a torn one does not count."""
    latest: dict[tuple[str, str], str] = {}
    path = lake / table.path / MANIFEST
    for line in path.read_bytes().splitlines() if path.exists() else ():
        try:
            change = json.loads(line)
        except ValueError:
            continue
        for run, batch in change.get("drop", ()):
            latest.pop((run, batch), None)
        if change.get("rows"):
            latest[change["run"], change["batch"]] = change["path"]
    return [_entry(lake, table, run, batch, name) for (run, batch), name in latest.items() if (lake / name).is_file()]


def _entry(lake: Path, table: Table, run: str, batch: str, name: str) -> Entry:
    with opened(lake / name) as file:
        return Entry(table.path, run, batch, name, *told(file.metadata, (lake / name).stat().st_size))
