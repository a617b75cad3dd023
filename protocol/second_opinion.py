"""What another codec, kafka-python's, makes of the bytes of a message. It is slow and imports much, so it judges samples only.

Its classes are made here from our definitions, as its own are, and from its own files where we have none. Making one enters it into a
registry that kafka-python's client reads; the registry is put back as it was.
"""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

from klamm.protocol import schema

PACKAGE = "klamm.schemas"


def is_ours(name: str) -> bool:
    """Whether the definition of a message is Klamm's own."""
    return str(schema.find(name)).startswith(schema.folders()[0])


@cache
def other_class(name: str) -> Any:
    """kafka-python's class for a message."""
    from kafka.protocol.api_header import ResponseClassRegistry
    from kafka.protocol.api_message import ApiMessage

    registry = ResponseClassRegistry._response_class_registry
    before = dict(registry)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of how it reads its definitions
            return type(ApiMessage)(name, (ApiMessage,), {}, **({"load_json": PACKAGE} if is_ours(name) else {}))
    finally:
        registry.clear()
        registry.update(before)


def encoded_again(name: str, version: int, body: bytes) -> bytes:
    """The body of a message, decoded and encoded by kafka-python. It raises whatever it raises on bytes that it does not understand."""
    return bytes(other_class(name).decode(body, version=version).encode())
