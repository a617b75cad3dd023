"""What `klamm pipeline compact` does: merges all small parts of silver, and deletes bronze if that is wanted.

`run` merges parts where there are many of them. Bronze is never rewritten, and the journal itself is never changed.
"""

from __future__ import annotations

from klamm.pipeline.lake import delta_log
from klamm.pipeline.lake.commits import Commits
from klamm.pipeline.lake.folder import Lake
from klamm.pipeline.lake.merge import Merged, merge_small
from klamm.pipeline.lake.store import Store
from klamm.pipeline.lake.tables import SILVER
from klamm.pipeline.stream import account


def compact(lake: Lake) -> list[Merged]:
    """Merge all small parts of silver. The caller holds the lock of the lake (`access/driver.py`).

    Raises PipelineFailed if rows get lost; then the part is not replaced.
    """
    for table in SILVER:
        delta_log.sweep(lake, table.path)
    return merge_small(lake, many=1)


def purge(lake: Lake) -> int:
    """Delete the Parquet files of bronze; returns their number. Raises PipelineFailed if not all their rows are in silver."""
    account(lake, Commits(lake))
    removed = 0
    for name in ("frames", "events"):
        table = f"bronze/{name}"
        parts = delta_log.entries(lake, table)
        if parts:
            delta_log.drop(lake, table, parts)
            delta_log.name_version(lake)
            Store(lake).delete_files(entry.path for entry in parts)  # others may be segments that were shipped and wait for a run
            removed += len(parts)
    return removed
