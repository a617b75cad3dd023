"""Changes of the cluster: who may make them, and what a subscriber sees of them."""

from __future__ import annotations

import ast
import pathlib
from collections.abc import AsyncIterator, Iterator
from typing import get_args

import pytest

import klamm.controller
from klamm.controller import changes, cluster
from klamm.controller.changes import Change
from klamm.controller.cluster import Cluster, Partition, Topic
from klamm.controller.values import Assignment, Broker, LeaderAndIsr
from klamm.protocol.nouns import Endpoint, TopicPartition
from klamm.tests.controller.replay import replay
from klamm.tests.controller.snapshots import snapshot
from klamm.tests.controller.stage import Stage, events

OF_OTHERS_TOO = {"name", "topics"}
"""Responses and plans have such fields. Of a cluster the one never changes, and the other is a Mapping to mypy."""
FIELDS = {*Partition.__slots__, *Topic.__slots__, *vars(Cluster(0))} - OF_OTHERS_TOO
CHANGING = {
    "add", "append", "clear", "difference_update", "discard", "extend", "insert", "intersection_update", "pop", "popitem", "remove",
    "setdefault", "symmetric_difference_update", "update",
}


def field_of(node: ast.expr) -> str | None:
    """The field of a cluster, topic or partition that an expression names; None for fields that an object calls its own by that name."""
    while isinstance(node, ast.Subscript):
        node = node.value
    if isinstance(node, ast.Attribute) and node.attr in FIELDS and not (isinstance(node.value, ast.Name) and node.value.id == "self"):
        return node.attr
    return None


def unpacked(target: ast.expr) -> Iterator[ast.expr]:
    """The single targets of an assignment."""
    if isinstance(target, ast.Tuple | ast.List):
        for each in target.elts:
            yield from unpacked(each)
    elif isinstance(target, ast.Starred):
        yield from unpacked(target.value)
    else:
        yield target


