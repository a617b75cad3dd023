"""The control API over HTTP: its contract, what it refuses, and who may use it."""

from __future__ import annotations

import asyncio
import json

import aiohttp
import pytest

from klamm.control.http import CannotServe, ControlServer
from klamm.control.openapi import openapi
from klamm.control.routes import ROUTES
from klamm.control.steered_cluster import SteeredCluster
from klamm.protocol import messages
from klamm.protocol.records.record import Record, encode_batch
from klamm.tests.control.api import Api, served
from klamm.tests.harness import requests
from klamm.tests.harness.client import Client, ConnectionClosed
from klamm.tests.harness.waits import eventually


async def leader_of(api: Api, partition: int) -> Client:
    leader = (await api.get("/topics/t"))["partitions"][partition]["leader"]
    _, host, port = api.cluster.addresses[leader - 1]
    return Client(host, port)


def produce(*partitions: int) -> messages.ProduceRequest:
    kind = messages.ProduceRequest
    records = encode_batch([Record(0, 1_700_000_000_000, None, b"v")])
    rows = [kind.PartitionProduceData(index=index, records=records) for index in partitions]
    return kind(acks=-1, timeout_ms=5000, topic_data=[kind.TopicProduceData(name="t", partition_data=rows)])


async def test_an_error_for_one_partition_leaves_the_others_real_and_its_log_as_it_was(zookeeper: str, chroot: str) -> None:
    async with served(zookeeper, chroot, brokers=1) as api:
        client = await leader_of(api, 0)
        fault = {"filter": {"api": "Produce", "client_id": "te*", "topic": "t", "partition": 0, "versions": [0, 9]}}
        made = await api.post("/faults", fault | {"effect": {"error": "NOT_LEADER_OR_FOLLOWER", "message": "no"}, "first": 1, "after": 1})
        codes = []
        for version in (9, 10, 9, 9):
            answer = await client.ask(produce(0, 1), version)
            codes.append({row.index: row.error_code for row in answer.responses[0].partition_responses})
        assert codes == [{0: 0, 1: 0}, {0: 0, 1: 0}, {1: 0, 0: 6}, {0: 0, 1: 0}]
        shown = await api.get(f"/faults/{made['id']}?hits=1")
        assert (shown["hits"], shown["matches"], shown["spent"]) == (1, 2, True)
        assert [hit["client_id"] for hit in shown["last"]] == ["test"]
        ends = [part["brokers"]["1"]["log_end_offset"] for part in (await api.get("/topics/t"))["partitions"]]
        assert ends == [3, 4], "the refused batch is in no log"
        (last,) = (await api.get("/requests?api=Produce&topic=t&error=NOT_LEADER_OR_FOLLOWER"))["requests"]
        assert last["request"]["topic_data"][0]["partition_data"][0]["records"]["records"] == 1
        assert last["response"]["responses"][0]["partition_responses"][1]["error_message"] == "no"
        assert (await api.delete("/faults"))["deleted"] == 1
        await client.close()


async def test_a_fetch_in_a_session_gets_the_error_of_its_partition_at_once(zookeeper: str, chroot: str) -> None:
    kind = messages.FetchRequest
    async with served(zookeeper, chroot, brokers=1) as api:
        client = await leader_of(api, 0)
        rows = [kind.FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1000) for index in (0, 1)]
        whole = kind(max_wait_ms=0, min_bytes=1, max_bytes=1000, session_epoch=0, topics=[kind.FetchTopic(topic="t", partitions=rows)])
        first = await client.ask(whole._replace(replica_id=-1), 12)
        wanted = {"api": "Fetch", "topic": "t", "partition": 1}
        await api.post("/faults", {"filter": wanted, "effect": {"error": "OFFSET_OUT_OF_RANGE"}, "first": 1})
        again = kind(replica_id=-1, max_wait_ms=600_000, min_bytes=1, max_bytes=1000, session_id=first.session_id, session_epoch=1)
        answer = await client.ask(again, 12)
        assert [(topic.topic, [(row.partition_index, row.error_code) for row in topic.partitions]) for topic in answer.responses] == [
            ("t", [(1, 1)])
        ]
        nothing = await client.ask(again._replace(session_epoch=2, max_wait_ms=1), 12)
        assert not nothing.responses
        await client.close()


