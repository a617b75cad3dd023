"""TLS and SASL of the admin client, with scripted brokers; with those of Klamm and of Apache Kafka see tests/security."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
import time
from pathlib import Path
from typing import Any

import kafka.errors
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from klamm.admin import AdminClient, NotAuthenticated, TimedOut, Unsupported
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.tests.admin.scripted import ScriptedCluster, ScriptedMember
from klamm.tests.admin.silent_port import silent_port


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate of 127.0.0.1 that signed itself, with its key in the same file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "scripted")])
    now = datetime.datetime.now(datetime.UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "broker.pem"
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        + signed.public_bytes(serialization.Encoding.PEM)
    )
    return path


@pytest.fixture
def tls(cluster: ScriptedCluster, certificate: Path) -> ScriptedMember:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return cluster.add(1, tls=context)[0]


def test_tls_with_the_settings_of_kafka_python(cluster: ScriptedCluster, tls: ScriptedMember, certificate: Path) -> None:
    with AdminClient(cluster.bootstrap, security_protocol="SSL", ssl_cafile=str(certificate)) as admin:
        assert admin.describe_cluster().cluster_id == "scripted"
    context = ssl.create_default_context(cafile=str(certificate))
    with AdminClient(cluster.bootstrap, security_protocol="SSL", ssl_context=context) as admin:
        assert admin.describe_cluster().cluster_id == "scripted"


def test_a_certificate_that_is_not_trusted_is_an_error_at_once(cluster: ScriptedCluster, tls: ScriptedMember) -> None:
    with AdminClient(cluster.bootstrap, security_protocol="SSL") as admin, pytest.raises(NotAuthenticated, match="VERIFY_F") as caught:
        admin.describe_cluster()
    assert caught.value.code is None and "SASL" not in str(caught.value)


def test_a_plain_client_of_a_tls_broker_ends_in_a_time_out(cluster: ScriptedCluster, tls: ScriptedMember) -> None:
    with AdminClient(cluster.bootstrap) as admin, pytest.raises(TimedOut, match=tls.address):
        admin.describe_cluster(timeout_ms=300)


def test_a_tls_client_of_a_plain_broker_ends_in_an_error(cluster: ScriptedCluster) -> None:
    cluster.add(1)
    with AdminClient(cluster.bootstrap, security_protocol="SSL") as admin, pytest.raises((TimedOut, NotAuthenticated)):
        admin.describe_cluster(timeout_ms=300)


def test_a_tls_handshake_that_hangs_ends_at_the_deadline() -> None:
    with silent_port() as listener, AdminClient(f"127.0.0.1:{listener.getsockname()[1]}", security_protocol="SSL") as admin:
        begun = time.monotonic()
        with pytest.raises(TimedOut, match="did not respond in time"):
            admin.describe_cluster(timeout_ms=300)
        assert 0.25 < time.monotonic() - begun < 5


def sasl(broker: ScriptedMember, password: str) -> None:
    """Let it take one user by SASL PLAIN."""

    def authenticate(body: Any, _version: int) -> Any:
        response = messages.SaslAuthenticateResponse
        if body.auth_bytes == f"\0user\0{password}".encode() or body.auth_bytes == f"user\0user\0{password}".encode():
            return response()
        return response(error_code=58, error_message="wrong password")

    broker.on(ApiKey.SASL_HANDSHAKE, messages.SaslHandshakeResponse(mechanisms=["PLAIN"]))
    broker.on(ApiKey.SASL_AUTHENTICATE, authenticate)


SASL: dict[str, Any] = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", "sasl_plain_username": "user"}


def test_sasl_with_the_settings_of_kafka_python(cluster: ScriptedCluster) -> None:
    (broker,) = cluster.add(1)
    sasl(broker, "secret")
    with AdminClient(cluster.bootstrap, **SASL, sasl_plain_password="secret") as admin:
        assert admin.describe_cluster().cluster_id == "scripted"
    assert len(broker.bodies(ApiKey.SASL_AUTHENTICATE)) == 1


def test_a_wrong_password_is_an_error_at_once_and_not_sent_again(cluster: ScriptedCluster) -> None:
    (broker,) = cluster.add(1)
    sasl(broker, "secret")
    with AdminClient(cluster.bootstrap, **SASL, sasl_plain_password="guess") as admin:
        with pytest.raises(kafka.errors.SaslAuthenticationFailedError, match="wrong password") as caught:
            admin.describe_cluster()
        assert isinstance(caught.value, NotAuthenticated)
    assert len(broker.bodies(ApiKey.SASL_AUTHENTICATE)) == 1


def test_a_mechanism_that_the_broker_does_not_have_is_an_error_at_once(cluster: ScriptedCluster) -> None:
    (broker,) = cluster.add(1)
    broker.on(ApiKey.SASL_HANDSHAKE, messages.SaslHandshakeResponse(error_code=33, mechanisms=["GSSAPI"]))
    with AdminClient(cluster.bootstrap, **SASL, sasl_plain_password="x") as admin, pytest.raises(NotAuthenticated):
        admin.describe_cluster()


def test_a_connection_is_used_again_until_its_session_ends_soon(cluster: ScriptedCluster) -> None:
    (broker,) = cluster.add(1)
    broker.on(ApiKey.SASL_HANDSHAKE, messages.SaslHandshakeResponse(mechanisms=["PLAIN"]))
    with AdminClient(cluster.bootstrap, **SASL, sasl_plain_password="x") as admin:
        for lifetime_ms, expected in ((1, 2), (3_600_000, 3), (1, 3)):
            broker.on(ApiKey.SASL_AUTHENTICATE, messages.SaslAuthenticateResponse(session_lifetime_ms=lifetime_ms))
            admin.describe_cluster()
            time.sleep(0.002)  # longer than the shortest session
            admin.describe_cluster()
            assert broker.connections == expected


def test_a_broker_without_sasl_authenticate_is_not_supported(cluster: ScriptedCluster) -> None:
    (broker,) = cluster.add(1)
    broker.versions.pop(int(ApiKey.SASL_AUTHENTICATE))
    with AdminClient(cluster.bootstrap, **SASL, sasl_plain_password="x") as admin, pytest.raises(Unsupported, match="SaslAuthenticate"):
        admin.describe_cluster()


@pytest.mark.parametrize("version", [0, 1])
def test_a_broker_of_any_release_with_sasl_is_asked_in_a_version_that_it_has(cluster: ScriptedCluster, version: int) -> None:
    (broker,) = cluster.add(1)
    sasl(broker, "secret")
    broker.versions[int(ApiKey.SASL_AUTHENTICATE)] = (0, version)
    with AdminClient(cluster.bootstrap, **SASL, sasl_plain_password="secret") as admin:
        assert admin.describe_cluster().cluster_id == "scripted"
    assert [one.version for one in broker.received if one.key is ApiKey.SASL_AUTHENTICATE] == [version]


class Tokens:
    """Gives a token, as a provider of kafka-python does."""

    def token(self) -> str:
        return "abc.def."

    def extensions(self) -> dict[str, str]:
        return {"traceId": "1"}


OAUTH: dict[str, Any] = {
    "security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": Tokens(),
}


def test_a_token_is_sent_with_its_extensions(cluster: ScriptedCluster) -> None:
    (broker,) = cluster.add(1)
    broker.on(ApiKey.SASL_HANDSHAKE, messages.SaslHandshakeResponse(mechanisms=["OAUTHBEARER"]))
    broker.on(ApiKey.SASL_AUTHENTICATE, messages.SaslAuthenticateResponse())
    with AdminClient(cluster.bootstrap, **OAUTH) as admin:
        admin.describe_cluster()
    (body,) = broker.bodies(ApiKey.SASL_AUTHENTICATE)
    assert bytes(body.auth_bytes) == b"n,,\x01auth=Bearer abc.def.\x01traceId=1\x01\x01"


def test_a_token_that_is_refused_is_an_error_with_the_text_of_the_broker(cluster: ScriptedCluster) -> None:
    (broker,) = cluster.add(1)
    response = messages.SaslAuthenticateResponse
    broker.on(ApiKey.SASL_HANDSHAKE, messages.SaslHandshakeResponse(mechanisms=["OAUTHBEARER"]))
    reason = response(auth_bytes=b'{"status":"invalid_token"}')
    broker.on(ApiKey.SASL_AUTHENTICATE, reason, response(error_code=58, error_message="expired"))
    with AdminClient(cluster.bootstrap, **OAUTH) as admin, pytest.raises(NotAuthenticated, match="expired"):
        admin.describe_cluster()
    assert [bytes(body.auth_bytes) for body in broker.bodies(ApiKey.SASL_AUTHENTICATE)][1:] == [b"\x01"]
