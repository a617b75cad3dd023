"""What a part of a cluster is told to hold and to fault, and what it shows: values that go to another process too."""

from __future__ import annotations

import msgspec

from klamm.control.bodies import Body, FaultBody, HoldBody
from klamm.control.json_object import JsonObject


class WantedHold(Body, frozen=True):
    """A hold with its number in the cluster. `count` is this part's share; a released hold only ends what the part has."""

    number: int
    body: HoldBody
    count: int | None = None
    released: bool = False


class WantedFault(Body, frozen=True):
    """A fault with its number in the cluster. `first` is this part's share."""

    number: int
    body: FaultBody
    first: int | None = None
    acts: bool = True
    """Whether its condition holds."""


class State(Body, frozen=True):
    """Everything that is to be held and faulted. One with a lower version than the last is late, and is ignored."""

    version: int
    brokers: int
    """How many brokers the cluster has."""
    holds: tuple[WantedHold, ...] = ()
    faults: tuple[WantedFault, ...] = ()
    frozen: bool = False
    is_kept_from_elections: bool = False
    """Whether brokers are held before they take part in an election of the controller."""


class SeenHold(msgspec.Struct):
    """A hold as a part shows it: how many phases matched, and those that it holds now, with their brokers."""

    hits: int = 0
    held: list[JsonObject] = []
    since: list[int] = []
    """When each of them was reached: nanoseconds of the machine's monotonic clock."""

    @property
    def is_holding(self) -> bool:
        """Whether it holds something."""
        return bool(self.held)


class SeenFault(msgspec.Struct):
    """A fault as a part shows it: its counts and its last hits."""

    hits: int = 0
    matches: int = 0
    last: list[JsonObject] = []


class View(msgspec.Struct, frozen=True):
    """What one broker shows of the cluster, of another broker and of a topic."""

    controller_id: int
    is_controller: bool
    is_online: bool
    topics: set[str]
    propagated: set[str]
    """The topics that it has told the brokers of, if it is the controller."""
    shows_broker: bool
    shows_as_leader: bool
    shows_without_leader: bool
    """Whether a partition with that broker in its ISR has no leader."""
    topic_partitions: int
    """0 without the topic."""
    topic_has_leaders: bool


class SeenExchange(msgspec.Struct):
    """A request of a client that a broker received, and its response, as bytes."""

    number: int
    at_ms: int
    broker: int
    peer: str
    request: bytes
    response: bytes | None


class SeenExchanges(msgspec.Struct):
    """Requests, and the ids of topics by name."""

    exchanges: list[SeenExchange]
    topic_ids: dict[str, bytes]
