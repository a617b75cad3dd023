"""Whole numbers in texts that strangers send: paths, query parameters, names of APIs and errors by their numbers."""

from __future__ import annotations

import re

_NUMBER = re.compile("-?[0-9]{1,18}")


def is_number(text: str) -> bool:
    """Whether `int` takes a text as a number that fits into 64 bits. Digits are ASCII."""
    return _NUMBER.fullmatch(text) is not None
