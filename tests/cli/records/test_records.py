"""`klamm produce` and `klamm consume` on clusters of both kinds."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Sequence

import pytest
from kafka import KafkaProducer

from klamm.admin import AdminClient
from klamm.cli.records.record_format import BadFormat, format_of
from klamm.tests.cli.members import ToolMembers
from klamm.tests.cli.running import KLAMM, call, call_with
from klamm.tests.harness.names import unique_name
from klamm.tests.harness.waits import wait_for

WITHIN_S = 60


def produce(members: ToolMembers, topic: str, lines: bytes, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    return call_with(lines, "produce", topic, *arguments, "--bootstrap-server", members.bootstrap)


def written(members: ToolMembers, topic: str, lines: bytes, *arguments: str) -> None:
    said = produce(members, topic, lines, *arguments)
    assert (said.returncode, said.stdout, said.stderr) == (0, b"", b"")


def consume_in_a_process(members: ToolMembers, topic: str, *arguments: str) -> bytes:
    command = [KLAMM, "consume", topic, *arguments, "--bootstrap-server", members.bootstrap]
    said = subprocess.run(command, capture_output=True, timeout=WITHIN_S, check=False)
    assert (said.returncode, said.stderr) == (0, b""), said
    return said.stdout


def consume(members: ToolMembers, topic: str, *arguments: str) -> bytes:
    said = call_with(b"", "consume", topic, *arguments, "--bootstrap-server", members.bootstrap)
    assert (said.returncode, said.stderr) == (0, b""), said
    return said.stdout


def lines_of(members: ToolMembers, topic: str, *arguments: str) -> list[bytes]:
    return consume(members, topic, "-e", *arguments).splitlines()


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_lines_become_records_and_records_lines(members: ToolMembers, compression: str) -> None:
    topic = members.topic([0])
    written(members, topic, b"one\n\xff\x00two\n\nlast", "-z", compression)
    assert consume(members, topic, "-e") == b"one\n\xff\x00two\n\nlast\n"


def test_the_record_that_a_compacted_topic_refuses_is_named_with_the_reason(members: ToolMembers) -> None:
    topic = members.topic([0])
    configs = ("configs", "--bootstrap-server", members.bootstrap, "--entity-type", "topics", "--entity-name", topic)
    assert call(*configs, "--alter", "--add-config", "cleanup.policy=compact").returncode == 0
    wait_for(lambda: "compact" in call(*configs, "--describe").stdout, "the leader knows it")
    said = produce(members, topic, b"k1:a\nk2:b\nno key\nk3:c\n", "-K", ":", "-p", "0")
    reason = f"Compacted topic cannot accept message without key in topic partition {topic}-0."
    assert said.returncode == 1
    assert said.stderr.decode().rstrip(".\n") == f"klamm: {topic}: INVALID_RECORD: record 3: {reason}".rstrip(".")


def test_keys_headers_partitions_and_null_values(members: ToolMembers) -> None:
    topic = members.topic([0], [1])
    written(members, topic, b"k1::v1\nno delimiter\nk2::\n", "-K", "::", "-p", "1", "-H", "a=1", "-H", "b=x=y", "-Z")
    layout = "%t %p %o [%k] %K [%s] %S %h%%\\x21\\n"
    assert consume(members, topic, "-e", "-f", layout).decode().splitlines() == [
        f"{topic} 1 0 [k1] 2 [v1] 2 a=1,b=x=y%!",
        f"{topic} 1 1 [] -1 [no delimiter] 12 a=1,b=x=y%!",
        f"{topic} 1 2 [k2] 2 [] -1 a=1,b=x=y%!",
    ]
    assert lines_of(members, topic, "-p", "0") == []
    said = produce(members, topic, b"v\n", "-k", "fixed", "-p", "0", "--json")
    assert json.loads(said.stdout) == {"topic": topic, "records": 1}
    (row,) = map(json.loads, lines_of(members, topic, "-p", "0", "--json"))
    assert row.pop("timestamp") > 0
    assert row == {"topic": topic, "partition": 0, "offset": 0, "headers": [], "key": "fixed", "value": "v"}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), ["0", "1", "2", "3", "4"]), (("-o", "beginning"), ["0", "1", "2", "3", "4"]), (("-o", "end"), []), (("-o", "3"), ["3", "4"]),
        (("-o", "99"), []), (("-o", "-2"), ["3", "4"]), (("-o", "-99"), ["0", "1", "2", "3", "4"]), (("-c", "2"), ["0", "1"]),
        (("-o", "1", "-c", "1"), ["1"]),
    ],
    ids=str,
)
def test_where_it_begins_and_how_much_it_prints(members: ToolMembers, five: str, arguments: Sequence[str], expected: list[str]) -> None:
    assert [line.decode() for line in lines_of(members, five, *arguments)] == expected


@pytest.fixture(scope="module")
def five(running_members: ToolMembers) -> str:
    """A topic with five records in one partition."""
    topic: str = running_members.topic([0])
    written(running_members, topic, b"0\n1\n2\n3\n4\n")
    return topic


def test_a_group_goes_on_where_it_ended(members: ToolMembers, five: str) -> None:
    group = unique_name("g")
    assert consume_in_a_process(members, five, "-G", group, "-c", "2") == b"0\n1\n"
    with AdminClient(members.bootstrap) as admin:
        assert admin.list_group_offsets([group])[group].all()[five, 0].offset == 2  # type: ignore[index, union-attr]
    assert consume_in_a_process(members, five, "-G", group, "-e") == b"2\n3\n4\n"
    assert consume_in_a_process(members, five, "-G", group, "-e") == b""


def test_the_end_of_a_partition_that_ends_with_a_marker_is_reached(members: ToolMembers) -> None:
    topic = members.topic([0])
    producer = KafkaProducer(bootstrap_servers=members.bootstrap, transactional_id=unique_name("x"))
    producer.init_transactions()
    for record, end in ((b"kept", producer.commit_transaction), (b"aborted", producer.abort_transaction)):
        producer.begin_transaction()
        producer.send(topic, record).get(30)
        end()
    producer.close()
    assert lines_of(members, topic) == [b"kept", b"aborted"]
    assert lines_of(members, topic, "--read-committed") == [b"kept"]


def test_without_an_end_it_prints_what_comes_until_a_signal(members: ToolMembers) -> None:
    topic = members.topic([0])
    command = [KLAMM, "consume", topic, "--bootstrap-server", members.bootstrap]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            for record in (b"one", b"two"):
                written(members, topic, record)
                assert process.stdout.readline() == record + b"\n"
            process.send_signal(signal.SIGINT)
            assert process.wait(WITHIN_S) == 130
        finally:
            process.kill()


def test_a_topic_or_partition_that_does_not_exist_is_one_line_and_is_not_created(members: ToolMembers, five: str) -> None:
    absent = unique_name("t")
    said = produce(members, absent, b"x\n")
    assert (said.returncode, said.stdout) == (1, b"")
    assert said.stderr.startswith(f"klamm: {absent}: UNKNOWN_TOPIC_OR_PARTITION".encode())
    said = produce(members, five, b"x\n", "-p", "7")
    assert (said.returncode, said.stderr) == (1, f"klamm: {five} has partitions 0 to 0, not 7\n".encode())
    again = call("consume", absent, "-e", "--bootstrap-server", members.bootstrap)
    assert (again.returncode, again.stderr.count("\n")) == (1, 1)
    with AdminClient(members.bootstrap) as admin:
        assert absent in admin.describe_topics([absent]).errors


def test_a_record_that_is_too_large_is_one_line(members: ToolMembers) -> None:
    topic = members.topic([0])
    said = produce(members, topic, b"small\n" + b"x" * 1_200_000 + b"\n")
    assert (said.returncode, said.stdout) == (1, b"")
    assert said.stderr.startswith(f"klamm: {topic}: MESSAGE_TOO_LARGE".encode()), said.stderr
    assert said.stderr.count(b"\n") == 1
    assert lines_of(members, topic) == [b"small"]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("consume", "t", "-o", "later"), "'later' is not beginning, end, an offset, or -N for N records before the end"),
        (("consume", "t", "-f", "%x"), "%x is not one of %t %p %o"),
        (("consume", "t", "-f", "\\q"), "\\q is not one of"),
        (("consume", "t", "-G", "g", "-p", "0"), "-p and -G cannot be used together"),
        (("consume", "t", "-G", "g", "-o", "-5"), "with -G, -o can only be beginning or end"),
        (("produce", "t", "-K", ""), "the key delimiter must not be empty"),
        (("produce", "t", "-z", "brotli"), "'brotli' is not one of"),
        (("produce", "t", "-H", "x"), "'x' is not KEY=VALUE"),
    ],
    ids=str,
)
def test_a_wrong_command_line_is_one_line_and_exit_code_2(words: tuple[str, ...], reason: str) -> None:
    said = call(*words, "--bootstrap-server", "127.0.0.1:1")
    assert (said.returncode, said.stdout, said.stderr.count("\n")) == (2, "", 1)
    assert reason in said.stderr


@pytest.mark.parametrize("text", ["%", "\\", "%q", "\\x1", "%s\\"])
def test_a_format_that_ends_early_is_refused(text: str) -> None:
    with pytest.raises(BadFormat):
        format_of(text)
