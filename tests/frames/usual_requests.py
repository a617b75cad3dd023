"""Requests that a broker obeys, with values drawn from a source: topics are made, grow and go, records are written, groups have a member.

What only a broker knows has a mark of the same size, for which `Sender` writes what that broker said: the ids of topics, the id of the
member that it named last and its generation.
"""

from __future__ import annotations

import base64
import random
from collections.abc import Callable
from typing import Any

from klamm.tests.harness.batches import records_of
from klamm.tests.security.permission_requests import Asked

TOPICS = ("t", "u", "c1", "c2", "nix")
"""The first two always exist, the last never; the others come and go."""
INSTANCE = "frames"
MEMBER = f"{INSTANCE}-{'member ' * 5}."
"""As long as the id of a member: the name of its instance or client, a dash and a uuid."""
GENERATION = 0x71727374
_TIMEOUT_MS = 1_000
_BATCHES = (
    "(a)", "(a,b=1,c)", "gzip(a,b)", "snappy(a)", "lz4(a)", "zstd(a)", "append(a)", "(~=~)", "(k=~)", "(a@5,b@3)", "tx(a)",
    "control(a)", "crc(a)", "count=5(a)", "count=0(a)", "last=7(a)", "le=3(a)", "base=9(a,b)", "first=2(a)", "junk=zz(a)", "codec=1(a)",
    "codec=6(a)", "size=3(a)", "size=-3(a)", "more=00(a)", "as-magic=3(a)", "max-time=5(a)", "magic=1(a,b)", "magic=0(a)",
    "magic=1,gzip(a,b)", "magic=1,crc(a)", "empty", "()", "(a!h:1!h:2)", "cut=4(a)", "pid=0/0/0(a)", "pid=0/0/1(a)", "pid=1/0/0(a,b)",
    "pid=1/0/2(a)", "pid=2/1/0(a)", "pid=2/0/5(a)", "tx,pid=1/0/0(a)", "tx,pid=1/1/0(a)", "tx,pid=2/0/0(a)", "pid=-1/0/0(a)",
    "pid=5/-1/0(a)", "pid=0/0/-1(a)", "tx,pid=3/0/0(a)", "tx,pid=3/1/0(a)",
)
_CONFIGS = (
    ("retention.ms", "1000000000"), ("retention.ms", "-2"), ("cleanup.policy", "compact"), ("cleanup.policy", "delete"),
    ("cleanup.policy", "compact,delete"), ("cleanup.policy", "nix"), ("max.message.bytes", "100"), ("max.message.bytes", "1048588"),
    ("message.timestamp.type", "LogAppendTime"), ("message.timestamp.type", "CreateTime"), ("compression.type", "gzip"),
    ("compression.type", "producer"), ("min.insync.replicas", "2"), ("min.insync.replicas", "1"), ("flush.messages", "x"),
    ("no.config", "1"), ("message.timestamp.difference.max.ms", "1000"), ("segment.bytes", "14"),
    ("leader.replication.throttled.replicas", "0:0"), ("leader.replication.throttled.replicas", "*"),
    ("leader.replication.throttled.replicas", "none"), ("unclean.leader.election.enable", "yes"),
    ("unclean.leader.election.enable", "true"), ("preallocate", "false"), ("retention.ms", None), ("cleanup.policy", None), ("", "1"),
    ("message.format.version", "0.10.0"), ("index.interval.bytes", "1.5"), ("max.compaction.lag.ms", "0"), ("local.retention.ms", "9"),
)


def topic_mark(topic: str) -> bytes:
    """What stands for the id of a topic."""
    return f"<id of {topic}>".encode().ljust(16, b".")


def usual(source: random.Random) -> Asked:
    """A request, mostly one that changes something."""
    api, body = source.choice(_DRAWN)
    return Asked(api, "", body(source))


def _some(source: random.Random, values: Any, most: int = 3) -> list[Any]:
    return [source.choice(values) for _ in range(source.choice((1, 1, 1, 2, most)))]


def _topics(source: random.Random, key: str = "name", **made: Callable[[], Any]) -> list[dict[str, Any]]:
    return [
        {
            key: topic,
            "topicId": base64.urlsafe_b64encode(topic_mark(topic)).decode().rstrip("="),
            **{name: each() for name, each in made.items()},
        }
        for topic in _some(source, TOPICS)
    ]


