"""What becomes of a request that a fault hits while its connection goes."""

from __future__ import annotations

import asyncio
import dataclasses

from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.server.faults.fault import BrokerFaults, Effect, Faults, Hit, RequestFilter
from klamm.server.local.driven_clock import DrivenClock
from klamm.server.requests.context import ClosedOnPurpose
from klamm.server.requests.dispatch import no_refusal
from klamm.server.requests.fault_handlers import Real, handle_faulty
from klamm.tests.harness.waits import eventually
from klamm.tests.services import make_context, make_services


async def test_a_request_that_is_to_be_dropped_ends_if_its_connection_was_lost_during_the_delay() -> None:
    faults = Faults()
    faults.add(RequestFilter(), Effect(delay_ms=1, is_dropped=True))
    ctx = make_context(make_services(), ApiKey.METADATA, 9)
    real = Real(lambda ctx, request: None, no_refusal, lambda ctx, number, response: None)
    request = asyncio.ensure_future(handle_faulty(BrokerFaults(faults, 1), real, ctx, messages.MetadataRequest()))
    await asyncio.sleep(0)  # the delay has begun
    ctx.peer.is_open = False
    await eventually(request.done, "the request has ended", 5)
    assert isinstance(request.exception(), ClosedOnPurpose)


async def test_a_request_that_two_delays_hit_waits_for_both_one_after_the_other() -> None:
    clock, faults = DrivenClock(), Faults()
    faults.add(RequestFilter(), Effect(delay_ms=1000))
    faults.add(RequestFilter(), Effect(delay_ms=2000))
    faults.add(RequestFilter(), Effect(delay_ms=4000, after_work=True))
    ctx = make_context(dataclasses.replace(make_services(), clock=clock), ApiKey.METADATA, 9)
    worked: list[float] = []
    real = Real(lambda ctx, request: worked.append(clock.monotonic()), no_refusal, lambda ctx, number, response: None)
    began = clock.monotonic()
    request = asyncio.ensure_future(handle_faulty(BrokerFaults(faults, 1), real, ctx, messages.MetadataRequest()))

    async def settle() -> None:
        for _ in range(5):
            await asyncio.sleep(0)

    await settle()
    for seconds, has_worked, is_done in ((2.9, False, False), (0.2, True, False), (3.8, True, False), (0.2, True, True)):
        await clock.advance(seconds, settle)
        await settle()
        assert (bool(worked), request.done()) == (has_worked, is_done), f"{clock.monotonic() - began} s after the request"


async def test_who_waits_for_hits_of_a_fault_waits_for_that_many_or_for_its_removal() -> None:
    faults = Faults()
    fault = faults.add(RequestFilter(), Effect(delay_ms=1))
    hit = Hit(0, 1, "c", "Metadata", 9, 1)
    waits = [asyncio.ensure_future(fault.reached(count)) for count in (1, 2, 3)]
    seen = []
    for step in (lambda: None, lambda: fault.takes(hit), lambda: fault.takes(hit), lambda: faults.remove(fault.number)):
        step()
        for _ in range(5):
            await asyncio.sleep(0)
        seen.append([wait.done() for wait in waits])
    assert seen == [[False] * 3, [True, False, False], [True, True, False], [True] * 3]
    await fault.reached(9)
