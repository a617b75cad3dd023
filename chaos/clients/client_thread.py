"""A client of a run: it works in a thread of its own until it is told to end."""

from __future__ import annotations

import os
import sys
import threading
from abc import ABC, abstractmethod
from typing import Self

NICE = 10
"""The cluster comes first: an idempotent producer of librdkafka uses a whole CPU while a broker does not respond."""


class ClientThread(ABC):
    """`_work` runs in a thread from `start` on, and ends soon after `_stopped` is set."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._work_behind, name=name, daemon=True)

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

    def _work_behind(self) -> None:
        """Work at a lower priority, as the threads that librdkafka starts for it then do too."""
        if sys.platform == "linux":  # elsewhere the priority of a single thread is nothing that Python can set
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
        self._work()
