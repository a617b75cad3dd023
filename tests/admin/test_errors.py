"""Errors are those of kafka-python where a program uses it, and kafka-python is not imported where it does not."""

from __future__ import annotations

import subprocess
import sys

import kafka.errors
import pytest

from klamm.admin import AdminError, BadResponse, Closed, Disconnected, NotAuthenticated, TimedOut, Unsupported
from klamm.admin.calls.errors import error_of
from klamm.admin.network.pool import _reason
from klamm.protocol.errors import ErrorCode

PAIRS = [
    (TimedOut, kafka.errors.KafkaTimeoutError), (Disconnected, kafka.errors.KafkaConnectionError),
    (BadResponse, kafka.errors.KafkaProtocolError), (Unsupported, kafka.errors.UnsupportedVersionError),
    (NotAuthenticated, kafka.errors.SaslAuthenticationFailedError), (Closed, kafka.errors.IllegalStateError),
    (AdminError, kafka.errors.KafkaError),
]


@pytest.mark.parametrize(("ours", "theirs"), PAIRS, ids=lambda each: each.__name__)
def test_an_error_is_that_of_kafka_python(ours: type[AdminError], theirs: type[Exception]) -> None:
    error = ours("a reason")
    assert isinstance(error, ours) and isinstance(error, theirs) and isinstance(error, kafka.errors.KafkaError)
    assert (type(error).__name__, error.message, error.args) == (ours.__name__, "a reason", ("a reason",))
    assert len({error, ours("a reason")}) == 2


def test_an_error_code_has_the_exception_of_kafka_python() -> None:
    for code in ErrorCode:
        if code:
            error = error_of(code, "text")
            assert error is not None and error.code is code and str(error) == f"{code.name}: text"
            theirs = kafka.errors.for_code(int(code))
            assert isinstance(error, theirs) or theirs.__name__ == "UnrecognizedBrokerError", code


def test_an_unknown_code_is_kept() -> None:
    error = error_of(3000)
    assert isinstance(error, kafka.errors.UnknownError)
    assert (error.errno, error.code) == (3000, ErrorCode.UNKNOWN_SERVER_ERROR)


ALONE = """
import sys
from klamm.admin import AdminClient, AdminError, TimedOut
from klamm.admin.calls.errors import error_of
try:
    AdminClient("127.0.0.1:1").describe_cluster(timeout_ms=100)
except TimedOut as error:
    assert "refused" in str(error), error
error = error_of(41, "text")
print(type(error).__name__, error, error.errno, isinstance(error, AdminError), "kafka" in sys.modules)
"""


def test_kafka_python_is_not_imported_by_a_program_that_does_not_use_it() -> None:
    done = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("NotControllerError NOT_CONTROLLER: text 41 True False\n", "")


def test_a_connection_error_without_a_text_says_something() -> None:
    """asyncio raises one when a listener without TLS closes a connection amid the handshake."""
    assert "the listener has another security protocol" in _reason(ConnectionResetError())
    assert _reason(ConnectionResetError("gone")) == "gone"
