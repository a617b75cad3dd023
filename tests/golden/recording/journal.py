"""Frames between real brokers, written down by proxies through which the brokers reach each other.

A broker listens on its own port and advertises that of its `Proxy`, so whoever learns of it from the cluster, other brokers and itself
first of all, comes by; a test that knows the port does not. Frames pass unchanged and at once. Of these the `Journal` notes what a
broker sent, told by its client id, but for Fetch: request and answer in one line, in the order in which the requests came. An answer
that did not come before the connection ended is null.

The proxies run in a thread with a loop of its own, because everything that starts and asks brokers blocks.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import socket
import struct
import threading
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from klamm.protocol import messages
from klamm.tests.harness.client import KEYS

FETCH = 1
NAMELESS = (7, 0)
"""ControlledShutdown 0: only brokers send it, and its header has no client id."""

NOTED_AS_OFTEN_AS_SENT = frozenset({4, 5, 6})
"""What changes a broker's state. All else is noted once a cluster where requests and answers are the same but for correlation ids."""

_BROKER = re.compile(rb"\d+|broker-\d+-.*")


class Journal:
    """What was noted, in order: pairs of frames, and whatever else `note` was given."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []
        self.step = ""
        """The part of the story that is being told; every line names it."""

    def note(self, **line: Any) -> dict[str, Any]:
        noted = {"step": self.step, **line}
        self.lines.append(noted)
        return noted

    def request(self, to: int, payload: bytes) -> dict[str, Any] | None:
        """Note a request; None when it is none of ours. The answer goes into what this returns."""
        key, version, _, length = struct.unpack_from(">hhih", payload)
        client_id = payload[10 : 10 + max(length, 0)]
        nameless = (key, version) == NAMELESS
        if key == FETCH or not (nameless or _BROKER.fullmatch(client_id)):
            return None
        return self.note(to=to, api_key=key, api_version=version, request=payload.hex(), response=None)

    def ask(self, to: int, port: int, question: Any, version: int) -> dict[str, Any]:
        """Ask a broker something at its own port, and note that when it has answered."""
        key = KEYS[type(question).__name__.removesuffix("Request")]
        frame = messages.encode_request(key, version, 1, "test", messages.encode(question, version))
        with socket.create_connection(("127.0.0.1", port), timeout=30) as connection, connection.makefile("rb") as stream:
            connection.sendall(frame)
            answer = stream.read(struct.unpack(">i", stream.read(4))[0])
        return self.note(to=to, api_key=key, api_version=version, request=frame[4:].hex(), response=answer.hex())

    def distinct(self) -> list[dict[str, Any]]:
        """The lines, without repetitions of what changes nothing."""
        kept, seen = [], set()
        for line in self.lines:
            if "request" in line and line["api_key"] not in NOTED_AS_OFTEN_AS_SENT:
                # key and version, then the correlation id, then the rest
                same = (line["to"], line["request"][:8], line["request"][16:], (line["response"] or "")[8:])
                if same in seen:
                    continue
                seen.add(same)
            kept.append(line)
        return kept


class RecordingProxy:
    """In front of one broker. Listens on `port`, forwards to `target`."""

    def __init__(self, broker_id: int, target: int, journal: Journal) -> None:
        self.broker_id, self.target, self.journal = broker_id, target, journal
        self.port = 0

    async def start(self) -> None:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            to_reader, to_writer = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.close()  # as if nobody listened
            return
        unanswered: deque[dict[str, Any] | None] = deque()

        def requested(payload: bytes) -> None:
            unanswered.append(self.journal.request(self.broker_id, payload))

        def answered(payload: bytes) -> None:
            line = unanswered.popleft()
            if line is not None:
                line["response"] = payload.hex()

        ways = [asyncio.create_task(_pass_on(reader, to_writer, requested)), asyncio.create_task(_pass_on(to_reader, writer, answered))]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        to_writer.close()
        writer.close()
        await asyncio.wait(ways)


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seen: Any) -> None:
    """Frame by frame, until either side hangs up."""
    try:
        while True:
            head = await reader.readexactly(4)
            payload = await reader.readexactly(struct.unpack(">i", head)[0])
            seen(payload)
            writer.write(head + payload)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        return


class Proxies:
    """Makes proxies, in a thread that ends with `close`."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def add(self, broker_id: int, target: int) -> int:
        """A proxy in front of a broker that listens, or will, on `target`; the port to advertise."""
        proxy = RecordingProxy(broker_id, target, self.journal)
        asyncio.run_coroutine_threadsafe(proxy.start(), self._loop).result()
        return proxy.port

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()


def write_lines(target: Path, lines: Iterable[str]) -> str:
    """Write lines of JSON into a gzip file that depends on nothing else; says what was written."""
    text = "".join(f"{line}\n" for line in lines)
    target.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    return f"{target.name}: {text.count(chr(10))} lines, {target.stat().st_size} bytes"


def as_text(line: dict[str, Any]) -> str:
    return json.dumps(line, separators=(",", ":"), ensure_ascii=False)
