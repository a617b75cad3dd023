"""What another controller says to the broker under test: LeaderAndIsr, UpdateMetadata and StopReplica of every version, good and stale."""

from __future__ import annotations

from typing import Any

from klamm.tests.duel.draw import EDGES_32, Draw, raw, scene
from klamm.tests.duel.tale import Lines


def stolen(draw: Draw) -> Lines:
    """Somebody else is controller."""
    for at in range(1, 5):
        draw.created(f"@{at}", [["0"]])
    return scene("steal")


def _epoch(draw: Draw) -> str:
    return draw.weighted([(10, "#<ce>"), (2, "#<ce -1>"), (1, "#<ce +1>"), (1, draw.one(["#-1", "#0", "#-2147483648"]))])


def _head(draw: Draw) -> dict[str, Any]:
    epoch = draw.weighted([(10, "#<epoch 0>"), (1, "#<epoch 0 -1>"), (1, "#<epoch 0 +1>"), (2, -1)])
    return {
        "controllerId": draw.weighted([(6, 999), (1, draw.one([0, -1, 2147483647]))]),
        "controllerEpoch": _epoch(draw),
        "brokerEpoch": epoch,
    }


def _state(draw: Draw, *, named: str | None) -> dict[str, Any]:
    leader = draw.weighted([(5, 0), (3, 999), (2, 998), (1, -1), (1, -2), (1, 4711)])
    replicas = draw.one([[0], [0, 999], [999, 0], [999], [0, 999, 998]])
    state: dict[str, Any] = {
        "partitionIndex": draw.weighted([(6, 0), (3, 1), (1, 7)]),
        "controllerEpoch": "#<ce>",
        "leader": leader,
        "leaderEpoch": draw.weighted([(4, 0), (4, 1), (4, 2), (2, 3), (1, draw.one([-2, 2147483647]))]),
        "isr": draw.one([replicas, replicas[:1], []]),
        "zkVersion": draw.random.randint(0, 3),
        "partitionEpoch": draw.random.randint(0, 3),
        "replicas": replicas,
        "isNew": draw.chance(0.3),
        "offlineReplicas": draw.one([[], [], [999]]),
    }
    return state if named is None else {"topicName": named, **state}


def _topics(draw: Draw) -> list[str]:
    return draw.some([f"@{at}" for at in range(1, 5)], 0, 2, repeated=0.0)


def leader_and_isr(draw: Draw) -> Lines:
    """Leadership is given to the broker, or taken from it."""
    version = draw.random.randint(0, 7)
    topics, body = _topics(draw), _head(draw)
    body["liveLeaders"] = [{"brokerId": 999, "hostName": "127.0.0.1", "port": 1}] if draw.chance(0.8) else []
    if version < 2:
        body["ungroupedPartitionStates"] = _fields([_state(draw, named=topic) for topic in topics], "leader-and-isr")
    else:
        body["topicStates"] = _grouped(draw, topics, "leader-and-isr")
    if version >= 2 and draw.chance(0.1):
        body["type"] = draw.one([0, 1, 2])
    return scene(f"ask LeaderAndIsr v{version} {raw(body)}", _view(draw, topics))


def _grouped(draw: Draw, topics: list[str], kind: str) -> list[dict[str, Any]]:
    """States of one partition each, by topic; a topic's id is made from its number."""
    return [
        {"topicName": t, "topicId": f"AAAAAAAAAAAAAAAAAAAA{t[1]}g", "partitionStates": _fields([_state(draw, named=None)], kind)}
        for t in topics
    ]


def _fields(states: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    """Without the fields that this kind of request does not know."""
    unknown = {"leader-and-isr": {"offlineReplicas", "zkVersion"}, "update-metadata": {"partitionEpoch", "isNew"}}[kind]
    return [{name: value for name, value in state.items() if name not in unknown} for state in states]


def update_metadata(draw: Draw) -> Lines:
    """What clients are to see."""
    version = draw.random.randint(0, 8)
    topics, body = _topics(draw), _head(draw)
    live = []
    for broker in draw.some([0, 999, 998], 0, 3, repeated=0.0):
        if version == 0:
            live.append({"id": broker, "v0Host": f"h{broker}", "v0Port": 1})
        else:
            end = {"port": 1, "host": f"h{broker}", "listener": "PLAINTEXT", "securityProtocol": 0}
            live.append({"id": broker, "endpoints": [end], "rack": draw.one([None, "north", ""])})
    body["liveBrokers"] = live
    if version < 5:
        body["ungroupedPartitionStates"] = _fields([_state(draw, named=topic) for topic in topics], "update-metadata")
    else:
        body["topicStates"] = _grouped(draw, topics, "update-metadata")
    return scene(f"ask UpdateMetadata v{version} {raw(body)}", _view(draw, topics))


def stop_replica(draw: Draw) -> Lines:
    """Replicas are stopped, or deleted."""
    version = draw.random.randint(0, 4)
    topics, body = _topics(draw), _head(draw)
    if version == 0:
        body |= {"deletePartitions": draw.chance(0.5), "ungroupedPartitions": [{"topicName": t, "partitionIndex": 0} for t in topics]}
    elif version < 3:
        body |= {"deletePartitions": draw.chance(0.5), "topics": [{"name": topic, "partitionIndexes": [0, 1]} for topic in topics]}
    else:
        epoch = draw.weighted([(4, 0), (4, 1), (4, 2), (2, 3), (2, draw.one(EDGES_32))])
        state = {"partitionIndex": 0, "leaderEpoch": epoch, "deletePartition": draw.chance(0.5)}
        body["topicStates"] = [{"topicName": topic, "partitionStates": [state]} for topic in topics]
    return scene(f"ask StopReplica v{version} {raw(body)}", _view(draw, topics))


def _view(draw: Draw, topics: list[str]) -> str:
    return draw.weighted([(5, f"metadata {draw.one(topics)}" if topics else "brokers"), (1, "brokers")])
