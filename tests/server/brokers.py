"""Brokers inside the test's own event loop, on a real ZooKeeper."""

from __future__ import annotations

import asyncio
from typing import Any

from kazoo.client import KazooClient

from klamm.configs.broker_config import BrokerConfig
from klamm.server.broker_server import BrokerServer
from klamm.server.net.outgoing_connections import request_once
from klamm.server.security.authorizer import Authorizer
from klamm.tests.harness import requests
from klamm.tests.harness.waits import eventually
from klamm.zk.session.kazoo_connection import KazooConnection


def node(zookeeper: str, broker_id: int, patient: bool = False, authorizer: Authorizer | None = None, **properties: object) -> BrokerServer:
    """A broker that is not started. Property names have underscores for dots."""
    settings = {
        "broker.id": str(broker_id),
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "zookeeper.connect": zookeeper,
        "zookeeper.session.timeout.ms": "6000",
        "zookeeper.connection.timeout.ms": "10000",
        "auto.leader.rebalance.enable": "false",
        "controlled.shutdown.retry.backoff.ms": "20",
    }
    settings.update({name.replace("_", "."): str(value) for name, value in properties.items()})
    return BrokerServer(BrokerConfig(settings), patient=patient, authorizer=authorizer)


async def request(broker: BrokerServer, api_key: int, version: int, message: Any) -> Any:
    endpoint = broker.advertised[0]
    return await request_once(endpoint.host, endpoint.port, api_key, version, "test", message, 30)


async def knows(broker: BrokerServer, *ids: int) -> None:
    """Wait until this broker's metadata cache has a controller and exactly these brokers."""

    def look() -> bool:
        return broker.metadata.controller_id in ids and set(broker.metadata.brokers) == set(ids)

    await eventually(look, f"broker {broker.id} knows brokers {ids}")


async def create_topic(controller: BrokerServer, name: str, assignments: dict[int, list[int]]) -> None:
    assert list(assignments) == list(range(len(assignments)))
    response = await request(controller, 19, 7, requests.create_topic(name, list(assignments.values()), timeout_ms=30_000))
    assert [row.error_code for row in response.topics] == [0]


async def expire(broker: BrokerServer) -> None:
    """End a broker's ZooKeeper session, as the server would after its time-out."""
    connection = broker.zk._connection
    assert isinstance(connection, KazooConnection)
    client_id = connection._client.client_id

    def close_session() -> None:
        servers = broker.config.get("zookeeper.connect").partition("/")[0]
        twin = KazooClient(servers, client_id=client_id, timeout=6)
        twin.start()
        twin.stop()
        twin.close()

    await asyncio.to_thread(close_session)
