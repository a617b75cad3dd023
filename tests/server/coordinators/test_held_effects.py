"""What waits while a group or a transactional id is held: nobody is told success for what is in no log, and all that waits goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from klamm.broker.groups.phases import GroupAssignmentReceived, OffsetsAppended
from klamm.broker.groups.requests import Sync
from klamm.broker.transactions.phases import ProducerEpochStored, ProducerFenced
from klamm.broker.transactions.requests import InitProducerId
from klamm.broker.transactions.transaction import LAST_EPOCH
from klamm.protocol.errors import ApiError
from klamm.protocol.errors import ErrorCode as E
from klamm.seams.steering import Steering
from klamm.server.transactions.transaction_coordinator import TRANSACTION_TOPIC
from klamm.tests.server.groups.coordinating_broker import GROUP, CoordinatingBroker
from klamm.tests.server.transactions.transaction_broker import ID, OWN, TransactionBroker


@pytest.fixture
def steering() -> Steering:
    return Steering()


@pytest.fixture
async def broker(steering: Steering) -> AsyncIterator[CoordinatingBroker]:
    broker = CoordinatingBroker(steering=steering)
    await broker.led()
    yield broker
    await broker.close()


@pytest.fixture
async def ids(steering: Steering) -> AsyncIterator[TransactionBroker]:
    broker = TransactionBroker(steering=steering)
    await broker.start()
    await broker.coordinate()
    yield broker
    await broker.close()


async def sync(broker: CoordinatingBroker) -> asyncio.Future[E]:
    """The leader of the group, its only member, sends the assignment; the code of the response."""
    result = await broker.joined()
    synced = broker.groups.sync(Sync(None, GROUP, result.generation, result.member_id, None, None, None, ((result.member_id, b"mine"),)))

    async def code() -> E:
        return (await synced).error

    return asyncio.ensure_future(code())


async def test_an_assignment_whose_append_fails_is_in_no_log(broker: CoordinatingBroker, steering: Steering) -> None:
    hold = steering.hold(GroupAssignmentReceived, count=1)
    synced = await sync(broker)
    await broker.settle()
    hold.fail(ApiError(E.NOT_ENOUGH_REPLICAS))
    await broker.settle()
    assert synced.result() is E.COORDINATOR_NOT_AVAILABLE
    assert broker.records() == []


async def test_who_waits_for_appends_of_a_held_group_learns_that_the_coordinator_has_moved(
    broker: CoordinatingBroker, steering: Steering
) -> None:
    steering.hold(OffsetsAppended)
    held = broker.groups.commit(broker.commit_request(5))
    await broker.settle()
    waiting = [broker.groups.commit(broker.commit_request(offset)) for offset in (6, 7)]
    await broker.settle()
    assert not any(each.done() for each in (held, *waiting))
    assert len(broker.records()) == 1, "what comes after a held phase is not appended"
    broker.lead(leader=2, epoch=2)
    await broker.settle()
    assert [each.result() for each in waiting] == [E.NOT_COORDINATOR] * 2
    assert held.done(), "nobody waits for a coordinator that has gone"
    assert len(broker.records()) == 1


async def test_after_the_hold_all_that_waited_for_the_group_is_appended_in_order(
    broker: CoordinatingBroker, steering: Steering
) -> None:
    hold = steering.hold(OffsetsAppended)
    commits = [broker.groups.commit(broker.commit_request(5))]
    await broker.settle()
    commits += [broker.groups.commit(broker.commit_request(offset)) for offset in (6, 7)]
    hold.release()
    await broker.settle()
    assert [each.result() for each in commits] == [E.NONE] * 3
    assert broker.offset() == 7


async def test_all_who_wait_until_a_group_is_free_go_on(broker: CoordinatingBroker, steering: Steering) -> None:
    hold = steering.hold(OffsetsAppended)
    broker.groups.commit(broker.commit_request())
    await broker.settle()
    free = [broker.groups.until_free(GROUP) for _ in range(2)]
    tasks = [asyncio.ensure_future(each) for each in free if each is not None]
    await broker.settle()
    assert [each.done() for each in tasks] == [False, False]
    hold.release()
    await broker.settle()
    assert [each.done() for each in tasks] == [True, True]


async def test_the_commit_of_no_offsets_is_no_phase(broker: CoordinatingBroker, steering: Steering) -> None:
    """Nothing of it is appended: it must not be held where offsets are in the log."""
    hold = steering.hold(OffsetsAppended)
    commit = broker.groups.commit(broker.commit_request()._replace(offsets={}))
    await broker.settle()
    assert commit.result() is E.NONE
    assert hold.state == "armed"


async def test_who_waits_for_appends_of_a_held_id_learns_that_the_coordinator_has_moved(
    ids: TransactionBroker, steering: Steering
) -> None:
    steering.hold(ProducerEpochStored)
    request = InitProducerId(None, ID, 60_000)
    held = ids.coordinator.init_producer_id(request)
    await ids.settle()
    waiting = ids.coordinator.init_producer_id(request)
    await ids.settle()
    assert not held.done() and not waiting.done()
    stored = len(ids.records(topic=TRANSACTION_TOPIC))
    ids.lead(leader=2, epoch=2, topic=TRANSACTION_TOPIC)
    await ids.settle()
    assert held.done() and waiting.result().error is E.NOT_COORDINATOR
    assert len(ids.records(topic=TRANSACTION_TOPIC)) == stored


async def test_a_producer_that_was_to_be_fenced_learns_that_the_coordinator_has_moved(
    ids: TransactionBroker, steering: Steering
) -> None:
    await ids.begun(OWN)
    steering.hold(ProducerFenced)
    fencing = ids.coordinator.init_producer_id(InitProducerId(None, ID, 60_000))
    await ids.settle()
    assert not fencing.done()
    ids.lead(leader=2, epoch=2, topic=TRANSACTION_TOPIC)
    await ids.settle()
    assert fencing.result().error is E.NOT_COORDINATOR


async def test_a_producer_that_needs_an_id_while_its_key_is_held_learns_that_the_coordinator_has_moved(
    ids: TransactionBroker, steering: Steering
) -> None:
    """Its id is not drawn before what comes first is done, and not at all for a coordinator that has gone."""
    steering.hold(ProducerEpochStored)
    held = ids.coordinator.init_producer_id(InitProducerId(None, ID, 60_000))
    await ids.settle()
    assert (ids.ids.next, held.done()) == (1, False)
    (transaction,) = ids.coordinator.transactions()
    transaction.producer_epoch = LAST_EPOCH - 1  # the next epoch needs another producer id
    waiting = ids.coordinator.init_producer_id(InitProducerId(None, ID, 60_000))
    await ids.settle()
    assert not waiting.done()
    ids.lead(leader=2, epoch=2, topic=TRANSACTION_TOPIC)
    await ids.settle()
    assert waiting.done() and waiting.result().error is E.NOT_COORDINATOR
    assert ids.ids.next == 1


async def test_offsets_expire_while_another_group_is_held(broker: CoordinatingBroker, steering: Steering) -> None:
    """Nobody waits for these records, so that they have no key that could be held."""
    broker.groups.commit(broker.commit_request(5))
    await broker.settle()
    assert broker.offset() == 5
    steering.hold(OffsetsAppended, where={"group": "other"})
    appended = len(broker.records())
    expiry = asyncio.ensure_future(broker.groups.expire_offsets())
    await broker.settle()
    await broker.advance(broker.groups.options.retention_ms / 1000 + broker.groups.options.retention_check_ms / 1000 + 1)
    expiry.cancel()
    assert len(broker.records()) > appended and broker.groups.group(GROUP) is None


async def test_transactional_ids_expire_while_another_is_held(ids: TransactionBroker, steering: Steering) -> None:
    await ids.init()
    steering.hold(ProducerEpochStored, where={"transactional_id": "other"})
    expiry = asyncio.ensure_future(ids.coordinator.expire_ids())
    await ids.settle()
    options = ids.coordinator.options
    await ids.advance(options.limits.expiration_ms / 1000 + options.expiry_check_ms / 1000 + 1)
    expiry.cancel()
    assert list(ids.coordinator.transactions()) == []
