"""The seams of a broker: clock, random source, ids, store and memory, and the places where a test or a user can observe or control it.

One value is given to the local cluster or to the broker, which pass it down. The default is for real brokers and costs nothing.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import field
from typing import TYPE_CHECKING

from klamm.broker.log.memory import MemoryBudget
from klamm.broker.log.memory_directory import MemoryDirectory
from klamm.broker.recovery import RecoveryGate, RecoveryWork, no_work
from klamm.controller.changes import Subscriber
from klamm.controller.ids import random_topic_id
from klamm.controller.store import Store
from klamm.protocol.exchanges.connections import ByteTap
from klamm.seams.clock import SYSTEM_CLOCK, Clock
from klamm.seams.steering import Steering
from klamm.seams.value_class import dataclass
from klamm.server.metrics.metrics import Metrics
from klamm.server.net.tap import BrokerTap, Tap

if TYPE_CHECKING:
    from klamm.server.coordinators.phases import Watch
    from klamm.server.faults.fault import Faults


def plain_store(broker_id: int, store: Store) -> Store:
    """Return the store itself."""
    return store


def no_subscriber(broker_id: int) -> None:
    """No subscriber: nobody gets the changes."""


def no_watch(broker_id: int) -> None:
    """Nobody is told the phases of coordinators."""


def no_metrics_of_its_own(broker_id: int) -> None:
    """The configs of a broker say whether it counts."""


def no_memory_directory(broker_id: int) -> None:
    """No directory: logs in memory are lost when their broker ends."""


def random_member_id() -> str:
    """A random UUID as text."""
    from uuid import uuid4

    return str(uuid4())


def random_secret() -> bytes:
    """Random bytes that nobody can guess."""
    from secrets import token_bytes

    return token_bytes(32)


@dataclass(frozen=True, slots=True)
class Seams:
    """The seams of one broker, or of all brokers of a local cluster."""

    clock: Clock = SYSTEM_CLOCK
    """Time, timers and time-outs. ZooKeeper sessions use real time, because ZooKeeper measures them."""
    random: random.Random = field(default_factory=random.Random)
    """Used to place the replicas of topics."""
    new_topic_id: Callable[[], bytes] = random_topic_id
    new_member_id: Callable[[], str] = random_member_id
    """Draws the UUID in the id of a new member of a group."""
    new_secret: Callable[[], bytes] = random_secret
    """Draws the secret by which the controller knows a broker that registers with it on any connection."""
    wrap_store: Callable[[int, Store], Store] = plain_store
    """(broker id, store) → the store that the controller of this broker uses."""
    subscriber: Callable[[int], Subscriber | None] = no_subscriber
    """Broker id → subscriber that gets every change that the controller of this broker commits, in order, while it is active."""
    steering: Steering | None = None
    """Holds, steps or fails controllers at their phases."""
    watch_coordinators: Callable[[int], Watch | None] = no_watch
    """Broker id → what is told each phase that the coordinators of this broker reach."""
    faults: Faults | None = None
    """Faults that requests of these brokers meet."""
    log_memory: MemoryBudget = field(default_factory=MemoryBudget)
    """Counts the memory of the logs of all brokers in the process, up to `klamm.log.memory.bytes`."""
    memory_directory: Callable[[int], MemoryDirectory | None] = no_memory_directory
    """Broker id → directory that keeps the logs in memory of this broker while it is down."""
    recovery_gate: RecoveryGate = field(default_factory=RecoveryGate)
    """With `kip704.recovery.mode=manual`, uncleanly elected leaders wait here until they are released."""
    recovery_work: RecoveryWork = no_work
    """Further work of such a leader before it serves, after the transactions that were open in its log have ended (KIP-704)."""
    metrics: Callable[[int], Metrics | None] = no_metrics_of_its_own
    """Broker id → where this broker counts; None means that its configs say so."""
    tap: Tap | None = None
    """Observes every frame that a broker receives or sends."""
    history: ByteTap | None = None
    """Observes the bytes of all connections."""

    def broker_tap(self, broker_id: int, observed: bool = False) -> BrokerTap | None:
        """The tap of one broker; None if there is no tap and nothing else (a journal, metrics) that observes its frames."""
        if self.tap is None and self.history is None and not observed:
            return None
        tap = BrokerTap(self.tap, broker_id, self.clock.monotonic)
        tap.history = self.history
        return tap
