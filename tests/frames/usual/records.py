"""Requests for records: Produce, Fetch, ListOffsets, DeleteRecords, OffsetForLeaderEpoch."""

from __future__ import annotations

import base64
import random
from typing import Any

from klamm.tests.frames.usual.values import TIMEOUT_MS, by_name, partition, some, some_topics
from klamm.tests.harness.batches import records_of

_BATCHES = (
    "(a)", "(a,b=1,c)", "gzip(a,b)", "snappy(a)", "lz4(a)", "zstd(a)", "append(a)", "(~=~)", "(k=~)", "(a@5,b@3)", "tx(a)",
    "control(a)", "crc(a)", "count=5(a)", "count=0(a)", "last=7(a)", "le=3(a)", "base=9(a,b)", "first=2(a)", "junk=zz(a)", "codec=1(a)",
    "codec=6(a)", "size=3(a)", "size=-3(a)", "more=00(a)", "as-magic=3(a)", "max-time=5(a)", "magic=1(a,b)", "magic=0(a)",
    "magic=1,gzip(a,b)", "magic=1,crc(a)", "empty", "()", "(a!h:1!h:2)", "cut=4(a)", "pid=0/0/0(a)", "pid=0/0/1(a)", "pid=1/0/0(a,b)",
    "pid=1/0/2(a)", "pid=2/1/0(a)", "pid=2/0/5(a)", "tx,pid=1/0/0(a)", "tx,pid=1/1/0(a)", "tx,pid=2/0/0(a)", "pid=-1/0/0(a)",
    "pid=5/-1/0(a)", "pid=0/0/-1(a)", "tx,pid=3/0/0(a)", "tx,pid=3/1/0(a)",
)


def produce(source: random.Random) -> dict[str, Any]:
    def partitions() -> list[dict[str, Any]]:
        records = records_of(some(source, _BATCHES)) or b""
        return [{"index": partition(source), "records": base64.b64encode(records).decode()}]

    name = source.choice((None, None, None, "x", "y"))
    return {
        "transactionalId": name,
        "acks": source.choice((-1, 1)),
        "timeoutMs": 1000,
        "topicData": by_name(source, partitionData=partitions),
    }


def fetch(source: random.Random) -> dict[str, Any]:
    def partitions() -> list[dict[str, Any]]:
        return [
            {
                "partition": partition(source),
                "fetchOffset": source.choice((0, 0, 1, 2, 5, 1000)),
                "partitionMaxBytes": source.choice((1, 100, 10_000)),
                "currentLeaderEpoch": source.choice((-1, -1, 0, 1)),
                "lastFetchedEpoch": source.choice((-1, -1, 0)),
            }
        ]

    topics = [{**topic, "topic": topic["name"]} for topic in some_topics(source, partitions=partitions)]
    topics = [{name: value for name, value in topic.items() if name != "name"} for topic in topics if topic["name"] in ("t", "u")]
    return {
        "maxWaitMs": 0,
        "minBytes": source.choice((0, 1)),
        "maxBytes": source.choice((1, 200, 100_000)),
        "isolationLevel": source.randint(0, 1),
        "sessionEpoch": -1,
        "topics": topics,
    }


def list_offsets(source: random.Random) -> dict[str, Any]:
    def partitions() -> list[dict[str, Any]]:
        times = (-1, -2, -3, -4, -5, -6, 0, 5, 1_600_000_000_000, 1_600_000_000_004, 9_999_999_999_999)
        return [
            {
                "partitionIndex": partition(source),
                "currentLeaderEpoch": source.choice((-1, -1, 0, 1)),
                "timestamp": source.choice(times),
                "maxNumOffsets": source.choice((1, 3)),
            }
        ]

    return {"replicaId": -1, "isolationLevel": source.randint(0, 1), "topics": by_name(source, partitions=partitions)}


def delete_records(source: random.Random) -> dict[str, Any]:
    def partitions() -> list[dict[str, Any]]:
        return [{"partitionIndex": partition(source), "offset": source.choice((-1, 0, 1, 2, 100, -2))}]

    return {"topics": by_name(source, partitions=partitions), "timeoutMs": TIMEOUT_MS}


def epochs(source: random.Random) -> dict[str, Any]:
    def partitions() -> list[dict[str, Any]]:
        return [
            {
                "partition": partition(source),
                "currentLeaderEpoch": source.choice((-1, 0, 1)),
                "leaderEpoch": source.choice((0, 0, 1, -1, 5)),
            }
        ]

    return {"replicaId": source.choice((-1, -2)), "topics": by_name(source, "topic", partitions=partitions)}
