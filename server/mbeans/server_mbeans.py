"""MBeans of the broker itself, of its ZooKeeper session, and of its coordinators."""

from __future__ import annotations

from functools import partial

from klamm.broker.coordinators.effects import AppendRecords
from klamm.broker.groups.states import GroupState
from klamm.broker.transactions.requests import SendMarkers
from klamm.server.mbeans.mbean import Kind, MBean, one
from klamm.server.mbeans.readings import BrokerReading

_SERVER = "kafka.server:type=KafkaServer,name="
_SESSION = "kafka.server:type=SessionExpireListener,name="
_GROUPS = "kafka.coordinator.group:type=GroupMetadataManager,name="


def _groups_in(reading: BrokerReading, state: GroupState) -> int:
    return sum(group.state is state for group in reading.services.groups.groups())


def _retries(reading: BrokerReading, kind: type[AppendRecords] | type[SendMarkers]) -> int:
    return sum(each.waiting(kind) for _, each in reading.services.transactions.partitions.loaded())


def _disconnects(reading: BrokerReading) -> int:
    zookeeper = reading.parts.zookeeper
    return zookeeper.connections - int(zookeeper.is_connected)


SERVER_MBEANS: tuple[MBean, ...] = (
    MBean(_SERVER + "BrokerState", Kind.GAUGE, "1 while the broker starts, 3 while it runs",
          read=one(lambda r: r.parts.state())),
    MBean(_SERVER + "ClusterId", Kind.GAUGE, "the id of the cluster", read=one(lambda reading: reading.services.identity.cluster_id)),
    MBean("kafka.server:type=MetadataLoader,name=CurrentControllerId", Kind.GAUGE, "the controller as this broker knows it, or -1",
          read=one(lambda reading: -1 if reading.services.metadata.controller_id is None else reading.services.metadata.controller_id)),
    MBean(_SESSION + "SessionState", Kind.GAUGE, "the state of the ZooKeeper session",
          read=one(lambda reading: "CONNECTED" if reading.parts.zookeeper.is_connected else "CONNECTING")),
    MBean(_SESSION + "ZooKeeperSyncConnectsPerSec", Kind.METER, "connections to ZooKeeper",
          read=one(lambda r: r.parts.zookeeper.connections)),
    MBean(_SESSION + "ZooKeeperDisconnectsPerSec", Kind.METER, "connections to ZooKeeper that were lost", read=one(_disconnects)),
    MBean(_SESSION + "ZooKeeperExpiresPerSec", Kind.METER, "sessions that expired", read=one(lambda r: r.parts.zookeeper.generation - 1)),
    MBean(_GROUPS + "NumGroups", Kind.GAUGE, "groups that this broker coordinates",
          read=one(lambda reading: sum(1 for _ in reading.services.groups.groups()))),
    *(
        MBean(f"{_GROUPS}NumGroups{state.value}", Kind.GAUGE, f"groups that this broker coordinates, in state `{state.value}`",
              read=one(partial(_groups_in, state=state)))
        for state in GroupState
    ),
    MBean(_GROUPS + "NumOffsets", Kind.GAUGE, "committed offsets of these groups",
          read=one(lambda reading: sum(len(group.offsets.committed) for group in reading.services.groups.groups()))),
    *(
        MBean(f"kafka.coordinator.transaction:type=TransactionMarkerChannelManager,name={name}",
              Kind.GAUGE, "what waits to be sent or appended again at the end of transactions",
              read=one(partial(_retries, kind=kind)))
        for name, kind in (("LogAppendRetryQueueSize", AppendRecords), ("UnknownDestinationQueueSize", SendMarkers))
    ),
    MBean("kafka.server:type=AddPartitionsToTxnManager,name=VerificationFailureRate", Kind.METER, "partitions that were not verified",
          read=one(lambda reading: reading.services.verifier.failures)),
)