def _without_ids(topics: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in topic.items() if name != "topicId"} for topic in topics]


def _by_name(source: random.Random, key: str = "name", **made: Callable[[], Any]) -> list[dict[str, Any]]:
    return _without_ids(_topics(source, key, **made))


def _partition(source: random.Random) -> int:
    return source.choice((0, 0, 0, 1, 2, -1))


def _create_topics(source: random.Random) -> dict[str, Any]:
    def assigned() -> list[dict[str, Any]]:
        return [
            {"partitionIndex": index, "brokerIds": source.choice(([0], [0], [0], [0], [0, 0], [7], []))}
            for index in range(source.randint(1, 2))
        ]

    topics = []
    for name in _some(source, ("c1", "c2", "t", "a b", "c1.", "c1_", "__consumer_offsets", "")):
        rows = assigned() if source.random() < 0.3 else []
        count, factor = (
            (-1, -1) if rows and source.random() < 0.9 else (source.choice((1, 2, 3, -1, 0)), source.choice((1, 1, 1, -1, 0, 2)))
        )
        configs = [{"name": key, "value": value} for key, value in _some(source, _CONFIGS)] if source.random() < 0.5 else []
        topics.append({"name": name, "numPartitions": count, "replicationFactor": factor, "assignments": rows, "configs": configs})
    return {"topics": topics, "timeoutMs": _TIMEOUT_MS, "validateOnly": source.random() < 0.2}


def _delete_topics(source: random.Random) -> dict[str, Any]:
    names = _some(source, ("c1", "c2", "nix"))
    by_id = source.random() < 0.5
    marks = [base64.urlsafe_b64encode(topic_mark(name)).decode().rstrip("=") for name in names]
    topics = [{"name": None, "topicId": mark} for mark in marks] if by_id else [{"name": name} for name in names]
    return {"topics": topics, "topicNames": names, "timeoutMs": _TIMEOUT_MS}


def _create_partitions(source: random.Random) -> dict[str, Any]:
    def assigned() -> Any:
        return source.choice((None, None, None, [{"brokerIds": [0]}], [{"brokerIds": [0]}, {"brokerIds": [0]}], [{"brokerIds": [7]}], []))

    topics = [{"name": name, "count": source.randint(0, 4), "assignments": assigned()} for name in _some(source, ("c1", "c2", "nix"))]
    return {"topics": topics, "timeoutMs": _TIMEOUT_MS, "validateOnly": source.random() < 0.3}


def _resource(source: random.Random) -> dict[str, Any]:
    kind, names = source.choice(((2, TOPICS), (2, TOPICS), (2, TOPICS), (4, ("0", "7", "x")), (8, ("0",)), (3, ("",))))
    return {"resourceType": kind, "resourceName": source.choice(names)}


def _alter(source: random.Random) -> dict[str, Any]:
    def configs() -> list[dict[str, Any]]:
        return [{"name": key, "value": value} for key, value in _some(source, _CONFIGS)]

    resources = {str(each): each for each in (_resource(source) for _ in range(source.choice((1, 1, 2))))}
    return {"resources": [{**each, "configs": configs()} for each in resources.values()], "validateOnly": source.random() < 0.3}


def _alter_incrementally(source: random.Random) -> dict[str, Any]:
    def configs() -> list[dict[str, Any]]:
        return [{"name": key, "value": value, "configOperation": source.randint(0, 3)} for key, value in _some(source, _CONFIGS)]

    resources = [{**_resource(source), "configs": configs()} for _ in range(source.choice((1, 1, 2)))]
    return {"resources": resources, "validateOnly": source.random() < 0.3}


def _describe_configs(source: random.Random) -> dict[str, Any]:
    keys = [key for key, _ in _some(source, _CONFIGS)]
    resources = [{**_resource(source), "configurationKeys": keys} for _ in range(2)]
    return {"resources": resources, "includeSynonyms": source.random() < 0.7, "includeDocumentation": False}


def _produce(source: random.Random) -> dict[str, Any]:
    def partitions() -> list[dict[str, Any]]:
        records = records_of(_some(source, _BATCHES)) or b""
        return [{"index": _partition(source), "records": base64.b64encode(records).decode()}]

    name = source.choice((None, None, None, "x", "y"))
    return {
        "transactionalId": name,
        "acks": source.choice((-1, 1)),
        "timeoutMs": 1000,
        "topicData": _by_name(source, partitionData=partitions),
    }


