"""Judges runs by the rules. All rules see the views of silver, which hold the rows of the runs to judge and nothing else.

Spark's cost for small work is planning and starting jobs, and for large work scanning and sorting. So the views that rules share are
prepared once and cached, sorted as the rules' windows want them; rules that read the same views are one job; and jobs run from several
threads. One job returns for each rule and run how many things were checked and violated, and the first violations. All are counted,
`KEPT` for each rule and run are named.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

from klamm.pipeline.rules.record import Rule, View

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KEPT = 1000
"""Violations of one rule in one run that are named; the rest is counted."""

JOBS_AT_ONCE = 2

FAMILIES = ("traffic", "shared", "wire", "answers", "controller", "decisions", "elections", "leadership", "reassignment", "clients")
"""Modules of this package that have `RULES`, or `VIEWS` that are prepared for rules, or both."""


class Verdict(NamedTuple):
    """One violation."""

    run_id: str
    rule: str
    severity: str
    node_id: int
    conn_id: int | None
    seq: int
    detail: str
    evidence: list[int]


class Stat(NamedTuple):
    """What became of one rule in one run. `checked` 0: the rule was not exercised."""

    run_id: str
    rule: str
    checked: int
    violated: int


class Judgement(NamedTuple):
    """Of some runs by some rules."""

    stats: list[Stat]
    verdicts: list[Verdict]
    """At most `KEPT` of each rule and run."""


def rules() -> dict[str, Rule]:
    """All rules, by id, in the order of the pages."""
    return {rule.id: rule for family in FAMILIES for rule in getattr(_module(family), "RULES", ())}


def views() -> dict[str, View]:
    """All prepared views, by name."""
    return {view.name: view for family in FAMILIES for view in getattr(_module(family), "VIEWS", ())}


def _module(family: str) -> Any:
    return importlib.import_module(f"klamm.pipeline.rules.{family}")


def judge(spark: SparkSession, runs: Sequence[str], chosen: Iterable[Rule] | None = None) -> Judgement:
    """Judge what the session's views hold (`pipeline.tables.views`), which are the rows of `runs`, by all rules or the chosen ones."""
    judging = list(rules().values() if chosen is None else chosen)
    with _Prepared(spark, views(), judging), ThreadPoolExecutor(JOBS_AT_ONCE) as threads:
        tables = list(threads.map(lambda job: _rows(spark, job), _jobs(judging)))
    stats = {(run, rule.id): Stat(run, rule.id, 0, 0) for rule in judging for run in runs}
    severities = {rule.id: rule.severity for rule in judging}
    verdicts = []
    for row in (row for rows in tables for row in rows):
        stats[row["run_id"], row["rule"]] = Stat(row["run_id"], row["rule"], row["checked"], row["violated"])
        if row["detail"] is not None:
            where = (row["node_id"], row["conn_id"], row["seq"], row["detail"], list(row["evidence"] or ()))
            verdicts.append(Verdict(row["run_id"], row["rule"], severities[row["rule"]], *where))
    return Judgement(sorted(stats.values()), sorted(verdicts, key=lambda one: (one.run_id, one.rule, one.node_id, one.seq)))


def _jobs(judging: Sequence[Rule]) -> list[list[Rule]]:
    """The rules, those that read the same views together."""
    jobs: dict[tuple[str, ...], list[Rule]] = {}
    for rule in judging:
        key = (rule.id,) if rule.function is not None else tuple(sorted(rule.inputs))
        jobs.setdefault(key, []).append(rule)
    return list(jobs.values())


def _rows(spark: SparkSession, job: Sequence[Rule]) -> list[dict[str, Any]]:
    """For each rule and run: the counts, with each of the first violations, or alone."""
    return list(_counted(spark, job).toArrow().to_pylist())


def _counted(spark: SparkSession, job: Sequence[Rule]) -> DataFrame:
    parts = []
    for rule in job:
        if rule.function is not None:
            rule.function(spark).createOrReplaceTempView(_view_of(rule))
        query = rule.judged if rule.function is None else f"SELECT * FROM {_view_of(rule)}"
        parts.append(f"SELECT '{rule.id}' AS rule, run_id, node_id, conn_id, seq, detail, evidence FROM ({query})")
    return spark.sql(
        # What is right folds into one row, what is wrong stays apart: so one pass gives both.
        f"""WITH judged AS ({" UNION ALL ".join(parts)}),
        folded AS (
            SELECT rule, run_id, detail, if(detail IS NULL, NULL, node_id) AS node_id, if(detail IS NULL, NULL, conn_id) AS conn_id,
                if(detail IS NULL, NULL, seq) AS seq, if(detail IS NULL, NULL, evidence) AS evidence, count(*) AS n
            FROM judged GROUP BY ALL),
        numbered AS (
            SELECT *, sum(n) OVER (PARTITION BY rule, run_id) AS checked,
                sum(if(detail IS NULL, 0, n)) OVER (PARTITION BY rule, run_id) AS violated,
                row_number() OVER (PARTITION BY rule, run_id ORDER BY detail IS NOT NULL, node_id, seq) AS nth
            FROM folded)
        SELECT rule, run_id, node_id, conn_id, seq, detail, evidence, checked, violated
        FROM numbered WHERE nth <= {KEPT} + if(checked > violated, 1, 0)"""
    )


def _view_of(rule: Rule) -> str:
    return f"judged_{rule.id.replace('-', '_').lower()}"


class _Prepared:
    """The prepared views that some rules read, cached while it is open."""

    def __init__(self, spark: SparkSession, known: Mapping[str, View], judging: Sequence[Rule]) -> None:
        self._spark = spark
        self._order = list(_in_order(known, {name for rule in judging for name in rule.inputs}))
        self._cached: list[DataFrame] = []

    def __enter__(self) -> None:
        for view in self._order:
            rows = self._spark.sql(view.sql)
            if view.cluster_by:
                # With a number Spark keeps the partitions, and knows of the cached rows how they are spread and sorted.
                parts = int(self._spark.conf.get("spark.sql.shuffle.partitions") or 2)
                rows = rows.repartition(parts, *view.cluster_by).sortWithinPartitions(*view.cluster_by, *view.order_by)
                rows = rows.cache()
                self._cached.append(rows)
            else:
                # Cut off from its plan: a plan that is cached is planned again inside each query that reads it.
                rows = rows.localCheckpoint()
            rows.createOrReplaceTempView(view.name)

    def __exit__(self, *_: object) -> None:
        for rows in self._cached:
            rows.unpersist()


def _in_order(known: Mapping[str, View], wanted: Iterable[str]) -> Iterator[View]:
    """The prepared views among `wanted` and what they read, each after those that it reads."""
    seen: set[str] = set()

    def visit(name: str) -> Iterator[View]:
        if name in known and name not in seen:
            seen.add(name)
            for one in known[name].inputs:
                yield from visit(one)
            yield known[name]

    for name in sorted(wanted):
        yield from visit(name)
