"""The error code that a client gets if a handler raises an exception.

A request that fails because the ZooKeeper session ended is not a fault: a client that sends it again finds another controller.
Neither is a response with a string that is too long: the request had such a name, and the text of its error repeats it. Apache Kafka cannot
encode the response either, and refuses the whole request with UNKNOWN_SERVER_ERROR.
"""

from __future__ import annotations

from klamm.controller.values import ControllerMoved, StoreLost, StoreRefused
from klamm.protocol.errors import ErrorCode, StringTooLong


def code_of(problem: Exception) -> ErrorCode | None:
    """The code for a problem with ZooKeeper or with a name that is too long; None for any other exception, which is a fault of this
    program.
    """
    match problem:
        case StoreLost() | ControllerMoved():
            return ErrorCode.NOT_CONTROLLER
        case StoreRefused() | StringTooLong():
            return ErrorCode.UNKNOWN_SERVER_ERROR
        case _:
            return None
