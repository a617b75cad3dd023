"""The leader of an offsets partition coordinates its groups: it loads them, stores what they decide, and gives them up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from klamm.broker.groups.log_records import group_key, group_record, offset_record, read_group, read_key
from klamm.broker.groups.requests import Leaving, OffsetCommit, Sync
from klamm.protocol.errors import ApiError
from klamm.protocol.errors import ErrorCode as E
from klamm.protocol.hash_order import partition_for
from klamm.protocol.nouns import TopicPartition
from klamm.protocol.records.batch import Codec, each_header
from klamm.server.produce.record_appends import Verified
from klamm.tests.harness.waits import WITHIN_S
from klamm.tests.server.groups.coordinating_broker import GROUP, CoordinatingBroker, T


@pytest.fixture
async def broker() -> AsyncIterator[CoordinatingBroker]:
    broker = CoordinatingBroker()
    yield broker
    await broker.close()


def code_of(broker: CoordinatingBroker, group_id: str = GROUP) -> E:
    """The code for a request of a group."""
    try:
        broker.groups.group(group_id)
    except ApiError as error:
        return error.code
    return E.NONE


# --- which broker coordinates


async def test_only_the_leader_of_the_partition_coordinates(broker: CoordinatingBroker) -> None:
    assert code_of(broker) is E.NOT_COORDINATOR
    await broker.led()
    assert code_of(broker) is E.NONE
    broker.lead(leader=2, epoch=2)
    assert code_of(broker) is E.NOT_COORDINATOR


async def test_until_the_partition_is_loaded_requests_are_to_come_again(broker: CoordinatingBroker) -> None:
    broker.lead()
    assert code_of(broker) is E.COORDINATOR_LOAD_IN_PROGRESS
    assert broker.groups.partitions.is_loading
    await broker.settle()
    assert code_of(broker) is E.NONE
    assert not broker.groups.partitions.is_loading


async def test_a_partition_whose_replica_is_deleted_is_given_up(broker: CoordinatingBroker) -> None:
    await broker.led()
    broker.delete()
    assert code_of(broker) is E.NOT_COORDINATOR


async def test_a_partition_whose_log_directory_failed_is_given_up(broker: CoordinatingBroker) -> None:
    await broker.led()
    broker.replicas.apply(broker.replicas.fail_log_dir([TopicPartition("__consumer_offsets", 0)]))
    assert code_of(broker) is E.NOT_COORDINATOR


async def test_a_broker_that_stops_coordinates_nothing(broker: CoordinatingBroker) -> None:
    await broker.led()
    broker.groups.close()
    assert code_of(broker) is E.COORDINATOR_NOT_AVAILABLE
    broker.lead(epoch=2)
    assert code_of(broker) is E.COORDINATOR_NOT_AVAILABLE


async def test_each_group_has_the_partition_that_its_hash_says() -> None:
    broker = CoordinatingBroker(partitions=4)
    names = [f"group-{number}" for number in range(40)]
    await broker.led(2)
    await broker.settle()
    for name in names:
        expected = E.NONE if partition_for(name, 4) == 2 else E.NOT_COORDINATOR
        assert code_of(broker, name) is expected
    await broker.close()


def test_hashes_are_those_of_java() -> None:
    assert [partition_for(key, 50) for key in ("", "g", "console-consumer-1", "grüße", "\U0001f600")] == [0, 3, 24, 23, 49]
    assert partition_for("polygenelubricants", 50) == 0  # its hash is the smallest number, whose absolute value does not exist


async def test_a_group_id_is_not_empty_where_members_are_concerned(broker: CoordinatingBroker) -> None:
    await broker.led()
    with pytest.raises(ApiError) as raised:
        broker.groups.heartbeat("", "m", None, 1)
    assert raised.value.code is E.INVALID_GROUP_ID
    assert await broker.groups.commit(broker.commit_request(group_id="")) is E.NONE


# --- what is stored and loaded


async def test_an_assignment_is_in_the_log_before_members_have_it(broker: CoordinatingBroker) -> None:
    await broker.led()
    result = await broker.stable()
    (record,) = broker.records()
    assert record.value is not None
    stored = read_group(record.value)
    assert (stored.generation, stored.leader, stored.protocol) == (1, result.member_id, "range")
    assert [(member.member_id, member.client_host, member.assignment) for member in stored.members] == [
        (result.member_id, "/127.0.0.1", b"mine")
    ]


async def test_a_new_leader_goes_on_with_groups_and_offsets_of_the_log(broker: CoordinatingBroker) -> None:
    await broker.led()
    result = await broker.stable()
    commit = broker.commit_request(7, generation=1, member_id=result.member_id)
    assert await broker.groups.commit(commit) is E.NONE
    broker.lead(leader=2, epoch=2)
    await broker.led(epoch=3)
    assert broker.groups.heartbeat(GROUP, result.member_id, None, 1) is E.NONE
    assert broker.offset() == 7
    group = broker.groups.group(GROUP)
    assert group is not None
    assert group.members[result.member_id].assignment == b"mine"


async def test_a_leader_that_stays_leader_keeps_what_is_not_in_the_log(broker: CoordinatingBroker) -> None:
    await broker.led()
    waiting = broker.groups.join(broker.join_request())
    broker.lead(epoch=2)
    await broker.advance(0)
    assert (await waiting).error is E.NONE
    assert broker.groups.partitions.leader_epoch(0) == 2


async def test_tombstones_and_keys_of_later_brokers_are_loaded_as_apache_kafka_loads_them(broker: CoordinatingBroker) -> None:
    broker.lead(leader=2)
    broker.lead(epoch=2)
    other = TopicPartition("t", 1)
    await broker.append(
        offset_record(GROUP, T, OffsetCommit(1, -1, "", 1)), offset_record(GROUP, other, OffsetCommit(2, -1, "", 1)),
        (b"\0\x63later", b"x"), (offset_record(GROUP, other, OffsetCommit(2, -1, "", 1))[0], None),
    )
    broker.lead(leader=2, epoch=3)
    await broker.led(epoch=4)
    assert (broker.offset(), broker.offset(other)) == (1, None)


async def test_a_record_that_cannot_be_read_does_not_stop_the_load(broker: CoordinatingBroker, caplog: pytest.LogCaptureFixture) -> None:
    broker.lead(leader=2)
    broker.lead(epoch=2)
    await broker.append((b"\0\x02\0\x09cut", b"x"), (b"", b"x"), offset_record(GROUP, T, OffsetCommit(4, -1, "", 1)))
    broker.lead(leader=2, epoch=3)
    await broker.led(epoch=4)
    assert broker.offset() == 4
    assert sum("is passed over" in message for message in caplog.messages) >= 2


async def test_a_leadership_that_ends_during_the_load_leaves_nothing(broker: CoordinatingBroker) -> None:
    await broker.led()
    await broker.stable()
    broker.lead(leader=2, epoch=2)
    broker.lead(epoch=3)
    broker.lead(leader=2, epoch=4)
    await broker.settle()
    assert code_of(broker) is E.NOT_COORDINATOR
    assert list(broker.groups.groups()) == []


# --- requests that wait


async def test_members_that_wait_look_for_the_new_coordinator(broker: CoordinatingBroker) -> None:
    await broker.led()
    first = await broker.stable()
    joining = broker.groups.join(broker.join_request("second"))
    broker.lead(leader=2, epoch=2)
    assert (await joining).error is E.NOT_COORDINATOR
    assert first.error is E.NONE


async def test_the_result_for_a_client_that_has_gone_is_dropped(broker: CoordinatingBroker) -> None:
    await broker.led()
    joining = broker.groups.join(broker.join_request())
    joining.cancel()
    await broker.advance(0)
    group = broker.groups.group(GROUP)
    assert group is not None
    assert group.generation == 1


async def test_a_commit_waits_for_the_replicas_in_sync() -> None:
    broker = CoordinatingBroker(replicas=(1, 2))
    await broker.led()
    committing = broker.groups.commit(broker.commit_request())
    await broker.settle()
    assert not committing.done()
    assert broker.offset() is None
    group = broker.groups.group(GROUP)
    assert group is not None
    assert group.offsets.is_unstable(T)
    replica = broker.replicas.get("__consumer_offsets", 0)
    assert replica is not None
    broker.replicas.follower_requested(2)
    broker.replicas.follower_fetched(replica, 2, -1, 1, 0)
    assert await committing is E.NONE
    assert broker.offset() == 5
    await broker.close()


async def test_a_commit_that_the_replicas_do_not_get_in_time_is_not_available() -> None:
    broker = CoordinatingBroker(replicas=(1, 2), offsets_commit_timeout_ms=5_000)
    await broker.led()
    committing = broker.groups.commit(broker.commit_request())
    await broker.advance(4.9)
    assert not committing.done()
    await broker.advance(0.2)
    assert await committing is E.COORDINATOR_NOT_AVAILABLE
    assert broker.offset() is None
    await broker.close()


async def test_a_commit_whose_leader_goes_is_for_the_next_coordinator() -> None:
    broker = CoordinatingBroker(replicas=(1, 2))
    await broker.led()
    committing = broker.groups.commit(broker.commit_request())
    await broker.settle()
    broker.lead(leader=2, epoch=2)
    assert await committing is E.NOT_COORDINATOR
    await broker.close()


async def test_an_assignment_that_is_not_stored_makes_the_members_join_again() -> None:
    broker = CoordinatingBroker(replicas=(1, 2), offsets_commit_timeout_ms=1_000)
    await broker.led()
    result = await broker.joined()
    synced = broker.groups.sync(Sync(None, GROUP, 1, result.member_id, None, None, None, ((result.member_id, b"mine"),)))
    await broker.advance(1.1)
    assert (await synced).error is E.REBALANCE_IN_PROGRESS
    assert broker.groups.heartbeat(GROUP, result.member_id, None, 1) is E.REBALANCE_IN_PROGRESS
    await broker.close()


async def test_offsets_of_no_partition_need_no_append(broker: CoordinatingBroker) -> None:
    await broker.led()
    assert await broker.groups.commit(broker.commit_request()._replace(offsets={})) is E.NONE
    assert broker.records() == []


# --- time


async def test_a_member_without_heartbeats_leaves_when_its_session_ends(broker: CoordinatingBroker) -> None:
    await broker.led()
    result = await broker.stable(session_ms=10_000)
    for _ in range(3):
        await broker.advance(9)
        assert broker.groups.heartbeat(GROUP, result.member_id, None, 1) is E.NONE
    await broker.advance(10.1)
    assert broker.groups.heartbeat(GROUP, result.member_id, None, 1) is E.UNKNOWN_MEMBER_ID
    stored = [record for record in broker.records() if read_key(record.key) == read_key(group_key(GROUP))]
    assert stored[-1].value is not None
    assert read_group(stored[-1].value).members == ()


async def test_sessions_begin_again_at_a_new_coordinator(broker: CoordinatingBroker) -> None:
    await broker.led()
    result = await broker.stable(session_ms=10_000)
    await broker.advance(9)
    broker.lead(leader=2, epoch=2)
    await broker.led(epoch=3)
    await broker.advance(9)
    assert broker.groups.heartbeat(GROUP, result.member_id, None, 1) is E.NONE


async def test_a_partition_that_is_given_up_has_no_timer(broker: CoordinatingBroker) -> None:
    await broker.led()
    await broker.stable()
    broker.lead(leader=2, epoch=2)
    assert await broker.clock.advance(3_600) == 0


async def test_the_first_rebalance_waits_for_more_members() -> None:
    broker = CoordinatingBroker(group_initial_rebalance_delay_ms=3_000)
    await broker.led()
    joins = [broker.groups.join(broker.join_request(name)) for name in ("a", "b")]
    await broker.advance(2.9)
    assert not any(join.done() for join in joins)
    await broker.advance(3.2)
    assert [len((await join).members) for join in joins] == [2, 0]
    await broker.close()


async def test_offsets_of_an_empty_group_expire_and_the_group_with_them() -> None:
    broker = CoordinatingBroker(offsets_retention_minutes=10, offsets_retention_check_interval_ms=60_000)
    await broker.led()
    tending = asyncio.get_running_loop().create_task(broker.groups.expire_offsets())
    await broker.settle()
    assert await broker.groups.commit(broker.commit_request()) is E.NONE
    await broker.advance(540)
    assert broker.offset() == 5
    await broker.advance(120)
    assert broker.groups.group(GROUP) is None
    assert [record.value for record in broker.records()][1:] == [None]
    tending.cancel()
    await broker.close()


async def test_offsets_of_a_group_with_subscribed_members_do_not_expire() -> None:
    broker = CoordinatingBroker(offsets_retention_minutes=10, offsets_retention_check_interval_ms=60_000)
    await broker.led()
    tending = asyncio.get_running_loop().create_task(broker.groups.expire_offsets())
    subscription = b"\0\0\0\0\0\1\0\1t"
    request = broker.join_request(session_ms=1_800_000)
    request = request._replace(protocols=(request.protocols[0]._replace(metadata=subscription),))
    joining = broker.groups.join(request)
    await broker.advance(0)
    result = await joining
    await broker.groups.sync(Sync(None, GROUP, 1, result.member_id, None, None, None, ()))
    gone = TopicPartition("u", 0)
    for partition in (T, gone):
        assert await broker.groups.commit(broker.commit_request(3, partition, generation=1, member_id=result.member_id)) is E.NONE
    await broker.advance(700)
    assert (broker.offset(T), broker.offset(gone)) == (3, None)
    tending.cancel()
    await broker.close()


# --- deletions


async def test_offsets_of_deleted_topics_are_forgotten_in_the_log_too(broker: CoordinatingBroker) -> None:
    await broker.led()
    kept = TopicPartition("u", 0)
    for partition in (T, kept):
        assert await broker.groups.commit(broker.commit_request(1, partition)) is E.NONE
    broker.groups.topics_deleted([T])
    await broker.settle()
    assert (broker.offset(T), broker.offset(kept)) == (None, 1)
    last = broker.records()[-1]
    assert (read_key(last.key), last.value) == (read_key(offset_record(GROUP, T, OffsetCommit(1, -1, "", 1))[0]), None)


async def test_a_deleted_group_stays_deleted_after_a_load(broker: CoordinatingBroker) -> None:
    await broker.led()
    result = await broker.stable()
    assert await broker.groups.commit(broker.commit_request(1, generation=1, member_id=result.member_id)) is E.NONE
    assert broker.groups.delete(GROUP) is E.NON_EMPTY_GROUP
    assert broker.groups.leave(GROUP, [Leaving(result.member_id, None)]) == [E.NONE]
    await broker.settle()
    assert read_group(broker.records()[-1].value or b"").members == ()
    assert broker.groups.delete(GROUP) is E.NONE
    await broker.settle()
    broker.lead(leader=2, epoch=2)
    await broker.led(epoch=3)
    assert broker.groups.group(GROUP) is None
    assert broker.groups.delete(GROUP) is E.GROUP_ID_NOT_FOUND


async def test_who_waits_for_a_member_goes_on_when_it_leaves(broker: CoordinatingBroker) -> None:
    await broker.led()
    leaving = await broker.stable()
    joining = broker.groups.join(broker.join_request("other"))
    await broker.settle()
    assert not joining.done()
    assert broker.groups.leave(GROUP, [Leaving(leaving.member_id, None)]) == [E.NONE]
    await broker.settle()
    assert joining.done()
    assert (await joining).generation == 2


async def test_offsets_that_are_deleted_stay_deleted_after_a_load(broker: CoordinatingBroker) -> None:
    await broker.led()
    kept = TopicPartition(T.topic, 1)
    for partition in (T, kept):
        assert await broker.groups.commit(broker.commit_request(partition=partition)) is E.NONE
    assert broker.groups.delete_offsets(GROUP, [T]) == (E.NONE, {T: E.NONE})
    await broker.settle()
    broker.lead(leader=2, epoch=2)
    await broker.led(epoch=3)
    assert (broker.offset(T), broker.offset(kept)) == (None, 5)


async def test_sessions_of_a_loaded_group_end_without_a_request(broker: CoordinatingBroker) -> None:
    await broker.led()
    await broker.stable(session_ms=10_000)
    broker.lead(leader=2, epoch=2)
    await broker.led(epoch=3)
    await broker.advance(10.1)
    last = broker.records()[-1]
    assert last.value is not None
    assert (read_group(last.value).generation, read_group(last.value).members) == (2, ())


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
async def test_batches_have_the_compression_of_the_config_and_the_producer_of_the_transaction(codec: Codec) -> None:
    broker = CoordinatingBroker(offsets_topic_compression_codec=codec.value)
    await broker.led()
    assert await broker.groups.commit(broker.commit_request()) is E.NONE
    assert await broker.groups.commit(broker.commit_request(producer_id=7, producer_epoch=3)) is E.NONE
    plain, transactional = (header for _, header in each_header(broker.data()))
    assert (plain.codec, plain.is_transactional, plain.producer_id) == (codec, False, -1)
    assert (transactional.codec, transactional.is_transactional) == (codec, True)
    assert (transactional.producer_id, transactional.producer_epoch) == (7, 3)
    await broker.close()


async def test_offsets_of_a_transaction_count_from_its_marker_on(broker: CoordinatingBroker) -> None:
    await broker.led()
    commit = broker.commit_request(9, producer_id=1, producer_epoch=0)
    assert await broker.groups.commit(commit) is E.NONE
    assert broker.offset() is None
    broker.groups.transaction_ended(0, 1, is_committed=True)
    assert broker.offset() == 9
    broker.groups.transaction_ended(3, 1, is_committed=True)  # of a partition that is not coordinated here


async def test_a_group_record_of_another_broker_is_taken_as_it_is(broker: CoordinatingBroker) -> None:
    await broker.led()
    result = await broker.stable()
    group = broker.groups.group(GROUP)
    assert group is not None
    record = group_record(GROUP, group.to_store({result.member_id: b"theirs"})._replace(generation=8))
    await broker.append(record)
    broker.lead(leader=2, epoch=2)
    await broker.led(epoch=3)
    loaded = broker.groups.group(GROUP)
    assert loaded is not None
    assert (loaded.generation, loaded.members[result.member_id].assignment) == (8, b"theirs")


# --- what was begun for a state that was given up


async def large_commit_over_a_move(broker: CoordinatingBroker) -> asyncio.Future[E]:
    """A commit that is checked in a thread, while the leadership of its partition goes away and comes back; it is over."""
    await broker.led()
    await broker.stable(session_ms=10_000)
    assert await broker.groups.commit(broker.commit_request(5, group_id="h")) is E.NONE
    partitions = {TopicPartition("t", each): OffsetCommit(77, -1, "", 1) for each in range(15_000)}
    waiting = broker.groups.commit(broker.commit_request(group_id="h")._replace(offsets=partitions))
    assert not waiting.done()
    broker.lead(leader=2, epoch=2)
    broker.lead(epoch=3)
    async with asyncio.timeout(WITHIN_S):
        await asyncio.wait({waiting})
    await broker.settle()
    return waiting


async def test_a_commit_that_a_former_term_began_is_not_appended_in_the_next_one(broker: CoordinatingBroker) -> None:
    waiting = await large_commit_over_a_move(broker)
    assert waiting.result() is E.NOT_COORDINATOR
    group = broker.groups.group("h")
    assert group is not None
    assert group.offsets.committed[T].commit.offset == 5
    assert len(broker.records()) < 100


async def test_an_append_of_a_former_term_leaves_the_timer_of_the_present_one(broker: CoordinatingBroker) -> None:
    await large_commit_over_a_move(broker)
    await broker.advance(3_600)
    group = broker.groups.group(GROUP)
    assert group is not None
    assert not group.members, "its sessions of 10 s are over"


async def test_a_load_that_fails_for_an_unknown_reason_ends_all_the_same(
    broker: CoordinatingBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await broker.led()
    assert await broker.groups.commit(broker.commit_request(5, group_id="h")) is E.NONE
    broker.lead(leader=2, epoch=2)
    monkeypatch.setattr(broker.groups, "replay", lambda state, batches: 1 // 0)
    await broker.led(epoch=3)
    assert broker.groups.group("h") is None
    assert "cannot be read to its end" in caplog.text


async def test_the_offsets_of_a_deleted_topic_are_forgotten_in_each_partition() -> None:
    broker = CoordinatingBroker(partitions=2)
    await broker.led(0)
    await broker.led(1)
    names = [next(name for name in map(str, range(9)) if partition_for(name, 2) == index) for index in (0, 1)]
    for name in names:
        assert await broker.groups.commit(broker.commit_request(group_id=name)) is E.NONE
    broker.groups.topics_deleted([T])
    await broker.settle()
    assert [broker.records(index)[-1].value for index in (0, 1)] == [None, None]
    await broker.close()


async def test_offsets_of_a_transaction_that_was_not_verified_are_not_appended(broker: CoordinatingBroker) -> None:
    await broker.led()
    await broker.groups.commit(broker.commit_request(1))
    commit = broker.commit_request(5, producer_id=7, producer_epoch=0, verified=Verified(None))
    assert await broker.groups.commit(commit) is not E.NONE
    assert len(broker.records()) == 1
