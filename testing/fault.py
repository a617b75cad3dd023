"""A fault of a cluster for tests."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from klamm.server.faults.fault import DiskHit, Hit
from klamm.testing.steered_cluster import SeenFault, Steered
from klamm.testing.transcript import fault_text
from klamm.testing.waits import TIMEOUT_S, Watched, until

__tracebackhide__ = True  # pytest leaves out the lines of this module


class Fault:
    """A fault. `with` removes it at the end; its counts stay."""

    def __init__(self, watched: Watched, cluster: Steered, number: int, *, may_miss: bool = False, is_state: bool = False) -> None:
        self._may_miss = may_miss
        self._is_state = is_state
        self._watched = watched
        self._cluster = cluster
        self._seen = SeenFault(cluster, number)

    @property
    def may_miss(self) -> bool:
        """Whether it is right that it hits nothing."""
        return self._may_miss

    @property
    def is_state(self) -> bool:
        """Whether it is how a link or a disk is for some time, whether a request meets that or not."""
        return self._is_state

    @property
    def number(self) -> int:
        """1, 2, … in the order in which the faults of a cluster were made."""
        return self._seen.number

    @property
    def hits(self) -> int:
        """How many requests it hit."""
        return self._seen.look().hits

    @property
    def matches(self) -> int:
        """How many requests it was about while it could hit them."""
        return int(self._seen.look().as_json()["matches"])

    @property
    def last(self) -> list[Hit | DiskHit]:
        """The last 100 requests that it hit; of a slow disk the last 100 operations of logs."""
        return self._seen.last

    @property
    def text(self) -> str:
        """What it is about, what it does, and its counts, in one line."""
        shown = self._seen.look().as_json()
        what = "operations" if "slow_disk_ms" in shown["effect"] else "requests"
        return f"fault {self.number}: {fault_text(shown)}: {shown['hits']} hits of {shown['matches']} matching {what}"

    async def wait(self, hits: int = 1, *, timeout_s: float = TIMEOUT_S) -> None:
        """Wait until it has hit this number of requests. Raises WaitTimedOut."""
        await until(self._watched, lambda: self.hits >= hits, f"{hits} hits of {self.text}", timeout_s)

    def remove(self) -> None:
        """End it. Does nothing if it is removed."""
        if not self._seen.is_removed:
            self._cluster.now(self._cluster.control.delete_fault(self.number))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.remove()

    def __repr__(self) -> str:
        return f"<{self.text}>"


def missed(fault: Any) -> str | None:
    """What is to be said of a fault that hit nothing; None if all is well. Links and disks have states, which need not meet a request."""
    return None if fault.hits or fault.may_miss or fault.is_state else f"{fault.text}: it never hit (may_miss=True allows that)"
