"""Decodes and encodes messages with another codec, kafka-python's, to check our own. It is slow and imports much, so it only checks
samples.

Its classes are made here from our definitions, or from its own files if we do not have one. Making a class registers it in a registry that
kafka-python's client uses; the registry is restored afterwards.
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
    """The body of a message, decoded and encoded again by kafka-python. Raises what kafka-python raises for bytes that it cannot decode."""
    return bytes(other_class(name).decode(body, version=version).encode())
