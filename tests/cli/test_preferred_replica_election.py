"""`klamm preferred-replica-election`, by brokers and by ZooKeeper (controller 21.3)."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from klamm.tests.cli.members import Members
from klamm.tests.cli.running import call
from klamm.tests.harness.kafka import wait_for
from klamm.tests.harness.tree import Tree

NODE = "/admin/preferred_replica_election"


def elect(*arguments: object) -> subprocess.CompletedProcess[str]:
    return call("preferred-replica-election", *arguments)


@pytest.fixture
def tree(zookeeper: str, chroot: str) -> Iterator[Tree]:
    """A cluster's ZooKeeper without brokers, with topic t of two partitions."""
    made = Tree(zookeeper, chroot)
    made.put_topic("t", {0: [1], 1: [1]})
    yield made
    made.close()


def written(folder: Path, *partitions: tuple[str, int]) -> Path:
    file = folder / "partitions.json"
    file.write_text(json.dumps({"partitions": [{"topic": topic, "partition": partition} for topic, partition in partitions]}))
    return file


@pytest.mark.requirement("R183-20")
@pytest.mark.parametrize("both", [True, False])
def test_both_or_neither_of_the_two_ways_is_refused_and_nothing_is_elected(tree: Tree, both: bool) -> None:
    said = elect(*(("--zookeeper", tree.hosts, "--bootstrap-server", "127.0.0.1:1") if both else ()))
    assert (said.returncode, said.stdout) == (1, "")
    assert "--bootstrap-server" in said.stderr and "--zookeeper" in said.stderr and said.stderr.count("\n") == 1
    assert tree.exists(NODE) is None


@pytest.mark.requirement("R183-21")
@pytest.mark.requirement("R183-28")
def test_zookeeper_warns_on_stderr_and_requests_the_elections_once(tree: Tree) -> None:
    said = elect("--zookeeper", tree.hosts)
    assert said.returncode == 0
    assert said.stderr.startswith("Warning: --zookeeper is deprecated") and "--bootstrap-server" in said.stderr
    assert said.stdout == "Successfully started preferred replica election for partitions t-0, t-1\n"
    assert tree.json(NODE) == {"version": 1, "partitions": [{"topic": "t", "partition": 0}, {"topic": "t", "partition": 1}]}
    again = elect("--zookeeper", tree.hosts)
    assert (again.returncode, again.stdout) == (1, "")
    assert again.stderr.splitlines()[-1] == "klamm: Preferred replica leader election currently in progress for t-0, t-1"


@pytest.mark.requirement("R183-21")
def test_unknown_partitions_of_the_file_are_skipped_with_one_line_each(tree: Tree, tmp_path: Path) -> None:
    said = elect("--zookeeper", tree.hosts, "--path-to-json-file", written(tmp_path, ("t", 1), ("t", 7), ("u", 0)))
    assert said.stdout.splitlines() == [
        "Skipping preferred replica leader election for partition t-7 since it doesn't exist.",
        "Skipping preferred replica leader election for partition u-0 since it doesn't exist.",
        "Successfully started preferred replica election for partitions t-1",
    ]
    assert tree.json(NODE)["partitions"] == [{"topic": "t", "partition": 1}]


@pytest.mark.requirement("R183-22")
@pytest.mark.requirement("R183-23")
def test_brokers_elect_and_report_each_partition(members: Members, tmp_path: Path) -> None:
    topic = members.topic([0, 1], [1, 0])
    members.succeed("--execute", "--reassignment-json-file", members.file({(topic, 0): [1, 0]}))
    members.settled(topic, [1, 0])

    def leader() -> Any:
        state = members.tree.state(topic)
        return None if state is None else state.leader

    assert leader() == 0
    file = written(tmp_path, (topic, 0), (topic, 1), (topic, 9))
    said = elect("--bootstrap-server", members.bootstrap, "--path-to-json-file", file)
    assert said.returncode == 1
    lines = said.stdout.splitlines()
    assert lines[:2] == [
        f"Successfully completed preferred replica election for partitions {topic}-0",
        f"Valid replica already elected for partitions {topic}-1",
    ]
    assert len(lines) == 3
    assert lines[2].startswith(f"Error completing preferred replica election for partition {topic}-9: UNKNOWN_TOPIC_OR_PARTITION")
    assert said.stderr == "klamm: 1 replica(s) could not be elected\n"
    wait_for(lambda: leader() == 1 or None, "the preferred replica leads")
    everything = elect("--bootstrap-server", members.bootstrap)
    assert (everything.returncode, everything.stderr) == (0, "")


@pytest.mark.requirement("R183-23")
@pytest.mark.parametrize(
    ("content", "line"),
    [
        ('{"partitions":[{"topic":"t","partition":0},{"topic":"t","partition":0}]}', "contains duplicate partitions: t-0"),
        ('{"partitions":[]}', "Replica election data is empty"),
        ('{"partitions":', "is not JSON"),
    ],
)  # fmt: skip
def test_a_bad_file_is_one_line_before_any_connection(tmp_path: Path, content: str, line: str) -> None:
    file = tmp_path / "partitions.json"
    file.write_text(content)
    said = elect("--zookeeper", "127.0.0.1:1", "--path-to-json-file", file)
    assert (said.returncode, said.stdout) == (1, "") and line in said.stderr and said.stderr.count("\n") == 1


@pytest.mark.requirement("R183-22")
def test_admin_config_with_zookeeper_is_refused() -> None:
    said = elect("--zookeeper", "127.0.0.1:1", "--admin.config", "x")
    assert said.returncode == 1 and "--admin.config needs --bootstrap-server" in said.stderr and said.stderr.count("\n") == 1


@pytest.mark.requirement("R183-19")
@pytest.mark.requirement("R183-24")
def test_help_has_the_options_and_says_when_the_tool_is_not_needed() -> None:
    said = elect("--help").stdout
    for option in ("--bootstrap-server", "--zookeeper", "--path-to-json-file", "--admin.config", "--help"):
        assert option in said
    assert "The preferred replica is the first one" in said and "auto.leader.rebalance.enable=true" in said
