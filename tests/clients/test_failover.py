"""The controller is killed, several times in a row, while clients go on (three brokers, each a process of its own)."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from kafka.admin import KafkaAdminClient
from kafka.admin import NewTopic as OtherNewTopic
from kafka.errors import TopicAlreadyExistsError

from klamm.tests.harness.names import unique_name
from klamm.tests.harness.process import KlammBroker
from klamm.tests.harness.tree import Tree
from klamm.tests.harness.waits import wait_for

PARTITIONS = 3
SESSION_MS = 1500
PATIENCE_S = 120.0
PAUSE_S = 0.05
"""Between two topics of a client: each controller reads all of them, and the machine has other tests to run."""


@pytest.fixture
def three(zookeeper: str, tmp_path: Path) -> Iterator[dict[int, KlammBroker]]:
    """Brokers 0, 1 and 2, each its own process, whose sessions are short."""
    tree = Tree(zookeeper, f"/{unique_name('failover')}")
    brokers = {i: KlammBroker(tree, tmp_path, i, zookeeper_session_timeout_ms=SESSION_MS) for i in range(3)}
    try:
        for broker in brokers.values():
            broker.start()
        yield brokers
    finally:
        for broker in brokers.values():
            broker.kill()
        tree.close()


class Creating(threading.Thread):
    """A client that creates topic after topic until told to stop; `made` are those it was told exist."""

    def __init__(self, name: str) -> None:
        super().__init__(daemon=True)
        self.prefix, self.over = name, threading.Event()
        self.made: list[str] = []
        self.failure: BaseException | None = None
        self.refused: object = None
        """Why the last attempt did not succeed, for the reader of a failed test."""

    def run(self) -> None:
        number = 0
        try:
            while not self.over.is_set():
                topic = f"{self.prefix}-{number}"
                if self.create(topic):
                    self.made.append(topic)
                    number += 1
                    self.over.wait(PAUSE_S)
        except BaseException as failure:
            self.failure = failure
            raise

    def create(self, topic: str) -> bool:
        """True when the topic exists now."""
        raise NotImplementedError

    def goes_on(self, count: int) -> None:
        """Wait until it made more than `count` topics; its failure is the test's."""
        wait_for(lambda: len(self.made) > count or self.failure, f"{self.prefix} makes more than {count} topics", PATIENCE_S)
        assert self.failure is None, self.failure


class Confluent(Creating):
    def __init__(self, bootstrap: str) -> None:
        super().__init__("confluent")
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0, "reconnect.backoff.max.ms": 500})

    def create(self, topic: str) -> bool:
        (future,) = self._admin.create_topics([NewTopic(topic, PARTITIONS, 3)], operation_timeout=5, request_timeout=5).values()
        try:
            future.result(20)
        except KafkaException as refused:
            # librdkafka hands NOT_CONTROLLER and time-outs to its user; a second try that meets the topic says that the first succeeded
            code = refused.args[0].code()
            if code != KafkaError.TOPIC_ALREADY_EXISTS:
                self.refused = topic, refused
                self._look_around()
                return False
        return True

    def _look_around(self) -> None:
        """librdkafka leaves it to its user to look for the new controller; on an Apache Kafka cluster, too."""
        time.sleep(0.05)
        try:
            self._admin.list_topics(timeout=2)
        except KafkaException as unreachable:
            self.refused = unreachable


class KafkaPython(Creating):
    def __init__(self, bootstrap: str) -> None:
        super().__init__("kafka-python")
        self._addresses = bootstrap
        self._admin: KafkaAdminClient | None = None

    def create(self, topic: str) -> bool:
        try:
            if self._admin is None:
                self._admin = KafkaAdminClient(bootstrap_servers=self._addresses, request_timeout_ms=5000, reconnect_backoff_max_ms=500)
            self._admin.create_topics([OtherNewTopic(topic, PARTITIONS, 2)], timeout_ms=5000)
        except TopicAlreadyExistsError:
            return True
        except Exception as refused:  # noqa: BLE001 a broker that dies at any moment makes this client raise more than its own errors
            # it looks for the controller again when it is told NOT_CONTROLLER, but not when the controller is dead
            self.refused = topic, refused
            self.close()
            return False
        return True

    def close(self) -> None:
        """End the client's own thread, which would go on looking for brokers."""
        admin, self._admin = self._admin, None
        if admin is not None:
            admin.close()