async def test_a_deletion_is_held_stepped_failed_and_its_controller_crashed(zookeeper: str, chroot: str) -> None:
    async with served(zookeeper, chroot) as api:
        hold = await api.post("/holds", {"phase": "DeletionPropagated", "where": {"topic": "held"}})
        assert (await api.get(f"/holds/{hold['id']}"))["state"] == "armed"
        assert "two holds" not in await api.error("POST", "/holds", {"phase": "DeletionPropagated", "where": {"topic": "held"}}, 409)
        assert "holds nothing" in await api.error("POST", f"/holds/{hold['id']}/step", status=409)
        controller = (await api.get("/controller"))["id"]
        _, host, port = api.cluster.addresses[controller - 1]
        client = Client(host, port)
        await client.ask(requests.create_topic("held", [[3 - controller]]), 7)
        await client.ask(requests.delete_topics("held", version=5, timeout_ms=0), 5)
        reached = await api.get(f"/holds/{hold['id']}?wait=reached")
        assert (reached["state"], reached["at"]["topic"], reached["at"]["broker"]) == ("reached", "held", controller)
        assert "cannot fail" in await api.error("POST", f"/holds/{hold['id']}/fail", {"error": "RuntimeError"}, 409)
        assert (await client.ask(messages.MetadataRequest(topics=None), 9)).controller_id == controller, "other requests are served"
        crashed = await api.post(f"/holds/{hold['id']}/crash")
        assert crashed["broker"] == controller
        assert [broker["state"] for broker in (await api.get("/brokers"))["brokers"] if broker["id"] == controller] == ["killed"]
        again = await api.get(f"/holds/{hold['id']}?wait=reached")
        assert again["at"]["broker"] == 3 - controller and again["at"]["controller_epoch"] == reached["at"]["controller_epoch"] + 1
        assert (await api.post(f"/brokers/{controller}/start"))["state"] == "running"
        assert (await api.post(f"/holds/{hold['id']}/release"))["state"] == "released"
        await eventually(lambda: not api.cluster.brokers[0].metadata.contains("held"), "the topic is deleted")
        assert (await api.delete("/holds"))["deleted"] == 1
        await client.close()


async def test_brokers_and_the_controller_are_moved_about(zookeeper: str, chroot: str) -> None:
    async with served(zookeeper, chroot, brokers=3) as api:
        assert (await api.post("/controller/move", {"to": 3}))["id"] == 3
        assert (await api.post("/controller/resign"))["id"] in (1, 2)
        assert (await api.post("/brokers/3/stop"))["state"] == "stopped"
        assert "does not run" in await api.error("POST", "/brokers/3/kill", status=409)
        assert (await api.post("/brokers/3/start"))["state"] == "running"
        assert "runs already" in await api.error("POST", "/brokers/3/start", status=409)
        assert (await api.post("/brokers/3/restart"))["state"] == "running"
        assert "there is no broker 9" in await api.error("POST", "/brokers/9/kill", status=404)
        before = (await api.get("/brokers/2"))["epoch"]
        await api.post("/zookeeper/expire", {"broker": 2})
        await eventually(lambda: api.cluster.control.broker(2)["epoch"] != before, "the broker registers again")
        assert (await api.post("/brokers/1/pause"))["state"] == "paused"
        _, host, port = api.cluster.addresses[0]
        paused = Client(host, port)
        asking = asyncio.ensure_future(paused.ask(messages.ApiVersionsRequest(), 0))
        other = await leader_of(api, 0)
        assert not asking.done()
        assert (await api.post("/brokers/1/resume"))["state"] == "running"
        assert (await asking).error_code == 0
        assert "not paused" in await api.error("POST", "/brokers/1/resume", status=409)
        await paused.close()
        await other.close()


