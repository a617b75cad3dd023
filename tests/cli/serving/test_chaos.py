"""`klamm chaos`: what it refuses before anything is started. tests/chaos runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from klamm.chaos.schedule import Options, draw, write
from klamm.tests.cli.running import call


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--only", "kil"], "klamm chaos: 'kil' is not a kind of step; did you mean 'kill'?"),
        (["--without", "kil"], "klamm chaos: 'kil' is not a kind of step; did you mean 'kill'?"),
        (["--only", "kill", "--without", "kill"], "klamm chaos: no kind of step is left"),
        (["--minutes", "0"], "Invalid value for '--minutes'"),
        (["--minutes", "-3"], "Invalid value for '--minutes'"),
        (["--minutes", "nan"], "minutes"),
        (["--brokers", "2"], "klamm chaos: 2 brokers are too few"),
        (["--brokers", "0"], "Invalid value for '--brokers'"),
        (["--seed", "-1"], "Invalid value for '--seed'"),
        (["--schedule", "nowhere.json"], "Invalid value for '--schedule'"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_exit_code_2(options: list[str], text: str) -> None:
    done = call("chaos", *options)
    assert (done.returncode, done.stdout) == (2, "")
    assert text in done.stderr and done.stderr.count("\n") == 1


def test_a_schedule_cannot_be_combined_with_what_it_has(tmp_path: Path) -> None:
    write(draw(1, 1, Options()), tmp_path / "s.json")
    done = call("chaos", "--schedule", tmp_path / "s.json", "--seed", 3)
    assert done.returncode == 2 and "--schedule has the seed" in done.stderr


def test_a_file_that_is_no_schedule_is_named(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text("{}")
    done = call("chaos", "--schedule", tmp_path / "s.json", "--json")
    assert done.returncode == 2 and f"{tmp_path}/s.json: this is not a schedule" in done.stderr
    assert "this is not a schedule" in json.loads(done.stdout)["error"]
