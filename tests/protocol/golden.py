"""Reads the golden data. Nothing here knows the codec, but for taking the payload out of a frame."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent.parent / "golden"


def lines(name: str) -> Iterator[dict[str, Any]]:
    """The objects of a file with one a line."""
    data = (FOLDER / name).read_bytes()
    if name.endswith(".gz"):
        data = gzip.decompress(data)
    yield from map(json.loads, data.splitlines())


def table(name: str) -> Any:
    """A file that is one JSON value."""
    return json.loads((FOLDER / name).read_text(encoding="utf-8"))


def payload(frame: str) -> bytes:
    """What stands behind the length of a frame in hexadecimal."""
    data = bytes.fromhex(frame)
    assert int.from_bytes(data[:4], "big") == len(data) - 4
    return data[4:]
