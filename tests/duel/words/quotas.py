"""Random quotas of clients, by request and by nodes, and requests about security to a broker that has none."""

from __future__ import annotations

from typing import Any

from klamm.tests.duel.draw import EDGES_32, Draw, raw, scene
from klamm.tests.duel.tale import Lines

_NAMES = ("@1", "@2", "@1 a", "@1*", "@1/é")
_KEYS: dict[str, list[float]] = {
    "producer_byte_rate": [1e9, 5, 0, -1, 1.5, 9e18, 1e300],
    "consumer_byte_rate": [1e9, 7.0, 0, 0.1],
    "request_percentage": [100000, 0.5, 0, -3, 33.25],
    "controller_mutation_rate": [1000, 0.25, 0, 1e-9],
    "connection_creation_rate": [100000, 0, 3, 2.5, -2],
    "no_such_key": [1],
    "SCRAM-SHA-256": [1],
    "": [1],
}
_TYPES = ("user", "client-id", "ip", "user", "client-id", "USER", "", "group")


def _component(draw: Draw) -> dict[str, Any]:
    kind = draw.one(_TYPES)
    name: Any = draw.one(_NAMES)
    if kind == "ip":
        name = draw.one(["127.0.0.7", "127.0.0.8", "no.such.host.invalid", "::1", "300.1.1.1", ""])
    if draw.chance(0.04):
        name = ""
    return {"entityType": kind, "entityName": name}


def _entity(draw: Draw) -> list[dict[str, Any]]:
    shape = draw.weighted([(6, "one"), (4, "pair"), (1, "any"), (1, "none")])
    if shape == "one":
        return [_component(draw)]
    if shape == "pair":
        pair = [{"entityType": "user", "entityName": draw.one(_NAMES)}, {"entityType": "client-id", "entityName": draw.one(_NAMES)}]
        return pair if draw.chance(0.7) else pair[::-1]
    return [_component(draw) for _ in range(draw.random.randint(2, 3))] if shape == "any" else []


def alter(draw: Draw) -> Lines:
    """AlterClientQuotas of one to three entities."""
    entries = []
    for _ in range(draw.random.randint(1, 3)):
        keys = draw.some(list(_KEYS), 0, 3)
        ops = [{"key": key, "value": draw.one(_KEYS[key]), "remove": draw.chance(0.3)} for key in keys]
        entries.append({"entity": _entity(draw), "ops": ops})
    body = {"entries": entries, "validateOnly": draw.chance(0.15)}
    return scene(f"ask AlterClientQuotas {draw.versions(0, 1)} {raw(body)}", _view(draw))


def _view(draw: Draw) -> str:
    return draw.one(["tree /config/users", "tree /config/clients", "tree /config/ips", _question(draw), _question(draw)])


def _question(draw: Draw) -> str:
    rows = []
    for _ in range(draw.weighted([(1, 0), (6, 1), (4, 2), (1, 3)])):
        match = draw.weighted([(6, 0), (3, 1), (4, 2), (1, 3), (1, -1)])
        name = _component(draw)["entityName"] if match == 0 or draw.chance(0.1) else None
        rows.append({"entityType": draw.one(_TYPES), "matchType": match, "match": name})
    return f"asked DescribeClientQuotas {draw.versions(0, 1)} {raw({'components': rows, 'strict': draw.chance(0.4)})}"


def describe(draw: Draw) -> Lines:
    """DescribeClientQuotas with any filter."""
    return scene(_question(draw))


def node(draw: Draw) -> Lines:
    """Quotas written by hand."""
    path = draw.one(["users/@1", "clients/@2", "users/@1/clients/@2", "ips/127.0.0.7", "users/@2", "users/@1%20a"])
    key = draw.one(list(_KEYS)) or "x"
    value = draw.one(["1000", "0", "-1", "x", "1.5", "", "1e3", "NaN", "Infinity", " 7 ", "0x1p3", "9999999999999999999999"])
    data = draw.weighted(
        [(8, raw({"version": 1, "config": {key: value}})), (1, raw({"version": 1, "config": {key: 7}})), (1, "{}"), (1, "x")]
    )
    lines = [f"put /config/{path} {data}"]
    if draw.chance(0.7):
        lines.append(f"put-sequence /config/changes/config_change_ {raw({'version': 2, 'entity_path': path})}")
    return scene(*lines, _view(draw))


