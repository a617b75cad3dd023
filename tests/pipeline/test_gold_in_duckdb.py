"""Gold's queries in DuckDB: what each counts, and at which edges. That Spark runs them too is what test_gold.py shows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest

from klamm.journal.columns import Direction, Flag
from klamm.pipeline.gold_tables.queries import INPUTS, query_of
from klamm.pipeline.lake.tables import (
    API_MATRIX,
    CLIENT_SCORECARD,
    GROUP_GENERATIONS,
    LATENCY,
    LEADER_TIMELINE,
    OFFSET_COMMITS,
    REASSIGN_SPANS,
    TRANSACTIONS,
    Table,
)
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.tests.journal.writing import START_NS, TinyJournal
from klamm.tests.pipeline.in_duckdb import prepare, rows, silver
from klamm.tests.pipeline.leader_rows import leader
from klamm.tests.pipeline.rule_journals.group_journals import GroupJournal, assignment
from klamm.tests.pipeline.rule_journals.transaction_journals import TransactionJournal
from klamm.tests.pipeline.rules.fixtures import Run


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> duckdb.DuckDBPyConnection:
    folder = tmp_path_factory.mktemp("lake")
    with TinyJournal(folder, "r", 1) as journal:
        journal.event("advertised", input={"listener": "PLAINTEXT"}, output={"apis": [[3, 2, 11], [18, 0, 2]]})
        journal.event("advertised", input={"listener": "INTERNAL"}, output={"apis": [[3, 1, 10], [18, 0, 2]]})
        client = journal.connection(8, kind="accepted", client_id="app", client_sw="librdkafka/2")
        metadata = messages.encode(messages.MetadataRequest(), 11)
        for version in (1, 11, 12):
            asked = journal.request(client, ApiKey.METADATA, version, messages.MetadataRequest(topics=[]))
            journal.response(client, asked, messages.MetadataResponse(), latency_ns=version * 1000)
        journal.request(client, ApiKey.METADATA, 11, metadata + b"abc")  # with bytes left over
        journal.request(9, ApiKey.API_VERSIONS, 3, messages.ApiVersionsRequest(), client_id="app", client_sw="librdkafka/2")
        journal.request(9, ApiKey.METADATA, 0, messages.MetadataRequest(topics=[]), client_id="app", client_sw="librdkafka/2")
        journal.request(client, ApiKey.PRODUCE, 9, messages.ProduceRequest(), flags=Flag.NO_RESPONSE)
        asked = journal.request(client, ApiKey.METADATA, 11, messages.MetadataRequest(topics=[]))
        topic = messages.MetadataResponse.MetadataResponseTopic(error_code=3, name="t")
        journal.response(client, asked, messages.MetadataResponse(topics=[topic]), latency_ns=5_000)
        journal.request(client, ApiKey.METADATA, 11, b"\x01")
        sent = journal.request(7, ApiKey.METADATA, 11, messages.MetadataRequest(topics=[]), dir=Direction.REQUEST_OUT, client_id="app")
        journal.response(7, sent, messages.MetadataResponse(), latency_ns=70_000)
        for to, epoch, at_ns in ((-2, 0, 5), (1, 0, 20), (1, 0, 10), (1, 0, 15), (-1, 1, 30), (2, 2, 40), (-2, 0, 60), (1, 0, 70)):
            journal.request(
                7, ApiKey.UPDATE_METADATA, 8, leader(to, epoch), dir=Direction.REQUEST_OUT, kind="channel", ts_ns=START_NS + at_ns
            )
        cause = journal.event("controller_event", ts_ns=START_NS + 10)
        for kind, name, at_ns in (
            ("throttle_set", "t", 20), ("reassign_phase", "U", 20), ("throttle_removed", "other", 22), ("reassign_phase", "A1", 24),
            ("throttle_removed", "t", 25), ("reassign_phase", "A2", 30),
        ):
            if kind == "reassign_phase":
                phase = {"phase": name, "step": 1}
                journal.event(kind, topic="t", partition=0, output=phase, cause=cause, ts_ns=START_NS + at_ns)
            else:
                journal.event(kind, topic=name, cause=cause, ts_ns=START_NS + at_ns)
        journal.event("reassign_phase", topic="t", partition=0, output={"phase": "B1", "step": 2}, cause=cause, ts_ns=START_NS + 50)
    database = silver(folder)
    prepare(database, {name for of in (API_MATRIX, CLIENT_SCORECARD) for name in INPUTS[of]})
    return database


def table(lake: duckdb.DuckDBPyConnection, of: Table, *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in names) for row in rows(lake, query_of(of))]


def test_a_leader_lasts_from_when_it_was_first_told_until_the_next_one(lake: duckdb.DuckDBPyConnection) -> None:
    found = sorted(table(lake, LEADER_TIMELINE, "leader_epoch", "leader", "controller_epoch", "from_ts_ns", "to_ts_ns"))
    spans = [(epoch, to, term, first - START_NS, None if last is None else last - START_NS) for epoch, to, term, first, last in found]
    assert spans == [(0, 1, 3, 10, 30), (0, 1, 3, 70, None), (1, -1, 3, 30, 40), (2, 2, 3, 40, 60)]


def test_a_client_has_one_line_of_what_it_did_on_accepted_connections(lake: duckdb.DuckDBPyConnection) -> None:
    names = "connections", "requests", "responses", "no_response", "errors", "surplus", "quarantined", "apis"
    assert table(lake, CLIENT_SCORECARD, "client_id", *names) == [("app", 2, 9, 4, 1, 1, 1, 1, 3)]


def test_the_matrix_says_which_requests_are_outside_of_what_all_listeners_advertise(lake: duckdb.DuckDBPyConnection) -> None:
    names = "api_key", "api_version", "requests", "responses", "errors", "outside", "quarantined"
    assert sorted(table(lake, API_MATRIX, *names)) == [
        (0, 9, 1, 0, 0, 0, 0), (3, 0, 1, 0, 0, 1, 0), (3, 1, 1, 1, 0, 0, 0), (3, 11, 4, 2, 1, 0, 1), (3, 12, 1, 1, 0, 1, 0),
        (18, 3, 1, 0, 0, 0, 0),
    ]
    assert set(table(lake, API_MATRIX, "api_key", "api")) == {(0, "Produce"), (3, "Metadata"), (18, "ApiVersions")}


def test_latencies_are_those_of_responses_by_direction(lake: duckdb.DuckDBPyConnection) -> None:
    assert sorted(table(lake, LATENCY, "dir", "api", "count", "p50_ns", "max_ns")) == [
        (1, "Metadata", 4, 5000, 12000),
        (3, "Metadata", 1, 70000, 70000),
    ]


def test_a_phase_lasts_from_the_one_before_it_in_its_step_and_has_the_latest_throttle_of_its_topic(
    lake: duckdb.DuckDBPyConnection,
) -> None:
    found = sorted(table(lake, REASSIGN_SPANS, "seq", "phase", "from_ts_ns", "to_ts_ns", "throttle"))
    assert [(phase, began - START_NS, ended - START_NS, is_throttled) for _, phase, began, ended, is_throttled in found] == [
        ("U", 10, 20, True),
        ("A1", 20, 24, True),
        ("A2", 24, 30, False),
        ("B1", 10, 50, False),
    ]


Chapter = Callable[[GroupJournal], int | None]


def time_of(journal: GroupJournal, seq: int) -> int:
    return int(journal.journal.time_of(seq))


def last_leaves(group: GroupJournal) -> int:
    group.leave("a")
    return time_of(group, group.leave("b"))


def both_leave_at_once(group: GroupJournal) -> int:
    return time_of(group, group.leave("a", "b"))


def static_member_is_removed(group: GroupJournal) -> int:
    group.leave("a", version=1)
    return time_of(group, group.leave(instances=("i",)))


def sessions_expire(group: GroupJournal) -> int:
    """That of the last member: 6 s after its last good heartbeat."""
    group.leave("a")
    last = time_of(group, group.heartbeat("b"))
    group.journal.now_ns += 7_000_000_000
    group.heartbeat("b", error=25)
    return last + 6_000_000_000


def group_is_deleted(group: GroupJournal) -> int:
    group.delete(error=68)
    return time_of(group, group.delete())


def one_stays(group: GroupJournal) -> None:
    group.leave("a")
    group.leave("b", error=25)
    group.leave("c", version=0)
    group.heartbeat("b")
    group.journal.now_ns += 5_000_000_000
    group.heartbeat("stranger", error=25)


def member_waits_for_the_next_generation(group: GroupJournal) -> None:
    group.leave("a")
    group.ask_join("b", instance="i")
    group.journal.now_ns += 60_000_000_000
    group.heartbeat("stranger", error=25)


ENDINGS: dict[Chapter, bool] = {
    last_leaves: True, both_leave_at_once: True, static_member_is_removed: True, sessions_expire: True, group_is_deleted: True,
    one_stays: False, member_waits_for_the_next_generation: False,
}
"""What happens to a generation of members a and b, the latter with instance i, and whether it ends."""


@pytest.mark.parametrize("chapter", ENDINGS, ids=lambda chapter: chapter.__name__)
def test_a_generation_ends_when_the_group_has_no_members_any_more(tmp_path: Path, chapter: Chapter) -> None:
    run = Run(tmp_path, "r")
    group = GroupJournal(run)
    group.join("a", 1, "a", ("a", "b"))
    group.join("b", 1, "a", instance="i")
    ended = chapter(group)
    run.close()
    database = silver(tmp_path)
    prepare(database, INPUTS[GROUP_GENERATIONS])
    assert table(database, GROUP_GENERATIONS, "generation", "to_ts_ns") == [(1, ended)]
    assert (ended is not None) == ENDINGS[chapter]


def test_a_group_that_was_empty_meanwhile_has_a_gap_between_two_generations(tmp_path: Path) -> None:
    run = Run(tmp_path, "r")
    group = GroupJournal(run)
    group.join("a", 1, "a", ("a",))
    left = time_of(group, group.leave("a"))
    group.join("b", 3, "b", ("b",))
    run.close()
    database = silver(tmp_path)
    prepare(database, INPUTS[GROUP_GENERATIONS])
    assert sorted(table(database, GROUP_GENERATIONS, "generation", "to_ts_ns")) == [(1, left), (3, None)]


@pytest.fixture(scope="module")
def group_lake(tmp_path_factory: pytest.TempPathFactory) -> duckdb.DuckDBPyConnection:
    """Member a alone, then with b; a third generation in which nobody syncs."""
    folder = tmp_path_factory.mktemp("groups")
    run = Run(folder, "r")
    group = GroupJournal(run)
    both, first, second = (assignment({"t": partitions}) for partitions in ([0, 1, 2], [0], [1, 2]))
    group.join("a", 1, "a", ("a",))  # requests at 2 and 4 ms
    group.sync("a", 1, both, {"a": both})
    group.commit("a", 1, 7)
    group.join("b", 2, "a")  # at 8 ms
    group.join("a", 2, "a", ("a", "b"))
    group.sync("a", 2, first, {"a": first, "b": second})  # at 12 ms
    group.sync("b", 2, second)
    group.commit("a", 1, 8, 22)
    group.commit("", -1, 9, 25)
    group.join("a", 3, "a", ("a", "b"))  # at 20 ms
    run.close()
    database = silver(folder)
    prepare(database, {name for of in (GROUP_GENERATIONS, OFFSET_COMMITS) for name in INPUTS[of]})
    return database


def test_a_generation_has_its_members_from_their_requests_until_the_next_one(group_lake: duckdb.DuckDBPyConnection) -> None:
    names = "generation", "leader", "protocol", "members", "synced", "partitions"
    assert sorted(table(group_lake, GROUP_GENERATIONS, *names)) == [
        (1, "a", "range", 1, 1, 3), (2, "a", "range", 2, 2, 3), (3, "a", "range", 2, 0, None),
    ]
    times = sorted(table(group_lake, GROUP_GENERATIONS, "from_ts_ns", "joined_ts_ns", "stable_ts_ns", "to_ts_ns"))
    assert [tuple(each and (each - START_NS) // 1_000_000 for each in row) for row in times] == [
        (2, 3, 5, 9), (8, 9, 13, 21), (20, 21, None, None),
    ]


def test_commits_are_the_partitions_of_requests_with_their_codes(group_lake: duckdb.DuckDBPyConnection) -> None:
    names = "group_id", "member_id", "generation", "topic", "partition", "committed_offset", "error_code"
    assert table(group_lake, OFFSET_COMMITS, *names) == [
        ("g", "a", 1, "t", 0, 7, 0), ("g", "a", 1, "t", 0, 8, 22), ("g", "", -1, "t", 0, 9, 25),
    ]


def test_a_transaction_has_its_partitions_its_outcome_and_its_times(tmp_path: Path) -> None:
    run = Run(tmp_path, "r")
    tx = TransactionJournal(run)
    first = tx.init(0)
    tx.add(0, 1)
    tx.add(0, 0, 1)
    tx.add(0, 2, error=51)
    tx.end(0, error=51)
    tx.end(0)
    tx.end(0)  # once more: its response was lost
    tx.add_offsets(0)
    tx.end(0, False)
    tx.add(0, 3)
    tx.marker(1, 3, is_commit=False)
    tx.add(2, 4)
    tx.init(4)
    tx.add(4, 5)
    tx.marker(5, 5, is_commit=False)
    tx.add(6, 6)
    run.close()
    database = silver(tmp_path)
    prepare(database, set(INPUTS[TRANSACTIONS]))
    names = "producer_epoch", "partitions", "groups", "outcome"
    found = sorted(table(database, TRANSACTIONS, "seq", *names, "end_seq", "from_ts_ns", "end_ts_ns"))
    assert [row[1:5] for row in found] == [
        (0, "t-0, t-1", 0, "commit"), (0, "", 1, "abort"), (0, "t-3", 0, "fenced"), (2, "t-4", 0, "fenced"), (4, "t-5", 0, "fenced"),
        (6, "t-6", 0, None),
    ]
    times = [tuple(None if each is None else each - first for each in (row[0], row[5])) for row in found]
    assert times == [(1, 9), (13, 15), (17, None), (21, None), (25, None), (29, None)]
    assert [(row[6] - START_NS) // 1_000_000 for row in found] == [row[0] - 1 for row in found]
    assert (found[0][7] - START_NS) // 1_000_000 == first + 9


def test_responses_name_their_request_whoever_sent_it(tmp_path: Path) -> None:
    with TinyJournal(tmp_path) as journal:
        expected: list[tuple[int, int | None, int]] = []
        broker = messages.MetadataResponse.MetadataResponseBroker(node_id=1, host="h", port=1)
        for direction in (Direction.REQUEST_IN, Direction.REQUEST_OUT):
            asked = journal.request(1, ApiKey.METADATA, 12, messages.MetadataRequest(), dir=direction, cause=77)
            expected.append((journal.response(1, asked, messages.MetadataResponse(brokers=[broker])), asked, asked))
            expected.append((journal.request(1, ApiKey.UPDATE_METADATA, 8, leader(1, 0), dir=direction, cause=77), None, 77))
    names = "seq", "request_seq", "cause_seq"
    database = silver(tmp_path)
    found = [row for of in ("broker_state", "partition_state") for row in rows(database, f"SELECT * FROM {of}")]
    assert sorted(tuple(row[name] for name in names) for row in found) == sorted(expected)
