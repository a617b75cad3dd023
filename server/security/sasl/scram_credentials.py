"""Stored SCRAM credentials (RFC 5802): the text that a user's znode has for a mechanism, written and read as in Apache Kafka 3.9.1.

    salt=c2FsdA==,stored_key=…,server_key=…,iterations=4096

Salt and keys are base64. Source: `ScramFormatter` and `ScramCredentialUtils` of Apache Kafka 3.9.1.
"""

from __future__ import annotations

import logging
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from typing import NamedTuple

from klamm.configs.definitions.types import parse_integer
from klamm.protocol.security.scram import SCRAM_DIGESTS, salted, scram_keys

log = logging.getLogger(__name__)

MIN_ITERATIONS, MAX_ITERATIONS = 4096, 16384

_FIELDS = {"salt", "stored_key", "server_key", "iterations"}
_BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}(?:==)?|[A-Za-z0-9+/]{3}=?)?")


class Mechanism(NamedTuple):
    """A SCRAM mechanism: the name of its config, and its hash."""

    name: str
    digest: str


MECHANISMS: Mapping[int, Mechanism] = {number: Mechanism(*each) for number, each in enumerate(SCRAM_DIGESTS.items(), 1)}
"""The number of a mechanism in requests → the mechanism."""


def credential_text(mechanism: Mechanism, salt: bytes, salted_password: bytes, iterations: int) -> str:
    """The text to store for a salted password. Raises ValueError if the salted password is empty."""
    if not salted_password:
        raise ValueError("the salted password is empty")
    keys = scram_keys(mechanism.digest, salted_password)
    encoded = (b64encode(part).decode() for part in (salt, keys.stored_key, keys.server_key))
    return "salt={},stored_key={},server_key={},iterations={}".format(*encoded, iterations)


class ScramCredential(NamedTuple):
    """A stored credential of one user for one mechanism."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


class TokenCredential(NamedTuple):
    """The credential of a delegation token, the name of its owner, and when it expires, in milliseconds since 1970."""

    credential: ScramCredential
    owner: str
    expires_ms: int


def credential_of_password(mechanism: Mechanism, password: bytes, salt: bytes, iterations: int) -> ScramCredential:
    """The credential of a password. It takes some milliseconds."""
    keys = scram_keys(mechanism.digest, salted(mechanism.digest, password, salt, iterations))
    return ScramCredential(salt, keys.stored_key, keys.server_key, iterations)


def credential_of(text: str) -> ScramCredential:
    """A stored credential. Raises ValueError if the text is not a credential."""
    fields = {}
    for field in text.rstrip(",").split(","):
        name, separator, value = field.partition("=")
        if not separator or not name:
            raise ValueError("a field of a credential has no name")
        fields[name] = value
    if fields.keys() != _FIELDS or not all(_BASE64.fullmatch(fields[name]) for name in _FIELDS - {"iterations"}):
        raise ValueError("not a credential")
    salt, stored_key, server_key = (_decoded(fields[name]) for name in ("salt", "stored_key", "server_key"))
    return ScramCredential(salt, stored_key, server_key, parse_integer(fields["iterations"]))


def iterations_of(text: str) -> int:
    """The number of iterations of a stored credential. Raises ValueError if it is not a credential."""
    return credential_of(text).iterations


def _decoded(text: str) -> bytes:
    """The bytes of base64, with or without padding."""
    return b64decode(text.rstrip("=") + "=" * (-len(text.rstrip("=")) % 4))


class ScramCredentials:
    """The stored credentials of all users, as this broker knows them: read at its start, and again when a notification names a user."""

    def __init__(self) -> None:
        self.find_token: Callable[[Mechanism, str], TokenCredential | None] = lambda mechanism, token_id: None
        """Finds the credential of a delegation token by its id."""
        self._by_mechanism: dict[str, dict[str, ScramCredential]] = {mechanism.name: {} for mechanism in MECHANISMS.values()}

    def set(self, user: str, properties: Mapping[str, str]) -> None:
        """Take the configs of a user. A credential that cannot be read is logged, and the user cannot authenticate with it."""
        for mechanism, credentials in self._by_mechanism.items():
            credentials.pop(user, None)
            if mechanism in properties:
                try:
                    credentials[user] = credential_of(properties[mechanism])
                except ValueError as problem:
                    log.error("the %s credential of user %s is ignored: %s", mechanism, user, problem)

    def find(self, mechanism: str, user: str) -> ScramCredential | None:
        """The credential of a user for a mechanism."""
        return self._by_mechanism[mechanism].get(user)
