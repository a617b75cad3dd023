"""Deadlines of calls for which the broker waits.

Their requests carry a timeout. After it, the broker responds with REQUEST_TIMED_OUT for everything that is not done. The call itself may
take one second longer, so that this response can arrive.
"""

from __future__ import annotations

from klamm.admin.calls.scope import Scope

RESPONSE_GRACE_MS = 1000


def deadline_ms(timeout_ms: int) -> int:
    """The timeout of the whole call, in ms."""
    return timeout_ms + RESPONSE_GRACE_MS


def work_ms(scope: Scope, timeout_ms: int) -> int:
    """The timeout in a request that is sent now: the caller's, or less if looking for the controller took long."""
    return max(0, min(timeout_ms, int(scope.remaining_s * 1000) - RESPONSE_GRACE_MS // 2))
