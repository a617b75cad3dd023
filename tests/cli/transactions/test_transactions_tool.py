"""`klamm transactions` on clusters of both kinds: what it prints, what it changes, its exit codes."""

from __future__ import annotations

import json
import re
import subprocess
import uuid

import pytest
from confluent_kafka import KafkaException, Producer

from klamm.tests.cli.members import ToolMembers
from klamm.tests.cli.running import call

TIMEOUT_S = 30


def transactions(members: ToolMembers, *arguments: object) -> subprocess.CompletedProcess[str]:
    return call("transactions", *arguments, "--bootstrap-server", members.bootstrap)


def table(members: ToolMembers, *arguments: object) -> list[list[str]]:
    """The cells of a table without its head; the command must succeed without a warning."""
    done = transactions(members, *arguments)
    assert (done.returncode, done.stderr) == (0, ""), done
    return [re.split(r" {2,}", line) for line in done.stdout.splitlines()[1:]]


def begun(members: ToolMembers, topic: str, transactional_id: str) -> Producer:
    """A producer with an open transaction that has a record in partition 0."""
    producer = Producer({"bootstrap.servers": members.bootstrap, "transactional.id": transactional_id, "log_level": 0})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(topic, b"record", partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    return producer


@pytest.fixture
def name() -> str:
    return f"tx-{uuid.uuid4().hex[:8]}"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("describe",), "describe: Missing argument 'TRANSACTIONAL_ID…'."),
        (("fence",), "fence: Missing argument 'TRANSACTIONAL_ID…'."),
        (("abort", "--topic", "t", "--partition", 0), "abort: Missing option '--start-offset'."),
    ],
)
def test_arguments_that_are_missing_are_one_line_and_nothing_is_connected(arguments: tuple[object, ...], line: str) -> None:
    said = call("transactions", *arguments, "--bootstrap-server", "127.0.0.1:1")
    assert (said.returncode, said.stdout, said.stderr) == (2, "", f"klamm transactions {line}\n")


def test_an_open_transaction_is_listed_and_described(members: ToolMembers, name: str) -> None:
    topic = members.topic([0], [1])
    producer = begun(members, topic, name)
    ((_, coordinator, producer_id, state),) = [row for row in table(members, "list", "--state", "Ongoing") if row[0] == name]
    assert state == "Ongoing"
    ((*described, _, partitions),) = table(members, "describe", name)
    assert described == [name, coordinator, producer_id, "0", "Ongoing", "60000"]
    assert partitions == f"{topic}-0"
    said = transactions(members, "list", "--producer-id", producer_id, "--json")
    assert [row["transactional_id"] for row in json.loads(said.stdout)["transactions"]] == [name]
    producer.commit_transaction(TIMEOUT_S)


def test_one_that_does_not_exist_is_named_and_the_others_are_shown(members: ToolMembers, name: str) -> None:
    producer = begun(members, members.topic([0]), name)
    said = transactions(members, "describe", name, "unheard-of")
    assert said.returncode == 1
    assert name in said.stdout
    assert said.stderr.count("\n") == 1
    assert "unheard-of" in said.stderr
    producer.abort_transaction(TIMEOUT_S)


def test_an_open_transaction_is_aborted_in_its_partition(members: ToolMembers, name: str) -> None:
    topic = members.topic([0])
    producer = begun(members, topic, name)
    said = transactions(members, "abort", "--topic", topic, "--partition", 0, "--start-offset", 7)
    assert (said.returncode, said.stderr.count("\n")) == (1, 1)
    said = transactions(members, "abort", "--topic", topic, "--partition", 0, "--start-offset", 0)
    assert (said.returncode, said.stderr) == (0, ""), said
    again = transactions(members, "abort", "--topic", topic, "--partition", 0, "--start-offset", 0)
    assert again.returncode == 1, "there is no open transaction any more"
    producer.abort_transaction(TIMEOUT_S)


def test_a_producer_that_is_fenced_cannot_commit(members: ToolMembers, name: str) -> None:
    producer = begun(members, members.topic([0]), name)
    said = transactions(members, "fence", name)
    assert (said.returncode, said.stderr) == (0, ""), said
    assert f"Fenced the producers of '{name}'" in said.stdout
    with pytest.raises(KafkaException) as raised:
        producer.commit_transaction(TIMEOUT_S)
    assert raised.value.args[0].fatal()
