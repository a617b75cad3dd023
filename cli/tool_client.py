"""The client of a tool that goes by `--bootstrap-server`: how it is opened, and its errors as failures of the tool."""

from __future__ import annotations

from collections.abc import Awaitable
from pathlib import Path
from typing import TypeVar

from klamm.admin import AdminError, AsyncAdminClient, Disconnected, TimedOut
from klamm.cli.client_properties import client_settings
from klamm.cli.tool_failures import NotReachable, ToolFailed
from klamm.protocol.errors import ErrorCode

CONNECT_MS = 10_000
_TRANSIENT = {ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.LEADER_NOT_AVAILABLE}
T = TypeVar("T")


def open_client(bootstrap_server: str, config: Path | None, client_id: str) -> AsyncAdminClient:
    """A client with the settings of a properties file; nothing is connected yet. Raises ToolFailed, and what a bad file raises."""
    try:
        return AsyncAdminClient(bootstrap_server, **{"client_id": client_id, **client_settings(config)})
    except (TypeError, ValueError) as problem:
        raise ToolFailed(str(problem)) from problem


async def outcome(call: Awaitable[T]) -> T:
    """The outcome of a call. Raises ToolFailed, NotReachable for what may succeed later."""
    try:
        return await call
    except AdminError as error:
        raise failure_of(error) from error


def failure_of(error: AdminError, what: str = "") -> ToolFailed:
    """The failure to raise for an error; `what` goes before its text."""
    may_succeed_later = isinstance(error, (Disconnected, TimedOut)) or error.code in _TRANSIENT
    return (NotReachable if may_succeed_later else ToolFailed)(what + error_text(error))


def error_text(error: AdminError) -> str:
    """The code and the message of a response; of an error without a code the message."""
    return str(error) if error.code is not None or error.message is None else error.message
