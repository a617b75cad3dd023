"""What metrics are read from: the parts of a broker, and one reading of them.

A reading is made on the event loop when somebody scrapes, so that each number comes from one state. Samples of single partitions are
read in slices, between which others run: what changes meanwhile may be seen or not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property

from klamm.broker.partition import HostedPartition, Role
from klamm.broker.replica_manager import ReplicaManager
from klamm.configs.broker_config import BrokerConfig
from klamm.controller.cluster import Cluster
from klamm.controller.event_loop.loop import Controller
from klamm.seams.value_class import dataclass
from klamm.server.metrics.counting import Counts
from klamm.server.net.channels import Channels
from klamm.server.replication.followers import Followers
from klamm.server.requests.services import Services
from klamm.zk.session.session import ZkSession

MIN_ISR = "min.insync.replicas"


@dataclass(frozen=True, slots=True)
class MetricSources:
    """The parts of a running broker that have metrics."""

    services: Services
    controller: Controller
    channels: Channels
    followers: Followers
    zookeeper: ZkSession
    counts: Counts
    log_directories: Callable[[], tuple[tuple[str, bool], ...]]
    """(path, whether it is offline) of each; none where logs are in memory."""
    state: Callable[[], int]
    """Kafka's `BrokerState`."""


class BrokerReading:
    """One look at a broker."""

    def __init__(self, parts: MetricSources) -> None:
        self.parts = parts
        self.services = parts.services
        self.counts = parts.counts
        self.controller = parts.controller

    @property
    def config(self) -> BrokerConfig:
        return self.services.config

    @property
    def replicas(self) -> ReplicaManager:
        return self.services.replicas

    @property
    def cluster(self) -> Cluster | None:
        """The controller's memory, None where this broker is not the active controller."""
        term = self.controller.term
        return term.cluster if term is not None and self.controller.is_active else None

    @cached_property
    def partitions(self) -> list[HostedPartition]:
        """All replicas that this broker hosts, offline ones included."""
        return [replica for _, _, replica in self.replicas]

    @cached_property
    def led(self) -> list[HostedPartition]:
        """Those that it leads."""
        return [replica for replica in self.partitions if replica.role is Role.LEADER]

    def min_isr(self, replica: HostedPartition) -> int:
        """The effective `min.insync.replicas`. An empty partition has read no config of its topic yet: then that of the broker counts."""
        return replica.min_isr(default=self.config.get(MIN_ISR))

    def of_partitions(self, value: Callable[[HostedPartition], float]) -> Iterator[tuple[tuple[str, str], float]]:
        """A sample for each partition that this broker hosts."""
        for replica in self.partitions:
            if not replica.offline:
                yield (replica.topic, str(replica.index)), value(replica)
