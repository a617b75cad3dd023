"""One term of office: what every procedure of an active controller works with.

A term begins with an election and ends with resignation; nothing of it outlives it. `phase` is the seam at which a test (or a
user who steers) may hold, step or crash the controller: procedures await it by name at each boundary.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from klamm.controller.batch import Channels, RequestSender
from klamm.controller.cluster import Cluster, Partition
from klamm.controller.options import ControllerOptions
from klamm.controller.store import Store

Phase = Callable[[str], Awaitable[None]]


ELECTION = "election"
"""The one phase outside of a term: this broker is about to try to become controller."""


async def no_phase(name: str) -> None:
    """Nobody holds the controller."""


@dataclass(slots=True)
class Term:
    """State and partners of an active controller."""

    broker_id: int
    cluster: Cluster
    store: Store
    channels: Channels
    sender: RequestSender
    options: ControllerOptions
    put: Callable[[Any], None]
    new_topic_id: Callable[[], bytes]
    finalized_features: Callable[[], Mapping[str, int]] = dict
    """Version level by name, as this broker has last seen them in `/feature`."""
    phase: Phase = no_phase
    written: set[Partition] = field(default_factory=set)
    """Partitions whose state this very event has written or read: their cached state needs no second look."""

    def options_changed(self, options: ControllerOptions) -> None:
        """Decide by these from now on."""
        self.options = options
        self.sender.options_changed(options)

    def send_metadata(self, broker_ids: list[int] | None = None) -> None:
        """UpdateMetadata without partitions, to these brokers or to all registered ones."""
        with self.sender.batch() as batch:
            if broker_ids is None:
                batch.tell_all(())
            else:
                batch.tell(broker_ids, ())
