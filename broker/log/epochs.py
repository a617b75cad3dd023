"""The leader epochs of a log, each with its start offset.

Each leader notes its epoch with the log end offset at which it began; followers note the epochs of the batches that they receive. By
comparing the end offsets of epochs a follower finds where two logs begin to differ. Epochs and start offsets both increase; a new entry
removes the last entries if they contradict it. Source: `LeaderEpochFileCache` of Apache Kafka 3.9.1.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from klamm.broker.log.storage import EpochEntry
from klamm.protocol.nouns import NO_EPOCH

NO_OFFSET = -1


class LeaderEpochs:
    """The epochs of one log, the oldest first. Methods that change them return whether anything has changed."""

    __slots__ = ("_entries",)

    def __init__(self, entries: Iterable[EpochEntry] = ()) -> None:
        self._entries: list[EpochEntry] = []
        for entry in entries:
            self.assign(entry.epoch, entry.start_offset)

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        return tuple(self._entries)

    @property
    def latest(self) -> int:
        """The latest epoch, -1 if there is none."""
        return self._entries[-1][0] if self._entries else NO_EPOCH

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Note that an epoch began at this offset. Does nothing if it is already the latest epoch and did not begin later."""
        entries = self._entries
        if entries and entries[-1][0] == epoch and start_offset >= entries[-1][1]:
            return False
        while entries and (entries[-1][0] >= epoch or entries[-1][1] >= start_offset):
            entries.pop()
        entries.append(EpochEntry(epoch, start_offset))
        return True

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """(largest epoch not above this one, its end offset); (-1, -1) for -1 and for epochs that this log does not know yet.

        For an epoch before the first one: (this epoch, start offset of the first one).
        """
        entries = self._entries
        if epoch == NO_EPOCH or not entries:
            return NO_EPOCH, NO_OFFSET
        if epoch == entries[-1][0]:
            return epoch, log_end_offset
        following = bisect_right(entries, epoch, key=_epoch_of)
        if following == len(entries):
            return NO_EPOCH, NO_OFFSET
        end_offset = entries[following][1]
        return (epoch if following == 0 else entries[following - 1][0]), end_offset

    def truncate_from(self, offset: int) -> bool:
        """Remove the epochs that began at this offset or later."""
        entries = self._entries
        before = len(entries)
        while entries and entries[-1][1] >= offset:
            entries.pop()
        return len(entries) != before

    def truncate_to(self, offset: int) -> bool:
        """The log now begins at this offset: remove older epochs. The epoch that contains the offset begins there."""
        entries = self._entries
        passed = bisect_right(entries, offset, key=_start_of)
        if passed == 0 or (passed == 1 and entries[0][1] == offset):
            return False
        entries[:passed] = [EpochEntry(entries[passed - 1][0], offset)]
        return True

    def clear(self) -> bool:
        """Remove all epochs."""
        had = bool(self._entries)
        self._entries.clear()
        return had


def _epoch_of(entry: EpochEntry) -> int:
    return entry[0]


def _start_of(entry: EpochEntry) -> int:
    return entry[1]
