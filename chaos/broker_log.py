"""What brokers logged that must not be: an exception that nobody expected has its traceback there."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

TRACEBACK = "Traceback (most recent call last):"
MAX = 10
_RECORD = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")


def exceptions(log: Path) -> list[str]:
    """The log line and the exception of each traceback, the first ten."""
    if not log.exists():
        return []
    with log.open(encoding="utf-8", errors="replace") as lines:
        return list(islice(tracebacks(lines), MAX))


def tracebacks(lines: Iterable[str]) -> Iterator[str]:
    """The same, of lines. A record begins with its time; lines that belong to it follow."""
    record, last, inside = "", "", False
    for line in lines:
        text = line.rstrip()
        if _RECORD.match(text):
            if inside:
                yield f"{record}: {last}"
            record, inside = text, False
        elif text.strip() == TRACEBACK:
            inside = True
        elif text and inside:
            last = text.strip()
    if inside:
        yield f"{record}: {last}"
