"""The key and the trusted certificates of a listener, from PEM in configs, and from files with PEM, PKCS #12 or JKS.

The configs are Kafka's. `ssl.keystore.type=PEM` takes the texts `ssl.keystore.key` and `ssl.keystore.certificate.chain`, or a file with
both; likewise the trust store. JKS and PKCS12 are told apart by their first bytes, as Java does.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from klamm.configs.definitions.types import ConfigError
from klamm.configs.listeners import ListenerProperties

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
_KEY = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?-----END [A-Z ]*PRIVATE KEY-----", re.DOTALL)
TYPES = ("PEM", "JKS", "PKCS12")


class OwnKey(NamedTuple):
    """A private key and its chain of certificates in PEM, its own certificate first."""

    key: PrivateKeyTypes
    chain: str


def own_key(properties: ListenerProperties) -> OwnKey | None:
    """The key of a listener; None if none is configured. Raises ConfigError, without secrets in its text."""
    get = properties.get
    location, key, chain = get("ssl.keystore.location"), get("ssl.keystore.key"), get("ssl.keystore.certificate.chain")
    kind = _type(properties, "ssl.keystore.type")
    if location is None and key is None and chain is None:
        return None
    password, key_password = get("ssl.keystore.password"), get("ssl.key.password")
    if kind == "PEM":
        if location is not None and key is not None:
            raise ConfigError("ssl.keystore.key", "[hidden]", "ssl.keystore.location is set too; set only one of the two")
        if location is not None:
            text = _read(properties, "ssl.keystore.location").decode("utf-8", "replace")
            return _of_pem(properties, text, text, key_password, properties.key("ssl.keystore.location"))
        if key is None or chain is None:
            raise ConfigError("ssl.keystore.key", "[hidden]", "needs ssl.keystore.certificate.chain, and the other way round")
        return _of_pem(properties, key, chain, key_password, properties.key("ssl.keystore.key"))
    if location is None:
        raise ConfigError("ssl.keystore.type", kind, "a key in PEM needs ssl.keystore.type=PEM")
    if password is None:
        raise ConfigError("ssl.keystore.password", None, f"must be set for a key store of type {kind}")
    data = _read(properties, "ssl.keystore.location")
    try:
        return _of_java(data, password, key_password)
    except ValueError as problem:
        raise ConfigError(properties.key("ssl.keystore.location"), location, _reason(problem)) from None


def trusted(properties: ListenerProperties) -> str | None:
    """The trusted certificates of a listener in PEM; None if none are configured. Raises ConfigError."""
    location, text = properties.get("ssl.truststore.location"), properties.get("ssl.truststore.certificates")
    kind = _type(properties, "ssl.truststore.type")
    if location is None and text is None:
        return None
    if kind == "PEM":
        if location is not None:
            text = _read(properties, "ssl.truststore.location").decode("utf-8", "replace")
        certificates = _CERTIFICATE.findall(text)
    elif location is None:
        raise ConfigError("ssl.truststore.type", kind, "certificates in PEM need ssl.truststore.type=PEM")
    else:
        data = _read(properties, "ssl.truststore.location")
        try:
            certificates = _trusted_of_java(data, properties.get("ssl.truststore.password"))
        except ValueError as problem:
            raise ConfigError(properties.key("ssl.truststore.location"), location, _reason(problem)) from None
    if not certificates:
        raise ConfigError(properties.key("ssl.truststore.location"), location, "has no certificate")
    return "\n".join(certificates) + "\n"


def _type(properties: ListenerProperties, name: str) -> str:
    kind = str(properties.get(name)).upper()
    if kind not in TYPES:
        raise ConfigError(properties.key(name), kind, f"is not supported; {', '.join(TYPES)} are")
    return kind


def _read(properties: ListenerProperties, name: str) -> bytes:
    location = properties.get(name)
    try:
        return Path(location).read_bytes()
    except OSError as problem:
        raise ConfigError(properties.key(name), location, f"cannot be read: {problem.strerror}") from None


def _of_pem(properties: ListenerProperties, key: str, chain: str, password: str | None, name: str) -> OwnKey:
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    keys, certificates = _KEY.findall(key), _CERTIFICATE.findall(chain)
    if not keys or not certificates:
        raise ConfigError(name, "[hidden]", "must have a private key and its certificate in PEM")
    try:
        loaded = load_pem_private_key(keys[0].encode(), None if password is None else password.encode())
    except TypeError:  # a password for a key that is not encrypted, or none for one that is
        if password is None:
            raise ConfigError(name, "[hidden]", "the private key is encrypted: ssl.key.password must be set") from None
        loaded = load_pem_private_key(keys[0].encode(), None)
    except ValueError as problem:
        raise ConfigError(name, "[hidden]", f"the private key cannot be read: {_reason(problem)}") from None
    return OwnKey(loaded, "\n".join(certificates) + "\n")


def _of_java(data: bytes, password: str, key_password: str | None) -> OwnKey:
    from cryptography.hazmat.primitives.serialization import Encoding, load_der_private_key, pkcs12

    from klamm.server.security.tls.java_key_store import MAGIC, read_java_key_store

    if data.startswith(MAGIC):
        keys = read_java_key_store(data, password, key_password).keys
        if not keys:
            raise ValueError("has no private key")
        key, chain = keys[0]
        return OwnKey(load_der_private_key(key, None), _pem(chain))
    loaded, certificate, others = pkcs12.load_key_and_certificates(data, password.encode())
    if loaded is None or certificate is None:
        raise ValueError("has no private key with a certificate")
    return OwnKey(loaded, "".join(each.public_bytes(Encoding.PEM).decode() for each in (certificate, *others)))


def _trusted_of_java(data: bytes, password: str | None) -> list[str]:
    from cryptography.hazmat.primitives.serialization import Encoding, pkcs12

    from klamm.server.security.tls.java_key_store import MAGIC, read_java_key_store

    if data.startswith(MAGIC):
        content = read_java_key_store(data, password, password)
        return [_pem([each]) for each in content.trusted]
    stored = pkcs12.load_pkcs12(data, None if password is None else password.encode())
    return [each.certificate.public_bytes(Encoding.PEM).decode() for each in stored.additional_certs]


def _pem(certificates: list[bytes]) -> str:
    from ssl import DER_cert_to_PEM_cert

    return "".join(map(DER_cert_to_PEM_cert, certificates))


def _reason(problem: ValueError) -> str:
    return str(problem).split("\n", maxsplit=1)[0] or "cannot be read"
