"""A broker in another process, as a part of its cluster: the methods of its `BrokerControl` are called over HTTP."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any, TypeVar

import aiohttp
import msgspec

from klamm.control.broker_control import BrokerControl
from klamm.control.processes.own_calls import own_call
from klamm.control.refusal import Refused
from klamm.control.verbs.parts import READ_S, Call, Silent, call
from klamm.control.verbs.shares import ShownFault, ShownHold

R = TypeVar("R")
MAX_EVENT_BYTES = 1 << 30
"""Maximum size of an event. A hold of many phases, or of a phase with many partitions, is megabytes."""
_FOR_EVER = aiohttp.ClientTimeout(total=None)


class RemotePart:
    """A `Part` (`control/verbs/parts.py`)."""

    def __init__(self, session: aiohttp.ClientSession, url: str, token: str) -> None:
        self.is_paused = False
        self.behind_ms = 0
        self.total = 0
        """Requests that it received, as it said last."""
        self._session = session
        self._url = url
        self._headers = {"Authorization": f"Bearer {token}"}

    async def done(self, wanted: Call[R], limit_s: float) -> R:
        """See `Part`."""
        described = own_call(wanted.method)
        given = inspect.signature(wanted.method).bind(None, *wanted.arguments, **wanted.named).arguments
        body = msgspec.json.encode(described.arguments(**{name: value for name, value in given.items() if name != "self"}))
        url = f"{self._url}{described.path}"
        try:
            async with asyncio.timeout(limit_s), self._session.post(url, data=body, headers=self._headers) as said:
                text = await said.read()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise Silent(str(error) or type(error).__name__) from None
        if said.status != 200:
            raise Refused(json.loads(text)["error"], said.status)
        result: R = msgspec.json.decode(text, type=described.result)
        return result

    async def holds(self) -> Mapping[int, ShownHold]:
        """See `Part`."""
        return await self.done(call(BrokerControl.holds), READ_S)

    async def faults(self) -> Mapping[int, ShownFault]:
        """See `Part`."""
        return await self.done(call(BrokerControl.faults), READ_S)

    async def events(self) -> AsyncIterator[tuple[str, Any]]:
        """Kind and data of each event, from the first on, until the process ends."""
        try:
            async with self._session.get(f"{self._url}/events", headers=self._headers, timeout=_FOR_EVER) as response:
                kind = ""
                while line := await response.content.readline(max_line_length=MAX_EVENT_BYTES):
                    text = line.decode().rstrip("\n")
                    if text.startswith("event: "):
                        kind = text.removeprefix("event: ")
                    elif text.startswith("data: "):
                        yield kind, json.loads(text.removeprefix("data: "))
        except (aiohttp.ClientError, OSError, ValueError):
            return
