"""EndPendingTransactions: who may send it, and what a coordinator says of transactions that are open in the log of a partition."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator

import pytest

from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.errors import ErrorCode as E
from klamm.server.apis import end_pending_transactions
from klamm.server.apis.handlers import handlers_of
from klamm.tests.server.transactions.transaction_broker import FIRST, ID, LEADERS, OWN, TransactionBroker
from klamm.tests.services import DenyAll, broker_config, make_context

Request = messages.EndPendingTransactionsRequest
Response = messages.EndPendingTransactionsResponse


@pytest.fixture
async def broker() -> AsyncIterator[TransactionBroker]:
    broker = TransactionBroker()
    await broker.start()
    await broker.coordinate()
    yield broker
    await broker.close()


async def ask(broker: TransactionBroker, *producers: tuple[int, int], epoch: int = 5, may: bool = True) -> Response:
    services = dataclasses.replace(broker.services(None if may else DenyAll()), transactions=broker.coordinator)
    request = Request(2, OWN.topic, OWN.partition, epoch, [Request.PendingTransaction(*each) for each in producers])
    response = await end_pending_transactions.handle(make_context(services, ApiKey.END_PENDING_TRANSACTIONS, 0), request)
    await broker.settle()
    return response


@pytest.mark.requirement("R704-20")
async def test_an_ongoing_transaction_is_aborted_and_the_leader_asks_again(broker: TransactionBroker) -> None:
    await broker.begun(OWN, FIRST)
    row = Response.PendingTransactionEnd
    first = await ask(broker, (0, 0), (7, 0))
    assert first == Response(0, [0], [row(ID, 0, E.CONCURRENT_TRANSACTIONS, -1, -1, False)])
    assert await ask(broker, (0, 0)) == Response(0, [0], [row(ID, 0, 0, 1, 1, False)])


async def test_a_transaction_of_other_partitions_goes_on(broker: TransactionBroker) -> None:
    await broker.begun(FIRST)
    (row,) = (await ask(broker, (0, 0))).transactions
    assert (row.error_code, row.transaction_result) == (0, False)
    assert await broker.end() is E.NONE


async def test_a_transaction_of_a_later_epoch_than_the_coordinator_knows_is_unknown(broker: TransactionBroker) -> None:
    await broker.begun(OWN)
    assert (await ask(broker, (0, 1))).transactions == []


async def test_a_broker_that_coordinates_nothing_says_so(broker: TransactionBroker) -> None:
    await broker.begun(OWN)
    broker.lead(leader=2, epoch=2, topic="__transaction_state")
    assert await ask(broker, (0, 0)) == Response(0, [], [])


async def test_a_leader_of_an_earlier_epoch_is_fenced_and_aborts_nothing(broker: TransactionBroker) -> None:
    await broker.begun(OWN)
    broker.publish(LEADERS)
    assert (await ask(broker, (0, 0), epoch=-1)).error_code == E.FENCED_LEADER_EPOCH
    assert await broker.end() is E.NONE


async def test_only_brokers_may_ask(broker: TransactionBroker) -> None:
    await broker.begun(OWN)
    assert await ask(broker, (0, 0), may=False) == Response(E.CLUSTER_AUTHORIZATION_FAILED, [], [])
    assert await broker.end() is E.NONE


@pytest.mark.parametrize("properties", [{"inter_broker_protocol_version": "3.1"}, {"kip704_recovery_transactions": "leave"}], ids=str)
def test_it_is_unknown_where_recoveries_end_no_transactions(properties: dict[str, object]) -> None:
    assert ApiKey.END_PENDING_TRANSACTIONS in handlers_of(broker_config(1))
    assert ApiKey.END_PENDING_TRANSACTIONS not in handlers_of(broker_config(1, **properties))


def test_brokers_that_stand_for_another_release_understand_each_other() -> None:
    assert ApiKey.END_PENDING_TRANSACTIONS in handlers_of(broker_config(1, **{"klamm.as.version": "3.6"}))
