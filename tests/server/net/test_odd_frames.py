"""Odd frames, against what a real broker did with them (tests/golden/raw.jsonl.gz): whole, byte by byte, and with something behind."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from klamm.protocol import messages
from klamm.protocol.framing import FrameReader
from klamm.server.apis import api_versions
from klamm.server.listeners.connection import ClientConnection
from klamm.server.listeners.connection_limits import ConnectionLimits
from klamm.server.listeners.listener import Listener, bind
from klamm.server.requests.dispatch import Handler
from klamm.tests.server import wire

GOLDEN = Path(__file__).parents[2] / "golden"
KINDS = ("length-", "two-", "key-", "version-", "apiversions-", "client-id-", "metadata-", "envelope", "controlled-shutdown-")


def raw_cases() -> list[dict[str, Any]]:
    with gzip.open(GOLDEN / "raw.jsonl.gz", "rt", encoding="utf-8") as lines:
        cases = [json.loads(line) for line in lines]
    return [case for case in cases if case["case"].startswith(KINDS)]


CASES = raw_cases()
HANDLERS = {
    3: Handler(wire.empty_metadata),
    7: Handler(lambda ctx, request: messages.ControlledShutdownResponse(error_code=8)),
    18: Handler(api_versions.handle, cached=True, unsupported_version=api_versions.UNSUPPORTED_BODY),
}


class Recorder:
    """A transport that keeps what is written and whether it was closed."""

    def __init__(self) -> None:
        self.written = b""
        self.closed = False

    def get_extra_info(self, name: str) -> Any:
        return ("127.0.0.1", 1)

    def set_write_buffer_limits(self, high: int) -> None:
        pass

    def write(self, data: bytes) -> None:
        assert not self.closed
        self.written += data

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True


class Session:
    """A connection without a socket."""

    def __init__(self) -> None:
        self.listener = Listener("PLAINTEXT", bind("127.0.0.1", 0), wire.make_dispatcher(HANDLERS), ConnectionLimits())
        self.transport = Recorder()
        self.connection = ClientConnection(self.listener, asyncio.get_running_loop())
        self.connection.connection_made(self.transport)  # type: ignore[arg-type]

    @property
    def answers(self) -> list[bytes]:
        return FrameReader().feed(self.transport.written)

    async def close(self) -> None:
        self.connection.connection_lost(None)
        await self.listener.close()


def expected_answers(case: dict[str, Any]) -> list[bytes]:
    return [frame for response in case["responses"] if response for frame in FrameReader().feed(bytes.fromhex(response))]


def check(case: dict[str, Any], session: Session) -> None:
    expected = expected_answers(case)
    assert session.transport.closed == (case["result"] == "closed")
    # of two requests in one write only the first answer was recorded
    assert len(session.answers) == (2 if case["case"] == "two-requests-at-once" else len(expected))
    for answer, theirs in zip(session.answers, expected, strict=False):
        assert answer[:4] == theirs[:4]
        # lists of APIs and of brokers differ; errors do not
        if case.get("api_key") == 18 and len(theirs) < 50:
            assert answer == theirs


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["case"])
async def test_as_a_real_broker(case: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    for pieces in ("whole", "bytes", "trailing"):
        caplog.clear()
        await as_a_real_broker(case, pieces, caplog)


async def as_a_real_broker(case: dict[str, Any], pieces: str, caplog: pytest.LogCaptureFixture) -> None:
    session = Session()
    data = b"".join(map(bytes.fromhex, case["frames"]))
    with caplog.at_level(logging.INFO):
        if pieces == "bytes":
            for position in range(len(data)):
                session.connection.data_received(data[position : position + 1])
        else:
            session.connection.data_received(data + (b"\x00\x00\x00" if pieces == "trailing" else b""))
    check(case, session)
    ours = [record for record in caplog.records if record.name.startswith("klamm.")]
    assert len(ours) == (1 if session.transport.closed else 0)
    await session.close()


def test_cases_are_there() -> None:
    assert len(CASES) > 130


@pytest.mark.parametrize(
    "answer", json.loads((GOLDEN / "apiversions.json").read_text())["answers"], ids=lambda answer: f"v{answer['version']}"
)
async def test_api_versions_has_the_shape_of_a_real_one(answer: dict[str, Any]) -> None:
    """The same bytes, once the APIs this test does not serve are taken out of the real answer."""
    session = Session()
    session.connection.data_received(bytes.fromhex(answer["request_hex"]))
    (ours,) = session.answers
    (theirs,) = FrameReader().feed(bytes.fromhex(answer["response_hex"]))
    if answer["version"] <= 4:
        message, end = messages.decode("ApiVersionsResponse", answer["version"], theirs, 4)
        assert end == len(theirs)
        message = message._replace(api_keys=[row for row in message.api_keys if row.api_key in HANDLERS])
        theirs = theirs[:4] + messages.encode(message, answer["version"])
    assert ours == theirs
    await session.close()


async def test_requests_before_a_bad_frame_are_answered() -> None:
    session = Session()
    good = wire.request(3, 1, 5, messages.MetadataRequest(topics=None))
    session.connection.data_received(good + b"\xff\xff\xff\xff" + good)
    assert [int.from_bytes(answer[:4], "big") for answer in session.answers] == [5]
    assert session.transport.closed
    await session.close()


async def test_bad_frame_behind_a_waiting_request_closes_after_its_answer() -> None:
    gate = asyncio.Event()

    async def handle(ctx: Any, request: Any) -> Any:
        await gate.wait()
        return messages.MetadataResponse()

    session = Session()
    session.connection.dispatch_to(wire.make_dispatcher({3: Handler(handle)}))
    good = wire.request(3, 1, 5, messages.MetadataRequest(topics=None))
    session.connection.data_received(good + good + b"\x7f\xff\xff\xff")
    await asyncio.sleep(0)
    assert not session.transport.closed
    gate.set()
    await asyncio.gather(*session.listener.requests)
    await asyncio.gather(*session.listener.requests)
    assert len(session.answers) == 2
    assert session.transport.closed
    await session.close()


async def test_nothing_is_kept_of_a_connection_that_is_closed() -> None:
    session = Session()
    session.connection.data_received(b"\xff\xff\xff\xff")
    for _ in range(100):
        session.connection.data_received(b"x" * 10_000)
    assert session.connection._flow.buffered == 0
    assert session.connection._flow.waiting == 0
    await session.close()
