"""`klamm.Cluster`: a local cluster for programs, with or without an event loop of their own.

`Cluster` has the arguments. `with` runs it on an event loop in a thread of its own and gives a `BlockingCluster`; `async with`
runs it on the caller's loop, uvloop or not, and gives the `LocalCluster` itself. Both have the same properties and methods: what is a
coroutine in the one blocks in the other. Several clusters may run in one process, inside each other or side by side.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, TypeVar

from klamm.broker.recovery import Recovery
from klamm.controller.phases import Phase
from klamm.controller.steering import Hold, Steering
from klamm.server.configs.policies import AlterConfigPolicy, TopicPolicy
from klamm.server.local.arguments import BadArgument, SeedTopic, check_arguments
from klamm.server.local.cluster import LocalCluster
from klamm.server.local.config_arguments import check_configs
from klamm.server.local.loop_thread import LoopThread
from klamm.server.seams import Seams
from klamm.zk.session.reachability import check_address

P = TypeVar("P", bound=Phase)
T = TypeVar("T")


class BlockingHold(Generic[P]):
    """A `Hold` of controllers at phases, for threads that have no event loop."""

    def __init__(self, hold: Hold[P], thread: LoopThread) -> None:
        self._hold = hold
        self._thread = thread

    @property
    def held(self) -> list[P]:
        """The phases that are held now, in the order of their arrival."""
        return self._hold.held

    def reached(self, count: int = 1) -> P:
        """Block until `count` phases are held; the first of them. An interrupt ends the wait."""
        return self._thread.call(self._hold.reached(count))

    def step(self) -> P:
        """Let the first one go on; which it was. Raises IndexError when none is held."""
        return self._thread.call(_made_of(self._hold.step))

    def fail(self, error: BaseException) -> P:
        """Let the event of the first one fail; which it was. Raises IndexError when none is held, ValueError at a phase between events."""
        return self._thread.call(_made_of(self._hold.fail, error))

    def release(self) -> None:
        """Hold nothing any more; what is held goes on."""
        self._thread.call(_made_of(self._hold.release))


class BlockingSteering:
    """The `Steering` of a running cluster, for threads that have no event loop."""

    def __init__(self, steering: Steering, thread: LoopThread) -> None:
        self._steering = steering
        self._thread = thread

    def hold(self, *kinds: type[P], where: Mapping[str, object] | None = None) -> BlockingHold[P]:
        """From now on phases of these kinds are held, those whose fields have the values of `where` (`klamm.controller.steering.Where`).

        Raises ValueError if a kind lacks one of these fields.
        """
        return BlockingHold(self._thread.call(_made_of(lambda: self._steering.hold(*kinds, where=where))), self._thread)

    def release(self) -> None:
        """End all holds; what is held goes on."""
        self._thread.call(_made_of(self._steering.release))


class BlockingCluster:
    """A running cluster, for threads that have no event loop. Any thread may use it."""

    def __init__(self, cluster: LocalCluster, thread: LoopThread) -> None:
        self._cluster = cluster
        self._thread = thread

    @property
    def bootstrap_servers(self) -> str:
        """host:port of every broker that runs, with commas between them."""
        return self._cluster.bootstrap_servers

    @property
    def addresses(self) -> list[tuple[int, str, int]]:
        """(id, host, port) of every broker that runs, by id."""
        return self._cluster.addresses

    @property
    def controller_id(self) -> int:
        """Broker id of the controller, -1 when there is none right now."""
        return self._cluster.controller_id

    @property
    def cluster_id(self) -> str:
        return self._cluster.cluster_id

    @property
    def zookeeper(self) -> str:
        """host:port[,…][/chroot] of its ZooKeeper. Another cluster may use it too, with a chroot of its own."""
        return self._cluster.zookeeper

    @property
    def steering(self) -> BlockingSteering:
        """Holds, steps or fails the controllers at their phases (`klamm.controller.phases`)."""
        return BlockingSteering(self._cluster.steering, self._thread)

    def stop_broker(self, broker_id: int, *, lose_log: bool = False) -> None:
        """Stop a broker with a controlled shutdown. Returns when no other one shows it any more.

        Its logs stay, in memory or in its log directories, and `start_broker` finds them: records, high watermarks, leader epochs,
        states of producers, topic ids. With `lose_log` they are removed, as when its disk is replaced. Raises OSError when that fails.
        """
        self._thread.call(self._cluster.stop_broker(broker_id, lose_log=lose_log))

    def kill_broker(self, broker_id: int, *, expire: bool = False, lose_log: bool = False) -> None:
        """End a broker as `kill -9` does: its connections are cut, nothing is sent.

        Its logs stay with every record that was appended to them, in memory or in its log directories. As a killed process it writes no
        checkpoint: `start_broker` finds the high watermarks and log start offsets of the last one
        (`replica.high.watermark.checkpoint.interval.ms`). With `lose_log` the logs are removed, as `stop_broker` says.

        ZooKeeper notices after `zookeeper.session.timeout.ms`; so long the broker stays registered, and controller if it was that. With
        `expire` its session expires at once, and this returns when no other broker shows it any more.
        """
        self._thread.call(self._cluster.kill_broker(broker_id, expire=expire, lose_log=lose_log))

    def start_broker(self, broker_id: int) -> None:
        """Start a broker that was stopped or killed, on its former port and with a new epoch. Returns when all show it and follow it.

        It finds the logs that it left, unless they were lost on purpose (`lose_log`), or topics were deleted meanwhile. Raises StartFailed.
        """
        self._thread.call(self._cluster.start_broker(broker_id))

    def move_controller(self, to: int | None = None) -> int:
        """Make this broker the controller, or any but the present one; its id. Returns when every broker shows it."""
        return self._thread.call(self._cluster.move_controller(to))

    @property
    def recovering(self) -> list[Recovery]:
        """The partitions whose leaders wait to be released, with `kip704.recovery.mode=manual` (KIP-704)."""
        return self._cluster.recovering

    def release_recovery(self, topic: str | None = None, partition: int | None = None) -> list[Recovery]:
        """Let leaders go on that wait in recovery: all, those of a topic, or that of a partition. Which ones."""
        return self._thread.call(self._cluster.release_recovery(topic, partition))


class Cluster:
    """Brokers in this process and a real ZooKeeper, ready when the body of `with` begins and gone when it ends.

    >>> import klamm
    >>> with klamm.Cluster(brokers=3, topics=["orders:6:3"]) as cluster:
    ...     len(cluster.bootstrap_servers.split(","))
    ...     left = cluster.controller_id
    ...     cluster.stop_broker(left)
    ...     cluster.controller_id != left
    ...     cluster.start_broker(left)
    ...     cluster.move_controller(to=left) == left
    3
    True
    True

    With `async with` the methods are coroutines on the caller's loop: `await cluster.stop_broker(1)`.
    """

    def __init__(
        self,
        brokers: int = 3,
        *,
        topics: str | Iterable[str | tuple[str, int, int]] = (),
        config: Mapping[str, str | int | bool] | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        zookeeper: str | None = None,
        data_dir: str | os.PathLike[str] | None = None,
        topic_policy: TopicPolicy | None = None,
        alter_config_policy: AlterConfigPolicy | None = None,
        seams: Seams | None = None,
    ) -> None:
        """Broker ids are 1, 2, 3, … Raises ValueError; nothing is started here.

        `topics` are names, `NAME:PARTITIONS:RF` or such tuples, or one such text; `config` holds properties of all brokers; `port` is the
        first broker's, 0 takes free ones. `zookeeper` is `host:port[,…][/chroot]` of one that runs, such as another cluster's `zookeeper`
        and a chroot; without it an embedded one is started, which needs Java. With a `data_dir` that ZooKeeper and the brokers' logs are
        kept there; without it logs are in memory and last as long as the cluster, also while a broker is down, all of them together
        within `klamm.log.memory.bytes`. The policies may refuse topics and changes of configs (see `klamm.server.configs.policies`); they
        are called on the cluster's loop and must not wait. `seams` are those of all brokers: clock, random source, tap and the others of
        `klamm.server.seams`; the cluster itself waits in real time, and keeps logs in memory by itself, whatever `memory_directory` says.
        """
        self._seams = seams
        self._topic_policy = topic_policy
        self._alter_config_policy = alter_config_policy
        self._properties = {name: _property(value) for name, value in (config or {}).items()}
        check_arguments(brokers, host, port, self._properties)
        if zookeeper is not None:
            check_address(zookeeper)
        self._topics = [_topic(topic) for topic in ([topics] if isinstance(topics, str) else topics)]
        check_configs(self._properties, self._topics, brokers if zookeeper is None else None)
        self._brokers = brokers
        self._host = host
        self._port = port
        self._zookeeper = zookeeper
        self._data_dir = None if data_dir is None else Path(data_dir)
        self._running: LocalCluster | None = None
        self._thread: LoopThread | None = None

    def __enter__(self) -> BlockingCluster:
        cluster = self._made()
        thread = self._thread = LoopThread("klamm-cluster")
        try:
            thread.call(cluster.start())
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return BlockingCluster(cluster, thread)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        cluster, thread = self._running, self._thread
        if cluster is None or thread is None:
            raise RuntimeError("this cluster is not running")
        try:
            thread.call(cluster.stop())
        finally:
            thread.close()
            self._running = self._thread = None

    async def __aenter__(self) -> LocalCluster:
        cluster = self._made()
        try:
            await cluster.start()
        except BaseException:
            self._running = None
            raise
        return cluster

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        cluster, self._running = self._running, None
        if cluster is None:
            raise RuntimeError("this cluster is not running")
        await cluster.stop()

    def _made(self) -> LocalCluster:
        """The cluster to start. One `Cluster` may run again after it has ended, but not twice at a time."""
        if self._running is not None:
            raise RuntimeError("this cluster is already running")
        self._running = LocalCluster(
            self._brokers,
            host=self._host,
            port=self._port,
            zookeeper=self._zookeeper,
            data_dir=self._data_dir,
            config=self._properties,
            topics=self._topics,
            topic_policy=self._topic_policy,
            alter_config_policy=self._alter_config_policy,
            seams=self._seams,
        )
        return self._running


async def _made_of(call: Callable[..., T], *arguments: Any) -> T:
    """What a plain function returns or raises, for the loop's thread."""
    return call(*arguments)


def _property(value: object) -> str:
    """As it stands in a file of properties."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _topic(topic: str | tuple[str, int, int]) -> SeedTopic:
    try:
        return SeedTopic.parse(topic) if isinstance(topic, str) else SeedTopic(*topic)
    except (TypeError, ValueError) as error:
        raise BadArgument("topics", str(error)) from error
