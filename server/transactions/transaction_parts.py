"""The parts of a broker that transactions need, made together."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from klamm.broker.replica_manager import ReplicaManager
from klamm.configs.broker_config import BrokerConfig
from klamm.protocol.apis import ApiKey
from klamm.protocol.nouns import Endpoint
from klamm.seams.clock import Clock
from klamm.seams.steering import Steering
from klamm.server.coordinators.broker_links import BrokerLinks
from klamm.server.ground.background import BackgroundTasks
from klamm.server.groups.group_coordinator import GroupCoordinator
from klamm.server.net.tap import BrokerTap
from klamm.server.transactions.marker_sender import MarkerSender
from klamm.server.transactions.marker_writer import MarkerWriter
from klamm.server.transactions.partition_verifier import VERSION, PartitionVerifier
from klamm.server.transactions.producer_ids import ProducerIds
from klamm.server.transactions.transaction_coordinator import TransactionCoordinator, TransactionOptions
from klamm.server.transactions.transaction_recovery import TransactionRecovery

if TYPE_CHECKING:
    from klamm.server.security.outgoing_security import OutgoingSecurity


class TransactionParts(NamedTuple):
    """See the classes."""

    coordinator: TransactionCoordinator
    writer: MarkerWriter
    verifier: PartitionVerifier
    recovery: TransactionRecovery
    links: tuple[BrokerLinks, ...]
    """Connections to other brokers, for markers, for verifications and for recoveries."""

    def close(self) -> None:
        """This broker stops."""
        self.coordinator.close()
        for each in self.links:
            each.close()


def make_transaction_parts(
    config: BrokerConfig, replicas: ReplicaManager, groups: GroupCoordinator, producer_ids: ProducerIds, background: BackgroundTasks,
    clock: Clock, tap: BrokerTap | None = None, steering: Steering | None = None, security: OutgoingSecurity | None = None,
) -> TransactionParts:
    """The parts, connected with each other."""
    metadata, listener, timeout_ms = replicas.metadata, config.inter_broker_listener_name, config.get("request.timeout.ms")

    def find(broker_id: int) -> Endpoint | None:
        broker = metadata.brokers.get(broker_id)
        return None if broker is None else broker.endpoints.get(listener)

    def links(purpose: str) -> BrokerLinks:
        return BrokerLinks(f"broker-{replicas.broker_id}-{purpose}", find, timeout_ms / 1000, tap, clock, security)

    for_markers, for_verifications, for_recoveries = links("txn-marker-sender"), links("add-partitions-manager"), links("recovery")
    writer = MarkerWriter(replicas, groups, clock, timeout_ms)
    version = config.inter_broker_protocol_version.write_txn_markers_version
    sender = MarkerSender(metadata, writer, for_markers, background, version)
    coordinator = TransactionCoordinator(TransactionOptions.of(config), replicas, producer_ids, sender, background, clock, steering)
    verifier = PartitionVerifier(coordinator, metadata, for_verifications, background, _verification_version(config))
    leaves = config.get("kip704.recovery.transactions") == "leave"
    notes_loss = config.inter_broker_protocol_version.passes_over_unknown_records
    recovery = TransactionRecovery(replicas, coordinator, for_recoveries, clock, timeout_ms / 1000, steering, leaves, notes_loss)
    return TransactionParts(coordinator, writer, verifier, recovery, (for_markers, for_verifications, for_recoveries))


def _verification_version(config: BrokerConfig) -> int:
    """The version of AddPartitionsToTxn with which leaders verify."""
    if config.get("klamm.as.version") is None:
        return VERSION
    from klamm.configs.definitions.api_versions import offered_apis  # few brokers need it

    return min(VERSION, offered_apis(config.values).full[ApiKey.ADD_PARTITIONS_TO_TXN][1])
