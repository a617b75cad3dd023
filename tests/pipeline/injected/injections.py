"""Violations put into the journal of a cluster that did everything right, one in each copy of it, to count which ones the rules find.

    .venv/bin/python -m klamm.tests.pipeline.injected.injections LAKE      # a lake whose only run has no violation: prints the table

A frame between two brokers of the cluster is in both their journals, so both copies are changed. A row that goes is replaced by an event
that says nothing, because a gap would make the rules silent. Each violation is written in a run of its own; all runs are judged at once.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from klamm.journal.columns import Direction
from klamm.journal.reading import open_segment, segments
from klamm.journal.segments import OpenSegment, disk_schema, node_folder, segment_metadata, table_schema
from klamm.pipeline.rules import runner
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey

Row = dict[str, Any]
Place = tuple[int, int]
"""Broker and seq."""

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


class Injection(NamedTuple):
    """A violation."""

    rule: str
    name: str
    make: Callable[[TrueRun], Edits]
    is_edge: bool


INJECTIONS: list[Injection] = []


def injected(rule: str, name: str, *, edge: bool = False) -> Callable[[Callable[[TrueRun], Edits]], Callable[[TrueRun], Edits]]:
    """The function returns the rows that are otherwise."""

    def register(make: Callable[[TrueRun], Edits]) -> Callable[[TrueRun], Edits]:
        INJECTIONS.append(Injection(rule, name, make, edge))
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
    found: bool
    """By its rule, and the violation or its evidence is one of the rows that were changed, or beside it."""
    others: list[str]
    """Other rules that it breaks too."""
    false: list[str]
    """Verdicts that have nothing to do with the changed rows."""


def load(lake: Path) -> TrueRun:
    """The only run of a lake."""
    rows: dict[Place, Row] = {}
    for segment in segments(lake):
        for batch in open_segment(segment.path):
            for row in batch.to_pylist():
                rows[place(row)] = row
    return TrueRun(dict(sorted(rows.items())))


def write(lake: Path, world: TrueRun, run: str, edits: Edits) -> None:
    """Write the rows as a run, these in place of those at their places."""
    tables: dict[tuple[int, str], list[Row]] = defaultdict(list)
    for where, row in world.rows.items():
        row = edits.get(where, row)
        tables[row["node_id"], "frames" if "frame" in row else "events"].append(row)
    for (node, table), rows in tables.items():
        folder = node_folder(lake, run, node)
        folder.mkdir(parents=True, exist_ok=True)
        schema = disk_schema(table, segment_metadata(run, node, 1, 0, "0"))
        segment = OpenSegment(folder, table, rows[0]["seq"], schema)
        columns = {}
        for column in table_schema(table):
            values = pa.array([run] * len(rows) if column.name == "run_id" else [row[column.name] for row in rows], column.type)
            columns[column.name] = values.dictionary_encode() if pa.types.is_dictionary(schema.field(column.name).type) else values
        segment.write(pa.RecordBatch.from_arrays(list(columns.values()), schema=schema))
        segment.seal()


def near(world: TrueRun, edits: Edits) -> set[Place]:
    """The rows that were changed, and their requests and answers."""
    found = set(edits)
    for node, seq in edits:
        before = world.rows[node, seq]
        for row in (before, edits[node, seq]):
            found.add((node, row.get("cause_seq") or seq))
        found |= {place(row) for row in world.rows.values() if row["node_id"] == node and row.get("cause_seq") == seq}
    return found


def outcomes(lake: Path, judge: Callable[[Path], Iterable[Row]], only: Iterable[str] = ()) -> Iterator[Outcome]:
    """What the rules say of each injection into the only run of this lake. `judge` returns the verdicts on all runs of a lake."""
    world = load(lake)
    chosen = [each for each in INJECTIONS if not only or each.rule in only]
    with tempfile.TemporaryDirectory() as folder:
        places = {}
        for number, injection in enumerate(chosen):
            edits = injection.make(world)
            assert edits, injection.name
            places[f"{number:03d}"] = near(world, edits)
            write(Path(folder), world, f"{number:03d}", edits)
        verdicts: dict[str, list[Row]] = defaultdict(list)
        asked = {injection.rule for injection in chosen}
        for row in judge(Path(folder)):
            if row["detail"] is not None and (row["rule"] in asked or runner.rules()[row["rule"]].severity == "error"):
                verdicts[row["run_id"]].append(row)
    for number, injection in enumerate(chosen):
        run = f"{number:03d}"
        touched = [v for v in verdicts[run] if places[run] & {(v["node_id"], seq) for seq in (v["seq"], *v["evidence"])}]
        rules = Counter(verdict["rule"] for verdict in touched)
        far = [f"{v['rule']} {v['node_id']}:{v['seq']} {v['detail']}" for v in verdicts[run] if v not in touched]
        mine = [line for line in far if line.startswith(injection.rule + " ")]
        found = injection.rule in rules or bool(mine)
        yield Outcome(injection, found, sorted(set(rules) - {injection.rule}), [line for line in far if line not in mine])


def quickly(lake: Path) -> list[Row]:
    """The verdicts of all rules on all runs of a lake, as `klamm pipeline check --quick` has them."""
    from klamm.pipeline.quick.judge import judge
    from klamm.tests.pipeline.in_duckdb import silver

    runs = sorted({segment.run for segment in segments(lake)})
    return [verdict._asdict() for verdict in judge(silver(lake), runs).verdicts]


def main() -> int:
    from klamm.tests.pipeline.injected import injected_violations  # noqa: F401 registers them

    found = list(outcomes(Path(sys.argv[1]), quickly, sys.argv[2:]))
    for one in found:
        edge = " (edge)" if one.injection.is_edge else ""
        others = f"; also {', '.join(one.others)}" if one.others else ""
        print(f"{one.injection.rule} {'found' if one.found else 'MISSED'}  {one.injection.name}{edge}{others}")
        for line in one.false[:3]:
            print(f"      elsewhere: {line}")
    far = sum(bool(one.false) for one in found)
    print(f"{len(found)} injected, {sum(one.found for one in found)} found, {far} with verdicts elsewhere")
    return 0


if __name__ == "__main__":
    from klamm.tests.pipeline.injected import injections  # the violations are registered there, not in this copy of the module

    sys.exit(injections.main())
