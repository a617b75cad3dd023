"""The disk of one broker under the present faults: a `DiskDelays` for its logs (`broker/log/slow_disk.py`)."""

from __future__ import annotations

from collections.abc import Callable, Collection

from klamm.broker.log.slow_disk import DiskOperation
from klamm.protocol.nouns import TopicPartition
from klamm.seams.clock import Clock, Timer
from klamm.server.faults.fault import DiskFilter, DiskHit, Fault, Faults


class BrokerDisk:
    """Delays operations of one broker's logs as long as the faults say. It ends a delay when its faults are removed."""

    def __init__(self, faults: Faults, broker_id: int, clock: Clock) -> None:
        self.is_active = False
        self._faults = faults
        self._broker_id = broker_id
        self._clock = clock
        self._present: list[tuple[Fault, DiskFilter]] = []
        self._delays: set[_Delay] = set()
        faults.tell(self._changed)
        self._changed()

    def begin(
        self, operations: Collection[DiskOperation], partition: TopicPartition, directory: str | None, over: Callable[[], None]
    ) -> _Delay | None:
        """See `DiskDelays`. Each fault that is about one of the operations is hit once; their times add up."""
        struck = []
        for fault, wanted in self._present:
            operation = next((each for each in operations if wanted.matches(each, partition, directory)), None)
            if operation is not None and fault.takes(DiskHit(self._clock.now_ms(), self._broker_id, operation, *partition)):
                struck.append(fault)
        if not struck:
            return None
        delay = _Delay(self._delays, struck, over)
        delay.timer = self._clock.call_later(sum(fault.effect.slow_disk_ms for fault in struck) / 1000, delay.end)
        return delay

    def slows_reads(self, partition: TopicPartition, directory: str | None) -> bool:
        """See `DiskDelays`."""
        return any(fault.acts and wanted.matches("read", partition, directory) for fault, wanted in self._present)

    def _changed(self) -> None:
        self._present = [
            (fault, fault.filter)
            for fault in self._faults.of_disks
            if isinstance(fault.filter, DiskFilter) and fault.filter.broker in (None, self._broker_id)
        ]
        self.is_active = bool(self._present)
        present = {fault for fault, _ in self._present}
        for delay in list(self._delays):
            if present.isdisjoint(delay.faults):
                delay.end()


class _Delay:
    """Operations that wait for some faults."""

    def __init__(self, present: set[_Delay], faults: list[Fault], over: Callable[[], None]) -> None:
        self.faults = faults
        self.timer: Timer | None = None
        self._present = present
        self._over = over
        present.add(self)

    def end(self) -> None:
        """They have waited."""
        if self in self._present:
            self.cancel()
            self._over()

    def cancel(self) -> None:
        """Nobody waits any more."""
        self._present.discard(self)
        if self.timer is not None:
            self.timer.cancel()
