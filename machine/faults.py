"""A fault that must not end what goes on for long: a loop, a timer, a listener."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def contained(log: logging.Logger, what: str) -> Iterator[None]:
    """Log an exception of the body as a fault, with its traceback; then go on behind it. `what` is the work that has failed."""
    try:
        yield
    except Exception:
        log.exception("%s raised an exception; the work continues", what)
