"""The steps of differences that were found by random rounds: played as one more round, so that each stays mended."""

from __future__ import annotations

import json
from typing import Any

from klamm.tests.permissions.steps import ADDRESSES, ADMIN, ALL_ACLS, EVERYTHING, USERS, Put, Sent, Step

_UNREADABLE = ("null", " ", "[]", '{"version":1.0,"acls":[]}', '{"version":true,"acls":[]}', '{"version":1,"acls":{}}')
_READ = {"principal": "User:bo", "permissionType": "Allow", "operation": "Read", "host": "*"}


def _literal(name: str, acls: Any, change: str, after: str = "") -> Put:
    return Put(f"/kafka-acl/{name}", json.dumps({"version": 1, "acls": acls}) + after, False, change)


def _prefixed(prefix: str, **change: Any) -> Put:
    said = {"version": 1, "resourceType": "TOPIC", "name": prefix, "patternType": "PREFIXED"} | change
    data = {"version": 1, "acls": [_READ]}
    return Put(f"/kafka-acl-extended/prefixed/Topic/{prefix}", json.dumps(data), True, json.dumps(said))


def _created(resource_type: int, name: str) -> Sent:
    creation = {
        "resourceType": resource_type, "resourceName": name, "resourcePatternType": 3, "principal": "User:al", "host": "*", "operation": 3,
        "permissionType": 3,
    }
    return Sent(ADMIN, ADDRESSES[0], "CreateAcls", 3, {"creations": [creation]})


def _of_al(api: str, version: int, **body: Any) -> Sent:
    return Sent(USERS[0], ADDRESSES[0], api, version, body)


def _offsets(version: int) -> Sent:
    topics = [{"name": "t", "partitionIndexes": [0]}]
    return Sent(USERS[0], ADDRESSES[0], "OffsetFetch", version, {"groupId": "g", "topics": topics})


_NAMES: list[tuple[str, list[int]]] = [("t", [0, 0]), ("u", []), ("t", [0])]
_MARKED: list[list[list[tuple[str, list[int]]]]] = [[[]], [_NAMES, []], [[], _NAMES], [[("u", [])]]]
_MARKER = {"producerId": 5, "producerEpoch": 0, "transactionResult": True, "coordinatorEpoch": 0}
_USER = {"entityType": "user", "entityName": "n"}
_FETCHED = {"partition": 0, "fetchOffset": 0, "partitionMaxBytes": 1000}
_REFUSED: tuple[Step, ...] = (
    # rows of requests that are refused are those that the request names, as often as it does, or each once
    *(_of_al("AddPartitionsToTxn", version, v3AndBelowTransactionalId="x", v3AndBelowTopics=[
        {"name": name, "partitions": numbers} for name, numbers in _NAMES
    ]) for version in (0, 3)),
    *(_of_al("WriteTxnMarkers", 1, markers=[
        {**_MARKER, "topics": [{"name": name, "partitionIndexes": numbers} for name, numbers in names]} for names in made
    ]) for made in _MARKED),
    *(_of_al("DescribeUserScramCredentials", 0, users=[{"name": name} for name in names]) for names in ("", "n", "nn", "nm")),
    _of_al("AlterClientQuotas", 1, entries=[{"entity": [_USER, {"entityType": "client-id", "entityName": "c"}, _USER], "ops": []}]),
    _of_al("OffsetFetch", 0, groupId="g", topics=[{"name": "t", "partitionIndexes": [0]}, {"name": "u", "partitionIndexes": []}]),
    # a share group needs CLUSTER_ACTION
    _of_al("FindCoordinator", 6, keyType=2, coordinatorKeys=["x"]), _of_al("FindCoordinator", 5, keyType=2, coordinatorKeys=["x"]),
    # an isolation level that does not exist counts if something is read
    *(_of_al("Fetch", 8, replicaId=-1, maxWaitMs=0, minBytes=0, maxBytes=1000, isolationLevel=7, sessionEpoch=-1, topics=[
        {"topic": name, "partitions": [_FETCHED]} for name in names
    ]) for names in ("t", "tu", "u")),
)

FOUND: tuple[Step, ...] = (
    *_REFUSED,
    _literal("Topic/u", [{**_READ, "principal": "User:al"}], "TOPIC:u"), *_REFUSED[-3:],
    # a group that is denied has no topics in version 1
    _literal("Group/g", [_READ], "GROUP:g"), _offsets(0), _offsets(1), _offsets(2),
    # names of notifications have underscores
    _literal("TransactionalId/x", [_READ], "TransactionalId:x"), EVERYTHING,
    _literal("TransactionalId/x", [_READ], "transactional_id:x"), EVERYTHING,
    # names of entries have none: others are unknown, and no response can name them
    _literal("Topic/t", [{**_READ, "operation": "Describe_Configs", "principal": "User:al"}, _READ], "TOPIC:t"), EVERYTHING,
    Sent(ADMIN, ADDRESSES[0], "DescribeAcls", 3, {**ALL_ACLS, "principalFilter": "User:bo"}),
    Sent(USERS[1], ADDRESSES[0], "Metadata", 12, {"topics": [{"name": "t"}], "includeTopicAuthorizedOperations": True}),
    _created(2, "t"),
    Sent(ADMIN, ADDRESSES[0], "DeleteAcls", 3, {"filters": [{**ALL_ACLS, "principalFilter": "User:al", "operation": 3}]}),
    _literal("Topic/t", [], "TOPIC:t"), EVERYTHING,
    # entries that are unreadable stay as they were
    *(step for entry in ({"operation": "Any"}, {"permissionType": "any"}, {"host": 3}, {"principal": "al"}) for step in (
        _literal("Topic/t", [{**_READ, **entry}], "TOPIC:t"), EVERYTHING,
    )),
    *(step for data in _UNREADABLE for step in (Put("/kafka-acl/Topic/t", data, False, "TOPIC:t"), _created(2, "t"))),
    # what is not JSON has no ACLs, and what follows an object is ignored
    Put("/kafka-acl/Topic/t", "{", False, "TOPIC:t"), _created(2, "t"), EVERYTHING,
    _literal("Topic/u", [_READ], "TOPIC:u", "x"), EVERYTHING,
    # the version of a notification may be a text or missing, not a later one; further properties are refused
    _prefixed("a", version="1"), _prefixed("b", version=2), _prefixed("c", version=None), _prefixed("d", version=True),
    _prefixed("e", version="x"), _prefixed("f", more=1), _prefixed("3", name=3), EVERYTHING,
)
