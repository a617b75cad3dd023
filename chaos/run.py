"""A run: the load begins, the steps of a schedule are done and undone in time, everything is restored, and the histories are judged."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from klamm.admin import AdminClient
from klamm.chaos import broker_log, end_state
from klamm.chaos.actions import Actions, Undo
from klamm.chaos.clients.producers import LoadHangs
from klamm.chaos.cluster import UNCLEAN, ServedCluster
from klamm.chaos.cpu_waits import CpuWaits
from klamm.chaos.judgement import judged
from klamm.chaos.kinds import COPIED, COPIES, KINDS, PARTITIONS, RECORDS
from klamm.chaos.load import Load
from klamm.chaos.lost_offsets import is_lost_by_client
from klamm.chaos.schedule import Schedule, Step
from klamm.chaos.watch import ClusterHistory, Watch
from klamm.control.client import ControlClient, ControlFailed
from klamm.control.json_object import JsonObject

if TYPE_CHECKING:
    from klamm.chaos.program_load import ProgramLoad

WAIT_S = 0.1
LATE_MS = 500
"""A step that is later than the end by more than this is left out."""
UNAVAILABLE_S = 45.0
"""At most one broker is away, so that a partition without an acknowledged record for so long shows that something hangs. Time in which the
cluster waited for a CPU does not count.
"""
KEPT_STEPS = 8
KEPT_REQUESTS = 20
SHOWN = 10
Say = Callable[[str], None]


@dataclass
class Happened:
    """What was done, `at_s` seconds after the load began. `step` is its place in the schedule."""

    at_s: float
    text: str
    step: int
    is_undo: bool = False
    happened: bool = True

    def line(self) -> str:
        """For people."""
        return f"{self.at_s:7.1f} s  {self.text}"


@dataclass
class Violation:
    """A rule that did not hold: what was found, the steps before it, and the requests around it."""

    rule: str
    found: list[str]
    at_s: float
    steps_before: list[str]
    requests: list[str]


@dataclass
class RunOutcome:
    """What came of a run."""

    schedule: Schedule
    seconds: float = 0.0
    counts: JsonObject = field(default_factory=dict)
    steps: Counter[str] = field(default_factory=Counter)
    """By kind: those that happened."""
    refused: Counter[str] = field(default_factory=Counter)
    happened: list[Happened] = field(default_factory=list)
    lost_by_clients: int = 0
    """Offsets that librdkafka lost (`lost_offsets.py`)."""
    violations: list[Violation] = field(default_factory=list)
    was_stopped: bool = False


class Run:
    """One run of a schedule. `say` gets a line for each step; `stopped` tells whether somebody wants it to end early."""

    def __init__(
        self, klamm: Sequence[str], schedule: Schedule, say: Say, stopped: Callable[[], bool] = lambda: False, folder: Path | None = None,
        client: str | None = None,
    ) -> None:
        """`klamm` is the command of the command line; for `folder` see `ServedCluster`. `client` is the user's program, in place of the
        load that Klamm has.
        """
        self._schedule, self._say, self._stopped, self._client = schedule, say, stopped, client
        self._cluster = ServedCluster(klamm, schedule.options, schedule.length_ms / 60_000, folder, keeps_journal=client is not None)
        self._outcome = RunOutcome(schedule)
        self._begun = 0.0

    def outcome(self) -> RunOutcome:
        """Run it to its end. Raises CannotStart."""
        with self._cluster as cluster, AdminClient(cluster.bootstrap_servers, client_id="chaos") as admin, ExitStack() as at_the_end:
            for topic, partitions in ((RECORDS, PARTITIONS), (COPIED, COPIES)):
                body = {"name": topic, "partitions": partitions, "replication_factor": 3}
                cluster.api.post("topics", body=body | ({"configs": UNCLEAN} if self._schedule.options.unclean else {}))
            waits = CpuWaits(cluster.pid)
            load = self._load(admin, waits, at_the_end)
            history = ClusterHistory(self._violated)
            watch = Watch(cluster.api, (RECORDS, COPIED), history)
            actions = Actions(cluster, admin, load, self._violated)
            self._begun = time.monotonic()
            load.begin()
            watch.start()
            self._steps(actions)
            self._outcome.seconds = time.monotonic() - self._begun
            self._settle(actions, load, admin)
            watch.finish()
            self._outcome.counts["offsets_lost_by_clients"] = self._outcome.lost_by_clients
            self._outcome.counts["waited_for_cpu_s"] = round(waits.seconds(), 1)
            self._count(load, history)
            if self._client is not None:
                self._judge_frames()
        return self._outcome

    def _load(self, admin: AdminClient, waits: CpuWaits, at_the_end: ExitStack) -> Load | ProgramLoad:
        cluster = self._cluster
        if self._client is not None:
            from klamm.chaos.program_load import ProgramLoad  # it needs more packages than the other load

            load = ProgramLoad(cluster.bootstrap_servers, self._client, self._schedule.length_ms, cluster.end_of_process, self._stopped)
            at_the_end.callback(load.end)
            return load
        return Load(cluster.bootstrap_servers, self._schedule.seed, admin, self._lost_offset, cluster.end_of_process, waits.seconds)

    def _judge_frames(self) -> None:
        """Judge the frames of the user's program by the rules about clients."""
        from klamm.chaos.program_load import frame_faults

        self._cluster.stop()
        for rule, found in frame_faults(self._cluster.journal).items():
            self._violated(rule, *found)

    # --- the steps

    def _steps(self, actions: Actions) -> None:
        """Two lanes of steps at the same time: a step that waits for a broker that is away must not delay its return."""
        rows = list(enumerate(self._schedule.steps))
        away = [row for row in rows if KINDS[row[1].kind].takes_broker]
        others = [row for row in rows if not KINDS[row[1].kind].takes_broker]
        one_by_one = not self._schedule.options.unclean
        lanes = [threading.Thread(target=self._lane, args=args) for args in ((actions, away, one_by_one), (actions, others, False))]
        for lane in lanes:
            lane.start()
        for lane in lanes:
            lane.join()

    def _lane(self, actions: Actions, rows: list[tuple[int, Step]], one_by_one: bool) -> None:
        """Each step at its time, or when the one before it has begun. With `one_by_one` a step begins when the one before it is undone."""
        undoing: list[threading.Thread] = []
        for place, step in rows:
            if not self._wait_until(step.at_ms / 1000) or self._now() * 1000 > self._schedule.length_ms + LATE_MS:
                break
            done = actions.begin(step)
            self._note(done.text, place, happened=done.happened)
            (self._outcome.steps if done.happened else self._outcome.refused)[step.kind] += 1
            if done.undo is not None:
                at_s = min(self._now() + (step.lasts_ms or 0) / 1000, self._schedule.length_ms / 1000)
                undoing.append(threading.Thread(target=self._undo, args=(actions, done.undo, place, at_s)))
                undoing[-1].start()
                if one_by_one:
                    undoing[-1].join()
        for each in undoing:
            each.join()
        self._wait_until(self._schedule.length_ms / 1000)

    def _undo(self, actions: Actions, undo: Undo, place: int, at_s: float) -> None:
        """Undo a step at its time, or when the run is to end."""
        self._wait_until(at_s)
        self._note(actions.undo(undo), place, is_undo=True)

    def _now(self) -> float:
        return time.monotonic() - self._begun

    def _ends(self) -> bool:
        self._outcome.was_stopped = self._outcome.was_stopped or self._stopped()
        return self._outcome.was_stopped or self._cluster.end_of_process() is not None

    def _wait_until(self, at_s: float) -> bool:
        """Wait for this time; False if the run is to end before."""
        while self._now() < at_s:
            if self._ends():
                return False
            time.sleep(max(0.0, min(WAIT_S, at_s - self._now())))
        return True

    def _note(self, text: str, place: int, *, is_undo: bool = False, happened: bool = True) -> None:
        self._outcome.happened.append(Happened(self._now(), text, place, is_undo, happened))
        self._say(self._outcome.happened[-1].line())

    # --- the end

    def _settle(self, actions: Actions, load: Load | ProgramLoad, admin: AdminClient) -> None:
        """Restore the cluster, end the load and judge."""
        try:
            actions.restore()
        except ControlFailed as failure:
            self._violated("end state", f"the cluster cannot be restored: {self._cluster.end_of_process() or failure}")
            return
        self._say(f"{self._now():7.1f} s  all faults are over; the clients finish")
        try:
            behind = load.finish()
            if behind and not self._schedule.options.unclean:
                self._violated("behind", *behind)
            self._say(f"{self._now():7.1f} s  the clients have finished; the cluster is compared with what they know")
            unclean = self._schedule.options.unclean
            wrong = end_state.wait_until_whole(self._cluster.api, admin, self._cluster.end_of_process, unclean, actions.extra_topics)
            if wrong:
                self._violated("end state", *wrong)
            verdict, faults = judged(load, unclean) if isinstance(load, Load) else load.judged(self._cluster.data, unclean)
        except LoadHangs as failure:
            ended = self._cluster.end_of_process()
            self._violated("load hangs" if ended is None else "end state", ended or str(failure))
            return
        self._outcome.counts |= {"sent": verdict.sent, "acknowledged": verdict.acknowledged, "failed": verdict.failed}
        for rule, found in faults.items():
            self._violated(rule, *found)
        for text in broker_log.exceptions(self._cluster.log):
            self._violated("exception in a broker", text)

    def _count(self, load: Load | ProgramLoad, history: ClusterHistory) -> None:
        self._outcome.counts |= load.counts() | {"elections": history.elections, "controllers": history.controllers}
        longest_s = self._outcome.counts["longest_working_unavailability_s"]
        if longest_s > UNAVAILABLE_S and not self._schedule.options.unclean:
            said = f"no record of a partition was acknowledged for {longest_s} s, without the time in which the cluster waited for a CPU"
            self._violated("unavailable", said)

    def _lost_offset(self, client_id: str, partition: int, reason: str) -> None:
        if self._schedule.options.unclean:
            return
        if is_lost_by_client(self._cluster.api, client_id, partition):
            self._outcome.lost_by_clients += 1
        else:
            self._violated("offset lost", f"{client_id}, partition {partition}: {reason}")

    def _violated(self, rule: str, *found: str) -> None:
        """A rule does not hold. Only the first violation of a rule gets the requests."""
        now = self._now()
        for each in self._outcome.violations:
            if each.rule == rule:
                each.found += found[: max(0, SHOWN - len(each.found))]
                return
        steps = [each.line() for each in self._outcome.happened if each.at_s <= now][-KEPT_STEPS:]
        self._outcome.violations.append(Violation(rule, list(found[:SHOWN]), now, steps, requests_now(self._cluster.api)))
        self._say(f"{now:7.1f} s  VIOLATED: {rule}: {found[0]}")


def requests_now(api: ControlClient) -> list[str]:
    """The last requests about the topic of the producers, one line each; empty if nobody answers."""
    try:
        rows = api.get("requests", topic=RECORDS, limit=KEPT_REQUESTS)["requests"]
    except ControlFailed:
        return []
    return [
        f"{row['at']} broker {row['broker']} {row['client_id']} {row['api']} v{row['version']} {row['error'] or ''}".rstrip()
        for row in rows
    ]
