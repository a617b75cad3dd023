"""Batches that are compressed again in a thread, and appends that wait behind them: what was true before is checked again."""

from __future__ import annotations

import asyncio

import pytest

from klamm.benchmarks.data_clusters import record_batch
from klamm.protocol import messages
from klamm.protocol.apis import APIS, ApiKey
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.nouns import TopicPartition
from klamm.protocol.records.batch import TRANSACTIONAL, each_header
from klamm.protocol.records.record import Record, encode_batch
from klamm.seams.clock import SYSTEM_CLOCK
from klamm.server.produce.internal_appends import InternalAppends
from klamm.server.produce.record_appends import RecordAppends, Verified
from klamm.server.transactions.verification import error_for_produce, error_of
from klamm.tests.server.logged_broker import GOOD, Logged

ALONE = TopicPartition("t", 0)
PRODUCER = 7
LONG = record_batch(bytes(300_000), 3)
"""Takes long: its records are checked in a thread."""


def of_transaction(size: int = 1) -> bytes:
    """The first records of a transaction."""
    records = [Record(0, 1, None, bytes(size))]
    return encode_batch(records, attributes=TRANSACTIONAL, producer_id=PRODUCER, producer_epoch=0, base_sequence=0)


def appends_of(logged: Logged, **fields: object) -> RecordAppends:
    made = RecordAppends(logged.services.replicas, SYSTEM_CLOCK, APIS[ApiKey.PRODUCE].max_version, 1)
    return made._replace(**fields)  # type: ignore[arg-type]


def led_in(logged: Logged, epoch: int, topic_id: int = 1) -> None:
    """The controller makes broker 1 the leader of t-0 in this leader epoch."""
    kind = messages.LeaderAndIsrRequest
    row = kind.LeaderAndIsrPartitionState(
        partition_index=0, leader=1, leader_epoch=epoch, isr=(1,), replicas=(1,), controller_epoch=1, partition_epoch=1
    )
    topic = kind.LeaderAndIsrTopicState(topic_name="t", topic_id=topic_id.to_bytes(16, "big"), partition_states=[row])
    request = kind(controller_id=1, controller_epoch=1, broker_epoch=-1, topic_states=[topic])
    replicas = logged.services.replicas
    replicas.apply(replicas.handle_leader_and_isr(request, 7, 1).effects)


async def test_a_long_batch_of_a_transaction_that_was_not_verified_is_refused() -> None:
    logged = Logged()
    log = await logged.log(0)
    replica, batch = logged.partition(0), of_transaction(300_000)
    appends = appends_of(logged, verifications={})
    assert appends.append(replica, batch) is None, "it takes long"
    with pytest.raises(ApiError) as raised:
        await appends.append_later(replica, batch)
    assert raised.value.code is ErrorCode.INVALID_TXN_STATE
    assert log.log_end_offset == 0


async def test_a_long_batch_of_a_transaction_that_was_verified_is_appended() -> None:
    logged = Logged()
    log = await logged.log(0)
    replica = logged.partition(0)
    verification = log.begin_verification(PRODUCER, 0, 0, 1)
    assert verification is not None
    await appends_of(logged, verifications={replica: verification}).append_later(replica, of_transaction(300_000))
    assert log.log_end_offset == 1


async def test_a_batch_has_the_leader_epoch_in_which_it_is_appended_not_that_in_which_it_was_checked() -> None:
    logged = Logged()
    log = await logged.log(0)
    appending = asyncio.create_task(appends_of(logged).append_later(logged.partition(0), LONG))
    await asyncio.sleep(0)  # it is in the thread
    await asyncio.sleep(0)
    assert not appending.done()
    led_in(logged, 9)
    await appending
    data = log.read(0, 1 << 20, log.log_end_offset, True)
    assert isinstance(data, bytes)
    assert [header.leader_epoch for _, header in each_header(data)] == [9]


async def test_an_append_that_waits_behind_a_long_one_is_refused_once_its_verification_is_void() -> None:
    logged = Logged()
    log = await logged.log(0)
    appends = InternalAppends(logged.services.replicas, SYSTEM_CLOCK, 30_000)
    verification = log.begin_verification(PRODUCER, 0, -1, 1)
    first = appends.append(ALONE, LONG)
    second = appends.append(ALONE, of_transaction(), verified=Verified(verification))
    log.expire_producers(SYSTEM_CLOCK.now_ms() + 1, 0)
    assert (await first).base_offset == 0
    with pytest.raises(ApiError) as raised:
        await second
    assert raised.value.code is ErrorCode.INVALID_TXN_STATE
    assert log.log_end_offset == 3


async def test_all_appends_of_a_queue_end_when_its_task_is_cancelled() -> None:
    logged = Logged()
    await logged.log(0)
    appends = InternalAppends(logged.services.replicas, SYSTEM_CLOCK, 30_000)
    before = asyncio.all_tasks()
    waiting = [appends.append(ALONE, records) for records in (LONG, GOOD, GOOD)]
    (task,) = asyncio.all_tasks() - before
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert [each.cancelled() for each in waiting] == [True, True, True]
    assert appends.append(ALONE, GOOD).done(), "nothing waits in front of it any more"


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NETWORK_EXCEPTION, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR,
    ],
)
def test_what_passes_by_itself_is_not_enough_replicas_for_a_producer(code: ErrorCode) -> None:
    """Producers send it again, as `ReplicaManager` of Apache Kafka 3.9.1 has it."""
    assert error_for_produce(ApiError(code)).code is ErrorCode.NOT_ENOUGH_REPLICAS


@pytest.mark.parametrize("code", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_PRODUCER_ID_MAPPING])
def test_what_stays_is_told_to_a_producer_with_its_own_code(code: ErrorCode) -> None:
    assert error_for_produce(ApiError(code)).code is code


@pytest.mark.parametrize("knows_abortable", [False, True])
def test_clients_that_do_not_know_an_abortable_transaction_get_an_invalid_state(knows_abortable: bool) -> None:
    expected = ErrorCode.TRANSACTION_ABORTABLE if knows_abortable else ErrorCode.INVALID_TXN_STATE
    assert error_of(ErrorCode.TRANSACTION_ABORTABLE, knows_abortable=knows_abortable).code is expected


@pytest.mark.parametrize("records", [GOOD, LONG], ids=["the log is opened", "checked in a thread"])
async def test_what_nobody_wants_any_more_after_the_wait_is_not_appended(records: bytes) -> None:
    logged = Logged()
    if records is LONG:
        await logged.log(0)
    wanted = [True]
    appending = asyncio.create_task(appends_of(logged, is_wanted=wanted.pop).append_later(logged.partition(0), records))
    wanted[:] = [False] if records is GOOD else [False, True]
    with pytest.raises(ApiError) as raised:
        await appending
    assert raised.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert wanted == []
    assert (await logged.log(0)).log_end_offset == 0
