"""A request of the control API that cannot be done."""

from __future__ import annotations


class Refused(ValueError):
    """What is wrong with a request, in one line. `status` is that of HTTP."""

    def __init__(self, text: str, status: int = 400) -> None:
        super().__init__(text)
        self.status = status
