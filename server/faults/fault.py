"""Faults: which requests, or operations of logs, they are about, what they do to them, and how often they did it.

A `Faults` serves all brokers of a cluster. A broker has its view of them, `BrokerFaults`. Without a fault no request is looked at: a
dispatcher takes other handlers while there are faults for its APIs (`server/requests/fault_handlers.py`).
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, fields, replace
from typing import TYPE_CHECKING, Any
from weakref import WeakMethod

from klamm.protocol.apis import ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.protocol.exchanges.peers import broker_of
from klamm.seams.value_class import dataclass

if TYPE_CHECKING:
    from klamm.broker.log.slow_disk import DiskOperation
    from klamm.protocol.nouns import TopicPartition

MAX_FAULTS = 1000
KEPT_HITS = 100


@dataclass(frozen=True, slots=True)
class RequestFilter:
    """Which requests a fault is about; None is every value. Texts may end with `*`, which stands for any end.

    `parts` has the names that stand inside requests: `topic`, `partition`, `group`, `transactional_id`. `versions` is inclusive.
    """

    api: ApiKey | None = None
    versions: tuple[int, int] | None = None
    broker: int | None = None
    from_broker: int | None = None
    """The broker that sent the request, by the client ids that brokers use."""
    client_id: str | None = None
    principal: str | None = None
    parts: Mapping[str, Any] = field(default_factory=dict)

    def matches(self, broker: int, version: int, client_id: str | None, principal: str) -> bool:
        """Whether the head of a request matches; its parts are looked at elsewhere."""
        return (
            (self.broker is None or self.broker == broker)
            and (self.versions is None or self.versions[0] <= version <= self.versions[1])
            and (self.from_broker is None or broker_of(client_id) == self.from_broker)
            and (self.client_id is None or is_like(client_id or "", self.client_id))
            and (self.principal is None or is_like(principal, self.principal))
        )


@dataclass(frozen=True, slots=True)
class DiskFilter:
    """Which operations of logs a slow disk is about; None is every value. The topic may end with `*`, which stands for any end."""

    broker: int | None = None
    operation: DiskOperation | None = None
    directory: str | None = None
    """A log directory, as an absolute path."""
    topic: str | None = None
    partition: int | None = None

    def matches(self, operation: DiskOperation, partition: TopicPartition, directory: str | None) -> bool:
        """Whether an operation of a log matches; the broker is looked at elsewhere."""
        return (
            self.operation in (None, operation)
            and self.directory in (None, directory)
            and self.partition in (None, partition.partition)
            and (self.topic is None or is_like(partition.topic, self.topic))
        )


@dataclass(frozen=True, slots=True)
class Effect:
    """What a fault does. A delay may be combined with one of the others.

    With `after_work` the request has done its work when the effect happens; otherwise it does none where the effect allows that.
    """

    after_work: bool = False
    error: ErrorCode | None = None
    message: str | None = None
    """Text of the error, in responses that have one."""
    delay_ms: int = 0
    is_dropped: bool = False
    """No response, and none to later requests of the connection, as if the broker's thread hung."""
    is_lost: bool = False
    """The work is done; the frame of the response is lost, and the connection goes on."""
    close: str | None = None
    """`before` the response, `amid` it (half of the frame is sent), or `after` it."""
    is_corrupt: bool = False
    """Each byte of the response's body is inverted."""
    truncate: int | None = None
    """The payload of the frame has at most this number of bytes; its length says this number."""
    correlation_id: int | None = None
    """Is added to the correlation id of the response."""
    throttle_time_ms: int | None = None
    values: Mapping[str, Any] | None = None
    """Values of fields of the response, by path: see `other_values.py`."""
    has_unknown_tags: bool = False
    """The response has tagged fields that no client knows, in its header and at its end, if its version has tagged fields."""
    slow_disk_ms: int = 0
    """Operations of logs wait this long before they happen."""


    def changes(self) -> dict[str, object]:
        """What it does, by name: the values that are not their defaults."""
        values = ((each.name, getattr(self, each.name), each.default) for each in fields(self))
        return {name: value.name if isinstance(value, ErrorCode) else value for name, value, default in values if value != default}


@dataclass(frozen=True, slots=True)
class Limits:
    """Which of the matching requests are hit: the first `after` are not, then at most `first` are, each with this probability."""

    first: int | None = None
    after: int = 0
    probability: float = 1.0
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Hit:
    """A request that a fault hit. `at_ms` is the time of the broker's clock, in ms since 1970."""

    at_ms: int
    broker: int
    client_id: str | None
    api: str
    version: int
    correlation_id: int


@dataclass(frozen=True, slots=True)
class DiskHit:
    """An operation of a log that a slow disk delayed. `at_ms` is the time of the broker's clock, in ms since 1970."""

    at_ms: int
    broker: int
    operation: DiskOperation
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class Condition:
    """A fault acts only while this holds. `values` says what it is about."""

    values: Mapping[str, Any]
    holds: Callable[[], bool]


