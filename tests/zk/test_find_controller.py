"""The active controller as ZooKeeper knows it, and the racks of brokers that register with it (RREG-9, RREG-14)."""

from __future__ import annotations

from typing import Any

import pytest

from klamm.controller.values import BrokerRegistration, BrokerState
from klamm.protocol.nouns import Endpoint
from klamm.tests.zk.labs import RealLab
from klamm.zk.admin import AdminZk
from klamm.zk.find_controller import ElectedController, find_controller
from klamm.zk.store.registrations import encode_registration


def controller(broker_id: Any) -> dict[str, Any]:
    return {"version": 2, "brokerid": broker_id, "timestamp": "1700000000000", "kraftControllerEpoch": -1}


def ephemeral(port: int, rack: str | None = None) -> dict[str, Any]:
    """Data of the ephemeral znode of a broker."""
    data = {"version": 4, "host": "h", "port": port, "jmx_port": -1, "timestamp": "0", "endpoints": [f"PLAINTEXT://h:{port}"]}
    data["listener_security_protocol_map"] = {"PLAINTEXT": "PLAINTEXT"}
    return data if rack is None else data | {"rack": rack}


def registered(broker_id: int, port: int, state: BrokerState = BrokerState.ONLINE, rack: str | None = None) -> bytes:
    return encode_registration(BrokerRegistration(broker_id, 1, state, (Endpoint("PLAINTEXT", "h", port, 0),), rack))


def at(broker_id: int, port: int) -> ElectedController:
    return ElectedController(broker_id, (Endpoint("PLAINTEXT", "h", port, 0),))


@pytest.mark.requirement("RREG-9")
async def test_controller_is_found_by_its_registration_and_its_ephemeral_znode_wins(real: RealLab) -> None:
    session = (await real.seat()).session
    assert await find_controller(session) is None
    await real.put("/controller", controller(3))
    assert await find_controller(session) == ElectedController(3, ())
    await real.put("/cluster/brokers/3", registered(3, 9000, BrokerState.FENCED))
    assert await find_controller(session) == at(3, 9000)
    await real.put("/brokers/ids/3", ephemeral(9001))
    assert await find_controller(session) == at(3, 9001)


@pytest.mark.requirement("RREG-9")
@pytest.mark.parametrize("data", [b"nonsense", b"{}", b'{"settings": 1}'])
async def test_registration_of_the_controller_that_cannot_be_read_has_no_endpoints(real: RealLab, data: bytes) -> None:
    session = (await real.seat()).session
    await real.put("/controller", controller(3))
    await real.put("/cluster/brokers/3", data)
    assert await find_controller(session) == ElectedController(3, ())


@pytest.mark.parametrize("data", [b"nonsense", b"{}", b'{"brokerid": "x"}'])
async def test_controller_znode_that_cannot_be_read_names_none(real: RealLab, data: bytes) -> None:
    await real.put("/controller", data)
    assert await find_controller((await real.seat()).session) is None


@pytest.mark.requirement("RREG-19")
async def test_racks_are_those_of_ephemeral_znodes_and_of_registered_brokers_that_are_online(real: RealLab) -> None:
    session = (await real.seat()).session
    await real.put("/brokers/ids/1", ephemeral(9001, "a"))
    for broker_id, state in enumerate(BrokerState, 10):
        await real.put(f"/cluster/brokers/{broker_id}", registered(broker_id, 9100, state, "b"))
    await real.put("/cluster/brokers/1", registered(1, 9001, BrokerState.ONLINE, "c"))
    assert await AdminZk(session, reads_registrations=True).broker_racks() == {1: "a", 12: "b", 13: "b"}
    assert await AdminZk(session).broker_racks() == {1: "a"}
