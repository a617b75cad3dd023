"""`klamm chaos --client`: a program that ends badly is one line, a correct client passes, one that loses records is caught and shrunk."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import pytest

from klamm.chaos.clients.producers import LoadHangs
from klamm.chaos.clients.programs import Checked, ProgramThread
from klamm.chaos.program_load import ProgramLoad, number, told_of
from klamm.chaos.schedule import Options, Schedule, Step, write
from klamm.conform.clients.program import Told
from klamm.tests.cli.running import Running
from klamm.tests.harness.waits import wait_for

TESTS = Path(__file__).parents[1]
CORRECT = f"{sys.executable} {TESTS / 'conform' / 'clients' / 'confluent.py'}"
LOSING = f"{sys.executable} {TESTS / 'chaos' / 'losing_client.py'}"
RECORD = '{"partition": 0, "offset": 0, "value": "0"}'
ENDS_S = 600.0
KILL = Step(2500, "kill", {"broker": "leader 0", "expire": False}, 2000)


def ended(command: str) -> ProgramThread:
    program = ProgramThread("the producer", command, {})
    program.start()
    wait_for(lambda: None if program.works else program, "the end of the program")
    return program


@pytest.mark.parametrize(
    ("command", "faults"),
    [
        (f"echo '{RECORD}'", []),
        ("echo its reason >&2; exit 3", ["the producer ended with exit code 3: its reason"]),
        ("kill -9 $$", ["the producer ended with exit code -9"]),
        ("echo '{\"partition\": 0, \"offset\":'", ['the producer printed a line that is not a record: {"partition": 0, "offset":']),
        ("echo '{}'; exit 1", ["the producer printed a line that is not a record: {}", "the producer ended with exit code 1: {}"]),
    ],
)
def test_each_way_to_end_badly_is_one_line(command: str, faults: list[str]) -> None:
    assert ended(command).faults() == faults


def test_a_program_that_prints_without_end_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("klamm.conform.clients.program", "klamm.chaos.clients.programs"):
        monkeypatch.setattr(f"{module}.MOST_TOLD_BYTES", 1 << 20)
    program = ended(f"yes '{RECORD}'")
    assert program.faults() == ["the producer printed more than 1 MiB of records, and was killed"]
    assert len(told_of(program)) > 1000


def test_a_program_that_does_not_end_is_killed() -> None:
    program = ProgramThread("the producer", f"echo '{RECORD}'; echo waits; sleep 1000", {})
    program.start()
    wait_for(lambda: told_of(program) or None, "the record")
    assert program.ends(30)
    assert program.faults() == ["the producer did not end, and was killed: waits"]


def test_a_program_that_supports_no_task_is_a_violation(tmp_path: Path) -> None:
    load = ProgramLoad("localhost:1", "exit 127", 1000, lambda: None)
    load.begin()
    wait_for(lambda: all(each.code == 127 for each in (*load.producers, *load.readers, load.member)) or None, "the end of all processes")
    _, faults = load.judged(tmp_path, allow_loss=False)
    assert faults == {"client": ["the program supports none of the tasks produce, consume and group (exit code 127)"]}


def test_whatever_ends_a_run_ends_its_programs() -> None:
    load = ProgramLoad("localhost:1", "sleep 1000", 1000, lambda: "the cluster is gone")
    load.begin()
    everybody = (*load.producers, *load.readers, load.member)
    wait_for(lambda: all(each.program is not None for each in everybody) or None, "the beginning of all processes")
    with pytest.raises(LoadHangs, match="the cluster is gone"):
        load.finish()
    load.end()
    assert not any(each.works for each in everybody)
    assert not any(each.program is None or each.program.is_running for each in everybody)


def test_a_run_that_is_to_end_early_ends_its_producers() -> None:
    load = ProgramLoad("localhost:1", "sleep 1000", 1000, lambda: None, lambda: True)
    for each in load.producers:
        each.start()
    load.end_producers()
    assert not any(each.works for each in load.producers)
    _, faults = load.judged(Path("absent"), allow_loss=False)
    assert [line for line in faults["client"] if "producer" in line] == []


def test_a_member_that_read_very_many_records_is_judged_at_once(tmp_path: Path) -> None:
    load, count = ProgramLoad("localhost:1", "true", 1000, lambda: None), 30_000
    told = [Told(0, offset, str(offset)) for offset in range(count)]
    load.member.program = Checked.__new__(Checked)
    load.member.program.told, load.member.code = told, 0
    load.member.program._output = bytearray()
    load._logs = {0: [(each.offset, each.value) for each in told[:-1]] + [(count, "unread")]}
    _, faults = load.judged(tmp_path, allow_loss=False)
    assert faults["group misread"] == [f"1 records were given to no member, the first is 0/unread at 0/{count}"]


@pytest.mark.parametrize(("value", "wanted"), [("7....", 7), ("end", -1), ("-1", -1), ("9" * 5000, -1), ("", -1)])
def test_the_number_of_a_record_is_read_from_any_value(value: str, wanted: int) -> None:
    assert number(Told(0, 0, value)) == wanted


def started(folder: Path, command: str, *options: object) -> Running:
    return Running(folder, "chaos", "--json", "--client", command, "--output", folder / "smallest.json", *options)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", [7, 12])
def test_a_correct_client_passes(tmp_path: Path, seed: int) -> None:
    kinds = [part for kind in ("elect", "controller", "stop") for part in ("--only", kind)]
    run = started(tmp_path, CORRECT, "--seed", seed, "--minutes", 0.15, "--no-shrink", *kinds)
    summary = json.loads(run.rest())
    assert (run.process.wait(ENDS_S), summary["violations"]) == (0, []), run.stderr
    assert summary["acknowledged"] == summary["sent"] > 100 and summary["delivered"] > 2 * summary["sent"]


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_client_that_loses_acknowledged_records_is_caught_and_shrunk(tmp_path: Path) -> None:
    steps = (Step(1500, "controller", {"to": None}), KILL, Step(5000, "elect", {}))
    write(Schedule(1, 7000, Options(), steps), tmp_path / "schedule.json")
    run = started(tmp_path, LOSING, "--schedule", tmp_path / "schedule.json", "--shrink-minutes", 5)
    summary = json.loads(run.rest())
    assert run.process.wait(ENDS_S) == 3
    assert "lost" in {violation["rule"] for violation in summary["violations"]}, run.stderr
    assert "The program writes to partitions 0 and 1 of records" in run.stderr
    kinds = [step["kind"] for step in json.loads((tmp_path / "smallest.json").read_text())["steps"]]
    assert "kill" in kinds and len(kinds) < 3, run.stderr


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_run_that_is_interrupted_does_not_wait_for_its_programs(tmp_path: Path) -> None:
    run = started(tmp_path, CORRECT, "--seed", 7, "--minutes", 60, "--no-shrink", "--only", "elect", "--verbose")
    wait_for(lambda: "elect" in run.stderr or "leader" in run.stderr or None, "the first step", 60)
    run.process.send_signal(signal.SIGINT)
    summary = json.loads(run.rest())
    assert (run.process.wait(ENDS_S), summary["violations"]) == (130, []), run.stderr
