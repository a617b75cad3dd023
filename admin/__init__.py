"""A typed admin client of Kafka clusters, for threads and for asyncio.

It has the APIs of KIP-183, KIP-455 and KIP-179, the other calls that a reassignment tool needs, those for groups and their offsets, and
those for transactions. Settings of connections and exceptions are named as in kafka-python. docs/admin.md describes it.
"""

from klamm.admin.async_client import AsyncAdminClient
from klamm.admin.calls.errors import AdminError, BadResponse, Closed, Disconnected, NotAuthenticated, TimedOut, Unsupported
from klamm.admin.calls.results import Described, Listed, PartitionResult, Result
from klamm.admin.calls.values import (
    MAX_THROTTLE,
    AlterOperation,
    Broker,
    ClusterDescription,
    ConfigChange,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ElectionType,
    LogDir,
    LogDirReplica,
    LogOffset,
    OffsetSpec,
    PartitionDescription,
    Reassignment,
    ResourceType,
    TopicDescription,
    TopicPartition,
    TopicPartitionReplica,
)
from klamm.admin.client import AdminClient
from klamm.admin.groups.group_values import (
    CommittedOffset,
    GroupDescription,
    GroupState,
    GroupType,
    ListedGroup,
    MemberDescription,
    MemberToRemove,
)
from klamm.admin.metadata_log import MetadataLogPart
from klamm.admin.security.acls import Acl
from klamm.admin.security.client_quotas import QuotaEntity
from klamm.admin.security.scram_users import ScramPassword
from klamm.admin.topics import NewTopic
from klamm.admin.transactions.transaction_values import (
    ActiveProducer,
    ListedTransaction,
    ProducerIdAndEpoch,
    TransactionDescription,
    TransactionState,
)
from klamm.protocol.security.acls import Entry as AclEntry
from klamm.protocol.security.acls import Filter as AclFilter
from klamm.protocol.security.acls import Pattern as AclPattern

__all__ = [
    "MAX_THROTTLE", "Acl", "AclEntry", "AclFilter", "AclPattern",
    "ActiveProducer", "AdminClient", "AdminError", "AlterOperation", "AsyncAdminClient", "BadResponse", "Broker",
    "Closed", "ClusterDescription", "CommittedOffset", "ConfigChange", "ConfigEntry", "ConfigResource", "ConfigSource", "Described",
    "Disconnected", "ElectionType", "GroupDescription", "GroupState", "GroupType", "Listed", "ListedGroup", "ListedTransaction",
    "LogDir", "LogDirReplica", "LogOffset", "MemberDescription", "MemberToRemove", "MetadataLogPart", "NewTopic", "NotAuthenticated",
    "OffsetSpec", "PartitionDescription", "PartitionResult", "ProducerIdAndEpoch", "QuotaEntity", "Reassignment", "ResourceType", "Result",
    "ScramPassword", "TimedOut",
    "TopicDescription", "TopicPartition", "TopicPartitionReplica", "TransactionDescription", "TransactionState", "Unsupported",
]
