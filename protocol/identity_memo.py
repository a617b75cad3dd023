"""Results kept for objects that are known by their identity.

Thousands of partitions share one state, one assignment, one map of replica states. What follows from such objects is worked out once
for all partitions that have the very same ones; comparing the objects by content would cost more than the work that it saves.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TypeVar

T = TypeVar("T")


class IdentityMemo(dict[Hashable, T]):
    """A dict whose keys are made of `id(...)` of objects; the objects are kept alive, so that nothing else gets their ids.

    Look up with `get`, as in any dict, and add with `keep`.
    """

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        super().__init__()
        self._kept: list[tuple[object, ...]] = []

    def keep(self, key: Hashable, value: T, *objects: object) -> T:
        """Remember a value; `objects` are those whose ids the key is made of. Returns the value."""
        self._kept.append(objects)
        self[key] = value
        return value

    def clear(self) -> None:
        """Forget everything, and let the objects go."""
        super().clear()
        self._kept.clear()
