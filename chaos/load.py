"""The load of a run: two producers, a group that reads and commits, and a group of copiers with transactions."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from klamm.admin import AdminClient, AdminError, TopicPartition
from klamm.chaos.clients.copiers import Copier
from klamm.chaos.clients.members import LostOffset, Member
from klamm.chaos.clients.producers import Gaps, LoadHangs, Producing
from klamm.chaos.clients.reading import Logs, Reading, log_starts, read_all
from klamm.chaos.group_history import judge_group
from klamm.chaos.history import Verdict, judge
from klamm.chaos.kinds import COPIES, PARTITIONS
from klamm.chaos.transaction_history import Outcome, judge_copies

RECORDS, COPIED = "records", "copies"
READERS, COPIERS = "readers", "copiers"
QUIET_S = 0.05
LOOK_S = 0.5
ASK_MS = 3000
CATCH_UP_S = 90.0
"""A group without any progress for so long hangs."""
MOST_S = 600.0
"""A group that is slow need not read everything."""


class Load:
    """Everything that clients do. `begin`, then `finish`, then `judged`."""

    def __init__(
        self, bootstrap: str, seed: int, admin: AdminClient, reset: LostOffset, ended: Callable[[], str | None],
        waited_s: Callable[[], float],
    ) -> None:  # fmt: skip
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
        self.final: dict[str, dict[int, int | None]] = {READERS: {}, COPIERS: {}}
        """Group → partition → committed offset, as the coordinator showed it last."""
        self._admin = admin
        self._watching = threading.Event()
        self._watch = threading.Thread(target=self._look, name="replaces", daemon=True)

    def begin(self) -> None:
        """Start all clients. Raises LoadHangs."""
        for group in (READERS, COPIERS):
            self._commit_starts(group)
        self.along.start()
        for producer in self.producers:
            producer.start()
        for group in (READERS, READERS, COPIERS, COPIERS):
            self.join(group)
        self._watch.start()

    def _commit_starts(self, group: str) -> None:
        """Commit offset 0 of all partitions, so that no member ever has to begin without an offset. Raises LoadHangs."""
        until = time.monotonic() + CATCH_UP_S
        while True:
            try:
                self._admin.alter_group_offsets(group, {(RECORDS, p): 0 for p in range(PARTITIONS)}, timeout_ms=ASK_MS).all()
            except AdminError as failure:
                if time.monotonic() > until:
                    raise LoadHangs(f"no offsets of group {group} can be committed: {failure}") from None
                time.sleep(LOOK_S)
            else:
                return

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
        behind = self._caught_up()
        self._watching.set()
        self._watch.join()
        for member in self._all():
            self._check()
            if member.name not in self._gone:
                self.leave(member)
        self._ask_at_the_end()
        self.along.finish()
        return behind

    def _check(self) -> None:
        """Raises LoadHangs if there is no cluster any more: then each client would wait as long as it may."""
        said = self._ended()
        if said is not None:
            raise LoadHangs(said)

    def _caught_up(self) -> list[str]:
        """Wait until both groups have committed the ends of all partitions, as long as they make progress."""
        logs = read_all(self.bootstrap, RECORDS, PARTITIONS)
        ends = {p: log[-1][0] + 1 for p, log in logs.items() if log}
        behind: list[str] = ["the committed offsets cannot be read"]
        progress: list[object] = []
        begun = until = time.monotonic()
        while behind and time.monotonic() - begun < MOST_S and time.monotonic() < until + CATCH_UP_S:
            time.sleep(LOOK_S)
            self._check()
            committed = {group: self.ask(group) for group in (READERS, COPIERS)}
            if [*committed.values()] != progress:
                progress, until = [*committed.values()], time.monotonic()
            behind = [
                f"group {group} has committed {None if row is None else row.get(p)} of {end} in partition {p}, and goes on no more"
                for group, row in committed.items() for p, end in ends.items() if row is None or row.get(p) != end
            ]  # fmt: skip
        return behind if time.monotonic() >= until + CATCH_UP_S else []

    def _ask_at_the_end(self) -> None:
        """The last committed offsets, when no member commits any more."""
        until = time.monotonic() + CATCH_UP_S
        for group in (READERS, COPIERS):
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

    def _look(self) -> None:
        """Replace the members that hang."""
        while not self._watching.wait(LOOK_S):
            for member in [each for each in self._all() if each.name not in self._gone and each.hangs]:
                self._gone.add(member.name)
                self.hung.append(member.name)
                member.ends(0)
                self.join(READERS if isinstance(member, Member) else COPIERS)

    # --- the judgement

    def judged(self, allow_loss: bool) -> tuple[Verdict, dict[str, list[str]]]:
        """What the producers were told compared with what the topics have, and all that must not be, by rule. Raises LoadHangs.

        With `allow_loss` only what holds without any acknowledged record counts.
        """
        logs = read_all(self.bootstrap, RECORDS, PARTITIONS)
        starts = log_starts(self.bootstrap, RECORDS, PARTITIONS)
        verdict = judge([sent for each in self.producers for sent in each.sent], logs, self.along.logs, starts)
        copies = read_all(self.bootstrap, COPIED, COPIES, isolation_level="read_committed")
        faults = dict(verdict.faults)
        fatal = [f"{each.name}: {error}" for each in self.producers for error in each.fatal]
        if fatal:
            faults["fatal"] = fatal
        if self.unexplained:
            faults["client hangs"] = self.unexplained
        if self._has_new_epochs():
            faults.pop("duplicates", None)
        faults |= self._group_faults(logs)
        faults |= self._copy_faults(logs, copies)
        if allow_loss:
            faults = {rule: found for rule, found in faults.items() if rule in ("aborted visible",)}
        return verdict, faults

    def _group_faults(self, logs: Logs) -> dict[str, list[str]]:
        faults = judge_group(
            [member.deliveries for member in self.members], (start for member in self.members for start in member.starts),
            (commit for member in self.members for commit in member.commits), self.final[READERS], logs, READERS,
        )  # fmt: skip
        return {f"{READERS} {rule}": found for rule, found in faults.items()}

    def _copy_faults(self, logs: Logs, copies: Logs) -> dict[str, list[str]]:
        committed = {partition: offset for partition, offset in self.final[COPIERS].items() if offset is not None}
        return judge_copies((a for copier in self.copiers for a in copier.attempts), copies, committed, logs)

    def _has_new_epochs(self) -> bool:
        """Whether a producer has written under another epoch than its first one: then it may have sent again what it had written."""
        try:
            known = self._admin.describe_producers([(RECORDS, p) for p in range(PARTITIONS)])
            return any(producer.producer_epoch > 0 for p in range(PARTITIONS) for producer in known[TopicPartition(RECORDS, p)])
        except (AdminError, KeyError):
            return False

    def counts(self) -> dict[str, Any]:
        """Numbers for the summary."""
        outcomes = [attempt.outcome for copier in self.copiers for attempt in copier.attempts]
        return {
            "transactions": len(outcomes), "committed": outcomes.count(Outcome.COMMITTED), "aborted": outcomes.count(Outcome.ABORTED),
            "delivered": sum(len(member.deliveries) for member in self.members), "commits": _acknowledged(self.members),
            "assignments": sum(each.assignments for each in self._all()),
            "hung_clients": sorted(self.hung), "longest_unavailability_s": round(max(self.gaps.longest_s), 1),
            "longest_working_unavailability_s": round(max(self.gaps.longest_working_s), 1),
        }  # fmt: skip


def _acknowledged(members: Iterable[Member]) -> int:
    return sum(commit.acknowledged_s is not None for member in members for commit in member.commits)
