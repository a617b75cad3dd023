"""The requests of a cluster whose brokers are in processes of their own: each process has those that its broker received."""

from __future__ import annotations

from base64 import b64decode
from typing import Any

from klamm.control.bodies import checked_filter
from klamm.control.history import Exchange, at_ms_of
from klamm.control.json_object import JsonObject
from klamm.control.model import MAX_LISTED
from klamm.control.processes.broker_processes import ACT_S, BrokerProcesses, SteeredProcess
from klamm.control.processes.request_numbers import RequestNumbers
from klamm.control.refusal import Refused

MAX_BROKERS = 100
"""More brokers than anybody adds to a cluster that began with less."""


class ProcessHistory:
    """Asks the processes. A request is gone with its process, unless it was asked for before."""

    def __init__(self, processes: BrokerProcesses) -> None:
        self._processes = processes
        self._numbers = RequestNumbers(max(MAX_BROKERS, processes.cluster.count))
        self._past_total = 0

    @property
    def total(self) -> int:
        """Requests of all processes since the start, as they were seen last."""
        return self._past_total + sum(part.total for part in self._processes.parts.values())

    def ended(self, part: SteeredProcess) -> None:
        """A process has ended."""
        self._past_total += part.total

    def number_before(self, at_ms: int) -> int:
        """A number that all requests have passed which were received at this time (ms since 1970) or later."""
        return self._numbers.number_of(at_ms, 0, 0) - 1

    async def requests(
        self, *, broker: int | None = None, after: int = 0, limit: int = 100, **query: Any
    ) -> JsonObject:
        """The last requests that match, oldest first, by the time at which they were received. Raises Refused."""
        checked_filter(query | {"broker": broker}, range(1, self._processes.cluster.count + 1))
        if not 1 <= limit <= MAX_LISTED:
            raise Refused(f"limit: from 1 to {MAX_LISTED}")
        asked = query | {"limit": limit, "since_ms": self._numbers.ms_of(after)}
        answers, missing = await self._processes.ask("GET", "/own/requests", query=asked, only=None if broker is None else (broker,))
        rows: list[JsonObject] = []
        for number, answer in answers.items():
            if isinstance(answer, Refused):
                raise answer
            rows += [
                row | {"number": self._numbers.number_of(at_ms_of(row["at"]), row["number"], row["broker"])} for row in answer["requests"]
            ]
            if number in self._processes.parts:
                self._processes.parts[number].total = answer["total"]
        rows = sorted((row for row in rows if row["number"] > after), key=lambda row: row["number"])
        return {"requests": rows[-limit:], "total": self.total} | missing

    async def exchanges(self, since_ms: int = 0) -> tuple[list[Exchange], dict[str, bytes]]:
        """Requests of clients that were received at this time (ms since 1970) or later, in no order, and the ids of topics by name."""
        answers, _ = await self._processes.ask("GET", "/own/exchanges", query={"since_ms": since_ms}, limit_s=ACT_S)
        found: list[Exchange] = []
        topic_ids: dict[str, bytes] = {}
        for answer in answers.values():
            if isinstance(answer, Refused):
                continue
            topic_ids |= {name: bytes.fromhex(each) for name, each in answer["topic_ids"].items()}
            for row in answer["exchanges"]:
                number = self._numbers.number_of(row["at_ms"], row["number"], row["broker"])
                exchange = Exchange(number, row["at_ms"], row["broker"], row["peer"], b64decode(row["request"]))
                exchange.response = None if row["response"] is None else b64decode(row["response"])
                found.append(exchange)
        return found, topic_ids
