"""What `POST /reset` does and says, leaders in recovery, and the states of brokers that ended in other ways than by the API."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from klamm.control.state import View
from klamm.protocol import messages
from klamm.server.local.shown import controller_of
from klamm.testing import AsyncCluster, WaitTimedOut
from klamm.tests.control.api import CONFIG, served
from klamm.tests.harness import requests
from klamm.tests.harness.waits import eventually, eventually_asked


async def test_a_reset_says_what_it_did_and_what_stays(zookeeper: str, chroot: str) -> None:
    async with served(zookeeper, chroot) as api:
        await api.post("/faults", {"effect": {"delay_ms": 1}})
        await api.post("/holds", {"phase": "BrokersFailed", "where": {"broker_ids": [2]}})
        await api.post("/brokers/2/stop")
        broker = api.cluster.brokers[0]
        cluster_id = broker.cluster_id
        assert await api.post("/cluster-id", {"id": "another"}) == {"shown": "another"}
        assert broker.cluster_id == "another"
        assert await api.post("/reset") == {"faults": 1, "holds": 1, "started": [2], "undone": [], "added": []}
        assert broker.cluster_id == cluster_id
        await broker.admin_zk.write_config("clients", "shop", {"producer_byte_rate": "1"})
        await broker.admin_zk.write_config("brokers", "1", {"log.cleaner.threads": "2"})
        assert (await api.post("/brokers"))["id"] == 3
        done = await api.post("/reset")
        assert (done["undone"], done["added"]) == (["brokers/1", "clients/shop"], [3])
        assert await broker.admin_zk.quota_entities() == []
        assert (await api.post("/reset"))["undone"] == []


async def test_a_reset_waits_for_a_coordinator_that_loads_and_says_what_is_missing(
    zookeeper: str, chroot: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("klamm.control.wholeness.WHOLE_S", 0.2)
    async with served(zookeeper, chroot) as api:
        group = messages.FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
        client = api.client(1)
        await client.ask(group, 4)
        coordinators = [broker.services.groups.partitions for broker in api.cluster.brokers]
        await eventually(lambda: any(list(each.loaded()) for each in coordinators), "a coordinator is loaded")
        owned = next(owned for each in coordinators for owned in each._owned.values())
        owned.is_loaded = False
        text = await api.error("POST", "/reset", status=408)
        assert "the cluster is not whole within 0.2 s" in text
        assert "loads groups" in text
        owned.is_loaded = True
        await api.post("/reset")
        await client.close()


async def test_a_leader_in_recovery_is_listed_and_released(zookeeper: str, chroot: str) -> None:
    config = CONFIG | {"unclean.leader.election.enable": "true", "kip704.recovery.mode": "manual", "replica.lag.time.max.ms": "500"}
    async with served(zookeeper, chroot, brokers=3, config=config) as api:
        client = api.client(api.cluster.controller_id)
        await client.ask(requests.create_topic("u", [[2, 3]]), 7)
        await eventually(lambda: api.cluster.brokers[0].metadata.contains("u"), "the topic is there")
        await api.post("/brokers/3/kill", {"expire": True})
        await eventually(lambda: tuple(api.cluster.brokers[0].metadata.topics["u"].partitions[0].isr) == (2,), "the ISR shrinks")
        await api.post("/brokers/2/kill", {"expire": True})
        await api.post("/brokers/3/start")

        async def is_waiting() -> bool:
            return bool((await api.get("/recovering"))["recovering"])

        await eventually_asked(is_waiting, "the leader waits in recovery")
        waiting = (await api.get("/recovering"))["recovering"]
        assert [(row["topic"], row["partition"], row["broker"]) for row in waiting] == [("u", 0, 3)]
        assert "needs its topic" in await api.error("POST", "/recovering/release", {"partition": 0})
        assert (await api.post("/recovering/release", {"topic": "other"}))["released"] == []
        assert (await api.post("/recovering/release", {"topic": "u"}))["released"] == waiting
        assert (await api.get("/recovering"))["recovering"] == []
        await client.close()


async def test_a_broker_that_is_paused_killed_by_the_system_and_started_runs(zookeeper: str, chroot: str) -> None:
    async with served(zookeeper, chroot) as api:
        await api.post("/brokers/2/pause")
        await api.cluster.crash_broker(2, expire=True)
        assert (await api.post("/brokers/2/start"))["state"] == "running"
        assert (await api.get("/brokers/2"))["state"] == "running"


async def test_a_controller_that_does_not_know_that_it_is_one_is_none() -> None:
    view = View(2, False, True, set(), set(), False, False, False, 0, False)
    assert controller_of({1: view, 2: view}) == -1
    assert controller_of({1: view, 2: replace(view, is_controller=True)}) == 2


async def test_a_crash_is_not_over_while_its_broker_is_being_killed(
    zookeeper: str, chroot: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served(zookeeper, chroot, brokers=3) as api:
        real, may_end = api.cluster.crash_broker, asyncio.Event()

        async def late(*arguments: Any, **named: Any) -> None:
            await may_end.wait()
            await real(*arguments, **named)

        monkeypatch.setattr(api.cluster, "crash_broker", late)
        cluster = AsyncCluster(api.cluster)
        crash = cluster.crash_after("PartitionsAppeared")
        client = api.client(api.cluster.controller_id)
        await client.ask(requests.create_topic("c", [[1]], timeout_ms=0), 7)
        await eventually(lambda: crash.hits == 1, "the phase is reached")
        with pytest.raises(WaitTimedOut):
            await crash.wait(timeout_s=0.05)
        may_end.set()
        await crash.wait()
        assert len(api.cluster.brokers) == 2
        await client.close()
