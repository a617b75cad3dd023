from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.protocol.errors import RemoteProtocolError
from klamm.protocol.framing import DEFAULT_LIMIT, FrameReader, frame_ends
from klamm.tests.protocol import golden


def frame(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


def samples() -> list[bytes]:
    """Every tenth recorded request, as it came."""
    return [bytes.fromhex(row["hex"]) for row in golden.lines("requests.jsonl")][::10]


def test_whole_then_byte_by_byte_then_with_bytes_behind() -> None:
    for sample in samples():
        payload = sample[4:]
        assert FrameReader().feed(sample) == [payload]
        reader = FrameReader()
        fed = [reader.feed(sample[i : i + 1]) for i in range(len(sample))]
        assert fed == [[]] * (len(sample) - 1) + [[payload]]
        assert reader.feed(sample + sample[:7]) == [payload]
        assert reader.buffered == 7
        assert reader.feed(sample[7:]) == [payload]
        assert reader.buffered == 0


@given(st.lists(st.binary(max_size=40), max_size=12), st.lists(st.integers(min_value=1, max_value=30), min_size=1))
def test_pieces_of_any_size_give_the_same_frames(payloads: list[bytes], sizes: list[int]) -> None:
    stream = b"".join(map(frame, payloads))
    reader = FrameReader()
    found: list[bytes] = []
    pos = step = 0
    while pos < len(stream):
        size = sizes[step % len(sizes)]
        found += reader.feed(stream[pos : pos + size])
        pos += size
        step += 1
    assert found == payloads
    assert reader.buffered == 0


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_payloads_are_copies(kind: type) -> None:
    source = bytearray(frame(b"abc"))
    payloads = FrameReader().feed(kind(source))
    source[:] = bytes(len(source))
    assert payloads == [b"abc"]
    assert type(payloads[0]) is bytes


@pytest.mark.parametrize("size", [1000, 1 << 16])
def test_frame_that_comes_in_pieces_is_copied_once(size: int) -> None:
    """Besides what the reader collects: the peak is the collected frame and one copy of it."""
    payload = bytes(1 << 20)
    stream = frame(payload) + frame(b"next")[:5]
    pieces = [stream[start : start + size] for start in range(0, len(stream), size)]
    reader = FrameReader()
    for piece in pieces[:-1]:
        assert reader.feed(piece) == []
    tracemalloc.start()
    try:
        assert reader.feed(pieces[-1]) == [payload]
        assert tracemalloc.get_traced_memory()[1] < len(payload) + 200_000
    finally:
        tracemalloc.stop()
    assert reader.feed(frame(b"next")[5:]) == [b"next"]


def test_an_empty_frame_is_a_frame() -> None:
    assert FrameReader().feed(bytes(8)) == [b"", b""]


@pytest.mark.parametrize("length", [-1, -(2**31), 101, 2**31 - 1])
def test_a_length_out_of_range_is_refused_at_once(length: int) -> None:
    with pytest.raises(RemoteProtocolError, match=f"a frame of {length} bytes"):
        FrameReader(100).feed(length.to_bytes(4, "big", signed=True))


def test_the_limit_itself_is_allowed_and_may_change() -> None:
    reader = FrameReader(5)
    assert reader.feed(frame(b"12345")) == [b"12345"]
    reader.limit = 6
    assert reader.feed(frame(b"123456")) == [b"123456"]
    with pytest.raises(RemoteProtocolError):
        reader.feed(frame(b"1234567"))
    assert DEFAULT_LIMIT == 100 * 1024 * 1024


def test_frames_before_a_bad_one_are_not_lost() -> None:
    with pytest.raises(RemoteProtocolError) as raised:
        FrameReader().feed(frame(b"good") + b"\xff\xff\xff\xff")
    assert raised.value.payloads == [b"good"]  # type: ignore[attr-defined]


def test_nothing_is_kept_for_what_was_only_announced() -> None:
    tracemalloc.start()
    try:
        reader = FrameReader()
        assert reader.feed(DEFAULT_LIMIT.to_bytes(4, "big") + b"x") == []
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_frame_ends_are_those_of_whole_frames_and_say_what_the_next_one_announces() -> None:
    data = b"\0\0\0\2ab" + b"\0\0\0\0" + b"\0\0\0\5abc"
    assert frame_ends(data) == ([6, 10], 5)
    assert frame_ends(data[:12]) == ([6, 10], None)
    assert frame_ends(data[:10]) == ([6, 10], None)
    assert frame_ends(data, limit=1) == ([], 2)
    assert frame_ends(data[:6] + b"\xff\xff\xff\xff" + data) == ([6], -1)