class Fault:
    """One fault with its counts. `hits` counts the requests, or operations of logs, that it hit, `matches` those that matched its filter.
    """

    def __init__(
        self, number: int, wanted: RequestFilter | DiskFilter, effect: Effect, limits: Limits, condition: Condition | None = None
    ) -> None:
        self.number = number
        self.filter = wanted
        self.effect = effect
        self.limits = limits
        self.condition = condition
        self.matches = 0
        self.hits = 0
        self.last: deque[Hit | DiskHit] = deque(maxlen=KEPT_HITS)
        self.removed = asyncio.Event()
        self._hit = asyncio.Event()
        self._random = random.Random(limits.seed)

    @property
    def is_spent(self) -> bool:
        """Whether it will hit no request any more."""
        return self.limits.first is not None and self.hits >= self.limits.first

    @property
    def acts(self) -> bool:
        """Whether it may hit a request now."""
        return not self.is_spent and (self.condition is None or self.condition.holds())

    def limit(self, first: int) -> None:
        """Let this fault hit this number of requests in all, those that it hit included."""
        self.limits = replace(self.limits, first=first)

    def takes(self, hit: Hit | DiskHit) -> bool:
        """Count a request, or an operation of a log, that matches. Returns whether it is hit."""
        if not self.acts:
            return False
        self.matches += 1
        if self.matches <= self.limits.after:
            return False
        if self.limits.probability < 1 and self._random.random() >= self.limits.probability:
            return False
        self.hits += 1
        self.last.append(hit)
        self._hit.set()
        return True

    async def reached(self, hits: int = 1) -> None:
        """Wait until this fault has hit this number of requests, or is removed."""
        while self.hits < hits and not self.removed.is_set():
            self._hit.clear()
            waits = [asyncio.ensure_future(event.wait()) for event in (self._hit, self.removed)]
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for each in waits:
                    each.cancel()


@dataclass(frozen=True, slots=True)
class BrokerFaults:
    """The faults as one broker sees them."""

    faults: Faults
    broker_id: int
    written: Callable[[int, Mapping[str, object], str, int], None] | None = None
    """Gets each hit: number and changes of the fault, connection and correlation id of the request."""

    def of(self, api: ApiKey) -> list[Fault]:
        """Faults about this API, oldest first."""
        return self.faults.of(api)


class Faults:
    """The faults of a cluster."""

    def __init__(self) -> None:
        self._listeners: list[WeakMethod[Callable[[], None]]] = []
        self._numbers = itertools.count(1)
        self._by_number: dict[int, Fault] = {}
        self._by_api: dict[ApiKey, list[Fault]] = {}
        self._of_all: list[Fault] = []
        self.of_disks: list[Fault] = []
        """Slow disks, oldest first."""

    def __iter__(self) -> Iterator[Fault]:
        return iter(list(self._by_number.values()))

    def __len__(self) -> int:
        return len(self._by_number)

    def __getitem__(self, number: int) -> Fault:
        """The fault with this number. Raises KeyError."""
        return self._by_number[number]

    def tell(self, listener: Callable[[], None]) -> None:
        """Call this method after each change, as long as its object lives: brokers come and go."""
        self._listeners.append(WeakMethod(listener))

    def add(
        self, wanted: RequestFilter | DiskFilter, effect: Effect, limits: Limits | None = None, number: int | None = None,
        condition: Condition | None = None,
    ) -> Fault:
        """A new fault, from the next request on, with the next number unless one is given. Raises ValueError: there are too many."""
        if len(self._by_number) >= MAX_FAULTS:
            raise ValueError(f"there are {MAX_FAULTS} faults already; remove some")
        fault = Fault(
            next(self._numbers) if number is None else number, wanted, effect, Limits() if limits is None else limits, condition
        )
        self._by_number[fault.number] = fault
        self._changed()
        return fault

    def remove(self, number: int) -> Fault:
        """End a fault: requests that it delays or drops end with their connection. Raises KeyError."""
        fault = self._by_number.pop(number)
        self._changed()
        fault.removed.set()
        return fault

    def clear(self) -> None:
        """End all faults."""
        for number in list(self._by_number):
            self.remove(number)

    def of(self, api: ApiKey) -> list[Fault]:
        """Faults about this API, oldest first."""
        return self._by_api.get(api, self._of_all)

    def _changed(self) -> None:
        apis = {fault: fault.filter.api for fault in self if isinstance(fault.filter, RequestFilter)}
        self.of_disks = [fault for fault in self if fault not in apis]
        self._of_all = [fault for fault, api in apis.items() if api is None]
        self._by_api = {key: [fault for fault, api in apis.items() if api in (None, key)] for key in apis.values() if key is not None}
        self._listeners = [each for each in self._listeners if each() is not None]
        for each in self._listeners:
            listener = each()
            if listener is not None:
                listener()


def is_like(text: str, pattern: str) -> bool:
    """Whether a text equals a pattern or, if that ends with `*`, begins with the rest of it."""
    return text.startswith(pattern[:-1]) if pattern.endswith("*") else text == pattern
