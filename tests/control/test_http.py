"""The control API over HTTP: its contract, what it refuses, and who may use it."""

from __future__ import annotations

import asyncio
import logging
import re

import aiohttp
import pytest

from klamm.control.verbs.http import CannotServe, ControlServer
from klamm.control.verbs.openapi import openapi
from klamm.control.verbs.routes import ROUTES
from klamm.control.verbs.steered_cluster import SteeredCluster
from klamm.protocol import messages
from klamm.tests.control.api import served
from klamm.tests.control.calls import produce
from klamm.tests.harness.client import ConnectionClosed
from klamm.tests.harness.waits import eventually


async def test_an_error_for_one_partition_leaves_the_others_real_and_its_log_as_it_was(zookeeper: str, chroot: str) -> None:
    async with served(zookeeper, chroot, brokers=1) as api:
        client = await api.leader_of(0)
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
        client = await api.leader_of(0)
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


async def test_a_broker_with_configs_of_its_own_is_added(zookeeper: str, chroot: str) -> None:
    async with served(zookeeper, chroot, brokers=1) as api:
        added = await api.post("/brokers", {"config": {"broker.rack": "b"}})
        assert (added["id"], added["rack"], added["state"]) == (2, "b", "running")
        assert [broker["rack"] for broker in (await api.get("/brokers"))["brokers"]] == [None, "b"]
        assert (await api.post("/brokers/2/restart"))["rack"] == "b"
        assert "listeners is set" in await api.error("POST", "/brokers", {"config": {"listeners": "PLAINTEXT://:1"}})
        assert "num.io.threads" in await api.error("POST", "/brokers", {"config": {"num.io.threads": "many"}})
        assert len((await api.get("/brokers"))["brokers"]) == 2


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


async def test_what_is_held_when_the_cluster_ends_goes_on_and_is_logged(
    zookeeper: str, chroot: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(zookeeper, chroot, 1) as api:
        hold = (await api.post("/holds", {"phase": "PartitionsAppeared"}))["id"]
        making = asyncio.ensure_future(api.call("POST", "/topics", {"name": "held", "partitions": 1, "replication_factor": 1}))
        await api.get(f"/holds/{hold}?wait=reached")
        caplog.set_level(logging.WARNING, "klamm")
        await api.cluster.stop()
        await asyncio.wait([making])
    text = "broker 1 is held at PartitionsAppeared("
    assert [record.getMessage()[: len(text)] for record in caplog.records if "is held" in record.getMessage()] == [text]


async def test_a_broker_that_was_paused_and_cut_off_starts_again_as_any_other(zookeeper: str, chroot: str) -> None:
    async with served(zookeeper, chroot) as api:
        await api.post("/brokers/2/pause")
        assert (await api.post("/brokers/2/restart"))["state"] == "running"
        await api.post("/zookeeper/cut", {"broker": 2})
        before = api.cluster.brokers[1].zk.session_id
        await api.post("/zookeeper/expire", {"broker": 2})
        assert api.cluster.brokers[1].zk.session_id == before, "it does not know of the end before it connects again"
        await api.post("/zookeeper/restore", {"broker": 2})
        await eventually(lambda: api.cluster.brokers[1].zk.session_id not in (0, before), "it has a new session")


async def test_a_broker_is_killed_and_started_while_the_controller_is_held(zookeeper: str, chroot: str) -> None:
    async with served(zookeeper, chroot, brokers=3) as api:
        controller = (await api.get("/controller"))["id"]
        dead = next(number for number in (1, 2, 3) if number != controller)
        hold = (await api.post("/holds", {"phase": "BrokersFailed"}))["id"]
        assert (await api.post(f"/brokers/{dead}/kill", {"expire": True}))["state"] == "killed"
        assert (await api.get(f"/holds/{hold}?wait=reached"))["at"]["broker_ids"] == [dead]
        assert (await api.post(f"/brokers/{dead}/start"))["state"] == "running"
        await api.post(f"/holds/{hold}/release")
        await eventually(lambda: all(dead in broker.metadata.brokers for broker in api.cluster.brokers), "the broker is back")


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
        client = await api.leader_of(0)
        asking = asyncio.ensure_future(client.ask(messages.MetadataRequest(topics=None), 9))
        await api.get("/faults/1?hits=1")
    with pytest.raises(ConnectionClosed):
        await asking
    await client.close()


def test_the_description_has_every_route_and_body() -> None:
    described = openapi()
    found = {(method.upper(), path) for path, methods in described["paths"].items() for method in methods}
    assert found == {(route.method, route.path) for route in ROUTES} | {("GET", "/events")}
    ids = [operation["operationId"] for methods in described["paths"].values() for operation in methods.values()]
    assert len(set(ids)) == len(ids) and all(re.fullmatch(r"[a-z][A-Za-z]+", each) for each in ids)
    assert {"addHold", "getHold", "releaseHold", "addPartitions", "expireSession", "cutZooKeeper", "waitForConfigs"} <= set(ids)
    for route in ROUTES:
        if route.body is not None:
            fields = set(described["components"]["schemas"][route.body.__name__]["properties"])
            assert fields == set(route.body.__struct_fields__)
            assert (route.body.__doc__ or "").strip()
