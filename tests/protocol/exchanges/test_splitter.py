"""Bytes in any pieces become the same frames, also when some of them are only counted."""

from __future__ import annotations

import random

from klamm.protocol.exchanges.splitter import HEAD_BYTES, Splitter


def framed(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


def pieces(data: bytes, dice: random.Random) -> list[bytes]:
    cuts = sorted(dice.randrange(len(data) + 1) for _ in range(dice.randrange(20)))
    return [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]


def test_frames_are_taken_and_counted_in_any_pieces() -> None:
    for seed in range(300):
        dice, taken, counted = random.Random(seed), 0, 0
        payloads = [bytes([number % 256]) * dice.randrange(40) for number in range(dice.randrange(1, 30))]
        seen: list[bytes] = []
        splitter = Splitter(lambda frame, size: seen.append(frame))  # noqa: B023 it is used in this turn only
        for piece in pieces(b"".join(map(framed, payloads)), dice):
            if dice.random() < 0.4:
                counted += splitter.count(piece)
            else:
                splitter.feed(piece)
                new, seen[:] = seen[:], []
                assert new == [framed(each) for each in payloads[taken + counted : taken + counted + len(new)]], seed
                taken += len(new)
        assert taken + counted == len(payloads), seed


def test_of_a_frame_in_pieces_only_what_is_kept_is_joined_and_its_size_is_known() -> None:
    seen: list[tuple[int, int]] = []
    splitter = Splitter(lambda frame, size: seen.append((len(frame), size)), keep=lambda head: 2 * HEAD_BYTES if head[4] else 1 << 30)
    large = framed(b"\1" * 100_000)
    for start in range(0, len(large), 999):
        splitter.feed(large[start : start + 999])
    splitter.feed(large + framed(b"\1") + framed(b"\0" * 5000)[:3000])
    splitter.feed(framed(b"\0" * 5000)[3000:])
    assert seen == [(2 * HEAD_BYTES, 100_004), (100_004, 100_004), (5, 5), (5004, 5004)]


def test_nothing_is_read_after_a_negative_length_and_the_rest_of_a_frame_is_given_at_the_end() -> None:
    frames: list[bytes] = []
    rests: list[bytes] = []
    splitter = Splitter(lambda frame, size: frames.append(frame), rests.append)
    splitter.feed(framed(b"a") + b"\xff\xff\xff\xffGET /")
    splitter.feed(framed(b"b"))
    splitter.end()
    assert (frames, rests) == ([framed(b"a")], [b"\xff\xff\xff\xffGET /"])
    splitter = Splitter(lambda frame, size: frames.append(frame), rests.append)
    splitter.feed(framed(b"abc")[:5])
    splitter.end()
    assert rests[1:] == [framed(b"abc")[:5]]
