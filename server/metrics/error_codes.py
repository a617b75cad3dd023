"""Counts the error codes of a response, as `AbstractResponse.errorCounts` of Apache Kafka 3.9.1 does: each field that is one, 0 too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from klamm.protocol.messages import decode, message_type
from klamm.protocol.schema import Struct

Codes = Callable[[Any, dict[int, int]], None]
"""(row, counts) → counts what is in the row."""


class ErrorCodes:
    """Error codes of responses, by API name and version."""

    def __init__(self) -> None:
        self._plans: dict[tuple[str, int], Codes | None] = {}

    def count(self, api: str, version: int, payload: bytes, offset: int) -> dict[int, int]:
        """Code → how often it is in the response whose body starts at `offset`. Raises RemoteProtocolError for what is no response."""
        name = f"{api}Response"
        key = name, version
        if key not in self._plans:
            self._plans[key] = _plan(message_type(name).schema.root, version)
        plan = self._plans[key]
        counts: dict[int, int] = {}
        if plan is not None:
            plan(decode(name, version, payload, offset)[0], counts)
        return counts


def _plan(struct: Struct, version: int) -> Codes | None:
    """A function that counts the codes of one structure and of those inside it; None where there are none."""
    codes: list[str] = []
    inner: list[tuple[str, bool, Codes]] = []
    for field in struct.fields:
        if version not in field.versions:
            continue
        if field.type == "int16" and not field.is_array and field.name.endswith(("errorCode", "ErrorCode")):
            codes.append(field.attribute)
        elif field.struct is not None:
            plan = _plan(field.struct, version)
            if plan is not None:
                inner.append((field.attribute, field.is_array, plan))
    if not codes and not inner:
        return None

    def count(row: Any, counts: dict[int, int]) -> None:
        for name in codes:
            code = getattr(row, name)
            counts[code] = counts.get(code, 0) + 1
        for name, is_array, plan in inner:
            value = getattr(row, name)
            if value is not None:
                for each in value if is_array else (value,):
                    plan(each, counts)

    return count