def _fetch(source: random.Random) -> dict[str, Any]:
    def partitions() -> list[dict[str, Any]]:
        return [
            {
                "partition": _partition(source),
                "fetchOffset": source.choice((0, 0, 1, 2, 5, 1000)),
                "partitionMaxBytes": source.choice((1, 100, 10_000)),
                "currentLeaderEpoch": source.choice((-1, -1, 0, 1)),
                "lastFetchedEpoch": source.choice((-1, -1, 0)),
            }
        ]

    topics = [{**topic, "topic": topic["name"]} for topic in _topics(source, partitions=partitions)]
    topics = [{name: value for name, value in topic.items() if name != "name"} for topic in topics if topic["name"] in ("t", "u")]
    return {
        "maxWaitMs": 0,
        "minBytes": source.choice((0, 1)),
        "maxBytes": source.choice((1, 200, 100_000)),
        "isolationLevel": source.randint(0, 1),
        "sessionEpoch": -1,
        "topics": topics,
    }


def _list_offsets(source: random.Random) -> dict[str, Any]:
    def partitions() -> list[dict[str, Any]]:
        times = (-1, -2, -3, -4, -5, -6, 0, 5, 1_600_000_000_000, 1_600_000_000_004, 9_999_999_999_999)
        return [
            {
                "partitionIndex": _partition(source),
                "currentLeaderEpoch": source.choice((-1, -1, 0, 1)),
                "timestamp": source.choice(times),
                "maxNumOffsets": source.choice((1, 3)),
            }
        ]

    return {"replicaId": -1, "isolationLevel": source.randint(0, 1), "topics": _by_name(source, partitions=partitions)}


def _delete_records(source: random.Random) -> dict[str, Any]:
    def partitions() -> list[dict[str, Any]]:
        return [{"partitionIndex": _partition(source), "offset": source.choice((-1, 0, 1, 2, 100, -2))}]

    return {"topics": _by_name(source, partitions=partitions), "timeoutMs": _TIMEOUT_MS}


def _metadata(source: random.Random) -> dict[str, Any]:
    by_id = source.random() < 0.5
    topics = [{**topic, "name": None} if by_id else {"name": topic["name"]} for topic in _topics(source)]
    return {"topics": source.choice((topics, topics, None)), "includeTopicAuthorizedOperations": source.random() < 0.3}


def _epochs(source: random.Random) -> dict[str, Any]:
    def partitions() -> list[dict[str, Any]]:
        return [
            {
                "partition": _partition(source),
                "currentLeaderEpoch": source.choice((-1, 0, 1)),
                "leaderEpoch": source.choice((0, 0, 1, -1, 5)),
            }
        ]

    return {"replicaId": source.choice((-1, -2)), "topics": _by_name(source, "topic", partitions=partitions)}


def _quotas(source: random.Random) -> dict[str, Any]:
    entity = source.choice(
        (
            [("user", "n")],
            [("client-id", "c")],
            [("user", "n"), ("client-id", None)],
            [("ip", "1.2.3.4")],
            [("ip", "host.invalid")],
            [("user", "n"), ("ip", "1.2.3.4")],
            [("what", "n")],
            [],
        )
    )
    keys = (
        "producer_byte_rate",
        "consumer_byte_rate",
        "request_percentage",
        "controller_mutation_rate",
        "connection_creation_rate",
        "nix",
    )
    ops = [
        {"key": key, "value": source.choice((1.0, 0.0, -1.0, 1e9, 2.5)), "remove": source.random() < 0.3} for key in _some(source, keys)
    ]
    return {
        "entries": [{"entity": [{"entityType": kind, "entityName": name} for kind, name in entity], "ops": ops}],
        "validateOnly": source.random() < 0.2,
    }


def _describe_quotas(source: random.Random) -> dict[str, Any]:
    components = [
        {"entityType": kind, "matchType": source.choice((0, 1, 2)), "match": source.choice((None, "n", "c", "1.2.3.4"))}
        for kind in source.choice((["user"], ["client-id"], ["user", "client-id"], ["ip"], [], ["user", "user"]))
    ]
    return {"components": components, "strict": source.random() < 0.5}


