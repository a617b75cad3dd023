"""What real brokers of Apache Kafka 3.9.1 do when they are told stories breaks no rule, as far as frames can show it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from klamm.pipeline.rules.runner import Verdict
from klamm.tests.pipeline.both_engines import assert_quick_agrees
from klamm.tests.pipeline.real_clusters.kafka_stories import commands, draw, faults, judge, of_the_story, summary, tell

SHARE = 36
"""One story of so many is told: all of them take half an hour, which `make test-judge` does."""

ALWAYS = frozenset({"W-01", "W-02", "W-03", "W-07", "W-08", "W-09", "C-03", "C-04", "C-11"})
"""Rules that every conversation exercises; C-11 those of controllers with fake brokers, which a quarter of all stories has."""


BY_HAND = ["fakes 11 12", "create other [11,12]", "put-state written-0 leader=11 isr=11 le=5", "reassign written-0=12"]
PLAYED = ['ask UpdateMetadata v5-8 {"controllerId":9}', 'ask Metadata v12 {"topics":null}']


@pytest.mark.parametrize(
    ("rule", "detail", "lines", "explains"),
    [
        ("C-19", "written-0: leader epoch 6 after 0, partition epoch 2 after 0", BY_HAND, True),
        ("C-19", "other-0: leader epoch 6 after 0, partition epoch 2 after 0", BY_HAND, False),
        ("C-01", "written-0: leader epoch 1 after 2", BY_HAND, False),
        ("W-09", "API 6 version 8: 3 bytes over", BY_HAND, False),
        ("C-04", "broker 0 in controller epoch 5, which is that of broker 9", PLAYED, True),
        ("C-03", "controller epoch 4 gets error 0 after 5", PLAYED, False),
        ("W-01", "answers no request: correlation id 1", PLAYED, False),
        ("C-04", "broker 0 in controller epoch 5, which is that of broker 9", PLAYED[1:], False),
    ],
)
def test_a_story_explains_what_it_did_itself_and_nothing_else(rule: str, detail: str, lines: list[str], explains: bool) -> None:
    assert of_the_story(Verdict("run", rule, "error", 0, 1, 2, detail, []), lines) == explains


def test_only_kafka_may_obey_an_isr_without_members() -> None:
    verdict = Verdict("run", "C-02", "error", 0, 1, 2, "empty-0: leader 11 is not in ISR []", [])
    assert [of_the_story(verdict, [], of_klamm=klamm) for klamm in (False, True)] == [True, False]


def test_the_lines_of_a_run_are_those_of_its_story_or_of_all_that_share_its_cluster() -> None:
    alone, shared = commands("defects-an-isr-without-members-00000000"), commands("elections-nothing-to-do-00000000")
    assert "alter-partition empty-0 leader=11 isr=none" in alone
    assert len([line for line in shared if line.startswith("fakes ")]) > 5 > len([line for line in alone if line.startswith("fakes ")])


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
    assert_quick_agrees(tmp_path, checked.runs, checked.judgement)
