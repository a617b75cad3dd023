"""Values the controller decides with: immutable, compared by content, shared freely.

Partition states and assignments are tuples so that equal ones can be one object in memory (`SharedInts`).
Terms are Kafka's; LE is the leader epoch, PE the partition epoch (= version of the state znode), CE the controller epoch.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from klamm.protocol.errors import ErrorCode
from klamm.protocol.nouns import Endpoint, Ints

_MOST_SHARED = 1 << 17


class SharedInts(dict[Ints, Ints]):
    """`shared[ids]` is one object for all equal tuples of broker ids. That saves memory and time only: a full table is emptied."""

    def __missing__(self, ids: Ints) -> Ints:
        if len(self) >= _MOST_SHARED:
            self.clear()
        self[ids] = ids
        return ids


class Assignment(NamedTuple):
    """Replicas of a partition: the full list (target order first), and those being added or removed (KIP-455)."""

    replicas: Ints
    adding: Ints = ()
    removing: Ints = ()

    @property
    def origin(self) -> Ints:
        """Replicas before the reassignment, order kept."""
        return tuple(r for r in self.replicas if r not in self.adding)

    @property
    def target(self) -> Ints:
        """Replicas after the reassignment, order kept."""
        return tuple(r for r in self.replicas if r not in self.removing)

    @property
    def is_reassigning(self) -> bool:
        return bool(self.adding or self.removing)

    def reassign_to(self, target: Ints) -> Assignment:
        """The assignment while moving from the origin to `target`; repeating it replaces, never stacks."""
        origin = self.origin
        replicas = tuple(dict.fromkeys(target + origin))
        old, new = frozenset(origin), frozenset(target)
        return Assignment(replicas, tuple(r for r in replicas if r not in old), tuple(r for r in replicas if r not in new))


RECOVERED, RECOVERING = 0, 1


class LeaderAndIsr(NamedTuple):
    """A partition's state as its znode holds it (layout 3.5). `partition_epoch` is the znode version."""

    leader: int
    leader_epoch: int
    isr: Ints
    recovery: int = RECOVERED
    partition_epoch: int = 0
    controller_epoch: int = 0


class Broker(NamedTuple):
    """A registered broker (layout 3.2). `epoch` is the czxid of its znode; `features` maps a name to (min, max)."""

    id: int
    epoch: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    features: tuple[tuple[str, int, int], ...] = ()

    def endpoint(self, listener: str) -> Endpoint | None:
        return next((e for e in self.endpoints if e.listener == listener), None)


class Proposal(NamedTuple):
    """What a leader wants for one partition (AlterPartition)."""

    leader: int
    leader_epoch: int
    isr: Ints
    recovery: int
    partition_epoch: int
    version: int
    """Of the request: it decides which error the leader gets."""


class StoredTopic(NamedTuple):
    """Content of `/brokers/topics/<t>` (layout 3.4). `topic_id` is 16 bytes, or None where the znode has none. `version` is that of the
    znode, -1 if it is not known.
    """

    topic_id: bytes | None
    assignments: dict[int, Assignment]
    version: int = -1


class WriteOutcome(IntEnum):
    """What became of one fenced write."""

    OK = 0
    BAD_VERSION = 1
    NO_NODE = 2
    NODE_EXISTS = 3
    FAILED = 4


class StateWrite(NamedTuple):
    """Write a partition's state if its znode still has version `expected` (-1: create it). `state.partition_epoch` is ignored."""

    topic: str
    partition: int
    state: LeaderAndIsr
    expected: int


class TopicWrite(NamedTuple):
    """Replace the data of `/brokers/topics/<t>` if its znode still has version `expected` (-1: any)."""

    topic: str
    topic_id: bytes | None
    assignments: dict[int, Assignment]
    expected: int = -1


class ConfigEntity(NamedTuple):
    """Whose config: `kind` is `topics` or `brokers`, `name` a topic, a broker id or `<default>` (layout 3.8)."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}"


DEFAULT_BROKER = ConfigEntity("brokers", "<default>")
"""Whose configs are those of all brokers, unless one has its own."""


class StoredConfig(NamedTuple):
    """Properties of an entity, and the version of its znode, -1 where it has none."""

    properties: dict[str, str]
    version: int


class ConfigWrite(NamedTuple):
    """Replace an entity's properties if its znode still has version `expected` (-1: create it)."""

    entity: ConfigEntity
    properties: dict[str, str]
    expected: int


class ThrottleRemovals(NamedTuple):
    """Whose throttles go when no reassignment is ongoing (layout 4.1); None where there is no znode."""

    topics: list[str] | None
    broker_ids: list[int] | None
    reassigning: bool
    """Whether `/admin/reassign_partitions` exists."""


class BrokerState(IntEnum):
    """State of a broker that registers with the controller (RegisterBroker)."""

    OFFLINE = 0
    FENCED = 1
    ONLINE = 2
    STOPPING = 3


LONGEST_SECRET = 1024
"""Most bytes of the secret of a broker that registers: it is hashed with each of its fetches on another connection."""


class BrokerRegistration(NamedTuple):
    """Content of `/cluster/brokers/<id>` (layout 4.5). `epoch` rises by one with each accepted registration; `jmx_port` -1 is unknown."""

    id: int
    epoch: int
    state: BrokerState
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    jmx_port: int = -1
    is_silent: bool = False
    """Whether the controller has not heard the broker for a while: it is fenced soon, unless it is heard again."""
    secret_sha256: str = ""
    """SHA-256 (hex) of the secret that fetches of this broker carry; empty if it registered without one."""

    @property
    def broker(self) -> Broker:
        """The broker that registered. It names no features."""
        return Broker(self.id, self.epoch, self.endpoints, self.rack)


class BrokerToRegister(NamedTuple):
    """What a RegisterBroker request says of its sender."""

    id: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    secret: bytes = b""
    """What its fetches carry, to show on any connection that they are from this broker; empty if it has none."""


class ControllerEpoch(NamedTuple):
    """An election's result: the epoch, and the version of `/controller_epoch` that fences every later write."""

    epoch: int
    zk_version: int


class Election(IntEnum):
    """Election types of the ElectLeaders request."""

    PREFERRED = 0
    UNCLEAN = 1


class ElectionResult(NamedTuple):
    """What became of one partition: an error with its text, or the leader that was elected."""

    error: ErrorCode
    message: str | None
    leader: int | None


Result = tuple[ErrorCode, str | None]
"""What became of one entry of a request: a code, and a text where it is an error."""


class ControllerMoved(Exception):
    """Another controller was elected: a fenced write failed its check of `/controller_epoch`."""


class StoreLost(Exception):
    """The ZooKeeper session is over; nothing is known of the write's fate. What this controller was, it is no more."""


class StoreRefused(Exception):
    """ZooKeeper refused a request, or a znode cannot be read. The session goes on."""
