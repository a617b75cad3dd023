"""What programs and pages that nobody invited send to the control API: it is refused in one line, and nothing happens."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from urllib.parse import quote

import pytest
import pytest_asyncio

from klamm.control.verbs import http
from klamm.control.verbs.http import CannotServe, ControlServer
from klamm.control.verbs.routes import ROUTES
from klamm.control.verbs.steered_cluster import SteeredCluster
from klamm.tests.control.api import Api, served

POOP = "\U0001f4a9"
NAMES = (POOP, "\uf000", "a\x01b", "a\0b", "a\x7fb", "\ufff0", "a/b", "..", ".", "../../x", "a//b", "a/", "g" * 3000, "ä", "a?b#c%d")
"""Texts that ZooKeeper does not take in a path, or that mean something else there or in an address."""


@pytest_asyncio.fixture
async def api(zookeeper: str, chroot: str) -> AsyncIterator[Api]:
    async with served(zookeeper, chroot, brokers=1) as cluster:
        yield cluster


async def sent(api: Api | ControlServer, data: bytes) -> tuple[int, dict[str, str]]:
    """Status and body of the response to these bytes."""
    url = str(api.cluster.control_url) if isinstance(api, Api) else api.url
    reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
    writer.write(data)
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    assert "application/json" in head.lower(), head
    length = int(head.lower().partition("content-length: ")[2].partition("\r\n")[0])
    body = json.loads(await reader.readexactly(length))
    writer.close()
    return int(head.split()[1]), body


def raw(method: str, path: str, headers: Mapping[str, str], body: bytes = b"") -> bytes:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"{method} {path} HTTP/1.1\r\n{lines}Content-Length: {len(body)}\r\n\r\n".encode() + body


FOREIGN_HOSTS = (
    "evil.example", "127.0.0.1.nip.io", "localhost.evil.example", "127.0.0.1@evil.example", "0.0.0.0", "2130706433", "", "[::1", "[]",
)


@pytest.mark.parametrize("token", [None, "secret"])
async def test_the_host_is_always_this_machine(zookeeper: str, chroot: str, token: str | None) -> None:
    cluster = SteeredCluster(1, control_port=None, zookeeper=zookeeper + chroot)
    server = ControlServer(cluster.control, token=token)
    await server.start()
    given = {} if token is None else {"Authorization": f"Bearer {token}"}
    try:
        for host in FOREIGN_HOSTS:
            assert (await sent(server, raw("GET", "/holds", {"Host": host} | given)))[0] in (400, 403), host
            assert (await sent(server, raw("POST", "/reset", {"Host": host, "Origin": f"http://{host}"} | given)))[0] in (400, 403), host
        without = "".join(f"{name}: {value}\r\n" for name, value in given.items())
        assert (await sent(server, f"GET /holds HTTP/1.0\r\n{without}\r\n".encode()))[0] == 403, "no Host at all"
        for host in ("127.0.0.1", "localhost:1", "[::1]:9090", "127.0.0.9"):
            assert (await sent(server, raw("GET", "/holds", {"Host": host} | given)))[0] == 200, host
    finally:
        await server.stop()


def test_an_empty_token_is_refused() -> None:
    cluster = SteeredCluster(1, control_port=None)
    for host in ("127.0.0.1", "0.0.0.0"):
        with pytest.raises(CannotServe, match="empty"):
            ControlServer(cluster.control, host=host, token="")


ORIGINS = {
    "http://{host}": 200, "http://evil.example": 403, "null": 403, "": 403, "file://{host}": 403, "chrome-extension://{host}": 403,
    "http://{host}.evil.example": 403, "http://x@{host}": 403, "http://[": 403,
}


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_page_of_another_origin_is_refused(api: Api, method: str) -> None:
    host = str(api.cluster.control_url).removeprefix("http://")
    path = "/holds" if method == "GET" else "/reset"
    for origin, status in ORIGINS.items():
        given = {"Host": host, "Origin": origin.format(host=host)}
        assert (await sent(api, raw(method, path, given)))[0] == status, origin
    for site, status in (("same-origin", 200), ("none", 200), ("cross-site", 403), ("same-site", 403), ("", 403)):
        assert (await sent(api, raw(method, path, {"Host": host, "Sec-Fetch-Site": site})))[0] == status, site


async def test_the_page_can_be_opened_by_a_link_of_another_site(api: Api) -> None:
    async with api.session.get(f"{api.cluster.control_url}/", headers={"Sec-Fetch-Site": "cross-site"}) as page:
        assert page.status == 200


async def test_no_get_has_an_effect_whatever_the_name_is(api: Api) -> None:
    """An image in a page of another site sends a GET. `/topics/` with an emoji was a watch whose notification ended the session."""
    (broker,) = api.cluster.brokers
    before = broker.zk.session_id, broker.controller.epoch
    hold = (await api.post("/holds", {"phase": "ZooKeeperRead", "where": {"paths": "/brokers/topics/*"}, "delay_ms": 1}))["id"]
    for route in ROUTES:
        if route.method != "GET" or not route.names:
            continue
        for name in NAMES:
            if name in (".", ".."):  # the client of this test makes another path of it
                continue
            status, answer = await api.call("GET", route.path.replace(f"{{{route.names[0]}}}", quote(name, safe="")))
            assert status in (200, 404) and (status == 200 or list(answer) == ["error"]), (route.path, name, answer)
    assert (await api.get(f"/holds/{hold}"))["hits"] == 0, "none of these names is read"
    await api.get("/topics/t")
    assert (await api.get(f"/holds/{hold}"))["hits"] > 0
    assert (broker.zk.session_id, broker.controller.epoch) == before
    assert [number for number in (await api.get("/brokers"))["brokers"] if number["state"] != "running"] == []


@pytest.mark.parametrize("name", NAMES)
async def test_a_topic_that_cannot_be_is_neither_made_nor_deleted(api: Api, name: str) -> None:
    session = api.cluster.brokers[0].zk.session_id
    if name != "ä":
        assert "cannot be created" in await api.error("POST", "/topics", {"name": name, "partitions": 1})
    for method, path, body in (("DELETE", "", None), ("POST", "/partitions", {"partitions": 3})):
        status, answer = await api.call(method, f"/topics/{quote(name, safe='')}{path}", body)
        assert 400 <= status < 500 and list(answer) == ["error"], answer
    assert api.cluster.brokers[0].zk.session_id == session


MUCH = (1 << 31, 1 << 40, 1 << 63, 1 << 64, -(1 << 40), 10**400)


@pytest.mark.parametrize("number", MUCH, ids=range(len(MUCH)))
async def test_no_number_is_an_error_of_the_server(api: Api, number: int) -> None:
    texts = [str(number), "²", "٣", "--5", "1" + "0" * 5000, ""]
    asked = [
        ("POST", "/topics/t/partitions", {"partitions": number}), ("POST", "/topics", {"name": "x", "partitions": number}),
        ("POST", "/topics", {"name": "x", "replication_factor": number}), ("POST", "/topics", {"name": "x", "replication_factor": 40_000}),
        ("POST", "/topics", {"name": "x", "replicas": [[number]]}), ("POST", "/faults", {"effect": {"correlation_id": number}}),
        *(("POST", "/faults", {"effect": {name: number}}) for name in ("delay_ms", "throttle_time_ms", "slow_disk_ms", "error")),
        *(("POST", "/faults", {"effect": {"drop": True}, name: number}) for name in ("first", "after", "probability")),
        *(
            ("POST", "/faults", {"effect": {"drop": True}, "filter": {name: number}})
            for name in ("api", "broker", "from_broker", "partition")
        ),
        ("POST", "/faults", {"effect": {"drop": True}, "filter": {"versions": [0, number]}}),
        *(("POST", "/holds", {"phase": "ZooKeeperRead", name: number}) for name in ("count", "nth", "fail", "delay_ms")),
        ("POST", "/holds", {"phase": "BrokersFailed", "where": {"broker_ids": [number]}}),
        ("POST", "/clock/advance", {"ms": number << 10}), ("POST", "/zookeeper/delay", {"broker": 1, "ms": number}),
        ("POST", "/controller/move", {"to": number}), ("POST", "/links", {"from_broker": 1, "to_broker": number}),
        ("POST", "/zookeeper/expire", {"broker": number}),
        *(("GET", f"{path}/{quote(text)}", None) for path in ("/brokers", "/holds", "/faults") for text in texts if text),
        *(("GET", f"/requests?{name}={quote(text)}", None) for name in ("limit", "after", "broker", "api", "error") for text in texts),
    ]
    for method, path, body in asked:
        status, answer = await api.call(method, path, body)
        if status == 200:  # a filter that nothing matches, or a number that is not too large
            assert method == "GET" or "id" in answer, (path, body, answer)
        else:
            assert 400 <= status < 500 and list(answer) == ["error"], (method, path, body, answer)


DEEP = (
    b"[" * 200_000, b'{"phase":"ZooKeeperRead","where":{"paths":' + b"[" * 200_000 + b"]" * 200_000 + b"}}",
    b'{"phase":"ZooKeeperRead","where":{"paths":' + b"[" * 300 + b"]" * 300 + b"}}",
    b'{"phase":"ZooKeeperRead","where":{"paths":{"a":[[[]]]}}}',
)


@pytest.mark.parametrize("body", DEEP, ids=["array", "deep", "less deep", "object"])
async def test_a_body_that_is_nested_too_deeply_is_refused(api: Api, body: bytes) -> None:
    status, answer = await sent(api, raw("POST", "/holds", {"Host": "localhost"}, body))
    assert (status, list(answer)) == (400, ["error"]) and len(answer["error"]) < 300


WRONG = {
    "no method": b"\x16\x03\x01\2\0\1\0\1\xfc\3\3\r\n\r\n", "no version": b"GET /brokers\r\n\r\n",
    "a long line": b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\n\r\n",
    "two lengths": b"POST /reset HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
    "no gzip": b"POST /reset HTTP/1.1\r\nHost: localhost\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc",
    "a bad chunk": b"POST /reset HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
}


@pytest.mark.parametrize("data", WRONG.values(), ids=WRONG)
async def test_what_is_no_http_is_an_error_in_json_without_a_traceback(api: Api, data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    status, answer = await sent(api, data)
    assert 400 <= status < 500 and list(answer) == ["error"] and "\n" not in answer["error"]
    assert not [record for record in caplog.records if record.exc_info]


@pytest.mark.parametrize("part", [b"", b"GET /brokers HT", b"GET /brokers HTTP/1.1\r\nHost: localhost\r\n"])
async def test_a_request_that_does_not_come_to_its_end_loses_its_connection(
    api: Api, part: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "REQUEST_S", 0.1)
    reader, writer = await asyncio.open_connection("127.0.0.1", int(str(api.cluster.control_url).rpartition(":")[2]))
    writer.write(part)
    assert await reader.read() == b""
    writer.close()


async def test_a_body_that_does_not_come_is_refused(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "REQUEST_S", 0.1)
    status, answer = await sent(api, b"POST /faults HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
    assert (status, answer) == (408, {"error": "the body did not come within 0.1 s"})


async def test_more_connections_than_the_limit_are_closed_at_once(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (await api.call("GET", "/holds"))[0] == 200
    monkeypatch.setattr(http, "MAX_CONNECTIONS", 1)  # that of the session
    reader, writer = await asyncio.open_connection("127.0.0.1", int(str(api.cluster.control_url).rpartition(":")[2]))
    assert await reader.read() == b""
    writer.close()
    assert (await api.call("GET", "/holds"))[0] == 200
