"""Lines on stderr: whatever they quote, each entry is one line that a terminal takes as text."""

from __future__ import annotations

import io
import logging
from pathlib import Path

import pytest

from klamm.cli.shell.logs import OneLineFormatter
from klamm.tests.cli.running import call

FORGED = "x\n2026-01-01 00:00:00,000 INFO    klamm.controller: broker 9 is elected"


@pytest.fixture
def entries() -> tuple[logging.Logger, io.StringIO]:
    """A logger, and what it writes."""
    text = io.StringIO()
    handler = logging.StreamHandler(text)
    handler.setFormatter(OneLineFormatter("%(levelname)s %(message)s"))
    log = logging.Logger("test")
    log.addHandler(handler)
    return log, text


@pytest.mark.parametrize(
    ("quoted", "written"), [("a\nb", r"a\nb"), ("\x1b[2J", r"\x1b[2J"), ("\u202eabc", r"\u202eabc"), ("\x85\r", r"\x85\r"), ("ä ☃", "ä ☃")]
)
def test_what_is_quoted_makes_no_line_and_no_terminal_command(
    entries: tuple[logging.Logger, io.StringIO], quoted: str, written: str
) -> None:
    log, text = entries
    log.warning("topic %s is unknown", quoted)
    assert text.getvalue() == f"WARNING topic {written} is unknown\n"


def test_a_traceback_is_indented_the_text_of_its_exception_too(entries: tuple[logging.Logger, io.StringIO]) -> None:
    log, text = entries
    try:
        raise ValueError(FORGED)
    except ValueError:
        log.exception("it failed")
    first, *others = text.getvalue().splitlines()
    assert first == "ERROR it failed"
    assert "  Traceback (most recent call last):" in others
    assert all(line.startswith("  ") for line in others)


def test_an_unknown_property_forges_no_line(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("broker.id=1\nzookeeper.connect=127.0.0.1:1\nzookeeper.connection.timeout.ms=1\n")
    said = call("broker", file, "--override", f"{FORGED}=1")
    assert said.returncode == 1
    assert r"x\n2026-01-01" in said.stderr
    assert "\n2026-01-01" not in said.stderr
