"""Hashes of strings as Java computes them: they decide which partition a key has, and the order of maps."""

from __future__ import annotations

_WORD = (1 << 32) - 1


def string_hash(text: str) -> int:
    """`String.hashCode`: a signed 32-bit number, computed from UTF-16 code units."""
    value = 0
    if text.isascii():
        for character in text:
            value = (31 * value + ord(character)) & _WORD
    else:
        units = text.encode("utf-16-be", "surrogatepass")
        for high, low in zip(units[::2], units[1::2], strict=True):
            value = (31 * value + (high << 8 | low)) & _WORD
    return value - (1 << 32) if value >> 31 else value


def partition_for(key: str, count: int) -> int:
    """The partition of an internal topic that has the state of a group or of a transactional id."""
    value = string_hash(key)
    return (0 if value == -(1 << 31) else abs(value)) % count
