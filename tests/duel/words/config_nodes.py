"""Configs and their notifications written into ZooKeeper by hand: old forms, odd forms, of entities that do not exist; throttles."""

from __future__ import annotations

from typing import Any

from klamm.tests.duel.draw import INT64, Draw, raw, scene
from klamm.tests.duel.tale import Lines

_TOPIC = {
    "retention.ms": ["5000", "-1", "never", "", " 7 ", "1e3", "0x7"],
    "cleanup.policy": ["compact", "delete", "compact,delete", "x", ""],
    "leader.replication.throttled.replicas": ["*", "", "0:0", "0:0,1:0", "x", "0:0,", " * ", "none", "0:0:0", "-1:-1"],
    "follower.replication.throttled.replicas": ["*", "", "0:0", "0:0,1:0", "x", "0", "*,0:0"],
    "unclean.leader.election.enable": ["true", "false", "TRUE", "maybe"],
    "min.insync.replicas": ["1", "2", "0", "many"],
    "max.message.bytes": ["1000", "-1", "1.5"],
    "segment.bytes": ["14", "1", "1048576"],
    "no.such.key": ["1", ""],
    "message.format.version": ["2.0", "3.9", "x"],
    "compression.type": ["gzip", "x", "zstd"],
    "message.timestamp.type": ["LogAppendTime", "x"],
    "message.timestamp.before.max.ms": ["5", "-1"],
    "message.timestamp.after.max.ms": ["5", "x"],
    "message.timestamp.difference.max.ms": ["5", "-5"],
    "remote.storage.enable": ["true", "false"],
    "local.retention.ms": ["-2", "-3", "5"],
    "compression.gzip.level": ["1", "0", "-1", "10"],
    "compression.lz4.level": ["9", "0", "18"],
    "compression.zstd.level": ["3", "-131073", "23"],
    "preallocate": ["true", "x"],
    "index.interval.bytes": ["0", "-1", "4096"],
    "segment.jitter.ms": ["0", "-1", "5"],
    "segment.ms": ["1", "0", "604800000"],
    "delete.retention.ms": ["0", "-1"],
    "file.delete.delay.ms": ["0", "-1", "60000"],
    "flush.ms": ["0", "-1", str(INT64 - 1)],
    "max.compaction.lag.ms": ["1", "0"],
    "min.compaction.lag.ms": ["0", "-1", "5"],
    "message.downconversion.enable": ["false", "x"],
}
_BROKER = {
    "leader.replication.throttled.rate": ["1000", "0", "-1", "x", "1.5", str(INT64 - 1)],
    "follower.replication.throttled.rate": ["1000", "0", "-1", "x", ""],
    "replica.alter.log.dirs.io.max.bytes.per.second": ["1000", "0", "-1"],
    "log.retention.ms": ["1000", "-1", "x"],
    "log.retention.hours": ["1"],
    "log.cleaner.threads": ["1", "2", "0", "x"],
    "num.io.threads": ["4", "6", "100", "x"],
    "num.replica.fetchers": ["1", "2", "0", "9"],
    "num.recovery.threads.per.data.dir": ["1", "2", "7"],
    "background.threads": ["2", "3", "9"],
    "unclean.leader.election.enable": ["true", "false", "x"],
    "min.insync.replicas": ["1", "2", "0"],
    "message.max.bytes": ["1000012", "-1"],
    "no.such.key": ["1"],
    "listener.name.plaintext.num.network.threads": ["2", "3"],
    "max.connections": ["1000", "-1"],
    "max.connections.per.ip": ["1000", "0"],
    "max.connections.per.ip.overrides": ["", "127.0.0.7:5", "x", "127.0.0.7"],
    "max.connection.creation.rate": ["1000", "0"],
    "log.message.timestamp.type": ["LogAppendTime", "x", "CreateTime"],
    "log.cleanup.policy": ["compact", "delete", "x"],
    "log.flush.interval.messages": ["1", "0"],
    "log.roll.ms": ["1000", "0"],
    "log.roll.hours": ["2", "0"],
    "log.preallocate": ["true", "x"],
    "compression.type": ["gzip", "x"],
    "producer.id.expiration.ms": ["1000000", "0"],
    "transaction.partition.verification.enable": ["true", "false", "x"],
    "metric.reporters": [""],
    "auto.create.topics.enable": ["true"],
    "advertised.listeners": ["x", ""],
    "broker.rack": ["r"],
    "log.local.retention.ms": ["-2", "5"],
    "log.segment.bytes": ["1048576", "13"],
    "log.message.timestamp.before.max.ms": ["5", "-1"],
    "log.deletion.delay.ms": ["0"],
    "log.segment.delete.delay.ms": ["0", "-1"],
}


