"""Many brokers in one process, as far as their controller sees them: each registers by request, and fetches the metadata log.

    python -m klamm.benchmarks.registered_brokers HOST:PORT FIRST COUNT INTERVAL_MS

Each broker has a connection of its own to the controller at HOST:PORT. All of them listen at one port of this process, where every request
of the controller is answered with success. A fetch waits at the controller for INTERVAL_MS when there is nothing new; the next one goes out
when its answer is there, so an idle broker fetches once per interval. Records are not applied: only their last offset is read, as this
process is there to keep the controller busy, not itself. The line `stats` on stdin prints a line of JSON; the line `quiet N` makes the
first N brokers stop to fetch.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter
from struct import Struct
from typing import Any

import uvloop

from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.framing import FrameReader

MAX_BYTES = 1 << 20
ONLINE = 2
# An answer after its correlation id and its empty tags: throttle time, error, result, state, controller epoch, start of the log, end of it.
_FETCHED = Struct(">ihbbiqq")
_HEAD = Struct(">hhi")
_OFFSET_AND_LENGTH = Struct(">qi")
_INT32 = Struct(">i")


class RegisteredBroker(asyncio.Protocol):
    """One broker: its connection to the controller."""

    def __init__(self, brokers: RegisteredBrokers, broker_id: int) -> None:
        self.id = broker_id
        self.epoch = -1
        self.controller_epoch = -1
        self.offset = 0
        self.state = -1
        self.quiet = False
        self.sent_at = 0.0
        self._brokers = brokers
        self._reader = FrameReader(1 << 27)
        self._transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        request = messages.RegisterBrokerRequest
        endpoint = request.Endpoint(port=self._brokers.port, host="127.0.0.1", listener="PLAINTEXT", security_protocol=0)
        self._send(ApiKey.REGISTER_BROKER, request(broker_id=self.id, rack_id=None, endpoints=[endpoint]))

    def connection_lost(self, problem: Exception | None) -> None:
        self._brokers.counts["connections lost"] += 1

    def data_received(self, data: bytes) -> None:
        for payload in self._reader.feed(data):
            if self.epoch < 0:
                self._registered(payload)
            else:
                self._fetched(payload)

    def fetch(self) -> None:
        """Ask for what is new."""
        self.sent_at = time.monotonic()
        self._send(
            ApiKey.METADATA_FETCH,
            messages.MetadataFetchRequest(
                self.id, self.epoch, self.controller_epoch, self.offset, self._brokers.interval_ms, MAX_BYTES, False
            ),
        )

    def _send(self, api_key: int, request: Any) -> None:
        self._transport.write(messages.encode_request(api_key, 0, 0, "broker", messages.encode(request, 0)))

    def _registered(self, payload: bytes) -> None:
        _, offset = messages.decode_response_header(ApiKey.REGISTER_BROKER, 0, payload)
        answer = messages.decode("RegisterBrokerResponse", 0, payload, offset)[0]
        if answer.error_code:
            self._brokers.counts[f"registration refused with {answer.error_code}"] += 1
            return
        self.epoch, self.state = answer.broker_epoch, answer.state
        self.fetch()

    def _fetched(self, payload: bytes) -> None:
        counts = self._brokers.counts
        _, error, _, state, epoch, start, _ = _FETCHED.unpack_from(payload, 5)
        counts["fetches"] += 1
        counts["bytes"] += len(payload)
        self._brokers.longest_wait_s = max(self._brokers.longest_wait_s, time.monotonic() - self.sent_at)
        if error:
            counts[f"error {error}"] += 1
        if self.state == ONLINE and state != ONLINE:
            counts["fenced"] += 1
        self.state = state
        if epoch != self.controller_epoch or error:
            self.controller_epoch, self.offset = epoch, max(start, 0)
        if not error:
            self.offset = self._after_records(payload, 5 + _FETCHED.size)
        if not self.quiet:
            self.fetch()

    def _after_records(self, payload: bytes, at: int) -> int:
        """The offset behind the records of an answer; at their beginning stands their length plus one, as an unsigned varint."""
        while payload[at] & 0x80:
            at += 1
        at += 1
        offset, end = self.offset, len(payload) - 1
        while at < end:
            base, length = _OFFSET_AND_LENGTH.unpack_from(payload, at)
            offset = base + _INT32.unpack_from(payload, at + 23)[0] + 1
            at += 12 + length
        return offset


class Listener(asyncio.Protocol):
    """The end of a controller's channel to any of the brokers: everything succeeds."""

    def __init__(self, brokers: RegisteredBrokers) -> None:
        self._brokers = brokers
        self._reader = FrameReader(1 << 30)
        self._transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        for payload in self._reader.feed(data):
            api_key, version, correlation_id = _HEAD.unpack_from(payload)
            self._brokers.counts[f"requests with key {api_key}"] += 1
            self._transport.write(messages.encode_response(api_key, version, correlation_id, self._brokers.success(api_key, version)))


class RegisteredBrokers:
    """All brokers of the process."""

    def __init__(self, host: str, port: int, broker_ids: range, interval_ms: int) -> None:
        self.interval_ms = interval_ms
        self.port = 0
        self.counts: Counter[str] = Counter()
        self.longest_wait_s = 0.0
        self._address = host, port
        self._brokers = [RegisteredBroker(self, broker_id) for broker_id in broker_ids]
        self._successes: dict[tuple[int, int], bytes] = {}

    def success(self, api_key: int, version: int) -> bytes:
        """The body of an answer without any error."""
        found = self._successes.get((api_key, version))
        if found is None:
            name = {4: "LeaderAndIsr", 5: "StopReplica", 6: "UpdateMetadata"}[api_key]
            found = self._successes[api_key, version] = messages.encode(getattr(messages, f"{name}Response")(), version)
        return found

    async def run(self) -> None:
        """Until stdin ends."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Listener(self), "127.0.0.1", 0, backlog=1024)
        self.port = server.sockets[0].getsockname()[1]
        for broker in self._brokers:
            await loop.create_connection(lambda broker=broker: broker, *self._address)  # type: ignore[misc]
        lines = asyncio.StreamReader()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
        while line := (await lines.readline()).decode().split():
            if line[0] == "quiet":
                for broker in self._brokers[: int(line[1])]:
                    broker.quiet = True
            print(json.dumps(self.stats()), flush=True)

    def stats(self) -> dict[str, Any]:
        """States of the brokers, what was counted since the beginning, and the longest wait for an answer since the last time."""
        states = Counter(str(broker.state) for broker in self._brokers)
        longest, self.longest_wait_s = self.longest_wait_s, 0.0
        return {"states": dict(states), "counts": dict(self.counts), "longest_wait_s": round(longest, 3)}


def main(arguments: list[str]) -> None:
    """Run until stdin ends."""
    address, first, count, interval_ms = arguments
    host, _, port = address.rpartition(":")
    brokers = RegisteredBrokers(host, int(port), range(int(first), int(first) + int(count)), int(interval_ms))
    uvloop.run(brokers.run())


if __name__ == "__main__":
    main(sys.argv[1:])
