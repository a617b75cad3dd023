"""The committed offsets of the groups of a run: set at the begin, waited for, and asked for at the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from klamm.admin import AdminClient, AdminError, TopicPartition
from klamm.chaos.clients.producers import LoadHangs
from klamm.chaos.kinds import PARTITIONS, RECORDS

READERS, COPIERS = "readers", "copiers"
GROUPS = (READERS, COPIERS)
LOOK_S = 0.5
ASK_MS = 3000
CATCH_UP_S = 90.0
"""A group without any progress for so long hangs."""
MOST_S = 600.0
"""A group that is slow need not read everything."""


class CommittedOffsets:
    """`final` has what the coordinators showed last: group → partition → committed offset, None if there is none."""

    def __init__(self, admin: AdminClient) -> None:
        self._admin = admin
        self.final: dict[str, dict[int, int | None]] = {group: {} for group in GROUPS}

    def commit_starts(self) -> None:
        """Commit offset 0 of all partitions, so that no member ever has to begin without an offset. Raises LoadHangs."""
        until = time.monotonic() + CATCH_UP_S
        for group in GROUPS:
            while (failure := self._commit_start(group)) is not None:
                if time.monotonic() > until:
                    raise LoadHangs(f"no offsets of group {group} can be committed: {failure}")
                time.sleep(LOOK_S)

    def _commit_start(self, group: str) -> AdminError | None:
        try:
            self._admin.alter_group_offsets(group, {(RECORDS, p): 0 for p in range(PARTITIONS)}, timeout_ms=ASK_MS).all()
        except AdminError as failure:
            return failure
        return None

    def wait_for(self, ends: Mapping[int, int], check: Callable[[], None]) -> list[str]:
        """Wait until both groups have committed these offsets, as long as they make progress. What is missing then, in sentences. `check`
        is called at each look, and may raise.
        """
        behind: list[str] = ["the committed offsets cannot be read"]
        progress: list[object] = []
        begun = until = time.monotonic()
        while behind and time.monotonic() - begun < MOST_S and time.monotonic() < until + CATCH_UP_S:
            time.sleep(LOOK_S)
            check()
            committed = {group: self.ask(group) for group in GROUPS}
            if [*committed.values()] != progress:
                progress, until = [*committed.values()], time.monotonic()
            behind = [
                f"group {group} has committed {None if row is None else row.get(p)} of {end} in partition {p}, and goes on no more"
                for group, row in committed.items() for p, end in ends.items() if row is None or row.get(p) != end
            ]
        return behind if time.monotonic() >= until + CATCH_UP_S else []

    def ask_at_the_end(self) -> None:
        """The last committed offsets, when no member commits any more."""
        until = time.monotonic() + CATCH_UP_S
        for group in GROUPS:
            while self.ask(group) is None and time.monotonic() < until:
                time.sleep(LOOK_S)

    def ask(self, group: str) -> dict[int, int | None] | None:
        """The committed offsets of a group by partition, kept in `final`; None if the coordinator does not tell."""
        try:
            offsets = self._admin.list_group_offsets({group: [(RECORDS, p) for p in range(PARTITIONS)]}, timeout_ms=ASK_MS)[group]
            rows = {p: offsets[TopicPartition(RECORDS, p)] for p in range(PARTITIONS)}
        except (AdminError, KeyError):
            return None
        self.final[group] = {p: None if row is None else int(row.offset) for p, row in rows.items()}
        return self.final[group]
