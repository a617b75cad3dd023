"""Secrets that this broker draws: nonces and passwords. They come from the operating system, never from the random source of the seams,
which may have a seed that others know.
"""

from __future__ import annotations

import secrets


def new_bytes(size: int = 16) -> bytes:
    """So many random bytes."""
    return secrets.token_bytes(size)


def new_secret(size: int = 16) -> str:
    """A text of twice as many hexadecimal digits."""
    return secrets.token_hex(size)
