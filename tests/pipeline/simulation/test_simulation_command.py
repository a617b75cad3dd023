"""`klamm pipeline simulate`: the sequence of its steps, its sources, and bad input, which is one line and starts no Spark."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from klamm.cli.pipeline.simulate import command
from klamm.cli.shell.failures import one_line
from klamm.controller.values import Assignment, LeaderAndIsr
from klamm.pipeline.simulation.metadata_log import read_metadata_log
from klamm.pipeline.simulation.outcome import outcome
from klamm.pipeline.simulation.patterns import Scenario
from klamm.pipeline.simulation.snapshot import BadSource
from klamm.pipeline.simulation.steps import Blacklist, Brokers, Elect, Kill
from klamm.protocol import messages
from klamm.protocol.nouns import TopicPartition
from klamm.protocol.records.metadata_records import MetadataRecord, encode_records

GENERATED = ("--partitions", "100", "--brokers", "4", "--replication-factor", "2")


def refusal(*arguments: str) -> str:
    """The one line with which the command ends."""
    result = CliRunner().invoke(command, arguments, standalone_mode=False)
    problem = result.exception
    assert problem is not None, result.output
    if isinstance(problem, click.ClickException):
        return problem.format_message()
    line = one_line(problem)
    assert line is not None, repr(problem)
    return line


def test_steps_keep_the_sequence_of_the_command_line() -> None:
    text = "--kill 1,2 --elect-preferred --kill 3-4 --blacklist= --elect-preferred --unclean on"
    arguments = [*GENERATED, *text.split()]
    with command.make_context("simulate", arguments) as ctx:
        assert ctx.meta["steps"] == [
            ("kill", (1, 2)), ("elect_preferred", None), ("kill", (3, 4)), ("blacklist", ()), ("elect_preferred", None), ("unclean", "on"),
        ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--kill", "9"), "step 1 (kill 9): the cluster has no broker 9; it has 1,2,3,4"),
        (("--kill", "1", "--kill", "1"), "step 2 (kill 1): broker 1 does not run at that time"),
        (("--kill", "1,1"), "step 1 (kill 1,1) names a broker twice"),
        (("--return", "2"), "step 1 (return 2): broker 2 runs already at that time"),
        (("--shutdown", "1", "--shutdown", "2,1"), "step 2 (shutdown 2,1): broker 1 does not run at that time"),
        (("--kill", "one"), "'one' is no broker id and no range of them"),
        (("--unclean", "maybe"), "'maybe' is not one of 'on', 'off'"),
        (("--replication-factor", "5"), "--replication-factor 5 is more than --brokers 4"),
        (("--racks", "5"), "--racks 5 are more than --brokers 4"),
        (("--zookeeper", "localhost:1"), "name one source"),
        (("--rows",), "--rows needs LAKE"),
        (("--throttle", "much"), "'much' is not a number such as 500, 10K or 1.5M"),
    ],
)
def test_what_cannot_be_is_said_before_spark_starts(arguments: tuple[str, ...], said: str) -> None:
    assert said in refusal(*GENERATED, *arguments)


@pytest.mark.parametrize("size", ["foo", "0g", "2gb", "1.5g", "2048", "", "-1g"])
def test_a_heap_whose_size_java_does_not_know_is_named(size: str) -> None:
    assert f"{size!r} is not a size such as 512m or 2g" in refusal(*GENERATED, "--memory", size)


def test_a_cluster_has_to_be_named() -> None:
    assert "name the cluster" in refusal("--kill", "1")


def test_a_plan_file_that_is_wrong_is_named(tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    assert refusal(*GENERATED, "--reassign", str(plan)) == f"{plan}: No such file or directory"
    plan.write_text("{")
    assert refusal(*GENERATED, "--reassign", str(plan)).startswith(f"{plan} is not JSON")
    plan.write_text('{"version":1,"partitions":[{"topic":"t","partition":0}]}')
    assert str(plan) in refusal(*GENERATED, "--reassign", str(plan))


def test_a_metadata_log_that_is_none_is_named(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.log"
    assert refusal("--metadata-log", str(path)) == f"{path}: No such file or directory"
    path.write_bytes(b"not a log at all, whatever it says in its name and however long it is")
    assert refusal("--metadata-log", str(path)).startswith(f"{path}: ")
    path.write_text('{"offset":0}\n')
    assert refusal("--metadata-log", str(path)).startswith(f"{path}: line 1 is no record of a metadata log")
    path.write_text("")
    assert "the log has no topic" in refusal("--metadata-log", str(path))


ID = bytes(range(16))


def records() -> list[MetadataRecord]:
    partition = messages.PartitionRecord(
        partition_id=0, topic_id=ID, replicas=[1, 2], isr=[1, 2], removing_replicas=[], adding_replicas=[], leader=1,
        leader_recovery_state=0, leader_epoch=4, partition_epoch=6, directories=[],
    )
    change = messages.PartitionChangeRecord(partition_id=0, topic_id=ID, isr=[2], leader=2)
    broker = messages.RegisterBrokerRecord(broker_id=2, incarnation_id=bytes(16), broker_epoch=7, rack="a", fenced=False)
    return [
        messages.TopicRecord(name="t", topic_id=ID), partition, broker, change,
        messages.ConfigRecord(resource_type=4, resource_name="", name="preferred_leader_blacklist", value="1,2"),
        messages.ConfigRecord(resource_type=2, resource_name="t", name="min.insync.replicas", value="2"),
    ]


def test_a_metadata_log_gives_the_cluster_at_its_end(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(encode_records(records(), 0, 3, 1))
    snapshot = read_metadata_log(path)
    assert snapshot.partitions == {TopicPartition("t", 0): (Assignment((1, 2)), LeaderAndIsr(2, 5, (2,), 0, 7))}
    assert (set(snapshot.registered), snapshot.racks, set(snapshot.listed)) == ({2}, {1: None, 2: "a"}, {1, 2})
    assert snapshot.topic_configs == {"t": {"min.insync.replicas": "2"}}


def test_lines_of_a_dump_are_read_like_the_segment(tmp_path: Path) -> None:
    from klamm.cli.metadata_log.sinks import rows

    segment, dumped = tmp_path / "00000000000000000000.log", tmp_path / "dump.json"
    batches = encode_records(records(), 0, 3, 1)
    segment.write_bytes(batches)
    dumped.write_text("".join(json.dumps(row) + "\n" for row in rows(batches)))
    assert read_metadata_log(dumped) == read_metadata_log(segment)
    dumped.write_text(dumped.read_text().replace('"leader": 1', '"chief": 1'))
    with pytest.raises(BadSource, match="a PARTITION_RECORD cannot be applied"):
        read_metadata_log(dumped)


def test_hours_are_those_of_the_busiest_broker_and_direction() -> None:
    scenario = Scenario(Brokers(frozenset({1, 2})), (Kill((2,)), Blacklist((1,)), Elect()))
    sums = {(0, "partitions", -1): (2, 0), (0, "leads", 1): (2, 0), (1, "copied_in", 1): (1, 3600_000), (1, "copied_out", 2): (1, 7200_000)}
    found = outcome(scenario, sums, {1: "a", 2: "b"}, 1000, 1)
    assert [row.hours for row in found.movement] == [1.0, 2.0]
    assert [row.hours for row in found.summary] == [0.0, 2.0, 0.0, 0.0]
    assert [(row.runs, row.listed) for row in found.leaders if row.step == 3] == [(True, True), (False, False)]
