"""`klamm metadata-log dump`, with a scripted controller: what is printed, what is followed, how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from klamm.admin import Closed, MetadataLogPart, TimedOut
from klamm.cli.metadata_log import reader
from klamm.cli.metadata_log.sinks import JsonLines
from klamm.cli.tools import client as tool_client
from klamm.cli.tools.failures import ToolFailed
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.tests.admin.scripted import CLOSE, ScriptedCluster, ScriptedMember, scripted
from klamm.tests.cli.conftest import Start
from klamm.tests.cli.metadata_log.scripted_log import ScriptedLog, fence, golden_rows, value_of
from klamm.tests.cli.running import KLAMM, Running, call
from klamm.tests.harness.waits import wait_for

FIRST = "00000000000000000000.log"


@pytest.fixture
def cluster() -> Iterator[ScriptedCluster]:
    with scripted() as one:
        yield one


@pytest.fixture
def controller(cluster: ScriptedCluster) -> ScriptedMember:
    (broker,) = cluster.add(1)
    return broker


@pytest.fixture
def log(controller: ScriptedMember) -> Iterator[ScriptedLog]:
    one = ScriptedLog(controller)
    yield one
    one.close()


def dump(broker: ScriptedMember, *arguments: object) -> subprocess.CompletedProcess[str]:
    return call("metadata-log", "dump", "--bootstrap-server", broker.address, *arguments)


def follow(start: Start, broker: ScriptedMember, *arguments: object) -> Running:
    return start("metadata-log", "dump", "--bootstrap-server", broker.address, "--follow", *arguments)


def fenced(said: str) -> list[tuple[int, int, int]]:
    """Offset, controller epoch and broker of each line of JSON."""
    rows = map(json.loads, said.splitlines())
    return [(row["offset"], row["controllerEpoch"], row["data"]["id"]) for row in rows]


def one_line(said: subprocess.CompletedProcess[str], code: int = 1) -> str:
    assert (said.returncode, said.stdout) == (code, "")
    assert said.stderr.count("\n") == 1
    return said.stderr


def test_each_record_is_a_line_of_json_with_the_fields_that_kafka_prints(controller: ScriptedMember, log: ScriptedLog) -> None:
    rows = golden_rows()
    assert len({row["name"] for row in rows}) == 10
    for row in rows:
        log.append(value_of(row))
    said = dump(controller)
    assert (said.returncode, said.stderr) == (0, "")
    lines = [json.loads(line) for line in said.stdout.splitlines()]
    assert [(line["offset"], line["controllerEpoch"], line["version"], line["data"]) for line in lines] == [
        (offset, 5, row["version"], row["json"]) for offset, row in enumerate(rows)
    ]
    types = {row["name"]: line["type"] for row, line in zip(rows, lines, strict=True)}
    assert types["PartitionChangeRecord"] == "PARTITION_CHANGE_RECORD" and types["TopicRecord"] == "TOPIC_RECORD"
    assert types["BrokerRegistrationChangeRecord"] == "BROKER_REGISTRATION_CHANGE_RECORD"
    assert not any("timestamp" in line for line in lines)


def test_a_record_with_a_timestamp_shows_it(controller: ScriptedMember, log: ScriptedLog) -> None:
    log.append(fence(1), timestamp=1_700_000_000_123)
    assert json.loads(dump(controller).stdout)["timestamp"] == 1_700_000_000_123


def test_the_log_is_fetched_as_an_observer_until_its_end(controller: ScriptedMember, log: ScriptedLog) -> None:
    log.batches_per_fetch = 1
    for broker_id in range(4):
        log.append(fence(broker_id), fence(broker_id + 10))
    assert [offset for offset, _, _ in fenced(dump(controller).stdout)] == list(range(8))
    assert [(one.broker_id, one.broker_epoch, one.want_shut_down) for one in log.fetches] == [(-1, -1, False)] * 5
    assert [(one.controller_epoch, one.fetch_offset) for one in log.fetches[1:]] == [(5, 0), (5, 2), (5, 4), (5, 6)]


def test_without_follow_records_that_come_while_it_reads_are_left_out(controller: ScriptedMember, log: ScriptedLog, tmp_path: Path) -> None:
    log.append(fence(0))
    reply = log._reply

    def grow(body: Any, version: int) -> Any:
        if body.controller_epoch == 5:
            log.append(fence(9))
        return reply(body, version)

    controller.on(ApiKey.METADATA_FETCH, grow)
    assert fenced(dump(controller).stdout) == [(0, 5, 0)]
    before = b"".join(log.batches)
    assert dump(controller, "--output", tmp_path).returncode == 0
    assert (tmp_path / FIRST).read_bytes() == before


def test_from_offset_begins_inside_of_a_batch_and_outside_of_the_log_is_refused(controller: ScriptedMember, log: ScriptedLog) -> None:
    log.append(fence(0))
    log.append(fence(1), fence(2), fence(3))
    log.append(fence(4))
    assert fenced(dump(controller, "--from-offset", 2).stdout) == [(2, 5, 2), (3, 5, 3), (4, 5, 4)]
    assert dump(controller, "--from-offset", 5).stdout == ""
    log.drop(1)
    assert fenced(dump(controller).stdout)[0] == (1, 5, 1)
    assert "--from-offset 0: the log has the offsets 1 to 4" in one_line(dump(controller, "--from-offset", 0))
    assert "--from-offset 6: the log has the offsets 1 to 4" in one_line(dump(controller, "--from-offset", 6))


def test_follow_prints_each_record_as_it_comes_until_ctrl_c(start: Start, controller: ScriptedMember, log: ScriptedLog) -> None:
    log.append(fence(0))
    running = follow(start, controller)
    for broker_id in range(3):
        assert fenced(running.line()) == [(broker_id, 5, broker_id)]
        wait_for(partial(log.fetched, broker_id + 1), "it waits for the next record")
        log.append(fence(broker_id + 1))
    assert fenced(running.line()) == [(3, 5, 3)]
    running.signal(signal.SIGINT)
    assert running.ended() == 130
    assert "Traceback" not in running.stderr


def test_follow_goes_on_with_the_log_of_the_next_controller_and_says_so(start: Start, controller: ScriptedMember, log: ScriptedLog) -> None:
    log.append(fence(0), fence(1))
    running = follow(start, controller)
    assert fenced("\n".join((running.line(), running.line()))) == [(0, 5, 0), (1, 5, 1)]
    wait_for(lambda: log.fetched(2), "it waits")
    log.next_controller(fence(7))
    assert fenced(running.line()) == [(0, 6, 7)]
    running.logged("the controller has changed (epoch 5, now 6): its log begins at offset 0\n")


def test_follow_finds_the_controller_again_after_it_was_lost(
    start: Start, cluster: ScriptedCluster, controller: ScriptedMember, log: ScriptedLog
) -> None:
    (other,) = cluster.add(2)
    log.append(fence(0))
    running = start("metadata-log", "dump", "--bootstrap-server", cluster.bootstrap, "--follow")
    assert fenced(running.line()) == [(0, 5, 0)]
    second = ScriptedLog(other, controller_epoch=6)
    second.append(fence(1))
    cluster.controller_id = 2
    controller.on(ApiKey.METADATA_FETCH, CLOSE)
    controller.cut()
    assert fenced(running.line()) == [(0, 6, 1)]
    running.logged("the controller has changed (epoch 5, now 6)")
    second.close()


def test_follow_says_when_there_is_no_controller_and_goes_on_when_there_is_one(
    start: Start, controller: ScriptedMember, log: ScriptedLog, tmp_path: Path
) -> None:
    config = tmp_path / "client.properties"
    config.write_text("request.timeout.ms=300\n")
    log.append(fence(0))
    running = follow(start, controller, "--command-config", config)
    assert fenced(running.line()) == [(0, 5, 0)]
    controller.on(
        ApiKey.METADATA_FETCH, messages.MetadataFetchResponse(error_code=ErrorCode.NOT_CONTROLLER, controller_epoch=-1, records=None)
    )
    controller.cut()
    running.logged("the controller is not reachable: ")
    controller.on(ApiKey.METADATA_FETCH, log._reply)
    log.append(fence(1))
    assert fenced(running.line()) == [(1, 5, 1)]
    assert running.stderr.count("\n") == 1


async def test_a_controller_that_stays_lost_is_one_line_until_it_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a client in place of a cluster, because each attempt takes seconds."""
    monkeypatch.setattr(reader, "RETRY_S", 0)
    found, lost = MetadataLogPart(5, 0, 0, b""), TimedOut("nobody responds")
    replies: list[Any] = [found, lost, lost, lost, found, lost, lost, Closed("the end")]

    class Client:
        async def read_metadata_log(self, *_arguments: object, **_options: object) -> MetadataLogPart:
            reply = replies.pop(0)
            if isinstance(reply, MetadataLogPart):
                return reply
            raise reply

    said: list[str] = []
    with pytest.raises(ToolFailed, match="the end"):
        await reader.Reader(Client(), JsonLines(said.append), said.append).read(None, follow=True)  # type: ignore[arg-type]
    assert said == ["the controller is not reachable: nobody responds; trying again"] * 2


