"""A log whose disk may be slow. Only a broker that somebody steers has such logs; `Log` and its storage know nothing of it.

A log on disk has a `SlowStorage` around its storage. A log in memory has no storage: the end of its appends is seen when they have waited.
"""

from __future__ import annotations

from collections.abc import Awaitable

from klamm.broker.log.config import LogConfig
from klamm.broker.log.local_log import FileRead, LogEnvironment
from klamm.broker.log.log import Log
from klamm.broker.log.slow_disk import APPEND, DiskDelays, LateRuns, SlowStorage, wait_to_read
from klamm.broker.log.storage import LoadedLog, Storage
from klamm.protocol.nouns import TopicPartition
from klamm.protocol.records.batch import BatchHeader


class SlowLog(Log):
    """A log with the `delays` of its environment."""

    __slots__ = ("_late", "_slow")

    def __init__(
        self, topic: str, partition: int, topic_id: bytes, config: LogConfig, environment: LogEnvironment,
        storage: Storage | None = None, loaded: LoadedLog | None = None,
    ) -> None:
        self._late: LateRuns[int] | None = None
        """Ends of appends to a log in memory that wait."""
        self._slow: SlowStorage | None = None
        if storage is not None and environment.delays is not None:
            storage = self._slow = SlowStorage(storage, environment.delays, TopicPartition(topic, partition))
        super().__init__(topic, partition, topic_id, config, environment, storage, loaded)

    @property
    def _delays(self) -> DiskDelays | None:
        """What delays operations at the moment, if anything does."""
        delays = self.environment.delays
        return delays if delays is not None and delays.is_active else None

    def _append(self, data: bytes, headers: list[BatchHeader], max_timestamp: int, offset_of_max: int, now_ms: int) -> None:
        end = self.log_end_offset
        super()._append(data, headers, max_timestamp, offset_of_max, now_ms)
        if self.storage is None and self._is_late():
            self.log_end_offset = end

    def _is_late(self) -> bool:
        """Whether the last append to this log in memory is seen later."""
        if self._late is None:
            if self._delays is None:
                return False
            self._late = LateRuns(
                lambda ends, over: None if (delays := self._delays) is None else delays.begin(APPEND, self._key, None, over),
                lambda ends: self.written(ends[-1]),
            )
        return (self._delays is not None or bool(self._late.waiting)) and self._late.takes(self.next_offset)

    def read(self, offset: int, max_bytes: int, end_offset: int, min_one: bool) -> bytes | FileRead:
        """As `Log.read`; what is in memory has to wait too."""
        data = super().read(offset, max_bytes, end_offset, min_one)
        if not data or isinstance(data, FileRead) or (delays := self._delays) is None or not delays.slows_reads(self._key, self._directory):
            return data
        segment = self.segments[self._segment_index(offset)]
        return FileRead(self, (offset, max_bytes, end_offset, min_one), segment, min(end_offset, self.log_end_offset))

    async def load(self, offset: int, max_bytes: int, end_offset: int, min_one: bool) -> bytes:
        """As `Log.load`, when the read has waited."""
        if (delays := self._delays) is not None:
            await wait_to_read(delays, self._key, self._directory)
        return await super().load(offset, max_bytes, end_offset, min_one)

    def _was_cut(self, offset: int) -> None:
        super()._was_cut(offset)
        if self._late is not None:
            self._late.change(lambda end: min(end, offset))

    def close_files(self) -> Awaitable[None] | None:
        """As `Log.close_files`; the last command waits like others."""
        super().close_files()
        return None if self._slow is None else self._slow.drain()

    def close(self) -> None:
        """As `Log.close`. The log is deleted, or its broker has ended: what waits does not happen."""
        self._drop()
        super().close()

    def handed_over(self, log_start_offset: int, high_watermark: int) -> Log:
        """As `Log.handed_over`. What waits does not happen."""
        self._drop()
        return super().handed_over(log_start_offset, high_watermark)

    def _drop(self) -> None:
        if self._slow is not None:
            self._slow.drop()
        if self._late is not None:
            self._late.drop()
