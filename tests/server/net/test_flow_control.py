"""Flow control of a connection's input, without a connection: whole, byte by byte, pipelined, with every reason to stop."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.protocol.framing import BadLength
from klamm.server.listeners.flow_control import CLOSED, HANDLING, HELD, THROTTLED, UNREAD, FlowControl

LIMIT = 1000


def frame(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


class Input:
    """A flow control and the transport it speaks to. What that was told is in `reading`, whose last element is how it stands."""

    def __init__(self) -> None:
        self.reading = [True]
        self.flow = FlowControl(LIMIT, self)

    def pause_reading(self) -> None:
        self.reading.append(False)

    def resume_reading(self) -> None:
        self.reading.append(True)

    def taken(self) -> list[bytes]:
        frames = []
        while (payload := self.flow.next()) is not None:
            frames.append(payload)
        return frames


def test_frame_comes_whole() -> None:
    one = Input()
    assert one.flow.between_frames
    one.flow.feed(frame(b"first"))
    assert not one.flow.between_frames
    assert one.taken() == [b"first"]
    assert one.flow.between_frames
    assert one.reading == [True]


def test_frame_comes_byte_by_byte() -> None:
    one = Input()
    for byte in frame(b"first")[:-1]:
        one.flow.feed(bytes([byte]))
        assert one.taken() == []
        assert not one.flow.between_frames
    one.flow.feed(b"t")
    assert one.taken() == [b"first"]
    assert one.flow.between_frames


def test_pipelined_frames_keep_their_order_and_half_a_frame_waits() -> None:
    one = Input()
    third = frame(b"third")
    one.flow.feed(frame(b"1") + frame(b"2") + third[:6])
    assert one.taken() == [b"1", b"2"]
    assert not one.flow.between_frames
    assert one.flow.buffered == 6
    one.flow.feed(third[6:] + frame(b"4"))
    assert one.taken() == [b"third", b"4"]
    assert one.flow.between_frames


@pytest.mark.parametrize("reason", [HELD, UNREAD, HANDLING, THROTTLED])
def test_nothing_is_given_out_or_read_while_there_is_a_reason_to_stop(reason: int) -> None:
    one = Input()
    one.flow.feed(frame(b"1") + frame(b"2"))
    assert one.flow.next() == b"1"
    one.flow.stop(reason)
    assert one.reading == [True, False]
    one.flow.feed(frame(b"3"))
    one.flow.feed(frame(b"4"))
    assert one.taken() == []
    assert one.flow.waiting == 3
    assert not one.flow.between_frames
    one.flow.allow(reason)
    assert one.taken() == [b"2", b"3", b"4"]
    assert one.reading == [True, False, True]
    assert one.flow.between_frames


def test_every_reason_must_end() -> None:
    one = Input()
    one.flow.feed(frame(b"1"))
    for reason in (HANDLING, UNREAD, HELD):
        one.flow.stop(reason)
    for reason in (HANDLING, UNREAD):
        one.flow.allow(reason)
        assert one.taken() == []
    one.flow.allow(HELD)
    assert one.taken() == [b"1"]
    assert one.reading == [True, False, True]


def test_socket_stays_paused_until_what_came_is_handled() -> None:
    one = Input()
    one.flow.feed(frame(b"1") + frame(b"2"))
    one.flow.next()
    one.flow.stop(UNREAD)
    one.flow.allow(UNREAD)
    assert one.flow.next() == b"2"
    assert one.reading == [True, False]
    assert one.flow.next() is None
    assert one.reading == [True, False, True]


def test_bad_length_comes_in_its_turn() -> None:
    one = Input()
    one.flow.feed(frame(b"1") + frame(b"2") + b"\xff\xff\xff\xff")
    assert one.flow.next() == b"1"
    one.flow.stop(HANDLING)
    one.flow.feed(frame(b"behind"))
    assert one.flow.next() is None
    one.flow.allow(HANDLING)
    assert one.flow.next() == b"2"
    with pytest.raises(BadLength):
        one.flow.next()


def test_nothing_is_kept_after_closing() -> None:
    one = Input()
    one.flow.feed(frame(b"1") + frame(b"2")[:4])
    one.flow.stop(CLOSED)
    one.flow.feed(frame(b"3"))
    assert (one.flow.waiting, one.flow.buffered) == (0, 0)
    assert one.taken() == []
    one.flow.stop(HANDLING)
    one.flow.repeat_pause()
    assert one.reading == [True]


def test_peeked_frame_stays_until_it_is_dropped() -> None:
    one = Input()
    assert one.flow.peek() is None
    one.flow.feed(frame(b"1") + frame(b"2"))
    one.flow.stop(HANDLING)
    assert one.flow.peek() == one.flow.peek() == b"1"
    one.flow.drop()
    assert one.flow.peek() == b"2"
    one.flow.allow(HANDLING)
    assert one.taken() == [b"2"]


def test_pause_is_repeated_only_while_there_is_one() -> None:
    one = Input()
    one.flow.repeat_pause()
    one.flow.stop(HELD)
    one.flow.repeat_pause()
    assert one.reading == [True, False, False]
    one.flow.allow(HELD)
    one.taken()
    one.flow.repeat_pause()
    assert one.reading == [True, False, False, True]


STEPS = st.one_of(st.integers(1, 9), st.sampled_from(["stop", "allow", "take"]))


@given(st.lists(st.binary(max_size=12), max_size=10), st.lists(STEPS, max_size=60))
def test_frames_come_out_once_and_in_order_whatever_happens_between(payloads: list[bytes], steps: list[int | str]) -> None:
    one = Input()
    stream = b"".join(map(frame, payloads))
    taken: list[bytes] = []
    for step in steps:
        match step:
            case "stop":
                one.flow.stop(UNREAD)
            case "allow":
                one.flow.allow(UNREAD)
                taken += one.taken()
            case "take":
                taken += one.taken()
            case int():
                one.flow.feed(stream[:step])
                stream = stream[step:]
        assert not (one.flow.stops and one.flow.between_frames)
        assert not (one.flow.stops and one.reading[-1])
    one.flow.feed(stream)
    one.flow.allow(UNREAD)
    taken += one.taken()
    assert taken == payloads
    assert one.reading[-1]
    assert one.flow.between_frames
