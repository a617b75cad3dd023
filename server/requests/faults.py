"""The error code that a client gets if a handler raises an exception.

A request that fails because the ZooKeeper session ended is not a fault: a client that sends it again finds another controller.
"""

from __future__ import annotations

from klamm.controller.values import ControllerMoved, StoreLost, StoreRefused
from klamm.protocol.errors import ErrorCode


def code_of(problem: Exception) -> ErrorCode | None:
    """The code for a problem with ZooKeeper; None for any other exception, which is a fault of this program."""
    match problem:
        case StoreLost() | ControllerMoved():
            return ErrorCode.NOT_CONTROLLER
        case StoreRefused():
            return ErrorCode.UNKNOWN_SERVER_ERROR
        case _:
            return None
