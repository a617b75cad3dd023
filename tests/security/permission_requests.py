"""Requests of every API, made so that each permission that counts shows in the response, and none changes what later ones see.

A client may have permissions for what begins with `t` (topics), `g` (groups) and `x` (transactional ids), never for `u`, `h` and `y`. The
topics `t`, `u` and `td` exist, `tnix` and `unix` do not; `td` is deleted by a client that may. Most requests are wrong in a way that is
looked at after permissions.
"""

from __future__ import annotations

import base64
from typing import Any, NamedTuple

from klamm.tests.harness.batches import records_of

OWN = ["t", "u", "tnix", "unix"]


class Asked(NamedTuple):
    """A request: its API, what it is about, and its fields, as `answers.request` takes them."""

    api: str
    about: str
    body: dict[str, Any]


def _rows(names: list[str], key: str = "name", **fields: Any) -> list[dict[str, Any]]:
    return [{key: name, **fields} for name in names]


_RECORDS = base64.b64encode(records_of(["(a)"]) or b"").decode()
_STATE = {"partitionIndex": 0, "controllerEpoch": 0, "leader": 0, "leaderEpoch": 0, "isr": [0], "replicas": [0]}
_FETCH = [{"partition": 0, "fetchOffset": 0, "partitionMaxBytes": 1000}]
_ACL = {"resourceTypeFilter": 6, "resourceNameFilter": "n", "patternTypeFilter": 3, "operation": 1, "permissionType": 1}


def _fetch(replica_id: int) -> dict[str, Any]:
    topics = [{"topic": name, "topicId": f"<id {name}>", "partitions": _FETCH} for name in OWN]
    return {
        "replicaId": replica_id, "replicaState": {"replicaId": replica_id}, "maxWaitMs": 0, "minBytes": 0, "maxBytes": 1000,
        "sessionEpoch": -1, "topics": topics,
    }


def _list_offsets(replica_id: int) -> dict[str, Any]:
    partition = {"partitionIndex": 0, "timestamp": -2, "maxNumOffsets": 1}
    return {"replicaId": replica_id, "topics": _rows(OWN, partitions=[partition])}


def _resources(*kinds_and_names: tuple[int, str], **fields: Any) -> list[dict[str, Any]]:
    return [{"resourceType": kind, "resourceName": name, **fields} for kind, name in kinds_and_names]


def _offsets(group: str) -> dict[str, Any]:
    partition = {"partitionIndex": 0, "committedOffset": 3}
    return {"groupId": group, "generationIdOrMemberEpoch": -1, "topics": _rows(OWN, partitions=[partition])}


def _fetched(group: str, names: list[str] | None) -> dict[str, Any]:
    topics = None if names is None else _rows(names, partitionIndexes=[0])
    return {"groupId": group, "topics": topics, "groups": [{"groupId": group, "topics": topics}]}


def _txn_offsets(transactional_id: str, group: str) -> dict[str, Any]:
    partition = {"partitionIndex": 0, "committedOffset": 3}
    return {"transactionalId": transactional_id, "groupId": group, "topics": _rows(OWN, partitions=[partition])}


def _partitions_of(transactional_id: str, verifies: bool) -> dict[str, Any]:
    topics = _rows(OWN, partitions=[0])
    rows = [{"transactionalId": transactional_id, "verifyOnly": verifies, "topics": topics}]
    return {"transactions": rows, "v3AndBelowTransactionalId": transactional_id, "v3AndBelowTopics": topics}


