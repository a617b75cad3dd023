"""TLS contexts of one listener: for its clients, and for connections of this broker to the same listener of others."""

from __future__ import annotations

import os
import ssl
import tempfile
from typing import TYPE_CHECKING

from klamm.configs.definitions.types import ConfigError
from klamm.configs.listeners import ListenerProperties
from klamm.protocol.security.secret_texts import new_secret
from klamm.server.security.tls.cipher_suites import AS_JAVA, OF_TLS_1_3, below_tls_1_3
from klamm.server.security.tls.key_stores import own_key, trusted

if TYPE_CHECKING:
    from klamm.server.security.tls.key_stores import OwnKey

VERSIONS = {
    "TLSv1": ssl.TLSVersion.TLSv1, "TLSv1.1": ssl.TLSVersion.TLSv1_1, "TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3,
}
_CLIENT_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_FOREIGN = ("ssl.engine.factory.class", "ssl.provider", "ssl.secure.random.implementation", "security.providers")
"""Configs that name classes or algorithms of Java."""


def server_context(properties: ListenerProperties) -> ssl.SSLContext:
    """The context for clients of a listener. Raises ConfigError."""
    for name in _FOREIGN:
        if properties.get(name) is not None:
            raise ConfigError(properties.key(name), properties.get(name), "is not supported")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    key = own_key(properties)
    if key is None:
        raise ConfigError(properties.key("ssl.keystore.location"), None, f"must be set, because listener {properties.name} has TLS")
    _load_key(context, key)
    context.set_ciphers(AS_JAVA)
    _limit(context, properties)
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.verify_mode = _CLIENT_AUTH[client_auth(properties)]
    certificates = trusted(properties)
    if certificates is not None:
        context.load_verify_locations(cadata=certificates)
    elif context.verify_mode != ssl.CERT_NONE:
        context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
    return context


def client_auth(properties: ListenerProperties) -> str:
    """Whether clients present a certificate: none, requested or required. With SASL it has to be set for the listener itself, as in Kafka.
    """
    if properties.security_protocol == "SASL_SSL" and properties.key("ssl.client.auth") not in properties.properties:
        return "none"
    return str(properties.get("ssl.client.auth"))


def client_context(properties: ListenerProperties) -> ssl.SSLContext:
    """The context for connections of this broker to a listener of others. Raises ConfigError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    algorithm = str(properties.get("ssl.endpoint.identification.algorithm") or "")
    if algorithm.lower() not in ("", "https"):
        raise ConfigError("ssl.endpoint.identification.algorithm", algorithm, "is not supported; https and an empty value are")
    context.check_hostname = bool(algorithm)
    _limit(context, properties)
    key = own_key(properties)
    if key is not None:
        _load_key(context, key)
    certificates = trusted(properties)
    if certificates is None:
        context.load_default_certs()
    else:
        context.load_verify_locations(cadata=certificates)
    return context


def _load_key(context: ssl.SSLContext, key: OwnKey) -> None:
    """Python takes keys from files only: the file is ours alone, encrypted, and gone afterwards."""
    from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat

    password = new_secret(32)
    encrypted = key.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(password.encode()))
    with tempfile.NamedTemporaryFile(suffix=".pem") as file:
        os.chmod(file.name, 0o600)
        file.write(encrypted + key.chain.encode())
        file.flush()
        try:
            context.load_cert_chain(file.name, password=password)
        except ssl.SSLError as problem:
            raise ConfigError("ssl.keystore.location", "[hidden]", f"the key does not fit: {problem.reason}") from None


def _limit(context: ssl.SSLContext, properties: ListenerProperties) -> None:
    """Apply the configured protocols and cipher suites. Raises ConfigError."""
    names = list(properties.get("ssl.enabled.protocols"))
    unknown = [name for name in names if name not in VERSIONS]
    if unknown or not names:
        raise ConfigError("ssl.enabled.protocols", ",".join(names), f"only {', '.join(VERSIONS)} are supported")
    suites = list(properties.get("ssl.cipher.suites"))
    older = below_tls_1_3(suites)
    newer = [suite for suite in suites if suite in OF_TLS_1_3]
    if suites and not newer:
        names = [name for name in names if name != "TLSv1.3"]
    if suites and not older:
        names = [name for name in names if name == "TLSv1.3"]
    if not names:
        raise ConfigError("ssl.cipher.suites", ",".join(suites), "has no suite for the protocols in ssl.enabled.protocols")
    if newer and len(newer) < len(OF_TLS_1_3) and "TLSv1.3" in names:
        why = f"the suites of TLS 1.3 cannot be chosen one by one; name all of {', '.join(OF_TLS_1_3)}, or set ssl.enabled.protocols"
        raise ConfigError("ssl.cipher.suites", ",".join(suites), why)
    wanted = sorted(list(VERSIONS).index(name) for name in names)
    if wanted != list(range(wanted[0], wanted[-1] + 1)):
        raise ConfigError("ssl.enabled.protocols", ",".join(names), "leaves out a protocol between two others")
    versions = list(VERSIONS.values())
    context.minimum_version, context.maximum_version = versions[wanted[0]], versions[wanted[-1]]
    if older:
        try:
            context.set_ciphers(":".join(older))
        except ssl.SSLError:
            raise ConfigError("ssl.cipher.suites", ",".join(suites), "has no suite that is supported") from None
