"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802), without channel binding: the client proves that it knows the password of a stored user.

With the extension `tokenauth=true` the user name is the id of a delegation token, the password its HMAC in base64, and the client is the
owner of the token.

The messages that are accepted, and the checks in their order, are those of `ScramSaslServer` and `ScramMessages` of Apache Kafka 3.9.1:
user names are ASCII, other extensions are ignored, the channel data of the last message is not compared.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Callable

from klamm.protocol.security.secret_texts import new_secret
from klamm.server.security.sasl.exchange import AuthenticationFailed, InvalidCredentials
from klamm.server.security.sasl.scram_credentials import MIN_ITERATIONS, Mechanism, ScramCredential, TokenCredential

_VALUE = r"[\x01-\x2b\x2d-\x7f]+"
_NAME = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_PRINTABLE = r"[\x21-\x2b\x2d-\x7e]+"
_BASE64 = r"(?:[a-zA-Z0-9/+]{4})*(?:[a-zA-Z0-9/+]{3}=|[a-zA-Z0-9/+]{2}==)?"
_EXTENSIONS = rf"(?:,[A-Za-z]+={_VALUE})*"
_FIRST = re.compile(
    rf"n,(?:a=(?P<authzid>{_NAME}))?,(?P<bare>(?:m={_VALUE},)?n=(?P<user>{_NAME}),r=(?P<nonce>{_PRINTABLE})(?P<extensions>{_EXTENSIONS}))"
)
_FINAL = re.compile(rf"(?P<unproven>c={_BASE64},r=(?P<nonce>{_PRINTABLE}){_EXTENSIONS}),p=(?P<proof>{_BASE64})")

FindCredential = Callable[[str], ScramCredential | None]
"""The credential of a user for one mechanism."""
FindToken = Callable[[str], TokenCredential | None]


class ScramExchange:
    """The exchange with one client. `find` returns the credential of a user, `find_token` that of a delegation token by its id, `nonce`
    makes the part of the nonce that is ours.
    """

    def __init__(
        self, mechanism: Mechanism, find: FindCredential, find_token: FindToken, nonce: Callable[[], str] = new_secret
    ) -> None:
        self.is_complete = False
        self.user = ""
        self.expires_ms: int | None = None
        self.is_by_token = False
        self._digest = mechanism.digest
        self._find, self._find_token = find, find_token
        self._new_nonce = nonce
        self._credential: ScramCredential | None = None
        self._nonce = self._client_first = self._server_first = ""

    def evaluate(self, token: bytes) -> bytes:
        """The challenge for the first message of the client, our signature for its second."""
        text = token.decode("utf-8", "replace")
        return self._challenge(text) if self._credential is None else self._signature(text, self._credential)

    def _challenge(self, text: str) -> bytes:
        message = _FIRST.fullmatch(text)
        if message is None:
            raise InvalidCredentials("the first message of the client is invalid")
        user = _unescaped(message["user"])
        credential = self._credential_of(user, message["extensions"])
        if message["authzid"] and message["authzid"] != user:
            raise AuthenticationFailed("Authentication failed: Client requested an authorization id that is different from username")
        if credential.iterations < MIN_ITERATIONS:
            raise InvalidCredentials(f"the credential has {credential.iterations} iterations; the minimum is {MIN_ITERATIONS}")
        self._credential = credential
        self._client_first = message["bare"]
        self._nonce = message["nonce"] + self._new_nonce()
        self._server_first = f"r={self._nonce},s={b64encode(credential.salt).decode()},i={credential.iterations}"
        return self._server_first.encode()

    def _credential_of(self, user: str, extensions: str) -> ScramCredential:
        """The credential of a user, or of the delegation token whose id the client gives as user. Raises InvalidCredentials."""
        given = dict(extension.split("=", 1) for extension in extensions.split(",") if extension)
        self.is_by_token = given.get("tokenauth", "").lower() == "true"
        if not self.is_by_token:
            self.user = user
            credential = self._find(user)
            if credential is None:
                raise InvalidCredentials("the user has no credential")
            return credential
        token = self._find_token(user)
        if token is None:
            raise InvalidCredentials("there is no such delegation token")
        self.user, self.expires_ms = token.owner, token.expires_ms
        return token.credential

    def _signature(self, text: str, credential: ScramCredential) -> bytes:
        message = _FINAL.fullmatch(text)
        if message is None:
            raise InvalidCredentials("the last message of the client is invalid")
        if not message["nonce"].endswith(self._nonce):
            raise InvalidCredentials("the nonce in the last message of the client is not that of the challenge")
        signed = f"{self._client_first},{self._server_first},{message['unproven']}".encode()
        signature = hmac.digest(credential.stored_key, signed, self._digest)
        proof = b64decode(message["proof"])
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=False))
        is_proved = hmac.compare_digest(hashlib.new(self._digest, client_key).digest(), credential.stored_key)
        if len(proof) != len(signature) or not is_proved:
            raise InvalidCredentials("the password is wrong")
        self.is_complete = True
        return b"v=" + b64encode(hmac.digest(credential.server_key, signed, self._digest))


def _unescaped(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")
