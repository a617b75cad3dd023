"""The scenarios of reassignment: `reassign_order` (no replica moves) and `reassign_move` (one replica of each partition moves).

One AlterPartitionReassignments names all partitions. A change of order is over when every topic znode has the new lists and every broker
was told. A move has two parts, each measured, and `reassign_move` is their sum: `reassign_started`, until the added broker was told of all
its replicas, and `reassign_completed`, which begins with the leaders' AlterPartition (up to 5,000 partitions a request) that takes the
added replicas into the ISRs, and ends with the last topic znode, the last state and the last frame of all completions.
`znode_writes` counts every new version of a topic or state znode, however they were grouped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from klamm.benchmarks.controlled_cluster import FAKES, SPARE, ControlledCluster, Partition
from klamm.benchmarks.measuring import LIMIT_S, Measuring, error_codes
from klamm.controller.values import Assignment
from klamm.protocol import messages
from klamm.zk.layout import paths
from klamm.zk.layout import topics as topic_layout

Targets = dict[Partition, tuple[int, ...]]
ALL = (*FAKES, SPARE)


def reassign_order(to: Measuring, keys: list[Partition]) -> None:
    """`[a, b, c]` becomes `[b, c, a]`."""
    replicas = to.cluster.replicas
    want = {key: (*replicas[key][1:], replicas[key][0]) for key in keys}
    before = znode_versions(to.cluster, keys)
    to.measure("reassign_order", len(keys), act(to, want), completed(to.cluster, want, FAKES))
    replicas.update(want)
    to.results[-1]["znode_writes"] = znode_versions(to.cluster, keys) - before


def reassign_move(to: Measuring, keys: list[Partition]) -> None:
    """`[a, b, c]` becomes `[a, b, 104]`; 104 has no replicas before, and is in sync as soon as it was told of them."""
    cluster = to.cluster
    cluster.register(SPARE)
    to.settle({SPARE: (0, len(cluster.keys))})
    want = {key: (*cluster.replicas[key][:2], SPARE) for key in keys}
    before = znode_versions(cluster, keys)
    to.measure("reassign_started", len(keys), act(to, want), started(cluster, want), {SPARE: (len(keys), 0)})
    requests = to.alter_requests(keys, cluster.states(keys)[0], lambda _, state: [*state.isr, SPARE], 5000)
    to.measure("reassign_completed", len(keys), lambda: to.send_alters(requests, 1), completed(cluster, want, ALL))
    cluster.replicas.update(want)
    parts = to.results[-2:]
    to.record("reassign_move", len(keys), **{k: parts[0][k] + parts[1][k] for k in ("wall_s", "cpu_s", "frames", "zk_txns", "zk_requests")})
    to.results[-1]["znode_writes"] = znode_versions(cluster, keys) - before


def act(to: Measuring, want: Targets) -> Callable[[], float]:
    """Send the request; every partition has to be accepted."""
    request = messages.AlterPartitionReassignmentsRequest
    topics: dict[str, list[Any]] = {}
    for (topic, p), replicas in want.items():
        topics.setdefault(topic, []).append(request.ReassignablePartition(partition_index=p, replicas=list(replicas)))
    named = [request.ReassignableTopic(name=topic, partitions=partitions) for topic, partitions in topics.items()]
    message = request(timeout_ms=int(LIMIT_S * 1000), topics=named)
    return to.ask(
        message, 0, lambda a: f"error {a.error_code}" if a.error_code else error_codes([p for t in a.responses for p in t.partitions])
    )


def started(cluster: ControlledCluster, want: Targets) -> Callable[[], tuple[str, float]]:
    """The check that all moves have begun: adding and removing in the topic znodes, origin and added replicas told the raised epoch."""

    def look() -> tuple[str, float]:
        nodes, last_write = topics(cluster, want)
        wrong = [key for key, to in want.items() if nodes[key].target != to or nodes[key].adding != (SPARE,)]
        if wrong:
            return f"{len(wrong)} of {len(want)} have not begun, {wrong[0]} for one", 0
        states, last_state = cluster.states(list(want))
        return cluster.fakes.not_told(zip(want, states, strict=True), ALL, ()), max(last_write, last_state)

    return look


def completed(cluster: ControlledCluster, want: Targets, brokers: tuple[int, ...]) -> Callable[[], tuple[str, float]]:
    """The check that all have ended: topic znodes, states, the last LeaderAndIsr to the target, the last UpdateMetadata to `brokers`."""

    def look() -> tuple[str, float]:
        nodes, last_write = topics(cluster, want)
        wrong = [key for key, to in want.items() if nodes[key] != Assignment(to)]
        if wrong:
            return f"{len(wrong)} of {len(want)} are not where they should be, {wrong[0]} for one", 0
        states, last_state = cluster.states(list(want))
        told = list(zip(want, states, strict=True))
        bad = [key for key, state in told if state.leader not in want[key] or set(state.isr) != set(want[key])]
        if bad:
            return f"{len(bad)} of {len(want)} states are wrong, {bad[0]} for one", 0
        missing = [cluster.fakes.not_told([each for each in told if b in want[each[0]]], (b,), ()) for b in brokers]
        missing.append(cluster.fakes.not_told(told, (), brokers))
        return ", ".join(filter(None, missing)), max(last_write, last_state)

    return look


def topics(cluster: ControlledCluster, want: Targets) -> tuple[dict[Partition, Assignment], float]:
    """Assignments of these partitions as the topic znodes have them, and the time of the last write of one."""
    names = list(dict.fromkeys(topic for topic, _ in want))
    nodes = [node for node in cluster.admin.read([paths.topic_path(name) for name in names]) if node is not None]
    known = topic_layout.TopicNodes()
    stored = {name: known.decode_topic(name, node.data) for name, node in zip(names, nodes, strict=True)}
    assignments = {name: topic.assignments for name, topic in stored.items() if topic is not None}
    return {(t, p): assignments[t][p] for t, p in want}, max(node.mtime_ms for node in nodes) / 1000


def znode_versions(cluster: ControlledCluster, keys: list[Partition]) -> int:
    """The sum of the versions of these partitions' topic and state znodes."""
    names = [paths.topic_path(topic) for topic in dict.fromkeys(topic for topic, _ in keys)]
    names += [paths.state_path(topic, p) for topic, p in keys]
    return sum(node.version for node in cluster.admin.read(names) if node is not None)