def scram(draw: Draw) -> Lines:
    """AlterUserScramCredentials and DescribeUserScramCredentials."""
    if draw.chance(0.4):
        users = draw.weighted([(6, [{"name": draw.one([*_NAMES, ""])} for _ in range(draw.random.randint(1, 2))]), (1, None), (1, [])])
        return scene(f"asked DescribeUserScramCredentials v0 {raw({'users': users})}")
    up = [
        {
            "name": draw.one([*_NAMES, ""]),
            "mechanism": draw.one([1, 2, 1, 2, 0, 3, -1]),
            "iterations": draw.one([4096, 8192, 4095, 16384, 16385, *EDGES_32]),
            "salt": draw.one(["YWJj", "", "eHl6"]),
            "saltedPassword": draw.one(["ZGVm", "ZGVm", ""]),
        }
        for _ in range(draw.random.randint(0, 2))
    ]
    down = [{"name": draw.one([*_NAMES, ""]), "mechanism": draw.one([1, 2, 1, 2, 0, 7])} for _ in range(draw.random.randint(0, 2))]
    return scene(f"ask AlterUserScramCredentials v0 {raw({'deletions': down, 'upsertions': up})}", draw.one(["children /config/users", ""]))


def refused(draw: Draw) -> Lines:
    """ACLs, tokens and features, where there is neither security nor a feature."""
    kinds = {
        "DescribeAcls": (
            0,
            3,
            {
                "resourceTypeFilter": draw.one([1, 2, 4, 5]),
                "resourceNameFilter": draw.one([None, "@1", ""]),
                "patternTypeFilter": draw.one([1, 2, 3, 4]),
                "principalFilter": draw.one([None, "User:a", "x"]),
                "hostFilter": draw.one([None, "*"]),
                "operation": draw.one([1, 2, 3, 12]),
                "permissionType": draw.one([1, 2, 3]),
            },
        ),
        "DeleteAcls": (
            0,
            3,
            {
                "filters": [
                    {
                        "resourceTypeFilter": 2,
                        "resourceNameFilter": "@1",
                        "patternTypeFilter": 3,
                        "principalFilter": None,
                        "hostFilter": None,
                        "operation": 2,
                        "permissionType": 3,
                    }
                ]
                * draw.random.randint(0, 2)
            },
        ),
        "CreateAcls": (
            0,
            3,
            {
                "creations": [
                    {
                        "resourceType": 2,
                        "resourceName": "@1",
                        "resourcePatternType": 3,
                        "principal": draw.one(["User:a", "x", ""]),
                        "host": "*",
                        "operation": 3,
                        "permissionType": 3,
                    }
                ]
                * draw.random.randint(0, 2)
            },
        ),
        "CreateDelegationToken": (
            0,
            3,
            {
                "renewers": [{"principalType": "User", "principalName": "a"}] * draw.random.randint(0, 1),
                "maxLifetimeMs": draw.one([-1, 0, 5]),
            },
        ),
        "RenewDelegationToken": (0, 2, {"hmac": draw.one(["", "YWJj"]), "renewPeriodMs": draw.one([-1, 0, 5])}),
        "ExpireDelegationToken": (0, 2, {"hmac": draw.one(["", "YWJj"]), "expiryTimePeriodMs": draw.one([-1, 0, 5])}),
        "DescribeDelegationToken": (0, 3, {"owners": draw.one([None, [], [{"principalType": "User", "principalName": "a"}]])}),
        "UpdateFeatures": (
            0,
            1,
            {
                "timeoutMs": draw.one([1000, 0, -1]),
                "featureUpdates": [
                    {
                        "feature": name,
                        "maxVersionLevel": draw.one([1, 0, -1, 32767]),
                        "allowDowngrade": draw.chance(0.4),
                        "upgradeType": draw.one([1, 2, 3, 0, 4]),
                    }
                    for name in draw.some(["fa", "metadata.version", "fb", ""], 0, 2)
                ],
                "validateOnly": draw.chance(0.2),
            },
        ),
        "ConsumerGroupHeartbeat": (
            0,
            0,
            {"groupId": draw.one(["g", ""]), "memberId": draw.one(["", "m"]), "memberEpoch": draw.one([0, -1, 1])},
        ),
        "ConsumerGroupDescribe": (0, 0, {"groupIds": draw.some(["a", "b", ""], 0, 3)}),
        "SaslHandshake": (0, 1, {"mechanism": draw.one(["PLAIN", "", "SCRAM-SHA-256"])}),
        "OffsetDelete": (0, 0, {"groupId": draw.one(["g", ""]), "topics": [{"name": "@1", "partitions": [{"partitionIndex": 0}]}]}),
        "DeleteGroups": (0, 2, {"groupsNames": draw.some(["a", "", "b"], 0, 3)}),
        "FindCoordinator": (1, 6, {"key": "", "keyType": draw.one([2, 3, -1]), "coordinatorKeys": draw.one([[], [""]])}),
    }
    api = draw.one(list(kinds))
    low, high, body = kinds[api]
    return scene(f"ask {api} {draw.versions(low, high)} {raw(body)}")
