"""Takes from bodies what rules read of them: the rows of the table `fields` (`lake/field_columns.py`).

Rules need a few fields of some APIs. They are taken from a body once, where it is decoded, so that no query has to look into bodies. Lists
of structures have Kafka's names inside. A row is made for each frame of these APIs, but of Fetch only if it can matter to
`read_committed`, and of ApiVersions only the first of equal responses.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Iterable
from hashlib import md5
from struct import Struct
from typing import Any
from zlib import crc32

from klamm.pipeline.decode.json_codec import Body
from klamm.protocol.apis import ApiKey

Values = dict[str, Any]
"""Column → value. A column that is not there is null."""

Texts = list[str | None] | None

NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
HEADER_BYTES = 61
"""Bytes of the header of a batch of records."""
_MAGIC = 16
"""Where the magic of a batch or message is."""
_PRODUCER = Struct(">17xI2xi16xqhi").unpack_from
"""Of the header: checksum, last offset within the batch, producer id, producer epoch, first sequence number."""
_PRODUCER_BYTES = 57
_CONTENT = slice(23, 43)
"""Of the header: last offset, first and last time. Records that are sent again under another epoch keep them, and their size."""
LATEST = -1
"""The timestamp with which ListOffsets asks for the end of a partition."""

Reader = Callable[[int, Body, bytes], Values | None]
"""Version, body and its JSON → what rules read of it; None if that is nothing."""


def _names_of(rows: Iterable[Any] | None, name: str = "name", other: str = "") -> Texts:
    """A field of each element, or another one where the first is null."""
    if rows is None:
        return None
    if other:
        return [None if row is None else row.get(other) if row.get(name) is None else row[name] for row in rows]
    return [None if row is None else row.get(name) for row in rows]


def _pairs(topics: Iterable[Any] | None, inner: str, index: str, name: str = "name") -> Texts:
    """`topic-partition` of a list of topics with a list inside each; null if such a list is."""
    if topics is None:
        return None
    found: list[str | None] = []
    for topic in topics:
        rows = None if topic is None else topic.get(inner)
        if rows is None:
            return None
        said = topic.get(name)
        for row in rows:
            number = row if not index else None if row is None else row.get(index)
            found.append(None if said is None or number is None else f"{said}-{number}")
    return found


def _flat_pairs(rows: Iterable[Any] | None) -> Texts:
    if rows is None:
        return None
    return [
        f"{row['topicName']}-{row['partitionIndex']}" if row and row.get("topicName") is not None and row.get("partitionIndex") is not None
        else None
        for row in rows
    ]


def _codes_of(rows: Iterable[Any] | None, inner: str = "", code: str = "errorCode") -> list[Any] | None:
    """The code of each element, or of each element of the list inside each."""
    if rows is None:
        return None
    if not inner:
        return [None if row is None else row.get(code) for row in rows]
    found: list[Any] = []
    for row in rows:
        codes = _codes_of(None if row is None else row.get(inner))
        if codes is None:
            return None
        found += codes
    return found


def _first(body: Body, *names: str) -> Any:
    """The first of these fields that is not null."""
    return next((value for value in map(body.get, names) if value is not None), None)


def _sorted(ids: list[Any] | None) -> list[Any] | None:
    """With nulls last."""
    return None if ids is None else sorted(ids, key=lambda one: (one is None, one or 0))


def _produce(version: int, body: Body, text: bytes) -> Values:
    topics = body.get("topicData")
    transactional = body.get("transactionalId")
    found: Values = {"names": _pairs(topics, "partitionData", "index"), "acks": body.get("acks"), "sequences": _sequences(topics)}
    return found if transactional is None else found | {"transactional_id": transactional, "produced": topics}


def _sequences(topics: Iterable[Any] | None) -> list[Values] | None:
    """The first sequence number of each batch with a producer id, and batches of which that is not known; None if there are none.

    A request has one batch for each partition.
    """
    found: list[Values] = []
    for topic in topics or ():
        for row in topic.get("partitionData") or ():
            records = row.get("records") or {}
            head = b64decode(records.get("head") or "")
            place = {"name": topic.get("name"), "index": row.get("index")}
            if len(head) > _MAGIC and head[_MAGIC] < 2:
                continue
            if len(head) < _PRODUCER_BYTES:
                found.append(place)
                continue
            crc, last, producer_id, epoch, sequence = _PRODUCER(head)
            if producer_id >= 0:
                content = crc32(head[_CONTENT], records.get("size", 0) & 0xFFFFFFFF)
                found.append(place | {
                    "producerId": producer_id, "producerEpoch": epoch, "baseSequence": sequence, "records": last + 1, "crc": crc,
                    "content": content,
                })
    return found or None


def _produced(version: int, body: Body, text: bytes) -> Values:
    topics = body.get("responses")
    return {"names": _pairs(topics, "partitionResponses", "index"), "offsets": topics}


def _fetch(version: int, body: Body, text: bytes) -> Values | None:
    return {"isolation_level": 1} if body.get("isolationLevel") == 1 else None


def _fetched(version: int, body: Body, text: bytes) -> Values | None:
    topics = []
    for topic in body.get("responses") or ():
        rows = [row for row in topic.get("partitions") or () if (row.get("records") or {}).get("size", 0) >= HEADER_BYTES]
        if rows:
            topics.append({**topic, "partitions": rows})
    return {"records": topics} if topics else None


def _list_offsets(version: int, body: Body, text: bytes) -> Values:
    topics = body.get("topics")
    names = _pairs(topics, "partitions", "partitionIndex")
    times = [
        {"name": topic["name"], "partitionIndex": row["partitionIndex"], "timestamp": row["timestamp"]}
        for topic in topics or () if version for row in topic.get("partitions") or () if row["timestamp"] >= 0
    ]
    found: Values = {"names": names, "times": times} if times else {"names": names}
    if body.get("replicaId") != -1 or body.get("isolationLevel"):
        return found
    asked = [
        {**topic, "partitions": [row for row in topic.get("partitions") or () if row.get("timestamp") == LATEST]} for topic in topics or ()
    ]
    return found | {"latest": _pairs(asked, "partitions", "partitionIndex")}


def _listed_offsets(version: int, body: Body, text: bytes) -> Values:
    topics = body.get("topics")
    return {"names": _pairs(topics, "partitions", "partitionIndex"), "listed": topics}


def _metadata(version: int, body: Body, text: bytes) -> Values:
    topics = body.get("topics")
    is_odd = topics is not None and any(row and row.get("name") is None and row.get("topicId") == NO_ID for row in topics)
    if version == 0 and not topics:
        return {"is_odd": False}
    # Where an element of a request of version 12 has an id, names do not count, nor do elements without an id.
    ids = [row["topicId"] for row in topics or () if row and row.get("topicId") not in (None, NO_ID)]
    return {"names": ids if version >= 12 and ids else _names_of(topics, "name", "topicId"), "is_odd": is_odd}


def _metadata_told(version: int, body: Body, text: bytes) -> Values:
    topics = body.get("topics")
    return {"names": _names_of(topics), "ids": _names_of(topics, "topicId")}


def _told(names: Texts, live: list[Any] | None, body: Body, text: bytes) -> Values:
    """A request of a controller."""
    return {
        "names": names, "live": _sorted(live), "controller_id": body.get("controllerId"), "controller_epoch": body.get("controllerEpoch"),
        "broker_epoch": body.get("brokerEpoch"), "digest": md5(text, usedforsecurity=False).hexdigest(),
    }


def _leader_and_isr(version: int, body: Body, text: bytes) -> Values:
    if version >= 2:
        names = _pairs(body.get("topicStates"), "partitionStates", "partitionIndex", "topicId" if version >= 5 else "topicName")
    else:
        names = _flat_pairs(body.get("ungroupedPartitionStates"))
    return _told(names, _codes_of(body.get("liveLeaders"), code="brokerId"), body, text)


def _leader_and_isr_done(version: int, body: Body, text: bytes) -> Values:
    topics, flat = body.get("topics"), body.get("partitionErrors")
    names = _pairs(topics, "partitionErrors", "partitionIndex", "topicId") if version >= 5 else _flat_pairs(flat)
    refused = [
        {**row, "topicId": topic.get("topicId")}
        for topic in (*(topics or ()), {"partitionErrors": flat})
        if topic
        for row in topic.get("partitionErrors") or ()
        if row and row.get("errorCode")
    ]
    return {"names": names, "refused": refused} if refused else {"names": names}


def _stop_replica(version: int, body: Body, text: bytes) -> Values:
    if version >= 3:
        names = _pairs(body.get("topicStates"), "partitionStates", "partitionIndex", "topicName")
    else:
        names = _pairs(body.get("topics"), "partitionIndexes", "") if version >= 1 else _flat_pairs(body.get("ungroupedPartitions"))
    return _told(names, None, body, text)


def _stop_replica_done(version: int, body: Body, text: bytes) -> Values:
    return {"names": _flat_pairs(body.get("partitionErrors"))}


def _update_metadata(version: int, body: Body, text: bytes) -> Values:
    return _told(None, _codes_of(body.get("liveBrokers"), code="id"), body, text)


def _alter(version: int, body: Body, text: bytes) -> Values:
    return {"broker_id": body.get("brokerId"), "altered": body.get("topics")}


def _alter_done(version: int, body: Body, text: bytes) -> Values:
    return {"alterations": body.get("topics")}


def _api_versions_told(version: int, body: Body, text: bytes) -> Values:
    rows = body.get("apiKeys")
    if rows is None:
        return {}
    advertised = [
        {"key": row.get("apiKey"), "low": row.get("minVersion"), "high": row.get("maxVersion")} if row is not None else {} for row in rows
    ]
    features = [{"name": row["name"], "level": row["maxVersionLevel"]} for row in body.get("finalizedFeatures") or ()]
    return {"advertised": advertised, "features": features} if features else {"advertised": advertised}


def _create(version: int, body: Body, text: bytes) -> Values:
    topics = body.get("topics")
    return {"names": _names_of(topics), "is_validated": body.get("validateOnly"), "sizes": _codes_of(topics, code="count")}


def _create_done(version: int, body: Body, text: bytes) -> Values:
    topics = body.get("topics")
    return {"names": _names_of(topics), "codes": _codes_of(topics), "sizes": _codes_of(topics, code="numPartitions")}


def _create_partitions_done(version: int, body: Body, text: bytes) -> Values:
    return {"names": _names_of(body.get("results")), "codes": _codes_of(body.get("results"))}


def _delete(version: int, body: Body, text: bytes) -> Values:
    return {"names": _names_of(body.get("topics"), "name", "topicId") if version >= 6 else body.get("topicNames")}


def _delete_done(version: int, body: Body, text: bytes) -> Values:
    return {"names": _names_of(body.get("responses"), "name", "topicId"), "codes": _codes_of(body.get("responses"))}


def _elect(version: int, body: Body, text: bytes) -> Values:
    asked = body.get("topicPartitions")
    names = _pairs(asked, "partitions", "", "topic")
    return {"names": names, "election_type": body.get("electionType"), "asks_all": asked is None}


def _elect_done(version: int, body: Body, text: bytes) -> Values:
    results = body.get("replicaElectionResults")
    names = _pairs(results, "partitionResult", "partitionId", "topic")
    return {"names": names, "elected": results, "codes": _codes_of(results, "partitionResult")}


def _member(body: Body) -> Values:
    """What requests of members of a group have in common."""
    return {
        "group_id": body.get("groupId"), "member_id": body.get("memberId"), "instance_id": body.get("groupInstanceId"),
        "generation": _first(body, "generationId", "generationIdOrMemberEpoch"),
    }


def _commit(version: int, body: Body, text: bytes) -> Values:
    topics = body.get("topics")
    names = _pairs(topics, "partitions", "partitionIndex")
    return _member(body) | {"names": names, "committed": topics, "retention_ms": body.get("retentionTimeMs")}


def _commit_done(version: int, body: Body, text: bytes) -> Values:
    topics = body.get("topics")
    return {"names": _pairs(topics, "partitions", "partitionIndex"), "commits": topics, "codes": _codes_of(topics, "partitions")}


def _beat(version: int, body: Body, text: bytes) -> Values:
    return {
        "group_id": body.get("groupId"), "member_id": body.get("memberId"), "instance_id": body.get("instanceId"),
        "generation": body.get("memberEpoch"),
    }


def _of_member(version: int, body: Body, text: bytes) -> Values:
    return _member(body)


def _offsets_fetched(version: int, body: Body, text: bytes) -> Values:
    return {"fetched": body.get("topics"), "fetched_groups": body.get("groups")}


def _join(version: int, body: Body, text: bytes) -> Values:
    return _member(body) | {"protocol_type": body.get("protocolType"), "session_timeout_ms": body.get("sessionTimeoutMs")}


def _joined(version: int, body: Body, text: bytes) -> Values:
    return {
        "member_id": body.get("memberId"), "generation": body.get("generationId"), "leader": body.get("leader"),
        "protocol_type": body.get("protocolType"), "protocol": body.get("protocolName"),
        "members": _names_of(body.get("members"), "memberId"),
    }


def _sync(version: int, body: Body, text: bytes) -> Values:
    return _member(body) | {"assignments": body.get("assignments")}


def _synced(version: int, body: Body, text: bytes) -> Values:
    return {"assignment": body.get("assignment")}


def _nothing(version: int, body: Body, text: bytes) -> Values:
    return {}


def _of_transaction(version: int, body: Body, text: bytes) -> Values:
    return {
        "transactional_id": _first(body, "transactionalId", "v3AndBelowTransactionalId"),
        "producer_id": _first(body, "producerId", "v3AndBelowProducerId"),
        "producer_epoch": _first(body, "producerEpoch", "v3AndBelowProducerEpoch"),
        "is_commit": body.get("committed"), "txn_topics": body.get("v3AndBelowTopics"), "transactions": body.get("transactions"),
    }


def _initialized(version: int, body: Body, text: bytes) -> Values:
    return {"producer_id": body.get("producerId"), "producer_epoch": body.get("producerEpoch")}


def _partitions_added(version: int, body: Body, text: bytes) -> Values:
    return {"added": body.get("resultsByTopicV3AndBelow"), "added_of_ids": body.get("resultsByTransaction")}


def _mark(version: int, body: Body, text: bytes) -> Values:
    return {"markers": body.get("markers")}


def _marked(version: int, body: Body, text: bytes) -> Values:
    return {"marked": body.get("markers")}


def _txn_commit(version: int, body: Body, text: bytes) -> Values:
    return _member(body) | {
        "committed": body.get("topics"), "producer_id": body.get("producerId"), "producer_epoch": body.get("producerEpoch"),
    }


def _txn_commit_done(version: int, body: Body, text: bytes) -> Values:
    return {"commits": body.get("topics")}


def _find_coordinator(version: int, body: Body, text: bytes) -> Values:
    return {"key_type": body.get("keyType", 0)}


def _coordinator_found(version: int, body: Body, text: bytes) -> Values:
    return {"coordinators": body.get("coordinators") if version >= 4 else [body]}


def _delete_groups(version: int, body: Body, text: bytes) -> Values:
    return {"group_ids": body.get("groupsNames")}


def _groups_deleted(version: int, body: Body, text: bytes) -> Values:
    return {"group_ids": [row["groupId"] for row in body.get("results") or () if row and not row.get("errorCode")]}


def _named(member: Body) -> Values:
    return {"memberId": member.get("memberId"), "groupInstanceId": member.get("groupInstanceId")}


def _leave(version: int, body: Body, text: bytes) -> Values:
    members = [body] if version < 3 else body.get("members") or ()
    return {"group_id": body.get("groupId"), "leaving": [_named(row) for row in members if row]}


def _left(version: int, body: Body, text: bytes) -> Values:
    return {} if version < 3 else {"leaving": [_named(row) for row in body.get("members") or () if row and not row.get("errorCode")]}


READERS: dict[tuple[bool, int], Reader] = {
    (True, ApiKey.PRODUCE): _produce, (False, ApiKey.PRODUCE): _produced,
    (True, ApiKey.FETCH): _fetch, (False, ApiKey.FETCH): _fetched,
    (True, ApiKey.LIST_OFFSETS): _list_offsets, (False, ApiKey.LIST_OFFSETS): _listed_offsets,
    (True, ApiKey.METADATA): _metadata, (False, ApiKey.METADATA): _metadata_told,
    (True, ApiKey.LEADER_AND_ISR): _leader_and_isr, (False, ApiKey.LEADER_AND_ISR): _leader_and_isr_done,
    (True, ApiKey.STOP_REPLICA): _stop_replica, (False, ApiKey.STOP_REPLICA): _stop_replica_done,
    (True, ApiKey.UPDATE_METADATA): _update_metadata,
    (True, ApiKey.OFFSET_COMMIT): _commit, (False, ApiKey.OFFSET_COMMIT): _commit_done,
    (True, ApiKey.OFFSET_FETCH): _of_member, (False, ApiKey.OFFSET_FETCH): _offsets_fetched,
    (True, ApiKey.FIND_COORDINATOR): _find_coordinator, (False, ApiKey.FIND_COORDINATOR): _coordinator_found,
    (True, ApiKey.JOIN_GROUP): _join, (False, ApiKey.JOIN_GROUP): _joined,
    (True, ApiKey.HEARTBEAT): _of_member, (False, ApiKey.HEARTBEAT): _nothing,
    (True, ApiKey.SYNC_GROUP): _sync, (False, ApiKey.SYNC_GROUP): _synced,
    (True, ApiKey.CONSUMER_GROUP_HEARTBEAT): _beat, (False, ApiKey.CONSUMER_GROUP_HEARTBEAT): _beat,
    (False, ApiKey.API_VERSIONS): _api_versions_told,
    (True, ApiKey.CREATE_TOPICS): _create, (False, ApiKey.CREATE_TOPICS): _create_done,
    (True, ApiKey.DELETE_TOPICS): _delete, (False, ApiKey.DELETE_TOPICS): _delete_done,
    (True, ApiKey.INIT_PRODUCER_ID): _of_transaction, (False, ApiKey.INIT_PRODUCER_ID): _initialized,
    (True, ApiKey.ADD_PARTITIONS_TO_TXN): _of_transaction, (False, ApiKey.ADD_PARTITIONS_TO_TXN): _partitions_added,
    (True, ApiKey.ADD_OFFSETS_TO_TXN): _of_transaction, (False, ApiKey.ADD_OFFSETS_TO_TXN): _nothing,
    (True, ApiKey.END_TXN): _of_transaction, (False, ApiKey.END_TXN): _nothing,
    (True, ApiKey.WRITE_TXN_MARKERS): _mark, (False, ApiKey.WRITE_TXN_MARKERS): _marked,
    (True, ApiKey.TXN_OFFSET_COMMIT): _txn_commit, (False, ApiKey.TXN_OFFSET_COMMIT): _txn_commit_done,
    (True, ApiKey.CREATE_PARTITIONS): _create, (False, ApiKey.CREATE_PARTITIONS): _create_partitions_done,
    (True, ApiKey.LEAVE_GROUP): _leave, (False, ApiKey.LEAVE_GROUP): _left,
    (True, ApiKey.DELETE_GROUPS): _delete_groups, (False, ApiKey.DELETE_GROUPS): _groups_deleted,
    (True, ApiKey.ELECT_LEADERS): _elect, (False, ApiKey.ELECT_LEADERS): _elect_done,
    (True, ApiKey.OFFSET_DELETE): _of_member,
    (True, ApiKey.ALTER_PARTITION): _alter, (False, ApiKey.ALTER_PARTITION): _alter_done,
}
"""Whether it is a request, and API key → what reads its bodies."""

ALWAYS = frozenset(key for _, key in READERS) - {ApiKey.FETCH, ApiKey.API_VERSIONS}
"""APIs of which each frame has a row, also one without a body."""

