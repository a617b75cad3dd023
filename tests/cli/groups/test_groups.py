"""`klamm groups` on clusters of both kinds: what it prints, what it changes, its exit codes, and Kafka's own tool beside it."""

from __future__ import annotations

import json
import re
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kafka import KafkaConsumer, KafkaProducer

from klamm.admin import AdminClient, ConfigResource, ResourceType
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.tests.cli.members import ToolMembers
from klamm.tests.cli.running import call
from klamm.tests.harness.kafka import request, wait_for
from klamm.tests.harness.names import unique_name
from klamm.tests.reference.jars import jars
from klamm.tests.reference.tools import Tools

MEMBER_ID = re.compile(r"[\w.-]+-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@pytest.fixture
def topic(members: ToolMembers) -> str:
    """Three partitions; 5 records in partition 0 and 3 in partition 1, with the timestamps 1000, 2000 and so on."""
    name = members.topic([0], [1], [2])
    with AdminClient(members.bootstrap) as admin:  # records of 1970 would be deleted
        admin.incremental_alter_configs({ConfigResource(ResourceType.TOPIC, name): {"retention.ms": "-1"}}).all()
    producer = KafkaProducer(bootstrap_servers=members.bootstrap, acks="all")
    for partition, count in ((0, 5), (1, 3)):
        for number in range(count):
            producer.send(name, b"record", partition=partition, timestamp_ms=1000 * (number + 1))
    producer.flush()
    producer.close()
    return name


@pytest.fixture
def group(members: ToolMembers, topic: str) -> str:
    """A group without members that has offsets of partitions 0 and 1."""
    name = unique_name("g")
    with AdminClient(members.bootstrap) as admin:
        admin.alter_group_offsets(name, {(topic, 0): 2, (topic, 1): 3}).all()
    return name


def groups(members: ToolMembers, *arguments: object) -> subprocess.CompletedProcess[str]:
    return call("groups", *arguments, "--bootstrap-server", members.bootstrap)


def table(members: ToolMembers, *arguments: object) -> list[list[str]]:
    """The cells of a table without its head; the command must succeed without a warning. Ids of members are `ID`."""
    done = groups(members, *arguments)
    assert (done.returncode, done.stderr) == (0, ""), done
    return [re.split(r" {2,}", MEMBER_ID.sub("ID", line)) for line in done.stdout.splitlines()[1:]]


def committed(members: ToolMembers, group: str) -> dict[int, int]:
    with AdminClient(members.bootstrap) as admin:
        offsets = admin.list_group_offsets([group])[group].all()
    return {partition.partition: offset.offset for partition, offset in offsets.items() if offset is not None}


@contextmanager
def joined(members: ToolMembers, topic: str, group: str) -> Iterator[None]:
    """A static member of the group, which has all partitions."""
    reader = KafkaConsumer(
        topic, bootstrap_servers=members.bootstrap, group_id=group, group_instance_id="pod-1", client_id="reader", enable_auto_commit=False
    )

    def has_joined() -> bool:
        reader.partitions_for_topic(topic)  # the leader of the group assigns only what its metadata has
        reader.poll(100)
        return bool(reader.assignment())

    try:
        wait_for(has_joined, "the consumer has partitions")
        wait_for(lambda: table(members, "describe", group)[0][4] == "Stable", "the group is stable")
        yield
    finally:
        reader.close(autocommit=False)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("describe",), "describe: exactly one of GROUP and --all-groups is needed"),
        (("offsets", "g", "--all-groups"), "offsets: exactly one of GROUP and --all-groups is needed"),
        (("members",), "members: exactly one of GROUP and --all-groups is needed"),
        (("delete",), "delete: Missing argument 'GROUP…'."),
        (("delete-offsets", "g"), "delete-offsets: Missing option '--topic'."),
        (("delete-offsets", "g", "--topic", "a:b"), "delete-offsets: Invalid value for '--topic': 'a:b' is not NAME or NAME:0,1"),
        (("remove-members", "g"), "remove-members: either --all-members, or --instance-id and --member-id, is needed"),
        (
            ("remove-members", "g", "--all-members", "--member-id", "m"),
            "remove-members: either --all-members, or --instance-id and --member-id, is needed",
        ),
        (("remove-members", "g", "--member-id", ""), "remove-members: an id is empty"),
        (("reset-offsets", "g", "--to-earliest"), "reset-offsets: exactly one of --topic and --all-topics is needed"),
        (
            ("reset-offsets", "g", "--all-topics", "--topic", "a", "--to-latest"),
            "reset-offsets: exactly one of --topic and --all-topics is needed",
        ),
        (
            ("reset-offsets", "g", "--all-topics", "--to-latest", "--to-offset", 0),
            "reset-offsets: exactly one of these is needed: --to-earliest, --to-latest, --to-current, --to-offset, --shift-by, "
            "--to-datetime, --by-duration",
        ),
        (
            ("reset-offsets", "g", "--all-topics", "--by-duration", "1D"),
            "reset-offsets: --by-duration: '1D' is not a duration like P7D or PT1H30M",
        ),
    ],
)
def test_options_that_do_not_fit_are_one_line_and_nothing_is_connected(arguments: tuple[object, ...], line: str) -> None:
    said = call("groups", *arguments, "--bootstrap-server", "127.0.0.1:1")
    assert (said.returncode, said.stdout, said.stderr) == (2, "", f"klamm groups {line}\n")


