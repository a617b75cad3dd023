"""Random requests about configs of topics and brokers: IncrementalAlterConfigs, AlterConfigs, DescribeConfigs."""

from __future__ import annotations

from typing import Any

from klamm.tests.duel.draw import INT32, INT64, Draw, raw, scene
from klamm.tests.duel.tale import Lines

_VALUES: dict[str, list[str]] = {
    "retention.ms": ["1000", "-1", "-2", "0", "never", "", str(INT64 - 1), str(INT64), " 5 ", "1.5", "+7"],
    "retention.bytes": ["-1", "0", str(INT64 - 1)],
    "segment.bytes": ["14", "13", "1048576", str(INT32 - 1), str(INT32), "0x10"],
    "cleanup.policy": ["delete", "compact", "compact,delete", "delete,delete", "", "Compact", "delete, compact"],
    "min.insync.replicas": ["1", "0", "2", "-1", str(INT32 - 1)],
    "unclean.leader.election.enable": ["true", "false", "TRUE", "yes", ""],
    "compression.type": ["producer", "gzip", "zstd", "none", "lz5", "GZIP"],
    "max.message.bytes": ["0", "-1", "1000012"],
    "message.timestamp.type": ["CreateTime", "LogAppendTime", "createtime"],
    "leader.replication.throttled.replicas": ["*", "", "0:11,1:12", "none", "0:x"],
    "follower.replication.throttled.replicas": ["*", "0:11", "0-11"],
    "min.cleanable.dirty.ratio": ["0.5", "0", "1", "1.1", "-0.1", "NaN"],
    "preallocate": ["true", "false", "1"],
    "flush.messages": ["1", "0", str(INT64 - 1)],
    "no.such.key": ["1"],
    "": ["1"],
}
_BROKER_VALUES: dict[str, list[str]] = {
    "log.retention.ms": ["1000", "-1", "never"],
    "num.io.threads": ["4", "8", "3", "1", "0", "-1", "x"],
    "log.cleaner.threads": ["1", "2", "0"],
    "message.max.bytes": ["1000012", "-1", "0"],
    "unclean.leader.election.enable": ["false"],
    "my.own.key": ["1"],
    "broker.id": ["7"],
    "background.threads": ["2", "4"],
    "leader.replication.throttled.rate": ["1000", "0", "-1"],
    "min.insync.replicas": ["1", "2", "0"],
    "log.segment.bytes": ["1048576", "13"],
    "compression.type": ["producer", "gzip", "lz5"],
}


def topic_config(draw: Draw) -> list[tuple[str, str | None]]:
    """One to three different configs of a topic, with good and bad values and null."""
    names = draw.some(list(_VALUES), 1, 3, repeated=0.0)
    return [(name, None if draw.chance(0.05) else draw.one(_VALUES[name])) for name in names]


def _broker_config(draw: Draw) -> list[tuple[str, str | None]]:
    names = draw.some(list(_BROKER_VALUES), 1, 2, repeated=0.0)
    return [(name, draw.one(_BROKER_VALUES[name])) for name in names]


def _resource(draw: Draw) -> tuple[int, str, list[tuple[str, str | None]]]:
    """Type, name and configs."""
    if draw.sure and draw.chance(0.7):
        return 2, draw.weighted([(9, draw.one(draw.sure)), (1, draw.one([draw.topic(), "", "a b", "."]))]), topic_config(draw)
    name = draw.weighted([(6, "0"), (5, ""), (1, draw.one(["4711", "zero", "-1", "00"]))])
    return draw.weighted([(12, 4), (1, draw.one([0, 1, 3, 99, -1, 127, -128]))]), name, _broker_config(draw)


def alter(draw: Draw) -> Lines:
    """IncrementalAlterConfigs: one or two resources."""
    rows, seen = [], set()
    for _ in range(draw.weighted([(4, 1), (1, 2)])):
        what, name, entries = _resource(draw)
        if (what, name) in seen:
            continue
        seen.add((what, name))
        configs = []
        for key, value in entries:
            operation = draw.weighted([(8, 0), (3, 1), (2, 2), (2, 3), (1, draw.one([4, -1, 127]))])
            configs.append({"name": key, "configOperation": operation, "value": None if operation == 1 and draw.chance(0.7) else value})
        rows.append({"resourceType": what, "resourceName": name, "configs": configs})
    body = {"resources": rows, "validateOnly": draw.chance(0.2)}
    return scene(f"ask IncrementalAlterConfigs {draw.versions(0, 1)} {raw(body)}", _view(draw, rows[0]))


def replace(draw: Draw) -> Lines:
    """AlterConfigs, which forgets what it does not name."""
    what, name, entries = _resource(draw)
    row = {"resourceType": what, "resourceName": name, "configs": [{"name": key, "value": value} for key, value in entries]}
    if draw.chance(0.15):
        row["configs"] = []
    body = {"resources": [row], "validateOnly": draw.chance(0.2)}
    return scene(f"ask AlterConfigs {draw.versions(0, 2)} {raw(body)}", _view(draw, row))


def describe(draw: Draw) -> Lines:
    """DescribeConfigs of a few keys, in any version."""
    what, name, entries = _resource(draw)
    keys: list[Any] = [key for key, _ in entries]
    if draw.chance(0.2):
        keys += [draw.one(["no.such.key", "", keys[0]])]
    row = {"resourceType": what, "resourceName": name, "configurationKeys": keys if what != 2 or draw.chance(0.9) else []}
    rows = [row, dict(row)] if draw.chance(0.1) else [row]
    body = {"resources": rows, "includeSynonyms": draw.chance(0.5)}
    return scene(f"asked DescribeConfigs {draw.versions(1, 4)} {raw(body)}")


def _view(draw: Draw, row: dict[str, Any]) -> str:
    name, keys = row["resourceName"], [each["name"] for each in row["configs"] if each["name"] and each["name"] != "my.own.key"]
    if row["resourceType"] == 2:
        if not name.startswith("@"):
            return ""
        return draw.one([f"node /config/topics/{name}", f"configs topic {name} {' '.join(keys) or 'retention.ms'}"])
    if row["resourceType"] != 4 or name not in ("0", ""):
        return ""
    entity = name or "default"
    return draw.one([f"data /config/brokers/{name or '<default>'}", f"configs broker {entity} {' '.join(keys) or 'num.io.threads'}"])
