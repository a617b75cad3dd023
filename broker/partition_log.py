"""The interface between the replica manager and the log manager."""

from __future__ import annotations

from typing import Protocol

from klamm.broker.log.log import Log


class Logs(Protocol):
    """All logs of a broker (`broker/log/manager.py`)."""

    on_disk: bool

    def get(self, topic: str, partition: int) -> Log | None:
        """The log if it is open, else None."""

    async def open(self, topic: str, partition: int, topic_id: bytes, is_new: bool) -> Log:
        """Open the log; creates it if there is none. Raises ApiError: KAFKA_STORAGE_ERROR."""

    def delete(self, topic: str, partition: int) -> None:
        """Delete a log with its records."""
