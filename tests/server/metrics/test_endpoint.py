"""The endpoint of metrics: what it serves, and that no scraper holds the broker up."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest

from klamm.server.listeners.listeners import CannotListen
from klamm.server.local.driven_clock import DrivenClock
from klamm.server.mbeans import endpoint
from klamm.server.mbeans.endpoint import MetricsEndpoint
from klamm.tests.harness.waits import eventually
from klamm.tests.services import broker_config

BODY = b"metric 1\n"


class Source:
    """Makes the text when it is released."""

    def __init__(self) -> None:
        self.accepted: list[str] = []
        self.released = asyncio.Event()
        self.released.set()
        self.error: Exception | None = None

    async def __call__(self, accept: str) -> tuple[bytes, str]:
        self.accepted.append(accept)
        await self.released.wait()
        if self.error is not None:
            raise self.error
        return BODY, "text/plain"


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.fixture
def clock() -> DrivenClock:
    return DrivenClock()


@pytest.fixture
async def served(source: Source, clock: DrivenClock) -> AsyncIterator[MetricsEndpoint]:
    one = MetricsEndpoint(broker_config(klamm_metrics_port=0), clock)
    await one.serve(source)
    yield one
    await one.close()


async def exchange(served: MetricsEndpoint, request: bytes) -> bytes:
    """What comes for these bytes until the endpoint closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(request)
    response = await reader.read()
    writer.close()
    return response


def get(target: str = "/metrics", method: str = "GET", headers: str = "") -> bytes:
    return f"{method} {target} HTTP/1.1\r\nHost: x\r\n{headers}\r\n".encode()


async def test_a_get_is_answered_with_the_text(served: MetricsEndpoint, source: Source) -> None:
    head, _, body = (await exchange(served, get(headers="Accept: text/plain;version=0.0.4\r\n"))).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"Content-Length: 9" in head
    assert body == BODY
    assert source.accepted == ["text/plain;version=0.0.4"]


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (get("/"), b"404"),
        (get("/metrics?x=1"), b"200"),
        (get(method="POST"), b"405"),
        (get(method="HEAD"), b"200"),
        (b"\x00\x00\x00\x10\r\n\r\n", b"400"),
        (b"GET /metrics\r\n\r\n", b"400"),
        (b"x" * (endpoint.HEAD_BYTES + 10), b"400"),
        (b"GET /metrics HTTP/1.1\r\n" + b"A: b\r\n" * endpoint.HEAD_BYTES + b"\r\n", b"400"),
    ],
)
async def test_each_request_gets_its_status(served: MetricsEndpoint, request_bytes: bytes, status: bytes) -> None:
    try:
        response = await exchange(served, request_bytes)
    except ConnectionResetError:  # the rest of a head that is too long is not read
        response = b""
    assert response.split(b" ")[1:2] in ([status], [])
    assert (await exchange(served, get())).endswith(BODY)


async def test_a_head_request_gets_no_body(served: MetricsEndpoint) -> None:
    assert (await exchange(served, get(method="HEAD"))).endswith(b"\r\n\r\n")


async def test_a_scraper_that_sends_nothing_is_cut_off(served: MetricsEndpoint, clock: DrivenClock) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(b"GET /met")
    await eventually(lambda: len(served.connections) == 1, "the connection is served")
    await clock.advance(endpoint.EXCHANGE_S)
    with pytest.raises(ConnectionResetError):
        assert await reader.read() != b""
        raise ConnectionResetError
    writer.close()


async def test_connections_beyond_the_limit_are_closed_and_others_served_again_later(served: MetricsEndpoint) -> None:
    idle = [await asyncio.open_connection("127.0.0.1", served.port) for _ in range(endpoint.AT_ONCE)]
    await eventually(lambda: len(served.connections) == endpoint.AT_ONCE, "the endpoint got so far")
    with pytest.raises((ConnectionResetError, BrokenPipeError)):
        if not await exchange(served, get()):
            raise ConnectionResetError
    for _, writer in idle:
        writer.close()
    await eventually(lambda: not served.connections, "the endpoint got so far")
    assert (await exchange(served, get())).endswith(BODY)


async def test_scrapes_at_the_same_time_are_read_once(served: MetricsEndpoint, source: Source) -> None:
    source.released.clear()
    scrapes = [asyncio.create_task(exchange(served, get())) for _ in range(5)]
    await eventually(lambda: len(served.connections) == 5 and len(source.accepted) == 1, "the endpoint got so far")
    source.released.set()
    assert all(response.endswith(BODY) for response in await asyncio.gather(*scrapes))
    assert source.accepted == [""]


async def test_a_fault_is_a_500_and_the_next_scrape_is_answered(
    served: MetricsEndpoint, source: Source, caplog: pytest.LogCaptureFixture
) -> None:
    source.error = RuntimeError("broken")
    assert b" 500 " in await exchange(served, get())
    assert "broken" in caplog.text
    source.error = None
    assert (await exchange(served, get())).endswith(BODY)


async def test_close_ends_connections_and_frees_the_port(served: MetricsEndpoint, source: Source) -> None:
    source.released.clear()
    waiting = asyncio.create_task(exchange(served, get()))
    await eventually(lambda: len(source.accepted) == 1, "the endpoint got so far")
    port = served.port
    await served.close()
    await asyncio.wait([waiting])
    assert waiting.exception() is not None or waiting.result() == b""
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)


async def test_a_taken_port_is_one_line(clock: DrivenClock) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(CannotListen, match=rf"cannot serve metrics at 127\.0\.0\.1:{port} \(klamm\.metrics\.port\): "):
            MetricsEndpoint(broker_config(klamm_metrics_port=port), clock)


async def test_it_listens_on_loopback_unless_another_address_is_configured(served: MetricsEndpoint, clock: DrivenClock) -> None:
    assert served.host == "127.0.0.1"
    other = MetricsEndpoint(broker_config(klamm_metrics_port=0, klamm_metrics_host="127.0.0.2"), clock)
    assert other.url == f"http://127.0.0.2:{other.port}/metrics"
    await other.close()
