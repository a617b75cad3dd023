"""The versions that a store tells of what it has written, and that a journal shows, are those that ZooKeeper answered."""

from __future__ import annotations

from typing import Any

import pytest

from klamm.controller.values import ConfigEntity, ConfigWrite, LeaderAndIsr, StateWrite, TopicWrite, WriteOutcome
from klamm.protocol.nouns import TopicPartition
from klamm.server.journal.journaled_store import JournaledStore
from klamm.server.journal.journaling import ControllerJournal
from klamm.tests.journal.recorded import RecordedJournal, RecordedRow
from klamm.tests.zk.labs import Lab, Seat
from klamm.zk.session.requests import ConnectionLost

ANY_VERSION = -1
TOPIC_ID = bytes(range(16))
STATE = LeaderAndIsr(1, 0, (1, 2), controller_epoch=1)
NEXT = STATE._replace(leader_epoch=1)


@pytest.fixture
async def office(lab: Lab) -> Seat:
    await lab.create_topic("t", {0: (1, 2), 1: (1, 2)}, TOPIC_ID)
    seat = await lab.seat()
    await seat.store.register_controller(1, 1_700_000_000_000)
    await seat.store.create_states([StateWrite("t", index, STATE, -1) for index in (0, 1)])
    return seat


def journaled(office: Seat) -> tuple[JournaledStore, RecordedJournal]:
    journal = RecordedJournal()
    return JournaledStore(office.store, ControllerJournal(journal, 1, "3.9")), journal


def row(journal: RecordedJournal, path: str) -> RecordedRow:
    return [row for row in journal.of("zk_write") if row.input["path"] == path][-1]


async def test_a_version_that_another_writer_has_raised_shows(lab: Lab, office: Seat) -> None:
    store, journal = journaled(office)
    for _ in range(2):
        await lab.overwrite_state(TopicPartition("t", 0), STATE)
    assert await store.write_states([StateWrite("t", 0, NEXT, ANY_VERSION), StateWrite("t", 1, NEXT, 0)]) == [WriteOutcome.OK] * 2
    raised, plain = (row(journal, f"/brokers/topics/t/partitions/{index}/state") for index in (0, 1))
    assert raised.output == {"outcome": "OK", "version": 3} and raised.columns["partition_epoch"] == 3
    assert plain.output == {"outcome": "OK", "version": 1} and plain.columns["partition_epoch"] == 1


async def test_a_write_that_is_refused_has_no_version(lab: Lab, office: Seat) -> None:
    store, journal = journaled(office)
    await lab.overwrite_state(TopicPartition("t", 0), STATE)
    assert await store.write_states([StateWrite("t", 0, NEXT, 0), StateWrite("t", 7, NEXT, 0)]) == [
        WriteOutcome.BAD_VERSION, WriteOutcome.NO_NODE
    ]
    refused, missing = journal.of("zk_write")
    assert refused.output == {"outcome": "BAD_VERSION", "version": None} and "partition_epoch" not in refused.columns
    assert missing.output == {"outcome": "NO_NODE", "version": None}


async def test_topics_and_configs_show_the_version_that_they_have(lab: Lab, office: Seat) -> None:
    store, journal = journaled(office)
    await lab.grow_topic("t", {2: (1,)})
    assert await store.write_topics([TopicWrite("t", TOPIC_ID, {})]) == [WriteOutcome.OK]
    entity = ConfigEntity("topics", "t")
    for expected in (-1, 0):
        assert await store.write_configs([ConfigWrite(entity, {"retention.ms": str(expected)}, expected)]) == [WriteOutcome.OK]
    assert row(journal, "/brokers/topics/t").output["version"] == 2
    assert [row.output["version"] for row in journal.of("zk_write") if row.input["path"] == "/config/topics/t"] == [0, 1]


async def test_the_version_of_a_write_whose_answer_was_lost_is_the_one_that_was_read(lab: Lab, office: Seat) -> None:
    class LosesTheFirst:
        lost = 0

        def before(self, number: int, request: Any) -> None: ...

        def after(self, number: int, request: Any) -> None:
            if not self.lost:
                self.lost = number
                raise ConnectionLost

    store, journal = journaled(office)
    office.session.write_hook = LosesTheFirst()
    assert await store.write_states([StateWrite("t", 0, NEXT, 0)]) == [WriteOutcome.OK]
    assert row(journal, "/brokers/topics/t/partitions/0/state").output == {"outcome": "OK", "version": 1}


async def test_what_nobody_looks_at_does_not_pile_up(office: Seat) -> None:
    """Parents of states, and notifications, have no row of their own."""
    store, _ = journaled(office)
    await store.create_states([StateWrite("t", index, STATE, -1) for index in range(2, 50)])
    await store.write_throttled_rates_removal([1])
    await store.delete_throttled_rates_removal()
    assert office.store.follow_versions() == {}
