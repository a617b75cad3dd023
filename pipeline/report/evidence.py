"""The rows that prove a violation, each frame as bytes and decoded; and the course of one incident, row by row."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

from klamm.journal.columns import Direction
from klamm.pipeline.decode.frame_decoder import decode_frame
from klamm.pipeline.report.facts import Facts
from klamm.pipeline.report.reading import EVENTS, FRAMES, Place, Row, RunTables, api_name, by_node

SHOWN_BYTES = 384
SHOWN_TEXT = 12_000
ARROWS = 40
SEARCHED = 4000
"""Number of latest controller events among which an incident is looked for."""

CONTROLLER = ("controller_event", "controller_elected", "broker_down", "batch", "decision", "zk_write", "reassign_phase")


class Evidence(NamedTuple):
    """A row, ready to be shown."""

    place: Place
    title: str
    at_ms: float
    hex: str
    """Lines of 16 bytes; empty for an event."""
    text: str
    """The decoded message, the event, or why it does not decode."""
    row: Row


class Incident(NamedTuple):
    """A sequence diagram: a title, the lifelines from left to right, and the arrows."""

    title: str
    lifelines: list[str]
    arrows: list[Row]


def rows_at(tables: RunTables, places: Collection[Place]) -> dict[Place, Row]:
    """The rows at these places, frames and events; places without a row are left out."""
    rows: dict[Place, Row] = {}
    for node_id, seqs in by_node(places).items():
        for table in (FRAMES, EVENTS):
            for row in tables.where(table, node_id=[node_id], seq=seqs):
                rows[Place(node_id, row["seq"])] = row
    return rows


def places(facts: Facts) -> list[Place]:
    """Where the evidence of the violations is that the report shows."""
    found = [
        place
        for result in facts.rules
        for violation in result.violations
        for place in proof(violation)
    ]
    return list(dict.fromkeys(found))


def proof(violation: Row) -> list[Place]:
    """The rows that prove a violation."""
    if violation["evidence"]:
        return [Place(**row) for row in violation["evidence"]]
    return [Place(violation["node_id"], violation["seq"])] if None not in (violation["node_id"], violation["seq"]) else []


def frames_of_errors(facts: Facts) -> list[Place]:
    """Where the requests and responses are that the report shows of errors that clients got."""
    return [place for client in facts.sent.clients for error in client.shown for place in (error.request, error.response)]


def evidence(tables: RunTables, wanted: Sequence[Place]) -> list[Evidence]:
    """The rows at these places, in this order, decoded."""
    found = rows_at(tables, wanted)
    return [_evidence(place, found[place]) for place in wanted if place in found]


def _evidence(place: Place, row: Row) -> Evidence:
    at_ms = row["ts_ns"] / 1e6
    if "frame" not in row:
        shown = {name: value for name, value in row.items() if value is not None and name not in ("run_id", "ts_ns", "mono_ns", "segment")}
        for name in ("input", "output"):
            if name in shown:
                shown[name] = _object(shown[name])
        return Evidence(place, f"event {row['kind']}", at_ms, "", _text(shown), row)
    body, left, reason, detail = decode_frame(row["dir"], row["api_key"], row["api_version"], row["flags"], row["frame"])
    text = _text(body) if body is not None else f"{reason or 'no body'}: {detail or 'only the header was kept'}"
    if left:
        text += f"\n{left} bytes behind it"
    return Evidence(place, title(row), at_ms, hex_dump(row["frame"]), text, row)


def title(row: Row) -> str:
    """A frame in a few words: its API, version and direction."""
    kind = "request" if row["dir"] in (Direction.REQUEST_IN, Direction.REQUEST_OUT) else "response"
    if row["api_key"] is None:
        return f"bytes that are no {kind}" if kind == "request" else "response to no known request"
    version = "" if row["api_version"] is None else f" v{row['api_version']}"
    return f"{api_name(row['api_key'])}{version} {kind}"


def hex_dump(data: bytes) -> str:
    """The first bytes, 16 in a line: offset, numbers, letters."""
    lines = []
    for offset in range(0, min(len(data), SHOWN_BYTES), 16):
        part = data[offset : offset + 16]
        letters = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        lines.append(f"{offset:6}  {part.hex(' '):<47}  {letters}")
    if len(data) > SHOWN_BYTES:
        lines.append(f"{len(data) - SHOWN_BYTES:,} more bytes")
    return "\n".join(lines)


def _object(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _text(value: Any) -> str:
    text = json.dumps(value, indent=2, ensure_ascii=False, default=str)
    return text if len(text) <= SHOWN_TEXT else f"{text[:SHOWN_TEXT]}\n… {len(text) - SHOWN_TEXT:,} more characters"


# --- one incident ---


def incident(tables: RunTables, facts: Facts, shown: Sequence[Evidence]) -> Incident | None:
    """The rows of the first violation where there is one; else what the controller did when a broker died, or at its last busy event."""
    if shown:
        first = shown[0].place.node_id
        arrows = [_arrow(each.row) for each in shown if each.place.node_id == first and "frame" in each.row]
        if arrows:
            return _drawn("The first violations", arrows)
    events = tables.where(EVENTS, kind=CONTROLLER)
    events.sort(key=lambda row: (row["node_id"], row["seq"]))
    chosen = _chosen(events[-SEARCHED:])
    if chosen is None:
        return None
    node_id, seq = chosen["node_id"], chosen["seq"]
    caused = [row for row in events if row["node_id"] == node_id and row["cause_seq"] == seq]
    batches = [row["seq"] for row in caused if row["kind"] == "batch"]
    requests = tables.where(FRAMES, node_id=[node_id], cause_seq=batches)
    responses = tables.where(FRAMES, node_id=[node_id], cause_seq=[row["seq"] for row in requests])
    origin = [] if chosen["cause_seq"] is None else [chosen["cause_seq"]]
    begun = tables.where(FRAMES, node_id=[node_id], seq=origin) + tables.where(FRAMES, node_id=[node_id], cause_seq=origin)
    frames = {row["seq"]: row for row in (*begun, *requests, *responses)}
    steps = sorted([*frames.values(), chosen, *caused], key=lambda row: row["seq"])
    name = (_object(chosen["input"] or "{}") or {}).get("text") or "an event"
    return _drawn(f"Controller {node_id}: {name}", list(_merged(_arrow(row) for row in steps if row["kind"] != "batch")))


def _chosen(events: Sequence[Row]) -> Row | None:
    """The controller event that did most: one in which a broker went counts more than all others."""
    weights: dict[Place, int] = {}
    for row in events:
        if row["cause_seq"] is not None:
            place = Place(row["node_id"], row["cause_seq"])
            weights[place] = weights.get(place, 0) + {"broker_down": 1_000_000, "batch": 1000}.get(row["kind"], 1)
    begun = [row for row in events if row["kind"] == "controller_event" and weights.get(Place(row["node_id"], row["seq"]), 0) >= 1000]
    return max(begun, key=lambda row: (weights[Place(row["node_id"], row["seq"])], row["seq"]), default=None)


def _drawn(title: str, arrows: list[Row]) -> Incident:
    arrows = arrows[:ARROWS]
    names = dict.fromkeys(name for arrow in arrows for name in (arrow["from"], arrow["to"]))
    lifelines = sorted(names, key=lambda name: (name == "ZooKeeper", name.startswith("broker"), name))
    drawn = []
    for number, arrow in enumerate(arrows):
        left = min(arrow["from"], arrow["to"], key=lifelines.index)
        drawn.append(arrow | {"order": number, "left": left})
    return Incident(title, lifelines, drawn)


def _arrow(row: Row) -> Row:
    """One row of a journal as an arrow; what happens inside a broker is a dot."""
    here = f"broker {row['node_id']}"
    arrow = {"at": f"seq {row['seq']}", "times": 1}
    if "frame" in row:
        peer = f"broker {row['peer_id']}" if row["peer_id"] is not None else row["client_id"] or row["peer"]
        sent = row["dir"] in (Direction.RESPONSE_OUT, Direction.REQUEST_OUT)
        kind = "request" if row["dir"] in (Direction.REQUEST_IN, Direction.REQUEST_OUT) else "response"
        return arrow | {"from": here if sent else peer, "to": peer if sent else here, "text": title(row), "kind": kind}
    output = _object(row["output"] or "{}")
    about = f" {row['topic']}-{row['partition']}" if row["partition"] is not None else ""
    if row["kind"] == "zk_write":
        wanted = _object(row["input"] or "{}")
        text = f"{wanted.get('op', 'write')} {wanted.get('path', '')}" if isinstance(wanted, dict) else "write"
        return arrow | {"from": here, "to": "ZooKeeper", "text": text, "kind": "ZooKeeper"}
    words = {
        "controller_event": str((_object(row["input"] or "{}") or {}).get("name", "event")),
        "broker_down": f"broker {row['broker']} is gone",
        "controller_elected": f"elected, epoch {row['controller_epoch']}",
        "reassign_phase": f"phase {output.get('phase')}{about}" if isinstance(output, dict) else "phase",
        "decision": "decides",
    }
    return arrow | {"from": here, "to": here, "text": words.get(row["kind"], row["kind"]), "kind": "controller"}


def _merged(arrows: Iterable[Row]) -> Iterable[Row]:
    """Merge neighbouring arrows of the same kind into one, with their number."""
    last: Row | None = None
    for arrow in arrows:
        if last is not None and arrow["kind"] in ("ZooKeeper", "controller") and _same(last, arrow):
            last["times"] += 1
            continue
        if last is not None:
            yield _counted(last)
        last = arrow
    if last is not None:
        yield _counted(last)


def _same(one: Row, other: Row) -> bool:
    if one["from"] != other["from"] or one["to"] != other["to"] or one["kind"] != other["kind"]:
        return False
    return one["kind"] == "ZooKeeper" or one["text"] == other["text"]


def _counted(arrow: Row) -> Row:
    return arrow if arrow["times"] == 1 else arrow | {"text": f"{arrow['text']} and {arrow['times'] - 1} more"}
