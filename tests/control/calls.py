"""Calls of the control API of a cluster that a test runs."""

from __future__ import annotations

import json
from typing import Any, Protocol

import aiohttp

from klamm.protocol import messages
from klamm.protocol.records.record import Record, encode_batch
from klamm.tests.harness.client import Client


class SteeredServing(Protocol):
    """A cluster with a control API."""

    @property
    def control_url(self) -> str | None:
        """Where it is."""

    @property
    def addresses(self) -> list[tuple[int, str, int]]:
        """(id, host, port) of each broker, sorted by id."""


class Calls:
    """Calls the API; `error` expects that it is refused."""

    def __init__(self, session: aiohttp.ClientSession, served: SteeredServing) -> None:
        self.session, self.served = session, served

    async def call(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        data = None if body is None else json.dumps(body)
        async with self.session.request(method, f"{self.served.control_url}{path}", data=data, headers=headers) as response:
            return response.status, await response.json()

    async def get(self, path: str) -> Any:
        return await self._done("GET", path)

    async def post(self, path: str, body: Any = None) -> Any:
        return await self._done("POST", path, body)

    async def delete(self, path: str) -> Any:
        return await self._done("DELETE", path)

    async def error(self, method: str, path: str, body: Any = None, status: int = 400) -> str:
        seen, answer = await self.call(method, path, body)
        assert (seen, list(answer)) == (status, ["error"]), answer
        text: str = answer["error"]
        assert "\n" not in text and "Traceback" not in text
        return text

    def client(self, broker: int) -> Client:
        """A connection to a broker."""
        _, host, port = self.served.addresses[broker - 1]
        return Client(host, port)

    async def leader_of(self, partition: int) -> Client:
        """A connection to the leader of a partition of topic t."""
        return self.client((await self.get("/topics/t"))["partitions"][partition]["leader"])

    async def _done(self, method: str, path: str, body: Any = None) -> Any:
        status, answer = await self.call(method, path, body)
        assert status == 200, answer
        return answer


def produce(*partitions: int) -> messages.ProduceRequest:
    """A record for each of these partitions of topic t."""
    kind = messages.ProduceRequest
    records = encode_batch([Record(0, 1_700_000_000_000, None, b"v")])
    rows = [kind.PartitionProduceData(index=index, records=records) for index in partitions]
    return kind(acks=-1, timeout_ms=5000, topic_data=[kind.TopicProduceData(name="t", partition_data=rows)])
