"""Nodes of brokers in every version and of odd forms, blocks of producer ids, and questions by id."""

from __future__ import annotations

from typing import Any

from klamm.tests.duel.draw import EDGES_32, INT32, Draw, number, raw, scene
from klamm.tests.duel.tale import Lines
from klamm.tests.duel.topics import view


def rewritten(draw: Draw) -> Lines:
    """Other data in the node of a fake broker: endpoints, protocols, features, versions, racks; all of it can be read."""
    if not draw.alive:
        return metadata_by_id(draw)
    fake = draw.one(draw.alive)
    words = draw.one(
        [
            ["rack=south"],
            ["version=4"],
            ["version=3", 'endpoints=["PLAINTEXT://127.0.0.1:1"]'],
            [
                'endpoints=["PLAINTEXT://127.0.0.1:1","SSL://127.0.0.1:2"]',
                'listener_security_protocol_map={"PLAINTEXT":"PLAINTEXT","SSL":"SSL"}',
            ],
            [
                'endpoints=["INT://127.0.0.1:1","PLAINTEXT://127.0.0.1:2"]',
                'listener_security_protocol_map={"PLAINTEXT":"PLAINTEXT","INT":"SASL_SSL"}',
            ],
            ['features={"fa":{"min_version":1,"max_version":3}}'],
            ["rack=null"],
            ["jmx_port=77"],
            ["host=null", "port_of_nothing=5"],
            ['endpoints=["PLAINTEXT://[::1]:7"]'],
            ['endpoints=["plaintext://127.0.0.1:7"]'],
            ['endpoints=["PLAINTEXT://127.0.0.1:9"]'],
            ["timestamp=5"],
            ["version=6"],
            ["unknown=[1]"],
        ]
    )
    if words[0] == "rack=null":
        words = ["rack=", "jmx_port=1"]
    return scene(f"rewrite {fake} {' '.join(words)}", draw.one([f"live {fake}", "brokers", view(draw)]))


def bare(draw: Draw) -> Lines:
    """A broker that is only a node: nobody can connect to it."""
    at = draw.random.randint(7, 9)
    end = {"host": "127.0.0.1", "port": draw.one([1, 0, 65535]), "jmx_port": -1, "timestamp": "1"}
    node: dict[str, Any] = draw.one(
        [
            {"version": 1, **end},
            {"version": 2, **end, "endpoints": ["PLAINTEXT://127.0.0.1:1"]},
            {"version": 3, **end, "endpoints": ["PLAINTEXT://127.0.0.1:1"], "rack": "r"},
            {"version": 4, **end, "endpoints": ["PLAINTEXT://127.0.0.1:1"], "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"}},
            {
                "version": 5,
                **end,
                "endpoints": ["PLAINTEXT://127.0.0.1:1"],
                "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"},
                "features": {"fa": {"min_version": 1, "max_version": 1}},
            },
            {"version": 5, **end, "endpoints": ["PLAINTEXT://127.0.0.1:1"], "features": {}},
            {"version": 9, **end, "endpoints": ["PLAINTEXT://127.0.0.1:1"]},
        ]
    )
    path = f"/brokers/ids/~{at}"
    if f"~{at}" in draw.notes:
        draw.notes.pop(f"~{at}")
        return scene(f"rm {path}", draw.one(["brokers", view(draw)]))
    draw.notes[f"~{at}"] = True
    return scene(f"put-ephemeral {path} {raw(node)}", draw.one(["brokers", view(draw), "asked DescribeCluster v1 {}"]))


def on_bare(draw: Draw) -> Lines:
    """A topic with a replica on such a broker, or on one that does not exist."""
    name = draw.new_topic()
    if name in draw.topics:
        return bare(draw)
    replicas = [[*draw.random.sample(["~7", "~8", "~9"], 1), *draw.replicas()[:1]]]
    if draw.chance(0.5):
        replicas[0].reverse()
    draw.created(name, replicas)
    return scene(f"create {name} [{','.join(replicas[0])}] timeout=300", view(draw, name))


def metadata_by_id(draw: Draw) -> Lines:
    """Metadata by ids and names, known and unknown, in every version that has them."""
    rows: list[dict[str, Any]] = []
    for _ in range(draw.random.randint(0, 3)):
        name = draw.topic()
        rows.append(
            draw.weighted(
                [
                    (4, {"name": None, "topicId": f"<id {name}>"}),
                    (2, {"name": None, "topicId": "AAAAAAAAAAAAAAAAAAAAAQ"}),
                    (1, {"name": None}),
                    (1, {"name": name, "topicId": f"<id {name}>"}),
                    (2, {"name": name}),
                    (1, {"name": ""}),
                ]
            )
        )
    body = {
        "topics": draw.weighted([(8, rows), (1, None)]) if rows else [],
        "allowAutoTopicCreation": draw.chance(0.3),
        "includeTopicAuthorizedOperations": draw.chance(0.3),
        "includeClusterAuthorizedOperations": draw.chance(0.3),
    }
    if body["topics"] is None:
        body["topics"] = rows
    return scene(f"asked Metadata {draw.versions(draw.one([10, 11, 12]), 12)} {raw(body)}")


