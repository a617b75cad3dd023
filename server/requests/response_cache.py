"""Encoded responses by the bytes of their requests, for requests that many clients send again and again.

A response is cached when it depends on nothing but the request's bytes, the listener, the principal, and what the caches are cleared for:
metadata cache, features, configs, levels of the log. `server/net/connection.py` looks here first, and needs neither decoder nor handler
for a request it has seen.
"""

from __future__ import annotations

from weakref import WeakSet, WeakValueDictionary

from klamm.server.security.authorizer import ANONYMOUS, Principal

MAX_REQUEST_BYTES = 1024
MAX_RESPONSES = 1000
MAX_RESPONSE_BYTES = 64 << 20


class ResponseCache:
    """Finds a response without understanding anything of its request, in two steps.

    The first eight bytes of a request (length, API key, version) lead to the length of the whole frame and to a dict; in it the bytes
    after the correlation id lead to the response's length field and to what follows the correlation id in the response.
    All responses are of one `generation` of the metadata cache. Their number and size are limited.
    """

    __slots__ = ("__weakref__", "_count", "_size", "by_frame", "generation")

    def __init__(self) -> None:
        self.by_frame: dict[bytes, tuple[int, dict[bytes, tuple[bytes, bytes]]]] = {}
        self.generation = 0
        self._count = 0
        self._size = 0
        _caches.add(self)

    def use_generation(self, generation: int) -> None:
        """Drop responses that were made from another state of the metadata cache."""
        if generation != self.generation:
            self.clear()
            self.generation = generation

    def add(self, payload: bytes, frame: bytes) -> None:
        """Cache the response `frame` to the request `payload`."""
        if len(payload) > MAX_REQUEST_BYTES:
            return
        if self._count >= MAX_RESPONSES or self._size + len(frame) > MAX_RESPONSE_BYTES:
            self.clear()
        self._count += 1
        self._size += len(frame) + len(payload)
        _, responses = self.by_frame.setdefault(len(payload).to_bytes(4, "big") + payload[:4], (4 + len(payload), {}))
        responses[payload[8:]] = frame[:4], frame[8:]

    def clear(self) -> None:
        self.by_frame.clear()
        self._count = self._size = 0


class ResponseCaches:
    """The caches of one listener, one for each principal: what a client may see depends on who it is.

    A cache lasts as long as a connection uses it, that of clients without authentication always.
    """

    def __init__(self) -> None:
        self._anonymous = ResponseCache()
        self._by_principal: WeakValueDictionary[Principal, ResponseCache] = WeakValueDictionary({ANONYMOUS: self._anonymous})

    def of(self, principal: Principal) -> ResponseCache:
        """The cache of this principal."""
        found = self._by_principal.get(principal)
        if found is None:
            found = self._by_principal[principal] = ResponseCache()
        return found

    def clear(self) -> None:
        """Forget all responses; connections go on with the caches that they have."""
        for cache in list(self._by_principal.values()):
            cache.clear()


_caches: WeakSet[ResponseCache] = WeakSet()


def clear_all() -> None:
    """Clear the caches of all brokers of this process: they share their loggers, and the request log may be on now."""
    for cache in _caches:
        cache.clear()