def _scram(source: random.Random) -> dict[str, Any]:
    data = base64.b64encode(b"0123456789").decode()
    users = ("n", "m", "", "a,b=c")
    upserted = [
        {
            "name": name,
            "mechanism": source.choice((1, 2, 0, 3)),
            "iterations": source.choice((4096, 4096, 16384, 1, 16385)),
            "salt": data,
            "saltedPassword": data,
        }
        for name in _some(source, users)
    ]
    deleted = [{"name": name, "mechanism": source.choice((1, 2, 0))} for name in _some(source, users)]
    return {"deletions": deleted if source.random() < 0.5 else [], "upsertions": upserted if source.random() < 0.7 else []}


def _acl(source: random.Random, known: bool) -> dict[str, Any]:
    suffix = "" if known else "Filter"
    return {
        f"resourceType{suffix}": source.choice((2, 3, 4, 5, 6, 7, 1, 0)),
        f"resourceName{suffix}": source.choice(("n", "t", "*", "kafka-cluster", "", *(() if known else (None, None)))),
        ("resourcePatternType" if known else "patternTypeFilter"): source.choice((3, 4, 3, 4, 1, 2, 0)),
        f"principal{suffix}": source.choice(("User:n", "User:*", "n", *(() if known else (None, None)))),
        f"host{suffix}": source.choice(("*", "1.2.3.4", *(() if known else (None, None)))),
        "operation": source.randint(1 if known else 0, 14),
        "permissionType": source.choice((2, 3, 3, 1, 0)),
    }


def _offsets(source: random.Random) -> list[dict[str, Any]]:
    return [
        {
            "partitionIndex": _partition(source),
            "committedOffset": source.choice((0, 5, -1)),
            "committedLeaderEpoch": source.choice((-1, 0)),
            "committedMetadata": source.choice(("", "m", None)),
        }
    ]


def _commit(source: random.Random) -> dict[str, Any]:
    member = source.random() < 0.6
    return {
        "groupId": source.choice(("g", "h")),
        "generationIdOrMemberEpoch": GENERATION if member else -1,
        "memberId": MEMBER if member else "",
        "topics": _by_name(source, partitions=lambda: _offsets(source)),
    }


def _committed(source: random.Random) -> dict[str, Any]:
    topics = None if source.random() < 0.3 else _by_name(source, partitionIndexes=lambda: [_partition(source)])
    group = source.choice(("g", "h"))
    body: dict[str, Any] = {"groupId": group, "groups": [{"groupId": group, "topics": topics}], "requireStable": source.random() < 0.3}
    return body | ({} if topics is None else {"topics": topics})


def _member(source: random.Random, **fields: Any) -> dict[str, Any]:
    return {
        "groupId": source.choice(("g", "g", "g", "h")),
        "memberId": source.choice((MEMBER, MEMBER, MEMBER, "nix")),
        "generationId": source.choice((GENERATION, GENERATION, GENERATION, 0, -1)),
        **fields,
    }


def _join(source: random.Random) -> dict[str, Any]:
    return {
        "groupId": "g",
        "memberId": source.choice((MEMBER, MEMBER, "")),
        "groupInstanceId": INSTANCE,
        "sessionTimeoutMs": 60_000,
        "rebalanceTimeoutMs": 60_000,
        "protocolType": source.choice(("consumer", "consumer", "connect", "")),
        "protocols": [
            {"name": name, "metadata": base64.b64encode(b"abc").decode()} for name in source.choice((["a"], ["a", "b"], ["b"], []))
        ],
    }


def _sync(source: random.Random) -> dict[str, Any]:
    rows = source.choice(([], [{"memberId": MEMBER, "assignment": "YQ=="}], [{"memberId": "nix", "assignment": "YQ=="}]))
    return _member(
        source, protocolType=source.choice((None, "consumer", "nix")), protocolName=source.choice((None, "a", "b")), assignments=rows
    )


def _leave(source: random.Random) -> dict[str, Any]:
    members = [{"memberId": name} for name in source.choice(([MEMBER], ["nix"], [MEMBER, "nix"], []))]
    return {"groupId": "g", "memberId": MEMBER, "members": members}


def _transaction(source: random.Random, **fields: Any) -> dict[str, Any]:
    return {
        "transactionalId": source.choice(("x", "x", "y")),
        "producerId": source.choice((1, 1, 2, 3, 0)),
        "producerEpoch": source.randint(0, 3),
        **fields,
    }