def mutations(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, field) of everything in a module that changes such a field."""
    for node in ast.walk(tree):
        targets: list[ast.expr] = []
        match node:
            case ast.Assign() | ast.Delete():
                targets = node.targets
            case ast.AugAssign() | ast.AnnAssign() | ast.For() | ast.AsyncFor():
                targets = [node.target]
            case ast.Call(func=ast.Attribute(attr=method, value=value)) if method in CHANGING:
                targets = [value]
        for target in targets:
            for single in unpacked(target):
                name = field_of(single)
                if name is not None:
                    yield single.lineno, name


@pytest.mark.parametrize(
    "source",
    [
        "p.info = state", "p.topic.deletion = None", "cluster.brokers[1] = b", "del cluster.reassigning['t']", "cluster._brokers.pop(1)",
        "a, p.assignment = 1, 2", "cluster.epoch += 1", "topic.partitions.clear()", "term.cluster.reassigning.add(p)",
        "cluster.offline_dirs[b].discard(p)", "for p.state in states: pass",
    ],
)
def test_the_check_sees_what_changes_a_field(source: str) -> None:
    assert list(mutations(ast.parse(source)))


@pytest.mark.parametrize(
    "source", ["self.epoch = 1", "info = p.info", "cluster.states_changed(p, s)", "told[p.state].append(p)", "x.y = p.info"]
)
def test_the_check_passes_what_only_reads(source: str) -> None:
    assert not list(mutations(ast.parse(source)))


def test_only_methods_of_the_cluster_change_it() -> None:
    folder = pathlib.Path(klamm.controller.__file__).parent
    own = pathlib.Path(cluster.__file__)
    found = [
        f"{file.name}:{line}: {field}"
        for file in sorted(folder.rglob("*.py"))
        if file != own
        for line, field in sorted(set(mutations(ast.parse(file.read_text()))))
    ]
    assert found == []


# --- the subscriber ---


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    one = Stage()
    yield one
    await one.close()


def test_changes_are_seen_in_order_as_values() -> None:
    seen: list[Change] = []
    one = Cluster(8, seen.append)
    broker = Broker(1, 10, (Endpoint("PLAINTEXT", "h", 9092, 0),))
    one.brokers_registered([broker])
    p = one.partition_added(one.topic_added("t", b"t" * 16), 0, Assignment((1,)))
    state = LeaderAndIsr(1, 0, (1,), 0, 0, 8)
    one.states_changed([p], [state])
    one.offline_replicas_changed(1, [])
    one.topic_removed("t")
    one.term_ended()
    key = TopicPartition("t", 0)
    assert seen == [
        changes.TermBegan(8), changes.BrokersRegistered((broker,)), changes.TopicAdded("t", b"t" * 16),
        changes.PartitionAdded(key, Assignment((1,))), changes.StatesChanged(((key, state),)), changes.TopicRemoved("t"),
        changes.TermEnded(8),
    ]
    assert len(set(seen)) == len(seen), "values with a hash"


async def test_a_cluster_made_of_the_changes_is_the_same(stage: Stage) -> None:
    """Creation, growth, death, return, bounce, a failed log directory, shutdown, elections, deletion, reassignment, a list: all changes."""
    w = stage.world
    w.broker_configs["<default>"] = {"preferred_leader_blacklist": "7"}
    await stage.open(1, 2, 3)
    assert stage.cluster.listed == {7}
    await stage.create("t", (1, 2), (2, 3))
    await stage.create("doomed", (1, 3))
    w.offline_dirs.add((2, TopicPartition("t", 1)))
    w.notify_log_dir(2)
    await stage.settle()
    assert snapshot(replay(stage.changes)) == snapshot(stage.cluster)
    await stage.stop(3)
    w.delete_topic("doomed")
    await stage.settle()
    assert snapshot(replay(stage.changes)) == snapshot(stage.cluster), "a deletion waits"
    await stage.controller.controlled_shutdown(1, -1)
    assert snapshot(replay(stage.changes)) == snapshot(stage.cluster), "a broker is shutting down"
    await stage.stop(1)
    await stage.start(1, 3)
    w.delete_topic("t")
    await stage.settle()
    assert snapshot(replay(stage.changes)) == snapshot(stage.cluster)
    assert "doomed" not in stage.cluster.topics
    await stage.create("moved", (1, 2))
    await stage.controller.alter_reassignments({TopicPartition("moved", 0): (1,), TopicPartition("moved", 9): (1,)})
    assert stage.partition("moved").assignment == Assignment((1,))
    assert snapshot(replay(stage.changes)) == snapshot(stage.cluster)
    registered = await stage.register(9)
    assert snapshot(replay(stage.changes)) == snapshot(stage.cluster), "a broker is fenced"
    await stage.put(events.BrokerCaughtUp(9, registered.epoch))
    assert snapshot(replay(stage.changes)) == snapshot(stage.cluster)
    never = {changes.TermEnded}
    assert {type(change) for change in stage.changes} >= set(get_args(Change)) - never


async def test_who_subscribes_at_fail_over_sees_the_whole_term(stage: Stage) -> None:
    await stage.open(1, 2)
    await stage.create("t", (1, 2))
    await stage.stop(2)
    await stage.fail_over()
    assert isinstance(stage.changes[0], changes.TermBegan)
    assert snapshot(replay(stage.changes)) == snapshot(stage.cluster)


def test_the_log_at_debug_sees_changes_and_passes_them_on() -> None:
    """Two observers at a time; the first one stays when the second one goes."""
    seen: list[Change] = []
    more: list[Change] = []
    one = Cluster(8, seen.append)
    before = one.subscribe(more.append)
    one.topic_added("t", None)
    assert one.subscribe(before) == more.append
    one.topic_added("u", None)
    assert (seen[1:], more) == ([changes.TopicAdded("u", None)], [changes.TopicAdded("t", None)])


@pytest.mark.parametrize(
    "bad", [[], [changes.TopicAdded("t", None)], [changes.TermBegan(1), changes.TermBegan(2)],
            [changes.TermBegan(1), changes.StatesChanged(((TopicPartition("t", 0), None),))]],
)
def test_changes_that_do_not_fit_are_refused(bad: list[Change]) -> None:
    with pytest.raises(ValueError):
        replay(bad)
