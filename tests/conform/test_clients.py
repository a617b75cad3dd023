"""The suite for clients: how it runs a command, what its judges find, and what mature clients do."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from klamm.cli.tools.conform import command
from klamm.conform.case import Absent, Broken, Exchange, Level, Outcome, Result
from klamm.conform.clients.catalogue import SECTIONS
from klamm.conform.clients.client_lab import ClientLab, expect_numbers
from klamm.conform.clients.client_section import ClientSection
from klamm.conform.clients.judge import SentBatch, expect_sequences, refused
from klamm.conform.clients.program import Program
from klamm.conform.lab import batch
from klamm.conform.reports import request_text, response_text
from klamm.conform.runner import chosen, run_together
from klamm.protocol.records.batch import read_header
from klamm.tests.conform import adapters
from klamm.tests.harness.names import unique_name
from klamm.tests.harness.waits import wait_for

PYTHON = adapters.CLIENTS["librdkafka"](Path())
QUICK = ("produce/3.1", "groups/5.17", "transactions/6.20", "admin/7.1")
"""Cases for the tests that are run each time."""


def outcomes_of(
    program: str, names: tuple[str, ...], zookeeper: str, sections: tuple[ClientSection, ...] = SECTIONS, limit_s: float = 30,
    jobs: int = 1,
) -> list[Outcome]:
    labs = [ClientLab(program, f"{zookeeper}/{unique_name('conform')}") for _ in range(jobs)]
    outcomes, left = asyncio.run(run_together(chosen(sections, names), labs, limit_s, lambda _: None))
    assert left == ""
    return outcomes


def one(steer: Callable[[ClientLab], Awaitable[None]]) -> tuple[ClientSection, ...]:
    section = ClientSection(1, "x", "a section")
    section.client(Level.MUST, 1, "A sentence.", "a source")(steer)
    return (section,)


async def produces(lab: ClientLab) -> None:
    await lab.create()
    await lab.client("produce")


@pytest.mark.parametrize(
    ("program", "result", "reason"),
    [
        ("exit 127", Result.MISSING, "the client does not support this (exit code 127)"),
        ("echo a reason >&2; exit 1", Result.FAIL, "the client ended with exit code 1"),
        ("kill -9 $$", Result.FAIL, "the client ended with exit code -9"),
        ("true", Result.FAIL, "the client sent no request"),
    ],
)
def test_the_exit_code_of_a_client_and_a_client_that_does_nothing(zookeeper: str, program: str, result: Result, reason: str) -> None:
    (outcome,) = outcomes_of(program, (), zookeeper, one(produces))
    assert (outcome.result, outcome.reason) == (result, reason)
    assert outcome.output == ("a reason" if "reason" in program else "")


def has_ended(pid: int) -> bool:
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z"
    return True


def wait_for_end(pid: int) -> None:
    """A signal needs a moment."""
    wait_for(lambda: has_ended(pid) or None, f"the end of process {pid}")


def test_a_client_that_does_not_end_is_killed_with_its_children(zookeeper: str, tmp_path: Path) -> None:
    program = f"sleep 1000 & echo $! > {tmp_path}/child; wait"
    (outcome,) = outcomes_of(program, (), zookeeper, one(produces), limit_s=2)
    assert (outcome.result, outcome.reason) == (Result.FAIL, "no end within 2 s")
    wait_for_end(int((tmp_path / "child").read_text()))


def test_a_child_of_a_client_that_has_ended_is_killed(zookeeper: str, tmp_path: Path) -> None:
    (outcome,) = outcomes_of(f"sleep 1000 & echo $! > {tmp_path}/child; exit 1", (), zookeeper, one(produces), limit_s=5)
    assert outcome.reason == "the client ended with exit code 1"
    wait_for_end(int((tmp_path / "child").read_text()))


def test_the_start_of_the_cluster_does_not_count_for_the_limit_of_a_case(zookeeper: str) -> None:
    async def steer(lab: ClientLab) -> None:
        raise Broken("it began")

    section = ClientSection(1, "x", "a section")
    section.client(Level.MUST, 1, "A sentence.", "a source", brokers=1)(steer)
    (outcome,) = outcomes_of("true", (), zookeeper, (section,), limit_s=0.01)
    assert outcome.reason == "it began"


def test_a_cluster_that_cannot_be_made_is_no_failure_of_the_client(zookeeper: str) -> None:
    section = ClientSection(1, "x", "a section")
    section.client(Level.MUST, 1, "A sentence.", "a source", brokers=-1)(produces)
    (outcome,) = outcomes_of("true", (), zookeeper, (section,))
    assert outcome.result is Result.MISSING and outcome.reason.startswith("the cluster of the suite cannot be started")


def test_lines_that_are_no_records_are_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    async def of(*lines: str) -> Program:
        done = await Program.start("cat >&1 <<'E'\n" + "\n".join(lines) + "\nE", {})
        assert await done.wait() == 0
        return done

    record, deep = '{"partition": 0, "offset": 1, "value": "a.."}', '{"value": ' + "[" * 100_000
    told = asyncio.run(of('{"partition": Infinity, "offset": 0, "value": ""}', deep, record))
    assert told.values == ["a"]
    monkeypatch.setattr("klamm.conform.clients.program.MOST_TOLD_BYTES", 3 * len(record))
    assert len(asyncio.run(of(*[record] * 10)).told) == 3


def test_frames_of_versions_and_apis_that_nobody_has_are_shown() -> None:
    for name, key in (("ApiVersions", 18), ("API 999", 999)):
        frame = b"\0\0\0\x0a" + key.to_bytes(2, "big") + b"\0\x63\0\0\0\1\xff\xff"
        for response in (None, b"\0\0\0\1\0\x23\0\0\0\0"):
            exchange = Exchange(name, 99, frame, response)
            assert request_text(exchange) and response_text(exchange)


def test_a_client_is_killed_when_klamm_is(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    client = f"sh -c 'echo $$ >{pid}.new; mv {pid}.new {pid}; exec sleep 1000'"
    owner = (
        "import asyncio; from klamm.conform.clients.program import Program\n"
        "async def main():\n"
        f"    program = await Program.start({client!r}, {{}})\n"
        "    print('started', flush=True)\n"
        "    await program.wait()\n"
        "asyncio.run(main())"
    )
    process = subprocess.Popen([sys.executable, "-c", owner], stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == b"started\n"
    wait_for(lambda: pid.exists() or None, "the client")
    process.kill()
    process.communicate()
    status = Path(f"/proc/{pid.read_text().strip()}/status")
    wait_for(lambda: not status.exists() or "Z (zombie)" in status.read_text() or None, "the end of the client")


def test_a_command_that_no_shell_finds_is_no_success() -> None:
    done = CliRunner().invoke(command, ["--client", "no-such-command", "admin/7.9"], standalone_mode=False)
    assert done.return_value == 2 and "no case was decided" in done.stderr


def test_a_case_has_its_task_in_the_environment(zookeeper: str) -> None:
    (outcome,) = outcomes_of("env >&2; exit 1", (), zookeeper, one(produces))
    shown = dict(line.partition("=")[::2] for line in outcome.output.splitlines())
    assert shown.items() >= {"TESTCASE": "produce", "CASE": "x/1.1", "RECORDS": "20", "PARTITION": "0"}.items()
    assert shown["BOOTSTRAP"].count("127.0.0.1:") == 3 and shown["TOPIC"] and shown["GROUP"]


def sent(*values: str, sequence: int, epoch: int = 0) -> SentBatch:
    request: Any = None
    return SentBatch(request, 0, read_header(batch(*values, producer_id=7, producer_epoch=epoch, base_sequence=sequence)), values)


@pytest.mark.parametrize(
    ("batches", "reason"),
    [
        ([sent("a", "b", sequence=0), sent("c", sequence=2)], None),
        ([sent("a", sequence=0), sent("a", sequence=0), sent("b", sequence=1)], None),
        ([sent("a", sequence=0), sent("a", sequence=0, epoch=1)], None),
        ([sent("a", sequence=1)], "a batch has sequence 1, the next one of its producer is 0"),
        ([sent("a", sequence=0), sent("b", sequence=2)], "a batch has sequence 2, the next one of its producer is 1"),
        ([sent("a", sequence=0), sent("b", sequence=0)], "sequence 0 was sent with ['a'], and again with ['b']"),
    ],
)
def test_sequences(batches: list[SentBatch], reason: str | None) -> None:
    if reason is None:
        expect_sequences(batches)
    else:
        with pytest.raises(Broken) as broken:
            expect_sequences(batches)
        assert str(broken.value) == reason


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (["0", "1", "2"], None),
        (["0", "2"], "the log lacks 1 of 3 records, the first is 1"),
        (["0", "1", "1", "2"], "the log has 1 records more than once, the first is 1"),
        (["0", "2", "1"], "the log has the record '2' at place 1"),
    ],
)
def test_numbers_of_a_log(values: list[str], reason: str | None) -> None:
    if reason is None:
        expect_numbers(values, 3, "the log")
    else:
        with pytest.raises(Broken) as broken:
            expect_numbers(values, 3, "the log")
        assert str(broken.value) == reason


def test_a_request_that_no_client_sent_leaves_a_case_undecided() -> None:
    with pytest.raises(Absent, match="no request that PRODUCER_FENCED can be a response to"):
        refused([], "PRODUCER_FENCED")


def test_librdkafka_passes_some_cases(zookeeper: str) -> None:
    outcomes = outcomes_of(PYTHON, QUICK, zookeeper)
    assert [(each.case.id, each.reason) for each in outcomes if each.result is not Result.PASS] == []
    assert all(each.exchanges for each in outcomes)


def test_the_command_lists_and_refuses() -> None:
    done = CliRunner().invoke(command, ["--client", "true", "--dryrun", "--json"], standalone_mode=False)
    rows = json.loads(done.stdout)
    assert len(rows) == len({row["id"] for row in rows}) >= 60 and done.return_value == 0
    with pytest.raises(click.UsageError, match="HOST:PORT"):
        CliRunner().invoke(command, [], standalone_mode=False, catch_exceptions=False)
    with pytest.raises(click.UsageError, match="--client goes without"):
        CliRunner().invoke(command, ["--client", "true", "--destructive"], standalone_mode=False, catch_exceptions=False)


# what mature clients do


def failed(program: str, zookeeper: str) -> set[str]:
    """Three cases at a time, which each may take longer for it: most of the time clients wait, or start."""
    return {each.case.id for each in outcomes_of(program, (), zookeeper, limit_s=90, jobs=3) if each.result is Result.FAIL}


HANGS_AFTER_OFFSET_FETCH = {"groups/5.16"}
"""librdkafka 2.16 does not fetch offsets again after this error."""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_librdkafka(zookeeper: str) -> None:
    assert failed(PYTHON, zookeeper) <= HANGS_AFTER_OFFSET_FETCH


@pytest.mark.slow
@pytest.mark.reference
@pytest.mark.timeout(900)
def test_java_passes(zookeeper: str, kafka_jars: Path, tmp_path: Path) -> None:
    assert failed(adapters.java(lambda: kafka_jars, tmp_path), zookeeper) == set()


SOME = ("produce/3.1", "produce/3.11", "groups/5.1", "groups/5.23", "transactions/6.1", "transactions/6.3")
"""Cases that all adapters pass."""


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in adapters.CLIENTS if "Java" not in name])
def test_adapters_pass_some_cases(zookeeper: str, tmp_path: Path, name: str) -> None:
    assert passed(adapters.CLIENTS[name](tmp_path), zookeeper) == set(SOME)


def passed(program: str, zookeeper: str) -> set[str]:
    return {each.case.id for each in outcomes_of(program, SOME, zookeeper) if each.result is Result.PASS}
