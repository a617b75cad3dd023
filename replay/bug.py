"""A bug that can be replayed: one row of the table, with the function that steers the cluster."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from klamm.conform.case import Case, Level
from klamm.conform.clients.client_lab import ClientLab
from klamm.seams.value_class import dataclass

Steer = Callable[[ClientLab], Awaitable[None]]
"""Does everything that happens to the client, and starts it. Each topic, group and client is the lab's; see `ClientLab`."""


@dataclass(frozen=True, slots=True)
class Bug:
    """One bug."""

    name: str
    links: tuple[str, ...]
    """`OWNER/REPOSITORY#NUMBER` of the issues or pull requests that describe it."""
    client: str
    """A name of `CLIENTS` in `releases.py`."""
    broken: str
    """The release that has the bug."""
    mended: str | None
    """A later release that does not; None if there is none."""
    rule: str
    """The conformance rule that sees it."""
    symptom: str
    done: str
    """What the scenario does, in one sentence."""
    steer: Steer
    shape: dict[str, Any]
    """Arguments of `klamm.testing.Cluster`."""
    response_fault: dict[str, Any] | None = None
    """Of a bug of a server: the fault of a response that has the bug. Both releases are the same then; the second one meets no fault."""

    def case(self, lake: str) -> Case:
        """As the lab takes it, with a cluster that keeps its journal in this folder."""
        shape = self.shape | {"config": self.shape.get("config", {}) | {"klamm.journal.dir": lake}}
        return Case("replay", 1, self.name, Level.MUST, self.symptom, self.links[0], self.steer, shape=shape)
