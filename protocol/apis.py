"""The APIs of a ZooKeeper-mode broker of 3.9, and the header versions of their messages.

There is one row for each API: key, name, lowest and highest version, first flexible version (None: never), and what its requests are: who
sends them, whether they only read, and so on. Sets of APIs are made of these facts. A few facts stand beside what uses them: masks of
secrets (`security/redaction.py`), and where a message names topics, which follows from its definition.

Flexible versions use request header 2 and response header 1, the others 1 and 0. There are two exceptions. An ApiVersions response has
header 0 in every version, so that a client can read it before it knows the broker. A ControlledShutdown request of version 0 has header 0,
without a client id. Drafts are APIs that 3.9 does not have: from draft KIPs, or of Kafka 4. They are only supported if their feature is on.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import NamedTuple


class ApiKey(IntEnum):
    """API keys, as in the header of a request."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    LEADER_AND_ISR = 4
    STOP_REPLICA = 5
    UPDATE_METADATA = 6
    CONTROLLED_SHUTDOWN = 7
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    ALTER_PARTITION = 56
    DESCRIBE_QUORUM = 55
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92
    STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE = 93
    UNREGISTER_CONTROLLER = 94
    REGISTER_BROKER = 100
    METADATA_FETCH = 101
    REASSIGN_PARTITIONS = 1790
    ALTER_INTERBROKER_THROTTLED_RATES = 1791
    ALTER_INTERBROKER_THROTTLED_REPLICAS = 1792
    END_PENDING_TRANSACTIONS = 7040


class SentBy(Enum):
    """Who sends requests of an API."""

    CLIENTS = "clients"
    BOTH = "clients and brokers"
    BROKERS = "brokers"
    CONTROLLER = "the controller, to brokers"


class About(Enum):
    """What the requests of an API are about, if a coordinator keeps it."""

    GROUPS = "groups"
    TRANSACTIONS = "transactions"


class Draft(Enum):
    """A feature with APIs that Kafka 3.9 does not have: those of draft KIPs, and those of Kafka 4. For a broker that stands for Kafka 4,
    what brokers of Klamm send each other is of Kafka 3.
    """

    KIP_179 = "KIP-179"
    REGISTER_BROKER = "RegisterBroker"
    KIP_704 = "KIP-704"
    KAFKA_4 = "Kafka 4"
    KAFKA_3 = "Kafka 3"


class Api(NamedTuple):
    """One API: its lowest and highest version, the form of its frames, and what its requests are.

    `cluster_action`: they need this operation on the cluster. `draft`: it is of a draft KIP. `reads`: they change nothing.
    `to_controller`: only the active controller can do it. `is_unmeasured`: client quotas do not apply. `newest`: the last version of
    Kafka 4.4, where 3.9 has an older one; only brokers with `klamm.as.version` of Kafka 4 offer those.
    """

    key: ApiKey
    name: str
    min_version: int
    max_version: int
    flexible_from: int | None
    cluster_action: bool = False
    draft: Draft | None = None
    sent_by: SentBy = SentBy.CLIENTS
    reads: bool = False
    to_controller: bool = False
    is_unmeasured: bool = False
    about: About | None = None
    newest: int = -1

    @property
    def last_version(self) -> int:
        """The newest version that Klamm reads and writes."""
        return max(self.max_version, self.newest)

    @property
    def is_of_clients(self) -> bool:
        """Whether clients send it, alone or with brokers."""
        return self.sent_by in (SentBy.CLIENTS, SentBy.BOTH)

    def is_flexible(self, version: int) -> bool:
        """Whether this version has compact lengths and tagged fields."""
        return self.flexible_from is not None and version >= self.flexible_from

    def request_header_version(self, version: int) -> int:
        """0: without client id; 1: with client id; 2: with client id and tagged fields."""
        if self.key is ApiKey.CONTROLLED_SHUTDOWN and version == 0:
            return 0
        return 2 if self.is_flexible(version) else 1

    def response_header_version(self, version: int) -> int:
        """0: only the correlation id; 1: correlation id and tagged fields."""
        return 1 if self.is_flexible(version) and self.key is not ApiKey.API_VERSIONS else 0


