"""Frames of real clients and brokers: read, compared with Kafka's reading of them, and written again to the same bytes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from klamm.protocol import json_form, messages
from klamm.protocol.errors import RemoteProtocolError
from klamm.protocol.framing import FrameReader
from klamm.tests.protocol import golden


class Tally:
    """Counts frames, and keeps what went wrong."""

    def __init__(self) -> None:
        self.tried: Counter[str] = Counter()
        self.surplus: Counter[str] = Counter()
        self.wrong: list[str] = []

    def request(self, frame: str, wanted: dict[str, Any] | None) -> int:
        """The version of a request."""
        payload = golden.payload(frame)
        header, offset = messages.decode_request_header(payload)
        name = f"{messages.APIS[header.api_key].name}Request"
        message, end = messages.decode(name, header.api_version, payload, offset)
        again = messages.encode_request(*header, messages.encode(message, header.api_version))
        self.note(name, header.api_version, message, wanted, payload, end, again)
        return header.api_version

    def response(self, key: int, version: int, frame: str, wanted: dict[str, Any]) -> None:
        payload = golden.payload(frame)
        correlation_id, offset = messages.decode_response_header(key, version, payload)
        name = f"{messages.APIS[key].name}Response"
        message, end = messages.decode(name, version, payload, offset)
        again = messages.encode_response(key, version, correlation_id, messages.encode(message, version))
        self.note(name, version, message, wanted, payload, end, again)

    def note(self, name: str, version: int, message: Any, wanted: Any, payload: bytes, end: int, again: bytes) -> None:
        self.tried[name] += 1
        self.surplus[name] += len(payload) - end
        if wanted is not None and json_form.to_json(message, version) != wanted:
            self.wrong.append(f"{name} {version} read as {json_form.to_json(message, version)}, not {wanted}")
        if again[4:] != payload[:end] or int.from_bytes(again[:4], "big") != end:
            self.wrong.append(f"{name} {version} written as {again[4:].hex()}, not {payload[:end].hex()}")


@pytest.fixture
def tally() -> Tally:
    return Tally()


def test_requests_of_real_clients(tally: Tally) -> None:
    for row in golden.lines("requests.jsonl"):
        tally.request(row["hex"], None)
    print(f"frames tried {tally.tried.total()}, wrong {len(tally.wrong)}")
    assert tally.wrong == []
    assert tally.tried.total() == 337
    assert +tally.surplus == {"MetadataRequest": 3}  # librdkafka writes its null array with four bytes where one is due


@pytest.mark.parametrize(("file", "requests", "responses"), [("responses.jsonl.gz", 458, 458), ("live.jsonl.gz", 437, 421)])
def test_client_sessions_with_a_real_cluster(file: str, requests: int, responses: int, tally: Tally) -> None:
    answered = 0
    for row in golden.lines(file):
        version = tally.request(row["request_hex"], row["request"])
        assert version == row["api_version"]
        if row.get("response_hex") and row["decoded"] is not None:
            answered += 1
            tally.response(row["api_key"], row.get("body_version", version), row["response_hex"], row["decoded"])
    print(f"{file}: frames tried {tally.tried.total()}, wrong {len(tally.wrong)}")
    assert tally.wrong == []
    assert (tally.tried.total() - answered, answered) == (requests, responses)
    assert set(+tally.surplus) == {"MetadataRequest"}


def test_frames_between_brokers(tally: Tally) -> None:
    for row in golden.lines("interbroker.jsonl.gz"):
        if row["response"]:
            tally.response(row["api_key"], row["api_version"], row["hex"], row["json"])
        else:
            tally.request(row["hex"], row["json"])
            header, _ = messages.decode_request_header(golden.payload(row["hex"]))
            assert list(header) == list(row["header"].values())
    print(f"interbroker: frames tried {tally.tried.total()}, wrong {len(tally.wrong)}")
    assert tally.wrong == []
    assert tally.tried.total() == 1204
    assert not +tally.surplus


# Closed by a real broker for what the request asks, not for how it is written.
CLOSED_FOR_OTHER_REASONS = {
    "envelope",
    "default:58:0",
    "default:29:0",
    "default:29:1",
    "default:29:2",
    "default:29:3",
    "produce-acks-0-unknown-topic",
    "sasl-apiversions-twice",
    "sasl-metadata-first",
    "sasl-handshake-unknown-then-plain",
}
# The token of the oldest SASL exchange is a frame without header; the last one is longer than a frame before authentication may be.
BARE_TOKENS = {"sasl-v0-plain-good", "sasl-v0-plain-bad", "sasl-token-too-large"}


def refusal(frame: str) -> str | None:
    """Why we would not take a frame; None where we would. ApiVersions is answered whatever its version."""
    try:
        for payload in FrameReader().feed(bytes.fromhex(frame)):
            header, offset = messages.decode_request_header(payload)
            api = messages.APIS[header.api_key]
            if api.draft or not api.min_version <= header.api_version <= api.max_version:
                return None if api.key == messages.ApiKey.API_VERSIONS else "no such version"
            messages.decode(f"{api.name}Request", header.api_version, payload, offset)
    except RemoteProtocolError as error:
        return str(error)
    return None


def test_odd_frames_are_taken_and_refused_as_by_a_real_broker() -> None:
    results: Counter[str] = Counter()
    for row in golden.lines("raw.jsonl.gz"):
        case, result = row["case"], row["result"]
        if case in BARE_TOKENS:
            continue
        reasons = [refusal(frame) for frame in row["frames"]]
        results[result] += 1
        if result == "closed" and case not in CLOSED_FOR_OTHER_REASONS:
            assert reasons[-1] is not None, case
            reasons.pop()
        assert reasons == [None] * len(reasons), (case, reasons)
    assert results == {"answered": 563, "closed": 113, "no answer": 18}
