"""`klamm.testing.Cluster`: a cluster for tests, with or without asyncio.

`with` runs the cluster on an event loop in its own thread and gives a `BlockingCluster`; `async with` runs it on the caller's loop and
gives an `AsyncCluster`. Both have the same verbs; those that wait block in the first and are coroutines in the second.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from klamm.control.verbs.steered_cluster import SteeredCluster
from klamm.server.configs.policies import AlterConfigPolicy, TopicPolicy
from klamm.server.lifecycle.seams import Seams
from klamm.server.local import library
from klamm.server.local.cluster_contexts import ClusterContexts
from klamm.server.local.loop_thread import LoopThread
from klamm.testing.async_cluster import AsyncCluster
from klamm.testing.blocking_cluster import BlockingCluster
from klamm.testing.steered_cluster import Steered

_OF_ONE_PROCESS = frozenset(("seams", "topic_policy", "alter_config_policy"))


class Cluster(ClusterContexts[Steered, BlockingCluster, AsyncCluster]):
    """Brokers 1 to `brokers`, in this process or each in its own, with a real ZooKeeper, ready when the body of `with` begins.

    >>> import klamm.testing
    >>> with klamm.testing.Cluster(brokers=1, topics="orders:2:1") as cluster:
    ...     fault = cluster.fault(api="Produce", topic="orders", error="NOT_LEADER_OR_FOLLOWER", first=1)
    ...     fault.hits
    0
    """

    thread_name = "klamm-testing"

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
        """Check the arguments, which are those of `klamm.Cluster`; nothing is started here. Raises ValueError.

        With `control_port` the cluster also serves its control API at this port of 127.0.0.1, 0 for a free one (needs klamm[control]).
        With `processes` each broker is a process of its own (needs klamm[control]), with its logs on disk, in a temporary folder unless
        there is a `data_dir`. The verbs are the same; those that return a value at once ask the processes and block for some milliseconds.
        """
        super().__init__()
        checked = library.Cluster(
            brokers, topics=topics, config=config, broker_config=broker_config, host=host, port=port, metrics_port=metrics_port,
            zookeeper=zookeeper, data_dir=data_dir, topic_policy=topic_policy, alter_config_policy=alter_config_policy,
            as_version=as_version, api_versions=api_versions, seams=seams,
            tls=tls, sasl=sasl, acls=acls, users=users,
        )
        own = {"seams": seams, "topic_policy": topic_policy, "alter_config_policy": alter_config_policy}
        for name, value in own.items() if processes else ():
            if value is not None:
                raise ValueError(f"{name}: brokers in processes of their own cannot have it")
        self._checked = checked
        self._control_port = control_port
        self._processes = processes

    def _new(self) -> Steered:
        shape = self._checked.shape()
        if not self._processes:
            return SteeredCluster(control_port=self._control_port, **shape)
        from klamm.testing.broker_processes import BrokerProcesses

        own = {name: value for name, value in shape.items() if name not in _OF_ONE_PROCESS}
        return BrokerProcesses(control_port=self._control_port, **own)

    def _blocking(self, cluster: Steered, thread: LoopThread) -> BlockingCluster:
        return BlockingCluster(cluster, thread)

    def _on_loop(self, cluster: Steered) -> AsyncCluster:
        return AsyncCluster(cluster)
