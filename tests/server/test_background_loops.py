"""Every loop of a broker that runs in the background outlives an exception of its body: it is logged, and the next turn comes."""

from __future__ import annotations

import asyncio
import inspect
import random
from collections.abc import AsyncIterator, Coroutine, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from klamm.broker.log import compaction
from klamm.broker.log.manager import LogManager
from klamm.broker.log.memory import MemoryBudget
from klamm.broker.replication_quotas import LEADER_REPLICAS, ReplicationQuota, ReplicationQuotas
from klamm.broker.transactions.requests import SendMarkers
from klamm.controller.values import BrokerState
from klamm.protocol.errors import ErrorCode
from klamm.protocol.nouns import TopicPartition
from klamm.server.ground.background import BackgroundTasks
from klamm.server.ground.identity import BrokerIdentity
from klamm.server.lifecycle.disks import ANNOUNCE_AGAIN_S, Disks
from klamm.server.lifecycle.session_handler import SessionHandler
from klamm.server.local.driven_clock import DrivenClock
from klamm.server.replication.throttle_configs import RETRY_S, ThrottleConfigs
from klamm.server.request_registration.client import RegistrationClient, RegistrationOptions
from klamm.server.security.delegation_tokens import DelegationTokens
from klamm.server.transactions.transaction_coordinator import TRANSACTION_TOPIC
from klamm.tests.harness.waits import eventually
from klamm.tests.server.transactions.transaction_broker import TransactionBroker
from klamm.tests.services import broker_config, no_topic_configs
from klamm.zk.session.session import SessionChange, ZkSession


class Loop(NamedTuple):
    """A loop, where its body is, and how often the body runs at most (s)."""

    run: Coroutine[Any, Any, None]
    owner: Any
    body: str
    interval_s: float
    clock: DrivenClock


@pytest.fixture
async def broker() -> AsyncIterator[TransactionBroker]:
    broker = TransactionBroker()
    await broker.start()
    await broker.led()
    await broker.coordinate()
    yield broker
    await broker.close()


def logs(clock: DrivenClock) -> LogManager:
    return LogManager(broker_config(1), clock, MemoryBudget(), random.Random(0).randrange, no_topic_configs)


class Finder:
    """Finds no controller."""

    endpoint, controller_id, lacks = None, -1, None

    async def look(self) -> None:
        return None

    def forget(self) -> None:
        pass


def registration(clock: DrivenClock, finder: Any) -> RegistrationClient:
    """The client of a broker that serves, and whose lease has ended."""

    async def stored() -> None:
        return None

    identity, options = BrokerIdentity(1, "cluster", 5), RegistrationOptions.of(broker_config(1))
    client = RegistrationClient(identity, options, lambda: (), finder, stored, lambda _: None, None, clock)
    client.own.state = BrokerState.ONLINE
    return client


def tokens(clock: DrivenClock) -> DelegationTokens:
    config, session = broker_config(1, delegation_token_expiry_check_interval_ms=1000), ZkSession("127.0.0.1:1", 1000)
    return DelegationTokens(config, "secret", session, clock)


def find(name: str, broker: TransactionBroker) -> Loop:
    groups, coordinator, clock = broker.groups, broker.coordinator, broker.clock
    match name:
        case "expiry of offsets":
            return Loop(groups.expire_offsets(), groups.partitions.get(0), "expire", groups.options.retention_check_ms / 1000, clock)
        case "transactions over time":
            state = coordinator.partitions.get(0)
            return Loop(coordinator.abort_timed_out(), state, "abort_timed_out", coordinator.options.abort_check_ms / 1000, clock)
        case "expiry of ids":
            state = coordinator.partitions.get(0)
            return Loop(coordinator.expire_ids(), state, "expire", coordinator.options.expiry_check_ms / 1000, clock)
        case "check of followers":
            leaders = broker.replicas.leaders
            return Loop(leaders.run(), leaders, "check_followers", leaders.max_lag_ms / 1000, clock)
        case "cleaner":
            own = DrivenClock()
            return Loop(logs(own).run(), compaction, "choose", 60, own)
        case "checkpoints":
            own = DrivenClock()
            made = logs(own)
            made._memory = object()  # type: ignore[assignment] # so that it has checkpoints to write
            return Loop(made.run(), made, "_write_changed_checkpoints", 60, own)
        case "delegation tokens":
            own = DrivenClock()
            known = tokens(own)
            return Loop(known.delete_expired(lambda: True), known, "_delete_expired", 1, own)
        case "registration":
            own, finder = DrivenClock(), Finder()
            return Loop(registration(own, finder)._run(), finder, "look", 1, own)
        case "look at the own registration":
            own = DrivenClock()
            client = registration(own, Finder())
            return Loop(client._look(), client, "_stored", client.own.notice_s, own)
        case _:
            raise AssertionError(name)


