"""Stored configs of users, clients and addresses as a broker follows them: at its start, and at each notification."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from klamm.configs.broker_config import BrokerConfig
from klamm.seams.clock import SYSTEM_CLOCK
from klamm.server.configs.dynamic_configs import DynamicConfigs
from klamm.server.ground.background import BackgroundTasks
from klamm.server.lifecycle.quota_configs import QuotaConfigs
from klamm.server.listeners.connection_limits import ConnectionLimits
from klamm.server.requests.quotas import ClientQuotas
from klamm.tests.harness.waits import eventually
from klamm.tests.services import broker_config
from klamm.zk.admin import AdminZk
from klamm.zk.layout import znodes as layout
from klamm.zk.session.session import ZkSession


class Follower:
    """What a broker does with the configs of a tree, as far as they are quotas."""

    def __init__(self, session: ZkSession) -> None:
        config: BrokerConfig = broker_config()
        self.background = BackgroundTasks()
        self.quotas = ClientQuotas(config, SYSTEM_CLOCK)
        self.limits = ConnectionLimits()
        self.apply = QuotaConfigs(self.quotas, self.limits, self.background)
        self.configs = DynamicConfigs(config, 1, AdminZk(session), self.background.start)
        self.configs.listen(self._changed)

    def _changed(self, kind: str, name: str, properties: Mapping[str, str], changed: frozenset[str]) -> None:
        self.apply(kind, name, properties)

    def bound(self, user: str, client: str) -> Any:
        """What counts for a producer."""
        found = None if self.quotas.enforced is None else self.quotas.enforced.produced.bounds.find(user, client)
        return None if found is None else found[1]

    def limit(self, address: str) -> int | None:
        rates = self.limits.address_rates
        return None if rates is None else rates.limits.get(address, rates.default)


@pytest.fixture
async def store(zk_session: ZkSession) -> AdminZk:
    """Of a tree with a controller."""
    await zk_session.create("/controller", layout.encode_controller(1, 0), ephemeral=True)
    return AdminZk(zk_session)


async def test_what_is_stored_counts_from_the_start_on(zk_session: ZkSession, store: AdminZk) -> None:
    for kind, name, rate in (
        ("users", "al%20ice", 1), ("users", "al%20ice/clients/c", 2), ("users", "<default>/clients/<default>", 3), ("clients", "c", 4),
    ):
        await store.write_config(kind, name, {"producer_byte_rate": str(rate)})
    await store.write_config("ips", "<default>", {"connection_creation_rate": "5"})
    await store.write_config("ips", "127.0.0.9", {"connection_creation_rate": "6"})
    for number, _ in await store.config_changes(-1):
        await zk_session.delete(f"/config/changes/config_change_{number:010d}")
    follower = Follower(zk_session)
    await follower.configs.start()
    assert [follower.bound("al%20ice", client) for client in ("c", "d")] == [2, 1]
    assert follower.bound("bob", "c") == 3
    assert [follower.limit(address) for address in ("127.0.0.9", "127.0.0.8")] == [6, 5]
    await follower.background.close()


async def test_each_notification_counts(zk_session: ZkSession, store: AdminZk) -> None:
    follower = Follower(zk_session)
    await follower.configs.start()
    assert follower.quotas.enforced is None
    await store.write_config("users", "alice/clients/c", {"producer_byte_rate": "7"})
    await eventually(lambda: follower.bound("alice", "c") == 7, "the quota is set")
    await store.write_config("users", "alice/clients/c", {})
    await eventually(lambda: follower.quotas.enforced is None, "the quota is removed")
    await store.write_config("ips", "localhost", {"connection_creation_rate": "8"})
    await eventually(lambda: follower.limits.address_rates is not None, "the name is resolved")
    assert 8 in {follower.limit("127.0.0.1"), follower.limit("::1")}
    await store.write_config("ips", "localhost", {})
    await eventually(lambda: follower.limits.address_rates is None, "the limit is removed")
    await follower.background.close()


async def test_what_cannot_be_used_is_logged_and_changes_nothing(zk_session: ZkSession, caplog: pytest.LogCaptureFixture) -> None:
    follower = Follower(zk_session)
    follower.apply("clients", "c", {"producer_byte_rate": "5"})
    follower.apply("clients", "c", {"producer_byte_rate": "many"})
    follower.apply("ips", "127.0.0.9", {"connection_creation_rate": "5"})
    follower.apply("ips", "127.0.0.9", {"connection_creation_rate": "-1"})
    follower.apply("ips", "no-such-host.invalid", {"connection_creation_rate": "5"})
    await asyncio.gather(*follower.background._tasks)
    assert (follower.bound("u", "c"), follower.limit("127.0.0.9")) == (5, 5)
    texts = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert ["clients/c" in texts[0], "ips/127.0.0.9" in texts[1], "ips/no-such-host.invalid" in texts[2]] == [True] * 3
