"""Section 10: client quotas and throttling. The quotas are those of client ids that nobody else has."""

from __future__ import annotations

import time
from typing import Any

from klamm.conform.case import Section, expect
from klamm.conform.connection import expect_error
from klamm.conform.lab import Lab, batch, fetch_request
from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode

SECTION = Section(10, "quotas", "Client quotas")
NONE = ErrorCode.NONE
KIP = "KIP-546"
EXACT = 0


async def _alter(lab: Lab, client_id: str, key: str, value: float | None, kind: str = "client-id", validate_only: bool = False) -> int:
    """The error code of a change; None as value removes the quota."""
    rows = messages.AlterClientQuotasRequest
    entity = [rows.EntityData(entity_type=kind, entity_name=client_id)]
    entry = rows.EntryData(entity=entity, ops=[rows.OpData(key=key, value=value or 0.0, remove=value is None)])
    if value is not None and not validate_only:
        lab.undo(rows(entries=[rows.EntryData(entity=entity, ops=[rows.OpData(key=key, value=0.0, remove=True)])]))
    response = await lab.ask_controller(rows(entries=[entry], validate_only=validate_only))
    code: int = response.entries[0].error_code
    return code


async def _quotas(lab: Lab, client_id: str) -> dict[str, float]:
    """The quotas of a client id."""
    component = messages.DescribeClientQuotasRequest.ComponentData(entity_type="client-id", match_type=EXACT, match=client_id)
    response = await lab.ask(messages.DescribeClientQuotasRequest(components=[component], strict=True))
    expect_error(response.error_code, NONE, what="DescribeClientQuotas")
    return {value.key: value.value for entry in response.entries or [] for value in entry.values}


@SECTION.must(1, "A quota that is set is described, and one that is removed is not.", KIP)
async def sets(lab: Lab) -> None:
    client_id = lab.name("client")
    expect_error(await _alter(lab, client_id, "producer_byte_rate", 1000.0), NONE)
    await lab.until(lambda: _quotas(lab, client_id), lambda quotas: quotas == {"producer_byte_rate": 1000.0})
    expect_error(await _alter(lab, client_id, "producer_byte_rate", None), NONE)
    await lab.until(lambda: _quotas(lab, client_id), lambda quotas: quotas == {})


@SECTION.must(2, "An unknown quota is INVALID_REQUEST.", KIP)
async def unknown_key(lab: Lab) -> None:
    expect_error(await _alter(lab, lab.name("client"), "no_such_quota", 1.0), ErrorCode.INVALID_REQUEST)


@SECTION.must(3, "A quota that is not positive is INVALID_REQUEST.", KIP)
async def not_positive(lab: Lab) -> None:
    expect_error(await _alter(lab, lab.name("client"), "producer_byte_rate", -1.0), ErrorCode.INVALID_REQUEST)


@SECTION.must(4, "A quota of bytes that is not whole is INVALID_REQUEST.", KIP)
async def not_whole(lab: Lab) -> None:
    expect_error(await _alter(lab, lab.name("client"), "producer_byte_rate", 10.5), ErrorCode.INVALID_REQUEST)


@SECTION.must(5, "An unknown type of entity is INVALID_REQUEST.", KIP)
async def unknown_entity(lab: Lab) -> None:
    code = await _alter(lab, lab.name("client"), "producer_byte_rate", 10.0, kind="animal")
    expect_error(code, ErrorCode.INVALID_REQUEST)


@SECTION.must(6, "With validate_only nothing changes.", KIP)
async def validate_only(lab: Lab) -> None:
    client_id = lab.name("client")
    expect_error(await _alter(lab, client_id, "producer_byte_rate", 10.0, validate_only=True), NONE)
    expect(await _quotas(lab, client_id) == {}, "the quota is set")


@SECTION.must(7, "An entity without quotas has no entry.", KIP)
async def nothing(lab: Lab) -> None:
    expect(await _quotas(lab, lab.name("client")) == {}, "there is one")


async def _limited(lab: Lab, key: str) -> str:
    client_id = lab.name("client")
    expect_error(await _alter(lab, client_id, key, 1000.0), NONE)
    await lab.until(lambda: _quotas(lab, client_id), lambda quotas: key in quotas)
    return client_id


async def _produce(lab: Lab, topic: str, client_id: str, size: int) -> Any:
    request = lab.produce_request(topic, batch("x" * size))
    return await (await lab.leader(topic)).ask(request, lab.version("Produce", 12, 3), client_id)


@SECTION.must(8, "A producer above its quota is told a throttle time.", "KIP-13, KIP-219")
async def producer(lab: Lab) -> None:
    topic, client_id = await lab.topic(), await _limited(lab, "producer_byte_rate")
    await lab.until(lambda: _produce(lab, topic, client_id, 20_000), lambda response: response.throttle_time_ms > 0)


@SECTION.must(9, "The response of a throttled request does not wait for the throttle time.", "KIP-219")
async def at_once(lab: Lab) -> None:
    topic, client_id = await lab.topic(), await _limited(lab, "producer_byte_rate")

    async def once() -> tuple[Any, float]:
        begun = time.monotonic()
        response = await _produce(lab, topic, client_id, 50_000)
        return response, time.monotonic() - begun

    response, seconds = await lab.until(once, lambda found: found[0].throttle_time_ms > 3000)
    expect(seconds * 1000 < response.throttle_time_ms / 2, f"{seconds:.1f} s of {response.throttle_time_ms} ms")


@SECTION.must(10, "A consumer above its quota is told a throttle time.", "KIP-13, KIP-219")
async def consumer(lab: Lab) -> None:
    topic, client_id = await lab.topic(), await _limited(lab, "consumer_byte_rate")
    for _ in range(3):
        expect_error((await lab.produce(topic, batch("x" * 20_000))).error_code, NONE)
    version = lab.version("Fetch", 12, 4)

    async def once() -> Any:
        return await (await lab.leader(topic)).ask(fetch_request(topic), version, client_id)

    await lab.until(once, lambda response: response.throttle_time_ms > 0)


@SECTION.must(11, "A client without a quota has throttle time 0.", "KIP-219")
async def unlimited(lab: Lab) -> None:
    response = await _produce(lab, await lab.topic(), lab.name("client"), 1000)
    expect(response.throttle_time_ms == 0, f"{response.throttle_time_ms} ms")
