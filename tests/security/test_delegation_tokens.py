"""Delegation tokens: clients of Klamm get what clients of Apache Kafka 3.9.1 got (`token_tale.recorded`), also in a cluster of both."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from klamm.tests.harness.kafka import KafkaBroker, OwnedBroker, java_command, wait_for
from klamm.tests.harness.ports import free_ports
from klamm.tests.harness.tree import Tree
from klamm.tests.security.token_tale import FILE, settings, told_by


@pytest.fixture
def tree(zookeeper: str, chroot: str) -> Iterator[Tree]:
    made = Tree(zookeeper, chroot)
    yield made
    made.close()


def recorded() -> list[str]:
    return FILE.read_text(encoding="utf-8").splitlines()


def test_clients_get_of_tokens_what_kafka_gave_them(tree: Tree, tmp_path: Path) -> None:
    assert told_by(OwnedBroker, tree, tmp_path).splitlines() == recorded()


@pytest.mark.slow
@pytest.mark.reference
@pytest.mark.parametrize("klamm", [(), (1,), (0, 2)], ids=["kafka", "kafka, klamm, kafka", "klamm, kafka, klamm"])
def test_brokers_of_kafka_and_of_both_kinds_do_what_was_recorded(
    klamm: tuple[int, ...], tree: Tree, tmp_path: Path, kafka_jars: Path
) -> None:
    def broker(tree: Tree, folder: Path, broker_id: int, **properties: Any) -> OwnedBroker:
        if broker_id in klamm:
            return OwnedBroker(tree, folder, broker_id, **properties)
        return KafkaBroker(kafka_jars, tree, folder, broker_id, **properties)

    assert told_by(broker, tree, tmp_path).splitlines() == recorded()


_TOOL = "org.apache.kafka.tools.DelegationTokenCommand"
_LOGIN = """security.protocol=SASL_PLAINTEXT
sasl.mechanism={}
sasl.jaas.config={} required username="{}" password="{}"{};
"""
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


@pytest.mark.slow
@pytest.mark.reference
def test_the_tool_prints_of_klamm_what_it_prints_of_kafka(tree: Tree, tmp_path: Path, kafka_jars: Path) -> None:
    """A token that is created at a broker of one kind is described, renewed and ended at the other, and is a password at both."""
    ports = [free_ports(2) for _ in range(2)]
    brokers = KafkaBroker(kafka_jars, tree, tmp_path, 0, **_settings(ports[0])), OwnedBroker(tree, tmp_path, 1, **_settings(ports[1]))
    alice = tmp_path / "alice.properties"
    alice.write_text(_LOGIN.format("PLAIN", _PLAIN, "alice", "alice-secret", ""))

    def tool(at: int, *arguments: str, login: Path = alice) -> str:
        address = ["--bootstrap-server", f"127.0.0.1:{ports[at][1]}", "--command-config", str(login)]
        ran = subprocess.run(java_command(kafka_jars, _TOOL, *address, *arguments), capture_output=True, text=True, timeout=120)
        return ran.stdout + "".join(line for line in ran.stderr.splitlines(keepends=True) if not line.startswith(("log4j", "\tat")))

    def until(at: int, text: str) -> str:
        shown: list[str] = []

        def look() -> bool:
            shown.append(tool(at, "--describe", "--owner-principal", "User:alice"))
            assert text in shown[-1], shown[-1]
            return True

        wait_for(look, f"broker {at} knows of {text}")
        return shown[-1]

    printed = []
    try:
        for broker in brokers:
            broker.start()
        for at, other in ((0, 1), (1, 0)):
            created = tool(at, "--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob")
            token_id, secret = _row(created)[:2]
            described = until(other, token_id)
            renewed = tool(other, "--renew", "--hmac", secret, "--renew-time-period", "-1")
            login = tmp_path / "token.properties"
            login.write_text(_LOGIN.format("SCRAM-SHA-512", _SCRAM, token_id, secret, " tokenauth=true"))
            refused = tool(other, "--create", "--max-life-time-period", "-1", login=login)
            ended = tool(other, "--expire", "--hmac", secret, "--expiry-time-period", "-1")
            texts = [created, described, renewed, refused, ended]
            printed.append([_masked(text.replace(token_id, "<id>").replace(secret, "<hmac>")) for text in texts])
    finally:
        for broker in brokers:
            broker.kill()
    assert printed[0] == printed[1]
    assert "User:alice" in printed[0][0] and "Delegation Token requests are not allowed" in printed[0][3]


def _settings(ports: list[int]) -> dict[str, Any]:
    return settings(ports)


def _row(text: str) -> list[str]:
    """The fields of the only token that a command shows."""
    return text.strip().splitlines()[-1].split()


def _masked(text: str) -> str:
    return re.sub(r"\d\d\d\d-\d\d-\d\dT\d\d:\d\d", "<time>", re.sub(r"\w{3} \w{3} \d\d [\d:]+ \w+ \d{4}", "<date>", text))
