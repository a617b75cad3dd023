"""`klamm preferred-replica-election`, by brokers and by ZooKeeper (controller 21.3)."""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from klamm.protocol.apis import ApiKey
from klamm.tests.admin.replies import elected
from klamm.tests.admin.scripted import scripted
from klamm.tests.cli.members import ToolMembers
from klamm.tests.cli.running import call
from klamm.tests.harness.kafka import JVM, java_command, wait_for
from klamm.tests.harness.tree import Tree
from klamm.tests.reference.jars import TOOL_OF_KIP_183, jars
from klamm.tests.tools.tool_words import ELECTION_OF_2_2, resolving

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
def test_both_or_neither_of_the_two_ways_is_refused_before_any_connection(both: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0)
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        said = elect(*(("--zookeeper", address, "--bootstrap-server", address) if both else ()))
        with pytest.raises(BlockingIOError):
            listener.accept()
    assert (said.returncode, said.stdout) == (1, "")
    assert "--bootstrap-server" in said.stderr and "--zookeeper" in said.stderr and said.stderr.count("\n") == 1


@pytest.mark.requirement("R183-21")
@pytest.mark.requirement("R183-28")
def test_zookeeper_warns_on_stderr_and_requests_the_elections_once(tree: Tree) -> None:
    said = elect("--zookeeper", tree.hosts)
    assert said.returncode == 0
    assert said.stderr.startswith("Warning: --zookeeper is deprecated") and "--bootstrap-server" in said.stderr
    assert said.stdout.splitlines() == [
        "Created preferred replica election path with t-0, t-1",
        "Successfully started preferred replica election for partitions Set(t-0, t-1)",
    ]
    assert tree.json(NODE) == {"version": 1, "partitions": [{"topic": "t", "partition": 0}, {"topic": "t", "partition": 1}]}
    again = elect("--zookeeper", tree.hosts)
    assert (again.returncode, again.stdout) == (1, "")
    in_progress = "Preferred replica leader election currently in progress for t-0, t-1. Aborting operation"
    assert again.stderr.splitlines()[-1] == f"klamm: {in_progress}"


@pytest.mark.requirement("R183-21")
def test_unknown_partitions_of_the_file_are_skipped_with_one_line_each(tree: Tree, tmp_path: Path) -> None:
    said = elect("--zookeeper", tree.hosts, "--path-to-json-file", written(tmp_path, ("t", 1), ("t", 7), ("u", 0)))
    assert said.stdout.splitlines() == [
        "Created preferred replica election path with t-1",
        "Successfully started preferred replica election for partitions Set(t-1)",
        "Skipping preferred replica leader election for partition t-7 since it doesn't exist.",
        "Skipping preferred replica leader election for partition u-0 since it doesn't exist.",
    ]
    assert tree.json(NODE)["partitions"] == [{"topic": "t", "partition": 1}]


@pytest.mark.requirement("R183-28")
@pytest.mark.parametrize("partitions", [(), (("t", 7), ("u", 0))])
def test_a_file_without_a_partition_that_exists_requests_nothing_and_is_no_failure(
    tree: Tree, tmp_path: Path, partitions: tuple[tuple[str, int], ...]
) -> None:
    said = elect("--zookeeper", tree.hosts, "--path-to-json-file", written(tmp_path, *partitions))
    assert said.returncode == 0
    assert said.stdout.startswith("Created preferred replica election path with \nSuccessfully started preferred replica election for ")
    assert said.stdout.count("Skipping") == len(partitions)
    assert tree.json(NODE)["partitions"] == []


