"""A client of a run: it works in a thread of its own until it is told to end."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import Self


class ClientThread(ABC):
    """`_work` runs in a thread from `start` on, and ends soon after `_stopped` is set."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)

    def start(self) -> Self:
        """Begin to work."""
        self._thread.start()
        return self

    def ends(self, within_s: float) -> bool:
        """Tell it to end, and wait for that. Returns whether it has ended: a call of librdkafka may hang."""
        self._stopped.set()
        self._thread.join(within_s)
        return not self.works

    @property
    def works(self) -> bool:
        """Whether it has begun and not ended."""
        return self._thread.is_alive()

    @abstractmethod
    def _work(self) -> None:
        """Everything the client does."""