def test_a_group_with_a_member_is_shown(members: ToolMembers, topic: str, group: str) -> None:
    with joined(members, topic, group):
        ((name, address, broker, strategy, state, count),) = table(members, "describe", group)
        assert (name, address.startswith("127.0.0.1:"), strategy, state, count) == (group, True, "range", "Stable", "1")
        assert table(members, "list", "--state", "stable") == [[group, "Stable", "classic", "consumer", broker]]
        assert table(members, "members", group) == [[group, "ID", "pod-1", "/127.0.0.1", "reader", "3", f"{topic}(0,1,2)"]]
        assert table(members, "offsets", group) == [
            [group, topic, "0", "2", "5", "3", "ID", "/127.0.0.1", "reader"],
            [group, topic, "1", "3", "3", "0", "ID", "/127.0.0.1", "reader"],
            [group, topic, "2", "-", "0", "-", "ID", "/127.0.0.1", "reader"],
        ]
        refused = [
            (("delete", group), f"Group '{group}' could not be deleted due to: NON_EMPTY_GROUP"),
            (
                ("reset-offsets", group, "--all-topics", "--to-latest", "--execute"),
                f"Assignments can only be reset if the group '{group}' is inactive, but the current state is Stable.",
            ),
            (("delete-offsets", group, "--topic", f"{topic}:0"), "1 offset could not be deleted"),
            (
                ("remove-members", group, "--instance-id", "pod-2", "--instance-id", "pod-3"),
                "Member pod-2: UNKNOWN_MEMBER_ID; Member pod-3: UNKNOWN_MEMBER_ID",
            ),
        ]
        for arguments, reason in refused:
            said = groups(members, *arguments)
            assert (said.returncode, said.stderr) == (1, f"klamm: {reason}\n")
        gone = groups(members, "remove-members", group, "--instance-id", "pod-1", "--reason", "a test")
        assert (gone.returncode, gone.stdout) == (0, f"Removed member pod-1 from group '{group}'.\n")
        assert table(members, "describe", group)[0][3:] == ["-", "Empty", "0"]
        assert groups(members, "remove-members", group, "--all-members").stdout == ""
    assert committed(members, group) == {0: 2, 1: 3}


