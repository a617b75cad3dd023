"""The errors of the admin client.

Every error is an `AdminError`, and also the exception of kafka-python for this error code or cause. So handlers for kafka-python's admin
client work unchanged: `except kafka.errors.NotControllerError`. `code` is the error code of a response, or None if the error does not come
from a broker. An invalid argument raises ValueError or TypeError instead, before anything is sent.
"""

from __future__ import annotations

from functools import cache

import kafka.errors

from klamm.protocol.errors import ErrorCode


class AdminError(kafka.errors.KafkaError):
    """One failed call, or one failed partition, broker or config of a call.

    `code` is the error code of the response, None if the error occurred in the client. `message` is the text, None if the broker sent none.
    """

    code: ErrorCode | None = None

    def __init__(self, message: str | None = None) -> None:
        super().__init__(*(() if message is None else (message,)))
        self.message = message

    def __str__(self) -> str:
        name = type(self).__name__ if self.code is None else self.code.name
        return name if not self.message else f"{name}: {self.message}"

    __hash__ = Exception.__hash__  # kafka-python defines equality by value, which would remove the hash


class TimedOut(AdminError, kafka.errors.KafkaTimeoutError):
    """The call did not end by its deadline. A request that was sent may still take effect."""


class Disconnected(AdminError, kafka.errors.KafkaConnectionError):
    """A broker cannot be reached, or the connection was lost before the response."""


class BadResponse(AdminError, kafka.errors.KafkaProtocolError):
    """A broker sent bytes that are not a response to the request."""


class Unsupported(AdminError, kafka.errors.UnsupportedVersionError):
    """The broker does not support the API, or no version that this client can use. No other API is tried instead."""

    code = ErrorCode.UNSUPPORTED_VERSION


class NotAuthenticated(AdminError, kafka.errors.SaslAuthenticationFailedError):
    """The broker refused the credentials or the SASL mechanism, or the TLS handshake failed. The client does not retry."""

    code = ErrorCode.SASL_AUTHENTICATION_FAILED


class Closed(AdminError, kafka.errors.IllegalStateError):
    """The client was closed before or during the call."""


def error_of(code: int, message: str | None = None) -> AdminError | None:
    """The error for a code of a response, with the broker's text; None for NONE. An unknown code is kept in `errno`."""
    return None if code == 0 else _class_of(code)(message)


def response_error(code: ErrorCode, message: str | None = None) -> AdminError:
    """The error for a code other than NONE."""
    return _class_of(code)(message)


@cache
def _class_of(code: int) -> type[AdminError]:
    theirs = kafka.errors.for_code(code)
    try:
        name = ErrorCode(code)
    except ValueError:
        name = ErrorCode.UNKNOWN_SERVER_ERROR
    return type(theirs.__name__, (AdminError, theirs), {"code": name, "__doc__": theirs.__doc__, "__module__": __name__})
