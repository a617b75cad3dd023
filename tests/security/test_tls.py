"""TLS listeners: who is let in, who a certificate is, key stores in every format, and clients that do not finish their handshake."""

from __future__ import annotations

import asyncio
import logging
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat, pkcs12

from klamm.configs.definitions.types import ConfigError
from klamm.configs.listeners import ListenerProperties
from klamm.protocol import messages
from klamm.server.broker_server import BrokerServer
from klamm.server.listeners import tls
from klamm.server.local.made_security import certificate, hosts_of
from klamm.server.security.tls.certificate_names import distinguished_name, parse_rules, user_of
from klamm.server.security.tls.cipher_suites import openssl_name
from klamm.server.security.tls.contexts import client_context, server_context
from klamm.tests.harness import requests
from klamm.tests.harness.waits import eventually
from klamm.tests.server import brokers

NOW = datetime.now(UTC)
VERSIONS = messages.encode_request(18, 0, 1, "test", b"")


class Certificates(NamedTuple):
    """Files in PEM: an authority, a key with its certificate for brokers and for a client, and one that has expired."""

    folder: Path
    authority: Path
    broker: Path
    client: Path
    expired: Path

    def trusting(self, own: Path | None = None) -> ssl.SSLContext:
        """The context of a client that trusts the authority."""
        context = ssl.create_default_context(cafile=str(self.authority))
        if own is not None:
            context.load_cert_chain(own)
        return context


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    folder = tmp_path_factory.mktemp("certificates")
    authority = certificate("ca", (), NOW, is_authority=True)
    names = {"broker": 10, "client": 10, "expired": 0}
    for name, days in names.items():
        key, own = certificate(name, hosts_of("localhost"), NOW, issuer=authority, days=days)
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        (folder / f"{name}.pem").write_bytes(pem + own.public_bytes(Encoding.PEM))
        p12 = pkcs12.serialize_key_and_certificates(name.encode(), key, own, [authority[1]], BestAvailableEncryption(b"secret"))
        (folder / f"{name}.p12").write_bytes(p12)
    (folder / "ca.pem").write_bytes(authority[1].public_bytes(Encoding.PEM))
    return Certificates(folder, folder / "ca.pem", *(folder / f"{name}.pem" for name in names))


Start = Callable[..., Awaitable[BrokerServer]]


@pytest.fixture
async def start(zookeeper: str, chroot: str, certificates: Certificates) -> AsyncIterator[Start]:
    """Start a broker with a TLS listener and these properties besides."""
    running: list[BrokerServer] = []

    async def run(**properties: object) -> BrokerServer:
        settings: dict[str, Any] = {
            "listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0",
            "ssl_keystore_type": "PEM", "ssl_keystore_location": certificates.broker,
            "ssl_truststore_type": "PEM", "ssl_truststore_location": certificates.authority,
        }
        broker = brokers.node(zookeeper + chroot, 0, **settings | properties)
        running.append(broker)
        await broker.start()
        return broker

    yield run
    for broker in running:
        await broker.close()


def port_of(broker: BrokerServer, name: str = "SSL") -> int:
    return next(listener.port for listener in broker.listeners if listener.name == name)