def test_offsets_are_reset_only_with_execute(members: ToolMembers, topic: str, group: str) -> None:
    reset = ("reset-offsets", group)
    assert table(members, *reset, "--all-topics", "--to-earliest") == [[group, topic, "0", "0"], [group, topic, "1", "0"]]
    assert committed(members, group) == {0: 2, 1: 3}
    steps: list[tuple[tuple[object, ...], dict[int, int]]] = [
        (("--all-topics", "--to-latest"), {0: 5, 1: 3}),
        (("--topic", f"{topic}:0", "--shift-by", -2), {0: 3, 1: 3}),
        (("--topic", topic, "--to-datetime", "1970-01-01T00:00:02.500"), {0: 2, 1: 2, 2: 0}),
        (("--topic", topic, "--to-offset", 4), {0: 4, 1: 3, 2: 0}),
        (("--all-topics", "--by-duration", "P1D"), {0: 5, 1: 3, 2: 0}),
        (("--topic", f"{topic}:1,2", "--to-earliest"), {0: 5, 1: 0, 2: 0}),
        (("--all-topics", "--to-current"), {0: 5, 1: 0, 2: 0}),
    ]
    for arguments, offsets in steps:
        table(members, *reset, *arguments, "--execute")
        assert committed(members, group) == offsets
    shown = groups(members, *reset, "--all-topics", "--to-latest", "--json")
    assert [row["new_offset"] for row in json.loads(shown.stdout)["offsets"]] == [5, 3, 0]
    assert committed(members, group) == {0: 5, 1: 0, 2: 0}, "also with --json"
    other = unique_name("g")
    shown = groups(members, "reset-offsets", other, "--topic", f"{topic}:0", "--to-offset", 1, "--execute", "--json")
    assert json.loads(shown.stdout) == {"offsets": [{"group": other, "topic": topic, "partition": 0, "new_offset": 1}]}
    assert committed(members, other) == {0: 1}
    said = groups(members, "reset-offsets", other, "--topic", f"{topic}:1", "--shift-by", 1)
    line = f"klamm: Cannot shift offset for partition {topic}-1 since there is no current committed offset\n"
    assert (said.returncode, said.stderr) == (1, line)
    said = groups(members, "reset-offsets", other, "--topic", "no-such-topic", "--to-latest")
    assert (said.returncode, said.stderr) == (1, "klamm: no-such-topic: UNKNOWN_TOPIC_OR_PARTITION\n")
    said = groups(members, "reset-offsets", other, "--topic", f"{topic}:0,77", "--to-latest")
    assert (said.returncode, said.stderr) == (1, f"klamm: {topic}-77: UNKNOWN_TOPIC_OR_PARTITION\n")


def test_offsets_of_a_group_that_rebalances_are_not_reset(members: ToolMembers, topic: str, group: str) -> None:
    """A member waits until another one joins again: the group is in PreparingRebalance."""
    found = request(members.brokers[0].port, messages.FindCoordinatorRequest(key_type=0, coordinator_keys=[group]), 4).coordinators[0]
    protocol = messages.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"\0\0\0\0\0\0")
    join = messages.JoinGroupRequest(
        group_id=group, session_timeout_ms=30_000, rebalance_timeout_ms=60_000, protocol_type="consumer", protocols=[protocol]
    )
    assert request(found.port, join, 3).error_code == 0
    with socket.create_connection(("127.0.0.1", found.port)) as second:
        second.sendall(messages.encode_request(ApiKey.JOIN_GROUP, 3, 1, "member", messages.encode(join, 3)))
        wait_for(lambda: table(members, "describe", group)[0][4] == "PreparingRebalance", "the group waits for its member")
        said = groups(members, "reset-offsets", group, "--all-topics", "--to-latest")
    reason = f"Assignments can only be reset if the group '{group}' is inactive, but the current state is PreparingRebalance."
    assert (said.returncode, said.stderr) == (1, f"klamm: {reason}\n")
    assert committed(members, group) == {0: 2, 1: 3}


