"""Cached responses: found by the bytes of their requests, limited in number and size."""

from __future__ import annotations

import pytest

from klamm.server.requests import response_cache
from klamm.server.requests.response_cache import ResponseCache, ResponseCaches
from klamm.server.security.authorizer import ANONYMOUS, Principal


def payload(n: int, size: int = 12) -> bytes:
    """A request's bytes: API key, version, correlation id, and what tells it from others."""
    return b"\0\3\0\1" + b"\0\0\0\0" + n.to_bytes(size - 8, "big")


def cached(cache: ResponseCache) -> int:
    return sum(len(known) for _, known in cache.by_frame.values())


def test_responses_are_found_without_the_correlation_id() -> None:
    cache = ResponseCache()
    cache.add(payload(7), b"SIZECORRbody")
    length, known = cache.by_frame[b"\0\0\0\x0c\0\3\0\1"]
    assert length == 16
    assert known == {payload(7)[8:]: (b"SIZE", b"body")}


def test_bounded_in_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(response_cache, "MAX_RESPONSES", 10)
    cache, counts = ResponseCache(), []
    for n in range(25):
        cache.add(payload(n), bytes(12))
        counts.append(cached(cache))
    assert counts == [*range(1, 11), *range(1, 11), *range(1, 6)]


def test_bounded_in_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests count too: they are the keys."""
    monkeypatch.setattr(response_cache, "MAX_RESPONSE_BYTES", 1000)
    cache, counts = ResponseCache(), []
    for n in range(25):
        cache.add(payload(n, 40), bytes(60))
        counts.append(cached(cache))
    assert counts == [*range(1, 11), *range(1, 11), *range(1, 6)]


def test_responses_to_long_requests_are_not_cached() -> None:
    cache = ResponseCache()
    cache.add(payload(0, response_cache.MAX_REQUEST_BYTES + 1), bytes(12))
    assert cached(cache) == 0
    cache.add(payload(0, response_cache.MAX_REQUEST_BYTES), bytes(12))
    assert cached(cache) == 1


def test_another_state_of_the_cache_drops_them() -> None:
    cache = ResponseCache()
    cache.use_generation(1)
    cache.add(payload(0), bytes(12))
    cache.use_generation(1)
    assert cached(cache) == 1
    cache.use_generation(2)
    assert cached(cache) == 0


def test_each_principal_has_a_cache_of_its_own_while_somebody_uses_it() -> None:
    caches, alice = ResponseCaches(), Principal("User", "alice")
    mine, theirs = caches.of(alice), caches.of(ANONYMOUS)
    mine.add(payload(1), bytes(12))
    assert caches.of(alice) is mine and caches.of(ANONYMOUS) is theirs
    assert (cached(mine), cached(theirs)) == (1, 0)
    theirs.add(payload(2), bytes(12))
    caches.clear()
    assert (cached(mine), cached(theirs)) == (0, 0)
    mine.add(payload(1), bytes(12))
    del mine
    assert cached(caches.of(alice)) == 0
