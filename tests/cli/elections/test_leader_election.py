"""`klamm leader-election` (controller 19): options, files, times, and what it prints beside Kafka's own tool."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from klamm.admin.calls import deadlines
from klamm.cli.elections.election import ALL_LED
from klamm.protocol.apis import ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.tests.admin.replies import elected
from klamm.tests.admin.scripted import HANG, ScriptedCluster, scripted, shipped
from klamm.tests.cli.members import ToolMembers
from klamm.tests.cli.running import call
from klamm.tests.harness.kafka import JVM, START_S, all_know, java_command, wait_for
from klamm.tests.reference.jars import VERSION, jars
from klamm.tests.reference.tools import CLASSES

ELECT = ApiKey.ELECT_LEADERS


def elect(*arguments: object) -> subprocess.CompletedProcess[str]:
    return call("leader-election", *arguments)


@pytest.fixture
def cluster() -> Iterator[ScriptedCluster]:
    with scripted() as one:
        yield one


@pytest.fixture
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadlines, "RESPONSE_GRACE_MS", 300)


def file(folder: Path, *partitions: tuple[str, int]) -> Path:
    path = folder / "elect.json"
    path.write_text(json.dumps({"partitions": [{"topic": topic, "partition": partition} for topic, partition in partitions]}))
    return path


TYPE = ("--election-type", "preferred")
SERVER = ("--bootstrap-server", "127.0.0.1:1")
ONE_OF = "One and only one of the following options is required: topic, all-topic-partitions, path-to-json-file"
WRONG = [
    ((), "Missing required option(s): bootstrap-server, election-type"),
    ((*TYPE, "--all-topic-partitions"), "Missing required option(s): bootstrap-server"),
    ((*SERVER, "--all-topic-partitions"), "Missing required option(s): election-type"),
    ((*SERVER, *TYPE), ONE_OF),
    ((*SERVER, *TYPE, "--partition", 0), ONE_OF),
    ((*SERVER, *TYPE, "--topic", "t", "--partition", 0, "--all-topic-partitions"), ONE_OF),
    ((*SERVER, *TYPE, "--topic", "t", "--path-to-json-file", "x"), ONE_OF),
    ((*SERVER, *TYPE, "--all-topic-partitions", "--path-to-json-file", "x"), ONE_OF),
    ((*SERVER, *TYPE, "--topic", "t"), "Missing required option(s): partition"),
    ((*SERVER, *TYPE, "--all-topic-partitions", "--partition", 0), "Option partition is only allowed if topic is used"),
    ((*SERVER, *TYPE, "--path-to-json-file", "x", "--partition", 0), "Option partition is only allowed if topic is used"),
]


@pytest.mark.parametrize(("arguments", "line"), WRONG, ids=lambda value: "" if isinstance(value, tuple) else None)
def test_options_that_do_not_fit_are_one_line_of_kafkas_words(arguments: tuple[object, ...], line: str) -> None:
    said = elect(*arguments)
    assert (said.returncode, said.stdout, said.stderr) == (1, "", f"klamm leader-election: {line}\n")


@pytest.mark.slow
@pytest.mark.reference
@pytest.mark.parametrize(("arguments", "line"), WRONG[1:], ids=lambda value: "" if isinstance(value, tuple) else None)
def test_kafkas_tool_says_the_same_of_options_that_do_not_fit(tmp_path: Path, arguments: tuple[object, ...], line: str) -> None:
    said = kafkas(tmp_path, *arguments)
    assert (said.returncode, said.stdout, said.stderr.splitlines()[0]) == (1, "", line)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--election-type", "third", "--all-topic-partitions"), "'third' is not one of 'preferred', 'unclean'"),
        ((*TYPE, "--topic", "t", "--partition", "one"), "'one' is not a valid integer"),
        ((*TYPE, "--topic", "t", "--partition", "-1"), "-1 is not in the range"),
        ((*TYPE, "--topic", "t", "--partition", 2**31), "is not in the range"),
        ((*TYPE, "--topic", "", "--partition", 0), "a topic's name must have from 1 to 32767 bytes"),
        ((*TYPE, "--path-to-json-file", "no-such-file.json"), "no-such-file.json: No such file or directory"),
        ((*TYPE, "--all-topic-partitions", "--admin.config", "no-such.properties"), "no-such.properties: No such file or directory"),
    ],
)
def test_a_value_that_cannot_be_is_one_line_before_any_connection(arguments: tuple[object, ...], reason: str) -> None:
    said = elect(*SERVER, *arguments)
    assert (said.returncode, said.stdout) == (1, "")
    assert reason in said.stderr and said.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ('{"partitions":[{"topic":"t","partition":0},{"topic":"t","partition":0}]}', "election data contains duplicate partitions: t-0"),
        ('{"partitions":', "is not JSON"),
        ('{"topics":[]}', 'has no list "partitions"'),
        ('{"partitions":[{"topic":"t"}]}', "entry 1 of partitions has nothing as partition"),
        ('{"partitions":[{"partition":0}]}', 'entry 1 of partitions has no string "topic"'),
        ('{"partitions":[{"topic":"\\ud800","partition":0}]}', "surrogates not allowed"),
    ],
)
def test_a_bad_file_is_one_line_before_any_connection(tmp_path: Path, content: str, line: str) -> None:
    path = tmp_path / "elect.json"
    path.write_text(content)
    said = elect(*SERVER, *TYPE, "--path-to-json-file", path)
    assert (said.returncode, said.stdout) == (1, "") and line in said.stderr and said.stderr.count("\n") == 1


@pytest.mark.parametrize("election_type", ["preferred", "unclean", "PREFERRED", "Unclean"])
def test_what_the_options_choose_is_requested_once(cluster: ScriptedCluster, tmp_path: Path, election_type: str) -> None:
    (broker,) = cluster.add(1)
    broker.on(ELECT, elected(everything=(("a", 0), ("b", 1))))
    options = ("--bootstrap-server", cluster.bootstrap, "--election-type", election_type)
    kind = election_type.upper()
    for chosen, named, line in (
        (("--topic", "a", "--partition", 3), [("a", [3])], "a-3"),
        (("--path-to-json-file", file(tmp_path, ("b", 1), ("a", 0), ("b", 0))), [("b", [1, 0]), ("a", [0])], "a-0, b-0, b-1"),
        (("--all-topic-partitions",), None, "a-0, b-1"),
    ):
        said = elect(*options, *chosen)
        assert (said.returncode, said.stderr) == (0, "")
        assert said.stdout == f"Successfully completed leader election ({kind}) for partitions {line}\n"
        body = broker.bodies(ELECT)[-1]
        assert body.election_type == (0 if kind == "PREFERRED" else 1)
        assert (None if body.topic_partitions is None else [(t.topic, list(t.partitions)) for t in body.topic_partitions]) == named
    assert len(broker.bodies(ELECT)) == 3


def test_outcomes_are_one_line_each_and_any_failure_is_exit_code_1(cluster: ScriptedCluster, tmp_path: Path) -> None:
    (broker,) = cluster.add(1)
    codes = {("a", 1): 84, ("a", 2): 80, ("a", 10): 7, ("b", 0): 3, ("b", 1): 84}
    broker.on(ELECT, elected(errors=codes))
    path = file(tmp_path, *codes, ("a", 0))
    said = elect("--bootstrap-server", cluster.bootstrap, *TYPE, "--path-to-json-file", path)
    assert said.returncode == 1
    assert said.stdout.splitlines() == [
        "Successfully completed leader election (PREFERRED) for partitions a-0",
        "Valid replica already elected for partitions a-1, b-1",
        "Error completing leader election (PREFERRED) for partition: a-2: PREFERRED_LEADER_NOT_AVAILABLE: code 80",
        "Error completing leader election (PREFERRED) for partition: a-10: REQUEST_TIMED_OUT: code 7",
        "Error completing leader election (PREFERRED) for partition: b-0: UNKNOWN_TOPIC_OR_PARTITION: code 3",
    ]
    assert said.stderr == "klamm: 3 replica(s) could not be elected\n"


@pytest.mark.parametrize("everything", [True, False])
def test_nothing_to_elect_is_a_success_and_says_so(cluster: ScriptedCluster, tmp_path: Path, everything: bool) -> None:
    """Kafka's tool says nothing at all."""
    (broker,) = cluster.add(1)
    broker.on(ELECT, elected())
    chosen = ("--all-topic-partitions",) if everything else ("--path-to-json-file", file(tmp_path))
    said = elect("--bootstrap-server", cluster.bootstrap, *TYPE, *chosen)
    line = "Valid replica already elected for all partitions\n" if everything else "There are no partitions to elect leaders of\n"
    assert (said.returncode, said.stdout, said.stderr) == (0, line, "")
    assert [body.topic_partitions for body in broker.bodies(ELECT)] == [None if everything else []]


