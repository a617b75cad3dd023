"""Changes that no rule was made for: wrong ones are found, but for kinds that are named, and nobody is accused of what is allowed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from klamm.tests.pipeline.both_engines import assert_quick_agrees
from klamm.tests.pipeline.injected.drawn_changes import ALLOWED, NOT_SEEN, WRONG, drawn, judged_by_spark, outcomes, write
from klamm.tests.pipeline.injected.injections import judged_quickly


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_wrong_changes_are_found_and_allowed_ones_left_alone(tmp_path: Path) -> None:
    said = outcomes(write(tmp_path, drawn(seed=7)), judged_quickly(tmp_path))
    wrong = [one for one in said if one.change.is_wrong]
    assert len(wrong) >= 120 and len(said) - len(wrong) >= 60
    assert {one.change.kind for one in wrong if not one.is_right} <= NOT_SEEN.keys()
    assert [(one.change.kind, one.accused) for one in said if not one.change.is_wrong and one.accused] == []


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_spark_says_the_same_of_some_drawn_changes(spark: Any, tmp_path: Path) -> None:
    runs = write(tmp_path, list(drawn(seed=11, times=1))[::8])
    assert_quick_agrees(tmp_path, sorted(runs), judged_by_spark(spark, tmp_path, sorted(runs)))


def test_kinds_that_are_not_seen_are_wrong_ones_and_no_kind_has_the_name_of_another() -> None:
    names = [one.name for one in (*WRONG, *ALLOWED)]
    assert len(set(names)) == len(names)
    assert {one.name for one in WRONG} >= NOT_SEEN.keys()
