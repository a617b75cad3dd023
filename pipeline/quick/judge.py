"""Judges the rows of a database by the rules: the queries of `pipeline/rules`, executed by DuckDB.

A view is a table that is made before the first rule that reads it and dropped after the last one. Rules and views without anything to look
at are left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from functools import cache

import duckdb
import pyarrow as pa

from klamm.pipeline.lake.windows import Window
from klamm.pipeline.quick.translations import translations
from klamm.pipeline.rules import runner
from klamm.pipeline.rules.contents import SEEN_INPUTS, lacking, seen_of
from klamm.pipeline.rules.judgement_plan import needed
from klamm.pipeline.rules.record import JUDGED_SCHEMA, Need, Rule
from klamm.pipeline.rules.runner import KEPT, Begin, Judgement, Reader, Stat, no_steps, verdict

_TYPES = {"string": "VARCHAR", "int": "INTEGER", "bigint": "BIGINT"}
_COLUMNS = {name: _TYPES[kind] for name, kind in (column.split(" ") for column in JUDGED_SCHEMA.split(", ")[:-1])}


class TableContents:
    """What the tables of silver contain."""

    def __init__(self, database: duckdb.DuckDBPyConnection, window: Window | None = None) -> None:
        self._database, self._is_whole = database, window is None
        self._holds = cache(self._look)

    def lacks(self, needs: Collection[Need]) -> bool:
        """None of them holds, and there are some. Of a window it is not known: of the time before, some tables have rows, not all."""
        return self._is_whole and bool(needs) and not any(map(self._holds, needs))

    def _look(self, need: Need) -> bool:
        condition = f"contains({need.column}, ?)" if need.part else f"list_contains(?, {need.column})"
        value = need.part or sorted(need.values)
        return self._database.execute(f"SELECT 1 FROM {need.table} WHERE {condition} LIMIT 1", [value]).fetchone() is not None


def judge(
    database: duckdb.DuckDBPyConnection,
    runs: Sequence[str],
    chosen: Iterable[Rule] | None = None,
    contents: TableContents | None = None,
    others: Sequence[Reader] = (),
    window: Window | None = None,
    begin: Begin = no_steps,
) -> Judgement:
    """Judge the rows of a database, which are those of `runs`, by all rules or the chosen ones, and do other work on the same views.

    With `window` the one run is judged within it, and the judgement has the names of its parts in place of the run.
    `begin` is called with the number of steps.
    """
    judging = list(runner.rules().values() if chosen is None else chosen)
    names = runs if window is None else [part.name for part in window.parts]
    judged = [Judgement([Stat(name, rule.id, 0, 0) for rule in judging for name in names], [])]
    contents = TableContents(database, window) if contents is None else contents
    parts = [part for rule in judging for part in rule.parts]
    exercised = [rule for rule in parts if not contents.lacks(rule.needs) and not contents.lacks(_needs_of(rule.about))]
    views = Views(database, window, [(SEEN_INPUTS.name,), *(other.inputs for other in others), *(rule.reads for rule in exercised)])
    end_step = begin(len(others) + len(exercised))
    views.make([SEEN_INPUTS.name])
    seen = seen_of(database.execute(f"SELECT run_id, input FROM {SEEN_INPUTS.name}").fetchall())
    views.release([SEEN_INPUTS.name])
    for other in others:
        views.make(other.inputs)
        other.work()
        views.release(other.inputs)
        end_step()
    for rule in exercised:
        end_step()
        if all(lacking(rule.id, seen.get(run, frozenset())) for run in runs):
            views.release(rule.reads)
            continue
        views.make(rule.reads)
        if rule.counts:
            counted = database.execute(translations().of(runner.checked_query(rule))).fetchall()
            judged.append(Judgement([Stat(run, rule.id, checked, 0) for run, checked in counted], []))
        if not rule.about or database.execute(f"SELECT 1 FROM {rule.about} LIMIT 1").fetchall():
            judged.append(_judged(database, rule, window))
        views.release(rule.reads)
    return runner.applicable(runner.together(judged), seen)


def _needs_of(name: str) -> tuple[Need, ...]:
    view = runner.views_as_written().get(name)
    return () if view is None else view.needs


class Views:
    """The prepared views that rules read, as tables."""

    def __init__(self, database: duckdb.DuckDBPyConnection, window: Window | None, reading: Iterable[Collection[str]]) -> None:
        """`reading` has the names that each reader reads; those that are no prepared views are tables."""
        self._database, self._window = database, window
        self._known = runner.views_as_written()
        self._made: set[str] = set()
        names = [name for each in reading for name in each]
        self._readers = Counter(names)
        for name in needed(self._known, names):
            if name in self._known:
                self._readers.update(self._known[name].inputs)

    def make(self, names: Collection[str]) -> None:
        """Make these views, and before them those that they read."""
        for name in names:
            view = self._known.get(name)
            if view is not None and name not in self._made:
                self.make(view.inputs)
                self._database.execute(f"CREATE TABLE {name} AS {translations().filled(view.sql, self._window)}")
                self._made.add(name)
                self.release(view.inputs)

    def release(self, names: Collection[str]) -> None:
        """One reader of these views is done."""
        for name in names:
            self._readers[name] -= 1
            if self._readers[name] == 0 and name in self._made:
                self._database.execute(f"DROP TABLE {name}")


def _judged(database: duckdb.DuckDBPyConnection, rule: Rule, window: Window | None) -> Judgement:
    """The counts of a part of a rule in each run in which it was exercised, and its violations."""
    sources = [translations().of(rule.query)] if rule.query else []
    if rule.tried is not None:
        rows = database.sql(translations().of(rule.tried.sql)).to_arrow_reader(10_000)
        tried = list(rule.tried.function(iter(rows)))
        if tried:
            database.register("tried", pa.Table.from_batches(tried))
            sources.append("SELECT * FROM tried")
    judged = Judgement([], [])
    if not sources:
        return judged
    proof = f"CAST({translations().of(f'SELECT {rule.proof}').removeprefix('SELECT ')} AS STRUCT(node_id INTEGER, seq BIGINT)[])"
    place, where = ("run_id", "") if window is None else (window.place, f" WHERE {window.judged}")
    columns = ", ".join(f"CAST({place if name == 'run_id' else name} AS {kind}) AS {name}" for name, kind in _COLUMNS.items())
    looked_at = " UNION ALL ".join(f"SELECT {columns}, {proof} AS evidence FROM ({source}){where}" for source in sources)
    database.execute(f"CREATE OR REPLACE TABLE judged AS {looked_at}")
    counted = database.execute("SELECT run_id, count(*), count(detail) FROM judged GROUP BY run_id").fetchall()
    judged.stats.extend(Stat(run, rule.id, 0 if rule.counts else checked, violated) for run, checked, violated in counted)
    if any(stat.violated for stat in judged.stats):
        named = database.execute(
            f"""SELECT * FROM judged WHERE detail IS NOT NULL
            QUALIFY row_number() OVER (PARTITION BY run_id ORDER BY node_id, seq, detail) <= {KEPT}"""
        )
        judged.verdicts.extend(
            verdict(run, rule.id, rule.severity, node_id=node, conn_id=conn, seq=seq, detail=detail, evidence=evidence)
            for run, node, conn, seq, detail, evidence in named.fetchall()
        )
    return judged
