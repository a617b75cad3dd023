"""What runs the calls of an admin client for asyncio."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Self, TypeVar, Unpack

from klamm.admin.calls.settings import DEFAULT_REQUEST_TIMEOUT_MS, Security, check_settings
from klamm.admin.network.io_thread import Call, IoThread

R = TypeVar("R")


class Caller:
    """Runs calls in a thread, which starts with the first call. `async with` closes everything at the end."""

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str] = "localhost:9092",
        *,
        client_id: str = "klamm-admin",
        request_timeout_ms: int = DEFAULT_REQUEST_TIMEOUT_MS,
        **security: Unpack[Security],
    ) -> None:
        settings = check_settings(bootstrap_servers, client_id, request_timeout_ms, security)
        self._timeout_ms = settings.request_timeout_ms
        self._io = IoThread(settings)

    async def close(self) -> None:
        """Close all connections and end the thread. Calls in progress fail with `Closed`. A second call has no effect."""
        await self._io.close_in_loop()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    async def _run(self, call: Call[R]) -> R:
        return await self._io.run_in_loop(call)

    def _time(self, timeout_ms: int | None) -> int:
        return self._timeout_ms if timeout_ms is None else timeout_ms
