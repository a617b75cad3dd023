"""Kept answers: found by the bytes of their requests, bounded in number and size."""

from __future__ import annotations

import pytest

from klamm.server import dispatch
from klamm.server.dispatch import Answers


def payload(n: int, size: int = 12) -> bytes:
    """A request's bytes: API key, version, correlation id, and what tells it from others."""
    return b"\0\3\0\1" + b"\0\0\0\0" + n.to_bytes(size - 8, "big")


def kept(answers: Answers) -> int:
    return sum(len(known) for _, known in answers.by_frame.values())


def test_answers_are_found_without_the_correlation_id() -> None:
    answers = Answers()
    answers.keep(payload(7), b"SIZECORRbody")
    length, known = answers.by_frame[b"\0\0\0\x0c\0\3\0\1"]
    assert length == 16
    assert known == {payload(7)[8:]: (b"SIZE", b"body")}


def test_bounded_in_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "MAX_CACHED_ANSWERS", 10)
    answers, counts = Answers(), []
    for n in range(25):
        answers.keep(payload(n), bytes(12))
        counts.append(kept(answers))
    assert counts == [*range(1, 11), *range(1, 11), *range(1, 6)]


def test_bounded_in_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests count too: they are the keys."""
    monkeypatch.setattr(dispatch, "MAX_CACHED_ANSWER_BYTES", 1000)
    answers, counts = Answers(), []
    for n in range(25):
        answers.keep(payload(n, 40), bytes(60))
        counts.append(kept(answers))
    assert counts == [*range(1, 11), *range(1, 11), *range(1, 6)]


def test_answers_to_long_requests_are_not_kept() -> None:
    answers = Answers()
    answers.keep(payload(0, dispatch.MAX_CACHED_REQUEST_BYTES + 1), bytes(12))
    assert kept(answers) == 0
    answers.keep(payload(0, dispatch.MAX_CACHED_REQUEST_BYTES), bytes(12))
    assert kept(answers) == 1


def test_another_state_of_the_cache_drops_them() -> None:
    answers = Answers()
    answers.hold_for(1)
    answers.keep(payload(0), bytes(12))
    answers.hold_for(1)
    assert kept(answers) == 1
    answers.hold_for(2)
    assert kept(answers) == 0
