"""Formats of records for `klamm consume`: a text with `%` directives as kcat has them, or JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from klamm.admin.records.record_reader import ReadRecord

Format = Callable[["ReadRecord"], bytes]

DIRECTIVES: dict[str, Format] = {
    "t": lambda record: record.topic.encode(),
    "p": lambda record: b"%d" % record.partition,
    "o": lambda record: b"%d" % record.offset,
    "k": lambda record: record.key or b"",
    "K": lambda record: b"%d" % (-1 if record.key is None else len(record.key)),
    "s": lambda record: record.value or b"",
    "S": lambda record: b"%d" % (-1 if record.value is None else len(record.value)),
    "T": lambda record: b"%d" % record.timestamp,
    "h": lambda record: b",".join(name.encode() + b"=" + (b"NULL" if value is None else value) for name, value in record.headers),
    "%": lambda _: b"%",
}
"""Directive → what it stands for. A length is -1 for null."""

_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}
_PART = re.compile(r"%(?P<directive>.?)|\\(?:x(?P<hex>[0-9a-fA-F]{2})|(?P<escape>.?))|(?P<text>[^%\\]+)", re.DOTALL)


class BadFormat(ValueError):
    """The format has a directive or an escape that does not exist."""


def format_of(text: str) -> Format:
    """The function that writes a record in this format. Raises BadFormat."""
    parts = [_part(match) for match in _PART.finditer(text)]
    return lambda record: b"".join(part if isinstance(part, bytes) else part(record) for part in parts)


def _part(match: re.Match[str]) -> bytes | Format:
    if match["text"] is not None:
        return match["text"].encode()
    if match["hex"] is not None:
        return bytes.fromhex(match["hex"])
    if match["directive"] is not None:
        if match["directive"] not in DIRECTIVES:
            raise BadFormat(f"%{match['directive']} is not one of {' '.join(f'%{each}' for each in DIRECTIVES)}")
        return DIRECTIVES[match["directive"]]
    if match["escape"] not in _ESCAPES:
        raise BadFormat(f"\\{match['escape']} is not one of \\n \\t \\r \\0 \\\\ \\xNN")
    return _ESCAPES[match["escape"]]


def as_json(record: ReadRecord) -> bytes:
    """The record as a line of JSON. Bytes that are not UTF-8 become U+FFFD."""
    row = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "headers": [[name, _text(value)] for name, value in record.headers],
        "key": _text(record.key),
        "value": _text(record.value),
    }
    return json.dumps(row).encode() + b"\n"


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode(errors="replace")
