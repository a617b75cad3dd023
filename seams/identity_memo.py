"""A cache of results that is keyed by the identity of objects.

Thousands of partitions can share one state, one assignment, one map of replica states. A result that follows from such objects is computed
once for all partitions with the same objects. Comparing the objects by content would cost more than the work that it saves.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TypeVar

T = TypeVar("T")


class IdentityMemo(dict[Hashable, T]):
    """A dict whose keys contain the `id(...)` of objects. The objects are kept alive, so that no other object gets their ids.

    Look up with `get`, as in any dict, and add with `keep`.
    """

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        super().__init__()
        self._kept: list[tuple[object, ...]] = []

    def keep(self, key: Hashable, value: T, *objects: object) -> T:
        """Store a value and return it; `objects` are the objects whose ids are in the key."""
        self._kept.append(objects)
        self[key] = value
        return value

    def clear(self) -> None:
        """Remove all values, and release the objects."""
        super().clear()
        self._kept.clear()
