"""Client properties files that Kafka's tools take."""

from __future__ import annotations

from pathlib import Path

import pytest

from klamm.cli.tools.client_properties import client_settings

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"


def test_blanks_at_the_end_of_a_value_and_a_protocol_in_lower_case_are_as_in_kafka(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=ssl \nssl.truststore.type=PEM \nssl.truststore.location=/ca.pem \n")
    assert client_settings(file) == {"security_protocol": "SSL", "ssl_cafile": "/ca.pem"}


@pytest.mark.parametrize("login", ['username="u" password="p w";', "username='u' password='p w';", "username=u password=\"p w\";"])
def test_a_login_may_have_either_quotes_or_none(login: str, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(f"sasl.mechanism=PLAIN \nsasl.jaas.config={MODULE} {login}\n")
    assert client_settings(file) == {"sasl_mechanism": "PLAIN", "sasl_plain_username": "u", "sasl_plain_password": "p w"}