def test_follow_says_that_records_were_dropped_and_goes_on_at_the_start_of_the_log(
    start: Start, controller: ScriptedMember, log: ScriptedLog
) -> None:
    log.append(fence(0))
    running = follow(start, controller)
    assert fenced(running.line()) == [(0, 5, 0)]
    with log._changed:
        log.start, log.batches = 8, []
    log.append(fence(8))
    assert fenced(running.line()) == [(8, 5, 8)]
    running.logged("the controller has dropped the records from offset 1 on: its log begins again at offset 8")


def test_a_controller_that_changes_while_its_log_is_read_ends_the_command(controller: ScriptedMember, log: ScriptedLog) -> None:
    log.batches_per_fetch = 1
    log.append(fence(0))
    log.append(fence(1))
    reply = log._reply

    def change(body: Any, version: int) -> Any:
        if body.fetch_offset == 1:
            log.next_controller(fence(0))
        return reply(body, version)

    controller.on(ApiKey.METADATA_FETCH, change)
    said = dump(controller)
    assert (said.returncode, fenced(said.stdout)) == (1, [(0, 5, 0)])
    assert said.stderr == "klamm: the controller has changed (epoch 5, now 6) while its log was read\n"


def test_the_segment_file_has_the_batches_as_they_are_in_the_log(controller: ScriptedMember, log: ScriptedLog, tmp_path: Path) -> None:
    log.batches_per_fetch = 2
    for broker_id in range(5):
        log.append(fence(broker_id), fence(broker_id))
    file = tmp_path / FIRST
    said = dump(controller, "--output", file)
    assert (said.returncode, said.stderr, said.stdout) == (0, "", f"{file} has the records with offsets 0 to 9\n")
    assert file.read_bytes() == b"".join(log.batches)
    assert "the file exists and is not overwritten" in one_line(dump(controller, "--output", file))
    assert file.read_bytes() == b"".join(log.batches)


