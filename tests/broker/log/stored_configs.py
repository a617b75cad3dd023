"""Configs of topics as a broker has stored them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence


class StoredConfigs:
    """Configs of topics, and each request that was made for them."""

    def __init__(self, configs: Mapping[str, Mapping[str, str]] | None = None) -> None:
        self.configs = dict(configs or {})
        self.requests: list[list[str]] = []
        self.gate: asyncio.Event | None = None
        self.error: Exception | None = None
        self.requested = asyncio.Event()

    async def __call__(self, topics: Sequence[str]) -> list[Mapping[str, str] | None]:
        self.requests.append(list(topics))
        self.requested.set()
        found = [self.configs.get(topic) for topic in topics]
        if self.gate is not None:
            await self.gate.wait()
        if self.error is not None:
            raise self.error
        return found
