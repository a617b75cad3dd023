"""How long the recovery of a leader takes, with a driven clock (KIP-704)."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from klamm.broker.recovery import Recovery
from klamm.protocol.nouns import TopicPartition
from klamm.tests.server.groups.coordinating_broker import CoordinatingBroker, T
from klamm.tests.server.recoveries.recovering import Recoveries


@pytest.fixture
async def broker() -> AsyncIterator[CoordinatingBroker]:
    broker = CoordinatingBroker()
    yield broker
    await broker.close()


async def elect(broker: CoordinatingBroker, epoch: int, leader: int = 1) -> None:
    broker.lead(leader=leader, epoch=epoch, topic=T.topic, recovery=1)
    await broker.settle()


@pytest.mark.requirement("R704-12", "R704-14")
async def test_a_delay_counts_from_the_beginning_of_the_recovery_whatever_epochs_the_same_leader_has(broker: CoordinatingBroker) -> None:
    recoveries = Recoveries(broker, "delay:9000")
    await elect(broker, 2)
    await broker.advance(3)
    await elect(broker, 3)
    await broker.advance(5.9)
    await elect(broker, 4)
    assert recoveries.proposals == []
    await broker.advance(0.2)
    assert [proposal.leader_epoch for proposal in recoveries.proposals] == [4]


@pytest.mark.requirement("R704-12", "R704-14")
async def test_a_delay_begins_again_when_another_broker_has_led_in_between(broker: CoordinatingBroker) -> None:
    recoveries = Recoveries(broker, "delay:9000")
    await elect(broker, 2)
    await broker.advance(8)
    await elect(broker, 3, leader=2)
    await elect(broker, 4)
    await broker.advance(8.9)
    assert recoveries.proposals == []
    await broker.advance(0.2)
    assert [proposal.leader_epoch for proposal in recoveries.proposals] == [4]


async def test_a_delay_begins_again_for_the_next_unclean_election_after_a_recovery(broker: CoordinatingBroker) -> None:
    recoveries = Recoveries(broker, "delay:1000")
    await elect(broker, 2)
    await broker.advance(1.1)
    await recoveries.confirm()
    await elect(broker, 4)
    await broker.advance(0.9)
    assert recoveries.proposals == []
    await broker.advance(0.2)
    assert [proposal.leader_epoch for proposal in recoveries.proposals] == [4]


@pytest.mark.requirement("R704-14")
async def test_a_recovery_that_waits_to_be_released_is_listed_in_its_present_epoch_only(broker: CoordinatingBroker) -> None:
    recoveries = Recoveries(broker, "manual")
    await elect(broker, 2)
    await elect(broker, 3)
    assert recoveries.gate.waiting == [Recovery(1, TopicPartition(*T), 3)]
    await elect(broker, 4, leader=2)
    assert recoveries.gate.waiting == []
