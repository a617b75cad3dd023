"""Messages as tests compare them: with every array a list, those of numbers too."""

from __future__ import annotations

from typing import Any

from klamm.protocol import messages


def decoded(name: str, version: int, payload: bytes, offset: int) -> tuple[Any, int]:
    """The message at an offset and the position behind it."""
    message, end = messages.decode(name, version, payload, offset)
    return _listed(message), end


def _listed(value: Any) -> Any:
    if isinstance(value, messages.Message):
        changed = {name: _listed(given) for name, given in value._asdict().items() if isinstance(given, tuple | list)}
        return value._replace(**changed) if changed else value  # type: ignore[attr-defined]  # every message has it
    return [_listed(each) for each in value] if isinstance(value, tuple | list) else value
