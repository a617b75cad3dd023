"""A conformance rule: a statement, and a query that checks it.

Each row of the query is one thing that the rule looked at. `detail` is null if the statement holds, otherwise it says in one line what is
wrong. So one scan counts what was checked and what was violated, and the two cannot contradict each other. A rule that has no
row in a run is *not exercised* in that run; it did not pass.

A query reads the views of silver (`pipeline/lake/tables.py`), which hold the rows of the runs that are judged, and prepared views:
queries that several rules share, computed once per judgement.

Exceptions to a rule are left out by the query, or they are rows without detail if they show that the rule was exercised.

Queries are Spark's SQL. Spark executes them on lakes of any size; for short runs they are translated to DuckDB's (`pipeline/quick`). So
they use what both know: tests execute each rule in both engines.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, NamedTuple

from klamm.protocol.apis import APIS, ApiKey
from klamm.protocol.exchanges.error_codes import error_name
from klamm.seams.value_class import dataclass

if TYPE_CHECKING:
    import pyarrow as pa

Severity = Literal["error", "warn"]
"""`error` judges the server, `warn` the client."""

JUDGED_COLUMNS = ("run_id", "node_id", "conn_id", "seq", "detail", "evidence")
"""What the query of a rule returns, in this order: string, int, bigint (null where no connection is concerned), bigint, string (null where
the statement holds), array<bigint>: the seqs of `node_id`'s journal that prove it, in the order in which a reader should look at them.
"""

JUDGED_SCHEMA = "run_id string, node_id int, conn_id bigint, seq bigint, detail string, evidence array<bigint>"
"""The same as a schema of Spark."""

BATCH_HEADER = "hex(unbase64({}))"
"""SQL: the header of a batch in 122 hex digits, of the `head` of records."""


class Need(NamedTuple):
    """Some row of a table of silver has one of these values in a column, or a text with this part."""

    table: str
    column: str
    values: frozenset[str | int] = frozenset()
    part: str = ""


def events_of(*kinds: str) -> Need:
    """Events of one of these kinds."""
    return Need("events", "kind", frozenset(kinds))


def messages_of(*apis: ApiKey) -> Need:
    """Requests or responses of one of these APIs."""
    return Need("messages", "api_key", frozenset(map(int, apis)))


def errors_of(*codes: int) -> Need:
    """Responses with one of these error codes, in whatever place."""
    return Need("api_errors", "error_code", frozenset(codes))


@dataclass(frozen=True, slots=True)
class View:
    """A query that several rules share. It is registered under its name while rules are judged."""

    name: str
    inputs: tuple[str, ...]
    """The views that it reads: of silver, or prepared ones. What it reads is prepared before it."""
    sql: str
    """Parameters in it begin with a colon (`pipeline/lake/windows.py`)."""
    needs: tuple[Need, ...] = ()
    """If none of these holds, the view has no rows, and is not computed."""
    is_within: bool = False
    """It is computed within each query that reads it: to keep its rows would cost more than to read them again."""


class Tried(NamedTuple):
    """Rows that SQL alone cannot judge, and the Python function that does."""

    sql: str
    function: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
    """From batches of the query's rows to batches of `judged_schema()`. Spark's workers call it."""


class Join(NamedTuple):
    """What a small view says of each row of a large one."""

    view: str
    """The small view."""
    sql: str
    """A LEFT JOIN that finds one row at most. The names of its columns are its own."""


class Rows(NamedTuple):
    """How a rule judges each row of a view by itself. Spark counts for all such rules over a view in one pass."""

    view: str
    looked: str
    """SQL: whether the rule looks at a row."""
    detail: str
    """SQL: null, or what is wrong."""
    evidence: str
    joins: tuple[Join, ...] = ()

    @property
    def inputs(self) -> tuple[str, ...]:
        """The views that it reads."""
        return tuple(dict.fromkeys((self.view, *(join.view for join in self.joins))))

    @property
    def sql(self) -> str:
        """The same as a query."""
        return f"""
SELECT run_id, node_id, conn_id, seq, {self.detail} AS detail, {self.evidence} AS evidence
FROM {self.view} {" ".join(join.sql for join in self.joins)} WHERE {self.looked}"""


@dataclass(frozen=True, slots=True)
class Rule:
    """One conformance rule. What it looked at are the rows of `rows`, `judged` and `tried` together."""

    id: str
    severity: Severity
    statement: str
    source: str
    """Where the statement comes from: a section of docs/spec, or a requirement."""
    inputs: tuple[str, ...] = ()
    """The views that `judged` and `tried` read: of silver, or prepared ones."""
    judged: str = ""
    """A query: `JUDGED_COLUMNS`, one row for each thing looked at."""
    rows: Rows | None = None
    """Rows that are judged each by itself."""
    tried: Tried | None = None
    """Rows that are judged by Python."""
    counts: str = ""
    """SQL: which rows of `body_counts` are the frames that the rule looked at. Then `judged` returns violations alone."""
    about: str = ""
    """One of the inputs: if it has no rows, `judged` and `tried` have nothing to look at."""
    needs: tuple[Need, ...] = ()
    """If none of these holds, the rule has nothing to look at, and its query does not run."""
    is_across: bool = False
    """Its evidence is in the journals of several brokers: in `judged` it is an array of structs with `node_id` and `seq`."""

    @property
    def reads(self) -> tuple[str, ...]:
        """All views that it reads."""
        return self.inputs if self.rows is None else tuple(dict.fromkeys((*self.rows.inputs, *self.inputs)))

    @property
    def query(self) -> str:
        """The query of one of its `parts`; empty if Python judges all rows."""
        return self.judged if self.rows is None else self.rows.sql

    @property
    def proof(self) -> str:
        """SQL: the evidence of a row of `query` with the broker of each row, null where the statement holds."""
        named = "evidence" if self.is_across else "transform(evidence, each -> struct(node_id AS node_id, each AS seq))"
        return f"if(detail IS NULL, NULL, {named})"

    @property
    def parts(self) -> list[Rule]:
        """The rule; if it judges rows by themselves and others besides, as two rules with one half each."""
        if self.rows is None or not (self.judged or self.tried):
            return [self]
        return [replace(self, inputs=(), judged="", tried=None, about=""), replace(self, rows=None)]


def with_names(detail: str) -> str:
    """A detail with the names of APIs and error codes: queries write `<api 3>` for Metadata and `<error 41>` for NOT_CONTROLLER."""
    detail = re.sub(r"<api (-?\d+)>", lambda key: APIS[int(key[1])].name if int(key[1]) in APIS else f"API {key[1]}", detail)
    return re.sub(r"<error (-?\d+)>", lambda code: error_name(int(code[1])), detail)


def rows_at(*places: str | tuple[str, str], node: str = "node_id") -> str:
    """SQL: evidence with brokers, for a rule that is across them: rows of `node` or of brokers of their own, those that are not null."""
    pairs = [(node, place) if isinstance(place, str) else place for place in places]
    rows = ", ".join(f"struct({broker} AS node_id, {seq} AS seq)" for broker, seq in pairs)
    return f"array_distinct(filter(array({rows}), each -> each.seq IS NOT NULL))"


def judged_schema() -> pa.Schema:
    """The schema of judged rows as Arrow has it."""
    import pyarrow as pa

    types = (pa.string(), pa.int32(), pa.int64(), pa.int64(), pa.string(), pa.list_(pa.int64()))
    return pa.schema(list(zip(JUDGED_COLUMNS, types, strict=True)))