async def test_a_broker_with_configs_of_its_own_is_added(zookeeper: str, chroot: str) -> None:
    async with served(zookeeper, chroot, brokers=1) as api:
        added = await api.post("/brokers", {"config": {"broker.rack": "b"}})
        assert (added["id"], added["rack"], added["state"]) == (2, "b", "running")
        assert [broker["rack"] for broker in (await api.get("/brokers"))["brokers"]] == [None, "b"]
        assert (await api.post("/brokers/2/restart"))["rack"] == "b"
        assert "listeners is set" in await api.error("POST", "/brokers", {"config": {"listeners": "PLAINTEXT://:1"}})
        assert "num.io.threads" in await api.error("POST", "/brokers", {"config": {"num.io.threads": "many"}})
        assert len((await api.get("/brokers"))["brokers"]) == 2


async def test_time_passes_at_once(zookeeper: str, chroot: str) -> None:
    async with served(zookeeper, chroot, brokers=1) as api:
        before = await api.post("/clock/freeze")
        fault = await api.post("/faults", {"filter": {"api": "Metadata"}, "effect": {"delay_ms": 3_000_000}})
        client = await leader_of(api, 0)
        asking = asyncio.ensure_future(client.ask(messages.MetadataRequest(topics=None), 9))
        await api.get(f"/faults/{fault['id']}?hits=1")
        after = await api.post("/clock/advance", {"ms": 3_000_000})
        assert after["now_ms"] - before["now_ms"] >= 3_000_000
        assert (await asking).controller_id == 1
        assert "ms: from 0" in await api.error("POST", "/clock/advance", {"ms": -1})
        assert (await api.post("/clock/resume"))["frozen"] is False
        await client.close()


async def isr(api: Api) -> list[int]:
    return sorted((await api.get("/topics/t"))["partitions"][0]["isr"])


async def test_a_follower_behind_a_cut_link_leaves_the_isr_and_comes_back(zookeeper: str, chroot: str) -> None:
    async with served(zookeeper, chroot, brokers=3) as api:
        leader = (await api.get("/topics/t"))["partitions"][0]["leader"]
        controller = (await api.get("/controller"))["id"]  # the leader needs it to change the ISR
        follower = next(number for number in (1, 2, 3) if number not in (leader, controller))
        cut = await api.post("/links", {"from_broker": follower, "to_broker": leader, "cut": True})
        await api.get(f"/faults/{cut['faults'][0]}?hits=1")
        client = await leader_of(api, 0)
        await client.ask(produce(0)._replace(acks=1), 9)
        while await isr(api) == [1, 2, 3]:
            await api.post("/clock/advance", {"ms": 20_000})
        assert await isr(api) == sorted({1, 2, 3} - {follower})
        await api.delete("/faults")
        while await isr(api) != [1, 2, 3]:
            await api.post("/clock/advance", {"ms": 1000})
        assert "one of cut and delay_ms" in await api.error("POST", "/links", {"from_broker": 1, "to_broker": 2})
        assert "between two brokers" in await api.error("POST", "/links", {"from_broker": 1, "to_broker": 1, "cut": True})
        await client.close()


async def test_a_broker_is_cut_off_from_zookeeper_and_keeps_its_session_if_it_comes_back_soon(zookeeper: str, chroot: str) -> None:
    async with served(zookeeper, chroot) as api:
        broker = api.cluster.brokers[1]
        session = broker.zk.session_id
        await api.post("/zookeeper/cut", {"broker": 2})
        await eventually(lambda: not broker.zk.is_connected, "the connection is lost")
        await api.post("/zookeeper/restore", {"broker": 2})
        await eventually(lambda: broker.zk.is_connected, "it connects again")
        assert broker.zk.session_id == session
        assert "not cut off" in await api.error("POST", "/zookeeper/restore", {"broker": 2}, 409)
        await api.post("/zookeeper/delay", {"broker": 2, "ms": 30})
        before = broker.clock.monotonic()
        await broker.admin_zk.topics()
        assert broker.clock.monotonic() - before >= 0.03
        await api.post("/reset")
        assert not broker.zk.delay_s


