"""`klamm topics` on clusters of both kinds: what it prints, what it changes, its exit codes."""

from __future__ import annotations

import json
import re
import subprocess

import pytest

from klamm.admin import AdminClient, ConfigResource, ResourceType
from klamm.tests.cli.members import ToolMembers
from klamm.tests.cli.running import call
from klamm.tests.harness.kafka import wait_for
from klamm.tests.harness.names import unique_name


def topics(members: ToolMembers, *arguments: object) -> subprocess.CompletedProcess[str]:
    return call("topics", *arguments, "--bootstrap-server", members.bootstrap)


def done(members: ToolMembers, *arguments: object) -> list[str]:
    """The lines of a command that succeeds."""
    said = topics(members, *arguments)
    assert (said.returncode, said.stderr) == (0, ""), said
    return said.stdout.splitlines()


def known(members: ToolMembers, *names: str) -> None:
    """Wait until the brokers show these topics: real ones learn of them after the response to CreateTopics."""
    wait_for(lambda: topics(members, "describe", *names).returncode == 0, f"{names} are known")


def test_a_topic_is_created_shown_grown_and_deleted(members: ToolMembers) -> None:
    name, other = unique_name("t"), unique_name("t")
    created = done(members, "create", name, other, "-p", 2, "-r", 1, "--config", "retention.ms=5000", "--config", "cleanup.policy=compact")
    known(members, name, other)
    assert created == [f"{name}: created", f"{other}: created"]
    with AdminClient(members.bootstrap) as admin:
        resource = ConfigResource(ResourceType.TOPIC, name)
        configs = admin.describe_configs([resource]).all()[resource]
    assert (configs["retention.ms"].value, configs["cleanup.policy"].value) == ("5000", "compact")
    assert [name, "2", "1", "no"] in [re.split(r" {2,}", line) for line in done(members, "list")]
    assert done(members, "add-partitions", name, 5) == [f"{name}: has 5 partitions"]
    wait_for(lambda: len(done(members, "describe", name)) == 6, "five partitions")
    rows = done(members, "describe", name)
    assert re.split(r" {2,}", rows[0]) == ["TOPIC", "PARTITION", "LEADER", "LEADER-EPOCH", "REPLICAS", "ISR", "OFFLINE"]
    for number, row in enumerate(rows[1:]):
        topic, partition, leader, epoch, replicas, isr, offline = re.split(r" {2,}", row)
        assert (topic, partition, epoch, offline) == (name, str(number), "0", "-")
        assert leader == replicas == isr
    assert done(members, "delete", name, other) == [f"{name}: deleted", f"{other}: deleted"]
    wait_for(lambda: name not in " ".join(done(members, "list")), "the topic is gone")


def test_json_has_the_same_as_objects(members: ToolMembers) -> None:
    name = unique_name("t")
    assert json.loads(*done(members, "create", name, "-p", 1, "-r", 1, "--json")) == {
        "topics": [{"topic": name, "outcome": "created", "error": None}]
    }
    known(members, name)
    (row,) = json.loads(*done(members, "describe", name, "--json"))["partitions"]
    assert row == {
        "topic": name, "partition": 0, "leader": row["leader"], "leader_epoch": 0,
        "replicas": [row["leader"]], "isr": [row["leader"]], "offline": [],
    }
    rows = json.loads(*done(members, "list", "--exclude-internal", "--json"))["topics"]
    assert {"topic": name, "partitions": 1, "replicas": 1, "internal": False} in rows
    assert not any(row["internal"] for row in rows)
    assert done(members, "describe", name, "--out-of-sync") == done(members, "describe", name, "--without-leader") == []


def test_what_is_refused_is_one_line_and_the_others_are_changed(members: ToolMembers) -> None:
    name, other, absent = unique_name("t"), unique_name("t"), unique_name("t")
    done(members, "create", name, "-p", 2)
    said = topics(members, "create", name, other, "-p", 1)
    assert (said.returncode, said.stdout) == (1, f"{other}: created\n")
    assert re.fullmatch(rf"klamm: {name}: .*already exists.*\n", said.stderr), said.stderr
    assert done(members, "create", name, "--if-not-exists") == [f"{name}: exists already"]
    said = topics(members, "create", name, absent, "--if-not-exists", "-r", 9)
    assert (said.returncode, said.stdout) == (1, f"{name}: exists already\n")
    assert re.fullmatch(rf"klamm: {absent}: .*\n", said.stderr), "no topic can have nine replicas here"
    assert done(members, "create", absent, "--validate-only") == [f"{absent}: can be created"]
    said = topics(members, "describe", name, absent)
    assert said.returncode == 1
    assert len(said.stdout.splitlines()) == 3
    assert absent in said.stderr
    assert done(members, "add-partitions", name, 9, "--validate-only") == [f"{name}: can have 9 partitions"]
    assert done(members, "add-partitions", name, 3) == [f"{name}: has 3 partitions"], "it had not nine"
    fewer = topics(members, "add-partitions", name, 1)
    assert (fewer.returncode, fewer.stdout, fewer.stderr.count("\n")) == (1, "", 1)
    assert done(members, "delete", absent, "--if-exists") == [f"{absent}: does not exist"]
    failed = topics(members, "delete", absent, name, "--json")
    assert failed.returncode == 1
    first, second = json.loads(failed.stdout.splitlines()[0])["topics"]
    assert (first["topic"], first["outcome"], second) == (absent, None, {"topic": name, "outcome": "deleted", "error": None})


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("create",), "Missing argument 'TOPIC…'"),
        (("create", "t", "-p", "0"), "0 is not in the range x>=1"),
        (("add-partitions", "t", "many"), "'many' is not a valid integer"),
        (("lst",), "No such command 'lst'. Did you mean 'list'?"),
    ],
    ids=str,
)
def test_a_wrong_command_line_is_one_line_and_exit_code_2(words: tuple[str, ...], reason: str) -> None:
    said = call("topics", *words)
    assert (said.returncode, said.stdout, said.stderr.count("\n")) == (2, "", 1)
    assert reason in said.stderr
