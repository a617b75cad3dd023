"""How the admin client gets to a broker: old brokers, responses of others, proxies, names."""

from __future__ import annotations

import contextlib
import socket
import struct
import sys
import threading
from collections.abc import Iterator

import pytest

from klamm.admin import AdminClient, TimedOut
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.tests.admin.scripted import ScriptedCluster


def test_a_broker_that_does_not_know_the_version_of_api_versions_is_asked_in_version_0(cluster: ScriptedCluster) -> None:
    (broker,) = cluster.add(1)
    rows = [messages.ApiVersionsResponse.ApiVersion(api_key=int(ApiKey.METADATA), min_version=0, max_version=5)]
    refused = struct.pack(">ihi", 0, 35, 1) + struct.pack(">hhh", 18, 0, 2)
    broker.on(ApiKey.API_VERSIONS, refused, messages.ApiVersionsResponse(api_keys=rows))
    with AdminClient(cluster.bootstrap) as admin:
        assert admin.describe_cluster().cluster_id == "scripted"
    assert [one.version for one in broker.received] == [3, 0, 5]


def test_a_response_to_another_request_is_invalid(cluster: ScriptedCluster) -> None:
    (broker,) = cluster.add(1)
    broker.on(ApiKey.API_VERSIONS, struct.pack(">ihi", 7, 0, 0))
    with AdminClient(cluster.bootstrap) as admin, pytest.raises(TimedOut, match="invalid response: a response to request 7"):
        admin.describe_cluster(timeout_ms=500)


class HttpProxy:
    """A proxy that connects to what CONNECT names; `connected` has these names."""

    def __init__(self) -> None:
        self.connected: list[str] = []
        self.status = "200 Connection established"
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._sockets: list[socket.socket] = [self._listener]
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def close(self) -> None:
        for each in self._sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in self._threads:
            thread.join(10)

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            self._sockets.append(near)
            head = b""
            while not head.endswith(b"\r\n\r\n") and (piece := near.recv(1)):
                head += piece
            name = head.split()[1].decode()
            self.connected.append(name)
            near.sendall(f"HTTP/1.1 {self.status}\r\n\r\n".encode())
            host, _, port = name.rpartition(":")
            far = socket.create_connection((host, int(port)))
            self._sockets.append(far)
            for one, other in ((near, far), (far, near)):
                self._threads.append(threading.Thread(target=self._copy, args=(one, other)))
                self._threads[-1].start()

    @staticmethod
    def _copy(one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(65536):
                other.sendall(data)
            other.shutdown(socket.SHUT_WR)


@pytest.fixture
def proxy() -> Iterator[HttpProxy]:
    running = HttpProxy()
    yield running
    running.close()


def test_connections_go_through_the_proxy(cluster: ScriptedCluster, proxy: HttpProxy) -> None:
    (broker,) = cluster.add(1)
    with AdminClient(cluster.bootstrap, proxy_url=proxy.url) as admin:
        assert admin.describe_cluster().cluster_id == "scripted"
    assert set(proxy.connected) == {broker.address}


def test_a_proxy_that_refuses_is_named(cluster: ScriptedCluster, proxy: HttpProxy) -> None:
    cluster.add(1)
    proxy.status = "403 Forbidden"
    said = r"the proxy 127\.0\.0\.1:\d+ did not connect: 403"
    with AdminClient(cluster.bootstrap, proxy_url=proxy.url) as admin, pytest.raises(TimedOut, match=said):
        admin.describe_cluster(timeout_ms=500)


@pytest.mark.parametrize("scheme", ["http", "socks4", "socks5", "socks5h"])
def test_a_proxy_that_cannot_be_reached_is_named(cluster: ScriptedCluster, scheme: str) -> None:
    cluster.add(1)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    said = f"the proxy 127.0.0.1:{port} did not connect"
    with AdminClient(cluster.bootstrap, proxy_url=f"{scheme}://u:secret@127.0.0.1:{port}") as admin, pytest.raises(TimedOut, match=said):
        admin.describe_cluster(timeout_ms=300)


def test_a_proxy_needs_a_package_that_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "python_socks", None)
    with pytest.raises(ValueError, match="python-socks"):
        AdminClient("127.0.0.1:9092", proxy_url="socks5://127.0.0.1:1")


def test_a_host_without_an_address_is_an_error_that_says_so() -> None:
    with pytest.raises(OSError) as found:
        socket.getaddrinfo("no.such.host.invalid", 9092)
    said = f"the broker at no.such.host.invalid:9092 cannot be reached: {found.value.strerror}"
    with AdminClient("no.such.host.invalid:9092") as admin, pytest.raises(TimedOut, match=said):
        admin.describe_cluster(timeout_ms=2000)
