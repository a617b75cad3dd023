"""`klamm reassign-partitions` on running clusters, of Klamm and (slow) of Apache Kafka 3.9.1."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer

from klamm.protocol import messages
from klamm.tests.cli.running import KLAMM, WITHIN_S, run
from klamm.tests.harness import requests
from klamm.tests.harness.kafka import KafkaBroker, OwnedBroker, all_know, request, wait_for
from klamm.tests.harness.tree import Tree
from klamm.tests.reference.jars import jars

BROKERS = 3
PROPERTIES: dict[str, Any] = {"replica_fetch_max_bytes": 4000, "auto_leader_rebalance_enable": "false"}
"""A follower fetches about a batch of these tests at a time, so that a throttle can hold it."""
RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LISTS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
Moves = Mapping[tuple[str, int], Sequence[int]]


class Members:
    """Three brokers, 0 to 2, and the tool on them."""

    def __init__(self, kind: str, zookeeper: str, folder: Path) -> None:
        self.kind = kind
        self.tree = Tree(zookeeper, f"/reassign-{kind}-{os.getpid()}")
        if kind == "kafka":
            self.brokers: list[OwnedBroker] = [KafkaBroker(jars(), self.tree, folder, n, **PROPERTIES) for n in range(BROKERS)]
        else:
            self.brokers = [OwnedBroker(self.tree, folder, n, **PROPERTIES) for n in range(BROKERS)]
        for broker in self.brokers:
            broker.start()
        all_know(self.brokers)
        self._folder = folder
        self._topics = 0

    @property
    def removes_throttles(self) -> bool:
        """Whether its controller has the APIs of KIP-179."""
        return any(each.api_key == 1790 for each in request(self.brokers[0].port, messages.ApiVersionsRequest(), 0).api_keys)

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
        return run("reassign-partitions", f"--{way}", where, *arguments)

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
        """Wait until the partition has these replicas and no reassignment."""
        wait_for(lambda: self.replicas(topic, partition) == (list(replicas), [], []) or None, f"{topic}-{partition} on {replicas}")

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


@pytest.fixture(scope="module", params=["klamm", pytest.param("kafka", marks=[pytest.mark.slow, pytest.mark.reference])])
def running_members(request: pytest.FixtureRequest, zookeeper: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Members]:
    made = Members(request.param, zookeeper, tmp_path_factory.mktemp(f"members-{request.param}"))
    yield made
    made.close()


@pytest.fixture
def members(running_members: Members) -> Iterator[Members]:
    """A test that fails leaves no reassignment and no throttle to the next one."""
    yield running_members
    left = running_members.tool("--list").stdout.splitlines()[1:]
    if left:
        names = [line.partition(":")[0].rpartition("-") for line in left]
        running_members.succeed("--cancel", "--reassignment-json-file", running_members.file({(t, int(p)): [0] for t, _, p in names}))


@pytest.mark.requirement("R179-34")
def test_a_replication_factor_is_changed_and_rolled_back_with_what_was_printed(members: Members) -> None:
    topic = members.topic([0])
    printed = members.succeed("--execute", "--reassignment-json-file", members.file({(topic, 0): [0, 1]}))
    assert f"Successfully started partition reassignment for {topic}-0" in printed
    members.settled(topic, [0, 1])
    before = next(line for line in printed.splitlines() if line.startswith("{"))
    back = members.file({}, "back.json")
    back.write_text(before)
    members.succeed("--execute", "--reassignment-json-file", back)
    members.settled(topic, [0])


@pytest.mark.requirement("R179-34")
@pytest.mark.requirement("R179-38")
def test_an_assignment_is_proposed_executed_and_verified(members: Members) -> None:
    topic = members.topic([0], [0], [0])
    topics = members.file({}, "topics.json")
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}))
    printed = members.succeed("--generate", "--topics-to-move-json-file", topics, "--broker-list", "1,2").splitlines()
    assert printed[0] == "Current partition replica assignment"
    assert printed[3] == "Proposed partition reassignment configuration"
    proposed = members.file({}, "proposed.json")
    proposed.write_text(printed[4])
    targets = {entry["partition"]: entry["replicas"] for entry in json.loads(printed[4])["partitions"]}
    assert sorted(targets) == [0, 1, 2] and {broker for (broker,) in targets.values()} == {1, 2}
    assert members.replicas(topic) == ([0], [], []), "a proposal changes nothing"
    heading = "Status of partition reassignment:"
    assert members.succeed("--verify", "--reassignment-json-file", proposed, "--preserve-throttles").splitlines() == [
        heading,
        *(
            f"There is no active reassignment of partition {topic}-{n}, but replica set is 0 rather than {targets[n][0]}."
            for n in sorted(targets)
        ),
    ]
    members.succeed("--execute", "--reassignment-json-file", proposed)
    for partition, replicas in targets.items():
        members.settled(topic, replicas, partition)
    assert members.succeed("--verify", "--reassignment-json-file", proposed, "--preserve-throttles").splitlines() == [
        heading,
        *(f"Reassignment of partition {topic}-{n} is completed." for n in sorted(targets)),
    ]


@pytest.mark.requirement("R179-34")
@pytest.mark.requirement("R179-37")
def test_a_throttled_move_is_shown_refused_a_second_time_and_goes_faster_when_its_throttle_is_changed(members: Members) -> None:
    topic = members.topic([0])
    members.fill(topic, 60)
    file = members.file({(topic, 0): [1]})
    started = members.succeed("--execute", "--reassignment-json-file", file, "--throttle", "2000").splitlines()
    assert "The inter-broker throttle limit was set to 2000 B/s" in started
    assert any(line.startswith("Warning: You must run --verify") for line in started) != members.removes_throttles
    assert members.lists(topic) == ("0:0", "0:1")
    assert members.rates() == [("2000", "2000"), ("2000", "2000"), (None, None)]
    assert members.succeed("--list").splitlines() == [
        "Current partition reassignments:",
        f"{topic}-0: replicas: 1,0. adding: 1. removing: 0.",
    ]
    assert members.succeed("--verify", "--reassignment-json-file", file).splitlines()[1:] == [
        f"Reassignment of partition {topic}-0 is still in progress."
    ]
    second = members.tool("--execute", "--reassignment-json-file", file)
    assert (second.returncode, second.stdout) == (1, "") and "Use --additional" in second.stderr
    changed = members.succeed("--execute", "--reassignment-json-file", file, "--throttle", "90000000")
    assert changed.splitlines() == [
        "The inter-broker throttle limit was set to 90000000 B/s",
        f"Successfully changed the throttle of partition reassignment for {topic}-0",
    ]
    members.settled(topic, [1])
    if not members.removes_throttles:
        assert not members.unthrottled(topic)
        cleared = members.succeed("--verify", "--reassignment-json-file", file).splitlines()
        assert cleared[-2:] == ["Clearing broker-level throttles on brokers 0,1,2", f"Clearing topic-level throttles on topic {topic}"]
    wait_for(lambda: members.unthrottled(topic) or None, "no throttle is left")


@pytest.mark.requirement("R179-33")
def test_progress_shows_the_lag_of_a_throttled_move_and_watch_ends_when_it_has_ended(members: Members) -> None:
    topic = members.topic([0])
    members.fill(topic, 60)
    file = members.file({(topic, 0): [0, 2], (topic, 7): [1], ("no-such-topic", 0): [1], (topic, 8): [9]})
    moved = members.file({(topic, 0): [0, 2]}, "moved.json")
    members.succeed("--execute", "--reassignment-json-file", moved, "--throttle", "4000")
    rows = members.succeed("--progress", "--reassignment-json-file", file).splitlines()
    cells = [row.split(maxsplit=3) for row in rows]
    assert cells[0] == ["Topic", "Partition", "Broker", "Status"] and set(rows[1]) == {"-"}
    assert cells[2] == [topic, "0", "0", "In sync"]
    assert cells[3][:3] == [topic, "0", "2"]
    if members.kind == "klamm":
        assert cells[3][3].startswith("Behind: ") and cells[3][3].endswith(" messages behind")
    assert cells[4:] == [[topic, "7", "1", "Unknown partition"], ["no-such-topic", "0", "1", "Unknown topic"],
                         [topic, "8", "9", "Unknown partition"]]  # fmt: skip
    watching = subprocess.Popen(
        [KLAMM, "reassign-partitions", "--bootstrap-server", members.bootstrap, "--progress", "--watch", "--reassignment-json-file", moved],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert watching.stdout is not None
    first = watching.stdout.readline()
    assert "1 of 2 replicas in sync" in first and "left" in first
    members.succeed("--execute", "--reassignment-json-file", moved, "--throttle", "90000000")
    printed, complaints = watching.communicate(timeout=WITHIN_S)
    assert (watching.returncode, complaints) == (0, "")
    assert printed.splitlines()[-1].split(maxsplit=3) == [topic, "0", "2", "In sync"]
    members.settled(topic, [0, 2])
    members.tool("--verify", "--reassignment-json-file", moved)


def test_ctrl_c_ends_a_watch_without_a_traceback(members: Members) -> None:
    topic = members.topic([0])
    members.fill(topic, 60)
    file = members.file({(topic, 0): [1]}, "watched.json")
    members.succeed("--execute", "--reassignment-json-file", file, "--throttle", "1000")
    watching = subprocess.Popen(
        [KLAMM, "reassign-partitions", "--bootstrap-server", members.bootstrap, "--progress", "--watch", "--reassignment-json-file", file],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert watching.stdout is not None
    watching.stdout.readline()
    watching.send_signal(signal.SIGINT)
    _, complaints = watching.communicate(timeout=WITHIN_S)
    assert (watching.returncode, complaints.strip()) == (130, "")
    members.succeed("--cancel", "--reassignment-json-file", file)
    members.settled(topic, [0])


def test_a_reassignment_that_only_adds_a_replica_is_cancelled(members: Members) -> None:
    topic, other = members.topic([0]), members.topic([1])
    members.fill(topic, 40)
    file = members.file({(topic, 0): [0, 1], (other, 0): [1]})
    members.succeed("--execute", "--reassignment-json-file", file, "--throttle", "1000")
    assert members.succeed("--cancel", "--reassignment-json-file", file).splitlines() == [
        f"Successfully cancelled partition reassignment for: {topic}-0",
        "None of the specified partition moves are active.",
        "Clearing broker-level throttles on brokers 0,1,2",
        f"Clearing topic-level throttles on topics {topic},{other}",
    ]
    members.settled(topic, [0])
    wait_for(lambda: members.unthrottled(topic) or None, "no throttle is left")
    assert members.succeed("--list") == "No partition reassignments found.\n"
    again = members.succeed("--cancel", "--reassignment-json-file", file, "--preserve-throttles").splitlines()
    assert again == ["None of the specified partition reassignments are active.", "None of the specified partition moves are active."]


def test_additional_starts_more_and_replaces_a_running_one(members: Members) -> None:
    topic, other = members.topic([0]), members.topic([1])
    members.fill(topic, 40)
    members.succeed("--execute", "--reassignment-json-file", members.file({(topic, 0): [1]}), "--throttle", "1000")
    second = members.file({(topic, 0): [2], (other, 0): [0]}, "second.json")
    members.succeed("--execute", "--reassignment-json-file", second, "--additional", "--throttle", "70000000")
    members.settled(other, [0])
    members.settled(topic, [2])
    members.tool("--verify", "--reassignment-json-file", second)
    wait_for(lambda: members.unthrottled(topic) or None, "no throttle is left")


@pytest.mark.requirement("R179-28")
def test_zookeeper_warns_on_stderr_and_moves_by_the_znode_with_throttles_that_verify_removes(members: Members) -> None:
    topic = members.topic([0])
    file = members.file({(topic, 0): [1]})
    done = members.tool("--execute", "--reassignment-json-file", file, "--throttle", "5000000", way="zookeeper")
    assert done.returncode == 0
    assert "deprecated" in done.stderr and "--bootstrap-server" in done.stderr and done.stderr.count("\n") == 1
    assert "deprecated" not in done.stdout
    assert f"Successfully started partition reassignment for {topic}-0" in done.stdout
    members.settled(topic, [1])
    assert members.lists(topic) == ("0:0", "0:1")
    assert members.rates() == [("5000000", "5000000"), ("5000000", "5000000"), (None, None)]
    wait_for(lambda: members.tree.exists("/admin/reassign_partitions") is None or None, "the znode is gone")
    verified = members.tool("--verify", "--reassignment-json-file", file, way="zookeeper")
    assert f"Reassignment of partition {topic}-0 is completed." in verified.stdout
    assert members.unthrottled(topic)


@pytest.mark.requirement("R179-39")
def test_both_ways_print_the_same(members: Members) -> None:
    topic = members.topic([0], [1])
    file = members.file({(topic, 0): [0], (topic, 1): [2], (topic, 4): [1], ("no-such-topic", 0): [1]})
    for arguments in (["--list"], ["--verify", "--reassignment-json-file", file], ["--execute", "--reassignment-json-file", file]):
        by_brokers, by_zookeeper = members.tool(*arguments), members.tool(*arguments, way="zookeeper")
        assert (by_brokers.returncode, by_brokers.stdout) == (by_zookeeper.returncode, by_zookeeper.stdout), arguments
        assert by_zookeeper.stderr.endswith(by_brokers.stderr)
    for way in ("bootstrap-server", "zookeeper"):
        same = members.file({(topic, 0): [0]}, "same.json")
        assert members.tool("--execute", "--reassignment-json-file", same, way=way).stdout.splitlines()[-1] == (
            f"Successfully started partition reassignment for {topic}-0"
        )
        wait_for(lambda: members.succeed("--list").startswith("No partition") or None, "nothing is in progress")


@pytest.mark.parametrize(
    ("moves", "line"),
    [
        (lambda topic: {(topic, 0): [995]}, "Unknown broker id 995 in the replicas of partition {topic}-0"),
        (lambda topic: {(topic, 10): [0]}, "Unknown partition {topic}-10"),
        (lambda topic: {("no-such-topic", 0): [0]}, "Unknown topic no-such-topic of partition no-such-topic-0"),
    ],
)
@pytest.mark.parametrize("way", ["bootstrap-server", "zookeeper"])
def test_a_plan_that_cannot_be_executed_is_one_line_and_changes_nothing(
    members: Members, way: str, moves: Callable[[str], Moves], line: str
) -> None:
    topic = members.topic([0])
    good = {(topic, 0): [1]} if (topic, 0) not in moves(topic) else {}
    done = members.tool("--execute", "--reassignment-json-file", members.file({**good, **moves(topic)}), "--throttle", "5", way=way)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1] == f"klamm: {line.format(topic=topic)}"
    assert members.replicas(topic) == ([0], [], []) and members.unthrottled(topic)
