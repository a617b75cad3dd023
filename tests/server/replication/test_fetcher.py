"""A fetcher against a leader that responds as the test says: sessions, back-off, truncation, offsets out of range, connections."""

from __future__ import annotations

import asyncio

import pytest

from klamm.broker.log.config import LogConfig
from klamm.broker.log.local_log import LogEnvironment
from klamm.broker.log.log import Log
from klamm.broker.log.storage import Append
from klamm.protocol import messages
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.nouns import ZERO_UUID
from klamm.server.replication.followers import fetcher_number
from klamm.tests.broker.log.batches import batch
from klamm.tests.broker.log.simulated_storage import SimulatedStorage, empty
from klamm.tests.broker.update_metadata import broker, update
from klamm.tests.harness.waits import eventually
from klamm.tests.server.replication.followers import (
    BACKOFF_S,
    EPOCH,
    LEADER,
    ME,
    SESSION,
    Follower,
    Leader,
    T,
    U,
    diverging,
    following,
    forgotten,
    named,
    part,
)

OK = 0


@pytest.fixture
async def pair():
    leader, follower = await following()
    yield leader, follower
    await follower.close()


@pytest.fixture
async def older(request):
    """As `pair`, with the inter-broker protocol that the test names."""
    leader, follower = await following(request.param)
    yield leader, follower
    await follower.close()


# --- what is sent


async def test_the_first_request_is_a_full_one_with_the_fields_of_a_follower(pair):
    leader, follower = pair
    follower.lead(0, 1)
    request = await leader.next()
    assert leader.header.api_version == 17
    assert leader.header.client_id == "broker-1-fetcher-0"
    assert (request.replica_id, request.replica_state.replica_id, request.replica_state.replica_epoch) == (-1, ME, 41)
    assert (request.max_wait_ms, request.min_bytes, request.max_bytes, request.isolation_level) == (500, 1, 10 << 20, 0)
    assert (request.session_id, request.session_epoch, request.rack_id) == (0, 0, "")
    assert named(request) == [("t", 0, 0, 0, -1, 0), ("t", 1, 0, 0, -1, 0)]
    assert request.topics[0].partitions[0].partition_max_bytes == 1 << 20
    assert leader.connections == 1


async def test_the_next_request_comes_with_the_response_and_names_only_what_has_records(pair):
    leader, follower = pair
    follower.lead(0, 1)
    await leader.next()
    leader.serve(part(0, batch(3, leader_epoch=0), 2), part(1))
    request = await leader.next()
    assert (request.session_id, request.session_epoch) == (SESSION, 1)
    assert named(request) == [("t", 0, 0, 3, 0, 0)]
    log = follower.log()
    assert (log.next_offset, log.high_watermark, log.epochs.latest) == (3, 2, 0)
    assert follower.hosted(1).log is None
    leader.serve()
    request = await leader.next()
    assert (request.session_epoch, request.topics, request.forgotten_topics_data) == (2, [], [])


async def test_an_empty_response_moves_the_high_watermark_and_the_log_start(pair):
    leader, follower = pair
    follower.lead()
    await leader.next()
    leader.serve(part(0, batch(5, leader_epoch=0), 0))
    await leader.next()
    leader.serve(part(0, high_watermark=5))
    await leader.next()
    assert follower.hosted().high_watermark == 5
    leader.serve(part(0, high_watermark=5, start=4))
    assert named(await leader.next()) == [("t", 0, 0, 5, 0, 4)]
    assert follower.hosted().log_start_offset == 4


async def test_a_log_start_that_moved_before_the_leaders_is_told_when_the_leaders_moves(pair):
    """Otherwise DeleteRecords would wait for a follower whose old segments are deleted already."""
    leader, follower = pair
    follower.lead()
    await leader.next()
    leader.serve(part(0, batch(5, leader_epoch=0), 5))
    await leader.next()
    leader.serve(part(0, high_watermark=5))
    await leader.next()
    follower.hosted().log.advance_log_start(5)
    leader.serve(part(0, high_watermark=5, start=4))
    assert named(await leader.next()) == [("t", 0, 0, 5, 0, 5)]
    leader.serve(part(0, high_watermark=5, start=5))
    assert named(await leader.next()) == []


async def test_the_high_watermark_does_not_pass_the_end_of_the_log(pair):
    leader, follower = pair
    follower.lead()
    await leader.next()
    leader.serve(part(0, batch(2, leader_epoch=0), 100))
    await leader.next()
    assert follower.hosted().high_watermark == 2


