"""The interface of the controller to ZooKeeper. Each area is a protocol of its own; `Store` is their sum. The package `zk`
implements it; a simulated one serves the tests.

Every write is fenced: it takes hold only while `/controller_epoch` has the version of this controller's election, else
ControllerMoved is raised. Lists are written in as many multis as size asks (1,000 operations, 900 KB), pipelined; each entry
succeeds or fails alone and the outcomes come back in the order of the writes. After a lost connection the work is
repeated (a write that is found to have succeeded counts as OK); the end of the session raises StoreLost. Whatever else ZooKeeper will not
do (no rights, a znode in the way, one that cannot be read where nothing can stand for it) raises StoreRefused. Reads of many znodes are
multiReads. Methods that say "arms" leave a one-shot watch that puts the named event on the controller's queue. Source: zookeeper-layout
1.1-1.4, 3, 5.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from klamm.controller.values import (
    Broker,
    BrokerRegistration,
    ConfigEntity,
    ConfigWrite,
    ControllerEpoch,
    LeaderAndIsr,
    StateWrite,
    StoredConfig,
    StoredTopic,
    ThrottleRemovals,
    TopicWrite,
    WriteOutcome,
)
from klamm.protocol.nouns import TopicPartition


class ControllerElectionStore(Protocol):
    """`/controller` and `/controller_epoch`: who is the controller, and under which epoch it writes (layout 3.1)."""

    async def watch_controller(self) -> None:
        """`exists` on `/controller`; arms ControllerChange (created, changed) and Reelect (deleted)."""

    async def controller_epoch(self) -> int:
        """The number in `/controller_epoch`, 0 where there is none, -1 where it cannot be read."""

    async def controller_id(self) -> int:
        """Broker id in `/controller`, -1 when there is none. Arms as `watch_controller`."""

    async def register_controller(self, broker_id: int, timestamp_ms: int, *, shows_session: bool = False) -> ControllerEpoch:
        """One election attempt; from its success on, writes are fenced with the returned zk_version. With `shows_session` it leaves a znode
        that lasts as long as the session, whatever becomes of `/controller`.

        Raises ControllerMoved when another broker won.
        """

    async def shows_session(self, broker_id: int) -> bool:
        """Whether there is such a znode: a session in which this broker was elected is not over."""

    async def delete_controller(self) -> None:
        """Delete `/controller`, fenced. A missing znode is fine."""

    async def end_leftover(self, broker_id: int) -> bool:
        """Delete a `/controller` that names `broker_id` although no broker acts as controller: of an earlier session, or of a term that
        failed.

        False when there is none. Where the controller epoch changed meanwhile, nothing is deleted.
        """

    def reset_fence(self) -> None:
        """Forget the epoch: no fenced write succeeds until the next election."""


class FeatureStore(Protocol):
    """`/feature` (layout 3.11)."""

    async def setup_feature(self) -> None:
        """Bring `/feature` in the shape of the inter-broker protocol (layout 3.11)."""


class BrokerStore(Protocol):
    """`/brokers/ids` (layout 3.2)."""

    async def brokers(self) -> dict[int, Broker]:
        """All registered brokers; unreadable znodes are logged and left out.

        Arms BrokerChange (children), and BrokerModifications (data) of those left out.
        """

    async def broker(self, broker_id: int) -> Broker | None:
        """One broker; None where it is missing, or unreadable and logged. Arms BrokerModifications (data)."""

    async def watch_brokers(self, broker_ids: Iterable[int]) -> None:
        """Arms BrokerModifications of these."""


class TopicStore(Protocol):
    """`/brokers/topics` (layout 3.4)."""

    async def topics(self) -> list[str]:
        """Names below `/brokers/topics`. Arms TopicChange (children)."""

    async def read_topics(self, names: Sequence[str]) -> list[StoredTopic | None]:
        """Topic znodes in the requested order; one that is not JSON has no partitions. Arms PartitionModifications (data).

        None where missing, or unreadable and logged.
        """

    async def write_topics(self, writes: Sequence[TopicWrite]) -> list[WriteOutcome]:
        """Replace topic znodes, fenced, if they have the expected versions."""


class PartitionStateStore(Protocol):
    """`/brokers/topics/<topic>/partitions/<partition>/state` (layout 3.5)."""

    async def read_states(self, partitions: Sequence[TopicPartition]) -> list[LeaderAndIsr | None]:
        """States in the requested order; None where the znode is missing, or unreadable and logged."""

    async def write_states(self, writes: Sequence[StateWrite]) -> list[WriteOutcome]:
        """Conditional writes. OK means the new PE is `expected + 1`."""

    async def watch_states(self, partitions: Sequence[TopicPartition]) -> list[LeaderAndIsr | None]:
        """As `read_states`. Arms PartitionReassignmentIsrChange (data) of those whose znode exists."""

    async def create_states(self, writes: Sequence[StateWrite]) -> list[WriteOutcome]:
        """Create state znodes (and their parents, whose presence is fine). OK means PE 0."""


class TopicDeletionStore(Protocol):
    """`/admin/delete_topics`, and the end of a topic (layout 1.2, 3.6)."""

    async def deletions(self) -> list[str]:
        """Topics with a deletion request. Arms TopicDeletion (children)."""

    async def remove_deletions(self, topics: Iterable[str]) -> None:
        """Remove deletion requests, fenced."""

    async def delete_topics(self, topics: Sequence[tuple[str, Sequence[int]]]) -> None:
        """Remove the tree, the config znode and the deletion request of each topic, in this order, fenced. Missing znodes are fine."""


class PreferredElectionStore(Protocol):
    """`/admin/preferred_replica_election` (layout 3.6)."""

    async def preferred_election(self) -> list[TopicPartition] | None:
        """Partitions in `/admin/preferred_replica_election`; None when absent, empty when unreadable.

        Arms PreferredReplicaElection (`exists`: creation too).
        """

    async def delete_preferred_election(self) -> None:
        """Delete that znode, fenced; fine when absent."""


class ReassignmentStore(Protocol):
    """`/admin/reassign_partitions` (layout 3.6)."""

    async def reassignments(self) -> dict[TopicPartition, tuple[int, ...]] | None:
        """Entries of `/admin/reassign_partitions`; None when absent, empty when unreadable.

        Arms ZkPartitionReassignment (`exists`: creation too).
        """

    async def write_reassignments(self, entries: dict[TopicPartition, tuple[int, ...]]) -> None:
        """Replace the znode's entries, fenced; delete the znode when none is left."""


