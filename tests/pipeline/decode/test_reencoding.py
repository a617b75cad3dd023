"""What is said about frames whose bytes are not those that an encoder makes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klamm.journal.columns import Direction
from klamm.pipeline.decode import reencoding
from klamm.pipeline.decode.frame_decoder import body_place
from klamm.pipeline.decode.reencoding import FIRST, TOLERATED, Oddity, Walk, difference, is_sampled, is_second_sampled
from klamm.protocol import messages, second_opinion
from klamm.tests.pipeline.decode.frame_samples import FrameSample, frame_of, recorded
from klamm.tests.protocol.strategies import all_versions, message


def said(row: FrameSample, *, second: bool = True) -> str | None:
    return difference(*row, second=second)


def versions_frame(tail: bytes) -> FrameSample:
    """An ApiVersions response of version 3 with other tagged fields than none."""
    row = frame_of("ApiVersionsResponse", 3, messages.ApiVersionsResponse())
    return row._replace(frame=row.frame[:-1] + tail)


def test_what_real_brokers_and_clients_have_sent_is_what_both_codecs_make_of_it() -> None:
    assert [found for row in recorded() if (found := said(row)) is not None] == []


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(all_versions()).flatmap(lambda pair: st.tuples(st.just(pair), message(*pair))))
def test_no_message_that_the_encoder_makes_differs(sample: tuple[tuple[str, int], Any]) -> None:
    (name, version), value = sample
    if name == "ApiVersionsResponse" and value.error_code == 35:
        return
    row = frame_of(name, version, value)
    assert said(row) is None
    place = body_place(row.dir == Direction.REQUEST_IN, row.key, row.version, row.frame)
    assert place is not None and place[:2] == (name, version)
    walk = Walk(messages.message_type(name).schema, version, row.frame, place[2])
    assert (walk.canonical(), walk.oddities) == (row.frame[place[2] :], {})


def group_frame(name: bytes, null_length: bytes = b"\xff\xff\xff\xff") -> FrameSample:
    """A Metadata request of version 5, whose lengths have two and four bytes."""
    body = (b"\0\0\0\x01" + len(name).to_bytes(2, "big") + name if name else null_length) + b"\x01"
    return FrameSample(Direction.REQUEST_OUT, 3, 5, messages.encode_request(3, 5, 7, "me", body))


TAGS = {
    Oddity.UNKNOWN_TAG: b"\1\x63\2ab",
    Oddity.DEFAULT_TAG: b"\1\1\x08" + b"\xff" * 8,
    Oddity.TAG_ORDER: b"\2\3\1\1\1\x08" + bytes(8),
    Oddity.LONG_NUMBER: b"\x80\0",
}


@pytest.mark.parametrize(("oddity", "tail"), TAGS.items(), ids=[oddity.name for oddity in TAGS])
def test_an_odd_tagged_field_is_named_unless_it_is_tolerated(oddity: Oddity, tail: bytes) -> None:
    found = said(versions_frame(tail))
    assert (found is None) == (oddity in TOLERATED)
    assert found is None or oddity.value in found


def test_a_boolean_of_two_is_named() -> None:
    row = group_frame(b"t")
    assert said(row) is None
    found = said(row._replace(frame=row.frame[:-1] + b"\2"))
    assert found is not None and Oddity.BOOLEAN.value in found


def test_a_null_with_another_length_than_minus_one_is_named() -> None:
    assert said(group_frame(b"")) is None
    found = said(group_frame(b"", b"\xff\xff\xff\xfe"))
    assert found is not None and Oddity.NULL.value in found


def test_text_that_is_not_utf_8_is_named() -> None:
    found = said(group_frame(b"\xff\xfe"))
    assert found is not None and Oddity.TEXT.value in found


def test_surplus_of_librdkafka_is_tolerated() -> None:
    body = bytes.fromhex("00 00 00 00 01 00 00")
    assert said(FrameSample(Direction.REQUEST_OUT, 3, 12, messages.encode_request(3, 12, 7, "rdkafka", body))) is None


def test_a_codec_that_loses_something_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    row = frame_of("MetadataResponse", 12, messages.MetadataResponse(cluster_id="c", controller_id=1))
    encode = messages.encode
    monkeypatch.setattr(messages, "encode", lambda value, version: encode(value, version).replace(b"\0\0\0\1", b"\0\0\0\2"))
    assert "differs from byte" in str(said(row, second=False))


def test_a_second_codec_that_understands_something_else_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    row = frame_of("MetadataResponse", 12, messages.MetadataResponse(cluster_id="c", controller_id=1))
    monkeypatch.setattr(second_opinion, "encoded_again", lambda name, version, body: body.replace(b"\0\0\0\1", b"\0\0\0\2"))
    assert said(row, second=False) is None
    assert "kafka-python differs" in str(said(row))
    monkeypatch.setattr(second_opinion, "encoded_again", lambda name, version, body: 1 // 0)
    assert "not understood by kafka-python" in str(said(row))


def test_the_sample_is_the_first_rows_and_a_part_of_requests_and_responses_alike() -> None:
    assert all(map(is_sampled, range(1, FIRST + 1)))
    later = range(FIRST + 1, FIRST + 200_001)
    for parity in (0, 1):
        mine = [seq for seq in later if seq % 2 == parity]
        assert 0.8 < sum(map(is_sampled, mine)) * reencoding.EVERY / len(mine) < 1.2
        assert 0.7 < sum(map(is_second_sampled, mine)) * reencoding.SECOND_EVERY / len(mine) < 1.3
    assert all(is_sampled(seq) for seq in later if is_second_sampled(seq))
