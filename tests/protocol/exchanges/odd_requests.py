"""Requests that no client sends, but that a server can read."""

from __future__ import annotations

from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.primitives import FEW_TAGS, write_uvarint


def many_tags(number: int) -> bytes:
    """A Produce request without a response whose `acks` nobody looks for, with this correlation id."""
    plain = messages.encode_request(ApiKey.PRODUCE, 9, number, "c", messages.encode(messages.ProduceRequest(acks=0), 9))[4:]
    count = FEW_TAGS + 1
    frame = plain[:11] + write_uvarint(count) + b"".join(write_uvarint(tag) + b"\0" for tag in range(count)) + plain[12:]
    return len(frame).to_bytes(4, "big") + frame
