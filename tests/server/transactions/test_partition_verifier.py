"""A leader learns from the coordinator whether its partitions are in a transaction (KIP-890), and gets a code for each in any case."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any

import pytest

from klamm.broker.transactions.requests import ProducerIdResult
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.errors import ErrorCode as E
from klamm.protocol.nouns import TopicPartition
from klamm.server.transactions.partition_verifier import PartitionVerifier
from klamm.server.transactions.transaction_coordinator import TRANSACTION_TOPIC
from klamm.tests.harness.waits import eventually
from klamm.tests.server.scripted import ScriptedBroker
from klamm.tests.server.transactions.transaction_broker import FIRST, ID, OWN, SECOND, TransactionBroker

COORDINATED = TopicPartition(TRANSACTION_TOPIC, 0)
TIMEOUT_S = 30

Codes = dict[TopicPartition, E]


@pytest.fixture
async def broker() -> AsyncIterator[TransactionBroker]:
    broker = TransactionBroker()
    await broker.start()
    yield broker
    await broker.close()


@pytest.fixture
def elsewhere(broker: TransactionBroker) -> ScriptedBroker:
    """Broker 2 is the coordinator."""
    broker.publish({COORDINATED: 2})
    return broker.others[2]


async def verified(broker: TransactionBroker, *partitions: TopicPartition, producer_id: int = 0, producer_epoch: int = 0) -> Codes:
    return await broker.parts.verifier.verify(ID, producer_id, producer_epoch, partitions)


def begin(broker: TransactionBroker, *partitions: TopicPartition, transactional_id: str = ID) -> asyncio.Task[Codes]:
    """As `verified`; the result comes later."""
    verifier: PartitionVerifier = broker.parts.verifier
    return asyncio.create_task(verifier.verify(transactional_id, 7, 3, partitions))


def asked(other: ScriptedBroker, index: int) -> list[tuple[str, int, int, bool, list[TopicPartition]]]:
    """What the request that came as number `index` asks."""
    return [
        (
            each.transactional_id, each.producer_id, each.producer_epoch, each.verify_only,
            [TopicPartition(topic.name, partition) for topic in each.topics for partition in topic.partitions],
        )
        for each in other.requests[index][2].transactions
    ]


def answer(other: ScriptedBroker, index: int, codes: Mapping[str, Mapping[TopicPartition, int]], error_code: int = 0) -> None:
    """Answer it with codes by transactional id and partition."""
    response = messages.AddPartitionsToTxnResponse
    rows = []
    for transactional_id, by_partition in codes.items():
        topics: dict[str, list[Any]] = {}
        for partition, code in by_partition.items():
            row = response.AddPartitionsToTxnPartitionResult(partition_index=partition.partition, partition_error_code=code)
            topics.setdefault(partition.topic, []).append(row)
        results = [response.AddPartitionsToTxnTopicResult(name=topic, results_by_partition=each) for topic, each in topics.items()]
        rows.append(response.AddPartitionsToTxnResult(transactional_id=transactional_id, topic_results=results))
    other.respond(index, response(error_code=error_code, results_by_transaction=rows))


def all_with(code: E, partitions: Iterable[TopicPartition] = (FIRST, SECOND)) -> Codes:
    return dict.fromkeys(partitions, code)


# --- this broker is the coordinator


async def test_the_own_coordinator_says_what_is_in_the_transaction(broker: TransactionBroker) -> None:
    await broker.coordinate()
    await broker.begun(OWN)
    assert await verified(broker, OWN, FIRST) == {OWN: E.NONE, FIRST: E.TRANSACTION_ABORTABLE}
    assert broker.parts.verifier.failures == 1
    assert await verified(broker, OWN, producer_id=1) == {OWN: E.INVALID_PRODUCER_ID_MAPPING}
    assert broker.parts.verifier.failures == 2


async def test_a_fenced_producer_has_an_invalid_epoch(broker: TransactionBroker) -> None:
    await broker.coordinate()
    await broker.begun(OWN)
    assert await verified(broker, OWN, producer_epoch=1) == {OWN: E.INVALID_PRODUCER_EPOCH}


async def test_an_own_coordinator_that_does_not_serve_yet_says_so(broker: TransactionBroker) -> None:
    assert await verified(broker, OWN) == {OWN: E.NOT_COORDINATOR}
    broker.lead(topic=TRANSACTION_TOPIC)
    assert await verified(broker, OWN) == {OWN: E.COORDINATOR_LOAD_IN_PROGRESS}
    await broker.settle()
    assert await verified(broker, OWN) == {OWN: E.INVALID_PRODUCER_ID_MAPPING}
    assert await broker.init() == ProducerIdResult(E.NONE, 0, 0)
    assert await verified(broker, OWN) == {OWN: E.TRANSACTION_ABORTABLE}


# --- nobody is


async def test_without_a_live_leader_no_coordinator_is_available(broker: TransactionBroker) -> None:
    broker.publish({COORDINATED: -1})
    assert await verified(broker, FIRST, SECOND) == all_with(E.COORDINATOR_NOT_AVAILABLE)
    broker.publish({COORDINATED: 2}, live=(1, 3))
    assert await verified(broker, FIRST, SECOND) == all_with(E.COORDINATOR_NOT_AVAILABLE)
    assert broker.parts.verifier.failures == 0


async def test_a_coordinator_without_the_listener_of_brokers_is_not_available(broker: TransactionBroker) -> None:
    broker.publish({COORDINATED: 2}, listener="OUTSIDE")
    assert await verified(broker, FIRST, SECOND) == all_with(E.COORDINATOR_NOT_AVAILABLE)


async def test_without_a_transaction_topic_no_coordinator_is_available() -> None:
    broker = TransactionBroker()
    assert await verified(broker, FIRST) == {FIRST: E.COORDINATOR_NOT_AVAILABLE}
    await broker.close()


# --- another broker is


async def test_another_coordinator_is_asked_and_adds_nothing(broker: TransactionBroker, elsewhere: ScriptedBroker) -> None:
    result = begin(broker, FIRST, OWN, SECOND)
    await elsewhere.received(1)
    header = elsewhere.requests[0][1]
    assert (header.api_key, header.api_version, header.client_id) == (ApiKey.ADD_PARTITIONS_TO_TXN, 5, "broker-1-add-partitions-manager")
    assert asked(elsewhere, 0) == [(ID, 7, 3, True, [FIRST, OWN, SECOND])]
    codes = {FIRST: E.NONE, OWN: E.TRANSACTION_ABORTABLE, SECOND: E.PRODUCER_FENCED}
    answer(elsewhere, 0, {ID: codes})
    assert await result == codes | {SECOND: E.INVALID_PRODUCER_EPOCH}
    assert broker.parts.verifier.failures == 2


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (E.UNKNOWN_SERVER_ERROR, E.UNKNOWN_SERVER_ERROR),
        (E.CLUSTER_AUTHORIZATION_FAILED, E.INVALID_TXN_STATE),
        (999, E.UNKNOWN_SERVER_ERROR),
    ],
)
async def test_an_error_of_the_whole_request_is_that_of_all_partitions(
    broker: TransactionBroker, elsewhere: ScriptedBroker, code: int, told: E
) -> None:
    result = begin(broker, FIRST, SECOND)
    await elsewhere.received(1)
    answer(elsewhere, 0, {}, error_code=code)
    assert await result == all_with(told)


async def test_a_partition_that_the_coordinator_leaves_out_is_not_verified(broker: TransactionBroker, elsewhere: ScriptedBroker) -> None:
    result = begin(broker, FIRST, SECOND)
    await elsewhere.received(1)
    answer(elsewhere, 0, {ID: {FIRST: 0}, "other": {SECOND: 0}})
    assert await result == {FIRST: E.NONE, SECOND: E.NETWORK_EXCEPTION}


async def test_a_code_of_a_later_broker_is_an_unknown_error(broker: TransactionBroker, elsewhere: ScriptedBroker) -> None:
    result = begin(broker, FIRST, SECOND)
    await elsewhere.received(1)
    answer(elsewhere, 0, {ID: {FIRST: 0, SECOND: 999}})
    assert await result == {FIRST: E.NONE, SECOND: E.UNKNOWN_SERVER_ERROR}


# --- the coordinator is gone


async def test_a_coordinator_whose_port_is_closed_is_a_network_error(broker: TransactionBroker, elsewhere: ScriptedBroker) -> None:
    await elsewhere.stop()
    assert await verified(broker, FIRST, SECOND) == all_with(E.NETWORK_EXCEPTION)


async def test_a_lost_connection_is_a_network_error_for_what_was_sent_and_the_rest_is_sent_on_a_new_one(
    broker: TransactionBroker, elsewhere: ScriptedBroker
) -> None:
    first = begin(broker, FIRST)
    await elsewhere.received(1)
    second = begin(broker, SECOND)
    await broker.settle()
    elsewhere.writers[0].close()
    assert await first == {FIRST: E.NETWORK_EXCEPTION}
    await elsewhere.received(2)
    answer(elsewhere, 1, {ID: {SECOND: 0}})
    assert await second == {SECOND: E.NONE}
    assert elsewhere.connections == 2


async def test_a_coordinator_that_does_not_respond_in_time_is_a_network_error(
    broker: TransactionBroker, elsewhere: ScriptedBroker
) -> None:
    result = begin(broker, FIRST, SECOND)
    await elsewhere.received(1)
    await broker.advance(TIMEOUT_S - 0.001)
    assert not result.done()
    await broker.advance(0.001)
    assert await result == all_with(E.NETWORK_EXCEPTION)


async def test_the_next_verification_goes_to_the_coordinator_of_that_time(broker: TransactionBroker, elsewhere: ScriptedBroker) -> None:
    first = begin(broker, FIRST)
    await elsewhere.received(1)
    answer(elsewhere, 0, {ID: {FIRST: E.NOT_COORDINATOR}})
    assert await first == {FIRST: E.NOT_COORDINATOR}
    broker.publish({COORDINATED: 3})
    second = begin(broker, FIRST)
    await broker.others[3].received(1)
    answer(broker.others[3], 0, {ID: {FIRST: 0}})
    assert await second == {FIRST: E.NONE}


# --- verifications that wait for others


async def test_verifications_wait_for_the_request_in_flight_and_go_together_one_for_each_id(
    broker: TransactionBroker, elsewhere: ScriptedBroker
) -> None:
    results = [begin(broker, FIRST)]
    await elsewhere.received(1)
    results += [begin(broker, SECOND, transactional_id=each) for each in ("a", "b")]
    results += [begin(broker, FIRST, transactional_id="a"), begin(broker, OWN)]
    await broker.settle()
    await elsewhere.received(1)
    answer(elsewhere, 0, {ID: {FIRST: 0}})
    await elsewhere.received(2)
    assert [(row[0], row[4]) for row in asked(elsewhere, 1)] == [("a", [SECOND]), ("b", [SECOND]), (ID, [OWN])]
    answer(elsewhere, 1, {ID: {OWN: 0}, "a": {SECOND: 0}, "b": {SECOND: E.TRANSACTION_ABORTABLE}})
    await elsewhere.received(3)
    assert [(row[0], row[4]) for row in asked(elsewhere, 2)] == [("a", [FIRST])]
    answer(elsewhere, 2, {"a": {FIRST: E.CONCURRENT_TRANSACTIONS}})
    assert [await each for each in results] == [
        {FIRST: E.NONE}, {SECOND: E.NONE}, {SECOND: E.TRANSACTION_ABORTABLE}, {FIRST: E.CONCURRENT_TRANSACTIONS}, {OWN: E.NONE},
    ]
    assert broker.parts.verifier.failures == 2


async def test_a_verification_that_is_cancelled_does_not_hold_the_others(broker: TransactionBroker, elsewhere: ScriptedBroker) -> None:
    first = begin(broker, FIRST)
    await elsewhere.received(1)
    second = begin(broker, SECOND, transactional_id="other")
    await broker.settle()
    first.cancel()
    answer(elsewhere, 0, {ID: {FIRST: 0}})
    await elsewhere.received(2)
    answer(elsewhere, 1, {"other": {SECOND: 0}})
    assert await second == {SECOND: E.NONE}


async def test_what_waits_when_the_broker_stops_is_not_verified(broker: TransactionBroker, elsewhere: ScriptedBroker) -> None:
    first = begin(broker, FIRST)
    await elsewhere.received(1)
    second = begin(broker, SECOND)
    await broker.settle()
    await broker.background.close()
    await eventually(lambda: first.done() and second.done(), "both have a result")
    assert (await first, await second) == ({FIRST: E.NETWORK_EXCEPTION}, {SECOND: E.NETWORK_EXCEPTION})