@pytest.mark.parametrize("chosen", [("--topic", "a", "--partition", 0), ("--all-topic-partitions",)])
def test_who_may_not_elect_is_told_so_once(cluster: ScriptedCluster, chosen: tuple[object, ...]) -> None:
    (broker,) = cluster.add(1)

    def refused(body: object, version: int) -> object:
        code = int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return elected(default=code)(body, version)._replace(error_code=code)

    broker.on(ELECT, refused)
    said = elect("--bootstrap-server", cluster.bootstrap, *TYPE, *chosen)
    assert (said.returncode, said.stdout) == (1, "Not authorized to perform leader election\n")
    assert said.stderr.startswith("klamm: Not authorized to perform leader election: CLUSTER_AUTHORIZATION_FAILED")
    assert said.stderr.endswith(" (it needs ALTER on the cluster)\n")


def test_a_controller_of_kafka_2_2_cannot_elect_uncleanly(cluster: ScriptedCluster) -> None:
    (broker,) = cluster.add(1)
    broker.versions = shipped(ELECT_LEADERS=(0, 0), METADATA=(0, 7), API_VERSIONS=(0, 2))
    broker.on(ELECT, elected())
    chosen = ("--bootstrap-server", cluster.bootstrap, "--topic", "a", "--partition", 0, "--election-type")
    said = elect(*chosen, "unclean")
    assert (said.returncode, said.stdout) == (1, "")
    assert "UNSUPPORTED_VERSION: the controller is older than Kafka 2.4" in said.stderr and said.stderr.count("\n") == 1
    assert elect(*chosen, "preferred").returncode == 0


