"""A certificate that its authority has revoked is as good as any other: nobody looks for revocation lists, as in Apache Kafka 3.9.1.

The JVM looks at them only with the system property `com.sun.net.ssl.checkRevocation=true`, and a trust store in PEM is read for its
certificates alone.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from klamm.protocol import messages
from klamm.server.local.made_security import certificate, hosts_of
from klamm.tests.harness.kafka import KafkaBroker
from klamm.tests.harness.ports import free_ports
from klamm.tests.harness.tree import Tree
from klamm.tests.server import brokers

NOW = datetime.now(UTC)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """PEM files: keys of a broker and of a client whose certificate is revoked, their authority, and the authority with its list."""
    made = tmp_path_factory.mktemp("certificates")
    authority_key, authority = certificate("ca", (), NOW, is_authority=True)
    for name in ("broker", "revoked"):
        key, own = certificate(name, hosts_of("localhost"), NOW, issuer=(authority_key, authority))
        secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        (made / f"{name}.pem").write_bytes(secret + own.public_bytes(Encoding.PEM))
    row = x509.RevokedCertificateBuilder().serial_number(own.serial_number).revocation_date(NOW - timedelta(hours=1)).build()
    builder = x509.CertificateRevocationListBuilder().issuer_name(authority.subject).add_revoked_certificate(row)
    builder = builder.last_update(NOW - timedelta(hours=1)).next_update(NOW + timedelta(days=1))
    (made / "ca.pem").write_bytes(authority.public_bytes(Encoding.PEM))
    (made / "ca.crl").write_bytes(builder.sign(authority_key, SHA256()).public_bytes(Encoding.PEM))
    (made / "ca-with-list.pem").write_bytes((made / "ca.pem").read_bytes() + (made / "ca.crl").read_bytes())
    return made


@pytest.fixture
def tree(zookeeper: str, chroot: str) -> Iterator[Tree]:
    made = Tree(zookeeper, chroot)
    yield made
    made.close()


def settings(folder: Path, trust: str) -> dict[str, Any]:
    """Properties of a broker, with underscores for dots."""
    return {
        "ssl_keystore_type": "PEM", "ssl_keystore_location": folder / "broker.pem", "ssl_client_auth": "required",
        "ssl_truststore_type": "PEM", "ssl_truststore_location": folder / trust,
    }


async def answers(port: int, folder: Path, own: str | None) -> bool:
    """Whether a client with this certificate gets a response to ApiVersions."""
    context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    if own is not None:
        context.load_cert_chain(folder / own)
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="localhost")
        try:
            writer.write(messages.encode_request(18, 0, 1, "test", b""))
            return len(await asyncio.wait_for(reader.read(8), 20)) == 8
        finally:
            writer.close()
    except (ssl.SSLError, ConnectionError):
        return False


def test_the_certificate_is_on_the_list_of_its_authority(folder: Path) -> None:
    context = ssl.create_default_context(cafile=str(folder / "ca-with-list.pem"))
    context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_context.load_cert_chain(folder / "revoked.pem")
    server = server_context.wrap_bio(outgoing, incoming, server_side=True)
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    with pytest.raises(ssl.SSLWantReadError):
        server.do_handshake()
    with pytest.raises(ssl.SSLCertVerificationError, match="certificate revoked"):
        client.do_handshake()


@pytest.mark.parametrize("trust", ["ca.pem", "ca-with-list.pem"])
async def test_a_client_with_a_revoked_certificate_is_served(zookeeper: str, chroot: str, folder: Path, trust: str) -> None:
    properties = settings(folder, trust)
    broker = brokers.node(zookeeper + chroot, 0, listeners="PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0", **properties)
    await broker.start()
    try:
        port = next(listener.port for listener in broker.listeners if listener.name == "SSL")
        assert await answers(port, folder, "revoked.pem")
        assert not await answers(port, folder, None)
    finally:
        await broker.close()


@pytest.mark.slow
@pytest.mark.reference
async def test_kafka_serves_a_client_with_a_revoked_certificate(tree: Tree, tmp_path: Path, folder: Path, kafka_jars: Path) -> None:
    plain, port = free_ports(2)
    listeners = f"PLAINTEXT://127.0.0.1:{plain},SSL://127.0.0.1:{port}"
    properties = settings(folder, "ca-with-list.pem")
    broker = KafkaBroker(kafka_jars, tree, tmp_path, 0, listeners=listeners, **properties)
    try:
        await asyncio.to_thread(broker.start)
        assert await answers(port, folder, "revoked.pem")
        assert not await answers(port, folder, None)
    finally:
        await asyncio.to_thread(broker.kill)
