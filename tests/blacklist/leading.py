"""A topic on a whole cluster whose leaders change while producers write to it and a reader reads along (KIP-491).

Brokers are in this process, on a loop of their own; clients are confluent-kafka, in threads. `led` is every leader that a controller has
committed, in order, so that "never led" needs no luck. Logs are in memory: a broker that was stopped or killed comes back empty.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import klamm
from klamm.admin import AdminClient, ConfigChange, ConfigResource, ResourceType
from klamm.controller.changes import Change, StatesChanged
from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode
from klamm.server.lifecycle.seams import Seams
from klamm.testing import BlockingCluster
from klamm.tests.harness import requests
from klamm.tests.harness.tree import State, Tree
from klamm.tests.harness.waits import wait_for
from klamm.tests.moves.moving import Local, Moving, create

TOPIC = "led"
LIST = "preferred_leader_blacklist"
SETTINGS = {"replica.fetch.wait.max.ms": "100", "replica.fetch.backoff.ms": "100", "auto.leader.rebalance.enable": "false"}
BALANCING = {
    "auto.leader.rebalance.enable": "true",
    "leader.imbalance.check.interval.seconds": "1",
    "leader.imbalance.per.broker.percentage": "0",
}
ALL_BROKERS = ConfigResource(ResourceType.BROKER, "")


class Led(NamedTuple):
    """A partition has this leader in this leader epoch."""

    partition: int
    leader: int
    leader_epoch: int


class Leading:
    """The topic `led`, with these replicas of its partitions; its clients begin with it."""

    def __init__(self, brokers: BlockingCluster, tree: Tree, assignment: Sequence[Sequence[int]], led: list[Led]) -> None:
        self.brokers, self.tree, self.assignment, self.led = brokers, tree, assignment, led
        self.cluster = Local(tree)
        create(self.cluster, TOPIC, assignment)
        self.moving = Moving(self.cluster, TOPIC, len(assignment))
        self.in_sync()
        self.moving.clients()
        self.moving.clients_go_on()

    # acting

    def blacklist(self, *broker_ids: int) -> None:
        """Put these brokers on the list, by a text as the document writes it; returns when every broker has heard of it."""
        self.alter(ConfigChange(LIST, ",".join(map(str, broker_ids))))

    def alter(self, change: ConfigChange) -> None:
        """Change the list. What a controller is asked after this, it does by the new list: its events have an order."""
        with AdminClient(self.cluster.bootstrap()) as admin:
            admin.incremental_alter_configs({ALL_BROKERS: [change]}).all()
        stored = self.tree.json("/config/brokers/<default>")["config"].get(LIST)
        for broker_id, _, _ in self.brokers.addresses:
            wait_for(lambda b=broker_id: self.shown(b) == [stored], f"broker {broker_id} shows {stored!r}")  # type: ignore[misc]

    def shown(self, broker_id: int) -> list[str | None]:
        """The list as a broker knows it."""
        kind = messages.DescribeConfigsRequest
        resource = kind.DescribeConfigsResource(resource_type=requests.BROKER, resource_name="", configuration_keys=[LIST])
        (result,) = self.cluster.ask(kind(resources=[resource]), 4, broker_id).results
        return [row.value for row in result.configs] or [None]

    def prefer(self) -> dict[int, str]:
        """Elect preferred leaders of all partitions; the code of each."""
        answer = self.cluster.ask(requests.elect_leaders([(TOPIC, p) for p in range(len(self.assignment))]), 2)
        assert answer.error_code == 0, answer
        rows = [row for result in answer.replica_election_results for row in result.partition_result]
        return {row.partition_id: ErrorCode(row.error_code).name for row in rows}

    def shown_leaders(self) -> list[int]:
        """Of each partition, as the controller's broker has it in its metadata."""
        (topic,) = self.cluster.ask(requests.metadata([TOPIC]), 12).topics
        return [p.leader_id for p in sorted(topic.partitions, key=lambda p: p.partition_index)]

    def kill(self, *broker_ids: int) -> None:
        """Brokers end as by kill -9, and are found dead at once."""
        for broker_id in broker_ids:
            self.brokers.kill_broker(broker_id, expire=True)

    def start(self, *broker_ids: int) -> None:
        """Brokers come back, empty; returns when they are in sync."""
        for broker_id in broker_ids:
            self.brokers.start_broker(broker_id)
        self.in_sync()

    def bounce(self, broker_id: int) -> None:
        """A broker stops in order and comes back."""
        self.brokers.stop_broker(broker_id)
        self.start(broker_id)

    # looking

    def state(self, partition: int) -> State:
        state = self.tree.state(TOPIC, partition)
        assert state is not None
        return state

    @property
    def leaders(self) -> list[int]:
        """Of each partition."""
        return [self.state(p).leader for p in range(len(self.assignment))]

    @property
    def leader_epochs(self) -> list[int]:
        return [self.state(p).le for p in range(len(self.assignment))]

    def in_sync(self) -> None:
        """Wait until all replicas that are alive are in sync."""
        alive = {broker_id for broker_id, _, _ in self.brokers.addresses}

        def look() -> bool:
            wanted = [sorted(alive & set(replicas)) for replicas in self.assignment]
            found = [sorted(self.state(p).isr) for p in range(len(self.assignment))]
            assert found == wanted, found
            return True

        wait_for(look, f"all replicas on {sorted(alive)} are in sync", 30)

    def led_by(self, *leaders: int) -> None:
        """Wait until the partitions have these leaders."""
        wait_for(lambda: self.leaders == list(leaders) or self._say(f"leaders are {self.leaders}"), f"leaders are {leaders}", 30)

    def _say(self, text: str) -> bool:
        raise AssertionError(text)

    def since(self, mark: int) -> set[int]:
        """Who has been committed as a leader since then."""
        return {led.leader for led in self.led[mark:]}

    def end(self) -> None:
        """Clients end; nothing was lost, nothing is twice, and the assignment is as it was."""
        self.moving.clients_go_on()
        assert self.moving.judged().acknowledged > 100
        assert self.tree.assignment(TOPIC) == dict(enumerate(map(list, self.assignment)))


class Leaders:
    """A subscriber of all controllers: notes each leader in each leader epoch once."""

    def __init__(self) -> None:
        self.led: list[Led] = []
        self._known: dict[int, tuple[int, int]] = {}

    def __call__(self, change: Change) -> None:
        if not isinstance(change, StatesChanged):
            return
        for key, state in change.states:
            if key.topic == TOPIC and state is not None and self._known.get(key.partition) != (state.leader, state.leader_epoch):
                self._known[key.partition] = state.leader, state.leader_epoch
                self.led.append(Led(key.partition, state.leader, state.leader_epoch))


@contextmanager
def leading(
    zookeeper: str, chroot: str, brokers: int, assignment: Sequence[Sequence[int]], settings: Mapping[str, str] | None = None
) -> Iterator[Leading]:
    """A cluster with the topic, and clients under way; at the end they are judged."""
    tree, seen = Tree(zookeeper, chroot), Leaders()
    seams = Seams(subscriber=lambda broker_id: seen)
    story: Leading | None = None
    try:
        with klamm.Cluster(brokers, zookeeper=tree.hosts, config={**SETTINGS, **(settings or {})}, seams=seams) as cluster:
            try:
                story = Leading(cluster, tree, assignment, seen.led)
                yield story
                story.end()
            finally:
                if story is not None:
                    story.moving.close()
    finally:
        tree.close()
