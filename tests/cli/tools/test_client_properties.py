"""Client properties files that Kafka's tools take."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from ssl import SSLContext

import pytest
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat, pkcs12

from klamm.cli.tools.client_properties import BadClientProperties, client_settings, warn_of_unknown
from klamm.server.local.made_security import certificate, hosts_of

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
KEY, CERTIFICATE = certificate("client", hosts_of("localhost"), datetime.now(UTC), is_authority=True)
CERTIFICATE_PEM = CERTIFICATE.public_bytes(Encoding.PEM).decode()
KEY_PEM = KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def settings_of(folder: Path, text: str) -> dict[str, object]:
    file = folder / "client.properties"
    file.write_text(text)
    return client_settings(file)


def trust_of(folder: Path, text: str) -> list[str]:
    """The names of the authorities that a client with TLS and these properties trusts."""
    context = settings_of(folder, f"security.protocol=SSL\n{text}")["ssl_context"]
    assert isinstance(context, SSLContext)
    return [each["subject"][0][0][1] for each in context.get_ca_certs()]


def in_a_line(pem: str) -> str:
    return pem.replace("\n", "\\n")


def test_blanks_at_the_end_of_a_value_and_a_protocol_in_lower_case_are_as_in_kafka(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text(CERTIFICATE_PEM)
    text = f"security.protocol=ssl \nssl.truststore.type=PEM \nssl.truststore.location={tmp_path}/ca.pem \n"
    settings = settings_of(tmp_path, text)
    assert settings["security_protocol"] == "SSL"
    assert trust_of(tmp_path, text.partition("\n")[2]) == ["client"]


@pytest.mark.parametrize("login", ['username="u" password="p w";', "username='u' password='p w';", "username=u password=\"p w\";"])
def test_a_login_may_have_either_quotes_or_none(login: str, tmp_path: Path) -> None:
    settings = settings_of(tmp_path, f"sasl.mechanism=PLAIN \nsasl.jaas.config={MODULE} {login}\n")
    assert settings == {"sasl_mechanism": "PLAIN", "sasl_plain_username": "u", "sasl_plain_password": "p w"}


def test_keys_and_certificates_may_be_in_the_text(tmp_path: Path) -> None:
    trust = f"ssl.truststore.type=PEM\nssl.truststore.certificates={in_a_line(CERTIFICATE_PEM)}\n"
    own = f"ssl.keystore.key={in_a_line(KEY_PEM)}\nssl.keystore.certificate.chain={in_a_line(CERTIFICATE_PEM)}\nssl.keystore.type=PEM\n"
    assert trust_of(tmp_path, trust + own) == ["client"]


def test_stores_of_java_are_read_as_those_of_brokers(tmp_path: Path) -> None:
    own = pkcs12.serialize_key_and_certificates(b"client", KEY, CERTIFICATE, [CERTIFICATE], BestAvailableEncryption(b"secret"))
    (tmp_path / "own.p12").write_bytes(own)
    locations = "".join(f"ssl.{store}.location={tmp_path}/own.p12\nssl.{store}.password=secret\n" for store in ("keystore", "truststore"))
    assert trust_of(tmp_path, locations) == ["client"], "the type is JKS unless it is given; the content tells the two apart"
    with pytest.raises(BadClientProperties, match=r"client.properties: .* ssl.keystore.location: ") as raised:
        trust_of(tmp_path, locations.replace("secret", "wrong"))
    assert "wrong" not in str(raised.value) and "listener" not in str(raised.value)


def test_one_line_names_the_keys_that_no_client_of_kafka_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "client.properties"
    file.write_text("security.protocl=SSL\nacks=all\nmy.own=1\n")
    warn_of_unknown(file)
    assert capsys.readouterr().err == (
        f"{file}: ignoring unknown configs: security.protocl; did you mean security.protocol?, my.own\n"
    )
    file.write_text("security.protocol=SSL\nkey.serializer=x\n")
    warn_of_unknown(file)
    assert capsys.readouterr().err == ""
