"""The requests of a cluster whose brokers are in processes of their own: each process has those that its broker received."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from klamm.control.bodies import checked_filter
from klamm.control.broker_control import BrokerControl
from klamm.control.history import Exchange, History, at_ms_of
from klamm.control.json_object import JsonObject
from klamm.control.processes.remote_part import RemotePart
from klamm.control.processes.request_numbers import RequestNumbers
from klamm.control.verbs.parts import ACT_S, Parts, call
from klamm.protocol.nouns import ZERO_UUID

MAX_BROKERS = 100
"""More brokers than anybody adds to a cluster that began with less."""
OPEN_MS = 60_000
"""A request without a response is looked at again for so long."""


class ProcessRequests:
    """Asks the processes (`control/verbs/cluster.py`). A request is gone with its process, unless it was asked for before."""

    def __init__(self, parts: Parts, remote: Mapping[int, RemotePart], count: Callable[[], int]) -> None:
        self._parts = parts
        self._remote = remote
        self._count = count
        self._numbers = RequestNumbers(max(MAX_BROKERS, count()))
        self._past_total = 0
        self._topic_ids: dict[str, bytes] = {}
        self._looked = History(lambda name: self._topic_ids.get(name, ZERO_UUID))
        """Requests of clients that were asked for, those of processes that have ended included."""
        self._looked_ms = 0
        self.is_followed = False
        """Whether requests of clients are asked for before a process ends."""

    @property
    def total(self) -> int:
        """Requests of all processes since the start, as they were seen last."""
        return self._past_total + sum(part.total for part in self._remote.values())

    def ended(self, part: RemotePart) -> None:
        """A process has ended."""
        self._past_total += part.total

    async def before_end(self) -> None:
        """A process is to be ended."""
        if self.is_followed:
            await self._look()

    def last(self) -> int:
        """A number that all requests have passed which are received from now on."""
        return self._numbers.number_of(time.time_ns() // 1_000_000, 0, 0) - 1

    async def requests(self, *, broker: int | None = None, after: int = 0, limit: int = 100, **query: Any) -> JsonObject:
        """The last requests that match, oldest first, by the time at which they were received. Raises Refused."""
        checked_filter(query | {"broker": broker}, range(1, self._count() + 1))
        wanted = call(BrokerControl.requests, **query, limit=limit, since_ms=self._numbers.ms_of(after))
        answers = await self._parts.ask(wanted, only=None if broker is None else (broker,))
        rows: list[JsonObject] = []
        answers.all()
        for number, answer in answers.done.items():
            rows += [
                row | {"number": self._numbers.number_of(at_ms_of(row["at"]), row["number"], row["broker"])} for row in answer["requests"]
            ]
            if number in self._remote:
                self._remote[number].total = answer["total"]
        rows = sorted((row for row in rows if row["number"] > after), key=lambda row: int(row["number"]))
        return {"requests": rows[-limit:], "total": self.total} | answers.missing

    async def exchanges(self, **wanted: Any) -> list[Exchange]:
        """Requests of clients that match, newest first. Raises Refused."""
        checked = checked_filter(wanted, range(1, self._count() + 1))
        await self._look()
        return list(self._looked.newest(clients_only=True, **checked))

    async def _look(self) -> None:
        """Have the requests that the processes received since the last look, and those that had no response then."""
        begun_ms = time.time_ns() // 1_000_000
        answers = await self._parts.ask(call(BrokerControl.exchanges, self._looked_ms), limit_s=ACT_S)
        found: list[Exchange] = []
        for answer in answers.done.values():
            self._topic_ids |= answer.topic_ids
            for row in answer.exchanges:
                number = self._numbers.number_of(row.at_ms, row.number, row.broker)
                exchange = Exchange(number, row.at_ms, row.broker, row.peer, row.request)
                exchange.response = row.response
                found.append(exchange)
        self._looked.take(found)
        open_ms = [each.at_ms for each in found if each.response is None and each.at_ms > begun_ms - OPEN_MS]
        self._looked_ms = min([begun_ms - 1, *open_ms])

    def topic_name(self, topic_id: bytes) -> str | None:
        """The name of the topic with this id."""
        return next((name for name, each in self._topic_ids.items() if each == topic_id), None)
