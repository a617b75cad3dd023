"""What a broker takes from outside: everything that waits, draws or writes, and the places at which somebody may look on.

One value enters at the local cluster or the broker and goes down from there. The plain one is that of a real broker and costs nothing.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import field

from klamm.broker.log.memory import MemoryBudget
from klamm.broker.log.memory_directory import MemoryDirectory
from klamm.broker.recovery import RecoveryGate, RecoveryWork, no_work
from klamm.controller.changes import Subscriber
from klamm.controller.ids import random_topic_id
from klamm.controller.steering import Steering
from klamm.controller.store import Store
from klamm.protocol.clock import SYSTEM_CLOCK, Clock
from klamm.protocol.value_class import dataclass
from klamm.server.net.tap import BrokerTap, Tap


def plain_store(broker_id: int, store: Store) -> Store:
    """The store itself."""
    return store


def no_subscriber(broker_id: int) -> None:
    """Nobody sees the changes."""


def no_memory_directory(broker_id: int) -> None:
    """Logs in memory are gone when their broker ends."""


@dataclass(frozen=True, slots=True)
class Seams:
    """The seams of one broker, or of all brokers of a local cluster."""

    clock: Clock = SYSTEM_CLOCK
    """Time, timers and time-outs. The sessions of ZooKeeper keep real time: their timers are ZooKeeper's."""
    random: random.Random = field(default_factory=random.Random)
    """Places the replicas of topics."""
    new_topic_id: Callable[[], bytes] = random_topic_id
    wrap_store: Callable[[int, Store], Store] = plain_store
    """(broker id, store) → the store that this broker's controller reads and writes through."""
    subscriber: Callable[[int], Subscriber | None] = no_subscriber
    """broker id → what gets every change of the cluster that this broker's controller commits, in order, while it is active."""
    steering: Steering | None = None
    """Holds, steps or fails controllers at their phases."""
    log_memory: MemoryBudget = field(default_factory=MemoryBudget)
    """Counts the memory of the logs of all brokers of the process; `klamm.log.memory.bytes` is its bound."""
    memory_directory: Callable[[int], MemoryDirectory | None] = no_memory_directory
    """broker id → what keeps the logs of this broker while it is down, where they are in memory."""
    recovery_gate: RecoveryGate = field(default_factory=RecoveryGate)
    """Where leaders that were elected uncleanly wait with `kip704.recovery.mode=manual` until somebody releases them."""
    recovery_work: RecoveryWork = no_work
    """What such a leader does before it serves, such as aborting open transactions of the partition (KIP-704)."""
    tap: Tap | None = None
    """Sees every frame that a broker receives or sends."""

    def broker_tap(self, broker_id: int, journaled: bool = False) -> BrokerTap | None:
        """The tap as one broker uses it; also one without a tap, for a broker that keeps a journal."""
        return None if self.tap is None and not journaled else BrokerTap(self.tap, broker_id, self.clock.monotonic)
