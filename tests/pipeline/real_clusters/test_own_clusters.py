"""The journals of our own clusters obey every rule, and each rule that is not exercised has its reason here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from klamm.pipeline import run
from klamm.pipeline.lake import manifest, tables
from klamm.pipeline.lake.windows import NUMBERED, Sizes, windows
from klamm.pipeline.rules import runner
from klamm.tests.pipeline.both_engines import assert_quick_agrees
from klamm.tests.pipeline.real_clusters.own_cluster import live_through_much

NOT_EXERCISED: dict[str, str] = {"W-06": "Klamm offers no SASL"}
"""Rule → why nothing of this story exercises it. Rules `X` are left out: they judge clients, and the story's clients have no habits."""


class _Quiet:
    def begin(self, what: str, total: int | None) -> None: ...
    def step(self, steps: int) -> None: ...


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_a_cluster_that_lives_through_much_breaks_no_rule(zookeeper: str, chroot: str, tmp_path: Path, spark: Any) -> None:
    lake = tmp_path / "lake"
    await live_through_much(zookeeper + chroot, lake, "own")
    run.run(lake, lambda: spark, _Quiet(), gold=False)
    tables.views(spark, lake, ["own"])
    judgement = runner.judge(spark, ["own"])
    assert [verdict for verdict in judgement.verdicts if verdict.severity == "error"] == []
    errors = {rule.id for rule in runner.rules().values() if rule.severity == "error"}
    assert {stat.rule for stat in judgement.stats if stat.checked == 0} & errors == set(NOT_EXERCISED)
    assert_quick_agrees(lake, ["own"], judgement)
    cut = [runner.judge_lake(spark, lake, ["own"], window=window) for window in windows(lake, "own", None, _thirds(lake))]
    assert len(cut) > 1
    assert runner.together(judged.of("own") for judged in cut) == judgement


def _thirds(lake: Path) -> Sizes:
    """Windows that last for a third of the run, judged one after another, with margins of half of that."""
    parts = [entry for name in NUMBERED for entry in manifest.entries(lake, f"silver/{name}")]
    bounds = [ns for entry in parts for ns in (entry.first_ts_ns, entry.last_ts_ns) if ns is not None]
    width = (max(bounds) - min(bounds)) // 3
    return Sizes(width, width // 2, 1 << 40, 1)
