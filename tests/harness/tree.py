"""The znodes of a cluster as a test sees and touches them: plain kazoo and plain JSON, no code of the product.

One session of its own; calls block for a millisecond or two, which a test may. Paths are relative to the cluster's chroot.
"""

from __future__ import annotations

import base64
import json
import time
from typing import Any, NamedTuple

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NodeExistsError, NoNodeError
from kazoo.protocol.states import ZnodeStat


class State(NamedTuple):
    """A partition's state node; `pe` is its znode version, `ce` the epoch of the controller that wrote it."""

    leader: int
    isr: list[int]
    le: int
    pe: int
    ce: int
    recovery: int


class Tree:
    """Everything below one chroot."""

    def __init__(self, address: str, chroot: str) -> None:
        root = KazooClient(hosts=address, timeout=30)
        root.start(timeout=15)
        root.ensure_path(chroot)
        root.stop()
        root.close()
        self.hosts = address + chroot
        self.client = KazooClient(hosts=self.hosts, timeout=30)
        self.client.start(timeout=15)

    def close(self) -> None:
        self.client.stop()
        self.client.close()

    # any node

    def exists(self, path: str) -> ZnodeStat | None:
        return self.client.exists(path)

    def get(self, path: str) -> bytes | None:
        """Data of a node; None when it is missing or has none."""
        try:
            return self.client.get(path)[0] or None
        except NoNodeError:
            return None

    def json(self, path: str) -> Any:
        """Data of a node as JSON; None when it is missing or has none."""
        data = self.get(path)
        return None if data is None else json.loads(data)

    def children(self, path: str) -> list[str]:
        try:
            return sorted(self.client.get_children(path))
        except NoNodeError:
            return []

    def put(self, path: str, data: Any, *, ephemeral: bool = False) -> None:
        """Create a node or replace its data; dicts become JSON."""
        raw = (
            data
            if isinstance(data, bytes)
            else data.encode()
            if isinstance(data, str)
            else json.dumps(data, separators=(",", ":")).encode()
        )
        try:
            self.client.create(path, raw, ephemeral=ephemeral, makepath=True)
        except NodeExistsError:
            self.client.set(path, raw)

    def delete(self, path: str, *, recursive: bool = False) -> None:
        """Delete a node; a missing one is fine."""
        try:
            self.client.delete(path, recursive=recursive)
        except NoNodeError:
            return

    def all_or_nothing(self, *operations: tuple[str, str, bytes | None, bool]) -> None:
        """One multi of (create|set|delete, path, data, ephemeral)."""
        multi = self.client.transaction()
        for kind, path, data, ephemeral in operations:
            if kind == "create":
                multi.create(path, data or b"", ephemeral=ephemeral)
            elif kind == "set":
                multi.set_data(path, data or b"")
            else:
                multi.delete(path)
        failed = [r for r in multi.commit() if isinstance(r, (KazooException, Exception))]
        if failed:
            raise AssertionError(f"a multi of the test failed: {failed}")

    # nodes with a meaning

    def controller(self) -> int:
        """Broker id in `/controller`, -1 when there is none."""
        node = self.json("/controller")
        return -1 if node is None else int(node["brokerid"])

    def controller_epoch(self) -> int:
        return int((self.get("/controller_epoch") or b"0").decode())

    def broker_epoch(self, broker_id: int) -> int:
        """czxid of a broker's node, -1 when it is not registered."""
        stat = self.exists(f"/brokers/ids/{broker_id}")
        return -1 if stat is None else int(stat.czxid)

    def state(self, topic: str, partition: int = 0) -> State | None:
        """A partition's state; None when there is no node."""
        try:
            raw, stat = self.client.get(f"/brokers/topics/{topic}/partitions/{partition}/state")
        except NoNodeError:
            return None
        node = json.loads(raw)
        return State(
            node["leader"], node["isr"], node["leader_epoch"], stat.version, node["controller_epoch"], node.get("leader_recovery_state", 0)
        )

    def topic_id(self, topic: str) -> bytes | None:
        """A topic's id as 16 bytes; None when the topic or its id is missing."""
        text = (self.json(f"/brokers/topics/{topic}") or {}).get("topic_id")
        return None if text is None else base64.urlsafe_b64decode(text + "==")

    def assignment(self, topic: str) -> dict[int, list[int]]:
        """Replicas by partition."""
        return {int(p): replicas for p, replicas in (self.json(f"/brokers/topics/{topic}") or {"partitions": {}})["partitions"].items()}

    def put_topic(self, topic: str, assignment: dict[int, list[int]], topic_id: bytes | None = None) -> None:
        """A topic node as a tool writes it, without states."""
        node: dict[str, Any] = {
            "version": 3,
            "partitions": {str(p): r for p, r in assignment.items()},
            "adding_replicas": {},
            "removing_replicas": {},
        }
        if topic_id is not None:
            node["topic_id"] = base64.urlsafe_b64encode(topic_id).decode().rstrip("=")
        self.put(f"/brokers/topics/{topic}", node)

    def put_state(self, topic: str, partition: int, leader: int, isr: list[int], le: int = 0, ce: int = 1, recovery: int = 0) -> None:
        """A state node as a controller writes it."""
        node: dict[str, Any] = {"controller_epoch": ce, "leader": leader, "version": 1, "leader_epoch": le, "isr": isr}
        if recovery:
            node["leader_recovery_state"] = recovery
        self.put(f"/brokers/topics/{topic}/partitions/{partition}/state", node)

    def put_config(self, kind: str, name: str, config: dict[str, str], *, notify: bool = True) -> None:
        """A config node, and its change notification."""
        self.put(f"/config/{kind}/{name}", {"version": 1, "config": config})
        if notify:
            change = json.dumps({"version": 2, "entity_path": f"{kind}/{name}"}).encode()
            self.client.create("/config/changes/config_change_", change, sequence=True, makepath=True)

    def steal_controller(self, broker_id: int = 999) -> None:
        """Become controller in one multi, as another broker's session would: `/controller` replaced, epoch raised."""
        controller = {"version": 2, "brokerid": broker_id, "timestamp": str(int(time.time() * 1000)), "kraftControllerEpoch": -1}
        operations: list[tuple[str, str, bytes | None, bool]] = []
        if self.exists("/controller") is not None:
            operations.append(("delete", "/controller", None, False))
        if self.exists("/controller_epoch") is None:
            operations.append(("create", "/controller_epoch", b"0", False))
        operations.append(("create", "/controller", json.dumps(controller).encode(), True))
        operations.append(("set", "/controller_epoch", str(self.controller_epoch() + 1).encode(), False))
        self.all_or_nothing(*operations)
