"""The time of calls for which the broker itself waits.

Their requests carry the time that the broker may take, and after it the broker responds with REQUEST_TIMED_OUT for what is not done. So
that this response can arrive, the call itself has a second more.
"""

from __future__ import annotations

from klamm.admin.scope import Scope

RESPONSE_GRACE_MS = 1000


def deadline_ms(timeout_ms: int) -> int:
    """How long the call may take."""
    return timeout_ms + RESPONSE_GRACE_MS


def work_ms(scope: Scope, timeout_ms: int) -> int:
    """The time-out for a request that is sent now: the caller's, or less when the controller was looked for long."""
    return max(0, min(timeout_ms, int(scope.remaining_s * 1000) - RESPONSE_GRACE_MS // 2))
