"""What the replica manager needs of the log of a partition and of the owner of logs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


class PartitionLog(Protocol):
    """The log of one replica (`broker/log/log.py`)."""

    config: Any
    epochs: Any
    on_written: Callable[[], None]
    on_failed: Callable[[OSError], None]

    @property
    def log_start_offset(self) -> int:
        """The first offset that can be read."""

    @property
    def next_offset(self) -> int:
        """The offset of the next record."""

    @property
    def log_end_offset(self) -> int:
        """The offset after the last record that can be read."""

    @property
    def high_watermark(self) -> int:
        """The offset up to which records are replicated."""

    @property
    def last_stable_offset(self) -> int:
        """The offset of the first record of an open transaction, or the high watermark."""

    def append_as_leader(self, records: Any, leader_epoch: int, version: int, origin: Any, now_ms: int) -> Any:
        """Append what a producer sent."""

    def set_high_watermark(self, offset: int) -> bool:
        """Move the high watermark; whether it moved."""


class Logs(Protocol):
    """The owner of all logs of a broker (`broker/log/manager.py`)."""

    on_disk: bool

    def get(self, topic: str, partition: int) -> PartitionLog | None:
        """The log if it is open."""

    async def open(self, topic: str, partition: int, topic_id: bytes, is_new: bool) -> PartitionLog:
        """The log, made if there is none. Raises ApiError, KAFKA_STORAGE_ERROR."""

    def delete(self, topic: str, partition: int) -> None:
        """Delete a log with its records."""
