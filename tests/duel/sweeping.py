"""The end of a random story: everything it left in the cluster is taken away, so that the next one begins where this one began."""

from __future__ import annotations

import json

from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode
from klamm.tests.harness import requests
from klamm.tests.harness.tree import Tree
from klamm.tests.harness.waits import eventually
from klamm.tests.stories.both.stage import Stage

GONE_S = 6.0
"""How long the deletion of a story's topics may take."""
_CLEARED = ("/admin/preferred_replica_election", "/admin/reassign_partitions")
_QUEUES = ("/isr_change_notification", "/log_dir_event_notification", "/admin/delete_topics")


async def swept(stage: Stage) -> str | None:
    """Take away what a story left, through the controller. Returns what does not go away, None when all is gone."""
    tree = stage.tree
    if tree.controller() not in stage.brokers:
        tree.put("/controller_epoch", str(tree.controller_epoch() + 10))  # above those that the story told the broker
        tree.delete("/controller")
        await eventually(lambda: tree.controller() in stage.brokers, "the controller is a broker under test again", GONE_S)
    for path in _CLEARED:
        tree.delete(path)
    for name in tree.children("/brokers/ids"):
        if name.isdigit() and int(name) not in {*stage.by_id, *stage.brokers}:
            tree.delete(f"/brokers/ids/{name}")  # a node that a story wrote, of no broker
    await _revived(stage)
    await stage.barrier()
    await _reassignments_cancelled(stage)
    problem = await _topics_deleted(stage)
    for name in tree.children("/config/brokers"):
        tree.put_config("brokers", name, {})
        tree.delete(f"/config/brokers/{name}")
    for name in tree.children("/config/topics"):
        tree.delete(f"/config/topics/{name}", recursive=True)
    for kind in ("users", "clients", "ips"):
        for name in tree.children(f"/config/{kind}"):
            tree.delete(f"/config/{kind}/{name}", recursive=True)
            tree.client.create("/config/changes/config_change_", _changed(kind, name), sequence=True)
    await stage.barrier()
    return problem


def _changed(kind: str, name: str) -> bytes:
    return json.dumps({"version": 2, "entity_path": f"{kind}/{name}"}, separators=(",", ":")).encode()


async def _revived(stage: Stage) -> None:
    """Every fake broker begins a new life: it is registered as it is, not shutting down, and agrees to what it is told."""
    for fake in stage.by_id.values():
        fake.errors.clear()
        fake.release()
        await fake.accept()
        if stage.tree.exists(fake.path) is None:
            fake.register()
        else:
            fake.bounce()
        await stage.greeted(fake)


async def _reassignments_cancelled(stage: Stage) -> None:
    """A topic that is being reassigned is not deleted."""
    listed = await stage.ask(messages.ListPartitionReassignmentsRequest(timeout_ms=5000, topics=None), 0, timeout_s=10)
    kind = messages.AlterPartitionReassignmentsRequest
    rows = [
        kind.ReassignableTopic(
            name=topic.name, partitions=[kind.ReassignablePartition(partition_index=each.partition_index) for each in topic.partitions]
        )
        for topic in listed.topics
    ]
    if rows:
        await stage.ask(kind(timeout_ms=5000, topics=rows), 0, timeout_s=10)


async def _topics_deleted(stage: Stage) -> str | None:
    """Delete all topics; returns what is left and why."""
    names = stage.tree.children("/brokers/topics")
    if not names:
        return None
    await _absent_replicas(stage)
    answered = await stage.ask(requests.delete_topics(*names, timeout_ms=1), 6, timeout_s=10)
    if any(each.error_code == ErrorCode.TOPIC_DELETION_DISABLED for each in answered.responses):
        return "topics cannot be deleted"
    try:
        await eventually(lambda: not stage.tree.children("/brokers/topics"), "topics of the story deleted", GONE_S)
    except AssertionError:
        return f"not deleted: {[(name, _replicas(stage.tree, name)) for name in stage.tree.children('/brokers/topics')]}"
    return None


async def _absent_replicas(stage: Stage) -> None:
    """Brokers that never were, but have replicas, come up to give them up."""
    assigned = {r for topic in stage.tree.children("/brokers/topics") for replicas in _replicas(stage.tree, topic) for r in replicas}
    missing = sorted(r for r in assigned if r >= 0 and stage.tree.exists(f"/brokers/ids/{r}") is None)
    if missing:
        await stage.enter(missing)


def _replicas(tree: Tree, topic: str) -> list[list[int]]:
    try:
        return list(tree.assignment(topic).values())
    except (ValueError, KeyError, TypeError, AttributeError):
        return []  # a node that a story wrote by hand


def baseline(tree: Tree) -> str | None:
    """What is there between two stories that should not be; None when all is as it was."""
    for path, wanted in (("/brokers/topics", []), ("/config/topics", []), ("/brokers/ids", ["0"]), *((path, []) for path in _QUEUES)):
        found = tree.children(path)
        if found != wanted:
            return f"{path} has {found}"
    return None if tree.controller() == 0 else f"controller is {tree.controller()}"
