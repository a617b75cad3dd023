"""Encrypts passwords in dynamic configs with `password.encoder.secret`, in the format of Kafka 3.9.

A stored password is a list `name:value,…`. The key is derived from the secret by PBKDF2 with a salt and a number of iterations. The text is
encrypted with AES; bytes are in base64. The list has everything that is needed to decrypt it, except the secret, so a password that was
stored with other settings can be read. One exception, as in Kafka: a broker whose cipher has an authentication tag can only read passwords
with a tag, and a broker whose cipher has none can only read passwords without one.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from klamm.configs.definitions.types import ConfigError, Values

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers import Cipher

SALT_BYTES = 256
IV_BYTES = {"CBC": 16, "CTR": 16, "GCM": 12}
TAG_BITS = 128
DEFAULT_KEY_FACTORY = "PBKDF2WithHmacSHA512"
_KEY_FACTORY = re.compile(r"PBKDF2WithHmacSHA(1|224|256|384|512)", re.IGNORECASE)
_CIPHER = re.compile(r"AES/(CBC)/PKCS5Padding|AES/(CTR|GCM)/NoPadding", re.IGNORECASE)


class CannotDecrypt(ValueError):
    """A stored password is damaged or was encrypted with another secret."""


class PasswordEncoder:
    """Encrypts with the current settings. Decrypts passwords that were encrypted with the same secret."""

    def __init__(self, secret: str, values: Values) -> None:
        """`values` are the configs of a broker. Raises ConfigError for an unsupported algorithm."""
        self._secret = secret
        self._key_factory: str = values["password.encoder.keyfactory.algorithm"] or DEFAULT_KEY_FACTORY
        self._cipher: str = values["password.encoder.cipher.algorithm"]
        self._key_bits: int = values["password.encoder.key.length"]
        self._iterations: int = values["password.encoder.iterations"]
        if not _KEY_FACTORY.fullmatch(self._key_factory):
            raise ConfigError("password.encoder.keyfactory.algorithm", self._key_factory, "is not supported; PBKDF2WithHmacSHA512 is")
        if not _CIPHER.fullmatch(self._cipher):
            raise ConfigError("password.encoder.cipher.algorithm", self._cipher, "is not supported; AES/CBC/PKCS5Padding is")
        if self._key_bits not in (128, 192, 256):
            raise ConfigError("password.encoder.key.length", self._key_bits, "must be 128, 192 or 256 for AES")

    def encode(self, password: str, random_bytes: Callable[[int], bytes] = os.urandom) -> str:
        """The encrypted password, as it is stored."""
        salt = random_bytes(SALT_BYTES)
        iv = random_bytes(IV_BYTES[_mode(self._cipher)])
        encryptor = self._aes(self._key_factory, self._cipher, salt, self._iterations, self._key_bits, iv).encryptor()
        encrypted = encryptor.update(_padded(password.encode(), self._cipher)) + encryptor.finalize()
        gcm = _mode(self._cipher) == "GCM"
        parts = {
            "initializationVector": _text(iv),
            "keyLength": self._key_bits,
            "salt": _text(salt),
            "keyFactoryAlgorithm": self._key_factory,
            "cipherAlgorithm": self._cipher,
            **({"authenticationTagLength": TAG_BITS} if gcm else {}),
            "iterations": self._iterations,
            "passwordLength": _java_length(password),
            "encryptedPassword": _text(encrypted + encryptor.tag if gcm else encrypted),
        }
        return ",".join(f"{name}:{value}" for name, value in parts.items())

    def decode(self, stored: str) -> str:
        """The decrypted password. Raises CannotDecrypt."""
        parts = dict(part.split(":", 1) for part in stored.split(",") if ":" in part)
        try:
            cipher = parts["cipherAlgorithm"]
            if (_mode(cipher) == "GCM") != (_mode(self._cipher) == "GCM"):
                raise CannotDecrypt(f"the cipher is {cipher}, but the current cipher is {self._cipher}")
            salt, iv = base64.b64decode(parts["salt"]), base64.b64decode(parts["initializationVector"])
            encrypted = base64.b64decode(parts["encryptedPassword"])
            tag = None
            if _mode(cipher) == "GCM":
                tag_bytes = int(parts["authenticationTagLength"]) // 8
                encrypted, tag = encrypted[:-tag_bytes], encrypted[-tag_bytes:]
            aes = self._aes(parts["keyFactoryAlgorithm"], cipher, salt, int(parts["iterations"]), int(parts["keyLength"]), iv, tag)
            decrypted = aes.decryptor().update(encrypted) if tag is None else _authenticated(aes, encrypted)
            password = _unpadded(decrypted, cipher).decode()
            if _java_length(password) != int(parts["passwordLength"]):
                raise CannotDecrypt("the length is wrong")
        except KeyError as missing:
            raise CannotDecrypt(f"{missing.args[0]} is missing") from None
        except ValueError as problem:
            raise CannotDecrypt(str(problem)) from None
        return password

    def _aes(
        self, key_factory: str, cipher: str, salt: bytes, iterations: int, key_bits: int, iv: bytes, tag: bytes | None = None
    ) -> Cipher[Any]:
        # imported on first use, because most brokers have no passwords
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

        digest = _KEY_FACTORY.fullmatch(key_factory)
        if digest is None:
            raise CannotDecrypt(f"key factory {key_factory} is not supported")
        key = hashlib.pbkdf2_hmac(f"sha{digest[1]}", self._secret.encode(), salt, iterations, key_bits // 8)
        mode = {"CBC": modes.CBC, "CTR": modes.CTR}.get(_mode(cipher))
        return Cipher(algorithms.AES(key), modes.GCM(iv, tag) if mode is None else mode(iv))


def _mode(cipher: str) -> str:
    match = _CIPHER.fullmatch(cipher)
    if match is None:
        raise CannotDecrypt(f"cipher {cipher} is not supported")
    return (match[1] or match[2]).upper()


def _authenticated(aes: Cipher[Any], encrypted: bytes) -> bytes:
    from cryptography.exceptions import InvalidTag

    decryptor = aes.decryptor()
    try:
        return bytes(decryptor.update(encrypted) + decryptor.finalize())
    except InvalidTag:
        raise CannotDecrypt("the authentication tag does not match") from None


def _padded(data: bytes, cipher: str) -> bytes:
    missing = 16 - len(data) % 16
    return data + bytes([missing]) * missing if _mode(cipher) == "CBC" else data


def _unpadded(data: bytes, cipher: str) -> bytes:
    if _mode(cipher) != "CBC":
        return data
    padding = data[-1] if data else 0
    if not 1 <= padding <= 16 or data[-padding:] != bytes([padding]) * padding:
        raise CannotDecrypt("the padding is wrong")
    return data[:-padding]


def _java_length(text: str) -> int:
    """The length in UTF-16 units, as in Java."""
    return len(text.encode("utf-16-le")) // 2


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
