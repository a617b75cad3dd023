"""Errors of kafka-python's producer and consumer as errors of this package."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kafka.errors import KafkaError, KafkaTimeoutError

from klamm.admin.calls.errors import AdminError, Disconnected, TimedOut, error_of


@contextmanager
def as_admin_errors() -> Iterator[None]:
    """A context that raises AdminError in place of an error of kafka-python."""
    try:
        yield
    except AdminError:
        raise
    except KafkaTimeoutError as error:
        raise TimedOut(str(error)) from error
    except KafkaError as error:
        code = getattr(error, "errno", None)
        text = error.args[0] if error.args and isinstance(error.args[0], str) else None
        raise (error_of(code, text) if isinstance(code, int) and code > 0 else None) or Disconnected(str(error)) from error
