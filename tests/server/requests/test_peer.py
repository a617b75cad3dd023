"""What is known of a client before it has authenticated."""

from __future__ import annotations

from klamm.server.requests.peer import Peer
from klamm.server.requests.response_cache import ResponseCache


def test_a_client_has_not_authenticated_by_a_token_unless_it_did() -> None:
    """A client of TLS never authenticates by SASL; it may send requests about tokens."""
    assert Peer("SSL", "127.0.0.1", ResponseCache()).is_by_token is False
