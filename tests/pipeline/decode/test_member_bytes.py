"""Subscriptions and assignments as kafka-python writes them, and bytes that are neither."""

from __future__ import annotations

import base64
from zlib import crc32

import pytest
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription

from klamm.journal.columns import Flag
from klamm.pipeline.decode.frame_decoder import decode_frame
from klamm.pipeline.decode.member_bytes import HEAD_KEPT, assignment_brief, subscription_brief
from klamm.protocol import messages
from klamm.tests.pipeline.decode.frame_samples import frame_of

pytestmark = pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated")

VERSIONS = range(4)


def encoded(kind: type, version: int, **fields: object) -> bytes:
    """As kafka-python's consumers send it; the version comes first."""
    return bytes(kind(version=version, **fields).encode())


@pytest.mark.parametrize("version", VERSIONS)
def test_a_subscription_is_its_topics(version: int) -> None:
    owned = [] if version == 0 else [("t", [1])]
    fields = {"owned_partitions": owned} if version else {}
    data = encoded(ConsumerProtocolSubscription, version, topics=["t", "other-ü"], user_data=b"x" * 500, **fields)
    assert subscription_brief(data) == {"size": len(data), "crc": crc32(data), "topics": ["t", "other-ü"]}


@pytest.mark.parametrize("version", VERSIONS)
def test_an_assignment_is_its_partitions(version: int) -> None:
    partitions = list(range(1000))
    data = encoded(ConsumerProtocolAssignment, version, assigned_partitions=[("t", partitions), ("u", [])], user_data=None)
    brief = assignment_brief(data)
    assert brief is not None
    assert (brief["size"], brief["crc"]) == (len(data), crc32(data))
    assert brief["partitions"] == [{"topic": "t", "partitions": partitions}, {"topic": "u", "partitions": []}]


@pytest.mark.parametrize(
    "data",
    [
        b"", b"\0", b"\0\0\0\0\0\1", b"\0\0\0\0\0\1\0\5tt", b"\xff\xff\0\0\0\0", b"\0\0\xff\xff\xff\xff", b"\0\0\x7f\xff\xff\xff",
        b"\0\0\0\0\0\1\xff\xff", b"\0\0\0\0\0\1\0\1\xff\0\0\0\1", b"\1" * 500,
    ],
)
def test_other_bytes_are_their_size_and_their_beginning(data: bytes) -> None:
    head = {"head": base64.b64encode(data[:HEAD_KEPT]).decode()} if data else {}
    assert subscription_brief(data) == assignment_brief(data) == {"size": len(data), "crc": crc32(data), **head}


def test_a_count_of_partitions_above_the_bytes_is_no_assignment() -> None:
    data = b"\0\0\0\0\0\1\0\1t\x7f\xff\xff\xff"
    assert "head" in (assignment_brief(data) or {})
    assert subscription_brief(data) == {"size": 13, "crc": crc32(data), "topics": ["t"], "isOdd": True}
    assert subscription_brief(None) is None and assignment_brief(None) is None


def test_a_request_that_the_journal_cut_has_the_assignments_before_the_cut() -> None:
    row = messages.SyncGroupRequest.SyncGroupRequestAssignment
    data = encoded(ConsumerProtocolAssignment, 0, assigned_partitions=[("t", [3])], user_data=None)
    request = messages.SyncGroupRequest(group_id="g", generation_id=1, member_id="a", assignments=[row("a", data), row("b", bytes(500))])
    sample = frame_of("SyncGroupRequest", 3, request)
    body, *_ = decode_frame(*sample[:3], Flag.CUT, sample.frame[:90])
    assert body is not None
    assert body["assignments"][0]["assignment"]["partitions"] == [{"topic": "t", "partitions": [3]}]
    assert body["assignments"][1:] == [{"memberId": "b"}]
