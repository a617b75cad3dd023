"""Certificates and users for a cluster of tests: what `klamm serve --tls --sasl SCRAM-SHA-256` makes, and what its clients need.

A folder gets a certificate authority of its own, a key for all brokers and the settings of a client. Only the owner can read it. If the
folder has them from before, they are used again, so that clients of a cluster with a data directory keep theirs. The names are those of
librdkafka, which confluent-kafka and others take as they are.
"""

from __future__ import annotations

import ipaddress
import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from klamm.protocol.security.scram import salted
from klamm.protocol.security.secret_texts import new_secret
from klamm.server.local.arguments import USER
from klamm.server.security.sasl.scram_credentials import MECHANISMS, MIN_ITERATIONS, credential_text

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.x509 import Certificate, GeneralName

DAYS = 825

_MODULES = {"PLAIN": "plain.PlainLoginModule"}


class MadeSecurity(NamedTuple):
    """The properties of all brokers, the settings of a client, and the configs of users to store in ZooKeeper before brokers start."""

    config: dict[str, str]
    client: dict[str, str]
    users: dict[str, dict[str, str]]


def make_security(folder: Path, host: str, *, tls: bool, mechanism: str | None, now_ms: int) -> MadeSecurity:
    """Security for brokers at this host. Raises OSError if the folder cannot be written."""
    protocol = ("SASL_SSL" if tls else "SASL_PLAINTEXT") if mechanism else "SSL"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    folder.chmod(0o700)
    config, client = {"security.inter.broker.protocol": protocol}, {"security.protocol": protocol}
    users: dict[str, dict[str, str]] = {}
    if tls:
        authority, key = folder / "ca.pem", folder / "broker.pem"
        if not (authority.exists() and key.exists()):
            _make_certificates(authority, key, host, datetime.fromtimestamp(now_ms / 1000, UTC))
        config |= {
            "ssl.keystore.type": "PEM", "ssl.keystore.location": str(key.absolute()),
            "ssl.truststore.type": "PEM", "ssl.truststore.location": str(authority.absolute()),
        }
        client["ssl.ca.location"] = str(authority.absolute())
    if mechanism is not None:
        password = _password(folder / "user.json")
        config |= sasl_properties(protocol, mechanism, USER, password)
        client |= {"sasl.mechanism": mechanism, "sasl.username": USER, "sasl.password": password}
        if mechanism != "PLAIN":
            users[USER] = scram_configs(password)
    _write(folder / "client.properties", _java_properties(client).encode())
    return MadeSecurity(config, client, users)


def add_users(made: MadeSecurity, mechanism: str, passwords: Mapping[str, str]) -> MadeSecurity:
    """The same security with further users, whose passwords may have neither quotes nor backslashes with PLAIN."""
    if mechanism != "PLAIN":
        return made._replace(users=made.users | {user: scram_configs(password) for user, password in passwords.items()})
    key = next(name for name in made.config if name.endswith(".plain.sasl.jaas.config"))
    more = "".join(f' "user_{user}"="{password}"' for user, password in passwords.items())
    return made._replace(config=made.config | {key: f"{made.config[key].removesuffix(';')}{more};"})


def _java_properties(client: Mapping[str, str]) -> str:
    """The settings of a client as clients of Java and the tools of Klamm read them (`--command-config`)."""
    lines = [f"security.protocol={client['security.protocol']}"]
    if "ssl.ca.location" in client:
        lines += ["ssl.truststore.type=PEM", f"ssl.truststore.location={client['ssl.ca.location']}"]
    if "sasl.mechanism" in client:
        module = f"org.apache.kafka.common.security.{_MODULES.get(client['sasl.mechanism'], 'scram.ScramLoginModule')}"
        login = f'username="{client["sasl.username"]}" password="{client["sasl.password"]}"'
        lines += [f"sasl.mechanism={client['sasl.mechanism']}", f"sasl.jaas.config={module} required {login};"]
    return "\n".join(lines) + "\n"


def sasl_properties(listener: str, mechanism: str, user: str, password: str) -> dict[str, str]:
    """The properties of a listener on which clients and brokers authenticate with one mechanism, brokers as this user."""
    module = f"org.apache.kafka.common.security.{_MODULES.get(mechanism, 'scram.ScramLoginModule')}"
    of_users = f' user_{user}="{password}"' if mechanism == "PLAIN" else ""
    jaas = f'{module} required username="{user}" password="{password}"{of_users};'
    return {
        "sasl.enabled.mechanisms": mechanism,
        "sasl.mechanism.inter.broker.protocol": mechanism,
        f"listener.name.{listener.lower()}.{mechanism.lower()}.sasl.jaas.config": jaas,
    }


def scram_configs(password: str) -> dict[str, str]:
    """The configs of a user with this password for both mechanisms."""
    salt = bytes.fromhex(new_secret())
    return {
        each.name: credential_text(each, salt, salted(each.digest, password.encode(), salt, MIN_ITERATIONS), MIN_ITERATIONS)
        for each in MECHANISMS.values()
    }


def _password(file: Path) -> str:
    if file.exists():
        return str(json.loads(file.read_text())["password"])
    password = new_secret()
    _write(file, json.dumps({"username": USER, "password": password}).encode())
    return password


def _write(file: Path, data: bytes) -> None:
    """Write a file that only its owner can read, from its first moment on."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as opened:
        opened.write(data)


def _make_certificates(authority_file: Path, key_file: Path, host: str, now: datetime) -> None:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    authority_key, authority = certificate("klamm test authority", (), now, is_authority=True)
    key, own = certificate(host, hosts_of(host), now, issuer=(authority_key, authority))
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) + own.public_bytes(Encoding.PEM)
    _write(authority_file, authority.public_bytes(Encoding.PEM))
    _write(key_file, pem)


def hosts_of(host: str) -> tuple[str, ...]:
    """The names and addresses under which clients reach a broker at this host."""
    return tuple(dict.fromkeys((host, "localhost", "127.0.0.1", "::1")))


def certificate(
    name: str, hosts: tuple[str, ...], now: datetime, *, is_authority: bool = False,
    issuer: tuple[EllipticCurvePrivateKey, Certificate] | None = None, days: int = DAYS,
) -> tuple[EllipticCurvePrivateKey, Certificate]:
    """A new key and its certificate, signed by the issuer or by itself. It is valid from a day ago for this number of days."""
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])
    issuer_key, issuer_name = (key, subject) if issuer is None else (issuer[0], issuer[1].subject)
    builder = x509.CertificateBuilder(
        issuer_name, subject, key.public_key(), x509.random_serial_number(), now - timedelta(days=1), now - timedelta(days=1 - days)
    )
    builder = builder.add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
    builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    builder = builder.add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
    if hosts:
        builder = builder.add_extension(x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False)
    return key, builder.sign(issuer_key, SHA256())


def _host(host: str) -> GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def kafka_python_settings(client: Mapping[str, str]) -> dict[str, Any]:
    """The settings of a client with the names of kafka-python, which `klamm.admin` has too."""
    names = {
        "security.protocol": "security_protocol", "sasl.mechanism": "sasl_mechanism", "sasl.username": "sasl_plain_username",
        "sasl.password": "sasl_plain_password", "ssl.ca.location": "ssl_cafile",
    }
    return {names[name]: value for name, value in client.items()}
