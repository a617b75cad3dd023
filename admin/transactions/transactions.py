"""Transactional ids: listed, described, and their producers fenced (keys 66, 65 and 22)."""

from __future__ import annotations

from collections.abc import Iterable

from klamm.admin.calls.arguments import INT64_MAX, check_int, check_iterable, check_text, check_timeout
from klamm.admin.calls.errors import AdminError, Unsupported, error_of
from klamm.admin.calls.results import Described, Listed
from klamm.admin.calls.scope import Scope
from klamm.admin.network.io_thread import Call
from klamm.admin.network.session import Session
from klamm.admin.routing.coordinators import RETRIED, KeyType, each_to_coordinator
from klamm.admin.routing.list_at_brokers import list_at_brokers
from klamm.admin.transactions.transaction_values import ListedTransaction, ProducerIdAndEpoch, TransactionDescription, TransactionState
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.protocol.nouns import TopicPartition

_DURATION_SINCE = 1
_ANY_DURATION = -1
FENCING_TIMEOUT_MS = 60_000
"""The transaction time-out of a producer that only fences others. Brokers refuse more than their `transaction.max.timeout.ms`."""
_RETRIED_FENCES = RETRIED | {ErrorCode.CONCURRENT_TRANSACTIONS}
"""While the coordinator aborts the open transaction of a producer that is fenced, it responds CONCURRENT_TRANSACTIONS."""


def list_transactions(
    states: Iterable[TransactionState | str] | None, producer_ids: Iterable[int] | None, min_duration_ms: int | None, timeout_ms: int
) -> Call[Listed[ListedTransaction]]:
    """See `AdminClient.list_transactions`."""
    wanted = () if states is None else tuple(TransactionState(state) for state in check_iterable(states, "states"))
    ids = () if producer_ids is None else tuple(_producer_id(each) for each in check_iterable(producer_ids, "producer_ids"))
    duration_ms = _ANY_DURATION if min_duration_ms is None else check_int(min_duration_ms, "min_duration_ms", 0, INT64_MAX)

    def make(version: int) -> messages.ListTransactionsRequest:
        if duration_ms != _ANY_DURATION and version < _DURATION_SINCE:
            raise Unsupported("the broker is older than Kafka 3.8 and does not list transactions by duration")
        return messages.ListTransactionsRequest(state_filters=wanted, producer_id_filters=ids, duration_filter=duration_ms)

    def read(response: messages.ListTransactionsResponse, _version: int, broker: int) -> dict[str, ListedTransaction]:
        return {
            row.transactional_id: ListedTransaction(row.transactional_id, row.producer_id, _state(row.transaction_state), broker)
            for row in response.transaction_states
        }

    async def run(session: Session, scope: Scope) -> Listed[ListedTransaction]:
        return await list_at_brokers(session, scope, ApiKey.LIST_TRANSACTIONS, make, read)

    return Call(check_timeout(timeout_ms), run)


def describe_transactions(transactional_ids: Iterable[str], timeout_ms: int) -> Call[Described[str, TransactionDescription]]:
    """See `AdminClient.describe_transactions`."""
    wanted = _transactional_ids(transactional_ids)

    async def run(session: Session, scope: Scope) -> Described[str, TransactionDescription]:
        async def send(broker: int, some: list[str]) -> dict[str, TransactionDescription | AdminError]:
            def make(version: int) -> messages.DescribeTransactionsRequest:
                return messages.DescribeTransactionsRequest(transactional_ids=some)

            response, _ = await session.to_broker(scope, broker, ApiKey.DESCRIBE_TRANSACTIONS, make, scope.attempt())
            return {row.transactional_id: error_of(row.error_code) or _description(row, broker) for row in response.transaction_states}

        return Described.of(await each_to_coordinator(session, scope, KeyType.TRANSACTION, wanted, send))

    return Call(check_timeout(timeout_ms), run)


def _description(row: messages.DescribeTransactionsResponse.TransactionState, broker: int) -> TransactionDescription:
    start_ms = row.transaction_start_time_ms
    return TransactionDescription(
        row.transactional_id,
        _state(row.transaction_state),
        row.producer_id,
        row.producer_epoch,
        row.transaction_timeout_ms,
        None if start_ms < 0 else start_ms,
        tuple(TopicPartition(topic.topic, number) for topic in row.topics for number in topic.partitions),
        broker,
    )


def fence_producers(transactional_ids: Iterable[str], timeout_ms: int) -> Call[Described[str, ProducerIdAndEpoch]]:
    """See `AdminClient.fence_producers`."""
    wanted = _transactional_ids(transactional_ids)

    async def run(session: Session, scope: Scope) -> Described[str, ProducerIdAndEpoch]:
        async def one(broker: int, transactional_id: str) -> ProducerIdAndEpoch:
            def make(version: int) -> messages.InitProducerIdRequest:
                return messages.InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=FENCING_TIMEOUT_MS)

            response, _ = await session.to_broker(scope, broker, ApiKey.INIT_PRODUCER_ID, make, scope.attempt())
            error = error_of(response.error_code)
            if error is not None:
                raise error
            return ProducerIdAndEpoch(response.producer_id, response.producer_epoch)

        async def send(broker: int, some: list[str]) -> dict[str, ProducerIdAndEpoch | AdminError]:
            return await session.gather({transactional_id: one(broker, transactional_id) for transactional_id in some})

        return Described.of(await each_to_coordinator(session, scope, KeyType.TRANSACTION, wanted, send, _RETRIED_FENCES))

    return Call(check_timeout(timeout_ms), run)


def _transactional_ids(values: Iterable[str]) -> list[str]:
    return [check_text(value, "a transactional id") for value in check_iterable(values, "transactional_ids")]


def _producer_id(value: object) -> int:
    return check_int(value, "a producer id", 0, INT64_MAX)


def _state(text: str) -> TransactionState:
    """The state; UNKNOWN for a name of a later version of Kafka."""
    try:
        return TransactionState(text)
    except ValueError:
        return TransactionState.UNKNOWN
