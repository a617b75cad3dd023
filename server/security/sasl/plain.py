"""PLAIN (RFC 4616): a user name and a password in one token. The users are options of the JAAS text: `user_alice="secret"`.

Checks and texts are those of `PlainSaslServer` of Apache Kafka 3.9.1.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping

from klamm.server.security.sasl.exchange import AuthenticationFailed

_MOST_PARTS = 4
"""Kafka looks for no more parts than this."""


class PlainExchange:
    """The exchange with one client. `passwords` has the password of each user."""

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self.is_complete = self.is_by_token = False
        self.user = ""
        self.expires_ms: int | None = None
        self._passwords = passwords

    def evaluate(self, token: bytes) -> bytes:
        """An empty response. Raises AuthenticationFailed."""
        parts = token.decode("utf-8", "replace").split("\0")[:_MOST_PARTS]
        if len(parts) != 3:
            raise AuthenticationFailed(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}")
        on_behalf_of, user, password = parts
        if not user:
            raise AuthenticationFailed("Authentication failed: username not specified")
        if not password:
            raise AuthenticationFailed("Authentication failed: password not specified")
        expected = self._passwords.get(user)
        # a comparison in any case: its time does not say whether the user exists
        is_right = hmac.compare_digest(password.encode(), (expected or "").encode())
        if expected is None or not is_right:
            raise AuthenticationFailed("Authentication failed: Invalid username or password")
        if on_behalf_of and on_behalf_of != user:
            raise AuthenticationFailed("Authentication failed: Client requested an authorization id that is different from username")
        self.user = user
        self.is_complete = True
        return b""


def users_of(options: Mapping[str, str]) -> dict[str, str]:
    """The passwords by user in the options of a JAAS text."""
    return {name.removeprefix("user_"): password for name, password in options.items() if name.startswith("user_")}
