"""A request of the control API that cannot be done, and what texts of strangers are checked by."""

from __future__ import annotations

import re

_NUMBER = re.compile("-?[0-9]{1,18}")


class Refused(ValueError):
    """What is wrong with a request, in one line. `status` is that of HTTP."""

    def __init__(self, text: str, status: int = 400) -> None:
        super().__init__(text)
        self.status = status


def is_number(text: str) -> bool:
    """Whether `int` takes a text as a number that fits into 64 bits. Digits are ASCII."""
    return _NUMBER.fullmatch(text) is not None
