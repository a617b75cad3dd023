"""`klamm pipeline check`: judges runs of a lake, or reads the verdicts that are stored.

Usually `klamm pipeline run` has judged the runs already. Otherwise they are judged here: by DuckDB, by Spark's SQL if they are large.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from klamm.pipeline.lake import delta_log
from klamm.pipeline.lake.access.driver import existing, written
from klamm.pipeline.lake.damage import damage_named, refuse_missing
from klamm.pipeline.lake.folder import Lake, PipelineFailed, spark_failures
from klamm.pipeline.lake.layout import refuse_older
from klamm.pipeline.lake.spark_views import rows_seen
from klamm.pipeline.lake.tables import GOLD, RULE_STATS, SILVER, VERDICTS
from klamm.pipeline.lake.unjudged_rows import missing_rows, quarantined_rows, torn_segments
from klamm.pipeline.quick.lake_gold import judged_by_duckdb
from klamm.pipeline.rules import runner
from klamm.pipeline.rules.check import Checked, asked_for
from klamm.pipeline.rules.evidence import bronze_rows
from klamm.pipeline.rules.record import Rule
from klamm.pipeline.rules.runner import Judgement
from klamm.pipeline.rules.verdict_tables import old_gold_notes, read_judgement, write_judgement
from klamm.pipeline.run import LOCAL_ROWS
from klamm.pipeline.spark.workers import cluster_failures

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def judged_runs(lake: Lake) -> list[str]:
    """All runs in silver."""
    return sorted({entry.run for table in SILVER for entry in delta_log.entries(lake, table.path)})


def check(
    lake: Lake, open_session: Callable[[], SparkSession], *, runs: Sequence[str] = (), chosen: Sequence[str] = (),
    local_rows: int = LOCAL_ROWS,
) -> Checked:
    """The verdicts of all rules, or the chosen ones, on all runs of a lake, or these. Raises PipelineFailed for an unknown run or rule.

    Runs are judged only if they have new rows, or if other code than this Klamm's has judged them. A session is opened only for runs with
    more than `local_rows` rows in a table.
    """
    lake = existing(lake)
    with spark_failures(), damage_named(lake), cluster_failures(), delta_log.one_version(lake):
        return _check(lake, open_session, runs, chosen, local_rows)


def _judged(lake: Lake, open_session: Callable[[], SparkSession], runs: list[str], rules: list[Rule], local_rows: int) -> Judgement:
    if max(rows_seen(lake, table, runs) for table in SILVER) <= local_rows:
        return runner.judge_runs(lake, runs, partial(judged_by_duckdb, lake, rules))
    spark = open_session()
    return runner.judge_runs(lake, runs, lambda some, window: runner.judge_lake(spark, lake, some, rules, window=window))


def _check(
    lake: Lake, open_session: Callable[[], SparkSession], runs: Sequence[str], chosen: Sequence[str], local_rows: int
) -> Checked:
    present = judged_runs(lake)
    if not present:
        raise PipelineFailed(f"{lake} has no tables yet: klamm pipeline run {lake}")
    judging, rules = asked_for(present, runs, chosen)
    # Verdicts that are gone are made again.
    refuse_missing(lake, [table.path for table in (*SILVER, *GOLD) if table not in (VERDICTS, RULE_STATS)], judging)
    stored = read_judgement(lake, judging)
    if stored is None:
        refuse_older(lake)
    judgement = _judged(lake, open_session, judging, list(rules.values()), local_rows) if stored is None else stored.by(rules)
    checked = Checked(judging, rules, judgement)
    checked.missing = missing_rows(lake, judging)
    checked.torn = torn_segments(lake, judging)
    checked.quarantined = quarantined_rows(lake, judging)
    checked.note_what_is_not_judged()
    checked.notes += old_gold_notes(lake, runs or None)
    if stored is None and not chosen:
        try:
            with written(lake):
                write_judgement(lake, judgement, judging, with_gold=False)
                delta_log.name_version(lake, [table for table in (VERDICTS.path, RULE_STATS.path) if table in delta_log.tables(lake)])
        except PipelineFailed as problem:
            checked.notes.append(f"the verdicts are not stored: {problem}")
    checked.read_evidence(bronze_rows(lake))
    return checked