def _picked(draw: Draw, values: dict[str, list[str]]) -> dict[str, str]:
    return {name: draw.one(values[name]) for name in draw.some(list(values), 1, 3, repeated=0)}


def _oddly(draw: Draw, config: dict[str, Any]) -> str:
    """The data of a config node, mostly as it should be."""
    return draw.weighted(
        [
            (10, raw({"version": 1, "config": config})),
            (1, raw({"version": draw.one([0, 2, -1]), "config": config})),
            (1, raw({"config": config})),
            (1, raw({"version": 1})),
            (1, raw({"version": 1, "config": draw.one([None, [], "x", 7])})),
            (1, raw({"version": 1, "config": dict.fromkeys(config, draw.one([7, True, None]))})),
            (1, draw.one(['{"version":1,', "x", "[]", "null", "{}", "7"])),
        ]
    )


def _notification(draw: Draw, kind: str, name: str) -> str:
    """A notification of a change, mostly as it should be."""
    return draw.weighted(
        [
            (8, raw({"version": 2, "entity_path": f"{kind}/{name}"})),
            (2, raw({"version": 1, "entity_type": kind, "entity_name": name})),
            (1, raw({"version": 3, "entity_path": f"{kind}/{name}"})),
            (1, raw({"entity_path": f"{kind}/{name}"})),
            (
                1,
                raw(
                    {
                        "version": 2,
                        "entity_path": draw.one(["", "/", kind, f"{kind}/", f"/{name}", "x/y", f"{kind}/{name}/z", "topics/no-such"]),
                    }
                ),
            ),
            (1, raw({"version": 2})),
            (1, raw({"version": 1, "entity_type": draw.one(["x", "brokers", "users", 7]), "entity_name": name})),
            (1, draw.one(['{"version":2,', "x", "[]", "null", "{}"])),
        ]
    )


def topic(draw: Draw) -> Lines:
    """A topic's node and a notification."""
    name = draw.topic()
    if not name.startswith("@"):
        name = draw.one(["@1", name])
    values = _picked(draw, _TOPIC)
    lines = [f"put /config/topics/{name} {_oddly(draw, values)}"]
    if draw.chance(0.9):
        lines.append(f"put-sequence /config/changes/config_change_ {_notification(draw, 'topics', name)}")
    return scene(*lines, _described(draw, name, list(values)))


def _described(draw: Draw, name: str, keys: list[str]) -> str:
    choices = [(5, f"configs topic {name} {' '.join(keys)}"), (2, f"data /config/topics/{name}"), (2, f"state {name}")]
    return draw.weighted(choices)


def broker(draw: Draw) -> Lines:
    """A broker's node, or that of all brokers, and a notification."""
    entity, values = draw.one(["0", "<default>", "<default>"]), _picked(draw, _BROKER)
    path = f"/config/brokers/{entity}"
    lines = [f"put {path} {_oddly(draw, values)}", f"put-sequence /config/changes/config_change_ {_notification(draw, 'brokers', entity)}"]
    shown = "default" if entity == "<default>" else "0"
    keys = " ".join(key for key in values if key not in ("no.such.key",)) or "num.io.threads"
    return scene(*lines, draw.one([f"configs broker {shown} {keys}", f"configs broker 0 {keys}", f"data {path}"]))


