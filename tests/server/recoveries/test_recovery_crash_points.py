"""A recovery that is cut off at any of its steps, by the death of its leader or of the coordinator, has the same end as one that is not."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from klamm.broker.transactions.phases import (
    PartitionRecovered,
    PendingTransactionDecided,
    PendingTransactionEnded,
    TransactionEndPrepared,
    TransactionTimedOut,
)
from klamm.protocol.errors import ErrorCode as E
from klamm.seams.steering import Steering
from klamm.server.transactions.transaction_coordinator import TRANSACTION_TOPIC
from klamm.tests.server.recoveries.recovering_broker import TRANSACTIONS, RecoveringBroker
from klamm.tests.server.transactions.transaction_broker import FIRST, LEADERS, OWN

Step = Callable[[RecoveringBroker, Steering], Awaitable[None]]


@pytest.fixture
async def steering() -> Steering:
    return Steering()


@pytest.fixture
async def broker(steering: Steering) -> AsyncIterator[RecoveringBroker]:
    broker = RecoveringBroker(steering=steering)
    await broker.start()
    await broker.coordinate()
    yield broker
    steering.release()
    await broker.close()


# --- what is open when the leader is elected; whether it is committed in the end


async def committed(broker: RecoveringBroker) -> None:
    await broker.begun(OWN)
    await broker.produce()
    assert await broker.end() is E.NONE
    broker.lose_marker()


async def aborted(broker: RecoveringBroker) -> None:
    await broker.begun(OWN)
    await broker.produce()
    assert await broker.end(is_commit=False) is E.NONE
    broker.lose_marker()


async def ongoing(broker: RecoveringBroker) -> None:
    await broker.begun(OWN, FIRST)
    await broker.produce()


async def prepared(broker: RecoveringBroker) -> None:
    """Committed, and the marker for another partition is not written."""
    await broker.begun(OWN, FIRST)
    await broker.produce()
    assert await broker.end() is E.NONE
    broker.lose_marker()


SCENES: dict[Callable[[RecoveringBroker], Awaitable[None]], bool] = {committed: True, aborted: False, ongoing: False, prepared: True}


# --- how far the recovery comes


async def waits(broker: RecoveringBroker, steering: Steering) -> None:
    broker.recoveries.process.set_mode("manual")
    await broker.elect()
    assert broker.recoveries.gate.waiting


async def asks(broker: RecoveringBroker, steering: Steering) -> None:
    broker.publish(LEADERS | {TRANSACTIONS: -1})
    await broker.elect()
    await broker.advance(0.3)
    assert not broker.is_recovered


async def is_told(broker: RecoveringBroker, steering: Steering) -> None:
    await _held(broker, steering, PendingTransactionDecided)


async def has_written(broker: RecoveringBroker, steering: Steering) -> None:
    await _held(broker, steering, PendingTransactionEnded)


async def has_ended_all(broker: RecoveringBroker, steering: Steering) -> None:
    await _held(broker, steering, PartitionRecovered)


async def has_proposed(broker: RecoveringBroker, steering: Steering) -> None:
    await broker.elect()
    await broker.advance(0.3)
    assert broker.is_recovered


async def fences(broker: RecoveringBroker, steering: Steering) -> None:
    """The coordinator has raised the epoch of the producer, and has not stored it."""
    steering.hold(TransactionTimedOut)
    await broker.elect()


async def has_fenced(broker: RecoveringBroker, steering: Steering) -> None:
    """The coordinator has stored that it aborts."""
    steering.hold(TransactionEndPrepared)
    await broker.elect()
    await broker.advance(0.05)


async def _held(broker: RecoveringBroker, steering: Steering, kind: type[object]) -> None:
    hold = steering.hold(kind)
    await broker.elect()
    await broker.advance(0.3)
    assert len(hold.held_phases) == 1


STEPS: tuple[Step, ...] = (waits, asks, is_told, has_written, has_ended_all, has_proposed, fences, has_fenced)


# --- who dies


async def leader(broker: RecoveringBroker) -> None:
    """It is elected again, with its log."""
    await broker.elect()


async def leader_and_its_log(broker: RecoveringBroker) -> None:
    """Another replica is elected, which has the records and no marker."""
    log = broker.recoveries.replica(OWN).log
    assert log is not None
    log.truncate_to(1)
    await broker.elect()


async def coordinator(broker: RecoveringBroker) -> None:
    """It moves, and is loaded elsewhere."""
    broker.lead(leader=2, epoch=2, topic=TRANSACTION_TOPIC)
    await broker.settle()
    await broker.led(epoch=3, topic=TRANSACTION_TOPIC)


async def both(broker: RecoveringBroker) -> None:
    await coordinator(broker)
    await leader_and_its_log(broker)


VICTIMS = [pytest.param(leader, marks=pytest.mark.slow), pytest.param(coordinator, marks=pytest.mark.slow), leader_and_its_log, both]


@pytest.mark.requirement("R704-14", "R704-20")
@pytest.mark.parametrize("victim", VICTIMS)
@pytest.mark.parametrize("step", STEPS, ids=lambda each: each.__name__)
@pytest.mark.parametrize("scene", SCENES, ids=lambda each: each.__name__)
async def test_transactions_end_alike_wherever_a_recovery_is_cut_off(
    broker: RecoveringBroker, steering: Steering, scene: Callable[[RecoveringBroker], Awaitable[None]], step: Step,
    victim: Callable[[RecoveringBroker], Awaitable[None]],
) -> None:
    await scene(broker)
    await step(broker, steering)
    broker.recoveries.proposals.clear()
    await victim(broker)
    steering.release()
    broker.publish(LEADERS | {TRANSACTIONS: 1})
    broker.recoveries.process.set_mode("instant")
    await broker.settle()
    await broker.advance(1)
    replica = broker.recoveries.replica(OWN)
    assert (broker.open(), [each.is_commit for each in broker.written()][:1]) == ([], [SCENES[scene]])
    if broker.recoveries.proposals:  # otherwise the confirmation of the first leader epoch is under way
        await broker.recoveries.confirm()
        assert not replica.is_recovering
