"""Brokers register with the controller: what is refused, what is stored, what the other brokers hear of it (controller 25)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from klamm.controller.brokers.register_broker import LONGEST_REGISTRATION, why_invalid
from klamm.controller.values import BrokerRegistration, BrokerState, BrokerToRegister
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.nouns import Endpoint
from klamm.tests.controller.stage import OneConnection, Stage, events

PLAIN = Endpoint("PLAINTEXT", "h9", 9092, 0)


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    one = Stage(registerbroker_enable=True)
    yield one
    await one.close()


@pytest.mark.requirement("RREG-3")
@pytest.mark.parametrize(
    "fields",
    [
        {"id": -1},
        {"endpoints": ()},
        {"endpoints": (PLAIN, PLAIN._replace(port=1))},
        {"endpoints": (PLAIN, PLAIN._replace(listener="plaintext"))},
        {"endpoints": (PLAIN._replace(listener=""),)},
        {"endpoints": (PLAIN._replace(listener="A B"),)},
        {"endpoints": (PLAIN._replace(host=""),)},
        {"endpoints": (PLAIN._replace(host="a b"),)},
        {"endpoints": (PLAIN._replace(host="http://h"),)},
        {"endpoints": (PLAIN._replace(port=0),)},
        {"endpoints": (PLAIN._replace(port=-1),)},
        {"endpoints": (PLAIN._replace(port=65536),)},
        {"endpoints": (PLAIN._replace(security_protocol=4),)},
        {"endpoints": (PLAIN._replace(security_protocol=-1),)},
        {"endpoints": (PLAIN._replace(listener="OTHER"),)},
        {"secret": bytes(1025)},
        {"rack": ""},
        {"rack": "a\0b"},
        {"rack": "a\n"},
        {"rack": "a\x7f"},
        {"rack": "a\x85b"},
        {"rack": "r" * LONGEST_REGISTRATION},
        {"rack": "\u4eba" * (2**15 // 3)},
        {"endpoints": (PLAIN._replace(listener="\u0149" * (2**14 - 10)),)},
    ],
    ids=lambda fields: str(fields)[:80],
)
def test_a_registration_with_a_bad_field_is_invalid(fields: dict[str, Any]) -> None:
    assert why_invalid(BrokerToRegister(9, (PLAIN,))._replace(**fields), "PLAINTEXT") is not None


@pytest.mark.requirement("RREG-3")
def test_a_registration_with_every_allowed_form_is_valid() -> None:
    addresses = [("::1", 1), ("10.0.0.1", 65535), ("a-b.c", 9), ("h", 9)]
    endpoints = [Endpoint(f"L-{number}", host, port, number) for number, (host, port) in enumerate(addresses)]
    assert why_invalid(BrokerToRegister(0, tuple(endpoints), "a rack, \u4eba"), "L-2") is None


def states(stage: Stage) -> dict[int, str]:
    """States as ZooKeeper has them."""
    return {b: registration.state.name for b, registration in stage.world.registrations.items()}


@pytest.mark.requirement("RREG-3")
async def test_a_refusal_is_logged_once_for_each_reason_and_not_for_each_try(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    await stage.open(1)
    for rack in ("", "", "a\0b", "a\0b", "r", ""):
        if rack == "r":
            await stage.register(9, rack=rack)
        else:
            assert await refused(stage, 9, rack=rack) is ErrorCode.INVALID_REQUEST
    lines = [record.getMessage() for record in caplog.records if "is refused" in record.getMessage()]
    begin = "the registration of broker 9 from 127.0.0.1 is refused: INVALID_REQUEST, "
    end = " is no rack: it is empty, or has control characters"
    assert lines == [f"{begin}{rack!r}{end}" for rack in ("", "a\0b", "")]


async def refused(stage: Stage, broker_id: int, connection: Any = None, **fields: Any) -> ErrorCode:
    with pytest.raises(ApiError) as error:
        await stage.register(broker_id, connection, **fields)
    return error.value.code


@pytest.mark.requirement("RREG-4", "RREG-17")
async def test_a_registration_is_stored_as_fenced_before_its_answer_and_each_one_raises_the_epoch(stage: Stage) -> None:
    await stage.open(1)
    connection = OneConnection()
    endpoints = Endpoint("plaintext", "k0", 9033, 0), Endpoint("EXTERNAL", "b0", 9092, 3)
    stored = await stage.register(9, connection, endpoints=endpoints, rack="0")
    assert (stored.epoch, stored.state) == (1, BrokerState.FENCED)
    node = stage.world.zk.nodes["/cluster/brokers/9"].data
    assert node is not None
    assert json.loads(node) == {
        "version": 1, "epoch": 1, "state": "FENCED",
        "settings": {
            "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT", "EXTERNAL": "SASL_SSL"},
            "endpoints": ["PLAINTEXT://k0:9033", "EXTERNAL://b0:9092"], "rack": "0", "jmx_port": -1,
        },
    }
    assert (await stage.register(9, connection)).epoch == 2
    assert stage.world.registrations[9] == BrokerRegistration(9, 2, BrokerState.FENCED, (PLAIN,))


@pytest.mark.requirement("RREG-4", "RREG-16")
async def test_of_two_registrations_that_wait_together_the_one_that_came_last_counts(stage: Stage) -> None:
    """As after a quick reconnect with another address."""
    await stage.open(1)
    connection = OneConnection()
    hosts = ("old", "new")
    first, last = await asyncio.gather(
        *(stage.register(9, connection, endpoints=(PLAIN._replace(host=host),)) for host in hosts)
    )
    assert (first.epoch, last.epoch) == (1, 2)
    assert stage.world.registrations[9].endpoints == (PLAIN._replace(host="new"),)
    assert stage.cluster.fenced[9].endpoints == (PLAIN._replace(host="new"),)


@pytest.mark.requirement("RREG-3")
async def test_what_is_refused_leaves_nothing_behind(stage: Stage) -> None:
    await stage.open(1)
    assert await refused(stage, 9, endpoints=()) is ErrorCode.INVALID_REQUEST
    assert await refused(stage, 1) is ErrorCode.DUPLICATE_BROKER_REGISTRATION, "it is in /brokers/ids"
    assert dict(stage.world.registrations) == {} == dict(stage.cluster.registrations)


@pytest.mark.requirement("RREG-3")
async def test_an_id_is_taken_while_its_session_lives_on_another_open_connection(stage: Stage) -> None:
    await stage.open(1)
    connection = OneConnection()
    await stage.register(9, connection)
    assert await refused(stage, 9) is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    connection.is_open = False
    assert (await stage.register(9)).epoch == 2


@pytest.mark.requirement("RREG-6", "RREG-8")
async def test_a_fenced_broker_hears_of_all_partitions_and_is_told_to_nobody(stage: Stage) -> None:
    await stage.open(1, 2)
    await stage.create("t", (9, 1), (1, 2))
    mark = stage.mark()
    await stage.register(9)
    assert stage.frames(mark) == ["UMR 9: t-0 1 e0 [1] v0 off[9] t-1 1 e0 [1, 2] v0"]
    await stage.put(events.BrokerCaughtUp(9, 7))
    assert states(stage) == {9: "FENCED"}, "another epoch"
    await stage.put(events.BrokerCaughtUp(9, 1))
    assert states(stage) == {9: "ONLINE"}
    assert "LISR 9: t-0 1 e0 [1] v0" in stage.frames(mark)
    assert set(stage.cluster.brokers) == {1, 2, 9} and not stage.cluster.fenced