@pytest.mark.parametrize(
    ("properties", "sent"),
    [
        ({}, 15_000),
        ({"request.timeout.ms": 1234}, 1234),
        ({"default.api.timeout.ms": 60_000}, 15_000),
        ({"default.api.timeout.ms": 4000}, 4000),
        ({"default.api.timeout.ms": 9000, "request.timeout.ms": 20_000}, 9000),
    ],
)
def test_the_controller_may_take_the_request_time_out(
    cluster: ScriptedCluster, tmp_path: Path, properties: dict[str, int], sent: int
) -> None:
    (broker,) = cluster.add(1)
    broker.on(ELECT, elected())
    config = tmp_path / "admin.properties"
    config.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    given = ("--admin.config", config) if properties else ()
    assert elect("--bootstrap-server", cluster.bootstrap, *TYPE, "--topic", "a", "--partition", 0, *given).returncode == 0
    (body,) = broker.bodies(ELECT)
    assert sent - 1000 < body.timeout_ms <= sent


@pytest.mark.usefixtures("short_grace")
def test_a_controller_that_hangs_is_replaced_by_the_next_one_within_the_time(cluster: ScriptedCluster, tmp_path: Path) -> None:
    one, two = cluster.add(1, 2)

    def hangs(_body: object, _version: int) -> object:
        cluster.controller_id = 2
        return HANG

    one.on(ELECT, hangs)
    two.on(ELECT, elected())
    config = tmp_path / "admin.properties"
    config.write_text("default.api.timeout.ms=20000\nrequest.timeout.ms=300\n")
    said = elect("--bootstrap-server", cluster.bootstrap, *TYPE, "--topic", "a", "--partition", 0, "--admin.config", config)
    assert (said.returncode, said.stderr) == (0, "")
    assert said.stdout == "Successfully completed leader election (PREFERRED) for partitions a-0\n"
    assert (len(one.bodies(ELECT)), len(two.bodies(ELECT))) == (1, 1)


