"""One term of an active controller: the state and the partners that every procedure works with.

A term begins with an election and ends with resignation; nothing of it outlives it. At each of its phases (`phases.py`) a test, or a user
who steers, may hold, step or crash the controller.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from klamm.controller.broker_sessions import BrokerSessions
from klamm.controller.cluster import Cluster, Partition
from klamm.controller.events.catalogue import AutoPreferredReplicaLeaderElection, BrokerSessionsExpired, Event, PhaseReleased
from klamm.controller.events.causes import Cause, QueuedEvent, ReleasedFromPhase, TimerFired
from klamm.controller.events.observation import Observer
from klamm.controller.metadata_log.fetches import MetadataFetches
from klamm.controller.metadata_log.log import MetadataLog
from klamm.controller.options import ControllerOptions
from klamm.controller.phases import EventPhase, ProcedurePhase
from klamm.controller.propagation.batch import Channels, RequestSender
from klamm.controller.store import Store
from klamm.controller.term.throttle_requests import ThrottleRequests
from klamm.seams.clock import SYSTEM_CLOCK, Clock, Timer
from klamm.seams.steering import HeldPhase, Steering


@dataclass(slots=True)
class Term:
    """State and partners of an active controller."""

    broker_id: int
    cluster: Cluster
    store: Store
    channels: Channels
    sender: RequestSender
    options: ControllerOptions
    put: Callable[[Event, Cause], None]
    new_topic_id: Callable[[], bytes]
    finalized_features: Callable[[], Mapping[str, int]] = dict
    """Version level by name, as this broker has last seen them in `/feature`."""
    steering: Steering | None = None
    """Who may hold this controller at phases; None where nobody does."""
    clock: Clock = SYSTEM_CLOCK
    written: set[Partition] = field(default_factory=set)
    """Partitions whose state this very event has written or read: their cached state needs no second look."""
    throttling: ThrottleRequests = field(default_factory=ThrottleRequests)
    """Requests that set throttles and are under way."""
    metadata_log: MetadataLog | None = None
    """What is committed, as records; None where RegisterBroker is off. `store` tells it what it reads and writes."""
    observer: Observer | None = None
    """Who looks on; None where nobody does."""
    reassign_step: int = 0
    """Counts the steps of reassignments, for observers."""
    event: QueuedEvent | None = None
    """The event that is being processed: what is written and sent now is done because of it."""
    sessions: BrokerSessions = field(init=False)
    """Of brokers that registered with the controller."""
    fetches: MetadataFetches | None = field(init=False, default=None)
    """Of the metadata log; None where there is none."""
    refused_registrations: dict[int, str] = field(default_factory=dict)
    """Broker id → why its last registration was refused."""
    former_controller: int = -1
    """The controller before this one, -1 where this broker has not seen it."""
    _rebalance: Timer | None = None
    _ended: bool = False

    def __post_init__(self) -> None:
        self.sender.observer = self.observer
        due = BrokerSessionsExpired(), TimerFired("broker sessions")
        self.sessions = BrokerSessions(self.clock, self.options.broker_session_timeout_ms / 1000, lambda: self.put(*due))
        if self.metadata_log is not None:
            interval_s = self.options.broker_heartbeat_interval_ms / 1000
            self.fetches = MetadataFetches(self.cluster, self.metadata_log, self.sessions, self.clock, interval_s, self.put)

    def begin_event(self, queued: QueuedEvent) -> None:
        """From now on what is written and sent belongs to this event."""
        self.event = queued
        self.sender.event = queued.sequence
        self.sender.posted.clear()
        self.written.clear()

    async def reach(self, phase: Callable[[], EventPhase]) -> None:
        """Come to a phase inside an event, which is made only where something may be held; returns when it may go on."""
        if self.steering is not None and self.steering.holds:
            await reach(self.steering, phase(), self.broker_id, self.observer)

    def park(self, phase: ProcedurePhase) -> HeldPhase[Any] | None:
        """Come to a phase between events; None where the procedure may go on at once, else a PhaseReleased says when."""
        if self.steering is None:
            return None
        held = self.steering.park(phase, lambda: self.put(PhaseReleased(phase), ReleasedFromPhase()), self.broker_id)
        if held is not None and self.observer is not None:
            self.observer.phase_held(phase)
        return held

    def options_changed(self, options: ControllerOptions) -> None:
        """Decide by these from now on."""
        self.options = options
        self.sender.options_changed(options)

    def send_metadata(self, broker_ids: list[int] | None = None) -> None:
        """UpdateMetadata without partitions, to these brokers or to all registered ones."""
        with self.sender.batch() as batch:
            if broker_ids is None:
                batch.update_metadata_everywhere(())
            else:
                batch.update_metadata(broker_ids, ())

    def schedule_rebalance(self, seconds: float) -> None:
        """Look at the leaders' balance after this delay, in seconds, if this term still lasts."""
        if not self._ended:
            due = AutoPreferredReplicaLeaderElection(), TimerFired("leader rebalance")
            self._rebalance = self.clock.call_later(seconds, self.put, *due)

    def end(self) -> None:
        """Drop everything that belongs to the term; requests to brokers that wait are lost."""
        self._ended = True
        if self._rebalance is not None:
            self._rebalance.cancel()
        for broker_id in (*self.cluster.brokers, *self.cluster.fenced):
            self.channels.remove_broker(broker_id)
        self.sessions.close()
        if self.fetches is not None:
            self.fetches.close()
        self.throttling.ended()
        self.cluster.term_ended()


async def reach(steering: Steering, phase: EventPhase, broker_id: int, observer: Observer | None) -> None:
    """Come to a phase inside an event, while somebody looks on or not."""
    is_seen = observer is not None and steering.wants(phase)
    if observer is not None and is_seen:
        observer.phase_held(phase)
    await steering.reach(phase, broker_id)
    if observer is not None and is_seen:
        observer.phase_released(phase)
