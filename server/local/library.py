"""`klamm.Cluster`: a local cluster for programs, with or without asyncio.

`Cluster` takes the arguments. `with` runs the cluster on an event loop in its own thread and gives a `BlockingCluster`; `async with`
runs it on the caller's loop, uvloop or not, and gives the `LocalCluster`. Both have the same properties and methods: they block in the
first and are coroutines in the second. Several clusters may run in one process at the same time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar

from klamm.broker.recovery import Recovery
from klamm.machine.interpreter import require_interpreter_lock
from klamm.seams.steering import Action, Hold, HoldState, Steering
from klamm.server.configs.policies import AlterConfigPolicy, TopicPolicy
from klamm.server.lifecycle.seams import Seams
from klamm.server.local.arguments import BadArgument, SeedTopic, check_arguments, check_broker_configs, narrowed_apis
from klamm.server.local.cluster import LocalCluster
from klamm.server.local.cluster_contexts import ClusterContexts
from klamm.server.local.config_arguments import check_configs
from klamm.server.local.loop_thread import LoopThread
from klamm.server.local.security_wish import SecurityWish
from klamm.zk.session.reachability import check_address

P = TypeVar("P")
T = TypeVar("T")


class BlockingHold(Generic[P]):
    """A `Hold`, for threads without an event loop."""

    def __init__(self, hold: Hold[P], thread: LoopThread) -> None:
        self._hold = hold
        self._thread = thread

    @property
    def number(self) -> int:
        """1, 2, … in the order in which holds were made."""
        return self._hold.number

    @property
    def state(self) -> HoldState:
        """Whether it waits for a phase (`armed`), holds one (`reached`) or has ended (`released`)."""
        return self._hold.state

    @property
    def hits(self) -> int:
        """How many phases matched: those that passed and those that were held."""
        return self._hold.hits

    @property
    def passed(self) -> int:
        """How many of them passed, since they came before the `nth`."""
        return self._hold.passed

    @property
    def held(self) -> list[P]:
        """The phases that are held now, in the order in which they were reached."""
        return self._hold.held

    @property
    def broker_ids(self) -> list[int]:
        """The brokers that are held, in the same order."""
        return [held.broker_id for held in self._hold.held_phases]

    def reached(self, count: int = 1, timeout_s: float | None = None) -> P:
        """Block until `count` phases are held; returns the first of them. An interrupt ends the wait. Raises TimeoutError after `timeout_s`
        seconds of real time.
        """
        return self._thread.call(self._hold.reached(count, timeout_s))

    def step(self) -> P:
        """Let the first held phase continue and return it. Raises IndexError if none is held."""
        return self._thread.call(_made_of(self._hold.step))

    def fail(self, error: BaseException) -> P:
        """Let what waits at the first held phase fail and return the phase. Raises IndexError if none is held, ValueError if nothing can
        fail there.
        """
        return self._thread.call(_made_of(self._hold.fail, error))

    def release(self) -> None:
        """End the hold; held phases continue."""
        self._thread.call(_made_of(self._hold.release))


class BlockingSteering:
    """The `Steering` of a running cluster, for threads without an event loop."""

    def __init__(self, steering: Steering, thread: LoopThread) -> None:
        self._steering = steering
        self._thread = thread

    def hold(
        self, *kinds: type[P], where: Mapping[str, object] | None = None, count: int | None = None, nth: int = 1,
        action: Action | None = None,
    ) -> BlockingHold[P]:
        """Hold phases of these kinds from now on; with `where`, only those with these field values (`klamm.seams.steering.Where`).

        The first `nth - 1` matching phases pass, the next `count` are held (None: all). An `action` gets each of them at once, on the event
        loop. Raises ValueError if a kind does not have one of these fields, or if a value has another type than its field.
        """
        made = self._thread.call(_made_of(lambda: self._steering.hold(*kinds, where=where, count=count, nth=nth, action=action)))
        return BlockingHold(made, self._thread)

    def release(self) -> None:
        """End all holds; held phases continue."""
        self._thread.call(_made_of(self._steering.release))


class BlockingCluster:
    """A running cluster, for threads without an event loop. Any thread may use it."""

    def __init__(self, cluster: LocalCluster, thread: LoopThread) -> None:
        self._cluster = cluster
        self._thread = thread

    @property
    def bootstrap_servers(self) -> str:
        """host:port of every running broker, separated by commas."""
        return self._cluster.bootstrap_servers

    @property
    def client(self) -> dict[str, str]:
        """What the client `admin` needs besides, with the names of librdkafka; empty without `tls` and `sasl`."""
        return self._cluster.client

    @property
    def addresses(self) -> list[tuple[int, str, int]]:
        """(id, host, port) of every running broker, sorted by id."""
        return self._cluster.addresses

    @property
    def metrics_ports(self) -> dict[int, int]:
        """The port of each broker's metrics, by broker id: `http://127.0.0.1:PORT/metrics`. None without `metrics_port`."""
        return self._cluster.metrics_ports

    @property
    def controller_id(self) -> int:
        """Broker id of the controller, -1 if there is none at the moment."""
        return self._cluster.controller_id

    @property
    def cluster_id(self) -> str:
        return self._cluster.cluster_id

    @property
    def zookeeper(self) -> str:
        """host:port[,…][/chroot] of its ZooKeeper. Another cluster may use the same ZooKeeper with another chroot."""
        return self._cluster.zookeeper

    @property
    def steering(self) -> BlockingSteering:
        """Holds, steps or fails brokers at their phases (`klamm.server.phases`)."""
        return BlockingSteering(self._cluster.steering, self._thread)

    def stop_broker(self, broker_id: int, *, lose_log: bool = False) -> None:
        """Stop a broker with a controlled shutdown. Returns when no other broker shows it any more.

        Its logs stay, in memory or in its log directories, and `start_broker` finds them: records, high watermarks, leader epochs,
        producer states, topic ids. With `lose_log` they are removed, as if its disk was replaced. Raises OSError if they cannot be removed.
        """
        self._thread.call(self._cluster.stop_broker(broker_id, lose_log=lose_log))

    def kill_broker(self, broker_id: int, *, expire: bool = False, lose_log: bool = False) -> None:
        """End a broker like `kill -9`: its connections are cut, and it sends nothing.

        Its logs stay with every record that was appended, in memory or in its log directories. Like a killed process it does not write a
        checkpoint: `start_broker` finds the high watermarks and log start offsets of the last one
        (`replica.high.watermark.checkpoint.interval.ms`). With `lose_log` the logs are removed, as in `stop_broker`.

        ZooKeeper notices the loss after `zookeeper.session.timeout.ms`. Until then the broker stays registered, and stays controller if it
        was the controller. With `expire` its session expires at once, and this returns when no other broker shows it any more.
        """
        self._thread.call(self._cluster.kill_broker(broker_id, expire=expire, lose_log=lose_log))

    def crash_broker(self, broker_id: int, *, expire: bool = False) -> None:
        """End a broker like `kill -9`, also while another step is under way: a broker that is held at a phase, one that starts or stops.

        Otherwise like `kill_broker`, but returns when the broker is closed and, with `expire`, its session is over.
        """
        self._thread.call(self._cluster.crash_broker(broker_id, expire=expire))

    def start_broker(self, broker_id: int) -> None:
        """Start a stopped or killed broker again, on its former port and with a new epoch. Returns when every broker shows it.

        It finds its logs, unless they were removed with `lose_log`; those of topics that were deleted in the meantime are deleted. Raises
        StartFailed.
        """
        self._thread.call(self._cluster.start_broker(broker_id))

    def add_broker(self, config: Mapping[str, str] | None = None) -> int:
        """Start one more broker, with the next id and these properties besides those of all. Returns its id when every broker shows it.

        Raises ValueError for properties that a broker refuses, StartFailed.
        """
        return self._thread.call(self._cluster.add_broker(config))

    def move_controller(self, to: int | None = None) -> int:
        """Make this broker the controller, or with None any other than the present one. Returns its id when every broker shows it."""
        return self._thread.call(self._cluster.move_controller(to))

    @property
    def recovering(self) -> list[Recovery]:
        """The partitions whose leaders wait for `release_recovery`, with `kip704.recovery.mode=manual` (KIP-704)."""
        return self._cluster.recovering

    def release_recovery(self, topic: str | None = None, partition: int | None = None) -> list[Recovery]:
        """Release leaders that wait in recovery: all, those of a topic, or that of one partition. Returns the released ones."""
        return self._thread.call(self._cluster.release_recovery(topic, partition))