def _init(source: random.Random) -> dict[str, Any]:
    known = source.random() < 0.3
    return {
        "transactionalId": source.choice(("x", "x", "y", None)),
        "transactionTimeoutMs": source.choice((600_000, 600_000, -1, 1_000_000_000)),
        "producerId": source.choice((1, 2)) if known else -1,
        "producerEpoch": source.randint(0, 3) if known else -1,
    }


def _add_partitions(source: random.Random) -> dict[str, Any]:
    made = _transaction(source)
    topics = _by_name(source, partitions=lambda: [_partition(source)])
    return {
        "transactions": [{**made, "verifyOnly": source.random() < 0.3, "topics": topics}],
        "v3AndBelowTransactionalId": made["transactionalId"],
        "v3AndBelowProducerId": made["producerId"],
        "v3AndBelowProducerEpoch": made["producerEpoch"],
        "v3AndBelowTopics": topics,
    }


def _txn_offsets(source: random.Random) -> dict[str, Any]:
    return _transaction(
        source,
        groupId=source.choice(("g", "h")),
        generationId=-1,
        memberId="",
        topics=_by_name(source, partitions=lambda: _offsets(source)),
    )


def _reassign(source: random.Random) -> dict[str, Any]:
    rows = lambda: [{"partitionIndex": _partition(source), "replicas": source.choice(([0], [0, 0], [7], [], None, [-1]))}]  # noqa: E731
    return {"topics": _by_name(source, partitions=rows), "timeoutMs": _TIMEOUT_MS}


def _elect(source: random.Random) -> dict[str, Any]:
    topics = _by_name(source, "topic", partitions=lambda: [_partition(source)])
    return {
        "electionType": source.choice((0, 0, 1, 2)),
        "topicPartitions": source.choice((topics, topics, None)),
        "timeoutMs": _TIMEOUT_MS,
    }


_DRAWN: tuple[tuple[str, Callable[[random.Random], dict[str, Any]]], ...] = (
    *(("Produce", _produce),) * 4,
    *(("Fetch", _fetch),) * 3,
    *(("ListOffsets", _list_offsets),) * 2,
    ("DeleteRecords", _delete_records),
    ("OffsetForLeaderEpoch", _epochs),
    ("Metadata", _metadata),
    *(("CreateTopics", _create_topics),) * 2,
    ("DeleteTopics", _delete_topics),
    ("CreatePartitions", _create_partitions),
    ("AlterConfigs", _alter),
    ("IncrementalAlterConfigs", _alter_incrementally),
    ("DescribeConfigs", _describe_configs),
    ("AlterClientQuotas", _quotas),
    ("DescribeClientQuotas", _describe_quotas),
    ("AlterUserScramCredentials", _scram),
    ("DescribeUserScramCredentials", lambda _: {"users": None}),
    ("CreateAcls", lambda source: {"creations": [_acl(source, True) for _ in range(source.randint(1, 2))]}),
    ("DeleteAcls", lambda source: {"filters": [_acl(source, False) for _ in range(source.randint(1, 2))]}),
    ("DescribeAcls", lambda source: _acl(source, False)),
    *(("OffsetCommit", _commit),) * 2,
    ("OffsetFetch", _committed),
    *(("JoinGroup", _join),) * 2,
    ("SyncGroup", _sync),
    ("Heartbeat", _member),
    ("LeaveGroup", _leave),
    ("DescribeGroups", lambda _: {"groups": ["g", "h"]}),
    ("ListGroups", lambda _: {}),
    ("DeleteGroups", lambda _: {"groupsNames": ["g", "h"]}),
    ("InitProducerId", _init),
    *(("AddPartitionsToTxn", _add_partitions),) * 2,
    ("EndTxn", lambda source: _transaction(source, committed=source.random() < 0.5)),
    ("AddOffsetsToTxn", lambda source: _transaction(source, groupId="g")),
    ("TxnOffsetCommit", _txn_offsets),
    ("DescribeTransactions", lambda _: {"transactionalIds": ["x", "y"]}),
    ("ListTransactions", lambda _: {}),
    ("DescribeProducers", lambda source: {"topics": _by_name(source, partitionIndexes=lambda: [_partition(source)])}),
    ("AlterPartitionReassignments", _reassign),
    ("ListPartitionReassignments", lambda _: {"topics": None}),
    ("ElectLeaders", _elect),
)
