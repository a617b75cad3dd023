"""Decodes and encodes messages with another codec, kafka-python's, to check our own. It is slow and imports much, so it only checks
samples.

Its classes are made here from our definitions, or from its own files if we do not have one. Making a class registers it in a registry that
kafka-python's client uses; the registry is restored afterwards. Only releases that the tests have tried are used: those before 3.0 have no
such codec, and what a later one finds wrong may be its own fault.
"""

from __future__ import annotations

import re
import warnings
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from klamm.protocol import schema

PACKAGE = "klamm.schemas"
FIRST, BEFORE = (3, 0, 12), (3, 1)
"""The first release of kafka-python that the tests have tried, and the first that they have not. `dev` in pyproject.toml has the same."""


@cache
def is_available() -> bool:
    """Whether a release of kafka-python is installed that the tests have tried."""
    try:
        return is_tried(version("kafka-python"))
    except PackageNotFoundError:
        return False


def is_tried(release: str) -> bool:
    """Whether the tests have tried this release of kafka-python."""
    return FIRST <= tuple(map(int, re.findall(r"\d+", release)[:3])) < BEFORE


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
            return type(ApiMessage)(name, (ApiMessage,), {}, **({"load_json": PACKAGE} if schema.is_own(name) else {}))
    finally:
        registry.clear()
        registry.update(before)


def encoded_again(name: str, version: int, body: bytes) -> bytes:
    """The body of a message, decoded and encoded again by kafka-python. Raises what kafka-python raises for bytes that it cannot decode."""
    return bytes(other_class(name).decode(body, version=version).encode())
