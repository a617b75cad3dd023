"""Spark and DuckDB judge the same journals: what a test that has a judgement by Spark asks for."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from klamm.pipeline.lake.access.journals import journals
from klamm.pipeline.lake.tables import GOLD
from klamm.pipeline.quick.check import check_quickly
from klamm.pipeline.quick.run_tables import run_tables
from klamm.pipeline.report.reading import StoredTables
from klamm.pipeline.rules.runner import Judgement


def assert_quick_agrees(lake: Path, runs: Sequence[str], judgement: Judgement, rules: Collection[str] = ()) -> None:
    """Without Spark the same journals get the same counts, violations and evidence by these rules, or all."""
    quick = check_quickly(lake, runs=runs, chosen=tuple(rules), limit=None).judgement
    assert quick.stats == judgement.stats
    assert quick.verdicts == judgement.verdicts


def assert_same_tables(lake: Path, run: str) -> None:
    """Without Spark the journal of a run gives the same gold as the lake's, which Spark made."""
    stored = StoredTables(lake, run)
    with run_tables(lake, journals(lake).of([run]), run, "1g") as (made, _):
        for table in GOLD:
            found = (tables.read(table, table.names).to_pylist() for tables in (stored, made))
            by_spark, by_duckdb = (sorted(rows, key=repr) for rows in found)
            assert by_spark == by_duckdb, table.name
