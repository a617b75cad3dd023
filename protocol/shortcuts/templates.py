"""Where the numbers are in an encoded message whose other bytes do not change: shortcuts of codecs are made from that.

The message is encoded with all numbers zero, and once more for each number, with that one -1. The bytes that differ are the number's, so
nothing in the message can be mistaken for it, and a number that the version does not have is found out too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

WIDTH = 8
"""Bytes of a number: all are int64."""


class Template(NamedTuple):
    """An encoded message in which all numbers are zero. `positions` is where each of them begins, None where the version has none."""

    data: bytes
    positions: tuple[int | None, ...]


def template(encode: Callable[..., bytes], count: int) -> Template:
    """The template of the messages that `encode` writes of `count` numbers.

    Raises ValueError if a number is not eight bytes in one place, as one that is written twice.
    """
    data = encode(*[0] * count)
    return Template(data, tuple([_position(data, encode(*[-(each == number) for each in range(count)])) for number in range(count)]))


def _position(zero: bytes, other: bytes) -> int | None:
    """Where `other` has a number that is -1, and `zero` has 0."""
    changed = [at for at, (before, after) in enumerate(zip(zero, other, strict=True)) if before != after]
    if not changed:
        return None
    if changed != list(range(changed[0], changed[0] + WIDTH)):
        raise ValueError(f"a number is at {changed}")
    return changed[0]
