"""Requests for configs, quotas, credentials and ACLs."""

from __future__ import annotations

import base64
import random
from typing import Any

from klamm.tests.frames.usual.values import TOPICS, some

CONFIGS = (
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


def _resource(source: random.Random) -> dict[str, Any]:
    kind, names = source.choice(((2, TOPICS), (2, TOPICS), (2, TOPICS), (4, ("0", "7", "x")), (8, ("0",)), (3, ("",))))
    return {"resourceType": kind, "resourceName": source.choice(names)}


def alter(source: random.Random) -> dict[str, Any]:
    def configs() -> list[dict[str, Any]]:
        return [{"name": key, "value": value} for key, value in some(source, CONFIGS)]

    resources = {str(each): each for each in (_resource(source) for _ in range(source.choice((1, 1, 2))))}
    return {"resources": [{**each, "configs": configs()} for each in resources.values()], "validateOnly": source.random() < 0.3}


def alter_incrementally(source: random.Random) -> dict[str, Any]:
    def configs() -> list[dict[str, Any]]:
        return [{"name": key, "value": value, "configOperation": source.randint(0, 3)} for key, value in some(source, CONFIGS)]

    resources = [{**_resource(source), "configs": configs()} for _ in range(source.choice((1, 1, 2)))]
    return {"resources": resources, "validateOnly": source.random() < 0.3}


def describe_configs(source: random.Random) -> dict[str, Any]:
    keys = [key for key, _ in some(source, CONFIGS)]
    resources = [{**_resource(source), "configurationKeys": keys} for _ in range(2)]
    return {"resources": resources, "includeSynonyms": source.random() < 0.7, "includeDocumentation": False}


def quotas(source: random.Random) -> dict[str, Any]:
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
        {"key": key, "value": source.choice((1.0, 0.0, -1.0, 1e9, 2.5)), "remove": source.random() < 0.3} for key in some(source, keys)
    ]
    return {
        "entries": [{"entity": [{"entityType": kind, "entityName": name} for kind, name in entity], "ops": ops}],
        "validateOnly": source.random() < 0.2,
    }


def describe_quotas(source: random.Random) -> dict[str, Any]:
    components = [
        {"entityType": kind, "matchType": source.choice((0, 1, 2)), "match": source.choice((None, "n", "c", "1.2.3.4"))}
        for kind in source.choice((["user"], ["client-id"], ["user", "client-id"], ["ip"], [], ["user", "user"]))
    ]
    return {"components": components, "strict": source.random() < 0.5}


def scram(source: random.Random) -> dict[str, Any]:
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
        for name in some(source, users)
    ]
    deleted = [{"name": name, "mechanism": source.choice((1, 2, 0))} for name in some(source, users)]
    return {"deletions": deleted if source.random() < 0.5 else [], "upsertions": upserted if source.random() < 0.7 else []}


def acl(source: random.Random, known: bool) -> dict[str, Any]:
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