@pytest.mark.usefixtures("short_grace")
def test_no_response_until_the_end_of_the_time_is_said_as_kafkas_tool_says_it(cluster: ScriptedCluster, tmp_path: Path) -> None:
    (broker,) = cluster.add(1)
    broker.on(ELECT, HANG)
    config = tmp_path / "admin.properties"
    config.write_text("default.api.timeout.ms=500\nrequest.timeout.ms=200\n")
    said = elect("--bootstrap-server", cluster.bootstrap, *TYPE, "--all-topic-partitions", "--admin.config", config)
    assert (said.returncode, said.stdout) == (1, "Timeout waiting for election results\n")
    assert said.stderr.startswith("klamm: Timeout waiting for election results: ") and said.stderr.count("\n") == 1


def test_a_time_that_is_no_number_is_one_line(tmp_path: Path) -> None:
    config = tmp_path / "admin.properties"
    config.write_text("request.timeout.ms=soon\n")
    said = elect(*SERVER, *TYPE, "--all-topic-partitions", "--admin.config", config)
    assert (said.returncode, said.stdout) == (1, "")
    assert "request.timeout.ms is 'soon', which is not a number of milliseconds" in said.stderr


def test_help_says_what_the_two_types_do_and_what_they_cost() -> None:
    said = elect("--help").stdout
    for option in ("--bootstrap-server", "--election-type", "--topic", "--partition", "--path-to-json-file", "--all-topic-partitions"):
        assert option in said
    assert "preferred_leader_blacklist" in said
    assert "--admin.config" in said and "LOST" in said and "auto.leader.rebalance.enable=true" in said


# Real brokers, of Klamm and of Apache Kafka


def kafkas(folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Kafka's own tool."""
    quiet = folder / "log4j.properties"
    quiet.write_text("log4j.rootLogger=OFF\n")
    flags = (*JVM, f"-Dlog4j.configuration=file:{quiet}")
    command = java_command(jars(VERSION), CLASSES["kafka-leader-election"], *map(str, arguments), flags=flags)
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False)


def comparable(said: subprocess.CompletedProcess[str]) -> tuple[int, list[str], str]:
    """Exit code, lines without the text of errors and with partitions in order, and the first complaint."""
    lines = []
    for line in said.stdout.splitlines():
        begin, of, partitions = re.sub(r"(for partition: \S+-\d+): .*", r"\1: <error>", line).partition("for partitions ")
        lines.append(begin + of + ", ".join(sorted(partitions.split(", "))))
    return said.returncode, sorted(lines), said.stderr.partition("\n")[0].removeprefix("klamm: ")


def moved(members: ToolMembers) -> str:
    """A topic whose partitions 0 and 1 are not led by their preferred replicas, partition 2 is."""
    topic = members.topic([0, 1], [1, 2], [2, 0])
    moves = {(topic, 0): [1, 0], (topic, 1): [2, 1]}
    members.succeed("--execute", "--reassignment-json-file", members.file(moves))
    for (name, partition), replicas in moves.items():
        members.settled(name, replicas, partition)
    return topic


def leaders(members: ToolMembers, topic: str) -> list[int]:
    states = [members.tree.state(topic, partition) for partition in range(3)]
    return [-1 if state is None else state.leader for state in states]


def test_preferred_replicas_become_leaders_and_the_rest_is_reported(members: ToolMembers, tmp_path: Path) -> None:
    topic = moved(members)
    assert leaders(members, topic) == [0, 1, 2]
    options = ("--bootstrap-server", members.bootstrap, "--election-type", "preferred")
    said = elect(*options, "--path-to-json-file", file(tmp_path, (topic, 0), (topic, 2), (topic, 9)))
    assert said.returncode == 1
    assert said.stdout.splitlines()[:2] == [
        f"Successfully completed leader election (PREFERRED) for partitions {topic}-0",
        f"Valid replica already elected for partitions {topic}-2",
    ]
    begin = f"Error completing leader election (PREFERRED) for partition: {topic}-9: UNKNOWN_TOPIC_OR_PARTITION"
    assert said.stdout.splitlines()[2].startswith(begin)
    assert said.stderr == "klamm: 1 replica(s) could not be elected\n"
    assert leaders(members, topic) == [1, 1, 2]
    everything = elect(*options, "--all-topic-partitions")
    assert (everything.returncode, everything.stderr) == (0, "") and f"{topic}-1" in everything.stdout
    assert leaders(members, topic) == [1, 2, 2]
    not_needed = elect("--bootstrap-server", members.bootstrap, "--election-type", "unclean", "--topic", topic, "--partition", 0)
    assert (not_needed.returncode, not_needed.stdout) == (0, f"Valid replica already elected for partitions {topic}-0\n")


