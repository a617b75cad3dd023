"""Rows of a journal for people and for scripts: one line, or one object, with the frame decoded. Needs neither Spark nor Arrow."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from klamm.journal.columns import Direction, Flag
from klamm.pipeline.decode.frame_decoder import Plan, decode_frame, plan
from klamm.protocol.apis import APIS
from klamm.protocol.exchanges.error_codes import error_name

SHOWN = 300
"""Characters of a body that a line shows."""
HEX_SHOWN = 64
"""Bytes that a line shows of a frame that cannot be decoded."""

_WAYS = {
    Direction.REQUEST_IN: "request in  ",
    Direction.RESPONSE_OUT: "response out",
    Direction.REQUEST_OUT: "request out ",
    Direction.RESPONSE_IN: "response in ",
}
_COLUMNS = ("conn_id", "topic", "partition", "broker", "controller_epoch", "leader_epoch", "partition_epoch", "cause_seq")

Columns = dict[str, Any]


def utc(ts_ns: int | None) -> str:
    """A time of the wall clock, with microseconds."""
    if ts_ns is None:
        return "-"
    try:
        return datetime.fromtimestamp(ts_ns // 1_000_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%S") + f".{ts_ns // 1000 % 1_000_000:06d}Z"
    except (OverflowError, ValueError, OSError):
        return f"{ts_ns} ns"


def frame_line(columns: Columns, shown: int | None = SHOWN) -> str:
    """A frame in one line. `shown` bounds the characters of its body; None bounds nothing."""
    key, version = columns["api_key"], columns["api_version"]
    api = APIS.get(key)
    name = "?" if key is None else f"key {key}" if api is None else api.name
    parts = [_where(columns), _WAYS.get(columns["dir"], f"dir {columns['dir']}"), name if version is None else f"{name} v{version}"]
    parts += [f"{label} {columns[column]}" for label, column in (("correlation id", "correlation_id"), ("connection", "conn_id"))]
    parts += [columns["kind"] or "?", columns["peer"] or "?"]
    names = (("client", "client_id"), ("software", "client_sw"))
    parts += [f"{label} {columns[column]}" for label, column in names if columns[column] is not None]
    if columns["latency_ns"] is not None:
        parts.append(f"{columns['latency_ns'] / 1e6:.3f} ms")
    flags = Flag(columns["flags"] or 0)
    parts += [flag.name.lower().replace("_", " ") for flag in Flag if flag in flags and flag.name is not None]
    frame = columns["frame"] or b""
    body, left, reason, detail = decode_frame(columns["dir"], key, version, columns["flags"] or 0, frame)
    if body is not None:
        parts += _errors(columns, body)
        parts.append(_bounded(_json(body), shown))
    elif reason is not None:
        parts.append(f"{reason}: {detail}" if detail else str(reason))
        parts.append(_bounded(frame.hex(), None if shown is None else 2 * HEX_SHOWN))
    else:
        parts.append(f"{len(frame)} bytes of header")
    if left:
        parts.append(f"{left} bytes over")
    return "  ".join(parts)


def event_line(columns: Columns, shown: int | None = SHOWN) -> str:
    """An event in one line."""
    parts = [_where(columns), "event       ", columns["kind"] or "?"]
    parts += [f"{name} {columns[name]}" for name in _COLUMNS if columns[name] is not None]
    parts += [f"{name} {_bounded(columns[name], shown)}" for name in ("input", "output") if columns[name] is not None]
    return "  ".join(parts)


def decoded(table: str, columns: Columns) -> Columns:
    """A row with its decoded frame: `body`, or `error` if it cannot be decoded. The bytes are base64."""
    row: Columns = {"table": table, **columns}
    if table == "frames":
        frame = columns["frame"] or b""
        body, left, reason, detail = decode_frame(columns["dir"], columns["api_key"], columns["api_version"], columns["flags"] or 0, frame)
        row |= {
            "frame": base64.b64encode(frame).decode(), "body": body, "left": left,
            "error": None if reason is None else f"{reason}: {detail}" if detail else str(reason),
        }
    return row


def json_line(row: Columns) -> str:
    """A row of `decoded` as JSON, in ASCII."""
    return json.dumps(row, separators=(",", ":"), default=str)


def body_json(columns: Columns) -> tuple[str | None, str | None]:
    """The body of a frame as JSON, or why it cannot be decoded."""
    row = decoded("frames", columns)
    return None if row["body"] is None else _json(row["body"]), row["error"]


def mentions(topic: str) -> Callable[[str, Columns], bool]:
    """A question of (table, columns): is the row about this topic? Ids of the topic are learned from the rows that were asked about."""
    ids: set[str] = set()
    name = topic.encode()

    def is_about(table: str, columns: Columns) -> bool:
        if table == "events":
            if columns["topic"] == topic and columns["topic_id"] is not None:
                ids.add(columns["topic_id"])
            return columns["topic"] == topic or any(_said(columns[each], topic) for each in ("input", "output"))
        frame = columns["frame"] or b""
        if name not in frame and not any(_uuid_bytes(each) in frame for each in ids):
            return False
        body = decode_frame(columns["dir"], columns["api_key"], columns["api_version"], columns["flags"] or 0, frame)[0]
        return body is not None and _walk(body, topic, ids)

    return is_about


def _said(text: str | None, topic: str) -> bool:
    if text is None or topic not in text:
        return False
    try:
        return _walk(json.loads(text), topic, set())
    except (ValueError, RecursionError):
        return False


def _walk(value: Any, topic: str, ids: set[str]) -> bool:
    """Whether a value has the topic's name or id; learns its ids from objects that have both."""
    if isinstance(value, dict):
        found = sum(_walk(each, topic, ids) for each in value.values()) > 0
        topic_id = value.get("topicId")
        if isinstance(topic_id, str) and topic_id.strip("A") and topic in (value.get("name"), value.get("topic"), value.get("topicName")):
            ids.add(topic_id)
        return found
    if isinstance(value, list | tuple):
        return sum(_walk(each, topic, ids) for each in value) > 0
    return isinstance(value, str) and (value == topic or value in ids)


def _uuid_bytes(text: str) -> bytes:
    try:
        return base64.urlsafe_b64decode(text + "==")
    except ValueError:
        return text.encode()


def _where(columns: Columns) -> str:
    return f"{utc(columns['ts_ns'])}  broker {columns['node_id']}  seq {columns['seq']}"


def _errors(columns: Columns, body: Columns) -> list[str]:
    if columns["dir"] not in (Direction.RESPONSE_OUT, Direction.RESPONSE_IN):
        return []
    how = plan(False, columns["api_key"], columns["api_version"])
    if not isinstance(how, Plan) or how.count_errors is None:
        return []
    counts: dict[int, int] = {}
    for (_, code), count in how.count_errors(body).items():
        counts[code] = counts.get(code, 0) + count
    names = [f"{error_name(code)}{f' ×{count}' if count > 1 else ''}" for code, count in sorted(counts.items())]
    return [f"errors {', '.join(names)}"] if names else []


def _json(body: Any) -> str:
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False, default=str)


def _bounded(text: str, shown: int | None) -> str:
    return text if shown is None or len(text) <= shown else f"{text[:shown]}… ({len(text):,} characters)"
