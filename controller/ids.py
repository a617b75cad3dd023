"""Ids that the controller and the broker draw."""

from __future__ import annotations

import os


def random_topic_id() -> bytes:
    """A random (version 4) uuid that is not reserved and whose text does not begin with a dash (layout 3.4)."""
    while True:
        raw = bytearray(os.urandom(16))
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        if raw[0] >> 2 != 62:  # base64url's dash
            return bytes(raw)
