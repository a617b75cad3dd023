"""`klamm transactions` on clusters of both kinds: what it prints, what it changes, its exit codes."""

from __future__ import annotations

import json
import re
import subprocess
import time
from typing import cast

import pytest
from confluent_kafka import KafkaException, Producer

from klamm.admin import AsyncAdminClient, Described, Listed, ListedTransaction, TransactionDescription, TransactionState
from klamm.admin.calls.errors import response_error
from klamm.cli.tools.failures import ToolFailed
from klamm.cli.transactions import find_hanging
from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode
from klamm.tests.cli.members import ToolMembers
from klamm.tests.cli.running import call
from klamm.tests.harness import requests
from klamm.tests.harness.batches import T, records_of
from klamm.tests.harness.kafka import request, wait_for
from klamm.tests.harness.names import unique_name

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


def hang(members: ToolMembers, topic: str, producer_id: int, minutes: int) -> None:
    """Write a record of a transaction that no coordinator knows into partition 0, as if some time ago; leaders do not verify it then."""
    verify = "transaction.partition.verification.enable"
    controller = members.brokers[members.tree.controller()].port
    message = requests.set_configs(requests.BROKER, "", {verify: "false"})
    assert [each.error_code for each in request(controller, message, 1).responses] == [0]
    kind = messages.ProduceRequest
    batch = f"pid={producer_id}/3/0,tx(hangs@{time.time_ns() // 1_000_000 - T - minutes * 60_000})"
    data = kind.PartitionProduceData(index=0, records=records_of([batch]))
    produce = kind(
        transactional_id="unheard-of", acks=-1, timeout_ms=10_000, topic_data=[kind.TopicProduceData(name=topic, partition_data=[data])]
    )

    def written() -> bool:
        code = request(members.brokers[0].port, produce, 9).responses[0].partition_responses[0].error_code
        assert code == 0, ErrorCode(code)
        return True

    wait_for(written, "the leader has the config, and appends")


@pytest.fixture
def name() -> str:
    return unique_name("tx")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("describe",), "describe: Missing argument 'TRANSACTIONAL_ID…'."),
        (("fence",), "fence: Missing argument 'TRANSACTIONAL_ID…'."),
        (("abort", "--topic", "t", "--partition", 0), "abort: Missing option '--start-offset'."),
        (("find-hanging",), "find-hanging: Give topics, or --broker-id."),
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


def test_hanging_transactions_are_found_by_topic_partition_broker_and_age_and_can_be_aborted(members: ToolMembers, name: str) -> None:
    topic = members.topic([0, 1], [1, 2])
    hang(members, topic, 900_000, minutes=20)
    producer = begun(members, topic, name)
    found = [topic, "0", "900000", "3", "-", "0"]
    for where in ((topic,), (f"{topic}:0",), ("--broker-id", 0), (topic, "--broker-id", 1), (f"{topic}:0", "--broker-id", 1)):
        (row,) = [row for row in table(members, "find-hanging", *where) if row[0] == topic]
        assert (row[:6], row[7]) == (found, "20"), where
    for where in ((f"{topic}:1",), (topic, "--broker-id", 2), (topic, "--max-transaction-timeout", 30)):
        assert table(members, "find-hanging", *where) == [], where
    (row,) = table(members, "find-hanging", topic, "--max-transaction-timeout", 0)
    assert row[:6] == found, "the coordinator knows the other transaction"
    said = transactions(members, "find-hanging", topic, "--json")
    assert [each["producer_id"] for each in json.loads(said.stdout)["transactions"]] == [900_000]
    said = transactions(members, "abort", "--topic", topic, "--partition", 0, "--start-offset", row[5])
    assert (said.returncode, said.stderr) == (0, ""), said
    assert table(members, "find-hanging", topic, "--max-transaction-timeout", 0) == []
    producer.commit_transaction(TIMEOUT_S)


async def test_a_transaction_whose_coordinator_cannot_be_asked_is_not_called_hanging() -> None:
    """It is listed, but cannot be described; nothing says that its coordinator has forgotten it."""

    class Client:
        def __init__(self, code: ErrorCode) -> None:
            self._code = code

        async def list_transactions(self, producer_ids: set[int]) -> Listed[ListedTransaction]:
            return Listed({"payments": ListedTransaction("payments", 7, TransactionState.ONGOING, 1)}, {})

        async def describe_transactions(self, ids: list[str]) -> Described[str, TransactionDescription]:
            return Described({}, dict.fromkeys(ids, response_error(self._code)))

    refused = cast(AsyncAdminClient, Client(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
    with pytest.raises(ToolFailed, match="payments: TRANSACTIONAL_ID_AUTHORIZATION_FAILED"):
        await find_hanging._transactions(refused, {7})
    expired = cast(AsyncAdminClient, Client(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND))
    assert await find_hanging._transactions(expired, {7}) == {}


def test_a_broker_that_does_not_have_a_partition_says_so(members: ToolMembers) -> None:
    topic = members.topic([0])
    said = transactions(members, "find-hanging", f"{topic}:0", "--broker-id", 1)
    assert (said.returncode, said.stdout) == (1, "")
    assert f"{topic}-0" in said.stderr
