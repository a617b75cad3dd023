"""Without Spark every rule judges all fixtures as with it. A rule whose SQL DuckDB cannot execute fails here."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import duckdb
import pytest

from klamm.controller.event_loop.decision_json import input_json, output_json
from klamm.journal.reading import segments
from klamm.pipeline.quick import tables
from klamm.pipeline.quick.judge import TableContents, judge
from klamm.pipeline.rules import runner
from klamm.pipeline.rules.decisions import difference
from klamm.pipeline.rules.record import Need
from klamm.pipeline.rules.runner import Judgement
from klamm.protocol.nouns import TopicPartition
from klamm.tests.pipeline.evidence_parts import lacking
from klamm.tests.pipeline.in_duckdb import silver
from klamm.tests.pipeline.rules.fixtures import FIXTURES, Fixture
from klamm.tests.pipeline.rules.fixtures_decisions import RULE, SITUATION


class Whatever(TableContents):
    """Contents that lack nothing."""

    def lacks(self, needs: Collection[Need]) -> bool:
        return False


Flagged = dict[str, frozenset[tuple[int, int]]]
"""Run id → (node id, seq) that its rule must flag."""


@pytest.fixture(scope="module")
def fixtures(tmp_path_factory: pytest.TempPathFactory) -> tuple[duckdb.DuckDBPyConnection, Flagged]:
    """Silver of all fixtures of this directory's neighbour."""
    lake = tmp_path_factory.mktemp("rules")
    flagged = {fixture.run_id: fixture.into(lake) for fixture in FIXTURES.values()}
    return silver(lake), flagged


@pytest.fixture(scope="module")
def quick_judgement(fixtures: tuple[duckdb.DuckDBPyConnection, Flagged]) -> Judgement:
    return judge(fixtures[0], sorted(FIXTURES), contents=Whatever(fixtures[0]))


@pytest.mark.parametrize("rule", runner.rules())
def test_a_rule_flags_the_rows_that_break_it_and_no_others(
    rule: str, quick_judgement: Judgement, fixtures: tuple[duckdb.DuckDBPyConnection, Flagged]
) -> None:
    judgement = quick_judgement.by([rule])
    checked = {stat.run_id: stat.checked for stat in judgement.stats}

    def found(fixture: Fixture) -> set[tuple[int, int]]:
        return {(one.node_id, one.seq) for one in judgement.verdicts if one.run_id == fixture.run_id}

    for fixture in FIXTURES.values():
        if fixture.rule == rule:
            assert found(fixture) == fixtures[1][fixture.run_id], fixture.run_id
            assert (checked[fixture.run_id] > 0) == (fixture.kind != "silent"), f"{fixture.run_id}: what is checked"
        elif rule not in fixture.also:
            assert not found(fixture), f"{fixture.run_id}: another rule"
    assert all(isinstance(seq, int) for verdict in judgement.verdicts for row in verdict.evidence for seq in row)


ALONE = (
    "C-01-bad-a_leader_without_leader_epoch",
    "C-02-bad-a_leader_is_outside_an_isr_that_it_was_refused",
    "C-02-bad-the_isr_has_a_stranger",
    "C-02-bad-the_leader_is_not_in_the_isr",
    "C-05-bad-a_creation_has_version_1",
    "C-05-bad-a_write_skips_a_version",
    "C-06-bad-a_recovering_leader_has_company",
    "C-07-silent-who_leads_outside_of_the_isr_is_not_elected_again",
    "C-20-bad-leader_and_isr_goes_to_a_stranger",
    "C-20-bad-no_update_metadata_follows",
    "K-01",
    "K-03",
    "R-04-bad-a_replica_that_is_added_is_missing",
    "R-04-bad-the_origin_comes_first",
    "R-04-bad-the_origin_comes_first_in_what_the_controller_remembers",
    "T-01-silent-an_id_is_not_known_if_a_leader_of_the_transaction_topic_has_no_journal",
    "T-06-bad-a_transaction_is_left_open",
    "W-03-bad-a_request_is_forgotten",
    "W-05-bad-a_connection_stays_open_after_garbage",
    "W-08-bad-a_length_that_is_wrong",
)
"""Fixtures and rules in which one row contradicts itself, or what should follow it never comes."""


def test_every_violation_shows_what_contradicts_with_names(
    quick_judgement: Judgement, fixtures: tuple[duckdb.DuckDBPyConnection, Flagged]
) -> None:
    assert not (parts := lacking(fixtures[0], quick_judgement.verdicts, ALONE)), "\n".join(parts)
    alone = {name for one in quick_judgement.verdicts if len(one.evidence) == 1 for name in (one.run_id, one.rule)}
    assert set(ALONE) <= alone, "what has two rows needs no exception"