_ALL = (
    Api(ApiKey.PRODUCE, "Produce", 0, 11, 9, newest=13),
    Api(ApiKey.FETCH, "Fetch", 0, 17, 12, newest=18, sent_by=SentBy.BOTH, reads=True),
    Api(ApiKey.LIST_OFFSETS, "ListOffsets", 0, 9, 6, newest=11, sent_by=SentBy.BOTH, reads=True),
    Api(ApiKey.METADATA, "Metadata", 0, 12, 9, newest=13, reads=True),
    Api(ApiKey.LEADER_AND_ISR, "LeaderAndIsr", 0, 7, 4, cluster_action=True, sent_by=SentBy.CONTROLLER, is_unmeasured=True),
    Api(ApiKey.STOP_REPLICA, "StopReplica", 0, 4, 2, cluster_action=True, sent_by=SentBy.CONTROLLER, is_unmeasured=True),
    Api(ApiKey.UPDATE_METADATA, "UpdateMetadata", 0, 8, 6, cluster_action=True, sent_by=SentBy.CONTROLLER, is_unmeasured=True),
    Api(
        ApiKey.CONTROLLED_SHUTDOWN, "ControlledShutdown", 0, 3, 3, cluster_action=True, sent_by=SentBy.BROKERS, to_controller=True,
        is_unmeasured=True,
    ),
    Api(ApiKey.OFFSET_COMMIT, "OffsetCommit", 0, 9, 8, newest=10, about=About.GROUPS),
    Api(ApiKey.OFFSET_FETCH, "OffsetFetch", 0, 9, 6, newest=10, reads=True, about=About.GROUPS),
    Api(ApiKey.FIND_COORDINATOR, "FindCoordinator", 0, 6, 3, reads=True),
    Api(ApiKey.JOIN_GROUP, "JoinGroup", 0, 9, 6, about=About.GROUPS),
    Api(ApiKey.HEARTBEAT, "Heartbeat", 0, 4, 4, about=About.GROUPS),
    Api(ApiKey.LEAVE_GROUP, "LeaveGroup", 0, 5, 4, about=About.GROUPS),
    Api(ApiKey.SYNC_GROUP, "SyncGroup", 0, 5, 4, about=About.GROUPS),
    Api(ApiKey.DESCRIBE_GROUPS, "DescribeGroups", 0, 5, 5, newest=6, reads=True, about=About.GROUPS),
    Api(ApiKey.LIST_GROUPS, "ListGroups", 0, 5, 3, reads=True, about=About.GROUPS),
    Api(ApiKey.SASL_HANDSHAKE, "SaslHandshake", 0, 1, None),
    Api(ApiKey.API_VERSIONS, "ApiVersions", 0, 4, 3, newest=5, reads=True),
    Api(ApiKey.CREATE_TOPICS, "CreateTopics", 0, 7, 5, to_controller=True),
    Api(ApiKey.DELETE_TOPICS, "DeleteTopics", 0, 6, 4, to_controller=True),
    Api(ApiKey.DELETE_RECORDS, "DeleteRecords", 0, 2, 2),
    Api(ApiKey.INIT_PRODUCER_ID, "InitProducerId", 0, 5, 2, about=About.TRANSACTIONS),
    Api(ApiKey.OFFSET_FOR_LEADER_EPOCH, "OffsetForLeaderEpoch", 0, 4, 4, sent_by=SentBy.BOTH, reads=True),
    Api(ApiKey.ADD_PARTITIONS_TO_TXN, "AddPartitionsToTxn", 0, 5, 3, sent_by=SentBy.BOTH, about=About.TRANSACTIONS),
    Api(ApiKey.ADD_OFFSETS_TO_TXN, "AddOffsetsToTxn", 0, 4, 3, about=About.TRANSACTIONS),
    Api(ApiKey.END_TXN, "EndTxn", 0, 4, 3, newest=5, about=About.TRANSACTIONS),
    Api(
        ApiKey.WRITE_TXN_MARKERS, "WriteTxnMarkers", 0, 1, 1, newest=2, cluster_action=True, sent_by=SentBy.BOTH, is_unmeasured=True,
        about=About.TRANSACTIONS,
    ),
    Api(ApiKey.TXN_OFFSET_COMMIT, "TxnOffsetCommit", 0, 4, 3, newest=6, about=About.TRANSACTIONS),
    Api(ApiKey.DESCRIBE_ACLS, "DescribeAcls", 0, 3, 2, reads=True),
    Api(ApiKey.CREATE_ACLS, "CreateAcls", 0, 3, 2),
    Api(ApiKey.DELETE_ACLS, "DeleteAcls", 0, 3, 2),
    Api(ApiKey.DESCRIBE_CONFIGS, "DescribeConfigs", 0, 4, 4, reads=True),
    Api(ApiKey.ALTER_CONFIGS, "AlterConfigs", 0, 2, 2),
    Api(ApiKey.ALTER_REPLICA_LOG_DIRS, "AlterReplicaLogDirs", 0, 2, 2),
    Api(ApiKey.DESCRIBE_LOG_DIRS, "DescribeLogDirs", 0, 4, 2, newest=5, reads=True),
    Api(ApiKey.SASL_AUTHENTICATE, "SaslAuthenticate", 0, 2, 2),
    Api(ApiKey.CREATE_PARTITIONS, "CreatePartitions", 0, 3, 2, to_controller=True),
    Api(ApiKey.CREATE_DELEGATION_TOKEN, "CreateDelegationToken", 0, 3, 2),
    Api(ApiKey.RENEW_DELEGATION_TOKEN, "RenewDelegationToken", 0, 2, 2),
    Api(ApiKey.EXPIRE_DELEGATION_TOKEN, "ExpireDelegationToken", 0, 2, 2),
    Api(ApiKey.DESCRIBE_DELEGATION_TOKEN, "DescribeDelegationToken", 0, 3, 2, reads=True),
    Api(ApiKey.DELETE_GROUPS, "DeleteGroups", 0, 2, 2, newest=3, about=About.GROUPS),
    Api(ApiKey.ELECT_LEADERS, "ElectLeaders", 0, 2, 2, to_controller=True),
    Api(ApiKey.INCREMENTAL_ALTER_CONFIGS, "IncrementalAlterConfigs", 0, 1, 1),
    Api(ApiKey.ALTER_PARTITION_REASSIGNMENTS, "AlterPartitionReassignments", 0, 0, 0, newest=1, to_controller=True),
    Api(ApiKey.LIST_PARTITION_REASSIGNMENTS, "ListPartitionReassignments", 0, 0, 0, reads=True, to_controller=True),
    Api(ApiKey.OFFSET_DELETE, "OffsetDelete", 0, 0, None, about=About.GROUPS),
    Api(ApiKey.DESCRIBE_CLIENT_QUOTAS, "DescribeClientQuotas", 0, 1, 1, reads=True),
    Api(ApiKey.ALTER_CLIENT_QUOTAS, "AlterClientQuotas", 0, 1, 1),
    Api(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, "DescribeUserScramCredentials", 0, 0, 0, reads=True),
    Api(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, "AlterUserScramCredentials", 0, 0, 0, to_controller=True),
    Api(
        ApiKey.ALTER_PARTITION, "AlterPartition", 0, 3, 0, cluster_action=True, sent_by=SentBy.BROKERS, to_controller=True,
        is_unmeasured=True,
    ),
    Api(ApiKey.UPDATE_FEATURES, "UpdateFeatures", 0, 1, 0, newest=2, cluster_action=True, to_controller=True),
    Api(ApiKey.ENVELOPE, "Envelope", 0, 0, 0, cluster_action=True, sent_by=SentBy.BROKERS, to_controller=True),
    Api(ApiKey.DESCRIBE_CLUSTER, "DescribeCluster", 0, 1, 0, newest=2, reads=True),
    Api(ApiKey.DESCRIBE_PRODUCERS, "DescribeProducers", 0, 0, 0, reads=True),
    Api(ApiKey.DESCRIBE_TRANSACTIONS, "DescribeTransactions", 0, 0, 0, reads=True, about=About.TRANSACTIONS),
    Api(ApiKey.LIST_TRANSACTIONS, "ListTransactions", 0, 1, 0, newest=2, reads=True, about=About.TRANSACTIONS),
    Api(ApiKey.ALLOCATE_PRODUCER_IDS, "AllocateProducerIds", 0, 0, 0, cluster_action=True, sent_by=SentBy.BROKERS, to_controller=True),
    Api(ApiKey.CONSUMER_GROUP_HEARTBEAT, "ConsumerGroupHeartbeat", 0, 0, 0, newest=1, about=About.GROUPS),
    Api(ApiKey.CONSUMER_GROUP_DESCRIBE, "ConsumerGroupDescribe", 0, 0, 0, newest=1, reads=True, about=About.GROUPS),
    Api(ApiKey.DESCRIBE_QUORUM, "DescribeQuorum", 0, 2, 0, draft=Draft.KAFKA_4, reads=True),
    Api(ApiKey.UNREGISTER_BROKER, "UnregisterBroker", 0, 0, 0, draft=Draft.KAFKA_4),
    Api(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, "GetTelemetrySubscriptions", 0, 0, 0, draft=Draft.KAFKA_4),
    Api(ApiKey.PUSH_TELEMETRY, "PushTelemetry", 0, 0, 0, draft=Draft.KAFKA_4),
    Api(ApiKey.LIST_CONFIG_RESOURCES, "ListConfigResources", 0, 1, 0, draft=Draft.KAFKA_4, reads=True),
    Api(ApiKey.DESCRIBE_TOPIC_PARTITIONS, "DescribeTopicPartitions", 0, 0, 0, draft=Draft.KAFKA_4, reads=True),
    Api(ApiKey.SHARE_GROUP_HEARTBEAT, "ShareGroupHeartbeat", 1, 1, 0, draft=Draft.KAFKA_4),
    Api(ApiKey.SHARE_GROUP_DESCRIBE, "ShareGroupDescribe", 1, 1, 0, draft=Draft.KAFKA_4, reads=True),
    Api(ApiKey.SHARE_FETCH, "ShareFetch", 1, 2, 0, draft=Draft.KAFKA_4),
    Api(ApiKey.SHARE_ACKNOWLEDGE, "ShareAcknowledge", 1, 2, 0, draft=Draft.KAFKA_4),
    Api(ApiKey.ADD_RAFT_VOTER, "AddRaftVoter", 0, 1, 0, draft=Draft.KAFKA_4),
    Api(ApiKey.REMOVE_RAFT_VOTER, "RemoveRaftVoter", 0, 0, 0, draft=Draft.KAFKA_4),
    Api(ApiKey.INITIALIZE_SHARE_GROUP_STATE, "InitializeShareGroupState", 0, 0, 0, draft=Draft.KAFKA_4, cluster_action=True),
    Api(ApiKey.READ_SHARE_GROUP_STATE, "ReadShareGroupState", 0, 0, 0, draft=Draft.KAFKA_4, cluster_action=True),
    Api(ApiKey.WRITE_SHARE_GROUP_STATE, "WriteShareGroupState", 0, 1, 0, draft=Draft.KAFKA_4, cluster_action=True),
    Api(ApiKey.DELETE_SHARE_GROUP_STATE, "DeleteShareGroupState", 0, 0, 0, draft=Draft.KAFKA_4, cluster_action=True),
    Api(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, "ReadShareGroupStateSummary", 0, 1, 0, draft=Draft.KAFKA_4, cluster_action=True),
    Api(ApiKey.STREAMS_GROUP_HEARTBEAT, "StreamsGroupHeartbeat", 0, 1, 0, draft=Draft.KAFKA_4),
    Api(ApiKey.STREAMS_GROUP_DESCRIBE, "StreamsGroupDescribe", 0, 1, 0, draft=Draft.KAFKA_4, reads=True),
    Api(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, "DescribeShareGroupOffsets", 0, 1, 0, draft=Draft.KAFKA_4, reads=True),
    Api(ApiKey.ALTER_SHARE_GROUP_OFFSETS, "AlterShareGroupOffsets", 0, 0, 0, draft=Draft.KAFKA_4),
    Api(ApiKey.DELETE_SHARE_GROUP_OFFSETS, "DeleteShareGroupOffsets", 0, 0, 0, draft=Draft.KAFKA_4),
    Api(ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE, "StreamsGroupTopologyDescriptionUpdate", 0, 0, 0, draft=Draft.KAFKA_4),
    Api(ApiKey.UNREGISTER_CONTROLLER, "UnregisterController", 0, 0, 0, draft=Draft.KAFKA_4),
    Api(
        ApiKey.REGISTER_BROKER, "RegisterBroker", 0, 0, 0, cluster_action=True, draft=Draft.REGISTER_BROKER, sent_by=SentBy.BROKERS,
        to_controller=True, is_unmeasured=True,
    ),
    Api(
        ApiKey.METADATA_FETCH, "MetadataFetch", 0, 0, 0, cluster_action=True, draft=Draft.REGISTER_BROKER, sent_by=SentBy.BROKERS,
        reads=True, to_controller=True, is_unmeasured=True,
    ),
    Api(ApiKey.REASSIGN_PARTITIONS, "ReassignPartitions", 0, 0, None, draft=Draft.KIP_179),
    Api(ApiKey.ALTER_INTERBROKER_THROTTLED_RATES, "AlterInterbrokerThrottledRates", 0, 0, None, draft=Draft.KIP_179),
    Api(ApiKey.ALTER_INTERBROKER_THROTTLED_REPLICAS, "AlterInterbrokerThrottledReplicas", 0, 1, None, draft=Draft.KIP_179),
    Api(
        ApiKey.END_PENDING_TRANSACTIONS, "EndPendingTransactions", 0, 0, 0, cluster_action=True, draft=Draft.KIP_704,
        sent_by=SentBy.BROKERS, is_unmeasured=True, about=About.TRANSACTIONS,
    ),
)

APIS: dict[int, Api] = {api.key: api for api in _ALL}

OF_CONTROLLERS = tuple(api.key for api in _ALL if api.sent_by is SentBy.CONTROLLER)
"""Keys of what an active controller sends to brokers."""

ONLY_OF_BROKERS = frozenset(key for key, api in APIS.items() if not api.is_of_clients)
"""Keys of the APIs that brokers and controllers alone call. UpdateFeatures comes from admin clients, and WriteTxnMarkers too
(`Admin.abortTransaction`)."""

BROKER_SOFTWARE, ADMIN_SOFTWARE = "klamm", "klamm-admin"
"""The software names that Klamm's brokers and its admin client send in ApiVersions. Only these see the APIs of drafts (ADR 24)."""

SOFTWARE_VERSION = "3.9.1"
"""The software version beside the name: that of the protocol."""
