"""What `klamm pipeline compact` does: merges all small parts of silver, and deletes bronze if that is wanted.

`run` merges parts where there are many of them. Bronze is never rewritten, and the journal itself is never changed.
"""

from __future__ import annotations

from pathlib import Path

from klamm.pipeline.lake import manifest
from klamm.pipeline.lake.commits import Commits
from klamm.pipeline.lake.merge import Merged, merge_small
from klamm.pipeline.lake.tables import SILVER
from klamm.pipeline.stream import account


def compact(lake: Path) -> list[Merged]:
    """Merge all small parts of silver. The caller holds the lock of the lake (`folder.written`).

    Raises PipelineFailed if rows get lost; then the part is not replaced.
    """
    for table in SILVER:
        manifest.sweep(lake, table.path)
    done = merge_small(lake, many=1)
    for table in SILVER:
        if manifest.entries(lake, table.path):
            manifest.rewrite(lake, table.path)
    return done


def purge(lake: Path) -> int:
    """Delete the Parquet files of bronze; returns their number. Raises PipelineFailed if not all their rows are in silver."""
    account(lake, Commits(lake))
    removed = 0
    for name in ("frames", "events"):
        table = f"bronze/{name}"
        parts = manifest.entries(lake, table)
        if parts:
            manifest.drop(lake, table, parts)
            removed += len(manifest.sweep(lake, table))
    return removed
