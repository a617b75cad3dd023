"""The metadata log of one term: what the controller knows to be committed in ZooKeeper, as records (controller 25.1, RREG-18).

It begins with everything that the fail-over loaded; then each committed change is a batch. The log is as large as its bound: then a
snapshot of everything is appended, and all before it is dropped. A reader that has got that far is not disturbed, because the records of
the snapshot replace what it has by the same.
"""

from __future__ import annotations

from klamm.controller.log_batches import LogBatches
from klamm.protocol.clock import SYSTEM_CLOCK, Clock

DEFAULT_MAX_BYTES = 64 << 20


class MetadataLog:
    """One per term; there is none where RegisterBroker is off. Only the controller's task appends."""

    def __init__(self, controller_epoch: int, clock: Clock = SYSTEM_CLOCK, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        self.controller_epoch = controller_epoch
        self.has_begun = False
        """Whether the fail-over has loaded everything. Before, the log is empty and must not be served: its end says nothing."""
        self._batches = LogBatches(controller_epoch)
        self._clock = clock
        self._max_bytes = max_bytes
        self.read = self._batches.read
        self.on_append = self._batches.on_append

    @property
    def start_offset(self) -> int:
        """The first offset that can be read."""
        return self._batches.start_offset

    @property
    def high_watermark(self) -> int:
        """The offset of the next record: everything that is there can be read."""
        return self._batches.next_offset

    def began(self) -> None:
        """The fail-over has loaded brokers, registrations, topics, states and configs: they are the start of the log."""
        self.has_begun = True

    def shutdown_began(self, broker_id: int) -> None:
        """A broker that is registered in `/brokers/ids` requested a controlled shutdown."""