class Cluster(ClusterContexts[LocalCluster, BlockingCluster, LocalCluster]):
    """A cluster of brokers in this process with a real ZooKeeper. It is ready when the body of `with` begins and stops when it ends.

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

    thread_name = "klamm-cluster"

    def __init__(
        self,
        brokers: int = 3,
        *,
        topics: str | Iterable[str | tuple[str, int, int]] = (),
        config: Mapping[str, str | int | bool] | None = None,
        broker_config: Mapping[int, Mapping[str, str | int | bool]] | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        metrics_port: int | None = None,
        zookeeper: str | None = None,
        data_dir: str | os.PathLike[str] | None = None,
        topic_policy: TopicPolicy | None = None,
        alter_config_policy: AlterConfigPolicy | None = None,
        as_version: str | None = None,
        api_versions: Mapping[str, str] | None = None,
        seams: Seams | None = None,
        tls: bool = False,
        sasl: str | None = None,
        acls: bool = False,
        users: Mapping[str, str] | None = None,
    ) -> None:
        """Check the arguments; nothing is started here. Broker ids are 1, 2, 3, …

        Raises ValueError, and NoInterpreterLock on a free-threaded build of Python.

        `topics` are names, `NAME:PARTITIONS:RF` or tuples of these, or a single such text. `config` has the properties of all brokers,
        `broker_config` those of single brokers by their ids, such as `{2: {"broker.rack": "b"}}`. `port` is the port of the first broker,
        `metrics_port` that of its metrics (without it there are none); 0 takes any free ports. `zookeeper` is `host:port[,…][/chroot]` of a
        running ZooKeeper, for example that of another cluster with a chroot; without it an embedded ZooKeeper is started, which needs Java.

        With `data_dir` the embedded ZooKeeper and the brokers keep their data there. Without it logs are in memory until the cluster ends,
        also while their broker is down; all logs share `klamm.log.memory.bytes`, and what exceeds it is in temporary files.

        With `as_version`, such as "2.8", the brokers offer the APIs and versions of that Apache Kafka, from 1.0 to 3.9, and have its
        defaults. `api_versions` narrows single APIs: {"Produce": "0-7"}, or hides them: {"OffsetDelete": "none"}.

        With `tls`, `sasl` (PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512) or both, clients and brokers use TLS, and authenticate; `client` of the
        running cluster is what the client `admin` needs. `users` are the passwords of further users, by name. With `acls`, which needs
        `sasl`, brokers decide by ACLs: `admin` may do everything, others what is allowed to them.

        The policies may refuse topics and changes of configs (see `klamm.server.configs.policies`); they are called on the event loop of
        the cluster and must not wait. `seams` are given to all brokers: clock, random source, tap and the others of
        `klamm.server.lifecycle.seams`. The cluster itself waits in real time; it uses its own memory directories and ignores the
        `memory_directory` of the seams.
        """
        super().__init__()
        require_interpreter_lock()
        self._seams = seams
        self._topic_policy = topic_policy
        self._alter_config_policy = alter_config_policy
        self._properties = {name: _property(value) for name, value in (config or {}).items()}
        self._properties |= narrowed_apis(as_version, (api_versions or {}).items())
        check_arguments(brokers, host, port, self._properties, metrics_port)
        if zookeeper is not None:
            check_address(zookeeper)
        self._topics = [_topic(topic) for topic in ([topics] if isinstance(topics, str) else topics)]
        self._wish = SecurityWish(tls, sasl, acls, dict(users or {}), host)
        self._wish.check(self._properties)
        check_configs(self._properties, self._topics, brokers if zookeeper is None else None)
        self._broker_configs = {
            number: {name: _property(value) for name, value in own.items()} for number, own in (broker_config or {}).items()
        }
        check_broker_configs(self._broker_configs, brokers)
        for own in self._broker_configs.values():
            check_configs(self._properties | own, (), None, "broker_config")
        self._brokers = brokers
        self._host = host
        self._port = port
        self._metrics_port = metrics_port
        self._zookeeper = zookeeper
        self._data_dir = None if data_dir is None else Path(data_dir)

    def shape(self) -> dict[str, Any]:
        """The checked arguments, as `LocalCluster` takes them."""
        made = self._wish.make(self._data_dir)
        return {
            "brokers": self._brokers, "users": made.users, "client": made.client,
            "host": self._host, "port": self._port, "metrics_port": self._metrics_port,
            "zookeeper": self._zookeeper, "data_dir": self._data_dir, "config": self._properties | made.config, "topics": self._topics,
            "broker_configs": self._broker_configs,
            "topic_policy": self._topic_policy, "alter_config_policy": self._alter_config_policy, "seams": self._seams,
        }

    def _new(self) -> LocalCluster:
        return LocalCluster(**self.shape())

    def _blocking(self, cluster: LocalCluster, thread: LoopThread) -> BlockingCluster:
        return BlockingCluster(cluster, thread)

    def _on_loop(self, cluster: LocalCluster) -> LocalCluster:
        return cluster


async def _made_of(call: Callable[..., T], *arguments: Any) -> T:
    """Call a plain function on the thread of the loop; returns or raises what it does."""
    return call(*arguments)


def _property(value: object) -> str:
    """The value as it is written in a properties file."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _topic(topic: str | tuple[str, int, int]) -> SeedTopic:
    try:
        return SeedTopic.parse(topic) if isinstance(topic, str) else SeedTopic(*topic)
    except (TypeError, ValueError) as error:
        raise BadArgument("topics", str(error)) from error