@pytest.mark.slow
@pytest.mark.reference
@pytest.mark.requirement("R183-28")
def test_lines_and_exit_codes_by_zookeeper_are_those_of_the_tool_of_2_2_but_for_the_warning(tree: Tree, tmp_path: Path) -> None:
    """The tool of 2.2 finds partitions by their state nodes."""
    for partition in (0, 1):
        tree.put_state("t", partition, leader=1, isr=[1])

    def kafkas(*arguments: object) -> subprocess.CompletedProcess[str]:
        command = java_command(jars(TOOL_OF_KIP_183), ELECTION_OF_2_2, *map(str, arguments), flags=(*JVM, resolving(tmp_path)))
        return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False)

    given: list[list[tuple[str, int]] | None] = [None, [("t", 1)], [("t", 1), ("t", 7), ("u", 0)], [("u", 0)], [], [("t", 0), ("t", 0)]]
    outcomes = []
    for tool in (elect, kafkas):
        for partitions in given:
            file = () if partitions is None else ("--path-to-json-file", written(tmp_path, *partitions))
            for _ in range(2):  # the second time the node is there
                said = tool("--zookeeper", tree.hosts, *file)
                lines = [line.replace(", ", ",") for line in said.stdout.splitlines() if "deprecated" not in line and "instead" not in line]
                outcomes.append((said.returncode, lines, tree.json(NODE)))
            if tree.exists(NODE):
                tree.delete(NODE)
    assert outcomes[: len(given) * 2] == outcomes[len(given) * 2 :]


@pytest.mark.requirement("R183-21")
@pytest.mark.requirement("R183-28")
def test_the_controller_elects_what_zookeeper_was_given(members: ToolMembers, tmp_path: Path) -> None:
    topic = members.topic([0, 1])
    members.succeed("--execute", "--reassignment-json-file", members.file({(topic, 0): [1, 0]}))
    members.settled(topic, [1, 0])
    said = elect("--zookeeper", members.tree.hosts, "--path-to-json-file", written(tmp_path, (topic, 0)))
    assert said.returncode == 0
    wait_for(lambda: (state := members.tree.state(topic)) is not None and state.leader == 1, "the preferred replica leads")
    wait_for(lambda: not members.tree.exists(NODE), "the controller has removed the request")


@pytest.mark.requirement("R183-19")
@pytest.mark.requirement("R183-22")
@pytest.mark.requirement("R183-23")
def test_brokers_elect_and_report_each_partition(members: ToolMembers, tmp_path: Path) -> None:
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
    assert {f"{topic}-0", f"{topic}-1"} <= completed(everything.stdout)
    nothing_to_do = elect("--bootstrap-server", members.bootstrap)
    assert (nothing_to_do.returncode, nothing_to_do.stderr) == (0, "")
    assert completed(nothing_to_do.stdout) == completed(everything.stdout), "as the tool of 2.2.2 names all of them"


def completed(stdout: str) -> set[str]:
    """The partitions of the only line."""
    begin = "Successfully completed preferred replica election for partitions "
    assert stdout.startswith(begin) and stdout.count("\n") == 1, stdout
    return set(stdout.removeprefix(begin).strip().split(", "))


@pytest.mark.requirement("R183-23")
@pytest.mark.parametrize(
    ("content", "line"),
    [
        ('{"partitions":[{"topic":"t","partition":0},{"topic":"t","partition":0}]}', "contains duplicate partitions: t-0"),
        ('{"partitions":', "is not JSON"),
    ],
)
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
def test_the_file_of_admin_config_sets_up_the_admin_client(tmp_path: Path) -> None:
    """Without it the tool speaks plain text; with it TLS, by a trust store that is not there."""
    config = tmp_path / "admin.properties"
    config.write_text(f"security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location={tmp_path}/absent.pem\n")
    with scripted() as cluster:
        (broker,) = cluster.add(1)
        broker.on(ApiKey.ELECT_LEADERS, elected())
        chosen = ("--bootstrap-server", cluster.bootstrap, "--path-to-json-file", written(tmp_path, ("a", 0)))
        assert elect(*chosen).returncode == 0
        said = elect(*chosen, "--admin.config", config)
        assert len(broker.bodies(ApiKey.ELECT_LEADERS)) == 1
    assert (said.returncode, said.stdout) == (1, "") and "absent.pem" in said.stderr


@pytest.mark.requirement("R183-24")
def test_help_has_the_options_and_says_when_the_tool_is_not_needed() -> None:
    said = elect("--help").stdout
    for option in ("--bootstrap-server", "--zookeeper", "--path-to-json-file", "--admin.config", "--help"):
        assert option in said
    assert "preferred_leader_blacklist" in said
    assert "The preferred replica is the first one" in said and "auto.leader.rebalance.enable=true" in said
