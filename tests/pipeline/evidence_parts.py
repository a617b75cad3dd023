"""What each violation must show: the rows that contradict each other, names for numbers, the client, and where a body is malformed."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

import duckdb

from klamm.pipeline.rules.runner import Row, Verdict, rules
from klamm.protocol.apis import APIS
from klamm.protocol.errors import ErrorCode

NUMBERED = re.compile(r"\b(?:API|api|key|error|code) (-?\d+)\b|<(?:api|error) (-?\d+)")
"""A number in a detail that may have a name."""

SEQ = re.compile(r"\bseq (\d+)")

IDS = re.compile(r"\b[A-Za-z0-9_-]{22}\b")
"""Topic ids as they are in JSON."""

IN_BODIES = ("truncated", "malformed", "trailing", "bad_length")
"""Reasons why a frame does not decode that lie in its body."""

OF_HEADERS = ("W-07", "W-08")
"""Rules about what is around a body; their details say what."""


def lacking(database: duckdb.DuckDBPyConnection, verdicts: Collection[Verdict], alone: Collection[str]) -> list[str]:
    """A line for each part that the evidence of a violation lacks. In the runs or by the rules `alone` one row may contradict itself, or
    what should follow it never comes; rules about flaws judge one body each."""
    alone = {*alone, *(rule.id for rule in rules().values() if rule.about == "flaws")}
    frames = {
        (run, node, seq): (client, reason, err) for run, node, seq, client, reason, err in database.execute(
            "SELECT run_id, node_id, seq, client_id, reason, err FROM headers"
        ).fetchall()
    }
    events = set(database.execute("SELECT run_id, node_id, seq FROM events").fetchall())
    names = {(run, key) for run, key in database.execute(
        "SELECT DISTINCT run_id, topic_id FROM partition_state WHERE topic_id IS NOT NULL AND topic IS NOT NULL"
    ).fetchall()}

    def of(one: Verdict) -> Iterator[str]:
        rows = [(one.run_id, *row) for row in one.evidence]
        if Row(one.node_id, one.seq) not in one.evidence:
            yield "its own row"
        if len(set(rows)) < len(rows):
            yield "rows that are named once"
        if any(row not in frames and row not in events for row in rows):
            yield f"rows that exist: {one.evidence}"
        if len(rows) < 2 and not {one.run_id, one.rule}.intersection(alone):
            yield "the other row"
        if any(int(api or code) in (*APIS, *ErrorCode) for api, code in NUMBERED.findall(one.detail)):
            yield "names of APIs and error codes"
        if any((one.run_id, key) in names for key in IDS.findall(one.detail)) and "topic id" not in one.detail:
            yield "names of topics"
        if not {int(seq) for seq in SEQ.findall(one.detail)} <= {row.seq for row in one.evidence}:
            yield "the rows that its detail names"
        client, reason, err = frames.get((one.run_id, one.node_id, one.seq), (None, None, None))
        if one.severity == "warn" and f"client {client}" not in one.detail:
            yield f"the client {client}"
        if reason in IN_BODIES and one.rule not in OF_HEADERS and err not in one.detail:
            yield f"where the body is malformed: {err}"

    return [
        f"{one.rule} of {one.run_id}, broker {one.node_id}, seq {one.seq}, lacks {part}: {one.detail}"
        for one in verdicts for part in of(one)
    ]
