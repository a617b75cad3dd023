"""The log directories of a broker. Logs are on disk if `log.dir` or `log.dirs` is in its properties, otherwise they are in memory.

Each directory has its own small pool of threads, so that a disk that hangs does not block the others (ADR 8). When a directory fails,
its replicas go offline, and a znode announces it to the controller (controller 4.6). When the last one fails, the broker ends at once, like
an Apache Kafka broker, which halts: it cannot write anything that could be trusted.
"""

from __future__ import annotations

import logging
import resource
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

from klamm.broker.log.files.directories import LogDirectories
from klamm.broker.replica_manager import ReplicaManager
from klamm.broker.replication_quotas import ReplicationQuota
from klamm.configs.broker_config import BrokerConfig
from klamm.controller.values import StoreLost
from klamm.protocol.nouns import TopicPartition
from klamm.seams.clock import Clock
from klamm.server.ground.background import BackgroundTasks
from klamm.zk.admin import AdminZk
from klamm.zk.session.requests import ZkError
from klamm.zk.session.session import ZkUnavailable

log = logging.getLogger(__name__)

THREADS = 4
"""Threads of each log directory, for reads and writes."""
ANNOUNCE_AGAIN_S = 1.0
MANY_FILES = 60_000


def are_on_disk(config: BrokerConfig) -> bool:
    """Whether the properties name log directories. Kafka's default is not used, because all brokers of a machine would share it."""
    return not {"log.dir", "log.dirs"}.isdisjoint(config.static)


class Disks:
    """The log directories of one broker, with their threads. Its log manager uses `directories`."""

    def __init__(self, config: BrokerConfig, clock: Clock, random_bits: Callable[[int], int], quota: ReplicationQuota) -> None:
        """`quota` limits moves between the directories."""
        self._config = config
        self._clock = clock
        self._executors: list[ThreadPoolExecutor] = []
        self.directories = LogDirectories(
            config.log_dirs,
            self._executor,
            clock,
            lambda: f"{random_bits(128):032x}",
            config.get("log.segment.delete.delay.ms"),
            _most_files() // len(config.log_dirs),
            quota,
        )

    def _executor(self, path: str) -> ThreadPoolExecutor:
        self._executors.append(ThreadPoolExecutor(THREADS, thread_name_prefix=f"log directory {path}"))
        return self._executors[-1]

    def watch(
        self,
        broker_id: int,
        replicas: ReplicaManager,
        admin_zk: AdminZk,
        background: BackgroundTasks,
        on_last_failed: Callable[[str], None],
    ) -> None:
        """When a directory fails, take its replicas offline and announce it. `on_last_failed` gets the reason in one line."""

        def failed(path: str, partitions: Iterable[TopicPartition]) -> None:
            here = [TopicPartition(*key) for key in partitions if replicas.get(*key) is not None]
            effects = replicas.fail_log_dir(here)
            log.warning("broker %d: log directory %s is offline, with %d replicas", broker_id, path, len(here))
            replicas.apply(effects)
            if self.directories.is_any_online:
                background.start(self.announce(broker_id, admin_zk))
            else:
                on_last_failed(self.all_failed)

        self.directories.on_failed = failed

    def states(self) -> tuple[tuple[str, bool], ...]:
        """(path, whether it is offline) of each directory."""
        offline = self.directories.offline_paths
        return tuple((path, path in offline) for path in self.directories.paths)

    @property
    def all_failed(self) -> str:
        """The reason why the broker ends when all directories have failed."""
        return f"all log directories have failed: {', '.join(self.directories.paths)}"

    async def announce(self, broker_id: int, admin_zk: AdminZk) -> None:
        """Notify the controller. It sends this broker's partitions again, and the response shows which replicas are offline."""
        while True:
            try:
                await admin_zk.announce_log_dir_failure(broker_id)
            except (StoreLost, ZkError, ZkUnavailable) as error:
                log.warning("broker %d: cannot announce the failure of a log directory; retrying: %s", broker_id, error)
            except Exception:
                log.exception("broker %d: unexpected exception while announcing the failure of a log directory; retrying", broker_id)
            else:
                return
            await self._clock.sleep(ANNOUNCE_AGAIN_S)

    async def close(self) -> None:
        """Release the directories, usually after the log manager has closed its logs. Returns when no thread is working."""
        await self.directories.abandon()
        for executor in self._executors:
            executor.shutdown(wait=False)


def _most_files() -> int:
    """Maximum number of open log files: half of the process limit. The rest is for connections and reads."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MANY_FILES if soft == resource.RLIM_INFINITY else min(soft // 2, MANY_FILES)
