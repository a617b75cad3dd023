"""A network between brokers in which two of them can be cut off from each other, while both keep everybody else and ZooKeeper.

Each broker advertises the address of a proxy of its own to other brokers. A connection belongs to the broker that opened it, which its
first request tells: brokers put their id into their client ids (`2`, `broker-2-fetcher-0`). Between two brokers that are cut off from each
other nothing passes, in connections of either: they stay open and are silent, and what was sent arrives when the cut is healed. New
connections are accepted and hear nothing. `drop` closes them instead. The proxies run in a thread of their own, so a test may block.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import struct
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
_BROKER = re.compile(r"(?:broker-)?(\d+)(?:-.*)?$")
HEAD = 8
"""Bytes of a request before its correlation id: size, API key, API version."""


def opener(frame: bytes) -> int | None:
    """The broker that sent this first request (its size is left out), by its client id; None for anybody else."""
    (length,) = struct.unpack_from(">h", frame, HEAD)
    name = frame[HEAD + 2 : HEAD + 2 + length].decode(errors="replace") if length > 0 else ""
    matched = _BROKER.match(name)
    return None if matched is None else int(matched[1])


class Network:
    """Proxies of brokers, by broker id."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="network")
        self._thread.start()
        self._servers: list[asyncio.Server] = []
        self._tasks: dict[asyncio.Task[None], frozenset[int]] = {}
        """What runs for connections, with their two brokers; one where the other is no broker."""
        self._cuts: dict[frozenset[int], asyncio.Event] = {}
        """Pairs that are cut off; the event is set when the cut is healed."""

    def close(self) -> None:
        """Close all connections and end the thread."""
        self._do(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def proxy(self, broker_id: int, port: int) -> int:
        """The port of a new proxy in front of `port` of this broker."""

        async def start() -> int:
            def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Coroutine[Any, Any, None]:
                return self._serve(broker_id, port, reader, writer)

            server = await asyncio.start_server(serve, "127.0.0.1", 0)
            self._servers.append(server)
            return int(server.sockets[0].getsockname()[1])

        return self._do(start())

    def cut(self, one: int, other: int) -> None:
        """From now on nothing passes between these two brokers."""

        async def cut() -> None:
            self._cuts.setdefault(frozenset((one, other)), asyncio.Event())

        self._do(cut())

    def heal(self, one: int, other: int) -> None:
        """What these two sent each other meanwhile arrives, and all that follows."""

        async def heal() -> None:
            event = self._cuts.pop(frozenset((one, other)), None)
            if event is not None:
                event.set()

        self._do(heal())

    def drop(self, one: int, other: int) -> None:
        """Close the connections that these two have now."""

        async def drop() -> None:
            for task, pair in self._tasks.items():
                if pair == frozenset((one, other)):
                    task.cancel()

        self._do(drop())

    def connections(self, one: int, other: int) -> int:
        """How many connections these two have."""

        async def count() -> int:
            return sum(pair == frozenset((one, other)) for pair in self._tasks.values())

        return self._do(count())

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(list(self._tasks))

    async def _serve(self, broker_id: int, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks[task] = frozenset((broker_id,))
        to_writer: asyncio.StreamWriter | None = None
        try:
            head = await reader.readexactly(4)
            first = await reader.readexactly(struct.unpack(">i", head)[0])
            source = opener(first)
            if source is not None:
                self._tasks[task] = frozenset((broker_id, source))
            pair = self._tasks[task]
            await self._passable(pair)
            to_reader, to_writer = await asyncio.open_connection("127.0.0.1", port)
            to_writer.write(head + first)
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pump(pair, reader, to_writer, task.cancel))
                both.create_task(self._pump(pair, to_reader, writer, task.cancel))
        except (asyncio.CancelledError, asyncio.IncompleteReadError, ConnectionError, OSError, ExceptionGroup):
            pass  # either side hung up, or the test did
        finally:
            del self._tasks[task]
            writer.close()
            if to_writer is not None:
                to_writer.close()

    async def _passable(self, pair: frozenset[int]) -> None:
        while (event := self._cuts.get(pair)) is not None:
            await event.wait()

    async def _pump(
        self, pair: frozenset[int], reader: asyncio.StreamReader, writer: asyncio.StreamWriter, over: Callable[[], Any]
    ) -> None:
        with contextlib.suppress(ConnectionError):
            while piece := await reader.read(1 << 16):
                await self._passable(pair)
                writer.write(piece)
                await writer.drain()
        await self._passable(pair)  # nobody hears that the other side has hung up either
        over()
