"""The log manager: all logs of one broker. It opens them at first use and does the periodic work, such as retention.

Configs of a topic are read from ZooKeeper when its first log is opened; topics whose logs are opened at the same time are read in one
request. After that `set_topic_config` and `defaults_changed` report changes. Topics with equal configs share one `LogConfig`.

Without directories logs are in memory; a `MemoryDirectory`, if there is one, keeps them while the broker is down. `run` is the background
work; it runs until it is cancelled.
Source: `LogManager` of Apache Kafka 3.9.1.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from klamm.broker.log.compaction import LogCleaner, UncleanableLog, Work, work_here
from klamm.broker.log.config import LogConfig, LogConfigs
from klamm.broker.log.local_log import LogEnvironment
from klamm.broker.log.log import Log
from klamm.broker.log.memory import MemoryBudget
from klamm.broker.log.memory_directory import MemoryDirectory
from klamm.broker.log.retention import delete_old_segments
from klamm.broker.log.storage import Directories, LoadRules
from klamm.configs.broker_config import BrokerConfig
from klamm.machine.faults import contained
from klamm.protocol.nouns import TopicPartition
from klamm.seams.clock import Clock

log = logging.getLogger(__name__)

ReadTopicConfigs = Callable[[Sequence[str]], Awaitable[Sequence[Mapping[str, str] | None]]]
"""Topics → their configs in the same order, None or {} for none. Raises ApiError if they cannot be read at the moment."""

if TYPE_CHECKING:
    from klamm.broker.log.slow_disk import DiskDelays

_AT_ONCE = 500
_LONGEST = 2**63 - 1


class LogManager:
    """The logs of one broker, by topic and partition."""

    def __init__(
        self, config: BrokerConfig, clock: Clock, budget: MemoryBudget, randrange: Callable[[int], int],
        read_topic_configs: ReadTopicConfigs, directories: Directories | None = None, work: Work = work_here,
        memory: MemoryDirectory | None = None, delays: DiskDelays | None = None,
    ) -> None:
        """`memory` keeps the logs in memory when they are closed. `delays` make their disk slow."""
        self.on_disk = directories is not None
        self.directories = directories
        self._memory = None if self.on_disk else memory
        self.environment = LogEnvironment(budget, clock.now_ms, randrange, delays=delays, producers_after_ms=self._producers_after_ms)
        self._kind = Log if delays is None else _slow_log()
        self._config = config
        self._clock = clock
        self._read_topic_configs = read_topic_configs
        self._configs = LogConfigs(config)
        self._cleaner = LogCleaner(lambda: list(self), config, clock, work)
        self._logs: dict[str, dict[int, Log]] = {}
        self._overrides: dict[str, Mapping[str, str]] = {}
        """Topic → its configs, for topics that have logs or whose logs are being opened."""
        self._wanted: dict[str, asyncio.Future[None]] = {}
        """Topics whose configs will be read by the next request."""
        self._reading: dict[str, asyncio.Future[None]] = {}
        self._reader: asyncio.Task[None] | None = None
        self._opening: dict[TopicPartition, asyncio.Task[Log]] = {}
        self._checkpointed: list[tuple[str, int, int, int]] = []

    # --- logs

    def get(self, topic: str, partition: int) -> Log | None:
        """The log, None if it is not open."""
        logs = self._logs.get(topic)
        return None if logs is None else logs.get(partition)

    def __iter__(self) -> Iterator[Log]:
        """All open logs. Do not open or delete logs during the iteration."""
        for logs in self._logs.values():
            yield from logs.values()

    def uncleanable(self) -> list[UncleanableLog]:
        """The logs that the cleaner does not clean, because it cannot read them."""
        return self._cleaner.uncleanable()

    async def open(self, topic: str, partition: int, topic_id: bytes, is_new: bool) -> Log:
        """Open the log; creates it if there is none. Raises ApiError: the configs cannot be read, or KAFKA_STORAGE_ERROR."""
        opened = self.get(topic, partition)
        if opened is not None:
            return opened
        key = TopicPartition(topic, partition)
        task = self._opening.get(key)
        if task is None:
            task = self._opening[key] = asyncio.get_running_loop().create_task(self._open(key, topic_id, is_new))
            task.add_done_callback(partial(self._opened, key))
        return await asyncio.shield(task)

    def _opened(self, key: TopicPartition, task: asyncio.Task[Log]) -> None:
        if self._opening.get(key) is task:
            del self._opening[key]
        if not task.cancelled():
            task.exception()  # perhaps nobody waits any more

    async def _open(self, key: TopicPartition, topic_id: bytes, is_new: bool) -> Log:
        topic, partition = key
        if topic not in self._overrides:
            await self._wait_for_config(topic)
        if self.directories is None:
            made = self._in_memory(topic, partition, topic_id)
        else:
            storage, loaded = await self.directories.open(topic, partition, topic_id, is_new)
            made = self._kind(topic, partition, topic_id, self._config_of(topic), self.environment, storage, loaded)
        self._logs.setdefault(topic, {})[partition] = made
        return made

    def _in_memory(self, topic: str, partition: int, topic_id: bytes) -> Log:
        """The log that this broker left at its last end, without producers that are idle for too long, otherwise a new one."""
        left = None if self._memory is None else self._memory.take(topic, partition)
        if left is None:
            return self._kind(topic, partition, topic_id, self._config_of(topic), self.environment)
        left.config, left.environment = self._config_of(topic), self.environment
        left.resume_reading_producers()
        self._expire_producers(left, self._clock.now_ms())
        return left

    def delete(self, topic: str, partition: int) -> None:
        """Delete a log with its records, whether it is open or not. With the last log of a topic its configs are forgotten."""
        opening = self._opening.pop(TopicPartition(topic, partition), None)
        if opening is not None:
            opening.cancel()
        logs = self._logs.get(topic, {})
        gone = logs.pop(partition, None)
        if gone is not None:
            gone.close()
        if not logs:
            self._logs.pop(topic, None)
            if not any(key.topic == topic for key in self._opening):
                self._overrides.pop(topic, None)
        if self.directories is not None:
            self.directories.delete(topic, partition)
        if self._memory is not None:
            self._memory.delete(topic, partition)

    # --- configs

    def set_topic_config(self, topic: str, overrides: Mapping[str, str]) -> None:
        """Apply the configs of a topic."""
        if topic in self._overrides or topic in self._wanted or topic in self._reading:
            self._overrides[topic] = dict(overrides)
            self._set(topic)

    def defaults_changed(self) -> None:
        """The configs of the broker have changed, and so the defaults of topics."""
        self._configs.defaults_changed()
        for topic in self._logs:
            self._set(topic)

    def _set(self, topic: str) -> None:
        logs = self._logs.get(topic)
        if logs:
            config = self._config_of(topic)
            for opened in logs.values():
                opened.config = config

    def _config_of(self, topic: str) -> LogConfig:
        config, problems = self._configs.of(self._overrides.get(topic, {}))
        for problem in problems:
            log.warning("topic %s: %s; using the value of the broker", topic, problem)
        return config

    async def _wait_for_config(self, topic: str) -> None:
        """Read the configs of a topic, together with those of other topics whose logs are opened at the same time."""
        waiting = self._wanted.get(topic) or self._reading.get(topic)
        if waiting is None:
            waiting = self._wanted[topic] = asyncio.get_running_loop().create_future()
            if self._reader is None:
                self._reader = asyncio.get_running_loop().create_task(self._read_configs())
        await asyncio.shield(waiting)

    async def _read_configs(self) -> None:
        await asyncio.sleep(0)  # include all logs that are opened in this turn of the event loop
        try:
            while self._wanted:
                reading, self._wanted = self._wanted, {}
                self._reading = reading
                try:
                    configs = await self._read_topic_configs(list(reading))
                except Exception as error:  # noqa: BLE001 - whatever it is, it is the error of each open that waits for it
                    for future in reading.values():
                        future.set_exception(error)
                        future.exception()  # perhaps nobody waits any more
                    continue
                finally:
                    self._reading = {}
                for (topic, future), overrides in zip(reading.items(), configs, strict=True):
                    self._overrides.setdefault(topic, {} if overrides is None else overrides)
                    future.set_result(None)
        finally:
            self._reader = None

    # --- periodic work

    async def start(self) -> None:
        """Open the existing logs of this broker. Raises ApiError if configs cannot be read."""
        if self.directories is not None:
            await self.directories.start(self._load_rules)
        home = self._memory if self.directories is None else self.directories
        if home is not None:
            await asyncio.gather(
                *(self.open(topic, partition, topic_id, False) for (topic, partition), topic_id in home.with_records().items())
            )

    async def _load_rules(self, topics: Collection[str]) -> Mapping[str, LoadRules]:
        """See `Directories.start`. Raises ApiError if configs cannot be read."""
        await asyncio.gather(*(self._wait_for_config(topic) for topic in topics if topic not in self._overrides))
        since = self._producers_after_ms()
        return {topic: LoadRules(self._config_of(topic).index_interval_bytes, since) for topic in topics}

    def _producers_after_ms(self) -> int:
        return self._clock.now_ms() - self._config.get("producer.id.expiration.ms")

    async def run(self) -> None:
        """Run retention, compaction, expiry of producers and checkpoints until this is cancelled."""
        get = self._config.get
        async with asyncio.TaskGroup() as group:
            if get("log.cleaner.enable"):
                group.create_task(self._cleaner.run())
            first = get("log.initial.task.delay.ms")
            group.create_task(self._each(first, get("log.retention.check.interval.ms"), delete_old_segments))
            check_ms = get("producer.id.expiration.check.interval.ms")
            group.create_task(self._each(check_ms, check_ms, self._expire_producers))
            if self.directories is not None or self._memory is not None:
                group.create_task(self._write_checkpoints(get("replica.high.watermark.checkpoint.interval.ms")))
            if self.directories is not None and get("log.flush.scheduler.interval.ms") != _LONGEST:
                group.create_task(self._each(first, get("log.flush.scheduler.interval.ms"), self._flush))

    async def _each(self, first_ms: int, interval_ms: int, work: Callable[[Log, int], object]) -> None:
        """Call `work` for each log, first after `first_ms`, then at this interval. A failure with one log does not affect the others."""
        await self._clock.sleep(first_ms / 1000)
        while True:
            for number, opened in enumerate(list(self), 1):
                with contained(log, f"background work on {opened!r}"):
                    work(opened, self._clock.now_ms())
                if number % _AT_ONCE == 0:
                    await asyncio.sleep(0)
            await self._clock.sleep(interval_ms / 1000)

    def _expire_producers(self, opened: Log, now_ms: int) -> None:
        opened.expire_producers(now_ms, self._config.get("producer.id.expiration.ms"))

    def _flush(self, opened: Log, now_ms: int) -> None:
        if opened.unflushed and now_ms - opened.flushed_ms >= opened.config.flush_ms:
            opened.flush()

    async def _write_checkpoints(self, interval_ms: int) -> None:
        while True:
            await self._clock.sleep(interval_ms / 1000)
            with contained(log, "the work on checkpoints"):
                self._write_changed_checkpoints()

    def _write_changed_checkpoints(self) -> None:
        offsets = self._offsets()
        self._note_cleaned()
        if offsets != self._checkpointed:
            if self.directories is not None:
                self.directories.checkpoint(offsets)
            if self._memory is not None:
                self._memory.checkpoint(offsets)
            self._checkpointed = offsets
        elif self.directories is not None:
            self.directories.look()

    def _offsets(self) -> list[tuple[str, int, int, int]]:
        return [(opened.topic, opened.partition, opened.log_start_offset, opened.high_watermark) for opened in self]

    def _note_cleaned(self) -> None:
        if self.directories is not None:
            for opened in self:
                if opened.clean_offset:
                    self.directories.cleaned(opened.topic, opened.partition, opened.clean_offset)

    async def close(self) -> None:
        """Write everything that is not on disk yet, and the checkpoints. Release the memory, unless a `MemoryDirectory` keeps the logs."""
        if self.directories is not None:
            closing = [opened.close_files() for opened in self]
            await asyncio.gather(*(late for late in closing if late is not None))
            self._note_cleaned()
            await self.directories.close(self._offsets())
        if self._memory is not None:
            self._memory.checkpoint(self._offsets())
        self.drop()

    def drop(self) -> None:
        """Like `close`, but write nothing, like a process that is killed."""
        for opening in self._opening.values():
            opening.cancel()
        if self._reader is not None:
            self._reader.cancel()
        for opened in self:
            if self._memory is None:
                opened.close()
            else:
                self._memory.keep(opened)
        self._logs.clear()


def _slow_log() -> type[Log]:
    from klamm.broker.log.slow_log import SlowLog

    return SlowLog
