"""Produce: records are appended, and each partition has its own result, in every version; with the checks in Kafka's order."""

from __future__ import annotations

import asyncio
import inspect
from dataclasses import replace

import pytest

from klamm.benchmarks.data_clusters import record_batch
from klamm.broker.log.config import LogConfig
from klamm.broker.log.local_log import LogEnvironment
from klamm.broker.log.log import Log
from klamm.broker.log.memory import MemoryBudget
from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode
from klamm.protocol.nouns import TopicPartition
from klamm.protocol.records.batch import LOG_OVERHEAD, Codec, check_crcs, computed_crc, read_header
from klamm.protocol.records.record import Record, encode_batch
from klamm.protocol.records.rules import AppendRules
from klamm.server.apis import produce
from klamm.server.local.driven_clock import DrivenClock
from klamm.server.requests.context import CloseConnection
from klamm.server.requests.delayed_response import DelayedResponse
from klamm.server.security.authorizer import Operation
from klamm.server.transactions.verification import NOT_VERIFIED
from klamm.tests.broker.log.simulated_storage import SimulatedStorage, empty
from klamm.tests.server.logged_broker import GOOD, Logged, asked_for, fetched_by_2
from klamm.tests.services import DenyAll, Denying

VERSIONS = range(messages.APIS[0].min_version, messages.APIS[0].max_version + 1)
TRANSACTIONAL = GOOD[:22] + b"\x10" + GOOD[23:]


@pytest.mark.parametrize("version", VERSIONS)
async def test_every_partition_has_its_own_result(version: int) -> None:
    logged = Logged()
    names = [("t", 0, GOOD), ("t", 2, GOOD), ("t", 3, GOOD), ("t", 9, GOOD), ("unknown", 0, GOOD), ("t", 4, GOOD[:-1] + b"\1")]
    rows = await logged.rows(asked_for(*names), version)
    assert [(row.index, row.error_code, row.base_offset) for row in rows] == [
        (0, ErrorCode.NONE, 0),
        (2, ErrorCode.NOT_LEADER_OR_FOLLOWER, -1),
        (3, ErrorCode.KAFKA_STORAGE_ERROR, -1),
        (9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
        (4, ErrorCode.CORRUPT_MESSAGE, -1),
        (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
    ]
    assert [row.log_start_offset for row in rows] == [0 if version >= 5 else -1, -1, -1, -1, -1, -1]
    assert (await logged.log(0)).log_end_offset == 1
    assert (await logged.log(4)).log_end_offset == 0


async def test_offsets_go_on_from_request_to_request() -> None:
    logged = Logged()
    found = [(await logged.rows(asked_for(("t", 0, record_batch(b"v", count)))))[0].base_offset for count in (1, 3, 2, 1)]
    assert found == [0, 1, 4, 6]


async def test_the_last_entry_of_a_partition_counts() -> None:
    logged = Logged()
    rows = await logged.rows(asked_for(("t", 0, record_batch(b"v", 5)), ("t", 4, GOOD), ("t", 0, record_batch(b"v", 2))))
    assert [(row.index, row.error_code) for row in rows] == [(0, 0), (4, 0)]
    assert (await logged.log(0)).log_end_offset == 2


async def test_the_leader_is_named_to_those_who_can_read_it() -> None:
    for version, named, nodes in ((9, (-1, -1), []), (10, (2, 7), [(2, "h2", 9002, None)])):
        response = await Logged().response(asked_for(("t", 2, GOOD), ("t", 0, GOOD)), version)
        moved, kept = (row.current_leader for topic in response.responses for row in topic.partition_responses)
        assert (moved.leader_id, moved.leader_epoch) == named
        assert (kept.leader_id, kept.leader_epoch) == (-1, -1)
        assert [tuple(row) for row in response.node_endpoints] == nodes


@pytest.mark.parametrize("acks", [2, -2])
async def test_acks_that_cannot_be_refuse_the_partitions_that_exist(acks: int) -> None:
    logged = Logged()
    rows = await logged.rows(asked_for(("t", 0, GOOD), ("t", 9, GOOD), acks=acks))
    assert [row.error_code for row in rows] == [ErrorCode.INVALID_REQUIRED_ACKS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert (await logged.log(0)).log_end_offset == 0


async def test_who_may_not_write_learns_nothing_else() -> None:
    rows = await Logged(DenyAll()).rows(asked_for(("t", 0, GOOD), ("unknown", 0, GOOD), acks=7))
    assert [row.error_code for row in rows] == [ErrorCode.TOPIC_AUTHORIZATION_FAILED] * 2


async def test_internal_topics_are_for_the_admin_client() -> None:
    logged = Logged()
    asked = asked_for(("__consumer_offsets", 0, GOOD))
    assert [row.error_code for row in await logged.rows(asked)] == [ErrorCode.INVALID_TOPIC_EXCEPTION]
    assert [row.error_code for row in await logged.rows(asked, client_id="__admin_client")] == [ErrorCode.NONE]


async def test_null_records_are_an_invalid_request() -> None:
    rows = await Logged().rows(asked_for(("t", 0, None), ("t", 4, GOOD)))
    assert [row.error_code for row in rows] == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE]


async def test_transactional_records_without_a_transactional_id_refuse_the_request() -> None:
    logged = Logged()
    rows = await logged.rows(asked_for(("t", 0, GOOD), ("t", 4, TRANSACTIONAL)))
    assert [row.error_code for row in rows] == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED] * 2
    assert (await logged.log(0)).log_end_offset == 0


async def test_transactional_records_need_write_of_their_transactional_id() -> None:
    logged = Logged(Denying((Operation.WRITE, "tx")))
    rows = await logged.rows(asked_for(("t", 0, TRANSACTIONAL), transactional_id="tx"))
    assert [row.error_code for row in rows] == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED]


