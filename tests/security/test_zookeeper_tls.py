"""Brokers whose connection to ZooKeeper has TLS, with a real ZooKeeper that has a secure port and no other."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from klamm.configs.definitions.types import ConfigError
from klamm.protocol import messages
from klamm.server.lifecycle.start_failure import StartFailed
from klamm.server.local.made_security import certificate, hosts_of
from klamm.tests.harness.kafka import java_command
from klamm.tests.harness.ports import free_port
from klamm.tests.server import brokers
from klamm.zk.embedded.owned_process import OwnedProcess

NETTY = "org.apache.zookeeper.ClientCnxnSocketNetty"
_SERVER = """dataDir={folder}/data
tickTime=500
secureClientPort={port}
secureClientPortAddress=127.0.0.1
serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory
ssl.keyStore.location={folder}/server.pem
ssl.trustStore.location={folder}/ca.pem
ssl.clientAuth=need
ssl.protocol=TLSv1.3
ssl.enabledProtocols=TLSv1.3,TLSv1.2
ssl.ciphersuites=TLS_AES_256_GCM_SHA384,TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384
admin.enableServer=false
"""


class Stores:
    """The files of an authority, a server, a client and a stranger."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        now = datetime.fromtimestamp(int(time.time()), UTC)
        self._authority = certificate("authority", (), now, is_authority=True)
        self._write("ca", None, self._authority[1])
        for name, hosts in {"server": hosts_of("127.0.0.1"), "client": ()}.items():
            self._write(name, *certificate(name, hosts, now, issuer=self._authority))
        stranger = certificate("stranger", (), now, is_authority=True)
        self._write("stranger", *stranger)

    def _write(self, name: str, key: Any, own: Any) -> None:
        secret = b"" if key is None else key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        (self.folder / f"{name}.pem").write_bytes(secret + own.public_bytes(Encoding.PEM))

    def properties(self, own: str = "client", trusted: str = "ca", **more: Any) -> dict[str, Any]:
        given = {
            "zookeeper.ssl.client.enable": "true",
            "zookeeper.clientCnxnSocket": NETTY,
            "zookeeper.ssl.keystore.location": self.folder / f"{own}.pem",
            "zookeeper.ssl.truststore.location": self.folder / f"{trusted}.pem",
            "zookeeper.connection.timeout.ms": 5000,
        }
        return {name.replace(".", "_"): value for name, value in (given | more).items() if value is not None}


@pytest.fixture(scope="module")
def secured(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Stores]]:
    """The address of a ZooKeeper with a secure port alone, and the stores that fit."""
    folder, port = tmp_path_factory.mktemp("zookeeper"), free_port()
    stores = Stores(folder)
    config = folder / "zoo.cfg"
    config.write_text(_SERVER.format(folder=folder, port=port))
    server = OwnedProcess(java_command(kafka_jars, "org.apache.zookeeper.server.ZooKeeperServerMain", str(config)), folder / "out")
    try:
        yield f"127.0.0.1:{port}", stores
    finally:
        server.stop()


@pytest.mark.slow
@pytest.mark.reference
@pytest.mark.parametrize("protocol", [None, "TLSv1.3"])
async def test_a_broker_serves_over_a_zookeeper_that_speaks_tls_alone(secured: tuple[str, Stores], protocol: str | None) -> None:
    address, stores = secured
    more: dict[str, Any] = {"zookeeper.ssl.protocol": protocol, "zookeeper.connection.timeout.ms": 30_000}
    settings = stores.properties(**more)
    broker = brokers.node(f"{address}/{protocol}", 0, **settings)
    await broker.start()
    try:
        await brokers.knows(broker, 0)
        kind = messages.CreateTopicsRequest
        topics = [kind.CreatableTopic(name=f"t{number}", num_partitions=3, replication_factor=1) for number in range(50)]
        response = await brokers.request(broker, 19, 7, kind(topics=topics, timeout_ms=20_000))
        assert {row.error_code for row in response.topics} == {0}
    finally:
        await broker.stop()


@pytest.mark.slow
@pytest.mark.reference
@pytest.mark.parametrize(
    "wrong",
    [{"trusted": "stranger"}, {"own": "stranger"}, {"zookeeper.ssl.client.enable": "false"}],
    ids=["a server that is not trusted", "a client that is not trusted", "without TLS"],
)
async def test_a_broker_does_not_start_where_tls_to_zookeeper_fails(secured: tuple[str, Stores], wrong: dict[str, Any]) -> None:
    address, stores = secured
    broker = brokers.node(f"{address}/wrong", 0, **stores.properties(**wrong))
    with pytest.raises(StartFailed, match="ZooKeeper"):
        await broker.start()


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("zookeeper.clientCnxnSocket", None, "has no TLS without it"),
        ("zookeeper.ssl.crl.enable", "true", "revoked"),
        ("zookeeper.ssl.truststore.location", "/no/such.pem", "cannot be read"),
        ("zookeeper.ssl.truststore.location", "/no/such", "type of the store"),
        ("zookeeper.ssl.enabled.protocols", "SSLv3", "supported"),
    ],
)
def test_configs_of_tls_to_zookeeper_that_are_wrong_stop_the_start(tmp_path: Path, name: str, value: str | None, said: str) -> None:
    changed: dict[str, Any] = {name: value}
    with pytest.raises(ConfigError, match=said):
        brokers.node("localhost:1", 0, **Stores(tmp_path).properties(**changed))
