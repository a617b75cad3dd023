"""Calls the control API of a broker in another process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp

from klamm.control.json_object import JsonObject
from klamm.control.refusal import Refused


class Silent(Exception):
    """The broker gave no response in time, or has ended."""


class BrokerClient:
    """The control API of one broker."""

    def __init__(self, session: aiohttp.ClientSession, url: str, token: str) -> None:
        self._session = session
        self._url = url
        self._headers = {"Authorization": f"Bearer {token}"}

    async def call(
        self, method: str, path: str, body: object = None, query: JsonObject | None = None, *, limit_s: float
    ) -> Any:
        """What the API responds. Raises Refused as the broker refuses it, Silent if there is no response within `limit_s` seconds."""
        try:
            async with asyncio.timeout(limit_s), self._session.request(
                method, f"{self._url}{path}", data=None if body is None else json.dumps(body), params=_texts(query), headers=self._headers
            ) as response:
                answer = await response.json()
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            raise Silent(str(error) or type(error).__name__) from None
        if response.status != 200:
            raise Refused(answer["error"], response.status)
        return answer

    async def events(self) -> AsyncIterator[tuple[str, Any]]:
        """Kind and data of each event, from the first on, until the broker ends."""
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


MAX_EVENT_BYTES = 1 << 30
"""Maximum size of an event. A hold of many phases, or of a phase with many partitions, is megabytes."""

_FOR_EVER = aiohttp.ClientTimeout(total=None)


def _texts(query: JsonObject | None) -> dict[str, str]:
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in (query or {}).items() if value is not None
    }
