"""What all verbs of `Control` share: the cluster, its parts, what they have to hold and to fault, and what happened."""

from __future__ import annotations

from klamm.control.event_log import EventLog
from klamm.control.verbs.cluster import Cluster
from klamm.control.verbs.parts import Parts
from klamm.control.verbs.shared_state import SharedState
from klamm.server.local.steered_clock import SteeredClock


class Subject:
    """The verbs of one subject."""

    def __init__(self, cluster: Cluster, parts: Parts, clock: SteeredClock, events: EventLog) -> None:
        self.cluster = cluster
        self.parts = parts
        self.clock = clock
        self.events = events
        self.state = SharedState(parts, cluster, clock, events)
        self.killed: set[int] = set()
        """Brokers that were killed, or ended by themselves."""
