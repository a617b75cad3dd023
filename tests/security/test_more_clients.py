"""kafkajs and the clients of Java over every mechanism, with and without TLS. `test_secured_cluster.py` has the clients of Python."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from klamm.server.local.arguments import SeedTopic
from klamm.server.local.cluster import LocalCluster
from klamm.server.local.made_security import make_security
from klamm.tests.harness.kafka import java_command
from klamm.tests.security import signed_tokens
from klamm.tests.security.exchanges import unsecured

COUNT = 20
VALUES = [str(number) for number in range(COUNT)]
SMALL = {"offsets.topic.replication.factor": "1", "offsets.topic.num.partitions": "1", "group.initial.rebalance.delay.ms": "0"}
OAUTH_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
WAYS = [
    (True, None), (True, "PLAIN"), (False, "PLAIN"), (True, "SCRAM-SHA-256"), (False, "SCRAM-SHA-256"), (True, "SCRAM-SHA-512"),
    (False, "SCRAM-SHA-512"),
]


def kafkajs(settings: dict[str, Any]) -> list[str]:
    """The values that kafkajs reads after it has produced them."""
    script, modules = Path(__file__).with_name("kafkajs_secured.mjs"), Path(sys.prefix) / "node"
    command = ["node", str(script), str(modules), json.dumps(settings)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    values: list[str] = json.loads(done.stdout)
    return values


def java(jars: Path, servers: str, topic: str, properties: Path) -> list[str]:
    """The values that the console consumer reads after the console producer has produced them."""
    common = ["--bootstrap-server", servers, "--topic", topic]
    producer = [*common, "--producer.config", str(properties)]
    command = java_command(jars, "kafka.tools.ConsoleProducer", *producer)
    subprocess.run(command, input="\n".join(VALUES) + "\n", capture_output=True, text=True, timeout=120, check=True)
    consumer = [*common, "--consumer.config", str(properties), "--partition", "0", "--offset", "0", "--max-messages", str(COUNT)]
    command = java_command(jars, "org.apache.kafka.tools.consumer.ConsoleConsumer", *consumer, "--timeout-ms", "60000")
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout.split()


async def _secured(zookeeper: str, folder: Path, tls: bool, mechanism: str | None) -> tuple[LocalCluster, dict[str, str]]:
    made = make_security(folder / "security", "127.0.0.1", tls=tls, mechanism=mechanism, now_ms=time.time_ns() // 1_000_000)
    cluster = LocalCluster(1, zookeeper=zookeeper, config=made.config | SMALL, topics=[SeedTopic("t", 1, 1)], users=made.users)
    await cluster.start()
    return cluster, made.client


@pytest.mark.slow
@pytest.mark.parametrize(("tls", "mechanism"), WAYS)
async def test_kafkajs_produces_and_reads(zookeeper: str, chroot: str, tmp_path: Path, tls: bool, mechanism: str | None) -> None:
    cluster, client = await _secured(zookeeper + chroot, tmp_path, tls, mechanism)
    try:
        settings = {
            "servers": cluster.bootstrap_servers, "topic": "t", "count": COUNT, "ca": client.get("ssl.ca.location"),
            "mechanism": mechanism, "username": client.get("sasl.username"), "password": client.get("sasl.password"),
        }
        assert await asyncio.to_thread(kafkajs, settings) == VALUES
    finally:
        await cluster.stop()


@pytest.mark.slow
@pytest.mark.reference
@pytest.mark.parametrize(("tls", "mechanism"), WAYS)
async def test_clients_of_java_produce_and_read(
    zookeeper: str, chroot: str, tmp_path: Path, kafka_jars: Path, tls: bool, mechanism: str | None
) -> None:
    cluster, _ = await _secured(zookeeper + chroot, tmp_path, tls, mechanism)
    try:
        properties = tmp_path / "security/client.properties"
        assert await asyncio.to_thread(java, kafka_jars, cluster.bootstrap_servers, "t", properties) == VALUES
    finally:
        await cluster.stop()


@asynccontextmanager
async def _with_tokens(zookeeper: str, folder: Path, signed: bool) -> AsyncIterator[tuple[str, str]]:
    """Address of a listener with OAUTHBEARER, and a token that it accepts."""
    config = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.sasl.oauthbearer.sasl.jaas.config": signed_tokens.MODULE,
    }
    if signed:
        keys = folder / "keys.json"
        keys.write_text(signed_tokens.key_set())
        config["listener.name.sasl.oauthbearer.sasl.server.callback.handler.class"] = signed_tokens.HANDLER
        config["sasl.oauthbearer.jwks.endpoint.url"] = f"file://{keys}"
    cluster = LocalCluster(1, zookeeper=zookeeper, config=config | SMALL, topics=[SeedTopic("t", 1, 1)])
    await cluster.start()
    try:
        port = next(listener.port for broker in cluster.brokers for listener in broker.listeners if listener.name == "SASL")
        yield f"127.0.0.1:{port}", signed_tokens.token(aud=None) if signed else unsecured()
    finally:
        await cluster.stop()


@pytest.mark.slow
@pytest.mark.parametrize("signed", [False, True], ids=["unsecured", "signed"])
async def test_kafkajs_authenticates_with_a_token(zookeeper: str, chroot: str, tmp_path: Path, signed: bool) -> None:
    async with _with_tokens(zookeeper + chroot, tmp_path, signed) as (servers, token):
        assert await asyncio.to_thread(kafkajs, {"servers": servers, "topic": "t", "count": COUNT, "token": token}) == VALUES


@pytest.mark.slow
@pytest.mark.reference
@pytest.mark.parametrize("signed", [False, True], ids=["unsecured", "signed"])
async def test_clients_of_java_authenticate_with_a_token(
    zookeeper: str, chroot: str, tmp_path: Path, kafka_jars: Path, signed: bool
) -> None:
    """Unsecured ones are made by the client itself; signed ones it reads from a file, as from a provider of tokens."""
    properties = tmp_path / "client.properties"
    lines = ["security.protocol=SASL_PLAINTEXT", "sasl.mechanism=OAUTHBEARER"]
    async with _with_tokens(zookeeper + chroot, tmp_path, signed) as (servers, token):
        if signed:
            (tmp_path / "token").write_text(token)
            handler = "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler"
            lines += [f"sasl.login.callback.handler.class={handler}", f"sasl.oauthbearer.token.endpoint.url=file://{tmp_path / 'token'}"]
        claim = "" if signed else ' unsecuredLoginStringClaim_sub="alice"'
        lines.append(f"sasl.jaas.config={OAUTH_MODULE} required{claim};")
        properties.write_text("\n".join(lines))
        assert await asyncio.to_thread(java, kafka_jars, servers, "t", properties) == VALUES
