"""Key stores in Java's own format, JKS: keys with their certificates, and trusted certificates.

The file has a SHA-1 over its password, a fixed text and its content. A private key is a PKCS #8 key XORed with a stream of SHA-1 digests of
its password. The format is that of `sun.security.provider.JavaKeyStore`. Keytool writes PKCS #12 since Java 9, also into files that are
named .jks; this is for older files. No library that is kept up reads the format without further packages in C.
"""

from __future__ import annotations

import hashlib
import hmac
from struct import Struct, error
from typing import NamedTuple

MAGIC = b"\xfe\xed\xfe\xed"
_WHITENER = b"Mighty Aphrodite"
_HEAD = Struct(">4sII")
_KEY, _CERTIFICATE = 1, 2
_DIGEST = 20


class JavaKeys(NamedTuple):
    """The content of a key store, in DER. `keys` are PKCS #8 keys, each with its chain of certificates, its own first."""

    keys: list[tuple[bytes, list[bytes]]]
    trusted: list[bytes]


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = _HEAD.size

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def take(self, size: int) -> bytes:
        end = self._position + size
        if end > len(self._data):
            raise ValueError("the key store is cut off")
        taken, self._position = self._data[self._position : end], end
        return taken

    def text(self) -> bytes:
        return self.take(self.number(2))

    def certificate(self, version: int) -> bytes:
        if version == 2 and self.text() != b"X.509":
            raise ValueError("the key store has a certificate that is not X.509")
        return self.take(self.number(4))


def read_java_key_store(data: bytes, password: str | None, key_password: str | None) -> JavaKeys:
    """The content of a key store. Without a password its integrity is not checked. Raises ValueError."""
    try:
        magic, version, count = _HEAD.unpack_from(data)
    except error:
        raise ValueError("the file is not a key store") from None
    if magic != MAGIC or version not in (1, 2):
        raise ValueError("the file is not a key store")
    content = data[:-_DIGEST]
    if password is not None:
        digest = hashlib.sha1(_java_bytes(password) + _WHITENER + content, usedforsecurity=False).digest()
        if not hmac.compare_digest(digest, data[-_DIGEST:]):
            raise ValueError("the password of the key store is wrong, or the file is damaged")
    reader = _Reader(content)
    keys: list[tuple[bytes, list[bytes]]] = []
    trusted: list[bytes] = []
    for _ in range(count):
        tag = reader.number(4)
        reader.text()  # the alias
        reader.take(8)  # the time
        if tag == _KEY:
            encrypted = reader.take(reader.number(4))
            chain = [reader.certificate(version) for _ in range(reader.number(4))]
            keys.append((_decrypted(encrypted, key_password if key_password is not None else password or ""), chain))
        elif tag == _CERTIFICATE:
            trusted.append(reader.certificate(version))
        else:
            raise ValueError("the key store has an entry of an unknown kind")
    return JavaKeys(keys, trusted)


def _decrypted(encrypted: bytes, password: str) -> bytes:
    """The key in an EncryptedPrivateKeyInfo whose algorithm is Java's own."""
    protected = _octets(encrypted)
    salt, body, digest = protected[:_DIGEST], protected[_DIGEST:-_DIGEST], protected[-_DIGEST:]
    secret, stream, block = _java_bytes(password), b"", salt
    while len(stream) < len(body):
        block = hashlib.sha1(secret + block, usedforsecurity=False).digest()
        stream += block
    key = bytes(a ^ b for a, b in zip(body, stream, strict=False))
    if not hmac.compare_digest(hashlib.sha1(secret + key, usedforsecurity=False).digest(), digest):
        raise ValueError("the password of the private key is wrong")
    return key


def _octets(data: bytes) -> bytes:
    """The OCTET STRING that is the second element of a SEQUENCE in DER."""
    _, start, _ = _element(data, 0)
    _, _, after = _element(data, start)
    tag, start, end = _element(data, after)
    if tag != 4 or end > len(data) or end - start < 2 * _DIGEST:
        raise ValueError("the private key of the key store is damaged")
    return data[start:end]


def _element(data: bytes, position: int) -> tuple[int, int, int]:
    """Tag, beginning and end of the content of an element in DER."""
    try:
        tag, length, start = data[position], data[position + 1], position + 2
        if length & 0x80:
            size = length & 0x7F
            length, start = int.from_bytes(data[start : start + size], "big"), start + size
    except IndexError:
        raise ValueError("the private key of the key store is damaged") from None
    return tag, start, start + length


def _java_bytes(password: str) -> bytes:
    """A password as Java hashes it: UTF-16, the high byte first."""
    return password.encode("utf-16-be")
