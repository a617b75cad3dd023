"""The admin client for threads: every method blocks until its outcome is known."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

from klamm.admin.async_client import AsyncAdminClient
from klamm.admin.network.io_thread import Call
from klamm.seams.blocking import Blocking, result_at_once

R = TypeVar("R")


class _InThread(AsyncAdminClient):
    """Its coroutines do not wait for an event loop: they block the thread that runs them."""

    async def close(self) -> None:
        self._io.close()

    async def _run(self, call: Call[R]) -> R:
        return self._io.run(call)


class AdminClient(Blocking, of=AsyncAdminClient, inner=_InThread):
    """A typed admin client of a Kafka cluster. It may be used from several threads.

    `bootstrap_servers` is "host:port,host:port" or a list. `request_timeout_ms` is the timeout of calls without a timeout of their own.
    `security` has kafka-python's settings with their names there (`security_protocol`, `ssl_…`, `sasl_…`, `proxy_url`). Without them
    connections are PLAINTEXT. Nothing is opened before the first call; `close`, or the end of a `with` block, closes everything.

    Every call ends by its deadline. It returns its result or raises an `AdminError` (see `klamm.admin.calls.errors`): `TimedOut`,
    `Disconnected`, `BadResponse`, `Unsupported`, `NotAuthenticated`, `Closed`, or the error of a response. Each is also the matching
    exception of kafka-python. A wrong argument raises TypeError or ValueError before anything is sent.
    """

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()  # that of a subclass, if it has its own

    def _result_of(self, call: Callable[[], Any]) -> Any:
        result = call()
        return result_at_once(result) if inspect.iscoroutine(result) else result
