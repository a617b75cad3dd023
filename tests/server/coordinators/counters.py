"""The third coordinator: what one costs beside the runtime. Counters of topic t, kept in its log; one that nobody adds to is deleted."""

from __future__ import annotations

import asyncio
from typing import NamedTuple, Never

from klamm.broker.coordinators.effects import AppendRecords, Phase, Respond
from klamm.protocol.errors import ErrorCode
from klamm.protocol.records.batch import Buffer, each_header
from klamm.protocol.records.record import read_records
from klamm.seams.clock import Now
from klamm.seams.value_class import dataclass
from klamm.server.coordinators.coordinator_runtime import CoordinatorRuntime
from klamm.server.coordinators.tickets import new_ticket

IDLE_MS = 1_000


class Total(NamedTuple):
    """The result of an addition."""

    error: ErrorCode
    total: int = 0

    def failed(self, code: ErrorCode) -> Total:
        return Total(code)


@dataclass(frozen=True, slots=True)
class CounterStored(Phase):
    """The new total is in the log, and its client has no response."""

    counter: str

    @property
    def key(self) -> str:
        return self.counter


class Counters:
    """The machine of one partition."""

    def __init__(self) -> None:
        self.totals: dict[str, int] = {}
        self._deadlines: dict[str, int] = {}
        self._effects: list[Respond[Total] | AppendRecords | CounterStored] = []

    def add(self, counter: str, amount: int, ticket: object) -> None:
        value = str(amount).encode()
        self._effects.append(AppendRecords(counter, ticket, ((counter.encode(), value),)))

    def replay(self, key: bytes | None, value: bytes | None) -> None:
        counter = (key or b"").decode()
        if value is None:
            self.totals.pop(counter, None)
        else:
            self.totals[counter] = self.totals.get(counter, 0) + int(value)

    # --- for the runtime

    @property
    def next_deadline_ms(self) -> int | None:
        return min(self._deadlines.values(), default=None)

    def take_effects(self) -> list[Respond[Total] | AppendRecords | CounterStored]:
        effects, self._effects = self._effects, []
        return effects

    def loaded(self, now: Now) -> None:
        self._deadlines = dict.fromkeys(self.totals, now.ms + IDLE_MS)

    def unload(self, now: Now) -> None:
        self.totals.clear()

    def tick(self, now: Now) -> None:
        for counter in [counter for counter, ms in self._deadlines.items() if ms <= now.ms]:
            del self._deadlines[counter]
            self._effects.append(AppendRecords(counter, None, ((counter.encode(), None),)))

    def appended(self, append: AppendRecords, error: ErrorCode, base_offset: int, now: Now) -> None:
        counter = append.key or ""
        if error is ErrorCode.NONE:
            for record in append.records:
                self.replay(*record)
        if append.token is None:
            return
        if error is ErrorCode.NONE:
            self._deadlines[counter] = now.ms + IDLE_MS
            self._effects.append(CounterStored(counter))
        self._effects.append(Respond(counter, append.token, Total(error, self.totals.get(counter, 0))))


class CounterCoordinator(CoordinatorRuntime[Counters, Never]):
    def add(self, counter: str, amount: int) -> asyncio.Future[Total]:
        """Add to a counter; the total comes when it is stored. Raises ApiError if this broker does not coordinate it."""
        ticket = new_ticket()
        self.ask(counter, lambda counters: counters.add(counter, amount, ticket))
        return ticket

    def make(self, index: int) -> Counters:
        return Counters()

    def replay(self, state: Counters, batches: Buffer) -> int:
        next_offset = -1
        for position, header in each_header(batches):
            for record in read_records(batches, header, position):
                state.replay(record.key, record.value)
            next_offset = header.next_offset
        return next_offset
