"""What a test looks at in a simulated ZooKeeper when throttles come and go: removal znodes, configs, notifications."""

from __future__ import annotations

import json
import re
from typing import Any

from klamm.controller.decisions import throttled_replicas as throttles
from klamm.tests.controller.simulated import SimulatedWorld
from klamm.tests.controller.stage import Stage
from klamm.tests.zk.simulated_zookeeper import Operation
from klamm.zk.session.requests import CREATE, DELETE, SET_DATA

TOPICS, BROKERS = "/admin/throttled_replicas_removal", "/admin/throttled_rates_removal"
OTHER_TOPICS, OTHER_BROKERS = "/admin/remove_throttled_replicas", "/admin/remove_throttled_rates"
REMOVALS = (TOPICS, BROKERS, OTHER_TOPICS, OTHER_BROKERS)
MOVES = "/admin/reassign_partitions"
KEPT = {"topics": {"retention.ms": "7654321"}, "brokers": {"max.connections": "432"}}
"""Properties that are no throttles."""


def put(world: SimulatedWorld, path: str, content: Any) -> None:
    """Somebody creates or replaces a znode."""
    data = json.dumps(content).encode() if not isinstance(content, bytes) else content
    if world.zk.get(path) is None:
        world.zk.create(path, data)
    else:
        world.zk.set(path, data)


def content(world: SimulatedWorld, path: str) -> Any:
    """The JSON of a znode, None where there is none."""
    node = world.zk.get(path)
    return None if node is None else json.loads(node.data or b"null")


def config(world: SimulatedWorld, entity: str) -> dict[str, str]:
    """The properties of `topics/t` or `brokers/1`."""
    found = content(world, f"/config/{entity}")
    properties: dict[str, str] = {} if found is None else found["config"]
    return properties


def set_config(world: SimulatedWorld, entity: str, properties: dict[str, str]) -> None:
    """An administrator sets properties; nobody is notified."""
    put(world, f"/config/{entity}", {"version": 1, "config": properties})


async def opened(stage: Stage, *brokers: int) -> None:
    """These brokers and two topics, each with a property that is no throttle."""
    await stage.open(*brokers)
    await stage.create("a", (1, 2), (2, 1))
    await stage.create("t", (1, 2))
    for entity in ("topics/a", "topics/t", *(f"brokers/{broker}" for broker in brokers)):
        set_config(stage.world, entity, KEPT[entity.partition("/")[0]])


def throttle(world: SimulatedWorld, entity: str) -> None:
    """An entity has both properties of a throttle, and one that is none."""
    kind = entity.partition("/")[0]
    move = throttles.Move(frozenset({1}), frozenset({2}))
    values = throttles.rates(100, 200) if kind == "brokers" else throttles.replica_lists({0: move})
    set_config(world, entity, {**KEPT[kind], **{name: str(value) for name, value in values.items()}})


def replicas(world: SimulatedWorld, topic: str) -> tuple[str | None, str | None]:
    """Throttled replicas of a topic: of leaders, of followers."""
    properties = config(world, f"topics/{topic}")
    return properties.get(throttles.LEADER_REPLICAS), properties.get(throttles.FOLLOWER_REPLICAS)


def rate(world: SimulatedWorld, broker_id: int) -> tuple[str | None, str | None]:
    """Rates of a broker: as leader, as follower."""
    properties = config(world, f"brokers/{broker_id}")
    return properties.get(throttles.LEADER_RATE), properties.get(throttles.FOLLOWER_RATE)


def announced(world: SimulatedWorld) -> list[str]:
    """Entities whose change was announced, in order."""
    names = sorted(world.zk.children("/config/changes"))
    return [content(world, f"/config/changes/{name}")["entity_path"] for name in names]


def tree(world: SimulatedWorld) -> dict[str, tuple[bytes | None, int]]:
    """Everything with its versions: to see that nothing was changed."""
    return {path: (node.data, node.version) for path, node in world.zk.nodes.items()}


def written(world: SimulatedWorld) -> list[str]:
    """A list that grows with the path of every znode that a controller creates, replaces or (`-`) deletes, numbers at its end left out."""
    paths: list[str] = []

    def note(operation: Operation, session: int) -> None:
        if session and operation.kind in (CREATE, SET_DATA, DELETE):
            path = re.sub(r"_\d{10}$|_$", "", operation.path)
            paths.append(f"-{path}" if operation.kind == DELETE else path)

    world.observers.append(note)
    return paths