def altered(draw: Draw) -> Lines:
    """IncrementalAlterConfigs on top of what lies there."""
    is_topic = draw.chance(0.6) and bool(draw.sure)
    kind, name = (2, draw.one(draw.sure)) if is_topic else (4, draw.one(["0", ""]))
    values = _picked(draw, _TOPIC if is_topic else _BROKER)
    rows = []
    for key, value in values.items():
        operation = draw.weighted([(6, 0), (3, 1), (2, 2), (2, 3)])
        rows.append({"name": key, "configOperation": operation, "value": None if operation == 1 else value})
    body = {"resources": [{"resourceType": kind, "resourceName": name, "configs": rows}], "validateOnly": draw.chance(0.15)}
    path = f"/config/topics/{name}" if is_topic else f"/config/brokers/{name or '<default>'}"
    keys = [key for key in values if key != "no.such.key"] or ["min.insync.replicas"]
    shown = f"configs {'topic' if is_topic else 'broker'} {name or 'default'} {' '.join(keys)}"
    return scene(f"ask IncrementalAlterConfigs {draw.versions(0, 1)} {raw(body)}", draw.one([f"data {path}", shown]))


def replaced(draw: Draw) -> Lines:
    """AlterConfigs, the old request."""
    is_topic = draw.chance(0.6) and bool(draw.sure)
    kind, name = (2, draw.one(draw.sure)) if is_topic else (4, draw.one(["0", ""]))
    values = _picked(draw, _TOPIC if is_topic else _BROKER)
    rows = [{"name": key, "value": None if draw.chance(0.03) else value} for key, value in values.items()]
    body = {"resources": [{"resourceType": kind, "resourceName": name, "configs": rows}], "validateOnly": draw.chance(0.15)}
    path = f"/config/topics/{name}" if is_topic else f"/config/brokers/{name or '<default>'}"
    return scene(f"ask AlterConfigs {draw.versions(0, 2)} {raw(body)}", f"data {path}")


def created(draw: Draw) -> Lines:
    """A topic is created with configs, over a node of configs that lies there already, or not."""
    name = draw.new_topic()
    if name in draw.topics:
        return topic(draw)
    values = _picked(draw, _TOPIC)
    lines = []
    if draw.chance(0.4):
        lines.append(f"put /config/topics/{name} {_oddly(draw, _picked(draw, _TOPIC))}")
    given = [{"name": key, "value": value} for key, value in values.items()]
    row = {
        "name": name,
        "numPartitions": -1,
        "replicationFactor": -1,
        "assignments": [{"partitionIndex": 0, "brokerIds": [0]}],
        "configs": given,
    }
    draw.created(name, [["0"]])
    draw.sure.append(name)
    lines.append(f"ask CreateTopics {draw.versions(2, 7)} {raw({'topics': [row], 'timeoutMs': 2000, 'validateOnly': draw.chance(0.1)})}")
    return scene(*lines, _described(draw, name, list(values)))


def described(draw: Draw) -> Lines:
    """DescribeConfigs of several resources."""
    rows = []
    for _ in range(draw.random.randint(1, 3)):
        values = _TOPIC if draw.chance(0.5) else _BROKER
        name = draw.topic() if values is _TOPIC else draw.one(["0", "", "00", "1", "x"])
        kind = 2 if values is _TOPIC else 4
        if draw.chance(0.08):
            kind = draw.one([0, 1, 3, 8, 16, 32, -1])
        rows.append({"resourceType": kind, "resourceName": name, "configurationKeys": draw.some(list(values), 1, 4)})
    body = {"resources": rows, "includeSynonyms": draw.chance(0.5)}
    return scene(f"asked DescribeConfigs {draw.versions(0, 4)} {raw(body)}")
