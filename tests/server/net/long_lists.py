"""For every API that a broker serves, requests with one long list: each array of its schema in turn, nested ones too.

What a request means is not looked at here: most are refused, row by row. A new API, version or field is covered without a line here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from klamm.protocol import messages
from klamm.protocol.apis import Api
from klamm.protocol.schema import Field, Struct

Path = tuple[str, ...]


class LongList(NamedTuple):
    """A request of one version, in which the array at `path` is long. With `is_full` each of its rows has one row in each of its arrays.
    With `is_same` all rows are equal.
    """

    api: Api
    version: int
    path: Path
    is_full: bool
    is_same: bool

    def __str__(self) -> str:
        rows = ("full" if self.is_full else "empty", "equal" if self.is_same else "different")
        return f"{self.api.name} {self.version}, {'.'.join(self.path)}, {' '.join(rows)} rows"

    def message(self, entries: int) -> Any:
        top = messages.message_type(f"{self.api.name}Request")
        return _Building(self, entries, top.top).struct(top.schema.root, top.top, (), 0)


def long_lists(api: Api, versions: tuple[int, ...]) -> Iterator[LongList]:
    """All requests of these versions of an API."""
    root = messages.message_type(f"{api.name}Request").schema.root
    for version in versions:
        for path, struct in _arrays(root, version, ()):
            nested = struct is not None and any(True for _ in _arrays(struct, version, ()))
            for is_full in (False, True) if nested else (False,):
                for is_same in (False, True):
                    yield LongList(api, version, path, is_full, is_same)


def _arrays(struct: Struct, version: int, path: Path) -> Iterator[tuple[Path, Struct | None]]:
    for field in struct.fields:
        if version in field.versions:
            if field.is_array:
                yield (*path, field.attribute), field.struct
            if field.struct is not None:
                yield from _arrays(field.struct, version, (*path, field.attribute))


class _Building:
    def __init__(self, wanted: LongList, entries: int, top: Any) -> None:
        self._wanted = wanted
        self._entries = entries
        self._top = top

    def struct(self, struct: Struct, made: Any, path: Path, number: int) -> Any:
        fields = [field for field in struct.fields if self._wanted.version in field.versions]
        return made(**{field.attribute: self._value(field, (*path, field.attribute), number) for field in fields})

    def _value(self, field: Field, path: Path, number: int) -> Any:
        if not field.is_array:
            return self._one(field, path, number)
        wanted = self._wanted
        if path == wanted.path:
            rows = range(self._entries)
            return [self._one(field, path, 0 if wanted.is_same else row) for row in rows]
        is_above, is_below = wanted.path[: len(path)] == path, path[: len(wanted.path)] == wanted.path
        return [self._one(field, path, number)] if is_above or (is_below and wanted.is_full) else []

    def _one(self, field: Field, path: Path, number: int) -> Any:
        if field.struct is not None:
            return self.struct(field.struct, getattr(self._top, field.struct.name), path, number)
        match field.type:
            case "string":
                return f"n{number}"
            case "bytes" | "records":
                return b""
            case "uuid":
                return number.to_bytes(16, "big")
            case "bool":
                return field.attribute.startswith("validate")
            case "float64":
                return 0.0
        if "timeout" in field.attribute or "wait" in field.attribute:
            return 0
        if field.attribute == "acks":  # 0 gets no response
            return 1
        return number % (100 if field.type == "int8" else 30_000)


