"""API keys in SQL, written by their names."""

from __future__ import annotations

from collections.abc import Iterable


def keys(apis: Iterable[int]) -> str:
    """The keys of these APIs, for `IN`."""
    return ", ".join(str(int(api)) for api in apis)
