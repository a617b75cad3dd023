"""The APIs of a ZooKeeper-mode broker of 3.9, and which header version goes with which message.

One line per API: key, name, lowest and highest version, first flexible version (None: never) and whether it is a cluster action
(between brokers). Flexible versions use request header 2 and response header 1, the others 1 and 0. Two exceptions: an ApiVersions
answer has header 0 in every version, so that a client can read it before it knows the broker, and a ControlledShutdown request
of version 0 has header 0, which lacks the client id. Drafts are APIs of our own, served only when switched on.
"""

from __future__ import annotations

from typing import NamedTuple

API_VERSIONS = 18
CONTROLLED_SHUTDOWN = 7


class Api(NamedTuple):
    """One API: its range of versions, inclusive, and what its frames look like."""

    key: int
    name: str
    min_version: int
    max_version: int
    flexible_from: int | None
    cluster_action: bool = False
    draft: bool = False

    def is_flexible(self, version: int) -> bool:
        """Whether this version has compact lengths and tagged fields."""
        return self.flexible_from is not None and version >= self.flexible_from

    def request_header_version(self, version: int) -> int:
        """0: no client id; 1: with client id; 2: and tagged fields."""
        if self.key == CONTROLLED_SHUTDOWN and version == 0:
            return 0
        return 2 if self.is_flexible(version) else 1

    def response_header_version(self, version: int) -> int:
        """0: the correlation id alone; 1: and tagged fields."""
        return 1 if self.is_flexible(version) and self.key != API_VERSIONS else 0


_ALL = (
    Api(0, "Produce", 0, 11, 9),
    Api(1, "Fetch", 0, 17, 12),
    Api(2, "ListOffsets", 0, 9, 6),
    Api(3, "Metadata", 0, 12, 9),
    Api(4, "LeaderAndIsr", 0, 7, 4, cluster_action=True),
    Api(5, "StopReplica", 0, 4, 2, cluster_action=True),
    Api(6, "UpdateMetadata", 0, 8, 6, cluster_action=True),
    Api(7, "ControlledShutdown", 0, 3, 3, cluster_action=True),
    Api(8, "OffsetCommit", 0, 9, 8),
    Api(9, "OffsetFetch", 0, 9, 6),
    Api(10, "FindCoordinator", 0, 6, 3),
    Api(11, "JoinGroup", 0, 9, 6),
    Api(12, "Heartbeat", 0, 4, 4),
    Api(13, "LeaveGroup", 0, 5, 4),
    Api(14, "SyncGroup", 0, 5, 4),
    Api(15, "DescribeGroups", 0, 5, 5),
    Api(16, "ListGroups", 0, 5, 3),
    Api(17, "SaslHandshake", 0, 1, None),
    Api(18, "ApiVersions", 0, 4, 3),
    Api(19, "CreateTopics", 0, 7, 5),
    Api(20, "DeleteTopics", 0, 6, 4),
    Api(21, "DeleteRecords", 0, 2, 2),
    Api(22, "InitProducerId", 0, 5, 2),
    Api(23, "OffsetForLeaderEpoch", 0, 4, 4),
    Api(24, "AddPartitionsToTxn", 0, 5, 3),
    Api(25, "AddOffsetsToTxn", 0, 4, 3),
    Api(26, "EndTxn", 0, 4, 3),
    Api(27, "WriteTxnMarkers", 0, 1, 1, cluster_action=True),
    Api(28, "TxnOffsetCommit", 0, 4, 3),
    Api(29, "DescribeAcls", 0, 3, 2),
    Api(30, "CreateAcls", 0, 3, 2),
    Api(31, "DeleteAcls", 0, 3, 2),
    Api(32, "DescribeConfigs", 0, 4, 4),
    Api(33, "AlterConfigs", 0, 2, 2),
    Api(34, "AlterReplicaLogDirs", 0, 2, 2),
    Api(35, "DescribeLogDirs", 0, 4, 2),
    Api(36, "SaslAuthenticate", 0, 2, 2),
    Api(37, "CreatePartitions", 0, 3, 2),
    Api(38, "CreateDelegationToken", 0, 3, 2),
    Api(39, "RenewDelegationToken", 0, 2, 2),
    Api(40, "ExpireDelegationToken", 0, 2, 2),
    Api(41, "DescribeDelegationToken", 0, 3, 2),
    Api(42, "DeleteGroups", 0, 2, 2),
    Api(43, "ElectLeaders", 0, 2, 2),
    Api(44, "IncrementalAlterConfigs", 0, 1, 1),
    Api(45, "AlterPartitionReassignments", 0, 0, 0),
    Api(46, "ListPartitionReassignments", 0, 0, 0),
    Api(47, "OffsetDelete", 0, 0, None),
    Api(48, "DescribeClientQuotas", 0, 1, 1),
    Api(49, "AlterClientQuotas", 0, 1, 1),
    Api(50, "DescribeUserScramCredentials", 0, 0, 0),
    Api(51, "AlterUserScramCredentials", 0, 0, 0),
    Api(56, "AlterPartition", 0, 3, 0, cluster_action=True),
    Api(57, "UpdateFeatures", 0, 1, 0, cluster_action=True),
    Api(58, "Envelope", 0, 0, 0, cluster_action=True),
    Api(60, "DescribeCluster", 0, 1, 0),
    Api(61, "DescribeProducers", 0, 0, 0),
    Api(65, "DescribeTransactions", 0, 0, 0),
    Api(66, "ListTransactions", 0, 1, 0),
    Api(67, "AllocateProducerIds", 0, 0, 0, cluster_action=True),
    Api(68, "ConsumerGroupHeartbeat", 0, 0, 0),
    Api(69, "ConsumerGroupDescribe", 0, 0, 0),
    Api(100, "RegisterBroker", 0, 0, 0, cluster_action=True, draft=True),
    Api(101, "MetadataFetch", 0, 0, 0, cluster_action=True, draft=True),
    Api(1790, "ReassignPartitions", 0, 0, None, draft=True),
    Api(1791, "AlterInterbrokerThrottledRates", 0, 0, None, draft=True),
    Api(1792, "AlterInterbrokerThrottledReplicas", 0, 1, None, draft=True),
)

APIS: dict[int, Api] = {api.key: api for api in _ALL}