async def test_a_new_partition_is_added_to_the_session_and_a_stopped_one_forgotten(pair):
    leader, follower = pair
    follower.lead(0, 1)
    await leader.next()
    follower.stop(0)
    follower.lead(0, topic="u", topic_id=U)
    leader.serve(part(0, batch(leader_epoch=0), 1), part(1))
    request = await leader.next()
    assert named(request) == [("u", 0, 0, 0, -1, 0)]
    assert forgotten(request) == [(T, 0)]
    assert follower.hosted(0).log is None  # the response came too late for it


async def test_a_partition_that_this_broker_leads_now_is_not_fetched_any_more(pair):
    leader, follower = pair
    follower.lead(0, 1)
    await leader.next()
    follower.lead(0, leader=ME, epoch=1)
    leader.serve(part(0, batch(leader_epoch=0), 1), part(1))
    assert forgotten(await leader.next()) == [(T, 0)]
    assert follower.hosted(0).log is None


async def test_a_partition_whose_disk_failed_is_not_fetched_any_more(pair):
    leader, follower = pair
    follower.lead(0, 1)
    await leader.next()
    follower.replicas.apply(follower.replicas.fail_log_dir([("t", 0)]))
    assert follower.followers.find("t", 0) is None
    assert follower.followers.find("t", 1) is not None
    leader.serve(part(0), part(1, batch(leader_epoch=0), 1))
    request = await leader.next()
    assert forgotten(request) == [(T, 0)]
    assert [entry[1] for entry in named(request)] == [1]


async def has_closed(leader):
    await eventually(lambda: leader.writers[0].is_closing() or leader.writers[0].transport.is_closing(), "the connection is closed")


async def test_a_fetcher_without_partitions_ends_its_session_and_closes_its_connection(pair):
    leader, follower = pair
    follower.lead(0)
    await leader.next()
    follower.stop(0, delete=True)
    leader.serve(part())
    last = await leader.next()
    assert (named(last), forgotten(last), last.session_id) == ([], [(T, 0)], SESSION)
    leader.serve(session_id=0)
    await eventually(lambda: not follower.followers.fetchers, "there is no fetcher any more")
    await has_closed(leader)


async def test_a_fetcher_without_partitions_ends_at_once_when_its_leader_is_gone(pair):
    leader, follower = pair
    follower.lead(0)
    await leader.next()
    follower.replicas.handle_update_metadata(update(brokers=[broker(ME)]), EPOCH)
    follower.stop(0, delete=True)
    assert not follower.followers.fetchers
    await has_closed(leader)


async def test_a_fetcher_without_partitions_ends_quietly_when_its_leader_does_not_respond(pair, caplog):
    leader, follower = pair
    follower.lead(0)
    await leader.next()
    follower.stop(0, delete=True)
    leader.writers[0].close()
    await eventually(lambda: not follower.followers.fetchers, "there is no fetcher any more")
    assert leader.seen == len(leader.requests) and not caplog.records


async def test_fetchers_that_become_idle_while_all_are_closed_are_closed_once(pair):
    _, follower = pair
    follower.followers.resize(3)
    follower.lead(0, 1, 2)
    follower.stop(0, 1, 2)
    assert len(follower.followers.fetchers) == 3
    await follower.followers.close()
    assert not follower.followers.fetchers and not follower.background._tasks


async def test_a_fetcher_that_gets_partitions_before_it_has_ended_goes_on(pair):
    leader, follower = pair
    follower.lead(0)
    await leader.next()
    fetcher = follower.fetcher
    follower.stop(0, delete=True)
    follower.lead(0, topic="u", topic_id=U)
    leader.serve(part())
    request = await leader.next()
    assert (named(request), forgotten(request)) == ([("u", 0, 0, 0, -1, 0)], [(T, 0)])
    assert follower.fetcher is fetcher and leader.connections == 1


async def test_a_response_to_an_older_leader_epoch_is_not_applied(pair):
    leader, follower = pair
    follower.lead()
    await leader.next()
    follower.lead(epoch=1)
    leader.serve(part(0, batch(leader_epoch=0), 1))
    assert named(await leader.next()) == [("t", 0, 1, 0, -1, 0)]
    assert follower.hosted().log is None


async def test_several_batches_of_several_epochs_are_appended_as_received(pair):
    leader, follower = pair
    follower.lead()
    await leader.next()
    data = batch(2, leader_epoch=0) + batch(1, base_offset=2, leader_epoch=3) + batch(4, base_offset=7, leader_epoch=3)
    leader.serve(part(0, data, 11))
    assert named(await leader.next()) == [("t", 0, 0, 11, 3, 0)]
    assert follower.log().read(0, 1 << 20, 11, True) == data


# --- sessions


