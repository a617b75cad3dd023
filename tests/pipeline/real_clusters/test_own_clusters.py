"""The journals of our own clusters obey every rule, and each rule that is not exercised has its reason here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from klamm.pipeline import run
from klamm.pipeline.gold import MOST_ROWS, build_gold
from klamm.pipeline.gold_tables.queries import OF_ROWS, THAT_END
from klamm.pipeline.lake import delta_log, spark_views, tables
from klamm.pipeline.lake.bronze import own_segments, pending
from klamm.pipeline.lake.tables import LEADER_TIMELINE, REASSIGN_SPANS
from klamm.pipeline.lake.windows import NUMBERED, SIZES, WindowSizes, windows
from klamm.pipeline.quick.check import check_quickly
from klamm.pipeline.quick.judge import judge
from klamm.pipeline.quick.tables import load, opened
from klamm.pipeline.rules import runner
from klamm.pipeline.rules.runner import Verdict
from klamm.pipeline.spark.tasks import SparkWorkers
from klamm.tests.pipeline.both_engines import assert_quick_agrees
from klamm.tests.pipeline.real_clusters.own_cluster import live_through_much

NOT_EXERCISED: dict[str, str] = {
    "L-04": "L-03 judges runs with the frames of a controller. The lake of a proxy exercises it",
    "F-06": "the partitions that are read get other leaders later. The lake of a proxy exercises it",
    "O-05": "the partitions that are read get other leaders later. The lake of a proxy exercises it",
    "G-10": "Klamm refuses the members of KIP-848, as brokers with ZooKeeper do",
}
"""Rule → why the journals of the brokers do not exercise it. Warnings are left out: they judge clients, and the story's clients have no
habits."""

OF_ONE_LEADER = {"F-06", "O-05"}
"""Rules that judge partitions while their leader is the same: in a window it may be, and not in the whole run."""


class _Quiet:
    def begin(self, what: str, total: int | None) -> None: ...
    def step(self, steps: int) -> None: ...


@pytest.mark.slow
async def test_a_cluster_that_lives_through_much_breaks_no_rule(zookeeper: str, chroot: str, tmp_path: Path, spark: Any) -> None:
    lake = tmp_path / "lake"
    await live_through_much(zookeeper + chroot, lake, "own", tmp_path / "proxy")
    seen_by_proxy = check_quickly(tmp_path / "proxy").judgement
    assert [verdict for verdict in seen_by_proxy.verdicts if verdict.severity == "error"] == []
    assert set(NOT_EXERCISED) - {stat.rule for stat in seen_by_proxy.stats if stat.checked} == {"G-10"}
    run.run(lake, lambda: spark, _Quiet(), gold=False)
    spark_views.views(spark, lake, ["own"])
    judgement = runner.judge(spark, ["own"])
    assert [verdict for verdict in judgement.verdicts if verdict.severity == "error"] == []
    errors = {rule.id for rule in runner.rules().values() if rule.severity == "error"}
    assert {stat.rule for stat in judgement.stats if stat.checked == 0} & errors == set(NOT_EXERCISED)
    assert_quick_agrees(lake, ["own"], judgement)
    cut = [runner.judge_lake(spark, lake, ["own"], window=window) for window in windows(lake, "own", None, _thirds(lake))]
    assert len(cut) > 1
    alike = _alike()
    assert runner.together(judged.of("own") for judged in cut).by(alike) == judgement.by(alike)
    whole = _rows_of_gold(spark, lake, SIZES)
    assert all(whole.values())
    assert _rows_of_gold(spark, lake, _thirds(lake)) == whole
    assert _rows_of_gold(spark, lake, SIZES, BY_SPARK) == whole
    assert _rows_of_gold(spark, lake, _thirds(lake), BY_SPARK) == whole
    for share in (0.15, 0.3, 0.4, 0.5, 0.7):
        assert [one for one in _judged_from(lake, share, tmp_path) if one.severity == "error"] == []


BY_SPARK = -1


def _rows_of_gold(spark: Any, lake: Path, sizes: WindowSizes, most_rows: int = MOST_ROWS) -> dict[str, list[str]]:
    """The rows of tables that have the same ones in whatever windows they are made, and by whichever engine."""
    judgement = build_gold(lake, ["own"], lambda _: SparkWorkers(spark), lambda: spark, sizes, most_rows=most_rows)
    assert judgement.by(_alike()) == runner.judge_lake(spark, lake, ["own"]).by(_alike())
    found = (LEADER_TIMELINE, REASSIGN_SPANS, *OF_ROWS, *THAT_END)
    return {table.name: sorted(map(str, spark_views.read(spark, lake, table).toArrow().to_pylist())) for table in found}


def _alike() -> set[str]:
    """The rules that look at the same rows in windows as in the whole run."""
    return runner.rules().keys() - OF_ONE_LEADER


def _judged_from(lake: Path, share: float, folder: Path) -> list[Verdict]:
    """The verdicts where only a part of the time is there: what went before was removed from all journals."""
    database = opened("1g", str(folder))
    load(database, own_segments(pending(lake, set()))[0])
    rows = "(SELECT node_id, seq, ts_ns FROM messages UNION ALL SELECT node_id, seq, ts_ns FROM events)"
    ((since, until),) = database.execute(f"SELECT min(ts_ns), max(ts_ns) FROM {rows}").fetchall()
    at = round(since + (until - since) * share)
    database.execute(f"CREATE TABLE gone AS SELECT node_id, max(seq) AS last FROM {rows} WHERE ts_ns < {at} GROUP BY node_id")
    for table in tables.SILVER:
        database.execute(f"DELETE FROM {table.name} t USING gone g WHERE t.node_id = g.node_id AND t.seq <= g.last")
    return judge(database, ["own"]).verdicts


def _thirds(lake: Path) -> WindowSizes:
    """Windows that last for a third of the run, judged one after another, with margins of half of that."""
    parts = [entry for name in NUMBERED for entry in delta_log.entries(lake, f"silver/{name}")]
    bounds = [ns for entry in parts for ns in (entry.first_ts_ns, entry.last_ts_ns) if ns is not None]
    width = (max(bounds) - min(bounds)) // 3
    return WindowSizes(width, width // 2, 1 << 40, 1)