async def test_transactional_records_are_not_appended_without_a_coordinator_that_verifies_them() -> None:
    logged = Logged()
    records = encode_batch([Record(0, 1, None, b"v")], attributes=0x10, producer_id=7, producer_epoch=0, base_sequence=0)
    rows = await logged.rows(asked_for(("t", 0, records), ("t", 4, GOOD), transactional_id="tx"))
    assert [(row.error_code, row.error_message) for row in rows] == [
        (ErrorCode.NOT_ENOUGH_REPLICAS, NOT_VERIFIED + "COORDINATOR_NOT_AVAILABLE"),
        (ErrorCode.NONE, None),
    ]
    assert (await logged.log(0)).log_end_offset == 0


@pytest.mark.parametrize(("at", "byte", "text"), [(16, 3, "Invalid magic"), (11, 1, "Record size 1 ")])
async def test_a_batch_of_an_impossible_format_refuses_the_request(at: int, byte: int, text: str) -> None:
    bad = bytearray(GOOD)
    bad[at] = byte
    logged = Logged()
    rows = await logged.rows(asked_for(("t", 0, GOOD), ("t", 4, bytes(bad))))
    assert [row.error_code for row in rows] == [ErrorCode.CORRUPT_MESSAGE] * 2
    assert all(row.error_message.startswith(text) for row in rows)
    assert (await logged.log(0)).log_end_offset == 0


@pytest.mark.parametrize("count", [1, 3000])
async def test_errors_of_records_name_their_partition(count: int) -> None:
    properties: dict[str, object] = {"log.cleanup.policy": "compact", "compression.type": "gzip"}
    logged = Logged(None, **properties)
    (row,) = await logged.rows(asked_for(("t", 0, record_batch(b"v", count))))
    text = "Compacted topic cannot accept message without key in topic partition t-0"
    assert {error.batch_index_error_message for error in row.record_errors} == {text}


