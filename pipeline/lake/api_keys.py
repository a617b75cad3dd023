"""API keys in SQL, written by their names."""

from __future__ import annotations

from collections.abc import Iterable

from klamm.protocol.apis import ApiKey

CONTROLLER_APIS = (ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA)
"""What an active controller sends to brokers."""


def keys(apis: Iterable[int]) -> str:
    """The keys of these APIs, for `IN`."""
    return ", ".join(str(int(api)) for api in apis)
