"""`preferred_leader_blacklist` (KIP-491) as the controller knows it: read at fail-over, read again at each notification."""

from __future__ import annotations

import pytest

from klamm.controller import events
from klamm.controller.values import DEFAULT_BROKER, ConfigEntity
from klamm.tests.controller.stage import Stage

LIST = "preferred_leader_blacklist"


@pytest.mark.requirement("R491-5")
async def test_a_new_controller_knows_the_list_before_its_first_election(stage: Stage) -> None:
    stage.world.broker_configs["<default>"] = {LIST: "1"}
    await stage.open(2, 3)
    assert stage.cluster.listed == {1}
    await stage.fail_over()
    assert stage.cluster.listed == {1}


@pytest.mark.requirement("R491-5")
async def test_the_list_is_read_at_each_notification_and_a_late_one_does_not_set_it_back(stage: Stage) -> None:
    await stage.open(1, 2)
    await stage.blacklist(1, 5)
    stage.world.broker_configs["<default>"] = {LIST: "2"}
    await stage.put(events.ConfigsChanged(DEFAULT_BROKER))
    await stage.put(events.ConfigsChanged(DEFAULT_BROKER))  # of the first change, late
    assert stage.cluster.listed == {2}


async def test_notifications_that_wait_together_are_one_read(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    await stage.open(1)
    reads = []
    read_configs = stage.store.read_configs

    async def counted(entities: list[ConfigEntity]) -> object:
        reads.append(list(entities))
        return await read_configs(entities)

    monkeypatch.setattr(stage.store, "read_configs", counted)
    for entity in (ConfigEntity("topics", "t"), DEFAULT_BROKER, ConfigEntity("brokers", "9"), DEFAULT_BROKER):
        stage.controller.put(events.ConfigsChanged(entity))
    await stage.settle()
    assert reads == [[ConfigEntity("topics", "t"), DEFAULT_BROKER, ConfigEntity("brokers", "9")]]


@pytest.mark.requirement("R491-6")
async def test_a_list_that_changes_writes_and_sends_nothing(stage: Stage) -> None:
    await stage.open(1, 2, 3)
    await stage.create("t", (1, 2, 3))
    mark = stage.mark()
    await stage.blacklist(1)
    await stage.blacklist()
    assert stage.since(mark) == [] and stage.state("t") == "1 e0 [1, 2, 3] v0"


async def test_a_stored_list_that_is_not_valid_counts_as_none_and_one_that_cannot_be_read_as_unchanged(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    await stage.open(1)
    await stage.blacklist(1)
    stage.world.zk.nodes["/config/brokers/<default>"].data = b'{"version":1,"config":{"a":1}}'
    await stage.put(events.ConfigsChanged(DEFAULT_BROKER))
    assert stage.cluster.listed == {1} and "stay on the blacklist" in caplog.text
    stage.world.broker_configs["<default>"] = {LIST: "1,x"}
    await stage.put(events.ConfigsChanged(DEFAULT_BROKER))
    assert stage.cluster.listed == set() and "'x' is not the id of a broker" in caplog.text


async def test_with_kip491_off_nothing_is_read_and_nobody_is_listed() -> None:
    stage = Stage(kip491_enable=False)
    stage.world.broker_configs["<default>"] = {LIST: "1"}
    await stage.open(1)
    await stage.put(events.ConfigsChanged(DEFAULT_BROKER))
    assert stage.cluster.listed == set()
    await stage.close()
