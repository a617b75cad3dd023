"""A bad road to a server: a TCP proxy that loses answers, hangs up, is closed for a while, stands still, or talks nonsense."""

from __future__ import annotations

import asyncio


class Road:
    """Listens on `port` once open and forwards to `target` (`host:port`)."""

    def __init__(self, target: str) -> None:
        self._host, _, port = target.partition(":")
        self._port = int(port)
        self._server: asyncio.Server | None = None
        self._closed = False
        self._loses_answers = False
        self._moves = asyncio.Event()
        self._moves.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    async def open(self) -> Road:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def remove(self) -> None:
        assert self._server is not None
        self._server.close()
        self._moves.set()
        self.cut()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        """Break every connection; new ones are served."""
        for writer in self._writers:
            writer.close()

    def close(self) -> None:
        """Break every connection and refuse new ones until `reopen`."""
        self._closed = True
        self.cut()

    def reopen(self) -> None:
        self._closed = False

    def lose_answers(self) -> None:
        """Pass requests on, throw the answers away, and break the connections when the first one was thrown away."""
        self._loses_answers = True

    def stand_still(self) -> None:
        """Pass nothing on and nothing back, with all connections open."""
        self._moves.clear()

    def talk_nonsense(self) -> None:
        """Send every client a frame that ends in the middle of its header."""
        for writer in self._writers:
            writer.write(b"\0\0\0\4\0\0\0\0")

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._closed:
            writer.close()
            return
        upstream_reader, upstream_writer = await asyncio.open_connection(self._host, self._port)
        both = {writer, upstream_writer}
        self._writers.add(writer)
        tasks = [
            asyncio.create_task(self._pass_on(reader, upstream_writer, both)),
            asyncio.create_task(self._pass_back(upstream_reader, writer, both)),
        ]
        self._tasks.update(tasks)
        await asyncio.gather(*tasks, return_exceptions=True)
        self._writers.discard(writer)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, both: set[asyncio.StreamWriter]) -> None:
        try:
            while data := await reader.read(1 << 16):
                await self._moves.wait()
                writer.write(data)
                await writer.drain()
        finally:
            for end in both:
                end.close()

    async def _pass_back(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, both: set[asyncio.StreamWriter]) -> None:
        try:
            while data := await reader.read(1 << 16):
                if self._loses_answers:
                    self._loses_answers = False
                    return
                await self._moves.wait()
                writer.write(data)
                await writer.drain()
        finally:
            for end in both:
                end.close()
