"""Kafka's tools for consumer groups see of Klamm what they see of Apache Kafka."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from klamm.tests.groups.consumers import ConsumerGroup
from klamm.tests.groups.tool_tale import BROKERS, FILE, SETTINGS, tell
from klamm.tests.harness.members import Members
from klamm.tests.harness.tree import Tree
from klamm.tests.reference.tools import Tools

pytestmark = [pytest.mark.slow, pytest.mark.reference]


@pytest.fixture
def members(zookeeper: str, chroot: str, tmp_path: Path, kafka_jars: Path) -> Iterator[Members]:
    made = Members(kafka_jars, Tree(zookeeper, chroot), tmp_path, lambda _: SETTINGS)
    yield made
    made.close()
    made.tree.close()


@pytest.mark.parametrize("kind", ["klamm", pytest.param("kafka", marks=pytest.mark.retold)])
def test_kafka_consumer_groups_prints_what_it_printed_of_apache_kafka(members: Members, kind: str) -> None:
    (members.klamm if kind == "klamm" else members.kafka)(*BROKERS)
    assert tell(members) == FILE.read_text(encoding="utf-8").splitlines()


def test_kafka_verifiable_consumer_reads_and_commits_all_records(members: Members) -> None:
    members.klamm(*BROKERS)
    tools = Tools(members.jars, members.folder, members.bootstrap())
    with ConsumerGroup(members, "verified", 3, "verifier") as group:
        group.write(90)
        arguments = ("--topic", group.topic, "--group-id", group.group, "--max-messages", 90, "--reset-policy", "earliest")
        done = tools.run("kafka-verifiable-consumer", *arguments)
        assert (done.returncode, done.stderr) == (0, ""), done
        said = [json.loads(line) for line in done.stdout.splitlines()]
        names = [each["name"] for each in said]
        assert (names[0], names[-1]) == ("startup_complete", "shutdown_complete")
        (assigned,) = [each["partitions"] for each in said if each["name"] == "partitions_assigned"]
        assert sorted(each["partition"] for each in assigned) == [0, 1, 2]
        assert sum(each["count"] for each in said if each["name"] == "records_consumed") == 90
        assert all(each["success"] for each in said if each["name"] == "offsets_committed")
        assert set(group.all_is_committed().values()) == {30}
        group.becomes("Empty", 0)