def block(draw: Draw) -> Lines:
    """The node of producer ids, written by hand, and a block asked for."""
    fake = draw.one(draw.alive) if draw.alive else "0"
    start = draw.one(["0", "5000", "-1", "9223372036854774807", "9223372036854775806", "x", " 7"])
    end = draw.one(["999", "5999", "9223372036854775806", "9223372036854775807", "9223372036854775808", "-1", "x", "7 "])
    node = draw.weighted(
        [
            (6, raw({"version": 1, "broker": number(fake), "block_start": start, "block_end": end})),
            (1, raw({"version": draw.one([0, 2]), "broker": 3, "block_start": "0", "block_end": "999"})),
            (1, raw({"version": 1, "broker": 3, "block_start": 0, "block_end": 999})),
            (1, raw({"version": 1, "block_start": "0", "block_end": "999"})),
            (1, raw({"version": 1, "broker": 3})),
            (1, draw.one(["x", "{}", "[]", '{"version":1,'])),
        ]
    )
    if draw.old_protocol:
        return metadata_by_id(draw)
    body = {"brokerId": number(fake), "brokerEpoch": f"#<epoch {fake}>"}
    return scene(f"put /latest_producer_id_block {node}", f"ask AllocateProducerIds v0 {raw(body)}", "data /latest_producer_id_block")


def topic_node_oddly(draw: Draw) -> Lines:
    """A new topic's node, written by hand in forms of every version, and odd ones."""
    name = draw.new_topic()
    if name in draw.topics:
        return bare(draw)
    replicas = [draw.replicas() for _ in range(draw.random.randint(1, 3))]
    rows = {str(at): [number(each) for each in one] for at, one in enumerate(replicas)}
    node: Any = draw.weighted(
        [
            (3, {"version": 1, "partitions": rows}),
            (3, {"version": 2, "partitions": rows, "adding_replicas": {"0": rows["0"][:1]}, "removing_replicas": {}}),
            (3, {"version": 2, "partitions": rows, "adding_replicas": {}, "removing_replicas": {"0": rows["0"][1:]}}),
            (3, {"version": 3, "partitions": rows, "topic_id": "MZjQ1cYnTCm3RxfOhOZ0mw", "adding_replicas": {}, "removing_replicas": {}}),
            (1, {"version": 9, "partitions": rows}),
            (1, {"partitions": rows}),
            (2, {"version": 3, "partitions": {str(int(at) + 2): one for at, one in rows.items()}}),
            (1, {"version": 3, "partitions": {}}),
            (1, {"version": 3}),
            (2, {"version": 3, "partitions": {**rows, "7": []}}),
            (1, {"version": 3, "partitions": {**rows, str(INT32 - 1): [0]}}),
        ]
    )
    draw.created(name, replicas)
    choices = [f"state {name}", f"metadata {name}", f"placed {name}", f"tree /brokers/topics/{name}"]
    return scene(f"put /brokers/topics/{name} {raw(node)}", draw.one(choices))


def state_oddly(draw: Draw) -> Lines:
    """A partition's state with keys missing, added, or of the end of their range; and a fail-over, an election or a death after it."""
    if not draw.sure:
        return metadata_by_id(draw)
    name = draw.one(draw.sure)
    at = draw.random.randrange(len(draw.topics[name]))
    replicas = [number(each) for each in draw.topics[name][at]]
    state: dict[str, Any] = {
        "controller_epoch": 1,
        "leader": replicas[0],
        "version": 1,
        "leader_epoch": draw.one([0, 5, INT32 - 1]),
        "isr": replicas,
    }
    changes = {
        "version": draw.one([0, 2]),
        "leader": draw.one([-1, -2, 4711, replicas[-1]]),
        "isr": draw.one([replicas[:1], replicas[::-1], [*replicas, replicas[0]], [4711], [*replicas, 4711]]),
        "controller_epoch": draw.one([0, 1, -1]),
        "leader_recovery_state": draw.one([0, 1]),
        "leader_epoch": draw.one([0, 1, -5, *EDGES_32]),
        "extra": [1],
    }
    for key in draw.some(list(changes), 0, 2, repeated=0):
        state[key] = changes[key]
    if not -(1 << 31) <= state["leader_epoch"] < INT32:
        state["leader_epoch"] = 0
    lines = [f"put /brokers/topics/{name}/partitions/{at}/state {raw(state)}"]
    note = raw({"version": 1, "partitions": [{"topic": name, "partition": at}]})
    lines.append(
        draw.one(
            [
                "resign",
                f"put-sequence /isr_change_notification/isr_change_ {note}",
                f"elect preferred {name}-{at}",
                f"elect unclean {name}-{at}",
            ]
        )
    )
    return scene(*lines, view(draw, name))
