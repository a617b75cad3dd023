"""Keys and values of the records of internal topics: their version as int16, then a message of this version."""

from __future__ import annotations

from struct import Struct
from typing import Any

from klamm.protocol import messages
from klamm.protocol.errors import RemoteProtocolError

_VERSION = Struct(">h")


def encode(name: str, version: int, **fields: Any) -> bytes:
    """The message with this name, version and fields."""
    return _VERSION.pack(version) + messages.encode(messages.message_type(name).top(**fields), version)


def version_of(data: bytes | None) -> int:
    """The version of a key or value. Raises RemoteProtocolError if there is none."""
    if data is None or len(data) < _VERSION.size:
        raise RemoteProtocolError("a record of an internal topic is too short")
    version: int = _VERSION.unpack_from(data)[0]
    return version


def decode(name: str, version: int, data: bytes | None) -> Any:
    """The message with this name in a key or value, which has this version. Raises RemoteProtocolError."""
    if data is None or version not in messages.message_type(name).schema.valid:
        raise RemoteProtocolError(f"{name} has no version {version}")
    return messages.decode(name, version, data, _VERSION.size)[0]
