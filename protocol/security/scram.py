"""The keys of SCRAM (RFC 5802), which clients and brokers make of a password."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from typing import NamedTuple

SCRAM_DIGESTS: Mapping[str, str] = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
"""Mechanism → its hash function."""


class ScramKeys(NamedTuple):
    """The keys of a salted password: a client has all three, a broker stores the last two."""

    client_key: bytes
    stored_key: bytes
    server_key: bytes


def scram_keys(digest: str, salted_password: bytes) -> ScramKeys:
    client_key = hmac.digest(salted_password, b"Client Key", digest)
    return ScramKeys(client_key, hashlib.new(digest, client_key).digest(), hmac.digest(salted_password, b"Server Key", digest))


def salted(digest: str, password: bytes, salt: bytes, iterations: int) -> bytes:
    """The salted password. It takes some milliseconds."""
    return hashlib.pbkdf2_hmac(digest, password, salt, iterations)
