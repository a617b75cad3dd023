"""Judges runs by the rules. The rules read views of silver, which have only the rows of these runs.

The other tables of gold are made at the same time from the same views.

Views that rules share are prepared once (`judgement_plan.py`), and rules that read the same views are one job; those that judge each frame
by itself are one pass over the frames. A job counts for each rule and run how many things were checked and how many violated the rule. If
something did, a second query names the first `KEPT` violations of each rule and run.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from klamm.pipeline.lake import spark_views
from klamm.pipeline.lake.folder import Lake
from klamm.pipeline.lake.tables import SILVER
from klamm.pipeline.lake.windows import FINAL, Window, filled, windows
from klamm.pipeline.rules.contents import SEEN_INPUTS, Seen, lacking, seen_of
from klamm.pipeline.rules.judgement_plan import in_order, needed, prepare
from klamm.pipeline.rules.record import JUDGED_COLUMNS, JUDGED_SCHEMA, Rule, View, with_names
from klamm.pipeline.spark.session import with_settings
from klamm.pipeline.spark.settings import SHUFFLE_PARTITIONS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEPT = 1000
"""Number of violations of one rule in one run that are named; all are counted."""

PARTITION_ROWS = 1_000_000
"""The most rows of a partition on average: to sort a million takes some hundred megabytes."""

JOBS_AT_ONCE = 3
"""One more than a small machine has cores, because some jobs wait for Python's workers."""

INPUTS_READ = {"headers", "events"}
"""The views of silver that say which inputs a run has."""

FAMILIES = (
    "traffic", "frames.peers", "contents", "controller_views", "wire", "answers", "controller", "decisions", "elections", "leadership",
    "reassignment", "logs.calls", "logs.rules", "groups.calls", "groups.rules", "transactions.calls", "transactions.rules", "clients",
    "frames.bodies", "frames.clients", "frames.fetches", "frames.producers", "frames.member_epochs", "frames.answers",
)
"""Modules of this package that have `RULES`, or `VIEWS` that are prepared for rules, or both."""


class Row(NamedTuple):
    """A row of the journal of a broker."""

    node_id: int
    seq: int


class Verdict(NamedTuple):
    """One violation."""

    run_id: str
    rule: str
    severity: str
    node_id: int
    conn_id: int | None
    seq: int
    detail: str
    evidence: list[Row]
    """The rows that prove it, in the order in which a reader should look at them."""


class Stat(NamedTuple):
    """The counts of one rule in one run. If `checked` is 0, the rule was not exercised."""

    run_id: str
    rule: str
    checked: int
    violated: int
    lacks: str = ""
    """What the journals do not show and the rule needs, in words: it is not applicable. Empty if it is."""


class Reader(NamedTuple):
    """Other work that reads the same views; it is called when they are ready."""

    inputs: Collection[str]
    work: Callable[[], None]


Begin = Callable[[int], Callable[[], None]]
"""Called with the number of steps of a judgement; what it returns is called after each step, from several threads."""


def no_steps(steps: int) -> Callable[[], None]:
    """Nobody wants to know how far a judgement is."""
    return lambda: None


class Judgement(NamedTuple):
    """The verdicts of some rules on some runs."""

    stats: list[Stat]
    verdicts: list[Verdict]
    """At most `KEPT` per rule and run."""

    def violations(self, severity: str | None = None) -> int:
        """How many there are, of one severity or of all."""
        known = rules()
        return sum(stat.violated for stat in self.stats if severity in (None, known[stat.rule].severity))

    def of(self, run: str, part: str | None = None) -> Judgement:
        """Those of one part, or of all, as verdicts on this run."""
        return Judgement(
            [one._replace(run_id=run) for one in self.stats if part in (None, one.run_id)],
            [one._replace(run_id=run) for one in self.verdicts if part in (None, one.run_id)],
        )

    def by(self, chosen: Collection[str]) -> Judgement:
        """The verdicts of these rules."""
        return Judgement([one for one in self.stats if one.rule in chosen], [one for one in self.verdicts if one.rule in chosen])


