"""The partitions that one request creates and deletes, under the quota of its client (controller_mutation_rate, KIP-599)."""

from __future__ import annotations

from klamm.server.requests.context import Context

NEVER_STRICT = 1 << 15


class Mutations:
    """What one request creates and deletes, under the quota of its client. In versions before `strict_since` nothing is refused."""

    def __init__(self, ctx: Context, strict_since: int) -> None:
        self._ctx = ctx
        self._strict = ctx.api_version >= strict_since
        self._wait_ms = 0
        self._since = 0.0

    def refuses(self, mutations: int) -> bool:
        """Count these partitions; returns whether the topic must be refused."""
        ctx = self._ctx
        wait_ms = ctx.services.mutation_quota(ctx.peer.principal, ctx.client_id or "", mutations, strict=self._strict)
        if wait_ms:
            self._wait_ms, self._since = wait_ms, ctx.services.clock.monotonic()
        return self._strict and wait_ms > 0

    @property
    def throttle_ms(self) -> int:
        """The throttle time in ms that is left."""
        if not self._wait_ms:
            return 0
        return max(self._wait_ms - int((self._ctx.services.clock.monotonic() - self._since) * 1000), 0)
