"""Violations put into the journal of a cluster that did everything right, one in each copy of it, to count which ones the rules find.

    python -m klamm.tests.pipeline.injected.injections [RULE ...]      # prints the table

The journals are those of `recording.py`. A frame between two brokers of the cluster is in both their journals, so both copies are changed.
A row that goes is replaced by an event that says nothing, because a gap would make the rules silent; where rows are added, the rows behind
them get other numbers. Each violation is written in a run of its own; all runs are judged at once. Counterparts are changes that are just
allowed: nobody may be accused of them.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from klamm.journal.columns import Direction
from klamm.journal.reading import segments
from klamm.journal.segments import OpenSegment, disk_schema, node_folder, segment_metadata, table_schema
from klamm.pipeline.rules import runner
from klamm.pipeline.rules.runner import Verdict
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.tests.pipeline.injected.other_rules import OTHER_RULES
from klamm.tests.pipeline.injected.recording import STORIES, TABLES, recorded

Row = dict[str, Any]
Place = tuple[int, float]
"""Broker and seq. A seq between two numbers is that of a row that is added there."""

REQUEST_IN, RESPONSE_OUT, REQUEST_OUT, RESPONSE_IN = Direction
OPPOSITE = {REQUEST_IN: REQUEST_OUT, REQUEST_OUT: REQUEST_IN, RESPONSE_OUT: RESPONSE_IN, RESPONSE_IN: RESPONSE_OUT}
NEUTRAL = "phase_released"


class Draft:
    """A message that can be changed: its fields, and those of what is in it, are attributes."""

    def __init__(self, message: Any) -> None:
        self._message = message
        for name in message._fields:
            setattr(self, name, _opened(getattr(message, name)))

    def message(self) -> Any:
        """With what the fields are now."""
        return self._message._replace(**{name: _closed(getattr(self, name)) for name in self._message._fields})


def _opened(value: Any) -> Any:
    if hasattr(value, "_fields"):
        return Draft(value)
    return [_opened(each) for each in value] if isinstance(value, list | tuple) else value


def _closed(value: Any) -> Any:
    if isinstance(value, Draft):
        return value.message()
    return [_closed(each) for each in value] if isinstance(value, list) else value


def body_of(row: Row) -> Any:
    """The message in a frame, as a draft."""
    name, start = _form(row)
    return Draft(messages.decode(name, row["api_version"], row["frame"], start)[0])


def _form(row: Row) -> tuple[str, int]:
    """The name of the message in a frame, and where it begins."""
    api = messages.APIS[row["api_key"]]
    is_flexible = api.flexible_from is not None and row["api_version"] >= api.flexible_from
    if row["dir"] in (REQUEST_IN, REQUEST_OUT):
        return f"{api.name}Request", 14 + max(0, int.from_bytes(row["frame"][12:14], "big", signed=True)) + is_flexible
    return f"{api.name}Response", 8 + (is_flexible and row["api_key"] != ApiKey.API_VERSIONS)


def with_body(row: Row, body: Any) -> Row:
    """The frame with another message, or with these bytes in its place."""
    _, start = _form(row)
    rest = row["frame"][4:start] + (body if isinstance(body, bytes) else messages.encode(body.message(), row["api_version"]))
    return {**row, "frame": len(rest).to_bytes(4, "big") + rest}


@dataclass
class TrueRun:
    """The rows of a run, by broker and seq; frames have a column `frame`."""

    rows: dict[Place, Row]
    by_frame: dict[bytes, list[Row]] = field(default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        for row in self.rows.values():
            if "frame" in row:
                self.by_frame[row["frame"]].append(row)

    def frames(self, key: int, direction: int) -> list[Row]:
        """All whole frames of an API in a direction, in the order of their brokers and rows."""
        return [r for r in self.rows.values() if "frame" in r and (r["api_key"], r["dir"], r["flags"]) == (key, direction, 0)]

    def events(self, kind: str) -> list[Row]:
        """All events of a kind."""
        return [row for row in self.rows.values() if row["kind"] == kind and "frame" not in row]

    def copies(self, row: Row) -> list[Row]:
        """A frame in the journals of both its ends."""
        others = (r for r in self.by_frame[row["frame"]] if r["dir"] == OPPOSITE[row["dir"]] and r["api_key"] == row["api_key"])
        return [row, *others]

    def answer(self, request: Row) -> Row:
        """The answer to a request of the same journal."""
        node = request["node_id"]
        return next(
            r for r in self.rows.values()
            if r["node_id"] == node and r["cause_seq"] == request["seq"] and r.get("dir") in (RESPONSE_OUT, RESPONSE_IN)
        )

    def request(self, answer: Row) -> Row:
        """The request of an answer."""
        return self.rows[answer["node_id"], answer["cause_seq"]]

    def slot(self, after: Row) -> Row:
        """A row that says little, behind this one in its journal, whose place another row may take."""
        node, process = after["node_id"], after["process"]
        return next(
            row for row in self.rows.values()
            if (row["node_id"], row["process"], row["kind"]) == (node, process, "conn_open") and row["seq"] > after["seq"]
        )


Edits = dict[Place, Row]
"""The rows that are otherwise."""


def place(row: Row) -> Place:
    """Where a row is."""
    return row["node_id"], row["seq"]


def neutral(row: Row) -> Row:
    """An event in place of a row."""
    event: Row = {column.name: None for column in table_schema("events")}
    return event | {name: row[name] for name in ("run_id", "node_id", "process", "seq", "ts_ns", "mono_ns")} | {"kind": NEUTRAL}


def moved(row: Row, to: Row, **columns: Any) -> Row:
    """A row in the place of another one."""
    return {**row, **{name: to[name] for name in ("seq", "ts_ns", "mono_ns")}, **columns}


def inserted(
    world: TrueRun, request: Row, seq: float, at: Row, asked: Any = None, answered: Any = None, **columns: Any
) -> Edits:
    """A request and its answer once more, in the same journal, with these messages or the same ones, from this seq on and at the time of
    another row."""
    times = {**columns, "ts_ns": at["ts_ns"], "mono_ns": at["mono_ns"]}
    answer = world.answer(request)
    rows = (
        {**(request if asked is None else with_body(request, asked)), **times, "seq": seq},
        {**(answer if answered is None else with_body(answer, answered)), **times, "seq": seq + 0.1, "cause_seq": seq},
    )
    return {place(row): row for row in rows}


def repeated(world: TrueRun, request: Row, asked: Any = None, answered: Any = None, **columns: Any) -> Edits:
    """A request between two brokers and its answer once more behind that answer, in both journals, on another connection."""
    edits: Edits = {}
    for one in world.copies(request):
        answer = world.answer(one)
        edits |= inserted(world, one, answer["seq"] + 0.1, answer, asked, answered, conn_id=90_000, **columns)
    return edits


def swapped(world: TrueRun, one: Row, two: Row) -> Edits:
    """Two requests of a journal change places, and their answers still belong to them."""
    edits = {place(one): moved(two, one), place(two): moved(one, two)}
    for request, other in ((one, two), (two, one)):
        answer = world.answer(request)
        edits[place(answer)] = {**answer, "cause_seq": other["seq"]}
    return edits


class Injection(NamedTuple):
    """A violation, or a counterpart: a change that violates nothing."""

    rule: str
    name: str
    make: Callable[[TrueRun], Edits]
    is_edge: bool
    story: str
    is_allowed: bool

    @property
    def expected(self) -> frozenset[str]:
        """All rules that it violates."""
        return frozenset(OTHER_RULES.get((self.rule, self.name), ())) | (frozenset() if self.is_allowed else {self.rule})


INJECTIONS: list[Injection] = []


def injected(
    rule: str, name: str, *, edge: bool = False, story: str = "controllers", allowed: bool = False
) -> Callable[[Callable[[TrueRun], Edits]], Callable[[TrueRun], Edits]]:
    """The function returns the rows that are otherwise."""

    def register(make: Callable[[TrueRun], Edits]) -> Callable[[TrueRun], Edits]:
        INJECTIONS.append(Injection(rule, name, make, edge, story, allowed))
        return make

    return register


def change(
    world: TrueRun, key: int, direction: int, wanted: Callable[[Any, Row], bool], how: Callable[[Any], Any], *, which: int = 0
) -> Edits:
    """The frame of an API whose message is wanted, the first or another one, changed in both journals. `how` may return bytes."""
    found = [(row, body) for row in world.frames(key, direction) if wanted(body := body_of(row), row)]
    row, body = found[which]
    other = how(body)
    copies = world.copies(row)
    return {place(each): with_body(each, body if other is None else other) for each in copies}


def of_event(world: TrueRun, kind: str, wanted: Callable[[Row], bool], how: Callable[[Row, Any, Any], None], *, which: int = 0) -> Edits:
    """An event of a kind, changed: `how` gets the row, its input and its output."""
    row = dict([row for row in world.events(kind) if wanted(row)][which])
    given, output = (None if row[name] is None else json.loads(row[name]) for name in ("input", "output"))
    how(row, given, output)
    row["input"], row["output"] = (None if each is None else json.dumps(each) for each in (given, output))
    return {place(row): row}


class Outcome(NamedTuple):
    """What the rules said of an injection."""

    injection: Injection
    accused: frozenset[str]
    """The rules that name a violation in its run."""
    details: list[str]

    @property
    def is_found(self) -> bool:
        return self.injection.rule in self.accused

    @property
    def false(self) -> frozenset[str]:
        """Rules that are not violated, and name a violation."""
        return self.accused - self.injection.expected

    @property
    def is_as_expected(self) -> bool:
        return self.accused == self.injection.expected


@cache
def true_run(story: str) -> TrueRun:
    """The run of a story. It is not to be changed."""
    return TrueRun({place(row): row for row in sorted(recorded(story), key=place)})


class RunWriter:
    """Writes a run again and again, with a few rows otherwise."""

    def __init__(self, world: TrueRun) -> None:
        rows: dict[tuple[int, str], list[Row]] = defaultdict(list)
        for row in world.rows.values():
            rows[row["node_id"], table_of(row)].append(row)
        self._tables = {key: pa.Table.from_pylist(some, table_schema(key[1])) for key, some in rows.items()}
        self._seqs = {node: [row["seq"] for row in world.rows.values() if row["node_id"] == node] for node, _ in rows}

    def write(self, lake: Path, run: str, edits: Edits) -> None:
        """Write the rows as a run, these in place of those at their places, or between them."""
        edited: dict[int, list[Row]] = defaultdict(list)
        for (node, _), row in edits.items():
            edited[node].append(row)
        for (node, table), true in self._tables.items():
            others = sorted(edited[node], key=lambda row: row["seq"])
            if others:
                gone = pc.is_in(true["seq"], pa.array([row["seq"] for row in others if row["seq"] == int(row["seq"])], pa.int64()))
                numbers = {row["seq"] for row in others} - set(self._seqs[node])
                number = _numbering(self._seqs[node], numbers)
                rows = [
                    {**row, "seq": number(row["seq"]), "cause_seq": None if row["cause_seq"] is None else number(row["cause_seq"])}
                    for row in others if table_of(row) == table
                ]
                true = true.filter(pc.invert(gone))
                if numbers:
                    for name in ("seq", "cause_seq"):
                        moved_to = [None if each is None else number(each) for each in true[name].to_pylist()]
                        true = true.set_column(true.schema.get_field_index(name), true.schema.field(name), pa.array(moved_to, pa.int64()))
                true = pa.concat_tables([true, pa.Table.from_pylist(rows, table_schema(table))]).sort_by("seq")
            _write_segment(lake, run, node, table, true)


def table_of(row: Row) -> str:
    """The table of a row."""
    return TABLES["frame" not in row]


def _numbering(seqs: list[int], added: set[float]) -> Callable[[float], int]:
    """Seqs without those between two numbers."""
    if not added:
        return int
    numbers = {seq: number for number, seq in enumerate(sorted([*seqs, *added]), min(seqs))}
    return numbers.__getitem__


def _write_segment(lake: Path, run: str, node: int, table: str, rows: pa.Table) -> None:
    folder = node_folder(lake, run, node)
    folder.mkdir(parents=True, exist_ok=True)
    schema = disk_schema(table, segment_metadata(run, node, 1, 0, "0"))
    segment = OpenSegment(folder, table, rows["seq"][0].as_py(), schema)
    columns = []
    for column in schema:
        values = pa.array([run] * rows.num_rows) if column.name == "run_id" else rows[column.name].combine_chunks()
        columns.append(values.dictionary_encode() if pa.types.is_dictionary(column.type) else values)
    segment.write(pa.RecordBatch.from_arrays(columns, schema=schema))
    segment.seal()


def inject(lake: Path, chosen: Iterable[Injection]) -> dict[str, Injection]:
    """Write a run for each injection, and one for each story as it was: `true-` and its name. Returns the injections by run."""
    writers = {story: RunWriter(true_run(story)) for story in STORIES}
    for story, writer in writers.items():
        writer.write(lake, f"true-{story}", {})
    runs = {f"{number:03d}": injection for number, injection in enumerate(chosen)}
    for run, injection in runs.items():
        edits = injection.make(true_run(injection.story))
        assert edits, injection.name
        writers[injection.story].write(lake, run, edits)
    return runs


def outcomes(runs: dict[str, Injection], verdicts: Iterable[Verdict]) -> list[Outcome]:
    """What these verdicts say of each injection."""
    said: dict[str, list[Verdict]] = defaultdict(list)
    for verdict in verdicts:
        said[verdict.run_id].append(verdict)
    return [
        Outcome(
            injection, frozenset(v.rule for v in said[run]), [f"{v.rule} {v.node_id}:{v.seq} {v.detail}" for v in said[run]]
        )
        for run, injection in runs.items()
    ]


def table(said: Collection[Outcome]) -> Iterator[str]:
    """Lines: of each rule how many violations were injected, found and missed, how many counterparts there were, and how often the rule
    named a violation that was none."""
    yield f"{'rule':6s} {'injected':>8s} {'at edge':>8s} {'found':>6s} {'missed':>6s} {'allowed':>8s} {'falsely accused':>16s}"
    false = Counter(rule for one in said for rule in one.false)
    total = [0] * 6
    for rule in runner.rules():
        mine = [one for one in said if one.injection.rule == rule]
        wrong = [one for one in mine if not one.injection.is_allowed]
        found = sum(one.is_found for one in wrong)
        at_edge = sum(one.injection.is_edge for one in wrong)
        numbers = [len(wrong), at_edge, found, len(wrong) - found, len(mine) - len(wrong), false[rule]]
        total = [a + b for a, b in zip(total, numbers, strict=True)]
        yield "{:6s} {:8d} {:8d} {:6d} {:6d} {:8d} {:16d}".format(rule, *numbers)
    yield "{:6s} {:8d} {:8d} {:6d} {:6d} {:8d} {:16d}".format("all", *total)


def judged_quickly(lake: Path) -> list[Verdict]:
    """The verdicts of all rules on all runs of a lake, as `klamm pipeline check --quick` has them."""
    from klamm.pipeline.quick.judge import judge
    from klamm.tests.pipeline.in_duckdb import silver

    with silver(lake) as database:
        return judge(database, sorted({segment.run for segment in segments(lake)})).verdicts


def main() -> int:
    from klamm.tests.pipeline.injected import all_violations  # noqa: F401 registers them

    chosen = [each for each in INJECTIONS if not sys.argv[1:] or each.rule in sys.argv[1:]]
    with tempfile.TemporaryDirectory() as folder:
        runs = inject(Path(folder), chosen)
        said = outcomes(runs, judged_quickly(Path(folder)))
    for one in said:
        if not one.is_as_expected or sys.argv[1:]:
            kind = "allowed" if one.injection.is_allowed else "at the edge" if one.injection.is_edge else "violation"
            print(f"{one.injection.rule} {one.injection.name} ({kind}): accused {sorted(one.accused)} of {sorted(one.injection.expected)}")
            for line in one.details[:4]:
                print(f"      {line}")
    print("\n".join(table(said)))
    return 0 if all(one.is_as_expected for one in said) else 1


if __name__ == "__main__":
    from klamm.tests.pipeline.injected import injections  # the violations are registered there, not in this copy of the module

    sys.exit(injections.main())
