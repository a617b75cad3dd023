"""Frames of recordings, and frames that tests make."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from klamm.journal.columns import Direction
from klamm.protocol import messages
from klamm.protocol.apis import APIS
from klamm.tests.protocol import golden


class FrameSample(NamedTuple):
    """A recorded frame as a row of a journal has it."""

    dir: int
    key: int
    version: int
    frame: bytes


@cache
def recorded() -> list[FrameSample]:
    """Frames of clients, brokers and controllers of a real Kafka."""
    found = []
    for row in golden.lines("live.jsonl.gz"):
        for direction, column in ((Direction.REQUEST_IN, "request_hex"), (Direction.RESPONSE_OUT, "response_hex")):
            if row.get(column):
                found.append(FrameSample(direction, row["api_key"], row["api_version"], bytes.fromhex(row[column])))
    for row in golden.lines("interbroker.jsonl.gz"):
        direction = Direction.RESPONSE_IN if row["response"] else Direction.REQUEST_OUT
        found.append(FrameSample(direction, row["api_key"], row["api_version"], bytes.fromhex(row["hex"])))
    return found


def frame_of(name: str, version: int, value: Any) -> FrameSample:
    """A frame of a message."""
    is_request = name.endswith("Request")
    key = next(api.key for api in APIS.values() if api.name == name.removesuffix("Request").removesuffix("Response"))
    body = messages.encode(value, version)
    data = messages.encode_request(key, version, 7, "me", body) if is_request else messages.encode_response(key, version, 7, body)
    return FrameSample(Direction.REQUEST_IN if is_request else Direction.RESPONSE_OUT, key, version, data)
