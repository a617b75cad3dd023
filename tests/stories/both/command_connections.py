"""Words that open connections of their own to a broker under test, and look whether they are served."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from klamm.protocol import messages
from klamm.tests.harness.kafka import OwnedBroker
from klamm.tests.stories.both.commands import Look, Words, action, view
from klamm.tests.stories.both.stage import Stage

API_VERSIONS = 18
LOOK_S = 0.2


@dataclass
class Connection:
    """One connection; what is asked on it stays asked until it is answered."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    asked: asyncio.Task[bytes] | None = field(default=None)

    async def serves(self) -> str:
        """Whether a request is answered within a moment, or the connection closed."""
        if self.asked is None:
            request = messages.ApiVersionsRequest()
            self.writer.write(messages.encode_request(API_VERSIONS, 0, 1, "story", messages.encode(request, 0)))
            self.asked = asyncio.ensure_future(self._answer())
        done, _ = await asyncio.wait({self.asked}, timeout=LOOK_S)
        if not done:
            return "not answered"
        if isinstance(self.asked.exception(), OSError | EOFError):
            return "closed"
        self.asked.result()
        self.asked = None
        return "answered"

    async def _answer(self) -> bytes:
        length = int.from_bytes(await self.reader.readexactly(4), "big")
        return await self.reader.readexactly(length)

    def close(self) -> None:
        if self.asked is not None:
            self.asked.cancel()
        self.writer.transport.abort()


def _opened(stage: Stage) -> dict[str, Connection]:
    return stage.resource("connections", dict, _close_all)


def _close_all(opened: dict[str, Connection]) -> None:
    for connection in opened.values():
        connection.close()


@action("connect")
async def connect(stage: Stage, words: list[str]) -> str:
    """connect a b ... [listener=NAME] [from=127.0.0.2] [to N]: connections with names of their own, one after the other."""
    parsed = Words.of(words)
    broker = stage.brokers[stage.one(parsed.to)]
    assert isinstance(broker, OwnedBroker)
    host, _, port = broker.address(parsed.settings.get("listener", "PLAINTEXT")).rpartition(":")
    for name in parsed.rest:
        local = (parsed.settings["from"], 0) if "from" in parsed.settings else None
        _opened(stage)[name] = Connection(*await asyncio.open_connection(host, int(port), local_addr=local))
    return ""


@action("hang-up")
async def hang_up(stage: Stage, words: list[str]) -> str:
    """hang-up a ...: close connections of the story."""
    for name in words:
        _opened(stage).pop(name).close()
    return ""


@view("served")
def served(stage: Stage, words: list[str]) -> Look:
    """served a b ...: ask on each of these connections, one after the other."""

    async def see() -> str:
        return "\n".join([f"{name} {await _opened(stage)[name].serves()}" for name in words])

    return Look(see)