@pytest.mark.slow
@pytest.mark.reference
def test_lines_and_exit_codes_are_those_of_kafkas_tool(members: ToolMembers, tmp_path: Path) -> None:
    """Both tools are given the same elections, each of a topic of its own, on the same brokers."""
    config = tmp_path / "admin.properties"
    config.write_text("default.api.timeout.ms=60000\nrequest.timeout.ms=30000\n")
    twice = tmp_path / "twice.json"
    outcomes = []
    for tool in (elect, lambda *arguments: kafkas(tmp_path, *arguments)):
        topic = moved(members)
        twice.write_text(json.dumps({"partitions": [{"topic": topic, "partition": 0}] * 2}))
        options = ("--bootstrap-server", members.bootstrap, "--admin.config", config, "--election-type")
        some = file(tmp_path, (topic, 0), (topic, 2), (topic, 8), (topic, 9))
        told = [
            tool(*options, "preferred", "--path-to-json-file", some),
            tool(*options, "PREFERRED", "--topic", topic, "--partition", 1),
            tool(*options, "preferred", "--topic", topic, "--partition", 1),
            tool(*options, "unclean", "--topic", topic, "--partition", 1),
            tool(*options, "unclean", "--topic", topic, "--partition", 7),
            tool(*options, "preferred", "--all-topic-partitions"),
            tool(*options, "unclean", "--all-topic-partitions"),
        ]
        assert leaders(members, topic) == [1, 2, 2]
        refused = tool(*options, "preferred", "--path-to-json-file", twice)
        assert (refused.returncode, refused.stdout) == (1, "") and "Replica election data contains duplicate partitions" in refused.stderr
        # of all partitions, when none needs an election, Kafka's tool prints nothing
        outcomes.append(
            [(code, [line.replace(topic, "t") for line in lines if line != ALL_LED], first) for code, lines, first in map(comparable, told)]
        )
    assert outcomes[0] == outcomes[1]


def all_in_sync(members: ToolMembers) -> bool:
    for topic in members.tree.children("/brokers/topics"):
        for number, replicas in members.tree.json(f"/brokers/topics/{topic}")["partitions"].items():
            state = members.tree.state(topic, int(number))
            if state is None or set(state.isr) != set(replicas):
                return False
    return True


def test_an_unclean_election_gives_a_partition_a_leader_that_was_out_of_sync(members: ToolMembers) -> None:
    topic = members.topic([1, 2])
    first, second = members.brokers[1], members.brokers[2]

    def becomes(leader: int, isr: list[int], live: set[int]) -> None:
        def look() -> bool | None:
            state = members.tree.state(topic)
            known = set(map(int, members.tree.children("/brokers/ids")))
            return (known == live and state is not None and (state.leader, state.isr) == (leader, isr)) or None

        wait_for(look, f"{topic}-0 is led by {leader}, isr {isr}")

    try:
        second.stop()
        becomes(1, [1], {0, 1})
        first.stop()
        becomes(-1, [1], {0})
        second.launch()
        becomes(-1, [1], {0, 2})
        options = ("--bootstrap-server", members.bootstrap, "--topic", topic, "--partition", 0, "--election-type")
        preferred = elect(*options, "preferred")
        assert preferred.returncode == 1 and f"{topic}-0: PREFERRED_LEADER_NOT_AVAILABLE" in preferred.stdout
        unclean = elect(*options, "unclean")
        assert (unclean.returncode, unclean.stdout) == (0, f"Successfully completed leader election (UNCLEAN) for partitions {topic}-0\n")
        state = members.tree.state(topic)
        assert state is not None and (state.leader, state.isr) == (2, [2])
        again = elect(*options, "unclean")
        assert (again.returncode, again.stdout) == (0, f"Valid replica already elected for partitions {topic}-0\n")
    finally:
        for broker in (first, second):
            if not broker.alive():
                broker.launch()
        all_know(members.brokers, START_S)
        wait_for(lambda: all_in_sync(members), "every replica of every topic is in sync again", START_S)
