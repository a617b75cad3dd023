"""The members of a mixed cluster around one ZooKeeper path, and what the stories about them have in common.

A `klamm broker` and real Kafka brokers are started from the same properties. Everything blocks. The members die with the test.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from klamm.tests.harness import requests
from klamm.tests.harness.kafka import WITHIN_S, KafkaBroker, OwnedBroker, all_know, request, wait_for
from klamm.tests.harness.tree import State, Tree

SETTINGS: dict[str, Any] = {
    "zookeeper_session_timeout_ms": 6000,
    "log_segment_delete_delay_ms": 500,
    "log_initial_task_delay_ms": 500,
    "offsets_topic_replication_factor": 1,
}
"""For all members: deaths are noticed soon, deleted logs are gone soon."""


class Members:
    """Brokers by id; `jars` is where the real ones come from."""

    def __init__(self, jars: Path, tree: Tree, folder: Path, settings_of: Callable[[int], dict[str, Any]] = lambda _: {}) -> None:
        """`settings_of` gives a member's own settings by its id, with underscores for dots."""
        self.jars, self.tree, self.folder = jars, tree, folder
        self.settings_of = lambda broker_id: SETTINGS | settings_of(broker_id)
        self.brokers: dict[int, OwnedBroker] = {}

    def close(self) -> None:
        for broker in self.brokers.values():
            broker.kill()

    # processes

    def klamm(self, *ids: int) -> None:
        """Start new Klamm brokers."""
        for broker_id in ids:
            self.brokers[broker_id] = OwnedBroker(self.tree, self.folder, broker_id, **self.settings_of(broker_id))
        self.start(*ids)

    def kafka(self, *ids: int, state_changes: str = "INFO") -> None:
        """Start new real brokers, all at once."""
        self.add_kafka(*ids, state_changes=state_changes)
        self.start(*ids)

    def add_kafka(self, *ids: int, state_changes: str = "INFO") -> None:
        """New real brokers that are not started; `state_changes` is the level of their state-change log."""
        for broker_id in ids:
            settings = self.settings_of(broker_id)
            self.brokers[broker_id] = KafkaBroker(self.jars, self.tree, self.folder, broker_id, state_changes=state_changes, **settings)

    def start(self, *ids: int) -> None:
        """Start members that are not running, all at once, and wait until every running member knows every other.

        A broker ends at its start while a former session of it is still registered, so the end of that is waited for.
        """
        old = {broker_id: self.tree.broker_epoch(broker_id) for broker_id in ids}
        wait_for(lambda: all(self.tree.broker_epoch(broker_id) == -1 for broker_id in ids), f"the former sessions of {ids} are over")
        for broker_id in ids:
            self.brokers[broker_id].launch()
        for broker_id in ids:
            self.brokers[broker_id].wait(partial(self._ready, broker_id, old[broker_id]), "ready", 2 * WITHIN_S)
        self.settled()

    def _ready(self, broker_id: int, old_epoch: int) -> bool:
        return self.tree.broker_epoch(broker_id) not in (-1, old_epoch) and self.brokers[broker_id].knows_itself()

    def settled(self) -> None:
        """Wait until every running member knows every running member and the same controller."""
        all_know(self.running())

    def running(self) -> list[OwnedBroker]:
        return [broker for broker in self.brokers.values() if broker.alive()]

    def real(self) -> list[KafkaBroker]:
        """The real brokers, running or not."""
        return [broker for broker in self.brokers.values() if isinstance(broker, KafkaBroker)]

    def bootstrap(self, *ids: int) -> str:
        """Addresses of these members, of all when none is named."""
        return ",".join(f"127.0.0.1:{self.brokers[i].port}" for i in ids or sorted(self.brokers))

    # requests

    def controller(self) -> OwnedBroker:
        """The member that is controller."""
        return wait_for(lambda: self.brokers.get(self.tree.controller()), "a controller")

    def ask(self, message: Any, version: int, to: int | None = None) -> Any:
        """Ask a member, the controller when none is named."""
        return request((self.controller() if to is None else self.brokers[to]).port, message, version)

    def create(self, topic: str, assignment: Sequence[Sequence[int]], configs: Mapping[str, str] | None = None) -> None:
        """Create a topic with these replicas; returns when every running member shows a leader for all of it."""
        asked = self.controller().id
        (answer,) = self.ask(requests.create_topic(topic, assignment, configs=configs), 7, to=asked).topics
        now = f"asked broker {asked}; now the controller is {self.tree.controller()} with epoch {self.tree.controller_epoch()}"
        assert answer.error_code == 0, (answer, now)
        for partition, ids in enumerate(assignment):
            self.shown(topic, partition, frozenset(ids).__contains__)

    def grow(self, topic: str, count: int, assignment: Sequence[Sequence[int]]) -> None:
        """CreatePartitions up to `count`, with replicas for the new ones."""
        (answer,) = self.ask(requests.create_partitions(topic, count, assignment), 3).results
        assert answer.error_code == 0, answer
        for partition, ids in enumerate(assignment, count - len(assignment)):
            self.shown(topic, partition, frozenset(ids).__contains__)

    def delete(self, topic: str) -> None:
        """Delete a topic; returns when it is accepted."""
        (answer,) = self.ask(requests.delete_topics(topic), 6).responses
        assert answer.error_code == 0, answer

    def deleted(self, topic: str) -> None:
        """Wait until a deletion is finished; the request's node is the last to go."""
        wait_for(lambda: self.tree.exists(f"/admin/delete_topics/{topic}") is None, f"{topic} deleted")

    def elect(self, topic: str, partition: int = 0, *, unclean: bool = False) -> int:
        """ElectLeaders for one partition; the partition's error code."""
        answer = self.ask(requests.elect_leaders([(topic, partition)], requests.UNCLEAN if unclean else requests.PREFERRED), 2)
        assert answer.error_code == 0, answer
        return int(answer.replica_election_results[0].partition_result[0].error_code)

    def alter_config(self, topic: str, **values: str) -> None:
        """Set configs of a topic; names with underscores for dots."""
        changed = {name.replace("_", "."): value for name, value in values.items()}
        (answer,) = self.ask(requests.set_configs(requests.TOPIC, topic, changed), 1).responses
        assert answer.error_code == 0, answer

    def office(self, to: int) -> None:
        """Make a member controller: delete `/controller` while all others are frozen.

        The old controller has nothing left to do then; a real one that is in the middle of something may fail for good.
        """
        self.governs()
        epoch, others = self.tree.controller_epoch(), [broker for broker in self.running() if broker.id != to]
        for broker in others:
            broker.freeze()
        try:
            self.tree.delete("/controller")
            wait_for(lambda: self.tree.controller() == to, f"{to} controller")
        finally:
            for broker in others:
                broker.thaw()
        assert self.tree.controller_epoch() == epoch + 1
        self.governs()

    def governs(self) -> None:
        """Wait until the controller has done all it had to: it removes a request to delete an unknown topic after what came before."""
        self.settled()
        self.tree.put("/admin/delete_topics/nothing", b"")
        wait_for(lambda: self.tree.exists("/admin/delete_topics/nothing") is None, "the controller is at work")

    def topics(self, at: OwnedBroker) -> dict[str, list[int]]:
        """The leaders of every topic that a member's Metadata shows; a partition without one has -1."""
        answer = request(at.port, requests.metadata(None), 12)
        return {topic.name: [p.leader_id for p in topic.partitions] for topic in answer.topics}

    def leader(self, topic: str, partition: int, at: OwnedBroker) -> int | None:
        """The leader that a member's Metadata shows, None when it shows no such partition."""
        try:
            (answer,) = request(at.port, requests.metadata([topic]), 12).topics
        except OSError:
            return None
        return next((int(p.leader_id) for p in answer.partitions if p.partition_index == partition), None)

    def shown(self, topic: str, partition: int, wanted: Callable[[int | None], bool]) -> None:
        """Wait until all running members show a leader that is `wanted`."""
        wait_for(
            lambda: all(wanted(self.leader(topic, partition, broker)) for broker in self.running()),
            f"every member's Metadata shows the right leader of {topic}-{partition}",
        )

    # ZooKeeper

    def state(self, topic: str, partition: int = 0) -> State:
        state = self.tree.state(topic, partition)
        assert state is not None, f"{topic}-{partition} has no state"
        return state

    def becomes(self, topic: str, partition: int, wanted: Callable[[State], bool], what: str) -> State:
        """Wait until a partition's state is as wanted."""

        def look() -> State | None:
            state = self.state(topic, partition)
            assert wanted(state), f"{state}"
            return state

        return wait_for(look, f"{topic}-{partition}: {what}")

    def in_sync(self, topics: Sequence[str]) -> None:
        """Wait until every replica of these topics is in its ISR."""
        for topic in topics:
            for partition, replicas in self.tree.assignment(topic).items():
                self.becomes(topic, partition, partial(_in_sync, replicas), f"in sync on {replicas}")

    def led_by(self, topic: str, partition: int, leader: int) -> State:
        return self.becomes(topic, partition, lambda state: state.leader == leader, f"led by {leader}")


def _in_sync(replicas: Sequence[int], state: State) -> bool:
    return sorted(state.isr) == sorted(replicas)


def grave(members: Members, *ids: int) -> list[str]:
    """What these Klamm brokers logged as an error, over all their lives."""
    logs = [log for broker_id in ids for log in sorted(members.brokers[broker_id].folder.glob("log-*"))]
    return [line for log in logs for line in log.read_text().splitlines() if " ERROR " in line or line.startswith("Traceback")]
