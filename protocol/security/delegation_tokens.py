"""Delegation tokens: what the cluster stores of one. Principals are texts such as `User:alice`."""

from __future__ import annotations

from typing import NamedTuple


class TokenInformation(NamedTuple):
    """A delegation token without its HMAC. Times are in milliseconds since 1970."""

    id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issued_ms: int
    max_ms: int
    """The time that no renewal can pass."""
    expires_ms: int

    def has_expired(self, now_ms: int) -> bool:
        """Whether the token cannot be used or renewed any more."""
        return self.max_ms < now_ms or self.expires_ms < now_ms

    def may_be_renewed_by(self, principal: str) -> bool:
        """Whether the principal may renew the token, or end it. One who requested it for another owner may not."""
        return principal == self.owner or principal in self.renewers

    def concerns(self, principal: str) -> bool:
        """Whether the principal owns, requested or may renew the token."""
        return self.may_be_renewed_by(principal) or principal == self.requester