def test_a_segment_file_has_its_first_offset_as_its_name(controller: ScriptedMember, log: ScriptedLog, tmp_path: Path) -> None:
    log.append(fence(0))
    log.append(fence(1), fence(2))
    for wrong in ("dump.log", "0.log", "00000000000000000000.txt", "records.json"):
        assert f"needs the first offset as the file name, such as {FIRST}" in one_line(dump(controller, "--output", tmp_path / wrong))
    assert "there is no folder" in one_line(dump(controller, "--output", tmp_path / "none" / FIRST))
    second = "00000000000000000001.log"
    said = one_line(dump(controller, "--from-offset", 2, "--output", tmp_path / FIRST))
    assert f"the first batch has offset 1, so the file name must be {second}" in said
    assert dump(controller, "--from-offset", 2, "--output", tmp_path).returncode == 0
    assert (tmp_path / second).read_bytes() == log.batches[1]
    assert "the file exists and is not overwritten" in one_line(dump(controller, "--from-offset", 2, "--output", tmp_path))
    assert "no file was written" in one_line(dump(controller, "--from-offset", 3, "--output", tmp_path / "00000000000000000003.log"))
    assert sorted(file.name for file in tmp_path.iterdir()) == [second]


def test_a_followed_segment_file_ends_where_the_log_does(
    start: Start, controller: ScriptedMember, log: ScriptedLog, tmp_path: Path
) -> None:
    log.append(fence(0))
    running = follow(start, controller, "--output", tmp_path)
    file = tmp_path / FIRST
    wait_for(lambda: log.fetched(1), "it waits")
    log.append(fence(1))
    whole = b"".join(log.batches)
    wait_for(lambda: file.read_bytes() == whole, "each batch is in the file when it has come")
    wait_for(lambda: log.fetched(2), "it waits")
    log.next_controller(fence(7))
    assert running.ended() == 1
    assert running.stderr == (
        f"klamm: the controller has changed (epoch 5, now 6): its log begins at offset 0; {file} has the records with offsets 0 to 1\n"
    )
    assert file.read_bytes() == whole


