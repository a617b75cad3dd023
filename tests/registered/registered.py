"""Clusters whose brokers register with the controller by requests, as processes, in a network in which two of them can be cut off.

A broker by request has two listeners: CLIENT, which clients and tests reach directly, and INTERNAL, which other brokers reach through a
proxy of `Network`. Time-outs are short; what they are measured against is beside them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from klamm.tests.harness.kafka import OwnedBroker, wait_for
from klamm.tests.harness.members import Members
from klamm.tests.harness.network import Network
from klamm.tests.harness.ports import free_ports
from klamm.tests.harness.tree import Tree

SESSION_TIMEOUT_MS = 3000
HEARTBEAT_MS = 500
SETTINGS: dict[str, Any] = {
    "registerbroker_enable": "on",
    "broker_session_timeout_ms": SESSION_TIMEOUT_MS,
    "broker_heartbeat_interval_ms": HEARTBEAT_MS,
    "replica_lag_time_max_ms": 4000,
}
BY_REQUEST: dict[str, Any] = {"klamm_broker_registration": "controller"}


class Node(NamedTuple):
    """A registration as ZooKeeper has it."""

    state: str
    epoch: int
    version: int
    """The znode's."""


class RegisteredMembers(Members):
    """Members of which some register by request; the others, Kafka brokers included, in ZooKeeper."""

    def __init__(self, jars: Path, tree: Tree, folder: Path, settings_of: Callable[[int], dict[str, Any]] = lambda _: {}) -> None:
        super().__init__(jars, tree, folder, settings_of)
        self.network = Network()
        self.by_request: set[int] = set()

    def close(self) -> None:
        super().close()
        self.network.close()

    # processes

    def add_by_request(self, *ids: int, **properties: Any) -> None:
        """New Klamm brokers that register by request; they are not started."""
        for broker_id in ids:
            self.by_request.add(broker_id)
            self._add(broker_id, BY_REQUEST | properties)

    def add_in_zookeeper(self, *ids: int, **properties: Any) -> None:
        """New Klamm brokers that register in ZooKeeper, and register others when they are controller; they are not started."""
        for broker_id in ids:
            self._add(broker_id, properties)

    def _add(self, broker_id: int, properties: dict[str, Any]) -> None:
        client, internal = free_ports(2)
        advertised = self.network.proxy(broker_id, internal)
        settings = {
            "listeners": f"CLIENT://127.0.0.1:{client},INTERNAL://127.0.0.1:{internal}",
            "advertised_listeners": f"CLIENT://127.0.0.1:{client},INTERNAL://127.0.0.1:{advertised}",
            "listener_security_protocol_map": "CLIENT:PLAINTEXT,INTERNAL:PLAINTEXT",
            "inter_broker_listener_name": "INTERNAL",
        }
        values = self.settings_of(broker_id) | SETTINGS | settings | properties
        self.brokers[broker_id] = OwnedBroker(self.tree, self.folder, broker_id, **values)

    def start(self, *ids: int) -> None:
        """As of other members; a broker by request is ready when it is ONLINE in an epoch of its own."""
        old = {broker_id: self.node(broker_id) for broker_id in ids}
        self._old_epochs = {broker_id: -1 if node is None else node.epoch for broker_id, node in old.items()}
        super().start(*ids)

    def _ready(self, broker_id: int, old_epoch: int) -> bool:
        if broker_id not in self.by_request:
            return super()._ready(broker_id, old_epoch)
        node = self.node(broker_id)
        new = node is not None and node.state == "ONLINE" and node.epoch > self._old_epochs[broker_id]
        return new and self.brokers[broker_id].knows_itself()

    # registrations

    def node(self, broker_id: int) -> Node | None:
        """The registration of a broker; None when it has none."""
        path = f"/cluster/brokers/{broker_id}"
        node, stat = self.tree.json(path), self.tree.exists(path)
        return None if node is None or stat is None else Node(node["state"], node["epoch"], stat.version)

    def registered(self, broker_id: int, state: str, within_s: float = 30) -> Node:
        """Wait until a registration has this state."""

        def look() -> Node | None:
            node = self.node(broker_id)
            assert node is not None and node.state == state, f"{node}"
            return node

        return wait_for(look, f"{broker_id} {state}", within_s)

    def refuses_clients(self, broker_id: int) -> bool:
        """Whether a running broker answers no Metadata request."""
        return self.brokers[broker_id].known() == ([], -1)

    def leaders(self, topic: str) -> dict[int, int]:
        """The leaders of a topic by partition, in ZooKeeper."""
        return {partition: self.state(topic, partition).leader for partition in self.tree.assignment(topic)}

    def led_by_none_of(self, topic: str, *ids: int) -> None:
        """Wait until the controller has given all partitions to other brokers, none is without one, and Metadata shows it."""

        def look() -> bool:
            leaders = self.leaders(topic)
            assert not {*ids, -1} & set(leaders.values()), leaders
            return True

        wait_for(look, f"{ids} lead nothing of {topic}")
