"""Spark and DuckDB judge the same journals: what a test that has a judgement by Spark asks for."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from klamm.pipeline.quick.check import check_quickly
from klamm.pipeline.rules.runner import Judgement


def assert_quick_agrees(lake: Path, runs: Sequence[str], judgement: Judgement, rules: Collection[str] = ()) -> None:
    """Without Spark the same journals get the same counts, violations and evidence by these rules, or all."""
    quick = check_quickly(lake, runs=runs, chosen=tuple(rules), limit=None).judgement
    assert quick.stats == judgement.stats
    assert quick.verdicts == judgement.verdicts
