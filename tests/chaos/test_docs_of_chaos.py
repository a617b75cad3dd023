"""docs/chaos.md has every kind of step and every rule."""

from __future__ import annotations

import re
from pathlib import Path

from klamm.chaos.kinds import KINDS
from klamm.chaos.story import story
from klamm.tests.chaos.early_acknowledgements import FOUND_BY

PAGE = Path(__file__).resolve().parents[2] / "docs" / "chaos.md"


def test_the_page_has_every_kind_with_its_summary() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \| (.*?) \|", PAGE.read_text(), re.MULTILINE)
    assert dict(rows) == {kind.name: kind.summary for kind in KINDS.values()}


def test_the_story_of_the_page_is_the_one_of_a_schedule_that_finds_a_planted_fault() -> None:
    assert "".join(f"  {sentence}\n" for sentence in story(FOUND_BY)) in PAGE.read_text()
