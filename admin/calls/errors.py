"""The errors of the admin client.

Every error is an `AdminError`. In a program that imports kafka-python it is also the exception of kafka-python for this error code or
cause, so handlers for kafka-python's admin client work unchanged: `except kafka.errors.NotControllerError`. Klamm does not import
kafka-python for this, because that takes longer than a call. `code` is the error code of a response, or None if the error does not come
from a broker. An invalid argument raises ValueError or TypeError instead, before anything is sent.
"""

from __future__ import annotations

import sys
from functools import cache, lru_cache
from types import ModuleType
from typing import Any, ClassVar, Self, cast

from klamm.protocol.errors import ErrorCode


class AdminError(Exception):
    """One failed call, or one failed partition, broker or config of a call.

    `code` is the error code of the response, None if the error occurred in the client. `message` is the text, None if the broker sent none.
    """

    code: ErrorCode | None = None
    of_kafka_python: ClassVar[str] = "KafkaError"
    """The name of kafka-python's exception."""

    def __new__(cls, *_arguments: Any) -> Self:
        theirs = _exception_of_kafka_python(cls)
        kind: Any = cls if theirs is None or issubclass(cls, theirs) else _joined(cast(Any, cls), cast(Any, theirs))
        return cast(Self, Exception.__new__(kind))

    def __init__(self, message: str | None = None) -> None:
        super().__init__(*(() if message is None else (message,)))
        self.message = message

    def __str__(self) -> str:
        name = type(self).__name__ if self.code is None else self.code.name
        return name if not self.message else f"{name}: {self.message}"

    def __hash__(self) -> int:  # kafka-python defines equality by value, which would remove the hash
        return id(self)


class TimedOut(AdminError):
    """The call did not end by its deadline. A request that was sent may still take effect."""

    of_kafka_python = "KafkaTimeoutError"


class Disconnected(AdminError):
    """A broker cannot be reached, or the connection was lost before the response."""

    of_kafka_python = "KafkaConnectionError"


class BadResponse(AdminError):
    """A broker sent bytes that are not a response to the request."""

    of_kafka_python = "KafkaProtocolError"


class Unsupported(AdminError):
    """The broker does not support the API, or no version that this client can use. No other API is tried instead."""

    of_kafka_python = "UnsupportedVersionError"
    code = ErrorCode.UNSUPPORTED_VERSION


class NotAuthenticated(AdminError):
    """The broker refused the credentials or the SASL mechanism, or the TLS handshake failed. The client does not retry."""

    of_kafka_python = "SaslAuthenticationFailedError"
    code: ErrorCode | None = ErrorCode.SASL_AUTHENTICATION_FAILED


class HandshakeFailed(NotAuthenticated):
    """The TLS handshake failed. No broker sent this error, so it has no code."""

    code = None


class Closed(AdminError):
    """The client was closed before or during the call."""

    of_kafka_python = "IllegalStateError"


def error_of(code: int, message: str | None = None) -> AdminError | None:
    """The error for a code of a response, with the broker's text; None for NONE. An unknown code is kept in `errno`."""
    return None if code == 0 else _class_of(code)(message)


def response_error(code: ErrorCode, message: str | None = None) -> AdminError:
    """The error for a code other than NONE."""
    return _class_of(code)(message)


@cache
def _class_of(code: int) -> type[AdminError]:
    try:
        name = ErrorCode(code)
    except ValueError:
        name = ErrorCode.UNKNOWN_SERVER_ERROR
    return type("".join(word.title() for word in name.name.removesuffix("_ERROR").split("_")) + "Error", (AdminError,), {
        "code": name, "errno": code, "__doc__": f"A broker's response has the error {name.name}.", "__module__": __name__,
    })


def _exception_of_kafka_python(kind: type[AdminError]) -> type[Exception] | None:
    """The matching exception class of kafka-python; None if kafka-python is not imported, or does not have it."""
    module: ModuleType | None = sys.modules.get("kafka.errors")
    code = getattr(kind, "errno", None)
    for_code = getattr(module, "for_code", None)
    found = getattr(module, kind.of_kafka_python, None) if code is None or for_code is None else for_code(code)
    return found if isinstance(found, type) and issubclass(found, Exception) else None


@lru_cache(256)
def _joined(kind: type[AdminError], theirs: type[Exception]) -> type[AdminError]:
    """The error as an exception of kafka-python too, under the same name."""
    name = theirs.__name__ if hasattr(kind, "errno") else kind.__name__
    return type(name, (kind, theirs), {"__doc__": kind.__doc__, "__module__": __name__})
