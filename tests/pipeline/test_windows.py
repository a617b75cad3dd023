"""A run that goes on: each run of the pipeline costs what is new, and the verdicts are those of the whole."""

from __future__ import annotations

import shutil
from pathlib import Path

import duckdb

from klamm.pipeline.check import check
from klamm.pipeline.lake import delta_log
from klamm.pipeline.lake.sql_views import statements
from klamm.pipeline.lake.tables import API_MATRIX, CLIENT_SCORECARD, GOLD, LATENCY, RULE_STATS, VERDICTS
from klamm.pipeline.report.facts import collect
from klamm.pipeline.report.source import source
from klamm.pipeline.rules.check import Checked
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.tests.journal.writing import TinyJournal, simple_exchange
from klamm.tests.pipeline.both_engines import assert_quick_agrees
from klamm.tests.pipeline.journals import no_session, query, run_here
from klamm.tests.pipeline.rule_journals.group_journals import GroupJournal, assignment
from klamm.tests.pipeline.rule_journals.transaction_journals import TransactionJournal
from klamm.tests.pipeline.rules.fixtures import Run

HALF_A_MINUTE = 30_000_000_000


def exchanges(tiny: TinyJournal, count: int) -> None:
    """A request and its response each minute."""
    for _ in range(count):
        simple_exchange(tiny)


def disorder(tiny: TinyJournal) -> None:
    """Two responses in the wrong order."""
    asked = [tiny.request(7, ApiKey.METADATA, 12, messages.MetadataRequest()) for _ in range(2)]
    for seq in reversed(asked):
        tiny.response(7, seq, messages.MetadataResponse())


def judged(lake: Path) -> tuple[int, int, list[int]]:
    """Of rule W-01: checked, violated, and the rows; as stored, which are the verdicts of the quick judge."""
    found: Checked = check(lake, no_session)
    assert_quick_agrees(lake, found.runs, found.judgement)
    stat = found.stat("r", "W-01")
    return stat.checked, stat.violated, [one.seq for one in found.judgement.verdicts if one.rule == "W-01"]


def finals(lake: Path) -> dict[tuple[str, str], str]:
    """Table and batch of final parts of gold → their file."""
    entries = [entry for table in GOLD for entry in delta_log.entries(lake, table.path)]
    return {(entry.table, entry.batch): entry.path for entry in entries if "-" in entry.batch}


def test_verdicts_of_windows_that_are_over_are_final_and_add_up(tmp_path: Path) -> None:
    tiny = TinyJournal(tmp_path, "r")
    tiny.step_ns = HALF_A_MINUTE
    tiny.event("broker_started")
    exchanges(tiny, 30)
    disorder(tiny)
    exchanges(tiny, 120)
    tiny.roll()
    run_here(tmp_path)
    assert judged(tmp_path) == (152, 1, [65])
    first = finals(tmp_path)
    assert {table for table, _ in first} >= {table.path for table in (RULE_STATS, VERDICTS, LATENCY, API_MATRIX, CLIENT_SCORECARD)}
    assert query(tmp_path, "gold/latency", "sum(count)::int, count(DISTINCT coalesce(window_ts_ns, 0))") == [(152, 2)]

    exchanges(tiny, 20)
    disorder(tiny)
    exchanges(tiny, 40)
    tiny.roll()
    run_here(tmp_path)
    assert judged(tmp_path) == (214, 2, [65, 349])
    second = finals(tmp_path)
    assert first.items() < second.items()
    assert query(tmp_path, "gold/api_matrix", "sum(responses)::int, sum(requests)::int") == [(214, 214)]

    shutil.rmtree(tmp_path / "gold")
    assert check(tmp_path, no_session).judgement == check(tmp_path, no_session).judgement
    assert judged(tmp_path) == (214, 2, [65, 349])
    tiny.close()


