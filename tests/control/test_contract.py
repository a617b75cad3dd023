"""The contract of the control API: clusters in one process and in several keep it. Tests share a cluster of `klamm serve`."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest

from klamm.protocol import messages
from klamm.tests.cli.running import Running
from klamm.tests.control.calls import Calls, produce
from klamm.tests.harness import requests
from klamm.tests.harness.client import ConnectionClosed
from klamm.tests.harness.names import unique_name
from klamm.tests.harness.waits import eventually_asked

CONFIG = ("auto.leader.rebalance.enable=false", "offsets.topic.num.partitions=1", "offsets.topic.replication.factor=1")
METADATA = messages.MetadataRequest(topics=None)


class ServedCluster(NamedTuple):
    """What a command says of its cluster."""

    control_url: str
    addresses: list[tuple[int, str, int]]


def served_by(command: Running) -> ServedCluster:
    said = command.ready()
    return ServedCluster(said["control"], [(broker["id"], broker["host"], broker["port"]) for broker in said["brokers"]])


def serve(folder: Path, zookeeper: str, *options: object) -> Running:
    configs = [each for config in CONFIG for each in ("--config", config)]
    where = ("--zookeeper", f"{zookeeper}/{unique_name('test')}", "--port", 0, "--control-port", 0)
    return Running(folder, "serve", "--json", *where, *configs, *options)


@pytest.fixture(scope="module", params=["one process", pytest.param("processes", marks=pytest.mark.slow)])
def served(request: pytest.FixtureRequest, zookeeper: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedCluster]:
    options = ["--topic", "t:2:3"] + ["--processes"] * (request.param == "processes")
    command = serve(tmp_path_factory.mktemp("served"), zookeeper, *options)
    yield served_by(command)
    command.signal(signal.SIGTERM)
    assert command.ended() == 0
    assert "Traceback" not in command.stderr


@pytest.fixture
async def api(served: ServedCluster) -> AsyncIterator[Calls]:
    """Calls the API of the cluster, all of whose brokers run and are in the ISRs."""
    async with aiohttp.ClientSession() as session:
        calls = Calls(session, served)
        await eventually_asked(lambda: is_whole(calls), "all brokers are in the ISRs")
        yield calls
        await calls.post("/reset")
        for broker in (await calls.get("/brokers"))["brokers"]:
            if broker["state"] in ("stopped", "killed"):
                await calls.post(f"/brokers/{broker['id']}/start")


async def is_whole(api: Calls) -> bool:
    return all(sorted(row["isr"]) == [1, 2, 3] for row in (await api.get("/topics/t"))["partitions"])


async def is_gone(api: Calls, topic: str) -> bool:
    return all(each["name"] != topic for each in (await api.get("/topics"))["topics"])


async def has_other_epoch(api: Calls, broker: int, epoch: int) -> bool:
    return bool((await api.get(f"/brokers/{broker}")).get("epoch", epoch) != epoch)


async def is_released(api: Calls, hold: int) -> bool:
    return bool((await api.get(f"/holds/{hold}"))["state"] == "released")


async def has_state(api: Calls, broker: int, state: str) -> bool:
    return bool((await api.get(f"/brokers/{broker}"))["state"] == state)


async def test_many_who_wait_keep_nobody_out(api: Calls) -> None:
    hold = (await api.post("/holds", {"phase": "DeletionQueued", "where": {"topic": "never"}}))["id"]
    waiting = [asyncio.ensure_future(api.call("GET", f"/holds/{hold}?wait=reached&timeout_ms=3000")) for _ in range(60)]
    for _ in range(5):
        assert {each["state"] for each in (await api.get("/brokers"))["brokers"]} == {"running"}
    assert not any(each.done() for each in waiting)
    for each in waiting:
        each.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


async def test_a_deletion_is_held_stepped_failed_and_its_controller_crashed(api: Calls) -> None:
    hold = await api.post("/holds", {"phase": "DeletionPropagated", "where": {"topic": "held"}})
    assert (await api.get(f"/holds/{hold['id']}"))["state"] == "armed"
    assert "same fields" in await api.error("POST", "/holds", {"phase": "DeletionPropagated", "where": {"topic": "held"}}, 409)
    assert "holds nothing" in await api.error("POST", f"/holds/{hold['id']}/step", status=409)
    controller = (await api.get("/controller"))["id"]
    client = api.client(controller)
    await client.ask(requests.create_topic("held", [[controller % 3 + 1]]), 7)
    await client.ask(requests.delete_topics("held", version=5, timeout_ms=0), 5)
    reached = await api.get(f"/holds/{hold['id']}?wait=reached")
    assert (reached["state"], reached["at"]["topic"], reached["at"]["broker"]) == ("reached", "held", controller)
    assert "cannot fail" in await api.error("POST", f"/holds/{hold['id']}/fail", {"error": "RuntimeError"}, 409)
    assert (await client.ask(messages.MetadataRequest(topics=None), 9)).controller_id == controller, "other requests are served"
    crashed = await api.post(f"/holds/{hold['id']}/crash")
    assert crashed["broker"] == controller
    assert [broker["state"] for broker in (await api.get("/brokers"))["brokers"] if broker["id"] == controller] == ["killed"]
    again = await api.get(f"/holds/{hold['id']}?wait=reached")
    assert again["at"]["broker"] != controller and again["at"]["controller_epoch"] == reached["at"]["controller_epoch"] + 1
    assert (await api.post(f"/brokers/{controller}/start"))["state"] == "running"
    assert (await api.post(f"/holds/{hold['id']}/release"))["state"] == "released"
    await eventually_asked(lambda: is_gone(api, "held"), "the topic is deleted")
    assert (await api.delete("/holds"))["deleted"] == 1
    await client.close()


async def test_brokers_and_the_controller_are_moved_about(api: Calls) -> None:
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
    await eventually_asked(lambda: has_other_epoch(api, 2, before), "the broker registers again")
    assert (await api.post("/brokers/1/pause"))["state"] == "paused"
    paused = api.client(1)
    asking = asyncio.ensure_future(paused.ask(messages.ApiVersionsRequest(), 0))
    other = await api.leader_of(0)
    assert not asking.done()
    assert (await api.post("/brokers/1/resume"))["state"] == "running"
    assert (await asking).error_code == 0
    assert "not paused" in await api.error("POST", "/brokers/1/resume", status=409)
    await paused.close()
    await other.close()


async def test_time_passes_at_once(api: Calls) -> None:
    before = await api.post("/clock/freeze")
    fault = await api.post("/faults", {"filter": {"api": "Metadata"}, "effect": {"delay_ms": 60_000}})
    client = await api.leader_of(0)
    asking = asyncio.ensure_future(client.ask(messages.MetadataRequest(topics=None), 9))
    await api.get(f"/faults/{fault['id']}?hits=1")
    after = await api.post("/clock/advance", {"ms": 60_000})
    assert after["now_ms"] - before["now_ms"] >= 60_000
    assert (await asking).controller_id in (1, 2, 3)
    assert "ms: from 0" in await api.error("POST", "/clock/advance", {"ms": -1})
    assert (await api.post("/clock/resume"))["frozen"] is False
    await client.close()


async def isr(api: Calls) -> list[int]:
    return sorted((await api.get("/topics/t"))["partitions"][0]["isr"])


async def test_a_follower_behind_a_cut_link_leaves_the_isr_and_comes_back(api: Calls) -> None:
    leader = (await api.get("/topics/t"))["partitions"][0]["leader"]
    controller = (await api.get("/controller"))["id"]  # the leader needs it to change the ISR
    follower = next(number for number in (1, 2, 3) if number not in (leader, controller))
    cut = await api.post("/links", {"from_broker": follower, "to_broker": leader, "cut": True})
    await api.get(f"/faults/{cut['faults'][0]}?hits=1")
    client = await api.leader_of(0)
    await client.ask(produce(0)._replace(acks=1), 9)
    while follower in await isr(api):
        await api.post("/clock/advance", {"ms": 20_000})
    while await isr(api) != sorted({1, 2, 3} - {follower}):  # the other one may have been behind when the clock leapt
        await api.post("/clock/advance", {"ms": 500})
    await api.delete("/faults")
    while await isr(api) != [1, 2, 3]:
        await api.post("/clock/advance", {"ms": 1000})
    assert "one of cut and delay_ms" in await api.error("POST", "/links", {"from_broker": 1, "to_broker": 2})
    assert "between two brokers" in await api.error("POST", "/links", {"from_broker": 1, "to_broker": 1, "cut": True})
    await client.close()


async def test_a_slow_disk_holds_the_appends_of_its_log_and_no_other_request(api: Calls) -> None:
    leader = (await api.get("/topics/t"))["partitions"][0]["leader"]
    wanted = {"broker": leader, "topic": "t", "partition": 0, "disk": "append"}
    number = (await api.post("/faults", {"filter": wanted, "effect": {"slow_disk_ms": 3_600_000}}))["id"]
    client, other = await api.leader_of(0), await api.leader_of(1)
    waiting = asyncio.ensure_future(client.ask(produce(0)._replace(acks=1), 7))
    shown = await api.get(f"/faults/{number}?hits=1")
    assert (shown["filter"], shown["effect"]) == (wanted, {"slow_disk_ms": 3_600_000})
    assert {key: shown["last"][0][key] for key in ("broker", "disk", "topic", "partition")} == wanted
    assert (await other.ask(produce(1), 7)).responses[0].partition_responses[0].error_code == 0
    beside = api.client(leader)
    assert (await beside.ask(METADATA, 7)).topics
    assert not waiting.done()
    await api.delete(f"/faults/{number}")
    assert (await waiting).responses[0].partition_responses[0].error_code == 0
    for each in (client, other, beside):
        await each.close()


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"filter": {"api": "Produce"}, "effect": {"slow_disk_ms": 5}}, "a slow disk is about operations of logs, which have no api"),
        ({"filter": {"direction": "response"}, "effect": {"slow_disk_ms": 5}}, "which have no direction"),
        ({"filter": {"partition": 1}, "effect": {"slow_disk_ms": 5}}, "a slow disk with a partition needs its topic"),
        ({"filter": {"disk": "flush"}, "effect": {"drop": True}}, "disk is about a slow disk"),
        ({"filter": {"log_dir": "here"}, "effect": {"slow_disk_ms": 5}}, "'here' is not an absolute path"),
        ({"filter": {"broker": 9}, "effect": {"slow_disk_ms": 5}}, "there is no broker 9"),
        ({"effect": {"slow_disk_ms": 0}}, "slow_disk_ms: from 1 to 3600000"),
        ({"effect": {"slow_disk_ms": 5, "delay_ms": 5}}, "cannot be combined"),
    ],
)
async def test_a_slow_disk_that_cannot_be_is_refused(api: Calls, body: dict[str, Any], reason: str) -> None:
    assert reason in await api.error("POST", "/faults", body)
    assert (await api.get("/faults"))["faults"] == []


async def test_reads_of_zookeeper_fail_or_are_late_and_the_broker_goes_on(api: Calls) -> None:
    where = {"paths": "/brokers/topics/read*", "when": "before"}
    failing = await api.post("/holds", {"phase": "ZooKeeperRead", "where": where, "count": 1, "fail": "ConnectionLost"})
    late = await api.post("/holds", {"phase": "ZooKeeperRead", "where": where | {"when": "after"}, "count": 1, "delay_ms": 5})
    assert (await api.post("/topics", {"name": "read", "partitions": 1, "replication_factor": 1}))["partitions"]
    for hold, own in ((failing, {"fail": "ConnectionLost", "delay_ms": None}), (late, {"fail": None, "delay_ms": 5})):
        shown = await api.get(f"/holds/{hold['id']}")
        assert (shown["hits"], shown["state"]) == (1, "released")
        assert {name: shown[name] for name in own} == own
    await api.delete("/topics/read")
    await api.delete("/holds")
    refused = {"phase": "DeletionPropagated", "fail": "RuntimeError"}
    assert "cannot fail" in await api.error("POST", "/holds", refused)
    assert "one of crash, fail and delay_ms" in await api.error("POST", "/holds", refused | {"crash": True})


async def has_error(api: Calls, broker: int) -> bool:
    """Whether a Metadata request of a client at this broker meets the fault."""
    client = api.client(broker)
    try:
        response = await client.ask(messages.MetadataRequest(topics=[messages.MetadataRequest.MetadataRequestTopic(name="t")]), 7)
        return bool(response.topics[0].error_code)
    finally:
        await client.close()


def fault_while(**condition: Any) -> dict[str, Any]:
    wanted = {"api": "Metadata", "client_id": "test*", "while": condition}
    return {"filter": wanted, "effect": {"error": "UNKNOWN_TOPIC_OR_PARTITION"}}


async def test_a_fault_acts_only_while_a_hold_holds_something(api: Calls) -> None:
    hold = await api.post("/holds", {"phase": "DeletionPropagated", "where": {"topic": "gone"}})
    faults = [
        (await api.post("/faults", fault_while(**condition)))["id"] for condition in ({"hold": hold["id"]}, {"phase": "DeletionPropagated"})
    ]
    shown = await api.get(f"/faults/{faults[0]}")
    assert shown["filter"]["while"] == {"hold": hold["id"]}
    await api.post("/topics", {"name": "gone", "partitions": 1, "replication_factor": 1})
    assert not await has_error(api, 1)
    controller = api.client((await api.get("/controller"))["id"])
    await controller.ask(requests.delete_topics("gone", version=5, timeout_ms=0), 5)
    await api.get(f"/holds/{hold['id']}?wait=reached")
    assert [await has_error(api, broker) for broker in (1, 2, 3)] == [True, True, True]
    await api.post(f"/holds/{hold['id']}/release")
    assert not await has_error(api, 2)
    assert [(await api.get(f"/faults/{number}"))["hits"] for number in faults] == [3, 3]
    assert (await api.get(f"/faults/{faults[0]}"))["matches"] == 3, "requests at other times do not match"
    await controller.close()


async def test_a_fault_acts_only_while_a_broker_is_down_or_the_controller_or_another_fault_exists(api: Calls) -> None:
    await api.post("/controller/move", {"to": 1})
    fault = (await api.post("/faults", fault_while(broker=3, state="paused")))["id"]
    assert not await has_error(api, 2)
    await api.post("/brokers/3/pause")
    assert await has_error(api, 2)
    await api.post("/brokers/3/resume")
    assert not await has_error(api, 2)
    await api.delete(f"/faults/{fault}")
    fault = (await api.post("/faults", fault_while(broker=2, state="controller")))["id"]
    assert not await has_error(api, 1)
    await api.post("/controller/move", {"to": 2})
    assert await has_error(api, 1)
    await api.post("/controller/move", {"to": 1})
    other = (await api.post("/faults", {"filter": {"client_id": "nobody"}, "effect": {"drop": True}}))["id"]
    await api.delete(f"/faults/{fault}")
    await api.post("/faults", fault_while(fault=other))
    assert await has_error(api, 1)
    await api.delete(f"/faults/{other}")
    assert not await has_error(api, 1)


@pytest.mark.parametrize(
    ("condition", "reason"),
    [
        ({}, "while has one of hold, phase, fault, broker"),
        ({"hold": 1, "fault": 2}, "not hold and fault"),
        ({"hold": 77}, "there is no hold 77: this fault would never act"),
        ({"fault": 77}, "there is no fault 77: this fault would never act"),
        ({"phase": "DeletionPropagate"}, "did you mean DeletionPropagated or"),
        ({"broker": 2}, "broker and state belong together"),
        ({"broker": 9, "state": "down"}, "there is no broker 9"),
        ({"broker": 2, "state": "gone"}, "gone"),
    ],
)
async def test_a_condition_that_cannot_hold_is_refused(api: Calls, condition: dict[str, Any], reason: str) -> None:
    assert reason in await api.error("POST", "/faults", fault_while(**condition))
    silent = {"filter": {"from_broker": 2, "while": {"broker": 2, "state": "paused"}}, "effect": {"drop": True}}
    assert "broker 2 does nothing while it is paused" in await api.error("POST", "/faults", silent)


async def test_events_are_sent_as_they_happen(api: Calls) -> None:
    async with api.session.get(f"{api.served.control_url}/events") as stream:
        await api.post("/holds", {"phase": "DeletionQueued", "where": {"topic": "none"}})
        fault = await api.post("/faults", {"filter": {"api": "Metadata"}, "effect": {"delay_ms": 1}})
        seen: dict[str, Any] = {}
        while seen.get("fault", {}).get("id") != fault["id"]:
            _, kind, data, _ = [(await stream.content.readline()).decode().strip() for _ in range(4)]
            seen[kind.removeprefix("event: ")] = json.loads(data.removeprefix("data: "))
        assert seen["fault"]["filter"]["api"] == "Metadata"
        assert (seen["hold"]["phase"], seen["hold"]["state"]) == ("DeletionQueued", "armed")


REFUSED = [
    ("POST", "/holds", {"phase": "DeletionQueed"}, 400, "did you mean DeletionQueued"),
    ("POST", "/holds", {"phase": "DeletionQueued", "where": {"topc": "t"}}, 400, "it has controller_epoch, topic"),
    ("POST", "/holds", {"phase": "DeletionQueued", "where": {"topic": 7}}, 400, "topic"),
    ("POST", "/holds", {"phase": "DeletionQueued", "count": 0}, 400, "at least 1"),
    ("POST", "/holds", {"phse": "DeletionQueued"}, 400, "phse"),
    ("POST", "/holds", {"phase": "BrokersFailed", "where": {"broker_ids": [2, 9]}}, 400, "there is no broker 9; the cluster has 1 to 3"),
    ("POST", "/holds", {"phase": "TransactionCompleted", "fail": "NOT_COORDINATOR"}, 400, "cannot fail"),
    ("GET", "/brokers/x", None, 404, "'x' is no id of a broker"),
    ("DELETE", "/topics/none", None, 404, "UNKNOWN_TOPIC_OR_PARTITION"),
    ("POST", "/topics", {"name": "a b"}, 400, "INVALID_TOPIC_EXCEPTION"),
    ("POST", "/topics", {"name": "odd", "configs": {"retention.mz": "1"}}, 400, "INVALID_CONFIG"),
    ("POST", "/topics", {"name": "odd", "replicas": [[1, 1]]}, 400, "INVALID_REPLICA_ASSIGNMENT"),
    ("POST", "/topics", {"name": "t"}, 409, "TOPIC_ALREADY_EXISTS"),
    ("POST", "/topics", {"name": "odd", "replication_factor": 9}, 409, "INVALID_REPLICATION_FACTOR"),
    ("GET", "/transactions/none", None, 404, "has transactional id"),
    ("POST", "/transactions/none/expire", None, 404, "has transactional id"),
    ("GET", "/holds/700", None, 404, "there is no hold 700"),
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
    ("GET", "/faults/700", None, 404, "there is no fault 700"),
    ("GET", "/requests?limit=0", None, 400, "limit"),
    ("GET", "/requests?api=Nope", None, 400, "there is no API"),
    ("GET", "/requests?error=NOT_LEADER", None, 400, "did you mean NOT_LEADER_OR_FOLLOWER?"),
    ("GET", "/requests?error=NONE", None, 400, "'any' is any error"),
    ("GET", "/requests?broker=7", None, 400, "there is no broker 7"),
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


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("--processes",)], ids=["one process", "processes"])
async def test_what_is_held_when_the_command_ends_goes_on_and_is_logged(
    zookeeper: str, tmp_path: Path, options: tuple[str, ...]
) -> None:
    command = serve(tmp_path, zookeeper, "--brokers", 2, *options)
    async with aiohttp.ClientSession() as session:
        api = Calls(session, served_by(command))
        await api.post("/holds", {"phase": "PartitionsAppeared"})
        making = asyncio.ensure_future(api.call("POST", "/topics", {"name": "held", "partitions": 1, "replication_factor": 1}))
        broker = (await api.get("/holds/1?wait=reached"))["at"]["broker"]
        command.signal(signal.SIGTERM)
        assert await asyncio.to_thread(command.ended) == 0
        making.cancel()
        await asyncio.wait([making])
    assert f"broker {broker} is held at PartitionsAppeared" in command.stderr
    assert "it goes on, since the cluster ends" in command.stderr


async def test_what_is_wrong_gets_one_line_and_changes_nothing(api: Calls) -> None:
    for method, path, body, status, text in REFUSED:
        assert text in await api.error(method, path, body, status), (method, path, body)
    assert "did you mean" not in await api.error("POST", "/zookeeper/delay", {"broker": 1, "delay_ms": 5}, 400)  # a field of other bodies
    async with api.session.post(f"{api.served.control_url}/faults", data=b"{") as response:
        assert response.status == 400 and "not JSON" in (await response.json())["error"]
    async with api.session.post(f"{api.served.control_url}/faults", data=b" " * (2 << 20)) as response:
        assert response.status == 413
    assert (await api.get("/faults"), await api.get("/holds")) == ({"faults": []}, {"holds": []})


async def test_a_fault_with_a_limit_hits_so_many_requests_of_all_brokers(api: Calls) -> None:
    fault = await api.post("/faults", {"filter": {"api": "Metadata", "client_id": "test"}, "effect": {"close": "before"}, "first": 2})
    for hits, broker in ((1, 1), (2, 2)):
        client = api.client(broker)
        with pytest.raises(ConnectionClosed):
            await client.ask(METADATA, 9)
        shown = await api.get(f"/faults/{fault['id']}?hits={hits}")
        assert (shown["hits"], shown["spent"]) == (hits, hits == 2)
    assert sorted(hit["broker"] for hit in shown["last"]) == [1, 2]  # clocks of processes may differ
    for broker in (1, 2, 3):
        client = api.client(broker)
        assert (await client.ask(METADATA, 9)).brokers
        await client.close()
    assert (await api.get(f"/faults/{fault['id']}"))["hits"] == 2


async def test_a_broker_that_reaches_the_phase_of_a_crash_is_killed_there_and_only_it(api: Calls) -> None:
    controller = (await api.get("/controller"))["id"]
    hold = await api.post("/holds", {"phase": "DeletionQueued", "where": {"topic": "crashing"}, "crash": True})
    client = api.client(controller)
    await client.ask(requests.create_topic("crashing", [[controller % 3 + 1]]), 7)
    asking = asyncio.ensure_future(client.ask(requests.delete_topics("crashing", version=5, timeout_ms=0), 5))
    await eventually_asked(lambda: has_state(api, controller, "killed"), "the controller is killed")
    await asyncio.gather(asking, return_exceptions=True)
    await eventually_asked(lambda: is_released(api, hold["id"]), "nothing is held by a broker that is dead")
    shown = await api.get(f"/holds/{hold['id']}")
    assert (shown["state"], shown["hits"], shown["held"]) == ("released", 1, [])
    assert [each["state"] for each in (await api.get("/brokers"))["brokers"] if each["id"] != controller] == ["running"] * 2
    await eventually_asked(lambda: is_gone(api, "crashing"), "the next controller goes on")
    await client.close()


async def test_what_a_broker_counted_is_there_after_its_end_although_nobody_looked(api: Calls) -> None:
    fault = await api.post("/faults", {"filter": {"api": "Metadata", "broker": 2}, "effect": {"delay_ms": 1}})
    client = api.client(2)
    await client.ask(METADATA, 9)
    await client.close()
    await api.post("/brokers/2/kill", {"expire": True})
    assert (await api.get(f"/faults/{fault['id']}"))["hits"] == 1
    await api.post("/brokers/2/start")
    crash = await api.post("/holds", {"phase": "ZooKeeperWrite", "where": {"paths": "/brokers/ids/2"}, "crash": True})
    client = api.client(2)
    await client.ask(METADATA, 9)
    await client.close()
    await api.post("/zookeeper/expire", {"broker": 2})
    await eventually_asked(lambda: has_state(api, 2, "killed"), "it is killed when it registers again")
    assert (await api.get(f"/holds/{crash['id']}"))["hits"] == 1
    assert (await api.get(f"/faults/{fault['id']}"))["hits"] == 2


async def test_the_first_that_is_held_is_what_was_reached_first(api: Calls) -> None:
    hold = await api.post("/holds", {"phase": "ZooKeeperWrite", "where": {"paths": ["/brokers/ids/2", "/brokers/ids/3"], "when": "before"}})
    for number, broker in enumerate((3, 2), 1):
        await api.post("/zookeeper/expire", {"broker": broker})
        await eventually_asked(lambda: has_held(api, hold["id"], number), "it registers again")  # noqa: B023
    assert [at["broker"] for at in (await api.get(f"/holds/{hold['id']}"))["held"]] == [3, 2]
    assert [at["broker"] for at in (await api.post(f"/holds/{hold['id']}/step"))["held"]][:1] == [2]


async def has_held(api: Calls, number: int, count: int) -> bool:
    return len((await api.get(f"/holds/{number}"))["held"]) == count


async def test_the_requests_of_all_brokers_are_listed_by_time_and_read_on(api: Calls) -> None:
    for broker in (2, 1, 3):
        client = api.client(broker)
        await client.ask(METADATA, 9)
        await client.close()
        await asyncio.sleep(0.002)  # numbers of processes are by the millisecond
    rows = (await api.get("/requests?client_id=test&api=Metadata&limit=3"))["requests"]
    assert [row["broker"] for row in rows] == [2, 1, 3]
    assert sorted(row["number"] for row in rows) == [row["number"] for row in rows]
    later = (await api.get(f"/requests?client_id=test&after={rows[1]['number']}"))["requests"]
    assert [row["number"] for row in later] == [rows[2]["number"]]
    (one,) = (await api.get("/requests?client_id=test&api=Metadata&limit=1&broker=2"))["requests"]
    assert one["number"] == rows[0]["number"]


async def test_topics_are_created_and_deleted_and_shown_by_each_broker(api: Calls) -> None:
    made = await api.post("/topics", {"name": "made", "partitions": 2, "replication_factor": 2})
    assert [sorted(row["brokers"]) for row in made["partitions"]] == [["1", "2", "3"]] * 2
    assert all(sum("role" in seen for seen in row["brokers"].values()) == 2 for row in made["partitions"])
    assert "TOPIC_ALREADY_EXISTS" in await api.error("POST", "/topics", {"name": "made"}, 409)
    grown = await api.post("/topics/made/partitions", {"partitions": 4, "replicas": [[3, 1], [1, 2]]})
    assert [row["replicas"] for row in grown["partitions"][2:]] == [[3, 1], [1, 2]]
    assert [sorted(row["brokers"]) for row in grown["partitions"]] == [["1", "2", "3"]] * 4
    assert all(row["leader"] > 0 for row in grown["partitions"])
    assert "INVALID_PARTITIONS" in await api.error("POST", "/topics/made/partitions", {"partitions": 4}, 409)
    assert "UNKNOWN_TOPIC_OR_PARTITION" in await api.error("POST", "/topics/none/partitions", {"partitions": 4}, 404)
    assert "partitions" in await api.error("POST", "/topics/made/partitions", {}, 400)
    await api.delete("/topics/made")
    assert await is_gone(api, "made")


async def test_a_topic_is_shown_while_the_controller_is_cut_off_from_zookeeper(api: Calls) -> None:
    """A broker that is connected reads it. A session that ends meanwhile is no fault of the API."""
    controller = (await api.get("/controller"))["id"]
    await api.post("/zookeeper/cut", {"broker": controller})
    assert [row["partition"] for row in (await api.get("/topics/t"))["partitions"]] == [0, 1]
    await api.post("/zookeeper/restore", {"broker": controller})


PROCESSES = pytest.mark.parametrize("served", ["processes"], indirect=True)


@PROCESSES
async def test_a_process_that_hangs_does_not_hang_the_api_and_learns_later_what_it_missed(api: Calls) -> None:
    pid = (await api.get("/brokers/2"))["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        shown = (await api.get("/brokers"))["brokers"]
        assert [each["state"] for each in shown] == ["running", "not responding", "running"]
        fault = await api.post("/faults", {"filter": {"api": "ApiVersions", "broker": 2}, "effect": {"close": "before"}})
        assert (await api.get("/holds"))["missing"] == [2]
        topic = await api.get("/topics/t")
        assert (topic["missing"], sorted(topic["partitions"][0]["brokers"])) == ([2], ["1", "3"])
    finally:
        os.kill(pid, signal.SIGCONT)
    await eventually_asked(lambda: has_state(api, 2, "running"), "it goes on")
    with pytest.raises(ConnectionClosed):
        await api.client(2).ask(messages.ApiVersionsRequest(), 0)
    assert "missing" not in await api.get(f"/faults/{fault['id']}?hits=1")


@PROCESSES
async def test_a_process_that_was_paused_while_the_controller_moved_takes_part_in_elections_again(api: Calls) -> None:
    """While the controller moves the other brokers are kept from the election; one that is paused then learns later that it is over."""
    controller = (await api.get("/controller"))["id"]
    target, other = controller % 3 + 1, (controller + 1) % 3 + 1
    hold = await api.post("/holds", {"phase": "ControllerElectionDue", "where": {"broker_id": target}, "count": 1})
    moving = asyncio.ensure_future(api.post("/controller/move", {"to": target}))
    await api.get(f"/holds/{hold['id']}?wait=reached")
    await api.post(f"/brokers/{other}/pause")
    await api.post(f"/holds/{hold['id']}/release")
    assert (await moving)["id"] == target
    epoch = (await api.post(f"/brokers/{other}/resume"))["epoch"]
    await api.post("/zookeeper/expire", {"broker": other})

    async def is_registered_again() -> bool:
        shown = await api.get(f"/brokers/{other}")
        return shown["state"] == "running" and shown["epoch"] > epoch

    await eventually_asked(is_registered_again, "it is registered in its new session")


@PROCESSES
async def test_a_paused_process_gets_the_holds_and_the_time_of_its_pause_when_it_goes_on(api: Calls) -> None:
    assert (await api.post("/brokers/3/pause"))["state"] == "paused"
    fault = await api.post("/faults", {"filter": {"api": "ApiVersions", "broker": 3}, "effect": {"delay_ms": 1}})
    assert (await api.get("/faults"))["missing"] == [3]
    assert "is paused" in await api.error("POST", "/zookeeper/cut", {"broker": 3}, 409)
    advanced = await api.post("/clock/advance", {"ms": 60_000})
    assert advanced["missing"] == [3]
    assert (await api.post("/brokers/3/resume"))["state"] == "running"
    client = api.client(3)
    await client.ask(messages.ApiVersionsRequest(), 0)
    (hit,) = (await api.get(f"/faults/{fault['id']}?hits=1"))["last"]
    assert datetime.fromisoformat(hit["at"]).timestamp() * 1000 > advanced["now_ms"] - 30_000, "its clock was moved too"
    await client.close()


@PROCESSES
async def test_a_killed_process_is_replaced_by_another_on_its_port_that_has_the_holds_and_faults(api: Calls) -> None:
    before = await api.get("/brokers/2")
    await api.post("/brokers/2/kill", {"expire": True})
    assert "does not run" in await api.error("POST", "/zookeeper/cut", {"broker": 2}, 409)
    fault = await api.post("/faults", {"filter": {"api": "ApiVersions", "broker": 2}, "effect": {"close": "before"}, "first": 1})
    after = await api.post("/brokers/2/start")
    assert (after["records_lost"], after["port"], after["pid"] == before["pid"]) == (True, before["port"], False)
    with pytest.raises(ConnectionClosed):
        await api.client(2).ask(messages.ApiVersionsRequest(), 0)
    assert (await api.get(f"/faults/{fault['id']}?hits=1"))["spent"]


@PROCESSES
async def test_a_process_that_somebody_else_kills_is_shown_and_can_be_started_again(api: Calls) -> None:
    os.kill((await api.get("/brokers/1"))["pid"], signal.SIGKILL)
    await eventually_asked(lambda: has_state(api, 1, "killed"), "its end is seen")
    assert (await api.post("/brokers/1/start"))["state"] == "running"


@PROCESSES
async def test_a_broker_that_starts_while_the_clock_is_frozen_has_the_same_time(api: Calls) -> None:
    await api.post("/clock/freeze")
    await api.post("/clock/advance", {"ms": 120_000})
    now_ms = (await api.get("/clock"))["now_ms"]
    await api.post("/brokers/3/restart")
    fault = await api.post("/faults", {"filter": {"api": "ApiVersions", "broker": 3}, "effect": {"close": "before"}})
    with pytest.raises(ConnectionClosed):
        await api.client(3).ask(messages.ApiVersionsRequest(), 0)
    (hit,) = (await api.get(f"/faults/{fault['id']}?hits=1"))["last"]
    assert abs(datetime.fromisoformat(hit["at"]).timestamp() * 1000 - now_ms) <= 2


async def test_a_broker_with_configs_of_its_own_is_added_as_a_process(zookeeper: str, tmp_path: Path) -> None:
    command = serve(tmp_path, zookeeper, "--processes", "--brokers", 1)
    try:
        async with aiohttp.ClientSession() as session:
            api = Calls(session, served_by(command))
            added = await api.post("/brokers", {"config": {"broker.rack": "b"}})
            assert (added["id"], added["rack"], added["state"]) == (2, "b", "running")
            assert [broker["rack"] for broker in (await api.get("/brokers"))["brokers"]] == [None, "b"]
            assert "listeners is set" in await api.error("POST", "/brokers", {"config": {"listeners": "PLAINTEXT://:1"}})
            assert "num.io.threads" in await api.error("POST", "/brokers", {"config": {"num.io.threads": "many"}})
            await api.post("/faults", {"filter": {"broker": 2, "api": "Metadata"}, "effect": {"delay_ms": 1}})
            assert len((await api.get("/brokers"))["brokers"]) == 2
    finally:
        command.kill()


async def test_a_broker_with_files_finds_its_records_after_it_was_killed(zookeeper: str, tmp_path: Path) -> None:
    command = serve(tmp_path, zookeeper, "--processes", "--brokers", 1, "--topic", "t", "--data-dir", tmp_path / "data")
    try:
        async with aiohttp.ClientSession() as session:
            api = Calls(session, served_by(command))
            client = api.client(1)
            await client.ask(produce(0), 9)
            (log_dir,) = (await api.get("/brokers/1"))["log_dirs"]
            slow, elsewhere = [
                (await api.post("/faults", {"filter": {"log_dir": path}, "effect": {"slow_disk_ms": 3_600_000}, "first": 1}))["id"]
                for path in (log_dir, f"{log_dir}/other")
            ]
            waiting = asyncio.ensure_future(client.ask(produce(0), 9))
            assert (await api.get(f"/faults/{slow}?hits=1"))["last"][0]["disk"] == "append"
            assert not waiting.done()
            await api.delete(f"/faults/{slow}")
            await waiting
            assert (await api.get(f"/faults/{elsewhere}"))["hits"] == 0
            await api.post("/brokers/1/kill", {"expire": True})
            assert (await api.post("/brokers/1/start"))["records_lost"] is False
            assert (await api.get("/topics/t"))["partitions"][0]["brokers"]["1"]["log_end_offset"] == 2
            assert (await api.post("/brokers/1/restart", {"lose_log": True}))["records_lost"] is True
            assert (await api.get("/topics/t"))["partitions"][0]["brokers"]["1"]["log_end_offset"] == 0
            await client.close()
    finally:
        command.kill()
