"""What real brokers of Apache Kafka 3.9.1 do when they are told stories breaks no rule, as far as frames can show it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from klamm.tests.pipeline.kafka_stories import draw, faults, judge, summary, tell

SHARE = 28
"""One story of so many is told: all of them take half an hour, which `make test-judge` does."""

ALWAYS = frozenset({"W-01", "W-02", "W-03", "W-07", "W-08", "W-09", "C-03", "C-04", "C-11"})
"""Rules that every conversation exercises; C-11 those of controllers with fake brokers, which a quarter of all stories has."""


@pytest.mark.slow
@pytest.mark.reference
def test_no_rule_is_violated_by_real_brokers_that_are_told_stories(
    zookeeper: str, tmp_path: Path, spark: Any, request: pytest.FixtureRequest
) -> None:
    stories = draw(request.config.getoption("--stories-seed"), SHARE)
    told = tell(zookeeper, tmp_path, stories)
    assert len(told.otherwise) <= len(stories) // 4, f"told otherwise: {told.otherwise}"
    frames, checked = judge(tmp_path, lambda: spark)
    print(f"{stories}\n{frames} frames", *summary(checked), sep="\n")
    assert [(one.rule, one.run_id, one.detail) for one in faults(checked)] == []
    assert frames > 10 * len(stories)
    assert not set(checked.not_exercised()) & ALWAYS
