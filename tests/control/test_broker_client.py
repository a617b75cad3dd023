"""How the owner of several processes reads the events of one broker."""

from __future__ import annotations

import json
from typing import Any

import aiohttp
from aiohttp import web

from klamm.control.processes.broker_client import BrokerClient

HELD = [{"id": 1, "held": ["t" * 1000] * 1000}, {"id": 2}]


async def events(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    for each in HELD:
        await response.write(f"event: reached\ndata: {json.dumps(each)}\n\n".encode())
    return response


async def test_an_event_of_a_megabyte_does_not_end_the_events_of_its_broker() -> None:
    app = web.Application()
    app.router.add_get("/events", events)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    heard: list[Any] = []
    try:
        async with aiohttp.ClientSession() as session:
            heard = [event async for event in BrokerClient(session, f"http://{host}:{port}", "token").events()]
    finally:
        await runner.cleanup()
    assert heard == [("reached", each) for each in HELD]
