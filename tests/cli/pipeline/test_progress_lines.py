"""Progress where stderr is no terminal: a line every few seconds."""

from __future__ import annotations

import pytest

from klamm.cli.pipeline.options import Bars, Lines
from klamm.tests.harness.waits import wait_for


def test_long_work_has_a_line_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    lines = Lines(every_s=0.01)
    lines.begin("bronze", 12)
    lines.step(3)
    told: list[str] = []

    def tells(text: str) -> bool:
        told.append(capsys.readouterr().err)
        return "".join(told).count(text) >= 2

    wait_for(lambda: tells("bronze: 3 of 12 (25 %), 0 s\n"), "two lines about bronze", 10)
    lines.begin("silver", None)
    wait_for(lambda: tells("silver: 0 s\n"), "two lines about silver", 10)
    lines.stop()


def test_a_row_stays(capsys: pytest.CaptureFixture[str]) -> None:
    with Bars() as bars:
        bars.begin("watching", None)
        bars.row("10:00:00  1 segment, 2 frames and 1 event")
    assert capsys.readouterr().err == "10:00:00  1 segment, 2 frames and 1 event\n"


def test_short_work_has_none(capsys: pytest.CaptureFixture[str]) -> None:
    with Bars() as bars:
        bars.begin("bronze", 1)
        bars.step(1)
    assert capsys.readouterr().err == ""