async def test_events_are_sent_as_they_happen(zookeeper: str, chroot: str) -> None:
    async with served(zookeeper, chroot, brokers=1) as api, api.session.get(f"{api.cluster.control_url}/events") as stream:
        await api.post("/faults", {"filter": {"api": "Metadata"}, "effect": {"delay_ms": 1}})
        seen = {}
        while "fault" not in seen:
            _, kind, data, _ = [(await stream.content.readline()).decode().strip() for _ in range(4)]
            seen[kind.removeprefix("event: ")] = json.loads(data.removeprefix("data: "))
        assert seen["fault"]["filter"]["api"] == "Metadata"


REFUSED = [
    ("POST", "/holds", {"phase": "DeletionQueed"}, 400, "did you mean DeletionQueued"),
    ("POST", "/holds", {"phase": "DeletionQueued", "where": {"topc": "t"}}, 400, "it has controller_epoch, topic"),
    ("POST", "/holds", {"phase": "DeletionQueued", "where": {"topic": 7}}, 400, "topic"),
    ("POST", "/holds", {"phase": "DeletionQueued", "count": 0}, 400, "at least 1"),
    ("POST", "/holds", {"phse": "DeletionQueued"}, 400, "phse"),
    ("GET", "/holds/7", None, 404, "there is no hold 7"),
    ("GET", "/holds/x", None, 404, "is no number"),
    ("POST", "/faults", {"filter": {"api": "Prodce"}, "effect": {"drop": True}}, 400, "did you mean Produce?"),
    ("POST", "/faults", {"filter": {"api": "Produce", "tpic": "t"}, "effect": {"drop": True}}, 400, "did you mean `topic`?"),
    ("POST", "/faults", {"filter": {"api": "Produce"}, "effect": {}}, 400, "the effect is empty"),
    ("POST", "/faults", {"filter": {"api": "Produce"}, "effect": {"drop": True, "corrupt": True}}, 400, "drop and corrupt"),
    ("POST", "/faults", {"filter": {"api": "Produce"}, "effect": {"error": "NOT_LEADER"}}, 400, "did you mean NOT_LEADER_OR_FOLLOWER?"),
    ("POST", "/faults", {"filter": {"api": "Produce"}, "effect": {"error": "NONE"}}, 400, "NONE is no error"),
    ("POST", "/faults", {"filter": {"api": "Produce"}, "effect": {"message": "x", "drop": True}}, 400, "there is no error"),
    ("POST", "/faults", {"filter": {"api": "Heartbeat", "topic": "t"}, "effect": {"drop": True}}, 400, "cannot match"),
    ("POST", "/faults", {"filter": {"api": "Produce", "versions": [40, 50]}, "effect": {"drop": True}}, 400, "cannot match"),
    ("POST", "/faults", {"filter": {"api": "Produce", "versions": [3, 2]}, "effect": {"drop": True}}, 400, "3 is above 2"),
    ("POST", "/faults", {"filter": {"api": "Envelope"}, "effect": {"drop": True}}, 400, "do not serve Envelope"),
    ("POST", "/faults", {"filter": {"broker": 9}, "effect": {"drop": True}}, 400, "there is no broker 9"),
    ("POST", "/faults", {"filter": {"api": "ListGroups", "group": "g"}, "effect": {"error": "UNKNOWN_SERVER_ERROR"}}, 400, "no error code"),
    ("POST", "/faults", {"filter": {"api": "LeaderAndIsr"}, "effect": {"throttle_time_ms": 1}}, 400, "have no throttle_time_ms"),
    ("POST", "/faults", {"filter": {"topic": "t", "topic_id": "x"}, "effect": {"drop": True}}, 400, "cannot be combined"),
    ("POST", "/faults", {"filter": {"topic_id": "x"}, "effect": {"drop": True}}, 400, "is not a topic id"),
    ("POST", "/faults", {"effect": {"delay_ms": -1, "drop": True}}, 400, "delay_ms"),
    ("POST", "/faults", {"effect": {"drop": True}, "probability": 0}, 400, "probability"),
    ("POST", "/faults", {"effect": {"drop": True}, "first": 0}, 400, "first: 1 or more"),
    ("POST", "/faults", [], 400, "object"),
    ("GET", "/faults/1", None, 404, "there is no fault 1"),
    ("GET", "/requests?limit=0", None, 400, "limit"),
    ("GET", "/requests?api=Nope", None, 400, "there is no API"),
    ("GET", "/requests?colour=red", None, 400, "no parameter 'colour'; it knows api"),
    ("GET", "/requests?limit=many", None, 400, "is no number"),
    ("GET", "/topics/none", None, 404, "there is no topic"),
    ("GET", "/groups/none", None, 404, "has group"),
    ("POST", "/zookeeper/expire", {}, 400, "broker"),
    ("POST", "/controller/move", {"to": 9}, 404, "there is no broker 9"),
    ("POST", "/brokers/1/start", {"x": 1}, 400, "takes no body"),
    ("PUT", "/faults", None, 405, "knows"),
    ("GET", "/nothing", None, 404, "openapi.json"),
]


