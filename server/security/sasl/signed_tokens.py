"""Signed tokens of OAUTHBEARER: JSON Web Tokens whose signatures are checked with the keys of a JSON Web Key Set, a file or a URL.

The checks are those of `OAuthBearerValidatorCallbackHandler` of Apache Kafka 3.9.1 and of the library that it uses, compared token by token
(`tests/security/signed_tokens.recorded`): a token without a signature never holds, a key is chosen by its id and type, `exp` and `iat` are
required, an audience that nobody expects is refused. PyJWT checks the signatures.
"""

from __future__ import annotations

import asyncio
import json
import logging
import urllib.request
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlparse

import jwt

from klamm.protocol.errors import RemoteProtocolError
from klamm.seams.clock import Clock
from klamm.server.security.sasl.exchange import MustWait
from klamm.server.security.sasl.oauthbearer import is_number

log = logging.getLogger(__name__)

MOST_KEYS_BYTES = 1 << 20
"""A larger key set is refused."""

FETCH_TIMEOUT_S = 10.0
RETRY_S = 10.0
"""A token with an unknown key has the keys fetched again, at most so often; so does a fetch that failed."""

_CURVES = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521", "ES256K": "secp256k1"}
_TYPES = {"RS": "RSA", "PS": "RSA", "ES": "EC", "HS": "oct", "Ed": "OKP"}
_MIN_RSA_BITS = 2048
_BLANK = "".join(map(chr, range(33)))
"""What Java's `trim` removes."""


class Expected(NamedTuple):
    """What a token must say. `audiences` may be empty, `issuer` None."""

    audiences: Collection[str]
    issuer: str | None
    skew_s: int
    subject_claim: str
    scope_claim: str


