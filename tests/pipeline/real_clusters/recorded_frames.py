"""Recorded frames of real brokers (`tests/golden`) as journals: what these brokers would have written, had they kept one.

The journal's own writer writes them, at the broker that received the requests, under the times of the recording; where it has none, rows
are a millisecond apart. A connection is closed behind its last frame: by the broker where the recording says so, else by its peer.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

from klamm.journal.connection import ConnectionJournal
from klamm.journal.writer import JournalWriter
from klamm.protocol.exchanges.connections import ConnectionInfo, ConnectionKind
from klamm.seams.clock import Clock

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
START_S = 1_700_000_000
PATIENCE_S = 60.0
"""A recording waits so long before it says that nothing answers."""


class Moment(NamedTuple):
    """What happens on a connection: a frame of a peer, one of the broker, or, without bytes, its end."""

    broker: int
    connection: int
    is_request: bool
    frame: bytes | None
    time_s: float | None = None
    listener: str = "PLAINTEXT"


class RecordedTime:
    """A clock that stands where the recording is."""

    def __init__(self) -> None:
        self.now_s = 1.0

    def now_ms(self) -> int:
        return int((START_S + self.now_s) * 1000)

    def monotonic(self) -> float:
        return self.now_s


def write_recording(lake: Path, name: str) -> int:
    """Write a recording as the run of its name; returns the number of frames."""
    clock = RecordedTime()
    writers: dict[int, JournalWriter] = {}
    connections: dict[tuple[int, int], ConnectionJournal] = {}
    moments = list(RECORDINGS[name]())
    last = {(each.broker, each.connection): number for number, each in enumerate(moments)}
    for number, each in enumerate(moments):
        clock.now_s = clock.now_s + 0.001 if each.time_s is None else max(clock.now_s, each.time_s)
        if each.broker not in writers:
            writers[each.broker] = JournalWriter(lake, name, each.broker, clock=cast(Clock, clock), frames="full")
            writers[each.broker].event("broker_started", output={"broker": each.broker})
        place = each.broker, each.connection
        if place not in connections:
            peer = f"127.0.0.1:{40_000 + each.connection}"
            info = ConnectionInfo(each.broker, str(each.connection), ConnectionKind.ACCEPTED, peer, each.listener)
            connections[place] = writers[each.broker].connection(info)
        if each.frame is None:
            connections[place].closed("us")
        elif each.is_request:
            connections[place].received(each.frame)
        else:
            connections[place].sent(each.frame)
        if last[place] == number and each.frame is not None:
            connections[place].closed("peer")
    for writer in writers.values():
        writer.event("broker_stopped")
        writer.close()
    return sum(each.frame is not None for each in moments)


def _lines(name: str) -> Iterator[dict[str, Any]]:
    with gzip.open(GOLDEN / f"{name}.jsonl.gz", "rt") as file:
        yield from map(json.loads, file)


def _between_brokers() -> Iterator[Moment]:
    for line in _lines("interbroker"):
        is_request = not line["response"]
        broker, peer = (line["to"], line["from"]) if is_request else (line["from"], line["to"])
        yield Moment(broker, 10 * line["connection"] + peer, is_request, bytes.fromhex(line["hex"]), line["t"])


def _client_sessions() -> Iterator[Moment]:
    for line in _lines("live"):
        for is_request, field in ((True, "request_hex"), (False, "response_hex")):
            if line[field]:
                yield Moment(line["broker"], line["connection"], is_request, bytes.fromhex(line[field]))


def _played_controller() -> Iterator[Moment]:
    broker, *pairs = _lines("broker_story")
    for pair in pairs:
        for is_request, field in ((True, "request"), (False, "response")):
            if pair[field]:
                payload = bytes.fromhex(pair[field])
                yield Moment(broker["broker_id"], 1, is_request, len(payload).to_bytes(4, "big") + payload)


def _odd_frames() -> Iterator[Moment]:
    time_s = 1.0
    for number, line in enumerate(_lines("raw"), 1):
        is_sasl = line["case"].startswith("sasl-") and not line["case"].endswith("-on-plaintext")
        listener = "SASL_PLAINTEXT" if is_sasl else "PLAINTEXT"
        for request, response in zip(line["frames"], line["responses"], strict=True):
            yield Moment(1, number, True, bytes.fromhex(request), time_s, listener)
            if response is not None:
                yield Moment(1, number, False, bytes.fromhex(response), time_s, listener)
        if line["result"] == "closed":
            yield Moment(1, number, False, None, time_s, listener)
        time_s += PATIENCE_S if line["result"] == "no answer" else 0.001
    yield Moment(1, number + 1, True, b"\0\0\0\x0b\0\x12\0\0\0\0\0\1\0\1c", time_s + PATIENCE_S)


RECORDINGS: Mapping[str, Callable[[], Iterator[Moment]]] = {
    "interbroker": _between_brokers, "live": _client_sessions, "broker_story": _played_controller, "raw": _odd_frames,
}
