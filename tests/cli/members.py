"""Three brokers as processes, of Klamm or of Apache Kafka, with the tools of `klamm` on them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from kafka import KafkaProducer

from klamm.protocol import messages
from klamm.protocol.apis import ADMIN_SOFTWARE
from klamm.tests.cli.running import WITHIN_S, call
from klamm.tests.harness import requests
from klamm.tests.harness.kafka import START_S, KafkaBroker, OwnedBroker, all_know, request, wait_for
from klamm.tests.harness.names import unique_name
from klamm.tests.harness.tree import Tree
from klamm.tests.reference.jars import jars

BROKERS = 3
PROPERTIES: dict[str, Any] = {
    "replica_fetch_max_bytes": 4000,
    "auto_leader_rebalance_enable": "false",
    "controlled_shutdown_enable": "false",
}
"""A follower fetches about a batch of these tests at a time, so that a throttle can hold it. A stop waits for no leader to be moved."""
RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LISTS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
Moves = Mapping[tuple[str, int], Sequence[int]]


class ToolMembers:
    """Three brokers, 0 to 2, and the tool on them."""

    def __init__(self, kind: str, zookeeper: str, folder: Path) -> None:
        self.kind = kind
        self.tree = Tree(zookeeper, "/" + unique_name(f"members-{kind}"))
        if kind == "kafka":
            self.brokers: list[OwnedBroker] = [KafkaBroker(jars(), self.tree, folder, n, **PROPERTIES) for n in range(BROKERS)]
        else:
            self.brokers = [OwnedBroker(self.tree, folder, n, **PROPERTIES) for n in range(BROKERS)]
        for broker in self.brokers:
            broker.launch()
        all_know(self.brokers, START_S)
        self._folder = folder
        self._topics = 0

    @property
    def removes_throttles(self) -> bool:
        """Whether its controller has the APIs of KIP-179."""
        asked = messages.ApiVersionsRequest(client_software_name=ADMIN_SOFTWARE, client_software_version="1")
        return any(each.api_key == 1790 for each in request(self.brokers[0].port, asked, 3).api_keys)

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.brokers[0].port}"

    def close(self) -> None:
        for broker in self.brokers:
            broker.kill()
        self.tree.close()

    def topic(self, *replicas: Sequence[int]) -> str:
        """A new topic with these replicas of its partitions, known to every broker."""
        self._topics += 1
        name = f"moved-{self._topics}"
        answer = request(self.brokers[self.tree.controller()].port, requests.create_topic(name, replicas), 7)
        assert [topic.error_code for topic in answer.topics] == [0]
        for broker in self.brokers:
            wait_for(partial(self._shows, broker, name, len(replicas)), f"{name} on broker {broker.id}")
        return name

    @staticmethod
    def _tells(broker: OwnedBroker, topic: str, partition: int, replicas: list[int]) -> bool:
        try:
            (shown,) = request(broker.port, requests.metadata([topic]), 12).topics
        except OSError:
            return True
        return any(each.partition_index == partition and list(each.replica_nodes) == replicas for each in shown.partitions)

    @staticmethod
    def _shows(broker: OwnedBroker, topic: str, partitions: int) -> bool:
        (shown,) = request(broker.port, requests.metadata([topic]), 12).topics
        return sum(each.leader_id >= 0 for each in shown.partitions) == partitions

    def fill(self, topic: str, batches: int, size: int = 4000) -> None:
        """Batches of one record each in partition 0."""
        producer = KafkaProducer(bootstrap_servers=self.bootstrap, acks=1, linger_ms=0, batch_size=0)
        for _ in range(batches):
            producer.send(topic, bytes(size), partition=0).get(WITHIN_S)
        producer.close()

    def file(self, moves: Moves, name: str = "moves.json") -> Path:
        path = self._folder / name
        entries = [{"topic": topic, "partition": partition, "replicas": list(ids)} for (topic, partition), ids in moves.items()]
        path.write_text(json.dumps({"version": 1, "partitions": entries}))
        return path

    def tool(self, *arguments: object, way: str = "bootstrap-server") -> subprocess.CompletedProcess[str]:
        """Run the tool to its end."""
        where = self.bootstrap if way == "bootstrap-server" else self.tree.hosts
        return call("reassign-partitions", f"--{way}", where, *arguments)

    def succeed(self, *arguments: object, way: str = "bootstrap-server") -> str:
        """Run the tool, which must succeed without a warning; its stdout."""
        done = self.tool(*arguments, way=way)
        assert (done.returncode, done.stderr) == (0, ""), done
        return done.stdout

    def replicas(self, topic: str, partition: int = 0) -> tuple[list[int], list[int], list[int]]:
        """Replicas, adding, removing as ZooKeeper has them."""
        node, number = self.tree.json(f"/brokers/topics/{topic}"), str(partition)
        return node["partitions"][number], node["adding_replicas"].get(number, []), node["removing_replicas"].get(number, [])

    def settled(self, topic: str, replicas: Sequence[int], partition: int = 0) -> None:
        """Wait until the partition has these replicas and no reassignment, and every broker that runs says so."""
        wait_for(lambda: self.replicas(topic, partition) == (list(replicas), [], []) or None, f"{topic}-{partition} on {replicas}")
        for broker in self.brokers:
            wait_for(partial(self._tells, broker, topic, partition, list(replicas)), f"{topic}-{partition} at broker {broker.id}")

    def config(self, kind: str, name: object) -> dict[str, str]:
        node = self.tree.json(f"/config/{kind}/{name}")
        return {} if node is None else dict(node["config"])

    def rates(self) -> list[tuple[str | None, str | None]]:
        return [(config.get(RATES[0]), config.get(RATES[1])) for config in (self.config("brokers", n) for n in range(BROKERS))]

    def lists(self, topic: str) -> tuple[str | None, str | None]:
        config = self.config("topics", topic)
        return config.get(LISTS[0]), config.get(LISTS[1])

    def unthrottled(self, topic: str) -> bool:
        return self.rates() == [(None, None)] * BROKERS and self.lists(topic) == (None, None)
