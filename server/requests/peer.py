"""The client at the other end of a connection: its address, its listener and its principal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from klamm.protocol.shortcuts.repeated_requests import RepeatedRequests
from klamm.server.requests.response_cache import ResponseCache
from klamm.server.security.authorizer import ANONYMOUS, Principal


def java_address(host: str) -> str:
    """An address as Java shows it and Apache Kafka stores it with members of groups: `/127.0.0.1`, `/0:0:0:0:0:0:0:1`."""
    if ":" not in host:
        return f"/{host}"
    from ipaddress import IPv6Address

    address, _, scope = host.partition("%")
    groups = IPv6Address(address).exploded.split(":")
    return "/" + ":".join(f"{int(group, 16):x}" for group in groups) + (f"%{scope}" if scope else "")


def no_request_waits() -> None:
    """For a peer without a connection."""


class FetchThrottle(Protocol):
    """The quotas of a consumer, for its Fetch; see `RequestThrottle`."""

    def most_fetched(self) -> int | None:
        """The bytes that the client may fetch without being throttled for sure; None without a limit."""

    def fetched(self, size: int) -> int:
        """Record a response of this size; returns the throttle time in ms. If it is not 0, the response must be empty."""


class UnreadCount(Protocol):
    """What the clients of the broker have not read; see `UnreadResponses`."""

    size: int
    limit: int

    def most(self) -> int | None:
        """The most bytes of records that a response may have now; None without a limit."""


class Peer:
    """One client connection. `connection` is its id, unique within the broker; `responses` are the cached responses for this client.

    `is_open` is false after the connection is lost.
    `took_effect` is called when a request that was begun as a coroutine has taken effect, and only its response is still to come.
    `on_lost` is called when the connection is lost. A waiting request sets it, and removes it afterwards.
    `repeated` decodes requests that are like earlier ones of this connection.
    `mute` stops the service of the connection for some seconds after the response of the present request; None if it is lost.
    `arrival` has size and time (of the clock) of the present request, while requests are measured; `throttle` are the quotas of a Fetch.
    `unread` are the responses that the clients of the broker do not read; None if nobody counts them.
    `is_by_token`: the client has authenticated with a delegation token.
    A client that authenticates gets another `principal`, and the response cache of that principal (`ClientConnection.identify`).
    """

    __slots__ = (
        "arrival", "connection", "host", "is_by_token", "is_open", "listener", "mute", "on_lost",
        "principal", "repeated", "responses", "throttle", "took_effect", "unread",
    )

    @property
    def java_host(self) -> str:
        """The address as Java's `getHostAddress` writes it, and ACLs name it."""
        host = self.host
        if ":" not in host:
            return host
        return host.rpartition(":")[2] if "." in host else java_address(host)[1:]

    def __init__(
        self, listener: str, host: str, responses: ResponseCache, principal: Principal = ANONYMOUS, connection: str = ""
    ) -> None:
        """`listener` is the listener's name, `host` the client's address without port."""
        self.connection = connection
        self.is_open = True
        self.repeated = RepeatedRequests()
        self.listener = listener
        self.host = host
        self.responses = responses
        self.principal = principal
        self.is_by_token = False
        self.on_lost: Callable[[], None] | None = None
        self.mute: Callable[[float], None] | None = None
        self.took_effect: Callable[[], None] = no_request_waits
        self.arrival = 0, 0.0
        self.throttle: FetchThrottle | None = None
        self.unread: UnreadCount | None = None
