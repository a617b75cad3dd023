"""The load of a run: two producers, a reader, a group that reads and commits, and a group of copiers with transactions.

What the groups have committed is asked in `committed.py`; what the clients were told is judged in `judgement.py`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from klamm.admin import AdminClient
from klamm.chaos.clients.copiers import Copier
from klamm.chaos.clients.members import LostOffset, Member
from klamm.chaos.clients.producers import Gaps, LoadHangs, Producing
from klamm.chaos.clients.reading import Reading, read_all
from klamm.chaos.committed import COPIERS, READERS, CommittedOffsets
from klamm.chaos.histories.transaction_history import Outcome
from klamm.chaos.kinds import COPIED, COPIES, PARTITIONS, RECORDS
from klamm.control.json_object import JsonObject

QUIET_S = 0.05
LOOK_S = 0.5


class Load:
    """Everything that clients do. `begin`, then `finish`."""

    def __init__(
        self, bootstrap: str, seed: int, admin: AdminClient, reset: LostOffset, ended: Callable[[], str | None],
        waited_s: Callable[[], float],
    ) -> None:
        """`seed` chooses how partitions are assigned to members, and which transactions are aborted. `reset` is called if a member loses
        its offset. `ended` says how the process of the cluster ended, None while it runs; `waited_s`, how long it has waited for a CPU.
        """
        self.bootstrap, self.seed, self._reset, self._ended = bootstrap, seed, reset, ended
        self.gaps = Gaps(PARTITIONS, waited_s)
        self.producers = [
            Producing(bootstrap, RECORDS, PARTITIONS, f"producer{n}", idempotent=True, quiet_s=QUIET_S, gaps=self.gaps) for n in range(2)
        ]
        self.along = Reading(bootstrap, RECORDS, PARTITIONS, client_id="along")
        self.members: list[Member] = []
        self.copiers: list[Copier] = []
        self._gone: set[str] = set()
        self.hung: list[str] = []
        """Clients whose library hangs or has lost its brokers; another one was started in place of each, unless the load had ended."""
        self.unexplained: list[str] = []
        """Sentences about those of these that had brokers."""
        self.offsets = CommittedOffsets(admin)
        self._watching = threading.Event()
        self._watch = threading.Thread(target=self._look, name="replaces", daemon=True)

    def begin(self) -> None:
        """Start all clients. Raises LoadHangs."""
        self.offsets.commit_starts()
        self.along.start()
        for producer in self.producers:
            producer.start()
        for group in (READERS, READERS, COPIERS, COPIERS):
            self.join(group)
        self._watch.start()

    def join(self, group: str) -> Member | Copier:
        """One more member of a group."""
        if group == READERS:
            strategy = ("range", "cooperative-sticky")[self.seed % 2]
            self.members.append(Member(self.bootstrap, RECORDS, READERS, f"reader{len(self.members)}", strategy, self._reset).start())
            return self.members[-1]
        name = f"copier{len(self.copiers)}"
        copier = Copier(self.bootstrap, RECORDS, COPIED, COPIES, COPIERS, name, self.seed + len(self.copiers), self._reset)
        self.copiers.append(copier.start())
        return self.copiers[-1]

    def _all(self) -> list[Member | Copier]:
        return [*self.members, *self.copiers]

    def leave(self, member: Member | Copier) -> None:
        """A member leaves its group."""
        self._gone.add(member.name)
        if not member.leave():
            self.hung.append(member.name)
            if isinstance(member, Member) and not member.contact.is_lost:
                self.unexplained.append(f"{member.name} does not leave its group, although it asked brokers ({member.contact.known})")

    def finish(self) -> list[str]:
        """End the producers, wait until the groups have read everything, and end them. What is wrong with that, in sentences.

        Raises LoadHangs.
        """
        for producer in self.producers:
            self._check()
            producer.finish()
        logs = read_all(self.bootstrap, RECORDS, PARTITIONS)
        behind = self.offsets.wait_for({p: log[-1][0] + 1 for p, log in logs.items() if log}, self._check)
        self._watching.set()
        self._watch.join()
        for member in self._all():
            self._check()
            if member.name not in self._gone:
                self.leave(member)
        self.offsets.ask_at_the_end()
        self.along.finish(logs)
        return behind

    def _check(self) -> None:
        """Raises LoadHangs if there is no cluster any more: then each client would wait as long as it may."""
        said = self._ended()
        if said is not None:
            raise LoadHangs(said)

    def _look(self) -> None:
        """Replace the members that hang."""
        while not self._watching.wait(LOOK_S):
            for member in [each for each in self._all() if each.name not in self._gone and each.hangs]:
                self._gone.add(member.name)
                self.hung.append(member.name)
                member.ends(0)
                self.join(READERS if isinstance(member, Member) else COPIERS)

    def counts(self) -> JsonObject:
        """Numbers for the summary."""
        outcomes = [attempt.outcome for copier in self.copiers for attempt in copier.attempts]
        return {
            "transactions": len(outcomes), "committed": outcomes.count(Outcome.COMMITTED), "aborted": outcomes.count(Outcome.ABORTED),
            "delivered": sum(len(member.deliveries) for member in self.members), "commits": _acknowledged(self.members),
            "assignments": sum(each.assignments for each in self._all()),
            "hung_clients": sorted(self.hung), "longest_unavailability_s": round(max(self.gaps.longest_s), 1),
            "longest_working_unavailability_s": round(max(self.gaps.longest_working_s), 1),
        }


def _acknowledged(members: Iterable[Member]) -> int:
    return sum(commit.acknowledged_s is not None for member in members for commit in member.commits)
