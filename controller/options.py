"""The configs that the controller uses. The broker makes them from its own configs.

They do not change while an event is processed: an OptionsChanged event replaces them.
"""

from __future__ import annotations

from klamm.seams.value_class import dataclass


@dataclass(frozen=True, slots=True)
class ControllerOptions:
    """Defaults are those of Kafka 3.9 (controller 13.3, 20)."""

    unclean_leader_election_enable: bool = False
    delete_topic_enable: bool = True
    auto_leader_rebalance_enable: bool = True
    leader_imbalance_per_broker_percentage: int = 10
    leader_imbalance_check_interval_seconds: float = 300
    inter_broker_listener: str = "PLAINTEXT"
    control_plane_listener: str | None = None
    leader_and_isr_version: int = 7
    update_metadata_version: int = 8
    stop_replica_version: int = 4
    leader_recovery_supported: bool = True
    topic_ids_supported: bool = True
    kip179_enable: bool = True
    kip491_enable: bool = True
    registerbroker_enable: bool = False
    """Whether brokers may register with the controller. This needs topic ids."""
    broker_session_timeout_ms: int = 9000
    broker_heartbeat_interval_ms: int = 2000
    metadata_log_bytes: int = 64 << 20
    """Approximate limit of the memory of the metadata log, which exists only if brokers may register with the controller."""
    alter_partition_supported: bool = True
    """Whether leaders change ISRs with AlterPartition. With an older inter-broker protocol they write them to ZooKeeper."""

    @property
    def channel_listener(self) -> str:
        """Name of the listener at which the controller connects to brokers."""
        return self.inter_broker_listener if self.control_plane_listener is None else self.control_plane_listener
