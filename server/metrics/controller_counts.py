"""How long the controller takes for its events, how long they wait, and how many leaders it elects uncleanly.

`ControllerCounts` looks on at the controller (`controller/events/observation.py`). A broker that keeps a journal has another
observer: that one is called first, and its numbers are those that count.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from klamm.controller.changes import Change
from klamm.controller.decisions.decision import Decide, Decision, Situation, Write
from klamm.controller.decisions.elections import Offline
from klamm.controller.events import catalogue as events
from klamm.controller.events.causes import QueuedEvent
from klamm.controller.events.observation import Observer, Requests
from klamm.controller.partitions.partition_machine import ElectLeader
from klamm.controller.phases import Phase
from klamm.controller.throttle_steps import Step
from klamm.protocol.nouns import TopicPartition
from klamm.server.metrics.distribution import Distribution

STATES: dict[type, tuple[int, str | None]] = {
    events.Startup: (1, "ControllerChangeRateAndTimeMs"),
    events.ControllerChange: (1, "ControllerChangeRateAndTimeMs"),
    events.Reelect: (1, "ControllerChangeRateAndTimeMs"),
    events.Expire: (1, "ControllerChangeRateAndTimeMs"),
    events.RegisterBrokerAndReelect: (1, "ControllerChangeRateAndTimeMs"),
    events.BrokerChange: (2, "LeaderElectionRateAndTimeMs"),
    events.BrokerModifications: (2, "LeaderElectionRateAndTimeMs"),
    events.BrokerSessionsExpired: (2, "LeaderElectionRateAndTimeMs"),
    events.RegisterBroker: (2, "LeaderElectionRateAndTimeMs"),
    events.TopicChange: (3, "TopicChangeRateAndTimeMs"),
    events.PartitionModifications: (3, "TopicChangeRateAndTimeMs"),
    events.TopicDeletion: (4, "TopicDeletionRateAndTimeMs"),
    events.StopReplicaResponseReceived: (4, "TopicDeletionRateAndTimeMs"),
    events.AlterPartitionReassignments: (5, "PartitionReassignmentRateAndTimeMs"),
    events.ZkPartitionReassignment: (5, "PartitionReassignmentRateAndTimeMs"),
    events.PartitionReassignmentIsrChange: (5, "PartitionReassignmentRateAndTimeMs"),
    events.ReassignPartitions: (5, "PartitionReassignmentRateAndTimeMs"),
    events.AutoPreferredReplicaLeaderElection: (6, "AutoLeaderBalanceRateAndTimeMs"),
    events.ElectLeaders: (7, "ManualLeaderBalanceRateAndTimeMs"),
    events.PreferredReplicaElection: (7, "ManualLeaderBalanceRateAndTimeMs"),
    events.ControlledShutdown: (8, "ControlledShutdownRateAndTimeMs"),
    events.IsrChangeNotification: (9, "IsrChangeRateAndTimeMs"),
    events.AlterPartition: (9, "IsrChangeRateAndTimeMs"),
    events.LeaderAndIsrResponseReceived: (10, "LeaderAndIsrResponseReceivedRateAndTimeMs"),
    events.LogDirEventNotification: (11, "LogDirChangeRateAndTimeMs"),
    events.UncleanLeaderElectionEnabled: (13, "UncleanLeaderElectionEnableRateAndTimeMs"),
    events.TopicUncleanLeaderElectionEnabled: (14, "TopicUncleanLeaderElectionEnableRateAndTimeMs"),
    events.ListPartitionReassignments: (15, "ListPartitionReassignmentRateAndTimeMs"),
}
"""Event → Kafka's `ControllerState` while it is processed, and the timer of that state. Other events have state 0, idle, and no timer."""

TIMERS = tuple(dict.fromkeys(name for _, name in STATES.values() if name is not None))


class ControllerCounts:
    """An observer of a controller. `inner` is another one that sees the same."""

    def __init__(self, time_s: Callable[[], float]) -> None:
        self.inner: Observer | None = None
        self.timers = {name: Distribution() for name in TIMERS}
        self.queue_time = Distribution()
        self.unclean_elections = 0
        self.queue_times: defaultdict[int, Distribution] = defaultdict(Distribution)
        """Time that requests wait for their turn, by the broker that gets them."""
        self._time_s = time_s
        self._queued: dict[int, float] = {}
        self._taken: list[Distribution] = []
        self._began = 0.0

    def around(self, inner: Observer | None) -> Observer:
        """This observer, with another one inside."""
        self.inner = inner
        return self

    def sent(self, broker_id: int, waited_s: float) -> None:
        """A request to a broker leaves its queue."""
        self.queue_times[broker_id].add(waited_s * 1000)

    # --- an observer

    def event_queued(self, sequence: int) -> None:
        self._queued[sequence] = self._time_s()
        if self.inner is not None:
            self.inner.event_queued(sequence)

    def event_taken(self, queued: QueuedEvent, with_others: bool) -> None:
        now = self._time_s()
        self.queue_time.add((now - self._queued.pop(queued.sequence, now)) * 1000)
        if not with_others:
            self._began, self._taken = now, []
            while self._queued and (first := next(iter(self._queued))) < queued.sequence:
                del self._queued[first]  # it was preempted
        timer = STATES.get(type(queued.event), (0, None))[1]
        if timer is not None:
            self._taken.append(self.timers[timer])
        if self.inner is not None:
            self.inner.event_taken(queued, with_others)

    def event_failed(self, error: BaseException) -> None:
        if self.inner is not None:
            self.inner.event_failed(error)

    def event_ended(self) -> None:
        elapsed_ms = (self._time_s() - self._began) * 1000
        for timer in self._taken:
            timer.add(elapsed_ms)
        self._taken = []
        if self.inner is not None:
            self.inner.event_ended()

    def decided(self, rule: Decide, situation: Situation, partitions: tuple[TopicPartition, ...], decision: Decision) -> None:
        if isinstance(rule, ElectLeader) and isinstance(rule.strategy, Offline) and isinstance(decision, Write):
            before = situation.state
            if before is not None and decision.state.leader not in before.isr:
                self.unclean_elections += len(partitions)
        if self.inner is not None:
            self.inner.decided(rule, situation, partitions, decision)

    def response_read(self, broker_id: int) -> int | None:
        return None if self.inner is None else self.inner.response_read(broker_id)

    def changed(self, change: Change) -> None:
        if self.inner is not None:
            self.inner.changed(change)

    def sending(self, requests: Requests) -> int | None:
        return None if self.inner is None else self.inner.sending(requests)

    def reassigned(self, partitions: Sequence[TopicPartition], phases: Iterable[str], step: int) -> None:
        if self.inner is not None:
            self.inner.reassigned(partitions, phases, step)

    def throttle_step(self, request: int, event: events.ThrottleRequest, number: int, step: Step) -> None:
        if self.inner is not None:
            self.inner.throttle_step(request, event, number, step)

    def phase_held(self, phase: Phase) -> None:
        if self.inner is not None:
            self.inner.phase_held(phase)

    def phase_released(self, phase: Phase) -> None:
        if self.inner is not None:
            self.inner.phase_released(phase)
