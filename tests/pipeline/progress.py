"""The lines that the pipeline writes to stderr every few seconds where that is no terminal."""

from __future__ import annotations

import re

_LINES = re.compile(r"^[a-z]+:(?: \d+ of \d+ \(\d+ %\),)? \d+ s\n", re.MULTILINE)


def without_progress(stderr: str) -> str:
    """What else a command said."""
    return _LINES.sub("", stderr)
