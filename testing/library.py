"""`klamm.Cluster`, which `klamm.testing` has too: a cluster for programs and tests, with or without asyncio.

`with` runs the cluster on an event loop in its own thread and gives a `BlockingCluster`; `async with` runs it on the caller's loop, uvloop
or not, and gives an `AsyncCluster`. Both have the same verbs; those that wait block in the first and are coroutines in the second. Several
clusters may run in one process at the same time.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from klamm.control.verbs.steered_cluster import SteeredCluster
from klamm.machine.interpreter import require_interpreter_lock
from klamm.seams.clock import SYSTEM_CLOCK
from klamm.server.configs.policies import AlterConfigPolicy, TopicPolicy
from klamm.server.lifecycle.seams import Seams
from klamm.server.local.arguments import BadArgument, SeedTopic, check_arguments, check_broker_configs, narrowed_apis
from klamm.server.local.config_arguments import check_configs
from klamm.server.local.loop_thread import LoopThread
from klamm.server.local.security_wish import SecurityWish
from klamm.testing.arguments import texts_of
from klamm.testing.async_cluster import AsyncCluster
from klamm.testing.blocking_cluster import BlockingCluster
from klamm.testing.contexts import Contexts
from klamm.testing.steered_cluster import Steered
from klamm.zk.session.reachability import check_address


class Cluster(Contexts[Steered, BlockingCluster, AsyncCluster]):
    """Brokers 1 to `brokers`, in this process or each in its own, with a real ZooKeeper. It is ready when the body of `with` begins and
    stops when it ends. It may run again, but not twice at the same time.

    >>> import klamm
    >>> with klamm.Cluster(brokers=3, topics=["orders:6:3"]) as cluster:
    ...     len(cluster.bootstrap_servers.split(","))
    ...     left = cluster.controller_id
    ...     cluster.stop_broker(left)
    ...     cluster.controller_id != left
    ...     cluster.start_broker(left)
    ...     cluster.move_controller(to=left) == left
    ...     fault = cluster.fault(api="Produce", topic="orders", error="NOT_LEADER_OR_FOLLOWER", first=1)
    ...     fault.hits
    3
    True
    True
    0

    With `async with` the methods are coroutines on the caller's loop: `await cluster.stop_broker(1)`.
    """

    subject = "cluster"

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
        control_port: int | None = None,
        processes: bool = False,
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

        With `as_version`, such as "2.8", the brokers offer the APIs and versions of that Apache Kafka, from 1.0 to 4.4, and have its
        defaults. `api_versions` narrows single APIs: {"Produce": "0-7"}, or hides them: {"OffsetDelete": "none"}.

        With `tls`, `sasl` (PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512) or both, clients and brokers use TLS, and authenticate; `client` of the
        running cluster is what the client `admin` needs. `users` are the passwords of further users, by name. With `acls`, which needs
        `sasl`, brokers decide by ACLs: `admin` may do everything, others what is allowed to them.

        The policies may refuse topics and changes of configs (see `klamm.server.configs.policies`); they are called on the event loop of
        the cluster and must not wait. `seams` are given to all brokers: random source, tap and the others of
        `klamm.server.lifecycle.seams`. The clock, the history and the directories of logs in memory are the cluster's own. The cluster
        itself waits in real time.

        With `control_port` the cluster also serves its control API at this port of 127.0.0.1, 0 for a free one (needs klamm[control]).
        With `processes` each broker is a process of its own (needs klamm[control]), with its logs on disk, in a temporary folder unless
        there is a `data_dir`. The verbs are the same; those that return a value at once ask the processes and block for some milliseconds.
        """
        super().__init__()
        require_interpreter_lock()
        own = {"seams": seams, "topic_policy": topic_policy, "alter_config_policy": alter_config_policy}
        given = {name: value for name, value in own.items() if value is not None}
        if processes and given:
            raise ValueError(f"{next(iter(given))}: brokers in processes of their own cannot have it")
        if seams is not None and (seams.clock, seams.history) != (SYSTEM_CLOCK, None):
            raise ValueError("seams: the clock and the history of a cluster are its own")
        self._config = texts_of(config) | narrowed_apis(as_version, (api_versions or {}).items())
        check_arguments(brokers, host, port, self._config, metrics_port)
        if zookeeper is not None:
            check_address(zookeeper)
        seeds = [_topic(topic) for topic in ([topics] if isinstance(topics, str) else topics)]
        self._wish = SecurityWish(tls, sasl, acls, dict(users or {}), host)
        self._wish.check(self._config)
        check_configs(self._config, seeds, brokers if zookeeper is None else None)
        broker_configs = {number: texts_of(each) for number, each in (broker_config or {}).items()}
        check_broker_configs(broker_configs, brokers)
        for each in broker_configs.values():
            check_configs(self._config | each, (), None, "broker_config")
        self._data_dir = None if data_dir is None else Path(data_dir)
        self._shape: dict[str, Any] = {
            "brokers": brokers, "host": host, "port": port, "metrics_port": metrics_port, "zookeeper": zookeeper,
            "data_dir": self._data_dir, "topics": seeds, "broker_configs": broker_configs, "control_port": control_port, **given,
        }
        self._processes = processes

    def _new(self) -> Steered:
        made = self._wish.make(self._data_dir)
        shape = {**self._shape, "config": self._config | made.config, "users": made.users, "client": made.client}
        if not self._processes:
            return SteeredCluster(**shape)
        from klamm.testing.broker_processes import BrokerProcesses

        return BrokerProcesses(**shape)

    def _blocking(self, running: Steered, thread: LoopThread) -> BlockingCluster:
        return BlockingCluster(running, thread)

    def _on_loop(self, running: Steered) -> AsyncCluster:
        return AsyncCluster(running)


def _topic(topic: str | tuple[str, int, int]) -> SeedTopic:
    try:
        return SeedTopic.parse(topic) if isinstance(topic, str) else SeedTopic(*topic)
    except (TypeError, ValueError) as error:
        raise BadArgument("topics", str(error)) from error