@pytest.mark.parametrize(
    ("fixture", "rows"),
    [
        ("C-03-bad-a_former_controller_is_obeyed", [(1, 1), (1, 3), (1, 4)]),
        ("C-06-bad-a_leader_recovers_and_keeps_its_company", [(1, 1), (1, 3)]),
        ("C-16-bad-metadata_shows_another_cluster", [(1, 4), (1, 1), (1, 5), (1, 6)]),
        ("C-23-bad-a_coordinator_leads_no_more", [(1, 6), (1, 8), (1, 9)]),
        ("D-01-bad-another_leader_was_written", [(1, 1), (1, 2)]),
        ("E-01-bad-the_leader_is_told_again_in_the_same_leader_epoch", [(1, 4), (1, 6), (1, 7), (1, 9)]),
        ("R-01-bad-throttles_outlive_the_last_reassignment", [(1, 6), (1, 19)]),
        ("R-04-bad-the_origin_still_comes_first", [(1, 1), (1, 3)]),
        ("R-04-bad-the_controller_remembers_that_the_origin_comes_first", [(1, 1), (1, 2)]),
        ("T-01-bad-a_commit_marker_for_a_transaction_that_was_aborted", [(1, 15), (2, 11), (2, 12)]),
        ("T-06-bad-an_aborted_transaction_is_committed", [(1, 2), (1, 4)]),
        ("T-06-bad-a_transaction_whose_end_was_decided_is_left_open", [(1, 1), (1, 2)]),
        ("W-02-bad-a_version_above_what_is_advertised", [(1, 1), (1, 2), (1, 3)]),
        ("W-03-bad-a_request_is_answered_twice", [(1, 3), (1, 4), (1, 5)]),
        ("X-04-bad-a_client_goes_on_with_old_metadata", [(1, 5), (1, 6)]),
    ],
)
def test_evidence_has_the_row_that_contradicts_as_well(fixture: str, rows: list[tuple[int, int]], quick_judgement: Judgement) -> None:
    found = [one.evidence for one in quick_judgement.by([FIXTURES[fixture].rule]).verdicts if one.run_id == fixture]
    assert found and all(evidence == rows for evidence in found)


@pytest.mark.parametrize(
    ("fixture", "detail"),
    [
        ("W-04-bad-versions_answered_with_every_api", "version 9: the answer is not the one entry of ApiVersions from 0 to 4"),
        (
            "W-05-bad-garbage_is_answered",
            "what is malformed (MetadataRequest 12: MetadataRequest.topics: 4 elements are more than its frame can hold) is answered",
        ),
        ("X-02-bad-a_client_does_not_wait", "client tiny sent 101 ms after an answer that asks for 500 ms"),
        ("X-04-bad-a_client_goes_on_with_old_metadata", "client tiny sends no request for metadata within 10 s of NOT_LEADER_OR_FOLLOWER"),
    ],
)
def test_a_detail_names_the_client_the_api_and_where_a_body_is_malformed(fixture: str, detail: str, quick_judgement: Judgement) -> None:
    assert detail in [one.detail for one in quick_judgement.by([FIXTURES[fixture].rule]).verdicts if one.run_id == fixture]


def test_what_a_rule_needs_is_there_wherever_it_was_exercised(
    quick_judgement: Judgement, fixtures: tuple[duckdb.DuckDBPyConnection, Flagged]
) -> None:
    assert judge(fixtures[0], sorted(FIXTURES)) == quick_judgement


@pytest.mark.slow
def test_spark_says_the_same_of_all_fixtures_and_faults(judgement: Judgement, flagged: tuple[Path, Flagged]) -> None:
    """Each count, each violation with its text, and its evidence."""
    with tables.opened("1g", str(flagged[0])) as database:
        tables.load(database, segments(flagged[0]))
        quick = judge(database, [*sorted(FIXTURES), "faults"])
    assert quick.stats == judgement.stats
    assert quick.verdicts == judgement.verdicts
    assert {stat.rule for stat in quick.stats if stat.violated} == set(runner.rules())


def test_a_decision_is_compared_with_what_the_rule_decides_again() -> None:
    given, decided = input_json(RULE, SITUATION, [TopicPartition("t", 0)]), output_json(RULE(SITUATION))
    assert difference(given, decided) is None
    assert difference(given, f" {decided} ") is None
    assert difference(None, decided) == "the decision has no input"
    for unreadable in ("{", given.replace('"ElectLeader"', '"ElectNobody"')):
        assert str(difference(unreadable, decided)).startswith("cannot be decided again: ")
    for other in (None, "{", decided.replace('"leader":2', '"leader":3')):
        assert difference(given, other) == f"decided {other}, and the rule says {decided}"