def test_offsets_and_groups_are_deleted(members: ToolMembers, topic: str, group: str) -> None:
    assert table(members, "delete-offsets", group, "--topic", f"{topic}:0,2") == [[topic, "0", "Successful"], [topic, "2", "Successful"]]
    assert committed(members, group) == {1: 3}
    said = groups(members, "delete-offsets", group, "--topic", f"{topic}:1,9")
    assert (said.returncode, said.stderr) == (1, "klamm: 1 offset could not be deleted\n")
    assert [line.split()[-1] for line in said.stdout.splitlines()] == ["STATUS", "Successful", "UNKNOWN_TOPIC_OR_PARTITION"]
    assert committed(members, group) == {}
    with AdminClient(members.bootstrap) as admin:
        admin.alter_group_offsets(group, {(topic, 1): 3}).all()
    said = groups(members, "delete", group, "no-such-group")
    assert (said.returncode, said.stdout, said.stderr) == (
        1,
        f"Deletion of requested consumer groups ('{group}') was successful.\n",
        "klamm: Group 'no-such-group' could not be deleted due to: GROUP_ID_NOT_FOUND\n",
    )
    said = groups(members, "delete-offsets", group, "--topic", f"{topic}:0")
    assert (said.returncode, said.stdout, said.stderr) == (1, "", "klamm: GROUP_ID_NOT_FOUND\n")


def test_a_group_that_does_not_exist_fails_after_the_others_are_shown(members: ToolMembers, topic: str, group: str) -> None:
    reason = "Consumer group 'no-such-group' does not exist."
    for command in ("describe", "offsets"):
        said = groups(members, command, "no-such-group", group)
        assert (said.returncode, said.stderr) == (1, f"klamm: {reason}\n")
        assert said.stdout.splitlines()[1].startswith(group)
    shown, failed = groups(members, "offsets", group, "no-such-group", "--json").stdout.splitlines()
    first = json.loads(shown)["offsets"][0]
    assert first == {
        "group": group, "topic": topic, "partition": 0, "current_offset": 2, "log_end_offset": 5, "lag": 3, "consumer_id": None,
        "host": None, "client_id": None,
    }
    assert json.loads(failed) == {"error": reason}
    everything = json.loads(groups(members, "describe", "--all-groups", "--json").stdout)["groups"]
    assert [each["state"] for each in everything if each["group"] == group] == ["Empty"]


@pytest.mark.slow
@pytest.mark.reference
def test_its_tables_have_the_cells_of_kafkas_own_tool(members: ToolMembers, topic: str, group: str, tmp_path: Path) -> None:
    kafkas = Tools(jars(), tmp_path, members.bootstrap)

    def printed(*arguments: object) -> str:
        done = kafkas.run("kafka-consumer-groups", *arguments)
        assert done.returncode == 0, done
        return MEMBER_ID.sub("ID", done.stdout)

    def rows(*arguments: object) -> list[list[str]]:
        return sorted(words for line in printed(*arguments).splitlines() if (words := line.split())[:1] == [group])

    same_columns = ("--describe", "--group", group)
    assert table(members, "offsets", group) == rows(*same_columns)
    with joined(members, topic, group):
        assert table(members, "offsets", group) == rows(*same_columns)
        (ours,), (theirs,) = table(members, "members", group), rows(*same_columns, "--members", "--verbose")
        assert ours == [*theirs[:-1], topic + theirs[-1]]  # Kafka's tool prints partitions without the names of their topics
        ((name, address, broker, *others),) = table(members, "describe", group)
        assert [[name, address, f"({broker})", *others]] == rows(*same_columns, "--state")
        groups(members, "remove-members", group, "--all-members")
    targets = [
        ("--to-earliest",), ("--shift-by", "-1"), ("--to-offset", "9"), ("--to-datetime", "1970-01-01T00:00:02.500"),
        ("--by-duration", "PT1M"),
    ]
    for target in targets:
        shown = table(members, "reset-offsets", group, "--topic", topic + ":0,1", *target)
        words = printed("--reset-offsets", "--group", group, "--topic", topic + ":0,1", *target, "--dry-run").split()
        cells = words[words.index("NEW-OFFSET") + 1 :]  # Kafka's tool prints these rows in one line
        assert (target, [cell for row in shown for cell in row]) == (target, cells)
