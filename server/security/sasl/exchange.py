"""What all SASL mechanisms have in common: an exchange of tokens between one client and this broker, and its errors."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Protocol


class AuthenticationFailed(Exception):
    """The exchange has failed. The text is Kafka's, and the client gets it."""


class InvalidCredentials(Exception):
    """The exchange has failed. The text is for the log; the client does not learn the reason, for example whether a user exists."""


class MustWait(Exception):
    """A token cannot be evaluated before `work` is done; then it must be evaluated again."""

    def __init__(self, work: Coroutine[Any, Any, None]) -> None:
        super().__init__("a token must wait")
        self.work = work


class Exchange(Protocol):
    """The broker's side of one exchange. No method is called after an error, or after the exchange is complete."""

    is_complete: bool
    """Whether the client is authenticated."""
    user: str
    """The name of the authenticated user."""
    is_by_token: bool
    """Whether the client authenticates with a delegation token."""
    expires_ms: int | None
    """When the credential expires, in milliseconds since 1970; None if it does not expire."""

    def evaluate(self, token: bytes) -> bytes:
        """The response to a token of the client. Raises AuthenticationFailed, InvalidCredentials or MustWait."""
