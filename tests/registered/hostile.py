"""A broker by request as bytes on a connection: it registers and fetches as it is told to, true or false, and does nothing else."""

from __future__ import annotations

import asyncio
import itertools
import statistics
import time
from pathlib import Path
from typing import Any

from klamm.protocol import messages
from klamm.tests.harness.client import KEYS, Client, ConnectionClosed
from klamm.tests.harness.cluster import Cluster
from klamm.tests.harness.ports import free_port

ENDPOINT = messages.RegisterBrokerRequest.Endpoint
SESSION_TIMEOUT_MS = 2000
HEARTBEAT_MS = 400
OFFLINE, FENCED, ONLINE, STOPPING = range(4)
LEAST, MOST = -(2**31), 2**31 - 1
LEAST_64, MOST_64 = -(2**63), 2**63 - 1
_ids = itertools.count(5001)


def fresh_id() -> int:
    """A broker id that no other test of the run uses."""
    return next(_ids)


class Impostor:
    """One connection that says it is broker `broker_id`; nothing listens where it says it does."""

    def __init__(self, port: int, broker_id: int, secret: bytes = b"") -> None:
        self.client, self.id, self.epoch = Client("127.0.0.1", port), broker_id, -1
        self.controller_epoch = -1
        self.secret = secret

    async def register(self, **fields: Any) -> messages.RegisterBrokerResponse:
        """RegisterBroker with one endpoint, unless told otherwise; an epoch that is given is kept."""
        endpoint = ENDPOINT(port=free_port(), host="127.0.0.1", listener="PLAINTEXT", security_protocol=0)
        values = {"broker_id": self.id, "rack_id": None, "endpoints": [endpoint], "secret": self.secret}
        request = messages.RegisterBrokerRequest(**values | fields)
        response: messages.RegisterBrokerResponse = await self.client.ask(request, 0)
        if response.error_code == 0:
            self.epoch = response.broker_epoch
        return response

    async def fetch(self, offset: int = 0, **fields: Any) -> messages.MetadataFetchResponse:
        """MetadataFetch at this offset, without waiting unless told otherwise, with the controller epoch of the last response."""
        values: dict[str, Any] = {
            "broker_id": self.id,
            "broker_epoch": self.epoch,
            "controller_epoch": self.controller_epoch,
            "fetch_offset": offset,
            "max_wait_ms": 0,
            "max_bytes": 1 << 20,
            "want_shut_down": False,
            "secret": self.secret,
        }
        response: messages.MetadataFetchResponse = await self.client.ask(messages.MetadataFetchRequest(**values | fields), 0)
        self.controller_epoch = response.controller_epoch
        return response

    async def to_the_end(self) -> messages.MetadataFetchResponse:
        """Fetch until the end of the log is reached, and say so to the controller."""
        response = await self.fetch()
        while response.state != ONLINE:
            response = await self.fetch(response.high_watermark)
            assert response.error_code == 0, response
        return response


async def slowness(client: Client, ask: Any, version: int, count: int = 100, pause_s: float = 0.005) -> list[float]:
    """Seconds that each of so many requests takes, one after the other with a pause, sorted."""
    taken = []
    for _ in range(count):
        begin = time.monotonic()
        await client.ask(ask, version)
        taken.append(time.monotonic() - begin)
        await asyncio.sleep(pause_s)
    return sorted(taken)


def described(taken: list[float]) -> str:
    """Median, 95th percentile and the slowest, in ms."""
    return f"median {statistics.median(taken) * 1000:.1f}, p95 {taken[int(len(taken) * 0.95)] * 1000:.1f}, max {taken[-1] * 1000:.1f} ms"


def memory_mb(pid: int) -> float:
    """What a process holds in memory."""
    (line,) = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS")]
    return int(line.split()[1]) / 1024


def cpu_s(pid: int) -> float:
    """CPU that a process has used, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


async def floods(port: int, frame: bytes, until: asyncio.Event) -> int:
    """Send one request again and again on a connection of its own, the next as soon as one is answered; how many were answered."""
    client, count = Client("127.0.0.1", port), 0
    try:
        while not until.is_set():
            await client.frame(frame)
            count += 1
    except ConnectionClosed:
        pass
    finally:
        await client.close()
    return count


def payload(message: Any) -> bytes:
    """A request of version 0 without its size."""
    key = KEYS[type(message).__name__.removesuffix("Request")]
    return bytes(messages.encode_request(key, 0, 1, "impostor", messages.encode(message, 0))[4:])


def stored(cluster: Cluster, broker_id: int) -> dict[str, Any]:
    node: dict[str, Any] = cluster.tree.json(f"/cluster/brokers/{broker_id}") or {}
    return node


async def alive(cluster: Cluster) -> set[int]:
    """The brokers that Metadata shows."""
    return {broker.node_id for broker in (await cluster.metadata([])).brokers}