@pytest.mark.timeout(900)  # each time two sessions have to expire, and clients to notice; 200 s on a machine with four times the work
@pytest.mark.slow
@pytest.mark.parametrize("times", [2, 10])
def test_clients_go_on_and_lose_no_topic_when_controllers_are_killed_in_a_row(three: dict[int, KlammBroker], times: int) -> None:
    tree = three[0].tree
    bootstrap = ",".join(f"127.0.0.1:{b.port}" for b in three.values())
    clients: list[Creating] = [Confluent(bootstrap), KafkaPython(bootstrap)]
    for client in clients:
        client.start()
    epochs = [tree.controller_epoch()]
    try:
        for _ in range(times):
            counts = [len(c.made) for c in clients]
            for client, count in zip(clients, counts, strict=True):
                client.goes_on(count)
            controller = the_controller(tree)
            three[controller].kill()
            wait_for(partial(gone_and_replaced, tree, controller), "another controller", PATIENCE_S)
            epochs.append(tree.controller_epoch())
            three[controller].start()
        counts = [len(c.made) for c in clients]
        for client, count in zip(clients, counts, strict=True):
            client.goes_on(count)
    finally:
        for client in clients:
            client.over.set()
    for client in clients:
        client.join(PATIENCE_S)
        if isinstance(client, KafkaPython):
            client.close()
        assert client.failure is None, client.failure
    assert all(later > earlier for earlier, later in itertools.pairwise(epochs)), epochs
    made = [topic for client in clients for topic in client.made]
    assert len(made) > 2 * times
    assert set(made) <= set(tree.children("/brokers/topics")), "a topic that a client was promised is lost"
    for topic in made:
        for p, replicas in tree.assignment(topic).items():
            state = wait_for(lambda t=topic, p=p: tree.state(t, p), f"{topic}-{p} has a state")  # type: ignore[misc]
            assert state.leader in replicas or state.leader == -1
            assert set(state.isr) <= set(replicas)
    everybody_agrees(tree, bootstrap, set(made))


def the_controller(tree: Tree) -> int:
    """The controller's id; on a busy machine its session may have expired, and for a moment there is none."""
    (found,) = wait_for(lambda: {tree.controller()} - {-1}, "a controller", PATIENCE_S)
    return found


def gone_and_replaced(tree: Tree, killed: int) -> bool:
    """Another broker is the controller, and the killed one may register again."""
    return tree.controller() not in (-1, killed) and tree.broker_epoch(killed) == -1


def everybody_agrees(tree: Tree, bootstrap: str, made: set[str]) -> None:
    """Each broker shows all topics, with the leaders that are in ZooKeeper."""
    for address in bootstrap.split(","):
        admin = KafkaAdminClient(bootstrap_servers=address, request_timeout_ms=10_000)
        try:

            def same(admin: KafkaAdminClient = admin) -> bool:
                shown = {t["name"]: t for t in admin.describe_topics()}
                if not made <= set(shown):
                    return False
                stored = {(t, p): tree.state(t, p) for t in made for p in tree.assignment(t)}
                leaders = {(t, p["partition_index"]): p["leader_id"] for t in made for p in shown[t]["partitions"]}
                return leaders == {key: state.leader for key, state in stored.items() if state is not None}

            wait_for(same, f"{address} shows what is in ZooKeeper", PATIENCE_S)
        finally:
            admin.close()
