"""From bronze to silver: a batch has the segments of a few commits of bronze, and the number of the last of them.

Each table of silver has the number of its last batch in its log, committed together with the files. A batch that was killed between two
tables is repeated with the same commits, and the tables that have it stay as they are: each row counts once. Nothing else says what silver
has, so a lake can be moved. If silver has other tables or columns now, silver and gold are built again from bronze.

After each run the rows are counted: frames of bronze = messages + quarantine, events of bronze = events of silver.
"""

from __future__ import annotations

from klamm.pipeline.lake import delta_log, layout
from klamm.pipeline.lake.commits import PURGED, Commits, waiting
from klamm.pipeline.lake.folder import Lake, PipelineFailed
from klamm.pipeline.lake.local_workers import Choose
from klamm.pipeline.lake.store import Store
from klamm.pipeline.lake.tables import MESSAGES, SILVER
from klamm.pipeline.silver import Begin, Source, build_silver

COMMITS_A_BATCH = 8
DERIVED = ("silver", "gold")


def prepare(lake: Lake) -> bool:
    """Check what silver is. Returns True if silver and gold have to be built again; then they have been removed."""
    is_rebuilt = not layout.is_current(lake) or delta_log.committed(lake, MESSAGES.path) < 0
    if is_rebuilt:
        if Store(lake).has("silver") and not layout.is_being_removed(lake):
            _refuse_to_lose(lake)
            layout.remove(lake)
        for name in (delta_log.VERSION, *DERIVED):
            Store(lake).delete(name)
        Commits(lake).begin_again()
        layout.keep(lake)
    return is_rebuilt


def _refuse_to_lose(lake: Lake) -> None:
    """Raise PipelineFailed if silver has rows that bronze lost by `compact --purge`."""
    for table, of_silver in (("frames", ("messages", "quarantine")), ("events", ("events",))):
        if delta_log.rows(lake, f"bronze/{table}") < sum(delta_log.rows(lake, f"silver/{name}") for name in of_silver):
            raise PipelineFailed(PURGED.format(lake))


def remove_remains(lake: Lake) -> None:
    """Delete what a killed run left in silver and gold, and the files that were replaced since the last run."""
    for table in delta_log.tables(lake):
        if table.startswith(DERIVED):
            delta_log.sweep(lake, table)


class Silver:
    """What silver has of the commits of bronze."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._done = delta_log.committed(lake, MESSAGES.path)
        self._begun = max(delta_log.committed(lake, table.path) for table in SILVER)

    def catch_up(self, workers: Choose, begin: Begin | None = None) -> bool:
        """Bring the rows of all commits into silver, if it lacks some; `begin` is called for each batch. Raises RowsLostError."""
        before = self._done
        while commits := waiting(self._lake, self._done):
            some = [commit for commit in commits if commit.number <= self._begun] or commits[:COMMITS_A_BATCH]
            lines = [line for commit in some for line in commit.lines() if line["rows"] > 0]
            sources = [Source(line["table"], line["run"], line["path"], line["rows"]) for line in lines]
            build_silver(workers(sum(source.rows for source in sources)), self._lake, sources, some[-1].number, begin)
            self._done = some[-1].number
        return self._done > before


def account(lake: Lake, commits: Commits) -> dict[str, int]:
    """The rows of each table of silver, from its log. Raises PipelineFailed if rows of bronze are missing there."""
    silver = {name: delta_log.rows(lake, f"silver/{name}") for name in ("messages", "quarantine", "events")}
    frames, events = commits.rows["frames"], commits.rows["events"]
    if frames != silver["messages"] + silver["quarantine"]:
        raise PipelineFailed(
            f"{frames} frames in bronze, but {silver['messages']} messages and {silver['quarantine']} frames in quarantine"
        )
    if events != silver["events"]:
        raise PipelineFailed(f"{events} events in bronze, but {silver['events']} in silver")
    return {"frames": frames, **silver}