class NotificationStore(Protocol):
    """`/isr_change_notification` and `/log_dir_event_notification` (layout 3.7)."""

    async def isr_notifications(self) -> tuple[list[str], list[TopicPartition]]:
        """(znode names, union of their partitions). Arms IsrChangeNotification (children)."""

    async def delete_isr_notifications(self, names: Iterable[str]) -> None:
        """Fenced."""

    async def log_dir_notifications(self) -> tuple[list[str], list[int]]:
        """(znode names, broker ids). Arms LogDirEventNotification (children)."""

    async def delete_log_dir_notifications(self, names: Iterable[str]) -> None:
        """Fenced."""


class ConfigStore(Protocol):
    """`/config` (layout 3.8)."""

    async def topic_configs(self, topics: Sequence[str]) -> list[dict[str, str] | None]:
        """Properties stored for each topic ({} when the znode is missing); None where the znode cannot be read."""

    async def read_configs(self, entities: Sequence[ConfigEntity]) -> list[StoredConfig | None]:
        """Configs of topics and brokers with the versions of their znodes, in the requested order; None where the znode cannot be read."""

    async def all_configs(self) -> dict[ConfigEntity, dict[str, str]]:
        """Properties of all topics and brokers that have some; an entity whose znode cannot be read is logged and left out."""

    async def write_configs(self, writes: Sequence[ConfigWrite]) -> list[WriteOutcome]:
        """Conditional, fenced writes, each in one multi with the notification that makes the brokers read the entity again."""


class ThrottleRemovalStore(Protocol):
    """Which replication throttles go when the last reassignment is complete (KIP-179, layout 4.1).

    Lists are sorted and name nothing twice. Reads and deletions see both names of a znode, writes go to `throttled_*_removal` and delete
    the other one.
    """

    async def throttle_removals(self) -> ThrottleRemovals:
        """Both, and whether `/admin/reassign_partitions` exists, in one read. Arms nothing."""

    async def throttled_replicas_removal(self) -> list[str] | None:
        """Topics whose throttled replicas are to be removed; None without a znode, empty when it is unreadable."""

    async def write_throttled_replicas_removal(self, topics: Iterable[str]) -> None:
        """Create the znode or replace its topics, fenced."""

    async def delete_throttled_replicas_removal(self) -> None:
        """Fenced; fine when absent."""

    async def throttled_rates_removal(self) -> list[int] | None:
        """Brokers whose throttled rates are to be removed; None without a znode, empty when it is unreadable."""

    async def write_throttled_rates_removal(self, broker_ids: Iterable[int]) -> None:
        """Create the znode or replace its brokers, fenced."""

    async def delete_throttled_rates_removal(self) -> None:
        """Fenced; fine when absent."""


class BrokerRegistrationStore(Protocol):
    """`/cluster/brokers` (RegisterBroker, layout 4.5): only the controller writes there."""

    async def registrations(self) -> dict[int, BrokerRegistration]:
        """All registrations by broker id; unreadable ones are logged and left out."""

    async def write_registrations(self, registrations: Sequence[BrokerRegistration]) -> list[WriteOutcome]:
        """Create or replace znodes, fenced."""


class WriteVersionStore(Protocol):
    """What ZooKeeper answers to writes, for who writes down what happened."""

    def follow_versions(self) -> dict[str, int]:
        """From now on the version of each znode that a fenced write has set or created is put here under its path, as ZooKeeper answered
        it. Who looks at a version takes it out.
        """


class ProducerIdStore(Protocol):
    """`/latest_producer_id_block` (layout 3.11)."""

    async def allocate_producer_ids(self, broker_id: int) -> tuple[int, int]:
        """(first id, count) of the next block, conditional on the version read, repeated until it takes hold."""


class Store(
    ControllerElectionStore,
    FeatureStore,
    BrokerStore,
    TopicStore,
    PartitionStateStore,
    TopicDeletionStore,
    PreferredElectionStore,
    ReassignmentStore,
    NotificationStore,
    ConfigStore,
    ThrottleRemovalStore,
    BrokerRegistrationStore,
    ProducerIdStore,
    WriteVersionStore,
    Protocol,
):
    """Durable state of the cluster, as one controller sees it: everything above."""
