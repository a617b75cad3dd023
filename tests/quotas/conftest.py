"""Fixtures for client quotas: one broker, of Klamm or of Apache Kafka. The same tests run on both; those on Kafka are slow ones."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from klamm.tests.harness.kafka import KafkaBroker, OwnedBroker, all_know
from klamm.tests.harness.names import unique_name
from klamm.tests.harness.ports import free_ports
from klamm.tests.harness.tree import Tree
from klamm.tests.reference.jars import NoJars, jars
from klamm.zk.admin import AdminZk
from klamm.zk.session.session import ZkSession

KLAMM, KAFKA = "klamm", "kafka"


USERS = tuple(f"user {number} of*" for number in range(12))


def _properties() -> dict[str, Any]:
    """A listener without authentication, and one for users of PLAIN."""
    plain, sasl = free_ports(2)
    users = " ".join(f'"user_{user}"="{user}-secret"' for user in USERS)
    return {
        "listeners": f"PLAINTEXT://127.0.0.1:{plain},SASL://127.0.0.1:{sasl}",
        "listener_security_protocol_map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT",
        "sasl_enabled_mechanisms": "PLAIN",
        "listener_name_sasl_plain_sasl_jaas_config": f"org.apache.kafka.common.security.plain.PlainLoginModule required {users};",
    }


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "broker" in metafunc.fixturenames:
        kinds = [KLAMM, pytest.param(KAFKA, marks=(pytest.mark.slow, pytest.mark.reference))]
        metafunc.parametrize("broker", kinds, indirect=True, scope="session")


@pytest.fixture(scope="session")
def broker(request: pytest.FixtureRequest, zookeeper: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnedBroker]:
    """Broker 0 of a cluster of its own, running."""
    tree, folder = Tree(zookeeper, f"/{unique_name('quotas')}"), tmp_path_factory.mktemp("quotas")
    properties = _properties()
    try:
        made = OwnedBroker(tree, folder, 0, **properties) if request.param == KLAMM else KafkaBroker(jars(), tree, folder, 0, **properties)
    except NoJars as problem:
        pytest.fail(str(problem), pytrace=False)
    try:
        made.start()
        yield made
    finally:
        made.kill()
        tree.close()


@pytest.fixture
def pair(zookeeper: str, chroot: str, tmp_path: Path) -> Iterator[tuple[OwnedBroker, OwnedBroker]]:
    """A broker of Klamm and one of Apache Kafka, in one cluster."""
    tree = Tree(zookeeper, chroot)
    brokers = OwnedBroker(tree, tmp_path, 0), KafkaBroker(jars(), tree, tmp_path, 1)
    try:
        for one in brokers:
            one.start()
        all_know(brokers)
        yield brokers
    finally:
        for one in brokers:
            one.kill()
        tree.close()


@pytest.fixture
async def zk_session(zookeeper: str, chroot: str) -> AsyncIterator[ZkSession]:
    """A session on a tree with the paths that brokers make, without a controller."""
    session = ZkSession(zookeeper + chroot, 10_000)
    await session.start(10_000)
    await AdminZk(session).ensure_paths()
    yield session
    await session.stop()