def rules() -> dict[str, Rule]:
    """All rules, by id, in the order of the pages."""
    return {rule.id: rule for family in FAMILIES for rule in getattr(_module(family), "RULES", ())}


def views(window: Window | None = None) -> dict[str, View]:
    """All prepared views, by name, with values for their parameters."""
    return {name: replace(view, sql=filled(view.sql, window)) for name, view in views_as_written().items()}


def views_as_written() -> dict[str, View]:
    """All prepared views, by name, with their parameters."""
    return {view.name: view for family in FAMILIES for view in getattr(_module(family), "VIEWS", ())}


def read_by(judging: Iterable[Rule]) -> set[str]:
    """The names of all views that these rules read, directly or not."""
    return set(needed(views(), {name for rule in judging for name in rule.reads}))


def _module(family: str) -> Any:
    return importlib.import_module(f"klamm.pipeline.rules.{family}")


def judge_lake(
    spark: SparkSession,
    lake: Lake,
    runs: Sequence[str],
    chosen: Iterable[Rule] | None = None,
    readers: Sequence[Reader] = (),
    window: Window | None = None,
    begin: Begin = no_steps,
) -> Judgement:
    """Judge these runs of a lake by all rules or the chosen ones, and do other work on the same views.

    With `window` the one run is judged within it, and the judgement has the names of its parts in place of the run.
    """
    judging = list(rules().values() if chosen is None else chosen)
    read = (read_by(judging) | INPUTS_READ).union(*(reader.inputs for reader in readers))
    empty = spark_views.views(spark, lake, runs, read, window)
    names = runs if window is None else [part.name for part in window.parts]
    largest = max(spark_views.rows_seen(lake, table, runs, window) for table in SILVER)
    partitions = max(int(spark.conf.get(SHUFFLE_PARTITIONS) or 0), -(-largest // PARTITION_ROWS))
    with with_settings(spark, {SHUFFLE_PARTITIONS: str(partitions)}):
        return judge(spark, names, judging, empty, readers, window, begin)


def judge_runs(lake: Lake, runs: Sequence[str], judge_some: Callable[[Sequence[str], Window | None], Judgement]) -> Judgement:
    """Judge these runs of a lake; a run that goes on for long is judged one window after another."""
    judged, whole = [], []
    for run in runs:
        cut = [judge_some([run], window).of(run) for window in windows(lake, run, None)]
        judged += cut
        if not cut:
            whole.append(run)
    if whole:
        judged.append(judge_some(whole, None))
    return together(judged)


def judge(
    spark: SparkSession,
    runs: Sequence[str],
    chosen: Iterable[Rule] | None = None,
    empty: Collection[str] = (),
    others: Sequence[Reader] = (),
    window: Window | None = None,
    begin: Begin = no_steps,
) -> Judgement:
    """Judge what the session's views hold (`views`), which are the rows of `runs`, by all rules or the chosen ones.

    `empty` are views that have no row: queries that only look at the rows of one are left out.
    """
    judging = list(rules().values() if chosen is None else chosen)
    known = views(window)
    none = set(empty)
    jobs = _jobs([part for rule in judging for part in rule.parts])
    seen: list[tuple[str, str]] = []
    others = [*others, Reader((SEEN_INPUTS.name,), lambda: seen.extend(map(tuple, spark.table(SEEN_INPUTS.name).collect())))]
    inputs = [{name for rule in job for name in rule.reads} for job in jobs] + [set(other.inputs) for other in others]
    graph: dict[str | int, Collection[str]] = dict(enumerate(inputs))
    graph.update(needed(known, {name for names in graph.values() for name in names}))
    judged = [Judgement([Stat(run, rule.id, 0, 0) for rule in judging for run in runs], [])]
    end_step = begin(len(graph))

    def work(node: str | int) -> None:
        if isinstance(node, str):
            if node in known:
                prepare(spark, known[node], none)
        elif node >= len(jobs):
            others[node - len(jobs)].work()
        else:
            judged.append(_judged(spark, [rule for rule in jobs[node] if rule.counts or rule.about not in none], window))
        end_step()

    in_order(graph, work, JOBS_AT_ONCE)
    return applicable(together(judged), seen_of(seen))


def applicable(judged: Judgement, seen: Seen) -> Judgement:
    """A judgement without the verdicts of rules for which a run lacks something, which its counts say instead."""
    by_run = functools.cache(lambda run: seen.get(run.removesuffix(FINAL), frozenset()))
    stats = [
        Stat(one.run_id, one.rule, 0, 0, lacks) if (lacks := lacking(one.rule, by_run(one.run_id))) else one for one in judged.stats
    ]
    verdicts = [one for one in judged.verdicts if not lacking(one.rule, by_run(one.run_id))]
    return Judgement(stats, verdicts)


def together(judged: Iterable[Judgement]) -> Judgement:
    """One judgement of several: the counts of a rule in a run are summed up."""
    sums: dict[tuple[str, str], Stat] = {}
    verdicts: list[Verdict] = []
    for one in judged:
        verdicts += one.verdicts
        for stat in one.stats:
            before = sums.get(stat[:2], stat._replace(checked=0, violated=0))
            lacks = stat.lacks and before.lacks  # what was applicable in a part of a run is applicable
            sums[stat[:2]] = Stat(*stat[:2], before.checked + stat.checked, before.violated + stat.violated, lacks)
    return in_order_of_place(sums.values(), verdicts)


def in_order_of_place(stats: Iterable[Stat], verdicts: Iterable[Verdict]) -> Judgement:
    """A judgement that lists them by run, rule and place."""

    def place(one: Verdict) -> tuple[object, ...]:
        return one.run_id, one.rule, one.node_id, one.seq, one.detail, one.evidence

    return Judgement(sorted(stats), sorted(verdicts, key=place))


def _jobs(judging: Sequence[Rule]) -> list[list[Rule]]:
    """The parts of rules, grouped by the views that they read; those that wait for Python's workers come first."""
    jobs: dict[tuple[str, ...], list[Rule]] = {}
    for rule in sorted(judging, key=lambda rule: rule.tried is None):
        key = (rule.id,) if rule.tried is not None else ("", rule.rows.view) if rule.rows is not None else tuple(sorted(rule.inputs))
        jobs.setdefault(key, []).append(rule)
    return list(jobs.values())


def _judged(spark: SparkSession, job: Sequence[Rule], window: Window | None) -> Judgement:
    """The counts of these rules in each run in which they were exercised, and what they found wrong."""
    judged = Judgement([], [])
    if not job:
        return judged
    for rule in job:
        if rule.tried is not None:
            spark.sql(rule.tried.sql).mapInArrow(rule.tried.function, JUDGED_SCHEMA).createOrReplaceTempView(_view_of(rule))
    counted = _counted(spark, job, window)
    violated = {row["rule"] for row in counted if row["violated"]}
    named = _violations(spark, [rule for rule in job if rule.id in violated], window) if violated else {}
    severities = {rule.id: rule.severity for rule in job}
    for row in counted:
        run, rule = row["run_id"], row["rule"]
        judged.stats.append(Stat(run, rule, row["checked"], row["violated"]))
        judged.verdicts.extend(verdict(run, rule, severities[rule], **one) for one in named.get((run, rule), ()))
    return judged


def verdict(
    run: str, rule: str, severity: str, *, node_id: int, conn_id: int | None, seq: int, detail: str,
    evidence: Sequence[Mapping[str, int]] | None,
) -> Verdict:
    """A violation as a query found it."""
    rows = [Row(**each) for each in evidence or ()]
    return Verdict(run, rule, severity, node_id, conn_id, seq, with_names(detail), rows)


def _counted(spark: SparkSession, job: Sequence[Rule], window: Window | None) -> list[dict[str, Any]]:
    """A row for each rule and run in which it was exercised: run_id, rule, checked, violated."""
    by_row = [(rule, rule.rows) for rule in job if rule.rows is not None]
    if len(by_row) == len(job):
        counts = "".join(
            f", count_if({rows.looked}) AS checked_{number}, count_if(({rows.looked}) AND ({rows.detail}) IS NOT NULL) AS violated_{number}"
            for number, (_, rows) in enumerate(by_row)
        )
        place, where = ("run_id", "") if window is None else (window.place, f" WHERE {window.judged}")
        joins = " ".join(dict.fromkeys(join.sql for _, rows in by_row for join in rows.joins))
        source = f"{by_row[0][1].view} {joins}{where}"
        found = spark.sql(f"SELECT {place} AS run_id{counts} FROM {source} GROUP BY {place}").toArrow().to_pylist()
        return [
            {"run_id": row["run_id"], "rule": rule.id, "checked": row[f"checked_{number}"], "violated": row[f"violated_{number}"]}
            for row in found for number, (rule, _) in enumerate(by_row) if row[f"checked_{number}"]
        ]
    queries = [f"SELECT run_id, rule, count(*) AS checked, count(detail) AS violated FROM ({_rows_of(job, window)}) GROUP BY run_id, rule"]
    # What rules about bodies looked at is counted besides: their rows are violations, each checked already.
    queries += [f"SELECT run_id, '{rule.id}' AS rule, checked, 0 AS violated FROM ({checked_query(rule)})" for rule in job if rule.counts]
    sums: dict[tuple[str, str], dict[str, Any]] = {}
    of_bodies = {rule.id for rule in job if rule.counts}
    for row in spark.sql(" UNION ALL ".join(queries)).toArrow().to_pylist():
        row["checked"] *= row["violated"] == 0 or row["rule"] not in of_bodies
        total = sums.setdefault((row["run_id"], row["rule"]), {**row, "checked": 0, "violated": 0})
        total["checked"] += row["checked"]
        total["violated"] += row["violated"]
    return list(sums.values())


def checked_query(rule: Rule) -> str:
    """SQL: how many bodies a rule looked at in each run, or part of a run."""
    return f"SELECT part AS run_id, CAST(sum(decoded) AS BIGINT) AS checked FROM body_counts WHERE {rule.counts} GROUP BY part"


def _violations(spark: SparkSession, job: Sequence[Rule], window: Window | None) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """(run, rule) → the first violations."""
    named = spark.sql(
        f"""SELECT run_id, rule, found FROM (
            SELECT run_id, rule, struct(node_id, seq, detail, conn_id, evidence) AS found,
                row_number() OVER (PARTITION BY rule, run_id ORDER BY node_id, seq, detail) AS nth
            FROM ({_rows_of(job, window)}) WHERE detail IS NOT NULL)
        WHERE nth <= {KEPT}"""
    )
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in named.toArrow().to_pylist():
        found.setdefault((row["run_id"], row["rule"]), []).append(row["found"])
    return found


def _rows_of(job: Sequence[Rule], window: Window | None) -> str:
    """SQL: what these rules looked at."""
    sources = [(rule, f"({rule.query})") for rule in job if rule.query]
    sources += [(rule, _view_of(rule)) for rule in job if rule.tried is not None]
    columns, where = ", ".join(JUDGED_COLUMNS[:-1]), ""
    if window is not None:
        columns, where = f"{window.place} AS run_id, {', '.join(JUDGED_COLUMNS[1:-1])}", f" WHERE {window.judged}"
    return " UNION ALL ".join(
        f"SELECT '{rule.id}' AS rule, {columns}, {rule.proof} AS evidence FROM {source}{where}" for rule, source in sources
    )


def _view_of(rule: Rule) -> str:
    return f"judged_{rule.id.replace('-', '_').lower()}"
