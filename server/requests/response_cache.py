"""A cache of encoded responses, found by the bytes of the request, for requests that many clients repeat.

A response is cached if it depends only on the bytes of the request, the listener, the principal, and on state whose changes clear the
caches: metadata cache, features, configs, log levels. `server/listeners/connection.py` looks here first; a repeated request needs
neither the decoder nor a handler.
"""

from __future__ import annotations

from weakref import WeakSet, WeakValueDictionary

from klamm.server.security.authorizer import ANONYMOUS, Principal

MAX_REQUEST_BYTES = 1024
MAX_RESPONSES = 1000
MAX_RESPONSE_BYTES = 64 << 20


class ResponseCache:
    """Finds a response in two steps, without decoding the request.

    The first eight bytes of a request (length, API key, version) give the length of the whole frame and a dict. In this dict the bytes
    after the correlation id of the request give the length field of the response and the bytes after its correlation id.
    All responses belong to one `generation` of the metadata cache. Their number and size are limited.
    """

    __slots__ = ("__weakref__", "_count", "_size", "by_frame", "generation")

    def __init__(self) -> None:
        self.by_frame: dict[bytes, tuple[int, dict[bytes, tuple[bytes, bytes]]]] = {}
        self.generation = 0
        self._count = 0
        self._size = 0
        _caches.add(self)

    def use_generation(self, generation: int) -> None:
        """Drop all responses if they belong to another generation of the metadata cache."""
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
    """The caches of one listener, one for each principal, because different principals may see different things.

    A cache exists as long as a connection uses it. The cache of anonymous clients always exists.
    """

    def __init__(self) -> None:
        self._anonymous = ResponseCache()
        self._by_principal: WeakValueDictionary[Principal, ResponseCache] = WeakValueDictionary({ANONYMOUS: self._anonymous})

    def of(self, principal: Principal) -> ResponseCache:
        """The cache of this principal."""
        cache = self._by_principal.get(principal)
        if cache is None:
            cache = self._by_principal[principal] = ResponseCache()
        return cache

    def clear(self) -> None:
        """Drop all responses. Connections keep their caches."""
        for cache in list(self._by_principal.values()):
            cache.clear()


_caches: WeakSet[ResponseCache] = WeakSet()


def clear_all() -> None:
    """Clear the caches of all brokers in this process: they share the loggers, and the request log may have been switched on."""
    for cache in _caches:
        cache.clear()