async def test_what_is_wrong_gets_one_line_and_changes_nothing(zookeeper: str, chroot: str) -> None:
    async with served(zookeeper, chroot, brokers=1) as api:
        for method, path, body, status, text in REFUSED:
            assert text in await api.error(method, path, body, status), (method, path, body)
        async with api.session.post(f"{api.cluster.control_url}/faults", data=b"{") as response:
            assert response.status == 400 and "not JSON" in (await response.json())["error"]
        async with api.session.post(f"{api.cluster.control_url}/faults", data=b" " * (2 << 20)) as response:
            assert response.status == 413
        assert (await api.get("/faults"), await api.get("/holds")) == ({"faults": []}, {"holds": []})


async def test_no_page_of_another_site_can_steer(zookeeper: str, chroot: str) -> None:
    async with served(zookeeper, chroot, brokers=1) as api:
        assert (await api.call("POST", "/reset", Origin="http://evil.example"))[0] == 403
        assert (await api.call("GET", "/brokers", Host="evil.example"))[0] == 403, "a name that was bound to this address"
        assert (await api.call("POST", "/reset", Origin=str(api.cluster.control_url)))[0] == 200
        async with api.session.get(f"{api.cluster.control_url}/") as page:
            assert page.status == 200 and "default-src 'self'" in page.headers["Content-Security-Policy"]


async def test_a_token_is_needed_beyond_loopback_and_checked(zookeeper: str, chroot: str) -> None:
    cluster = SteeredCluster(1, control_port=None, zookeeper=zookeeper + chroot)
    with pytest.raises(CannotServe, match="only with a token"):
        ControlServer(cluster.control, host="0.0.0.0")
    await cluster.start()
    server = ControlServer(cluster.control, token="secret")
    await server.start()
    try:
        async with aiohttp.ClientSession() as session:
            for headers, status in (({}, 401), ({"Authorization": "Bearer wrong"}, 401), ({"Authorization": "Bearer secret"}, 200)):
                async with session.get(f"{server.url}/brokers", headers=headers) as response:
                    assert response.status == status
            async with session.get(f"{server.url}/brokers?token=secret") as response:
                assert response.status == 200
        with pytest.raises(CannotServe, match="cannot serve"):
            await ControlServer(cluster.control, port=int(server.url.rpartition(":")[2])).start()
    finally:
        await server.stop()
        await cluster.stop()


async def test_a_cluster_that_stops_lets_everything_go_on(zookeeper: str, chroot: str) -> None:
    async with served(zookeeper, chroot) as api:
        await api.post("/holds", {"phase": "PartitionsAppeared"})
        await api.post("/faults", {"filter": {"api": "Metadata"}, "effect": {"drop": True}})
        client = await leader_of(api, 0)
        asking = asyncio.ensure_future(client.ask(messages.MetadataRequest(topics=None), 9))
        await api.get("/faults/1?hits=1")
    with pytest.raises(ConnectionClosed):
        await asking
    await client.close()


def test_the_description_has_every_route_and_body() -> None:
    described = openapi()
    found = {(method.upper(), path) for path, methods in described["paths"].items() for method in methods}
    assert found == {(route.method, route.path) for route in ROUTES} | {("GET", "/events")}
    for route in ROUTES:
        if route.body is not None:
            fields = set(described["components"]["schemas"][route.body.__name__]["properties"])
            assert fields == set(route.body.__struct_fields__)
            assert (route.body.__doc__ or "").strip()
