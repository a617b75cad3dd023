"""The records of the transaction topic, both ways. Each says all of one transactional id.

Key and value begin with their version as int16; a value of None deletes the key. Records with other keys are those of later brokers: they
are passed over, but for `LOSS`. Version 0 is written, as Apache Kafka 3.9.1 writes it with ZooKeeper; version 1, which is flexible,
for transactions v2 (KIP-890). Its producer ids before and after are written too, which Apache Kafka 4.4.0 defines and leaves out.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from klamm.broker.coordinators.effects import Record
from klamm.broker.coordinators.internal_records import decode, encode, version_of
from klamm.broker.transactions.requests import NO_PRODUCER_ID
from klamm.broker.transactions.states import DEAD, EMPTY, PREPARE_EPOCH_FENCE, TransactionState
from klamm.protocol import messages
from klamm.protocol.errors import RemoteProtocolError
from klamm.protocol.nouns import TopicPartition

KEY, VALUE, VALUE_OF_V2 = 0, 0, 1
TRANSACTIONS_V2 = 2
LOSS: tuple[bytes, bytes] = ((7040).to_bytes(2, "big"), b"")
"""The record of a leader of Klamm that was elected uncleanly: the log may have lost records that were before it. Apache Kafka passes over
it, as its key has an unknown version."""


class StoredTransaction(NamedTuple):
    """What a record says. Times are milliseconds since 1970; `start_ms` is -1 if no transaction has begun since the last InitProducerId.

    `is_v2`: the client ended the transaction in version 2 (KIP-890): the epoch is the one after that of its records.
    `next_producer_id`: the transaction is ending, and the next one has this id, since all epochs of the present one are used.
    `previous_producer_id`: it has ended like this, and had this id.
    """

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    partitions: tuple[TopicPartition, ...]
    update_ms: int
    start_ms: int
    is_v2: bool = False
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID


def key_of(transactional_id: str) -> bytes:
    return encode("TransactionLogKey", KEY, transactional_id=transactional_id)


def record_of(transactional_id: str, stored: StoredTransaction) -> Record:
    """The record of a transactional id. An empty one has no array of partitions."""
    value_class: Any = messages.message_type("TransactionLogValue").top
    topics: dict[str, list[int]] = {}
    for topic, partition in stored.partitions:
        topics.setdefault(topic, []).append(partition)
    partitions = [value_class.PartitionsSchema(topic=topic, partition_ids=tuple(each)) for topic, each in topics.items()]
    value = encode(
        "TransactionLogValue", VALUE_OF_V2 if stored.is_v2 else VALUE, producer_id=stored.producer_id, producer_epoch=stored.producer_epoch,
        transaction_timeout_ms=stored.timeout_ms, transaction_status=stored.state.value,
        transaction_partitions=None if stored.state is EMPTY else partitions,
        transaction_last_update_timestamp_ms=stored.update_ms, transaction_start_timestamp_ms=stored.start_ms,
        client_transaction_version=TRANSACTIONS_V2 if stored.is_v2 else 0, previous_producer_id=stored.previous_producer_id,
        next_producer_id=stored.next_producer_id,
    )
    return key_of(transactional_id), value


def read_key(key: bytes | None) -> str | None:
    """The transactional id in a key; None for keys of later brokers. Raises RemoteProtocolError for bytes that are not a key."""
    if version_of(key) != KEY:
        return None
    transactional_id: str = decode("TransactionLogKey", KEY, key).transactional_id
    return transactional_id


def read_value(value: bytes) -> StoredTransaction:
    """What a value says. Raises RemoteProtocolError."""
    body = decode("TransactionLogValue", version_of(value), value)
    try:
        state = TransactionState(body.transaction_status)
    except ValueError:
        raise RemoteProtocolError(f"a transaction has no state {body.transaction_status}") from None
    if state in (DEAD, PREPARE_EPOCH_FENCE):
        raise RemoteProtocolError(f"a transaction in the log cannot be {state.text}")
    partitions = () if state is EMPTY else tuple(
        TopicPartition(each.topic, partition) for each in body.transaction_partitions or () for partition in each.partition_ids
    )
    return StoredTransaction(
        body.producer_id, body.producer_epoch, body.transaction_timeout_ms, state, partitions,
        body.transaction_last_update_timestamp_ms, body.transaction_start_timestamp_ms,
        body.client_transaction_version >= TRANSACTIONS_V2, body.previous_producer_id, body.next_producer_id,
    )
