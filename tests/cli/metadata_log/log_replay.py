"""What the lines of `klamm metadata-log dump` say of a cluster, and what its ZooKeeper holds, as equal values (controller 25.1, RREG-18).

The rules of the records stand here once more, written from the specification and with no code of the product.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from klamm.tests.harness.tree import Tree

TOPIC, BROKER = 2, 4


@dataclass
class Seen:
    """Brokers by id: epoch and state. Topics by name: id, then partitions by number. Configs by (type, name)."""

    brokers: dict[int, tuple[int, str]] = field(default_factory=dict)
    topics: dict[str, tuple[str, dict[int, dict[str, Any]]]] = field(default_factory=dict)
    configs: dict[tuple[int, str], dict[str, str]] = field(default_factory=dict)


def of_lines(lines: Iterable[str]) -> Seen:
    """The outcome of all records of one log, from its first one."""
    seen = Seen()
    names: dict[str, str] = {}
    for offset, row in enumerate(map(json.loads, lines)):
        assert row["offset"] == offset, "offsets are dense and begin at 0"
        data = row["data"]
        match row["type"]:
            case "REGISTER_BROKER_RECORD":
                state = "FENCED" if data["fenced"] else "STOPPING" if data["inControlledShutdown"] else "ONLINE"
                seen.brokers[data["brokerId"]] = (data["brokerEpoch"], state)
            case "UNREGISTER_BROKER_RECORD":
                del seen.brokers[data["brokerId"]]
            case "FENCE_BROKER_RECORD":
                seen.brokers[data["id"]] = (data["epoch"], "FENCED")
            case "UNFENCE_BROKER_RECORD":
                seen.brokers[data["id"]] = (data["epoch"], "ONLINE")
            case "BROKER_REGISTRATION_CHANGE_RECORD":
                assert data["inControlledShutdown"] == 1
                seen.brokers[data["brokerId"]] = (data["brokerEpoch"], "STOPPING")
            case "TOPIC_RECORD":
                names[data["topicId"]] = data["name"]
                seen.topics[data["name"]] = (data["topicId"], {})
            case "REMOVE_TOPIC_RECORD":
                name = names.pop(data["topicId"])
                del seen.topics[name]
                seen.configs.pop((TOPIC, name), None)
            case "PARTITION_RECORD":
                wanted = ("replicas", "addingReplicas", "removingReplicas", "isr", "leader", "leaderEpoch", "partitionEpoch")
                replaced = {name: data[name] for name in wanted} | {"mark": data.get("leaderRecoveryState", 0)}
                seen.topics[names[data["topicId"]]][1][data["partitionId"]] = replaced
            case "PARTITION_CHANGE_RECORD":
                changed = seen.topics[names[data["topicId"]]][1][data["partitionId"]]
                changed["partitionEpoch"] += 1
                if "leader" in data:
                    changed["leader"] = data["leader"]
                    changed["leaderEpoch"] += 1
                changed["isr"] = data.get("isr", changed["isr"])
                changed["mark"] = data.get("leaderRecoveryState", changed["mark"])
            case "CONFIG_RECORD":
                entity = seen.configs.setdefault((data["resourceType"], data["resourceName"]), {})
                if data["value"] is None:
                    entity.pop(data["name"], None)
                else:
                    entity[data["name"]] = data["value"]
    seen.configs = {entity: properties for entity, properties in seen.configs.items() if properties}
    return seen


def of_zookeeper(tree: Tree) -> Seen:
    """The same from the znodes."""
    seen = Seen()
    for name in tree.children("/cluster/brokers"):
        registered = tree.json(f"/cluster/brokers/{name}")
        if registered["state"] != "OFFLINE":
            seen.brokers[int(name)] = (registered["epoch"], registered["state"])
    seen.brokers |= {int(name): (tree.broker_epoch(int(name)), "ONLINE") for name in tree.children("/brokers/ids")}
    for name in tree.children("/brokers/topics"):
        topic = tree.json(f"/brokers/topics/{name}")
        topic_id = base64.urlsafe_b64encode(base64.urlsafe_b64decode(topic["topic_id"] + "==")).decode().rstrip("=")
        seen.topics[name] = (topic_id, {int(p): _partition(tree, name, topic, p) for p in topic["partitions"]})
    for kind, folder in ((TOPIC, "topics"), (BROKER, "brokers")):
        for name in tree.children(f"/config/{folder}"):
            if properties := (tree.json(f"/config/{folder}/{name}") or {}).get("config"):
                seen.configs[kind, "" if name == "<default>" else name] = properties
    return seen


def _partition(tree: Tree, name: str, topic: dict[str, Any], partition: str) -> dict[str, Any]:
    state = tree.state(name, int(partition))
    assert state is not None
    return {
        "replicas": topic["partitions"][partition],
        "addingReplicas": topic["adding_replicas"].get(partition, []),
        "removingReplicas": topic["removing_replicas"].get(partition, []),
        "isr": state.isr,
        "leader": state.leader,
        "leaderEpoch": state.le,
        "partitionEpoch": state.pe,
        "mark": state.recovery,
    }