def test_final_parts_are_made_again_when_other_rows_came_late(tmp_path: Path) -> None:
    tiny = TinyJournal(tmp_path, "r")
    tiny.step_ns = HALF_A_MINUTE
    exchanges(tiny, 150)
    tiny.close()
    run_here(tmp_path)
    before = finals(tmp_path)
    late = TinyJournal(tmp_path, "r", 2)
    disorder(late)
    late.close()
    run_here(tmp_path)
    assert judged(tmp_path) == (152, 1, [4])
    verdicts = {place for place in finals(tmp_path) if place[0] == VERDICTS.path}  # without rows they have no file
    assert before.keys() | verdicts == finals(tmp_path).keys()
    assert not set(before.values()) & set(finals(tmp_path).values())
    assert delta_log.rows(tmp_path, "gold/verdicts") == 1


def test_a_generation_and_a_transaction_that_outlast_windows_are_in_the_one_in_which_they_end(tmp_path: Path) -> None:
    run = Run(tmp_path, "r")
    group, transactions = GroupJournal(run), TransactionJournal(run)
    journal, both = group.journal, assignment({"t": [0, 1]})
    journal.step_ns = HALF_A_MINUTE
    group.session_ms = 3_600_000  # the member sends nothing for an hour
    group.join("a", 1, "a", ("a",))
    group.sync("a", 1, both, {"a": both})
    group.commit("a", 1, 7)
    transactions.init(0)
    transactions.add(0, 1)
    exchanges(journal, 150)
    journal.roll()
    run_here(tmp_path)
    generations, ends = "generation, synced, partitions, to_ts_ns IS NULL", "producer_epoch, partitions, outcome"
    assert query(tmp_path, "gold/group_generations", generations) == [(1, 1, 2, True)]
    assert query(tmp_path, "gold/transactions", ends) == [(0, "t-1", None)]
    assert lasting(tmp_path) == {"group_generations": [False], "transactions": [False]}

    group.commit("a", 1, 8)
    group.join("a", 2, "a", ("a",))
    transactions.end(0)
    transactions.add(0, 2)
    exchanges(journal, 150)
    journal.roll()
    run_here(tmp_path)
    assert sorted(query(tmp_path, "gold/group_generations", generations)) == [(1, 1, 2, False), (2, 0, None, True)]
    assert sorted(query(tmp_path, "gold/transactions", ends)) == [(0, "t-1", "commit"), (0, "t-2", None)]
    assert lasting(tmp_path) == {"group_generations": [True, False], "transactions": [True, False]}
    before = finals(tmp_path)

    transactions.init(2)  # another producer of the same name
    exchanges(journal, 150)
    run.close()
    run_here(tmp_path)
    assert sorted(query(tmp_path, "gold/group_generations", generations)) == [(1, 1, 2, False), (2, 0, None, True)]
    assert sorted(query(tmp_path, "gold/transactions", ends)) == [(0, "t-1", "commit"), (0, "t-2", "fenced")]
    assert before.items() < finals(tmp_path).items()
    assert {entry.batch for entry in delta_log.entries(tmp_path, "gold/transactions")}.isdisjoint({"gold"})  # none goes on
    with duckdb.connect() as database:
        for each in statements(tmp_path, "duckdb"):
            database.execute(each)
        assert database.execute("SELECT generation, commits FROM generations ORDER BY generation").fetchall() == [(1, 2), (2, 0)]
    with source(tmp_path) as given:
        assert given.engine == "from the tables of the lake"
        shown = {row["generation"]: row["commits"] for row in collect(given).generations}
    assert shown == {1: 2, 2: 0}


def lasting(lake: Path) -> dict[str, list[bool]]:
    """Of the parts with generations and with transactions: whether they are final."""
    tables = ("group_generations", "transactions")
    found = {name: [one for one in delta_log.entries(lake, f"gold/{name}") if one.rows] for name in tables}
    return {name: sorted((one.batch != "gold" for one in entries), reverse=True) for name, entries in found.items()}
