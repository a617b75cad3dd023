"""A section of cases for clients: the cluster of a case is prepared before it, and a fault that no request met leaves it undecided."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from klamm.conform.case import Absent, Case, Level, Section, expect
from klamm.conform.clients.client_lab import ClientLab

Steer = Callable[[ClientLab], Awaitable[None]]


@dataclass
class ClientSection(Section):
    """The cases of one section. `shape` are arguments of `klamm.testing.Cluster` for a case with a cluster of its own."""

    def client(self, level: Level, index: int, sentence: str, source: str, **shape: Any) -> Callable[[Steer], Steer]:
        """Register a case."""

        def add(steer: Steer) -> Steer:
            async def run(lab: ClientLab) -> None:
                await steer(lab)
                expect(lab.requests(), "the client sent no request")
                for fault in lab.cluster.faults:
                    if not fault.hits and not fault.may_miss:
                        raise Absent(f"the client sent nothing that this case is about ({fault.text})")

            self.cases.append(Case(self.name, self.number, str(index), level, sentence, source, run, shape=shape))
            return steer

        return add