def test_a_controller_without_the_log_is_one_line_that_names_the_config(controller: ScriptedMember) -> None:
    line = one_line(dump(controller))
    assert "registerbroker.enable" in line and "MetadataFetch (key 101)" in line and controller.address in line


def test_a_reader_without_the_permission_is_one_line(controller: ScriptedMember, log: ScriptedLog) -> None:
    controller.on(ApiKey.METADATA_FETCH, messages.MetadataFetchResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, records=None))
    assert "reading the log needs CLUSTER_ACTION on the cluster" in one_line(dump(controller))


def test_bytes_that_are_no_records_are_one_line(controller: ScriptedMember, log: ScriptedLog) -> None:
    log.append(b"\x01\x60\x00")
    assert "a record that cannot be read" in one_line(dump(controller))
    log.batches[0] = log.batches[0][:-3]
    assert "not record batches: a batch of the metadata log is cut short" in one_line(dump(controller))


def test_a_controller_that_sends_nothing_does_not_keep_it(controller: ScriptedMember, log: ScriptedLog) -> None:
    log.append(fence(0))
    log.batches_per_fetch = 0
    assert "sent no record from offset 0 on, although its log ends at 1" in one_line(dump(controller))


def test_nobody_at_the_address_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool_client, "CONNECT_MS", 300)
    assert "127.0.0.1:1" in one_line(call("metadata-log", "dump", "--bootstrap-server", "127.0.0.1:1"))


@pytest.mark.parametrize(
    ("arguments", "reason", "code"),
    [
        ((), "Missing option '--bootstrap-server'", 2),
        (("--bootstrap-server", "x:1", "--from-offset", "-1"), "--from-offset", 2),
        (("--bootstrap-server", "x:1", "--from-offset", "one"), "--from-offset", 2),
        (("--bootstrap-server", "x:70000"), "70000", 1),
        (("--bootstrap-server", "x:1", "--command-config", "/no/such"), "/no/such: No such file or directory", 1),
        (("--bootstrap-server", "x:1", "--admin.config", "/no/such"), "/no/such: No such file or directory", 1),
        (("--bootstrap-server", "x:1", "more"), "more", 2),
    ],
)
def test_bad_arguments_of_dump_are_one_line_and_nothing_is_connected(arguments: tuple[str, ...], reason: str, code: int) -> None:
    assert reason in one_line(call("metadata-log", "dump", *arguments), code)


def test_a_pipe_that_nobody_reads_any_more_is_no_failure(controller: ScriptedMember, log: ScriptedLog) -> None:
    for broker_id in range(100):
        log.append(fence(broker_id))
    reading, writing = os.pipe()
    os.close(reading)
    try:
        said = subprocess.run(
            [KLAMM, "metadata-log", "dump", "--bootstrap-server", controller.address],
            stdout=writing, stderr=subprocess.PIPE, text=True, timeout=30, check=False,
        )
    finally:
        os.close(writing)
    assert (said.returncode, said.stderr) == (141, "")