_GROUPS = [
    Asked(api, group, body)
    for group in ("g", "h")
    for api, body in (
        ("OffsetCommit", _offsets(group)),
        ("OffsetFetch", _fetched(group, OWN)),
        ("FindCoordinator", {"key": group, "keyType": 0, "coordinatorKeys": [group]}),
        ("JoinGroup", {"groupId": group, "sessionTimeoutMs": 1, "protocolType": "consumer", "protocols": [{"name": "a", "metadata": ""}]}),
        ("Heartbeat", {"groupId": group, "memberId": "m"}),
        ("LeaveGroup", {"groupId": group, "memberId": "m", "members": [{"memberId": "m"}]}),
        ("SyncGroup", {"groupId": group, "memberId": "m"}),
        ("OffsetDelete", {"groupId": group, "topics": _rows(OWN, partitions=[{"partitionIndex": 0}])}),
    )
]
_TRANSACTIONS = [
    Asked(api, transactional_id, body)
    for transactional_id in ("x", "y")
    for api, body in (
        ("FindCoordinator", {"key": transactional_id, "keyType": 1, "coordinatorKeys": [transactional_id]}),
        ("InitProducerId", {"transactionalId": transactional_id, "transactionTimeoutMs": 0, "producerId": -1, "producerEpoch": -1}),
        ("AddPartitionsToTxn", _partitions_of(transactional_id, False)),
        ("AddOffsetsToTxn", {"transactionalId": transactional_id, "groupId": "g"}),
        ("AddOffsetsToTxn", {"transactionalId": transactional_id, "groupId": "h"}),
        ("EndTxn", {"transactionalId": transactional_id}),
        ("TxnOffsetCommit", _txn_offsets(transactional_id, "g")),
    )
]
REQUESTS: tuple[Asked, ...] = (
    Asked("Produce", "topics", {"acks": 1, "timeoutMs": 1000, "topicData": _rows(OWN, partitionData=[{"index": 0, "records": _RECORDS}])}),
    Asked("Produce", "x", {"transactionalId": "x", "acks": -1, "topicData": _rows(OWN, partitionData=[{"index": 0, "records": _RECORDS}])}),
    Asked("Fetch", "consumer", _fetch(-1)),
    Asked("Fetch", "follower", _fetch(7)),
    Asked("ListOffsets", "consumer", _list_offsets(-1)),
    Asked("ListOffsets", "follower", _list_offsets(7)),
    Asked("Metadata", "topics", {
        "topics": _rows(OWN), "includeClusterAuthorizedOperations": True, "includeTopicAuthorizedOperations": True,
    }),
    Asked("Metadata", "all", {"topics": None, "includeTopicAuthorizedOperations": True}),
    Asked("Metadata", "ids", {"topics": [{"name": None, "topicId": f"<id {name}>"} for name in OWN]}),
    Asked("Metadata", "creation", {"topics": _rows(["t/", "u/"]), "allowAutoTopicCreation": True}),
    Asked("LeaderAndIsr", "", {
        "controllerEpoch": -1, "brokerEpoch": -1, "ungroupedPartitionStates": [{"topicName": "t", **_STATE}],
        "topicStates": [{"topicName": "t", "topicId": "<id t>", "partitionStates": [_STATE]}],
    }),
    Asked("StopReplica", "", {
        "controllerEpoch": -1, "brokerEpoch": -1, "ungroupedPartitions": [{"topicName": "t", "partitionIndex": 0}],
        "topics": [{"name": "t", "partitionIndexes": [0]}], "topicStates": [{"topicName": "t", "partitionStates": [{"partitionIndex": 0}]}],
    }),
    Asked("UpdateMetadata", "", {"controllerEpoch": -1, "brokerEpoch": -1}),
    Asked("ControlledShutdown", "", {"brokerId": 99, "brokerEpoch": 1}),
    *_GROUPS,
    Asked("OffsetFetch", "all of g", _fetched("g", None)),
    Asked("FindCoordinator", "both", {"keyType": 0, "coordinatorKeys": ["g", "h"]}),
    Asked("DescribeGroups", "", {"groups": ["g", "h"], "includeAuthorizedOperations": True}),
    Asked("ListGroups", "", {}),
    Asked("CreateTopics", "", {
        "topics": [{"name": name, "numPartitions": 1, "replicationFactor": 9} for name in OWN], "timeoutMs": 5000, "validateOnly": True,
    }),
    Asked("CreateTopics", "configs", {
        "topics": [{"name": f"{name}new", "numPartitions": 1, "replicationFactor": 1} for name in "tu"], "validateOnly": True,
        "timeoutMs": 5000,
    }),
    Asked("DeleteTopics", "names", {
        "topics": _rows(["td", "u", "tnix", "unix"]), "topicNames": ["td", "u", "tnix", "unix"], "timeoutMs": 10_000,
    }),
    Asked("DeleteTopics", "ids", {"topics": [{"name": None, "topicId": "<id u>"}, {"name": None, "topicId": "<id tnix>"}]}),
    Asked("DeleteRecords", "", {"topics": _rows(OWN, partitions=[{"partitionIndex": 0, "offset": 0}]), "timeoutMs": 1000}),
    Asked("InitProducerId", "no transactional id", {"transactionTimeoutMs": 1, "producerId": -1, "producerEpoch": -1}),
    Asked("OffsetForLeaderEpoch", "consumer", {"replicaId": -1, "topics": _rows(OWN, "topic", partitions=[{"partition": 0}])}),
    Asked("OffsetForLeaderEpoch", "follower", {"replicaId": 7, "topics": _rows(OWN, "topic", partitions=[{"partition": 0}])}),
    *_TRANSACTIONS,
    Asked("AddPartitionsToTxn", "verification", _partitions_of("x", True)),
    Asked("WriteTxnMarkers", "", {"markers": [{"topics": _rows(["tnix"], partitionIndexes=[0])}]}),
    Asked("DescribeAcls", "", {**_ACL}),
    Asked("CreateAcls", "", {"creations": [{
        "resourceType": 4, "resourceName": "n", "resourcePatternType": 3, "principal": "User:a", "host": "*", "operation": 3,
        "permissionType": 3,
    }]}),
    Asked("DeleteAcls", "", {"filters": [_ACL]}),
    Asked("DescribeConfigs", "", {"resources": _resources(
        (2, "t"), (2, "u"), (2, "tnix"), (2, "unix"), (4, "0"), (8, "0"), configurationKeys=["retention.ms", "num.io.threads"],
    )}),
    Asked("AlterConfigs", "", {"resources": _resources(
        (2, "t"), (2, "u"), (2, "tnix"), (2, "unix"), (4, "0"), configs=[]
    ), "validateOnly": True}),
    Asked("IncrementalAlterConfigs", "", {"resources": _resources(
        (2, "t"), (2, "u"), (2, "tnix"), (2, "unix"), (4, "0"), (8, "0"), configs=[]
    ), "validateOnly": True}),
    Asked("AlterReplicaLogDirs", "", {"dirs": [{"path": "/nowhere", "topics": _rows(["t", "u"], partitions=[0])}]}),
    Asked("DescribeLogDirs", "", {"topics": _rows(["unix"], "topic", partitions=[0])}),
    Asked("CreatePartitions", "", {
        "topics": [{"name": name, "count": 1, "assignments": None} for name in OWN], "timeoutMs": 5000, "validateOnly": True,
    }),
    Asked("CreateDelegationToken", "", {}),
    Asked("RenewDelegationToken", "", {"hmac": "AQ=="}),
    Asked("ExpireDelegationToken", "", {"hmac": "AQ=="}),
    Asked("DescribeDelegationToken", "", {"owners": None}),
    Asked("DeleteGroups", "", {"groupsNames": ["gnix", "h"]}),
    Asked("ElectLeaders", "", {"topicPartitions": [{"topic": "t", "partitions": [0]}], "timeoutMs": 5000}),
    Asked("ElectLeaders", "all", {"topicPartitions": None, "timeoutMs": 5000}),
    Asked("AlterPartitionReassignments", "", {"topics": _rows(["t"], partitions=[{"partitionIndex": 0, "replicas": None}])}),
    Asked("ListPartitionReassignments", "", {"topics": None}),
    Asked("DescribeClientQuotas", "", {"components": [{"entityType": "user", "matchType": 0, "match": "n"}]}),
    Asked("AlterClientQuotas", "", {"entries": [{
        "entity": [{"entityType": "user", "entityName": "n"}], "ops": [{"key": "producer_byte_rate", "value": 1.0, "remove": False}],
    }], "validateOnly": True}),
    Asked("DescribeUserScramCredentials", "", {"users": _rows(["n"])}),
    Asked("AlterUserScramCredentials", "", {"deletions": _rows(["n"], mechanism=1)}),
    Asked("AlterPartition", "", {"brokerId": 99, "brokerEpoch": 1, "topics": []}),
    Asked("UpdateFeatures", "", {"featureUpdates": [{"feature": "n", "maxVersionLevel": 1, "upgradeType": 1}], "timeoutMs": 5000}),
    Asked("DescribeCluster", "", {"includeClusterAuthorizedOperations": True, "endpointType": 1}),
    Asked("DescribeProducers", "", {"topics": _rows(["u", "tnix", "unix"], partitionIndexes=[0])}),
    Asked("DescribeTransactions", "", {"transactionalIds": ["xnix", "ynix"]}),
    Asked("ListTransactions", "", {}),
    Asked("AllocateProducerIds", "", {"brokerId": 99, "brokerEpoch": 1}),
    Asked("ConsumerGroupHeartbeat", "", {"groupId": "g"}),
    Asked("ConsumerGroupDescribe", "", {"groupIds": ["g", "h"], "includeAuthorizedOperations": True}),
)
