"""Stored SCRAM credentials (RFC 5802): the text that a user's znode has for a mechanism, written and read as in Apache Kafka 3.9.1.

    salt=c2FsdA==,stored_key=…,server_key=…,iterations=4096

Salt and keys are base64. Source: `ScramFormatter` and `ScramCredentialUtils` of Apache Kafka 3.9.1.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import b64encode
from collections.abc import Mapping
from typing import NamedTuple

from klamm.configs.client_quotas import SCRAM_MECHANISMS
from klamm.configs.types import parse_integer

MIN_ITERATIONS, MAX_ITERATIONS = 4096, 16384

_FIELDS = {"salt", "stored_key", "server_key", "iterations"}
_BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}(?:==)?|[A-Za-z0-9+/]{3}=?)?")


class Mechanism(NamedTuple):
    """A SCRAM mechanism: the name of its config, and its hash."""

    name: str
    digest: str


MECHANISMS: Mapping[int, Mechanism] = {1: Mechanism(SCRAM_MECHANISMS[0], "sha256"), 2: Mechanism(SCRAM_MECHANISMS[1], "sha512")}
"""The number of a mechanism in requests → the mechanism."""


def credential_text(mechanism: Mechanism, salt: bytes, salted_password: bytes, iterations: int) -> str:
    """The text to store for a salted password. Raises ValueError if the salted password is empty."""
    if not salted_password:
        raise ValueError("the salted password is empty")
    stored_key = hashlib.new(mechanism.digest, hmac.digest(salted_password, b"Client Key", mechanism.digest)).digest()
    server_key = hmac.digest(salted_password, b"Server Key", mechanism.digest)
    encoded = (b64encode(part).decode() for part in (salt, stored_key, server_key))
    return "salt={},stored_key={},server_key={},iterations={}".format(*encoded, iterations)


def iterations_of(text: str) -> int:
    """The number of iterations of a stored credential. Raises ValueError if it is not a credential."""
    fields = {}
    for field in text.rstrip(",").split(","):
        name, separator, value = field.partition("=")
        if not separator or not name:
            raise ValueError("a field of a credential has no name")
        fields[name] = value
    if fields.keys() != _FIELDS or not all(_BASE64.fullmatch(fields[name]) for name in _FIELDS - {"iterations"}):
        raise ValueError("not a credential")
    return parse_integer(fields["iterations"])