@pytest.mark.parametrize(
    "name",
    [
        "expiry of offsets", "transactions over time", "expiry of ids", "check of followers", "cleaner", "checkpoints",
        "delegation tokens", "registration", "look at the own registration",
    ],
)
async def test_a_loop_outlives_an_exception_of_its_body(
    name: str, broker: TransactionBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    if name == "expiry of ids":
        await broker.replicas.open_log(broker.replicas.replica(TRANSACTION_TOPIC, 0))
    loop, calls = find(name, broker), list[int]()

    def fail_once(*arguments: object) -> None:
        calls.append(1)
        if len(calls) == 1:
            raise RuntimeError("a fault of the body")

    async def fail_once_there(*arguments: object) -> None:
        fail_once()

    waits = inspect.iscoroutinefunction(getattr(loop.owner, loop.body))
    monkeypatch.setattr(loop.owner, loop.body, fail_once_there if waits else fail_once)
    task = asyncio.get_running_loop().create_task(loop.run)
    await broker.settle()
    for _ in range(3):
        await loop.clock.advance(loop.interval_s + 30, broker.settle)
    assert len(calls) >= 2
    assert not task.done()
    assert [str(each.exc_info[1]) for each in caplog.records if each.exc_info] == ["a fault of the body"]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_markers_whose_writing_fails_are_reported_and_sent_again(
    broker: TransactionBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*arguments: object) -> None:
        raise RuntimeError("a fault")

    sender = broker.coordinator.sender
    monkeypatch.setattr(sender._writer, "write", fail)
    reports: list[dict[TopicPartition, ErrorCode]] = []
    own = TopicPartition(TRANSACTION_TOPIC, 0)
    sender.send(SendMarkers("x", 1, 0, 1, True, (own,)), lambda _, results: reports.append(dict(results)))
    await broker.settle()
    assert reports == [{own: ErrorCode.NETWORK_EXCEPTION}]




class Once:
    """Fails at the first call."""

    def __init__(self) -> None:
        self.calls = 0

    async def __call__(self, *arguments: object) -> Any:
        self.calls += 1
        if self.calls == 1:
            raise RuntimeError("a fault of the body")
        return ()


async def test_a_failed_log_directory_is_announced_after_an_exception(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock, announced = DrivenClock(), Once()
    disks = Disks(broker_config(1, log_dirs=tmp_path), clock, random.Random(0).getrandbits, ReplicationQuota(11, 1, clock))
    admin: Any = SimpleNamespace(announce_log_dir_failure=announced)
    announcing = asyncio.ensure_future(disks.announce(1, admin))
    await asyncio.sleep(0)
    await clock.advance(ANNOUNCE_AGAIN_S)
    await announcing
    assert announced.calls == 2
    assert "a fault of the body" in caplog.text
    await disks.close()


async def test_the_lists_of_throttled_replicas_are_read_after_an_exception(caplog: pytest.LogCaptureFixture) -> None:
    clock, background, read = DrivenClock(), BackgroundTasks(), Once()
    quotas = ReplicationQuotas(1, broker_config(1).get, clock)
    quotas.leader.limit(1000)

    async def lists(names: Sequence[str]) -> list[dict[str, str]]:
        await read()
        return [{LEADER_REPLICAS: "*"}]

    async def topics() -> list[str]:
        return ["t"]

    quotas.set_rates = lambda: None  # type: ignore[method-assign] # the rate above stays
    configs = ThrottleConfigs(quotas, topics, lists, background, clock)
    configs("brokers", "1", {})
    await eventually(lambda: read.calls == 1, "the first attempt")
    await clock.advance(RETRY_S)
    await eventually(lambda: quotas.leader.is_throttled("t", 0), "the list is known")
    assert "a fault of the body" in caplog.text
    await background.close()


async def test_a_new_session_counts_also_if_the_end_of_the_former_one_failed(caplog: pytest.LogCaptureFixture) -> None:
    background, done = BackgroundTasks(), list[str]()

    async def look() -> None:
        done.append("configs")

    controller: Any = SimpleNamespace(expire=Once(), new_session=lambda: done.append("controller"))
    registration: Any = SimpleNamespace(session_expired=lambda: done.append("expired"))
    configs: Any = SimpleNamespace(look=look)
    handler = SessionHandler(1, controller, registration, configs, None, background)
    handler.on_change(SessionChange.EXPIRED)
    handler.on_change(SessionChange.NEW_SESSION)
    await eventually(lambda: "configs" in done, "the new session has begun")
    assert done == ["expired", "controller", "configs"]
    assert "a fault of the body" in caplog.text
    await background.close()
