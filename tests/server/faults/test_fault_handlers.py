"""What becomes of a request that a fault hits while its connection goes."""

from __future__ import annotations

import asyncio

from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.server.faults.fault import BrokerFaults, Effect, Faults, RequestFilter
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