class KeySet:
    """The keys at a URL. Those of a file are read at once: raises OSError or ValueError. Others are fetched for the first token, and again
    after `refresh_s`.
    """

    def __init__(self, url: str, refresh_s: float, clock: Clock) -> None:
        self._url, self._refresh_s, self._clock = url, refresh_s, clock
        self._keys: Sequence[Mapping[str, Any]] | None = None
        self._due_s = self._tried_s = -1e18
        self._fetching: asyncio.Future[None] | None = None
        self._is_file = urlparse(url).scheme.lower() == "file"
        if self._is_file:
            self._keys = keys_of(Path(unquote(urlparse(url).path)).read_bytes())

    def find(self, header: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The key for the header of a token. Raises MustWait if the keys have to be fetched first."""
        now_s = self._clock.monotonic()
        may_fetch = not self._is_file and now_s - self._tried_s >= RETRY_S
        if self._keys is None or (may_fetch and now_s >= self._due_s):
            if may_fetch or self._fetching is not None:
                raise MustWait(self._fetch())
            return None
        key = next((key for key in self._keys if _is_for(key, header)), None)
        if key is None and may_fetch:
            raise MustWait(self._fetch())
        return key

    async def _fetch(self) -> None:
        """Fetch the keys once, for all who wait for them. What fails is logged; the former keys stay."""
        if self._fetching is None:
            self._fetching = asyncio.ensure_future(self._fetch_now())
        await asyncio.shield(self._fetching)

    async def _fetch_now(self) -> None:
        self._tried_s = self._clock.monotonic()
        try:
            self._keys = keys_of(await asyncio.to_thread(_read, self._url))
            self._due_s = self._tried_s + self._refresh_s
        except (OSError, ValueError) as error:
            log.error("the keys for tokens of OAUTHBEARER cannot be fetched: %s", error)
        finally:
            self._fetching = None


def _read(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=FETCH_TIMEOUT_S) as response:
        data: bytes = response.read(MOST_KEYS_BYTES + 1)
    if len(data) > MOST_KEYS_BYTES:
        raise ValueError(f"the key set is larger than {MOST_KEYS_BYTES} bytes")
    return data


def keys_of(data: bytes) -> Sequence[Mapping[str, Any]]:
    """The keys of a key set. Raises ValueError."""
    content = json.loads(data)
    keys = content.get("keys") if isinstance(content, dict) else None
    if not isinstance(keys, list) or not all(isinstance(key, dict) for key in keys):
        raise ValueError("not a JSON Web Key Set")
    return keys


def _is_for(key: Mapping[str, Any], header: Mapping[str, Any]) -> bool:
    """Whether a token with this header can have been signed with this key."""
    algorithm, key_id = header["alg"], header.get("kid")
    if key_id is not None and key.get("kid") != key_id:
        return False
    if key.get("kty") != _TYPES.get(algorithm[:2]) or key.get("alg", algorithm) != algorithm or key.get("use", "sig") != "sig":
        return False
    return key["kty"] != "EC" or key.get("crv") == _CURVES.get(algorithm)


class SignedTokens:
    """Checks the tokens of one listener."""

    def __init__(self, keys: KeySet, expected: Expected, now_ms: Callable[[], int]) -> None:
        self._keys, self._expected, self._now_ms = keys, expected, now_ms
        self._signatures = jwt.PyJWS()

    def __call__(self, text: str) -> tuple[str, int] | None:
        """User and end of a token, in milliseconds since 1970; None if it does not hold. Raises MustWait and RemoteProtocolError."""
        if len([part for part in text.split(".") if part]) != 3 or text.count(".") != 2:
            return None
        try:
            claims = self._signed_claims(text)
        except (jwt.InvalidTokenError, jwt.PyJWKError, ValueError, TypeError, RecursionError) as problem:
            log.info("a token of OAUTHBEARER does not hold: %s", type(problem).__name__)
            return None
        if claims is None or not self._is_as_expected(claims):
            return None
        subject = claims.get(self._expected.subject_claim)
        if not isinstance(subject, str) or not subject.strip(_BLANK) or not _has_scopes(claims.get(self._expected.scope_claim)):
            return None
        return subject.strip(_BLANK), int(claims["exp"]) * 1000

    def _signed_claims(self, text: str) -> Mapping[str, Any] | None:
        """The claims of a token with a right signature. Raises what PyJWT raises."""
        header = self._signatures.get_unverified_header(text)
        algorithm = header.get("alg")
        if not isinstance(algorithm, str) or algorithm.lower() == "none" or "crit" in header:
            return None
        row = self._keys.find(header)
        if row is None:
            return None
        key = jwt.PyJWK(dict(row), algorithm)
        if getattr(key.key, "key_size", _MIN_RSA_BITS) < _MIN_RSA_BITS and row["kty"] == "RSA":
            return None
        if isinstance(key.key, bytes) and len(key.key) * 8 < int(algorithm[2:]):
            return None
        claims = json.loads(self._signatures.decode_complete(text, key, [algorithm])["payload"])
        return claims if isinstance(claims, dict) else None

    def _is_as_expected(self, claims: Mapping[str, Any]) -> bool:
        """Whether times, audience and issuer of a token hold."""
        expected, now_s = self._expected, self._now_ms() // 1000
        if any(claims.get(name) is not None and not isinstance(claims[name], str) for name in ("iss", "sub", "jti")):
            return False
        if not all(claims.get(name) is None or is_number(claims[name]) for name in ("exp", "iat", "nbf")):
            return False
        ends, begins, valid_from = (None if claims.get(name) is None else int(claims[name]) for name in ("exp", "iat", "nbf"))
        if ends is None or begins is None or begins < 0 or now_s - expected.skew_s >= ends or ends < begins:
            return False
        if valid_from is not None and (ends < valid_from or now_s + expected.skew_s < valid_from):
            return False
        if expected.issuer is not None and claims.get("iss") != expected.issuer:
            return False
        audience = claims.get("aud")
        if audience is None:
            return not expected.audiences
        named = [audience] if isinstance(audience, str) else audience
        if not isinstance(named, list) or not all(isinstance(each, str) for each in named):
            return False
        return any(each in expected.audiences for each in named)


def _has_scopes(scope: object) -> bool:
    """Whether a scope claim is one. Raises RemoteProtocolError where Apache Kafka fails."""
    scopes = [scope] if isinstance(scope, str) else scope if isinstance(scope, list) else []
    if not all(each is None or isinstance(each, str) for each in scopes):
        raise RemoteProtocolError("a scope of a token is not a text")
    names = [(each or "").strip(_BLANK) for each in scopes]
    return all(names) and len(set(names)) == len(names)
