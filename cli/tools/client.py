"""Opens the client of a tool with `--bootstrap-server`, and turns its errors into failures of the tool.

Every tool first tries to reach a broker, for at most ten seconds. After one second it prints why it has not reached one yet.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import click

from klamm.admin import AdminError, AsyncAdminClient, Described, Disconnected, Result, TimedOut
from klamm.cli.shell.logs import printable
from klamm.cli.tools.client_properties import API_TIMEOUT, call_times, client_settings, warn_of_unknown
from klamm.cli.tools.failures import NotReachable, ToolFailed
from klamm.protocol.errors import ErrorCode

CONNECT_MS = 10_000
"""How long a tool tries to reach a broker. A smaller default.api.timeout.ms in its properties file wins."""
PATIENCE_S = 1.0
"""After this time, a tool that has not reached a broker prints why."""
_TRANSIENT = {ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.LEADER_NOT_AVAILABLE}
T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")


@asynccontextmanager
async def connected_client(bootstrap_server: str, config: Path | None, client_id: str) -> AsyncIterator[AsyncAdminClient]:
    """A client that has reached a broker. Raises ToolFailed, NotReachable, and the errors of `client_settings`."""
    client = open_client(bootstrap_server, config, client_id)
    async with client:
        await reach(client, bootstrap_server, config)
        yield client


def open_client(bootstrap_server: str, config: Path | None, client_id: str) -> AsyncAdminClient:
    """A client with the settings of a properties file, not connected yet. Raises ToolFailed, and the errors of `client_settings`."""
    warn_of_unknown(config)
    try:
        return AsyncAdminClient(bootstrap_server, **{"client_id": client_id, **client_settings(config)})
    except (TypeError, ValueError) as problem:
        raise ToolFailed(str(problem)) from problem


async def reach(client: AsyncAdminClient, bootstrap_server: str, config: Path | None) -> None:
    """Wait until a broker responds. Raises ToolFailed, NotReachable."""
    limit_ms = min(CONNECT_MS, call_times(config).get(API_TIMEOUT, CONNECT_MS))
    errors: list[AdminError] = []
    warning = asyncio.get_running_loop().create_task(_warn(bootstrap_server, limit_ms, errors))
    try:
        await outcome(client.describe_cluster(timeout_ms=limit_ms, on_retry=errors.append))
    finally:
        warning.cancel()


async def _warn(bootstrap_server: str, limit_ms: int, errors: list[AdminError]) -> None:
    """Print why no broker has responded yet. `errors` has the errors of all attempts so far."""
    await asyncio.sleep(PATIENCE_S)
    cause = errors[-1].message if errors else f"{bootstrap_server} has not responded"
    click.echo(printable(f"no broker is reachable yet ({cause}); trying for up to {limit_ms / 1000:g} s"), err=True)


async def outcome(call: Awaitable[T], needs: str = "") -> T:
    """The outcome of a call. Raises ToolFailed, or NotReachable if a later call may succeed. `needs` is the operation on the cluster that
    is needed; the text of the broker does not name it.
    """
    try:
        return await call
    except AdminError as error:
        raise failure_of(error, needs=needs) from error


def all_found(described: Described[K, V]) -> dict[K, V]:
    """All descriptions. Raises ToolFailed or NotReachable with the first key that failed and the reason."""
    for key, error in described.errors.items():
        raise failure_of(error, f"{key}: ") from error
    return described.found


def all_done(result: Result[K]) -> None:
    """Return if every key succeeded. Raises ToolFailed or NotReachable with the first key that failed and the reason."""
    for key, error in result.errors().items():
        raise failure_of(error, f"{key}: ") from error


def failure_of(error: AdminError, what: str = "", needs: str = "") -> ToolFailed:
    """The failure to raise for an error, with `what` before its text; `needs` as in `outcome`."""
    may_succeed_later = isinstance(error, (Disconnected, TimedOut)) or error.code in _TRANSIENT
    refused = f" (it needs {needs} on the cluster)" if needs and error.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED else ""
    return (NotReachable if may_succeed_later else ToolFailed)(what + error_text(error) + refused)


def error_text(error: AdminError) -> str:
    """The code and message of an error; only the message if it has no code. After an unknown config it names a similar one."""
    from klamm.cli.shell.suggestions import with_config_suggestion

    return with_config_suggestion(str(error) if error.code is not None or error.message is None else error.message)