async def answers(port: int, context: ssl.SSLContext | None) -> bool:
    """Whether a client gets a response to ApiVersions."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="localhost" if context else None)
        try:
            writer.write(VERSIONS)
            return len(await asyncio.wait_for(reader.read(8), 20)) == 8
        finally:
            writer.close()
    except (ssl.SSLError, ConnectionError):
        return False


async def test_a_client_that_does_not_speak_tls_is_one_line_in_the_log_and_others_go_on(
    start: Start, certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    broker = await start()
    assert not await answers(port_of(broker), None)
    lines = [record.getMessage() for record in caplog.records if "TLS handshake" in record.getMessage()]
    assert len(lines) == 1 and "does not speak TLS" in lines[0]
    assert not await answers(port_of(broker, "PLAINTEXT"), certificates.trusting())
    assert "begins like TLS" in caplog.text
    assert await answers(port_of(broker), certificates.trusting())


@pytest.mark.parametrize(("auth", "without", "with_own"), [("none", True, True), ("requested", True, True), ("required", False, True)])
async def test_client_authentication(start: Start, certificates: Certificates, auth: str, without: bool, with_own: bool) -> None:
    broker = await start(ssl_client_auth=auth)
    assert await answers(port_of(broker), certificates.trusting()) == without
    assert await answers(port_of(broker), certificates.trusting(certificates.client)) == with_own


async def test_an_expired_certificate_is_refused(start: Start, certificates: Certificates, caplog: pytest.LogCaptureFixture) -> None:
    broker = await start(ssl_client_auth="required")
    with caplog.at_level(logging.WARNING):
        assert not await answers(port_of(broker), certificates.trusting(certificates.expired))
        await eventually(lambda: "certificate has expired" in caplog.text, "the reason is logged")


async def test_a_client_is_the_principal_of_its_certificate(start: Start, certificates: Certificates) -> None:
    broker = await start(ssl_client_auth="requested", ssl_principal_mapping_rules="RULE:^CN=(.*)$/user-$1/U")
    for own, principal in ((certificates.client, "User:USER-CLIENT"), (None, "User:ANONYMOUS")):
        _, writer = await asyncio.open_connection(
            "127.0.0.1", port_of(broker), ssl=certificates.trusting(own), server_hostname="localhost"
        )
        listener = next(listener for listener in broker.listeners if listener.name == "SSL")
        await eventually(lambda: len(listener.connections) == 1, "the connection is there")  # noqa: B023 it is called at once
        (connection,) = listener.connections
        assert str(connection.peer.principal) == principal
        writer.close()
        await eventually(lambda: not listener.connections, "the connection is gone")  # noqa: B023 it is called at once


async def test_a_name_that_no_rule_maps_is_refused(start: Start, certificates: Certificates) -> None:
    broker = await start(ssl_client_auth="required", ssl_principal_mapping_rules="RULE:^CN=(broker)$/$1/")
    assert not await answers(port_of(broker), certificates.trusting(certificates.client))
    assert await answers(port_of(broker), certificates.trusting(certificates.broker))


async def test_key_stores_of_java(start: Start, certificates: Certificates) -> None:
    folder = certificates.folder
    stores = {"PKCS12": folder / "broker.p12"}
    keytool = shutil.which("keytool")
    if keytool is not None:
        stores["JKS"] = folder / "broker.jks"
        stores["JKS"].unlink(missing_ok=True)
        arguments = ["-importkeystore", "-srckeystore", str(folder / "broker.p12"), "-srcstorepass", "secret", "-destkeystore"]
        arguments += [str(stores["JKS"]), "-deststoretype", "JKS", "-deststorepass", "secret", "-noprompt"]
        subprocess.run([keytool, *arguments], check=True, capture_output=True)
        trust = ["-import", "-file", str(certificates.authority), "-keystore", str(folder / "ca.jks"), "-storetype", "JKS"]
        (folder / "ca.jks").unlink(missing_ok=True)
        subprocess.run([keytool, *trust, "-storepass", "secret", "-noprompt"], check=True, capture_output=True)
    for kind, file in stores.items():
        properties: dict[str, object] = {"ssl_keystore_type": kind, "ssl_keystore_location": file, "ssl_keystore_password": "secret"}
        if kind == "JKS":
            properties |= {"ssl_truststore_type": "JKS", "ssl_truststore_location": folder / "ca.jks", "ssl_client_auth": "required"}
        broker = await start(**properties)
        assert await answers(port_of(broker), certificates.trusting(certificates.client)), kind
        with pytest.raises(ConfigError, match="password") as raised:
            await start(**properties | {"ssl_keystore_password": "other-secret"})
        assert "other-secret" not in str(raised.value)
        await broker.close()


async def test_a_key_store_that_changes_at_run_time_is_used_for_new_connections(
    start: Start, certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    broker = await start()
    await brokers.knows(broker, 0)

    async def shown() -> str:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port_of(broker), ssl=certificates.trusting(), server_hostname="localhost"
        )
        shown = writer.get_extra_info("ssl_object").getpeercert()["subject"][0][0][1]
        writer.write(VERSIONS)
        assert len(await reader.read(8)) == 8
        writer.close()
        return str(shown)

    async def store(location: Path) -> None:
        await broker.admin_zk.write_config("brokers", "0", {"listener.name.ssl.ssl.keystore.location": str(location)})

    assert await shown() == "broker"
    await store(certificates.client)
    file = str(certificates.client)
    key = "listener.name.ssl.ssl.keystore.location"
    await eventually(lambda: broker.config.effective.get(key) == file, "the config is known")
    assert await shown() == "client"
    await store(certificates.folder / "missing.pem")
    await eventually(lambda: "the key stores of listener" in caplog.text, "the problem is logged")
    assert await shown() == "client"


async def test_large_responses_and_requests_in_pieces_come_through(start: Start, certificates: Certificates) -> None:
    broker = await start()
    await brokers.knows(broker, 0)
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port_of(broker), ssl=certificates.trusting(), server_hostname="localhost", limit=1 << 26
    )
    names = [f"no-such-topic-{'x' * 200}-{number}" for number in range(5000)]
    topic = messages.MetadataRequest.MetadataRequestTopic
    request = messages.MetadataRequest(topics=[topic(name=name) for name in names], allow_auto_topic_creation=False)
    frame = messages.encode_request(3, 9, 1, "test", messages.encode(request, 9))
    for begin in range(0, len(frame), 9973):
        writer.write(frame[begin : begin + 9973])
        await writer.drain()
    payload = await asyncio.wait_for(reader.readexactly(int.from_bytes(await reader.readexactly(4), "big")), 60)
    _, offset = messages.decode_response_header(3, 9, payload)
    response, _ = messages.decode("MetadataResponse", 9, payload, offset)
    assert len(payload) > 1 << 20 and [row.name for row in response.topics] == names
    writer.close()


async def test_all_requests_of_a_client_that_closes_at_once_take_effect(start: Start, certificates: Certificates) -> None:
    broker = await start()
    await brokers.knows(broker, 0)
    _, writer = await asyncio.open_connection("127.0.0.1", port_of(broker), ssl=certificates.trusting(), server_hostname="localhost")
    names = [f"t{number}" for number in range(5)]
    made = [requests.create_topic(name, [[0]]) for name in names]
    writer.write(b"".join(messages.encode_request(19, 5, n, "test", messages.encode(each, 5)) for n, each in enumerate(made)))
    writer.close()
    await eventually(lambda: broker.metadata.topics.keys() >= set(names), "all topics are there")


async def test_a_client_whose_end_comes_together_with_its_request_gets_a_response_that_is_in_a_file(
    start: Start, certificates: Certificates
) -> None:
    broker = await start()
    await brokers.knows(broker, 0)
    broker.listeners.limits.unread.size += 1 << 30  # others do not read
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(broker))
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    session = certificates.trusting().wrap_bio(incoming, outgoing, server_hostname="localhost")

    async def done(step: Callable[[], Any]) -> Any:
        while True:
            try:
                return step()
            except ssl.SSLWantReadError:
                writer.write(outgoing.read())
                received = await asyncio.wait_for(reader.read(1 << 16), 20)
                assert received, "the connection is closed before the response"
                incoming.write(received)

    await done(session.do_handshake)
    topic = messages.MetadataRequest.MetadataRequestTopic
    names = [f"no-such-topic-{'x' * 200}-{number}" for number in range(200)]
    request = messages.MetadataRequest(topics=[topic(name=name) for name in names], allow_auto_topic_creation=False)
    session.write(messages.encode_request(3, 9, 1, "test", messages.encode(request, 9)))
    with suppress(ssl.SSLWantReadError):
        session.unwrap()
    response = b""
    while len(response) < 4 or len(response) < 4 + int.from_bytes(response[:4], "big"):
        response += await done(lambda: session.read(1 << 16))
    assert response[4:8] == (1).to_bytes(4, "big")
    writer.close()
    await eventually(lambda: not broker.listeners.limits.unread.files, "the file is removed")


async def test_open_handshakes_are_bounded(start: Start, certificates: Certificates, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls, "HANDSHAKES", 20)
    broker = await start()
    half_open = [await asyncio.open_connection("127.0.0.1", port_of(broker)) for _ in range(60)]
    listener = next(listener for listener in broker.listeners if listener.name == "SSL")
    handshakes = listener._handshakes
    assert handshakes is not None
    assert await asyncio.wait_for(half_open[0][0].read(1), 20) == b"", "the oldest are closed"
    assert await answers(port_of(broker), certificates.trusting())
    assert len(handshakes) <= 20
    for _, writer in half_open:
        writer.close()
    await eventually(lambda: len(handshakes) == 0, "none is left")


@pytest.mark.parametrize(
    ("properties", "problem"),
    [
        ({"ssl_keystore_location": "/no/such/file"}, "cannot be read"),
        ({"ssl_keystore_type": "BCFKS"}, "is not supported"),
        ({"ssl_enabled_protocols": "SSLv3"}, "only TLSv1"),
        ({"ssl_enabled_protocols": "TLSv1.3", "ssl_cipher_suites": "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"}, "no suite for the protocols"),
        ({"ssl_cipher_suites": "TLS_AES_128_GCM_SHA256"}, "one by one"),
        ({"ssl_principal_mapping_rules": "RULE:^CN=(.*)$/$2/"}, "no such group"),
        ({"ssl_engine_factory_class": "org.x.Y"}, "is not supported"),
    ],
)
async def test_what_cannot_be_had_stops_the_start(start: Start, properties: dict[str, object], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        await start(**properties)


@pytest.mark.parametrize(
    ("java", "openssl"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256", "ECDHE-ECDSA-AES128-SHA256"),
        ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-RSA-CHACHA20-POLY1305"),
        ("TLS_RSA_WITH_AES_128_CBC_SHA", "AES128-SHA"),
        ("TLS_DHE_RSA_WITH_AES_256_GCM_SHA384", "DHE-RSA-AES256-GCM-SHA384"),
    ],
)
def test_names_of_cipher_suites(java: str, openssl: str) -> None:
    assert openssl_name(java) == openssl
    assert openssl in {suite["name"] for suite in _all_suites()}


def _all_suites() -> list[Any]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_ciphers("ALL:@SECLEVEL=0")
    return context.get_ciphers()


@pytest.mark.parametrize(
    ("rules", "name", "user"),
    [
        ("DEFAULT", "CN=a,O=b", "CN=a,O=b"),
        ("RULE:^CN=(.*?),O=(.*?)$/$1@$2/L,DEFAULT", "CN=Al,O=Org", "al@org"),
        ("RULE:^CN=x$/y/, RULE:^CN=(.*?)$/$1/U", "CN=a", "A"),
        (r"RULE:^CN=(\w+)\/(\w+)$/$2\/$1/", "CN=a/b", "b/a"),
    ],
)
def test_mapping_rules(rules: str, name: str, user: str) -> None:
    assert user_of(name, parse_rules(rules)) == user


def test_a_rule_matches_the_whole_name() -> None:
    with pytest.raises(ValueError, match="CN=admin1"):
        user_of("CN=admin1,O=x", parse_rules("RULE:^CN=([a-z]+)/$1/"))


@pytest.mark.parametrize(("algorithm", "checks"), [("HTTPS", True), ("https", True), ("", False)])
def test_names_of_other_brokers_are_checked_as_configured(certificates: Certificates, algorithm: str, checks: bool) -> None:
    """Otherwise a broker would trust any certificate of the authority."""
    given = {
        "ssl.endpoint.identification.algorithm": algorithm, "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates.authority),
    }
    context = client_context(ListenerProperties("ssl", "SSL", given))
    assert (context.check_hostname, context.verify_mode) == (checks, ssl.CERT_REQUIRED)


@pytest.mark.parametrize("suite", ["ECDHE-RSA-AES128-SHA", "ECDHE-ECDSA-AES128-SHA256", "AES128-GCM-SHA256", "AES256-SHA"])
def test_a_listener_takes_the_old_suites_that_a_jvm_takes(certificates: Certificates, suite: str) -> None:
    given = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(certificates.broker)}
    context = server_context(ListenerProperties("ssl", "SSL", given))
    named = [each["name"] for each in context.get_ciphers()]
    assert suite in named
    assert not [name for name in named if "NULL" in name or "ADH" in name or "RC4" in name or "DES" in name]
    assert context.security_level == ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).security_level


async def test_a_client_of_tls_1_2_with_a_suite_of_cbc_is_served(start: Start, certificates: Certificates) -> None:
    old = certificates.trusting()
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    old.set_ciphers("ECDHE-RSA-AES128-SHA:ECDHE-ECDSA-AES128-SHA")
    assert await answers(port_of(await start()), old)


def test_names_are_written_as_java_writes_them() -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.x509.oid import NameOID

    def attribute(kind: x509.ObjectIdentifier, value: str) -> x509.NameAttribute:
        return x509.NameAttribute(kind, value)

    parts = [
        x509.RelativeDistinguishedName([attribute(NameOID.COUNTRY_NAME, "DE")]),
        x509.RelativeDistinguishedName([attribute(NameOID.STATE_OR_PROVINCE_NAME, " Ba yern ")]),
        x509.RelativeDistinguishedName([attribute(NameOID.LOCALITY_NAME, "M\u00fcnchen")]),
        x509.RelativeDistinguishedName([attribute(NameOID.ORGANIZATION_NAME, 'Org, "Inc" + <a>;b\\c=d#e')]),
        x509.RelativeDistinguishedName([attribute(NameOID.EMAIL_ADDRESS, "a@b.c"), attribute(NameOID.COMMON_NAME, "#al/ice")]),
        x509.RelativeDistinguishedName([attribute(NameOID.USER_ID, "u1")]),
    ]
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name(parts)
    signed = x509.CertificateBuilder(name, name, key.public_key(), 7, NOW, NOW.replace(year=NOW.year + 1)).sign(key, SHA256())
    expected = r'UID=u1,CN=\#al/ice+1.2.840.113549.1.9.1=#16056140622e63,O=Org\, \"Inc\" \+ \<a\>\;b\\c\=d\#e,L=München,ST=\ Ba yern\ ,C=DE'
    assert distinguished_name(signed.public_bytes(Encoding.DER)) == expected
