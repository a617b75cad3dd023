"""What tests know of the running cluster."""

from __future__ import annotations

import json
from dataclasses import dataclass

from klamm.tests.harness.names import unique_name
from klamm.tests.harness.tree import Tree


@dataclass
class Served:
    """A running `klamm serve`; `tree` is its ZooKeeper path."""

    bootstrap: str
    ports: dict[int, int]
    controller: int
    cluster_id: str
    tree: Tree

    def topic(self) -> str:
        """A fresh name."""
        return unique_name("t")

    def rewrite_state(self, topic: str, partition: int, leader: int, isr: list[int]) -> None:
        """Change a partition's state as a leader of an older Kafka did, by znode and notification: the controller takes it over."""
        state = self.tree.state(topic, partition)
        assert state is not None
        self.tree.put_state(topic, partition, leader, isr, state.le + 1, state.ce)
        change = json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": partition}]}).encode()
        self.tree.client.create("/isr_change_notification/isr_change_", change, sequence=True)