@pytest.mark.parametrize(
    ("code", "next_id", "after_backoff"),
    [
        (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0, False),
        (ErrorCode.INVALID_FETCH_SESSION_EPOCH, SESSION, False),
        (ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, SESSION, True),
        (ErrorCode.UNKNOWN_SERVER_ERROR, SESSION, True),
    ],
)
async def test_an_error_of_the_session_is_followed_by_a_full_request(pair, code, next_id, after_backoff):
    leader, follower = pair
    follower.lead(0, 1)
    await leader.next()
    leader.serve(part(0), part(1))
    await leader.next()
    leader.serve(session_id=0, error_code=code)
    if after_backoff:
        await follower.backs_off()
    request = await leader.next()
    assert (request.session_id, request.session_epoch) == (next_id, 0)
    assert len(named(request)) == 2


async def test_a_topic_without_an_id_makes_all_be_fetched_by_name(pair):
    leader, follower = pair
    follower.lead(0)
    follower.lead(0, topic="u", topic_id=ZERO_UUID)
    request = await leader.next()
    assert leader.header.api_version == 12
    assert (request.replica_id, request.replica_state.replica_id) == (ME, -1)
    assert [entry[:2] for entry in named(request, by_name=True)] == [("t", 0), ("u", 0)]


async def test_an_id_that_the_controller_assigns_is_used_at_once_and_begins_another_session(pair):
    leader, follower = pair
    follower.lead(0, topic_id=ZERO_UUID)
    await leader.next()
    leader.serve(part(0))
    await leader.next()
    assert leader.header.api_version == 12
    follower.lead(0, topic_id=T)
    leader.serve()
    await leader.next()
    assert leader.header.api_version == 17
    leader.serve(session_id=0, error_code=ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
    await follower.backs_off()
    assert named(await leader.next()) == [("t", 0, 0, 0, -1, 0)]


# --- errors of one partition


@pytest.mark.parametrize(
    "code",
    [
        pytest.param(ErrorCode.NOT_LEADER_OR_FOLLOWER, marks=pytest.mark.requirement("R704-13")),
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
async def test_a_partition_with_an_error_waits_for_the_back_off_and_the_others_go_on(pair, code):
    leader, follower = pair
    follower.lead(0, 1)
    await leader.next()
    leader.serve(part(0, error_code=code), part(1, batch(leader_epoch=0), 1))
    request = await leader.next()
    assert named(request) == [("t", 1, 0, 1, 0, 0)]
    assert forgotten(request) == [(T, 0)]
    await follower.clock.advance(BACKOFF_S - 0.01)
    leader.serve()
    assert named(await leader.next()) == []
    await follower.clock.advance(0.02)
    leader.serve()
    request = await leader.next()
    assert named(request) == [("t", 0, 0, 0, -1, 0)]
    assert forgotten(request) == []


@pytest.mark.parametrize("what", ["stopped", "followed in a new epoch"])
async def test_a_back_off_is_over_for_nobody_when_its_partition_changed_meanwhile(pair, what):
    leader, follower = pair
    follower.lead(0, 1)
    await leader.next()
    leader.serve(part(0, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER), part(1))
    assert forgotten(await leader.next()) == [(T, 0)]
    if what == "stopped":
        follower.stop(0)
    else:
        follower.lead(0, epoch=1)
    leader.serve()
    expected = [] if what == "stopped" else [("t", 0, 1, 0, -1, 0)]
    assert named(await leader.next()) == expected
    await follower.clock.advance(BACKOFF_S)
    leader.serve(*(part(0) for _ in expected))
    assert named(await leader.next()) == []


async def test_when_all_partitions_wait_nothing_is_sent_but_what_to_forget(pair):
    leader, follower = pair
    follower.lead(0)
    await leader.next()
    leader.serve(part(0, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER))
    assert forgotten(await leader.next()) == [(T, 0)]
    leader.serve(session_id=0)
    await follower.backs_off()
    request = await leader.next()
    assert (request.session_id, request.session_epoch, len(named(request))) == (0, 0, 1)


async def test_a_fenced_partition_is_dropped_until_the_next_leader_and_isr(pair):
    leader, follower = pair
    follower.lead(0, 1)
    await leader.next()
    leader.serve(part(0, error_code=ErrorCode.FENCED_LEADER_EPOCH), part(1))
    assert forgotten(await leader.next()) == [(T, 0)]
    await follower.clock.advance(10 * BACKOFF_S)
    leader.serve()
    assert named(await leader.next()) == []
    follower.lead(0, epoch=1)
    leader.serve()
    assert named(await leader.next()) == [("t", 0, 1, 0, -1, 0)]


async def test_corrupt_records_are_not_appended_and_fetched_again_after_the_back_off(pair):
    leader, follower = pair
    follower.lead(0, 1)
    await leader.next()
    bad = bytearray(batch(leader_epoch=0))
    bad[-1] ^= 1
    leader.serve(part(0, bytes(bad), 1), part(1))
    assert forgotten(await leader.next()) == [(T, 0)]
    assert follower.log().next_offset == 0
    await follower.clock.advance(BACKOFF_S)
    leader.serve()
    assert named(await leader.next()) == [("t", 0, 0, 0, -1, 0)]
    leader.serve(part(0, batch(leader_epoch=0), 1))
    await leader.next()
    assert follower.log().next_offset == 1


async def test_records_before_the_fetch_offset_take_the_partition_out(pair):
    leader, follower = pair
    follower.lead(0, 1)
    await leader.next()
    leader.serve(part(0, batch(2, leader_epoch=0), 2), part(1))
    await leader.next()
    leader.serve(part(0, batch(1, leader_epoch=0), 2))
    assert forgotten(await leader.next()) == [(T, 0)]
    assert follower.fetcher.session.get("t", 0) is None


async def test_a_log_that_cannot_be_opened_now_is_tried_again_after_the_back_off(pair):
    leader, follower = pair
    follower.lead(0, 1)
    await leader.next()
    follower.logs.refused = ApiError(ErrorCode.KAFKA_STORAGE_ERROR)
    leader.serve(part(0, batch(leader_epoch=0), 1), part(1))
    assert forgotten(await leader.next()) == [(T, 0)]
    follower.logs.refused = None
    await follower.clock.advance(BACKOFF_S)
    leader.serve()
    await leader.next()
    leader.serve(part(0, batch(leader_epoch=0), 1))
    await leader.next()
    assert follower.log().next_offset == 1


async def test_a_partition_whose_log_directory_failed_is_dropped(pair):
    leader, follower = pair
    follower.lead(0, 1)
    await leader.next()
    follower.replicas.apply(follower.replicas.fail_log_dir([("t", 0)]))
    leader.serve(part(0, batch(leader_epoch=0), 1), part(1))
    assert forgotten(await leader.next()) == [(T, 0)]


# --- truncation


async def with_log(pair: tuple[Leader, Follower], *epochs: int, high_watermark: int = 0, epoch: int = 9) -> None:
    """Broker 1 led partition 0 with a record of each of these epochs, and follows broker 2 in leader epoch 9 now."""
    _, follower = pair
    await follower.has_log(*epochs, high_watermark=high_watermark)
    await follower.adopt()
    follower.log().epochs.truncate_from(len(epochs))
    follower.lead(epoch=epoch)


async def test_a_log_is_followed_from_its_end_with_its_last_epoch(pair):
    leader, _ = pair
    await with_log(pair, 0, 0, 2)
    assert named(await leader.next()) == [("t", 0, 9, 3, 2, 0)]


async def test_a_diverging_epoch_truncates_to_where_the_leaders_epoch_ends(pair):
    leader, follower = pair
    await with_log(pair, 0, 0, 0, 0, high_watermark=1)
    await leader.next()
    leader.serve(diverging(0, 2))
    assert named(await leader.next()) == [("t", 0, 9, 2, 0, 0)]
    assert follower.log().next_offset == 2
    leader.serve(part(0, batch(3, base_offset=2, leader_epoch=9), 3))
    assert named(await leader.next()) == [("t", 0, 9, 5, 9, 0)]


async def test_a_diverging_epoch_that_the_log_lacks_is_truncated_step_by_step(pair):
    leader, follower = pair
    await with_log(pair, 0, 0, 3, 3, 6, 6)
    assert named(await leader.next()) == [("t", 0, 9, 6, 6, 0)]
    leader.serve(diverging(4, 5))  # the leader has epochs 1 and 4
    assert named(await leader.next()) == [("t", 0, 9, 4, 3, 0)]
    leader.serve(diverging(1, 3))
    assert named(await leader.next()) == [("t", 0, 9, 2, 0, 0)]
    leader.serve(part(0, batch(1, base_offset=2, leader_epoch=1), 0))
    await leader.next()
    assert follower.log().epochs.entries == ((0, 0), (1, 2))


async def test_a_diverging_part_moves_no_high_watermark(pair):
    leader, follower = pair
    await with_log(pair, 0, 0, 0, 0, high_watermark=1)
    await leader.next()
    leader.serve(diverging(0, 3)._replace(high_watermark=3))
    await leader.next()
    assert follower.hosted().high_watermark == 1


async def test_a_log_that_was_cut_before_its_producers_could_not_be_read_is_fetched_from_its_end(pair):
    leader, follower = pair
    storage = on_storage(follower)
    log = follower.logs.opened["t", 0]
    for sequence in range(4):
        log.append_as_follower(batch(base_offset=sequence, leader_epoch=0, producer=7, epoch=sequence // 2, sequence=0), 0)
    storage.run()
    await follower.adopt()
    follower.lead(epoch=9)
    await leader.next()
    storage.error = OSError("broken")
    storage.execute = storage.queue.append  # what is written later does not fail the log
    leader.serve(diverging(0, 2))
    assert forgotten(await leader.next()) == [(T, 0)]
    storage.error = None
    await follower.clock.advance(BACKOFF_S)
    leader.serve()
    assert named(await leader.next()) == [("t", 0, 9, log.next_offset, 0, 0)]
    assert log.next_offset == 2


async def test_a_log_without_epochs_is_cut_to_its_high_watermark(pair):
    leader, follower = pair
    await follower.has_log(0, 0, 0, high_watermark=1)
    await follower.adopt()
    follower.log().epochs.clear()
    follower.lead(epoch=9)
    assert named(await leader.next()) == [("t", 0, 9, 1, -1, 0)]
    assert follower.log().next_offset == 1


class SlowReads(SimulatedStorage):
    """Each read waits until the test lets it go on."""

    def __init__(self):
        super().__init__()
        self.gate = asyncio.Event()

    async def read(self, command):
        await self.gate.wait()
        return await super().read(command)


@pytest.mark.parametrize("older", ["0.11.0-IV0"], indirect=True)
async def test_a_log_that_this_broker_leads_before_its_turn_to_be_cut_is_not_cut(older):
    leader, follower = older
    storage = on_storage(follower, storage=SlowReads())
    for offset in range(3):
        follower.log().append_as_follower(batch(base_offset=offset, leader_epoch=0), 1)
    storage.run()
    while follower.log().drop_oldest():
        pass
    await follower.has_log(0, 0, 0, index=1, high_watermark=1)
    for index in (0, 1):
        await follower.adopt(index)
    follower.lead(0, 1, epoch=9)
    await eventually(lambda: follower.log().is_truncating, "the file of partition 0 is read")
    follower.lead(1, leader=ME, epoch=10)
    storage.gate.set()
    assert [row[1] for row in named(await leader.next(), by_name=True)] == [0]
    assert follower.log(1).next_offset == 3


@pytest.mark.parametrize("older", ["2.6"], indirect=True)
async def test_before_protocol_2_7_epochs_are_compared_before_the_first_fetch(older):
    leader, follower = older
    await with_log(older, 0, 0, 3, 3, 6, 6)
    request = await leader.next("OffsetForLeaderEpoch")
    assert (leader.header.api_version, request.replica_id) == (3, ME)
    rows = [(t.topic, p.partition, p.current_leader_epoch, p.leader_epoch) for t in request.topics for p in t.partitions]
    assert rows == [("t", 0, 9, 6)]
    leader.reply_epochs((0, OK, 4, 5))
    request = await leader.next("OffsetForLeaderEpoch")  # 4 is not known here: the end of 3 is compared
    assert request.topics[0].partitions[0].leader_epoch == 3
    leader.reply_epochs((0, OK, 3, 3))
    request = await leader.next()
    assert leader.header.api_version == 11
    assert (request.replica_id, named(request, by_name=True)) == (ME, [("t", 0, 9, 3, -1, 0)])
    assert follower.log().next_offset == 3


@pytest.mark.parametrize("older", ["2.6"], indirect=True)
async def test_a_log_whose_partition_changed_while_it_was_compared_is_not_cut(older):
    leader, follower = older
    await with_log(older, 0, 0, 3)
    follower.lead(1)
    await leader.next("OffsetForLeaderEpoch")
    log = follower.log()
    follower.lead(leader=ME, epoch=10)
    leader.reply_epochs((0, 0, 3, 1))
    assert [row[1] for row in named(await leader.next(), by_name=True)] == [1]
    assert log.next_offset == 3


@pytest.mark.parametrize("older", ["2.6"], indirect=True)
async def test_before_protocol_2_7_an_error_of_the_comparison_is_repeated_after_the_back_off(older):
    leader, follower = older
    await with_log(older, 0)
    await leader.next("OffsetForLeaderEpoch")
    leader.reply_epochs((0, ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1))
    await follower.backs_off()
    await leader.next("OffsetForLeaderEpoch")
    leader.reply_epochs((0, ErrorCode.FENCED_LEADER_EPOCH, -1, -1))
    await eventually(lambda: not follower.followers.fetchers, "the fenced partition is dropped")


@pytest.mark.parametrize("older", ["0.11.0-IV0"], indirect=True)
async def test_before_protocol_0_11_0_iv2_a_log_is_cut_to_its_high_watermark(older):
    leader, follower = older
    await with_log(older, 0, 0, 0, high_watermark=2)
    request = await leader.next()
    assert (leader.header.api_version, request.session_epoch) == (4, -1)
    assert [(p.partition, p.fetch_offset) for t in request.topics for p in t.partitions] == [(0, 2)]
    assert follower.log().next_offset == 2


@pytest.mark.parametrize("older", ["1.0"], indirect=True)
async def test_before_protocol_1_1_every_request_is_a_full_one(older):
    leader, follower = older
    follower.lead(0, 1)
    for _ in range(3):
        request = await leader.next()
        assert leader.header.api_version == 5
        assert [p.partition for t in request.topics for p in t.partitions] == [0, 1]
        leader.serve(part(0), part(1), session_id=0)


# --- offsets out of range


async def out_of_range(pair, *epochs):
    leader, _ = pair
    await with_log(pair, *epochs)
    await leader.next()
    leader.serve(part(0, error_code=ErrorCode.OFFSET_OUT_OF_RANGE))
    request = await leader.next("ListOffsets")
    row = request.topics[0].partitions[0]
    assert (request.replica_id, request.isolation_level, row.partition_index, row.current_leader_epoch, row.timestamp) == (ME, 0, 0, 9, -1)
    assert leader.header.api_version == 9
    return leader


async def test_more_records_than_the_leader_are_cut_off(pair):
    leader = await out_of_range(pair, 0, 0, 0)
    leader.reply_offsets(1)
    assert named(await leader.next()) == [("t", 0, 9, 1, 0, 0)]
    assert pair[1].log().next_offset == 1


async def test_a_follower_behind_the_leaders_start_begins_anew_there(pair):
    leader = await out_of_range(pair, 0, 0, 0)
    leader.reply_offsets(200)
    request = await leader.next("ListOffsets")
    assert request.topics[0].partitions[0].timestamp == -2
    leader.reply_offsets(150)
    assert named(await leader.next()) == [("t", 0, 9, 150, -1, 150)]
    log = pair[1].log()
    assert (log.log_start_offset, log.next_offset, log.high_watermark) == (150, 150, 150)
    leader.serve(part(0, batch(1, base_offset=150, leader_epoch=9), 151, start=150))
    assert named(await leader.next()) == [("t", 0, 9, 151, 9, 150)]


async def test_an_empty_follower_gets_a_log_that_begins_at_the_leaders_start(pair):
    leader, follower = pair
    follower.lead()
    await leader.next()
    leader.serve(part(0, error_code=ErrorCode.OFFSET_OUT_OF_RANGE))
    await leader.next("ListOffsets")
    leader.reply_offsets(12)
    await leader.next("ListOffsets")
    leader.reply_offsets(10)
    assert named(await leader.next()) == [("t", 0, 0, 10, -1, 10)]


@pytest.mark.parametrize("end", [3, 5])
async def test_an_offset_that_is_in_range_by_now_is_fetched_again(pair, end):
    leader = await out_of_range(pair, 0, 0, 0)
    leader.reply_offsets(end)
    await leader.next("ListOffsets")
    leader.reply_offsets(2)
    assert named(await leader.next()) == [("t", 0, 9, 3, 0, 0)]
    assert pair[1].log().next_offset == 3


async def test_records_for_a_log_that_begins_elsewhere_when_it_is_opened_are_fetched_from_there(pair):
    leader, follower = pair
    log = await follower.logs.open("t", 0, T, False)
    log.truncate_fully_and_start_at(5)
    follower.lead()
    await leader.next()
    leader.serve(part(0, batch(3, leader_epoch=0), 3))
    assert named(await leader.next()) == [("t", 0, 0, 5, -1, 5)]
    assert (log.log_start_offset, log.next_offset) == (5, 5)


async def test_an_error_of_list_offsets_waits_for_the_back_off(pair):
    leader = await out_of_range(pair, 0)
    leader.reply_offsets(-1, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert forgotten(await leader.next()) == [(T, 0)]


@pytest.mark.parametrize("older", ["0.9.0"], indirect=True)
async def test_list_offsets_0_gives_a_list(older):
    leader, _ = older
    await with_log(older, 0, 0, 0, high_watermark=3)
    await leader.next()
    leader.reply(leader_error(ErrorCode.OFFSET_OUT_OF_RANGE))
    request = await leader.next("ListOffsets")
    assert (leader.header.api_version, request.topics[0].partitions[0].max_num_offsets) == (0, 1)
    leader.reply_offsets(2)
    request = await leader.next()
    assert request.topics[0].partitions[0].fetch_offset == 2


def leader_error(code):
    response = messages.FetchResponse
    data = response.PartitionData(partition_index=0, error_code=code, high_watermark=-1)
    return response(responses=[response.FetchableTopicResponse(topic="t", partitions=[data])])


# --- connections


async def test_a_fault_of_a_fetcher_is_followed_by_a_back_off(pair, monkeypatch, caplog):
    leader, follower = pair
    follower.lead()
    fetch, faults = follower.fetcher._fetch, [RuntimeError("a fault")]

    async def fail_once():
        if faults:
            raise faults.pop()
        await fetch()

    monkeypatch.setattr(follower.fetcher, "_fetch", fail_once)
    await follower.backs_off()
    assert named(await leader.next()) == [("t", 0, 0, 0, -1, 0)]
    assert "unexpected exception in the fetcher" in caplog.text


async def test_a_lost_connection_is_opened_again_after_the_back_off_with_a_full_request(pair):
    leader, follower = pair
    follower.lead(0, 1)
    await leader.next()
    leader.serve(part(0), part(1))
    await leader.next()
    leader.writers[0].close()
    await follower.backs_off()
    request = await leader.next()
    assert leader.connections == 2
    assert (request.session_id, request.session_epoch, len(named(request))) == (SESSION, 0, 2)


async def test_a_leader_that_does_not_respond_is_given_up_after_the_request_timeout(pair):
    leader, follower = pair
    follower.lead()
    await leader.next()
    await follower.clock.advance(30)
    await follower.backs_off()
    await leader.next()
    assert leader.connections == 2


async def test_a_new_leader_epoch_ends_the_wait_for_a_leader_that_was_away(pair):
    leader, follower = pair
    port = leader.port
    await leader.stop()
    follower.lead()
    await eventually(follower.waits, "the back-off began")
    leader.port = port
    await leader.start()
    follower.lead(epoch=1)
    assert named(await leader.next()) == [("t", 0, 1, 0, -1, 0)]


async def test_a_leader_with_a_new_address_is_found_there(pair):
    leader, follower = pair
    follower.lead()
    await leader.next()
    other = Leader()
    await other.start()
    follower.know_leader(other.port)
    leader.serve(part(0))
    request = await other.next()
    assert request.session_id == SESSION
    await other.stop()


async def test_a_response_that_is_none_closes_the_connection(pair):
    leader, follower = pair
    follower.lead()
    await leader.next()
    leader.writers[0].write(b"\0\0\0\x05abcde")
    await follower.backs_off()
    await leader.next()
    assert leader.connections == 2


async def test_thirty_thousand_partitions_are_one_request_and_then_nothing_for_each(pair):
    leader, follower = pair
    count = 30_000
    follower.lead(*range(count))
    request = await leader.next()
    assert len(named(request)) == count
    leader.serve(*map(part, range(count)))
    request = await leader.next()
    assert (request.session_epoch, request.topics) == (1, [])
    assert not follower.logs.opened


# --- several fetchers for a leader


@pytest.mark.parametrize(
    ("topic", "partition", "count", "number"),
    [("t", 0, 2, 0), ("t", 1, 2, 1), ("t", 5, 7, 3), ("", 3, 2, 1), ("orders", 4, 3, 1), ("a" * 249, 0, 5, 1)],
)
def test_the_fetcher_of_a_partition_is_that_of_apache_kafka(topic, partition, count, number):
    assert fetcher_number(topic, partition, count) == number


async def test_partitions_are_spread_over_fetchers_that_have_a_connection_each(pair):
    leader, follower = pair
    follower.followers.resize(2)
    follower.lead(0, 1, 2)
    requests = {}
    for _ in range(2):
        request = await leader.next()
        requests[leader.header.client_id] = [row[1] for row in named(request)]
    assert requests == {"broker-1-fetcher-0": [0, 2], "broker-1-fetcher-1": [1]}
    assert leader.connections == 2
    follower.stop(1)
    assert [fetcher.session.count for fetcher in follower.followers.fetchers.values()] == [2, 0]


async def test_with_another_number_of_fetchers_partitions_go_on_where_their_logs_end(pair):
    leader, follower = pair
    follower.lead(0, 1)
    await leader.next()
    leader.serve(part(0, batch(2, leader_epoch=0), 2), part(1, batch(3, leader_epoch=0), 3))
    await leader.next()
    follower.followers.resize(2)
    request = await leader.next()
    assert leader.header.client_id == "broker-1-fetcher-1"
    assert [(row[1], row[3]) for row in named(request)] == [(1, 3)]
    assert follower.followers.find("t", 1) is follower.followers.fetchers[LEADER, 1].session.get("t", 1)
    follower.followers.resize(1)
    await eventually(lambda: follower.fetcher.session.count == 2, "the first fetcher has both")
    leader.serve(part(1))
    assert forgotten(await leader.next()) == [(T, 1)]
    leader.serve(session_id=0)
    await eventually(lambda: list(follower.followers.fetchers) == [(LEADER, 0)], "one fetcher is left")
    follower.lead(1, leader=ME, epoch=1)
    assert follower.followers.find("t", 1) is None


async def test_a_partition_that_is_led_here_when_the_number_changes_is_not_fetched_again(pair):
    leader, follower = pair
    follower.lead(0, 1)
    await leader.next()
    follower.followers.resize(2)
    follower.lead(1, leader=ME, epoch=1)
    await eventually(lambda: not follower.background._tasks, "nothing moves any more")
    assert follower.followers.find("t", 1) is None


# --- logs on disk


def on_storage(follower, index=0, storage=None):
    """A log whose files are written when the test says so."""
    storage = storage or SimulatedStorage()
    environment = LogEnvironment(follower.logs.budget, lambda: 0, lambda bound: 0)
    follower.logs.opened["t", index] = Log("t", index, T, LogConfig(), environment, storage, empty())
    return storage


async def served_and_not_written(leader, follower):
    """Partition 1 is followed, and three records of it are on their way to the disk."""
    storage = on_storage(follower, 1)
    follower.lead(1)
    await leader.next()
    leader.serve(part(1, batch(3, leader_epoch=0), 3))
    await eventually(lambda: any(isinstance(command, Append) for command in storage.queue), "the records are appended")
    return storage


async def test_the_next_request_comes_when_the_records_are_written_for_it_counts_as_replicated(pair):
    leader, follower = pair
    storage = await served_and_not_written(leader, follower)
    follower.lead(0)  # whose fetch would come now
    for _ in range(100):
        await asyncio.sleep(0)
    assert leader.seen == len(leader.requests)
    storage.run()
    assert sorted((row[1], row[3]) for row in named(await leader.next())) == [(0, 0), (1, 3)]


async def test_a_partition_gets_another_fetcher_when_its_records_are_written(pair):
    leader, follower = pair
    storage = await served_and_not_written(leader, follower)
    follower.followers.resize(2)
    for _ in range(100):
        await asyncio.sleep(0)
    assert follower.followers.find("t", 1) is None
    storage.run()
    requests = {}
    for _ in range(2):  # that of the fetcher which has nothing more ends its session
        request = await leader.next()
        requests[leader.header.client_id] = [(row[1], row[3]) for row in named(request)]
    assert requests == {"broker-1-fetcher-0": [], "broker-1-fetcher-1": [(1, 3)]}


@pytest.mark.parametrize("what", ["stopped", "followed in a new epoch"])
async def test_a_partition_that_changes_while_it_gets_another_fetcher_is_what_the_controller_said_last(pair, what):
    leader, follower = pair
    storage = await served_and_not_written(leader, follower)
    follower.followers.resize(2)
    if what == "stopped":
        follower.stop(1)
    else:
        follower.lead(1, epoch=4)
        (request,) = [await leader.next()]
        assert [(row[1], row[2]) for row in named(request)] == [(1, 4)]
    storage.run()
    await eventually(lambda: not follower.background._tasks, "nothing moves any more")
    found = follower.followers.find("t", 1)
    assert (None if found is None else found.leader_epoch) == (None if what == "stopped" else 4)


async def test_the_leaders_log_start_is_taken_as_far_as_the_own_log_reaches(pair):
    leader, follower = pair
    follower.lead()
    await leader.next()
    leader.serve(part(0, batch(3, leader_epoch=0), 3))
    await leader.next()
    leader.serve(part(0, high_watermark=9, start=5))
    assert named(await leader.next()) == [("t", 0, 0, 3, 0, 3)]
    assert (follower.hosted().log_start_offset, follower.hosted().log_end_offset) == (3, 3)


async def test_who_waits_for_a_follower_and_its_lag_follow_each_response(pair):
    leader, follower = pair
    follower.lead(0)
    await leader.next()
    assert follower.followers.lag("t", 0) == -1
    leader.serve(part(0, high_watermark=4))
    await leader.next()
    assert follower.followers.lag("t", 0) == 4
    seen = []

    class Waiter:
        def partition_changed(self, partition):
            seen.append((partition.log_end_offset, partition.high_watermark))

    follower.hosted(0).watch(Waiter())
    leader.serve(part(0, batch(3, leader_epoch=0), 1))
    await leader.next()
    assert seen[-1] == (3, 1)
    leader.serve(part(0, high_watermark=3))
    await leader.next()
    assert (seen[-1], follower.followers.lag("t", 0)) == ((3, 3), 0)