@pytest.mark.parametrize(
    ("version", "at", "byte", "code"),
    [
        (2, len(GOOD) + 16, 3, ErrorCode.CORRUPT_MESSAGE), (0, len(GOOD) + 11, 1, ErrorCode.CORRUPT_MESSAGE),
        (3, 22, 6, ErrorCode.UNKNOWN_SERVER_ERROR), (6, 22, 5, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
async def test_records_that_cannot_be_read_refuse_a_request_of_an_old_version(version: int, at: int, byte: int, code: ErrorCode) -> None:
    bad = bytearray(GOOD + GOOD)
    bad[at] = byte
    logged = Logged()
    rows = await logged.rows(asked_for(("t", 0, GOOD), ("t", 4, bytes(bad))), version)
    assert [row.error_code for row in rows] == [code] * 2
    assert (await logged.log(0)).log_end_offset == 0
    rows = await logged.rows(asked_for(("t", 0, GOOD), ("t", 9, bytes(bad))), version)
    assert [row.error_code for row in rows] == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    rows = await logged.rows(asked_for(("t", 0, GOOD), ("t", 4, bytes(bad))), 7)
    assert rows[0].error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", [2, 5, 11])
async def test_a_batch_whose_size_is_no_int32_refuses_the_request(version: int) -> None:
    logged = Logged()
    for size, codes in ((2**31, [ErrorCode.UNKNOWN_SERVER_ERROR] * 2), (2**31 - 1, [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])):
        bad = GOOD[:8] + (size - LOG_OVERHEAD).to_bytes(4, "big") + GOOD[12:]
        assert [row.error_code for row in await logged.rows(asked_for(("t", 0, GOOD), ("t", 9, bad)), version)] == codes


@pytest.mark.parametrize("version", [2, 5, 11])
async def test_a_batch_without_the_whole_producer_id_refuses_the_request(version: int) -> None:
    logged = Logged()
    for size, codes in ((50, [ErrorCode.UNKNOWN_SERVER_ERROR] * 2), (51, [ErrorCode.NONE, ErrorCode.CORRUPT_MESSAGE])):
        bad = (GOOD[:8] + (size - LOG_OVERHEAD).to_bytes(4, "big") + GOOD[12:])[:size]
        rows = await logged.rows(asked_for(("t", 0, GOOD), ("t", 4, bad)), version)
        assert [row.error_code for row in rows] == codes
        rows = await logged.rows(asked_for(("t", 0, GOOD), ("t", 9, bad)), version)
        assert [row.error_code for row in rows] == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


async def test_batches_of_transactions_of_several_producers_refuse_a_request_of_an_old_version() -> None:
    records = [
        encode_batch([Record(0, 1, None, b"v")], attributes=0x10, producer_id=producer, producer_epoch=0, base_sequence=0)
        for producer in (7, 8)
    ]
    rows = await Logged().rows(asked_for(("t", 0, GOOD), ("t", 4, GOOD + records[0] + records[1])), 1)
    assert [row.error_code for row in rows] == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2
    rows = await Logged().rows(asked_for(("t", 0, GOOD), ("t", 9, GOOD + records[0] + records[1])), 1)
    assert [row.error_code for row in rows] == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


async def test_records_that_the_version_does_not_allow_are_not_verified() -> None:
    bad = GOOD[:16] + b"\3" + GOOD[17:]
    records = encode_batch([Record(0, 1, None, b"v")], attributes=0x10, producer_id=7, producer_epoch=0, base_sequence=0)
    rows = await Logged().rows(asked_for(("t", 0, records + GOOD), ("t", 4, bad), transactional_id="tx"))
    assert [row.error_code for row in rows] == [ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE]


async def test_batches_behind_the_first_one_of_a_transaction_are_not_looked_at() -> None:
    bad = GOOD[:16] + b"\3" + GOOD[17:]
    request = asked_for(("t", 9, TRANSACTIONAL), ("t", 8, bad))._replace(transactional_id="x")
    rows = await Logged().rows(request)
    assert [row.error_code for row in rows] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2


async def test_the_log_start_offset_is_named_beside_errors_of_the_log() -> None:
    logged = Logged()
    log = await logged.log(0)
    await logged.rows(asked_for(("t", 0, record_batch(b"v", 9))))
    log.set_log_start_offset(4)
    wrong_count = GOOD[:57] + b"\0\0\0\2" + GOOD[61:]
    wrong_count = wrong_count[:17] + computed_crc(wrong_count, 0, len(wrong_count)).to_bytes(4, "big") + wrong_count[21:]
    assert [(row.error_code, row.log_start_offset) for row in await logged.rows(asked_for(("t", 0, wrong_count)))] == [
        (ErrorCode.INVALID_RECORD, 4)
    ]
    assert [(row.error_code, row.log_start_offset) for row in await logged.rows(asked_for(("t", 0, GOOD[:-1] + b"\1")))] == [
        (ErrorCode.CORRUPT_MESSAGE, -1)
    ]


async def test_too_few_replicas_in_sync_refuse_acks_of_all_only() -> None:
    logged = Logged(min_insync_replicas=2)
    logged.partition(1).isr = (1,)
    rows = await logged.rows(asked_for(("t", 1, GOOD), acks=-1))
    assert [(row.error_code, row.log_start_offset) for row in rows] == [(ErrorCode.NOT_ENOUGH_REPLICAS, 0)]
    assert [row.error_code for row in await logged.rows(asked_for(("t", 1, GOOD), acks=1))] == [ErrorCode.NONE]


async def test_without_acks_there_is_no_response_and_an_error_closes_the_connection() -> None:
    logged = Logged()
    await logged.log(0)
    assert logged.begin(asked_for(("t", 0, GOOD), acks=0))[1] is None
    assert logged.begin(asked_for(acks=0))[1] is None
    for bad in (asked_for(("t", 0, GOOD), ("t", 9, GOOD), acks=0), asked_for(("t", 0, TRANSACTIONAL), acks=0)):
        with pytest.raises(CloseConnection):
            logged.begin(bad)
    assert (await logged.log(0)).log_end_offset == 2


async def test_acks_of_all_wait_until_the_replicas_in_sync_have_the_records() -> None:
    logged = Logged()
    for index in (0, 1):
        await logged.log(index)
    _, pending = logged.begin(asked_for(("t", 0, GOOD), ("t", 1, GOOD), acks=-1))
    task = asyncio.ensure_future(pending)
    await fetched_by_2(logged, 1, 0)
    await asyncio.sleep(0)
    assert not task.done()
    await fetched_by_2(logged, 1, 1)
    response = await task
    assert [row.error_code for topic in response.responses for row in topic.partition_responses] == [0, 0]
    assert logged.partition(1).waiters == ()


async def test_a_time_out_is_told_for_the_partitions_that_are_not_there_yet() -> None:
    logged = Logged()
    rows = await logged.rows(asked_for(("t", 0, GOOD), ("t", 1, GOOD), ("t", 9, GOOD), acks=-1, timeout_ms=0))
    assert [(row.error_code, row.base_offset) for row in rows] == [
        (ErrorCode.NONE, 0),
        (ErrorCode.REQUEST_TIMED_OUT, 0),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
    ]
    assert logged.partition(1).waiters == ()


async def test_who_loses_the_leadership_tells_those_who_wait() -> None:
    logged = Logged()
    await logged.log(1)
    _, pending = logged.begin(asked_for(("t", 1, GOOD), acks=-1))
    task = asyncio.ensure_future(pending)
    await asyncio.sleep(0)
    state = messages.LeaderAndIsrRequest.LeaderAndIsrPartitionState(
        partition_index=1, leader=2, leader_epoch=20, isr=(1, 2), replicas=(1, 2), controller_epoch=1
    )
    topic = messages.LeaderAndIsrRequest.LeaderAndIsrTopicState(topic_name="t", topic_id=(1).to_bytes(16, "big"), partition_states=[state])
    replicas = logged.services.replicas
    request = messages.LeaderAndIsrRequest(controller_id=1, controller_epoch=1, broker_epoch=-1, topic_states=[topic])
    replicas.apply(replicas.handle_leader_and_isr(request, 7, 1).effects)
    (row,) = [row for topic in (await task).responses for row in topic.partition_responses]
    assert (row.error_code, row.current_leader.leader_id, row.current_leader.leader_epoch) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 2, 20)


async def test_only_a_request_that_takes_long_has_no_effect_when_it_is_begun() -> None:
    logged = Logged()
    _, pending = logged.begin(asked_for(("t", 0, GOOD)))
    assert inspect.iscoroutine(pending), "the log is opened"
    await pending
    _, response = logged.begin(asked_for(("t", 0, GOOD)))
    assert isinstance(response, messages.ProduceResponse)
    _, pending = logged.begin(asked_for(("t", 0, record_batch(bytes(300_000)))))
    assert inspect.iscoroutine(pending), "a long batch is checked in a thread"
    assert isinstance(await pending, messages.ProduceResponse)


async def test_records_that_are_checked_in_a_thread_go_behind_those_that_came_meanwhile() -> None:
    logged = Logged()
    await logged.log(0)
    _, pending = logged.begin(asked_for(("t", 0, record_batch(bytes(100_000), 3))))
    task = asyncio.ensure_future(pending)
    await asyncio.sleep(0)
    assert (await logged.rows(asked_for(("t", 0, GOOD))))[0].base_offset == 0
    (row,) = [row for topic in (await task).responses for row in topic.partition_responses]
    assert (row.error_code, row.base_offset) == (0, 1)
    stored = (await logged.log(0)).read(1, 1 << 20, 4, True)
    assert isinstance(stored, bytes | memoryview) and stored[:8] == (1).to_bytes(8, "big")
    assert logged.partition(0).high_watermark == 4


async def test_many_partitions_leave_the_loop_to_others() -> None:
    logged = Logged()
    part = messages.ProduceRequest.PartitionProduceData
    topic = messages.ProduceRequest.TopicProduceData(name="t", partition_data=[part(index=i, records=GOOD) for i in range(10_000)])
    _, pending = logged.begin(messages.ProduceRequest(acks=1, timeout_ms=1000, topic_data=[topic]))
    task, turns = asyncio.ensure_future(pending), 0
    while not task.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > 10
    codes = [row.error_code for row in task.result().responses[0].partition_responses]
    assert codes[:6] == [0, 0, 6, 56, 0, 3] and set(codes[5:]) == {3} and len(codes) == 10_000


def test_a_refused_request_names_its_partitions() -> None:
    response = produce.refuse(asked_for(("t", 0, GOOD), ("u", 1, GOOD)), 9, ErrorCode.UNKNOWN_SERVER_ERROR)
    assert response is not None
    rows = [(topic.name, row.index, row.error_code) for topic in response.responses for row in topic.partition_responses]
    assert rows == [("t", 0, -1), ("u", 1, -1)]
    assert produce.refuse(asked_for(acks=0), 9, ErrorCode.UNKNOWN_SERVER_ERROR) is None


async def test_the_time_out_is_for_the_replicas_and_not_for_the_own_file() -> None:
    logged = Logged()
    log = await logged.log(1)
    for acks in (1, -1):
        before = log.log_end_offset
        _, pending = logged.begin(asked_for(("t", 1, GOOD), acks=acks, timeout_ms=0))
        if acks == 1:
            assert isinstance(pending, messages.ProduceResponse)
            continue
        log.log_end_offset = before  # as if it were on its way to the disk
        task = asyncio.ensure_future(pending)
        await asyncio.sleep(0.01)
        assert not task.done()
        log.log_end_offset = before + 1
        logged.partition(1).changed()
        (row,) = (await task).responses[0].partition_responses
        assert row.error_code == ErrorCode.REQUEST_TIMED_OUT


@pytest.mark.parametrize("count", [1, 2])
async def test_acks_of_the_leader_are_sent_when_its_own_file_has_all_of_the_records(count: int) -> None:
    logged = Logged()
    replica, storage = logged.partition(0), SimulatedStorage()
    environment = LogEnvironment(MemoryBudget(), lambda: 0, lambda bound: 0)
    logged.services.replicas.states.attach(replica, Log("t", 0, bytes(16), LogConfig(), environment, storage, empty()))
    _, pending = logged.begin(asked_for(("t", 0, record_batch(b"v", count))))
    task = asyncio.ensure_future(pending)
    for _ in range(3):
        await asyncio.sleep(0)
    assert not task.done(), "a broker that is killed now loses the records"
    storage.run()
    (row,) = (await task).responses[0].partition_responses
    assert (row.error_code, row.base_offset) == (ErrorCode.NONE, 0)


@pytest.mark.parametrize("acks", [1, -1])
async def test_records_whose_disk_fails_before_they_are_written_are_a_storage_error(acks: int) -> None:
    logged = Logged()
    replica = logged.partition(0)
    environment = LogEnvironment(MemoryBudget(), lambda: 0, lambda bound: 0)
    logged.services.replicas.states.attach(replica, Log("t", 0, bytes(16), LogConfig(), environment, SimulatedStorage(), empty()))
    _, pending = logged.begin(asked_for(("t", 0, GOOD), acks=acks))
    task = asyncio.ensure_future(pending)
    await asyncio.sleep(0)
    logged.services.replicas.apply(logged.services.replicas.fail_log_dir([TopicPartition("t", 0)]))
    (row,) = (await task).responses[0].partition_responses
    assert row.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert replica.waiters == ()


async def test_a_request_without_acks_is_in_progress_until_its_records_are_written() -> None:
    logged = Logged()
    replica, storage = logged.partition(0), SimulatedStorage()
    environment = LogEnvironment(MemoryBudget(), lambda: 0, lambda bound: 0)
    logged.services.replicas.states.attach(replica, Log("t", 0, bytes(16), LogConfig(), environment, storage, empty()))
    _, response = logged.begin(asked_for(("t", 0, GOOD), acks=0))
    assert isinstance(response, DelayedResponse), "further Produce requests may be begun"
    task = asyncio.ensure_future(response)
    for _ in range(3):
        await asyncio.sleep(0)
    assert not task.done()
    storage.run()
    assert await task is None
    assert replica.log_end_offset == 1


async def test_a_connection_is_closed_if_records_without_acks_cannot_be_written() -> None:
    logged = Logged()
    replica = logged.partition(0)
    environment = LogEnvironment(MemoryBudget(), lambda: 0, lambda bound: 0)
    logged.services.replicas.states.attach(replica, Log("t", 0, bytes(16), LogConfig(), environment, SimulatedStorage(), empty()))
    _, response = logged.begin(asked_for(("t", 0, GOOD), acks=0))
    task = asyncio.ensure_future(response)
    await asyncio.sleep(0)
    logged.services.replicas.apply(logged.services.replicas.fail_log_dir([TopicPartition("t", 0)]))
    with pytest.raises(CloseConnection, match="KAFKA_STORAGE_ERROR"):
        await task


@pytest.mark.parametrize("compression", [None, Codec.GZIP])
async def test_the_append_time_is_that_of_the_append_and_not_that_of_the_check(compression: Codec | None) -> None:
    logged = Logged()
    log = await logged.log(0)
    log.config = LogConfig(AppendRules(log_append_time=True, compression=compression))
    clock = DrivenClock()
    logged.services = replace(logged.services, clock=clock)
    _, costly = logged.begin(asked_for(("t", 0, record_batch(bytes(100_000), 3))))
    task = asyncio.ensure_future(costly)
    await asyncio.sleep(0)
    clock.jump(5)
    later_ms = clock.now_ms()
    (row,) = (await task).responses[0].partition_responses
    assert row.log_append_time_ms == later_ms
    data = log.read(0, 1 << 20, 3, True)
    assert isinstance(data, bytes)
    check_crcs(data)
    assert read_header(data).max_timestamp == later_ms
