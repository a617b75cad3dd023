"""MetadataFetch as the controller answers it: the table of 25.1 row by row, long polls, pace."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from klamm.controller.metadata_log.fetches import FETCHES_AT_ONCE, FETCHES_PER_S, WAKE_S_PER_FETCH, MetadataFetch
from klamm.controller.values import BrokerState
from klamm.protocol.errors import ErrorCode
from klamm.protocol.records.metadata_records import decode_records
from klamm.tests.controller.registrations.registered import INTERVAL_S, SESSION_S, DrivenStage, RegisteredBroker
from klamm.tests.controller.stage import ME, OneConnection


@pytest.fixture
async def stage() -> AsyncIterator[DrivenStage]:
    one = DrivenStage()
    yield one
    await one.close()


@pytest.fixture
async def nine(stage: DrivenStage) -> RegisteredBroker:
    """A broker that is fenced and has read nothing."""
    await stage.open(1, 2)
    await stage.create("t", (1, 2))
    return await stage.registered(9)


def heard_at(stage: DrivenStage) -> float:
    """When broker 9 was heard last."""
    return stage.term.sessions._sessions[9].heard_at


@pytest.mark.requirement("RREG-2")
async def test_only_the_active_controller_answers(
    stage: DrivenStage, nine: RegisteredBroker, caplog: pytest.LogCaptureFixture
) -> None:
    end = await nine.fetch()
    moment = heard_at(stage)
    await stage.advance(1)
    newer = await nine.fetch(controller_epoch=2)
    assert (newer.error, newer.records, newer.controller_epoch) == (ErrorCode.NOT_CONTROLLER, None, 1)
    assert (newer.state, newer.high_watermark) == (BrokerState.FENCED, end.high_watermark)
    assert heard_at(stage) == moment, "no heartbeat"
    await nine.come_online()
    waiting = await nine.start_fetch(max_wait_ms=1000)
    stage.controller.election.resign()
    assert (await waiting).error is ErrorCode.NOT_CONTROLLER
    other = await stage.controller.metadata_fetch(nine.request(), nine.connection)
    assert other == (ErrorCode.NOT_CONTROLLER, False, -1, -1, -1, -1, None, 0)
    assert "is refused" not in caplog.text, "it is from the broker"


@pytest.mark.requirement("RREG-2", "RREG-9")
async def test_who_is_not_registered_or_has_another_epoch_is_told_so_and_not_heard(stage: DrivenStage, nine: RegisteredBroker) -> None:
    moment = heard_at(stage)
    await stage.advance(1)
    for broker_id in (8, 1, -1):
        unknown = await nine.fetch(broker_id=broker_id)
        assert (unknown.error, unknown.state, unknown.records) == (ErrorCode.BROKER_ID_NOT_REGISTERED, BrokerState.OFFLINE, None)
    for epoch in (0, 2, -1):
        stale = await nine.fetch(broker_epoch=epoch)
        assert (stale.error, stale.state, stale.controller_epoch) == (ErrorCode.STALE_BROKER_EPOCH, BrokerState.FENCED, 1)
    assert heard_at(stage) == moment
    await nine.fetch(wants_shutdown=True)
    assert stage.states() == {9: "OFFLINE"}
    assert (await nine.fetch()).error is ErrorCode.BROKER_ID_NOT_REGISTERED


@pytest.mark.requirement("RREG-25", "RREG-8")
async def test_a_broker_without_a_secret_changes_its_connection_only_when_the_former_one_is_closed(
    stage: DrivenStage, nine: RegisteredBroker, caplog: pytest.LogCaptureFixture
) -> None:
    first, second, foreign, elsewhere = nine.connection, OneConnection(), OneConnection(), OneConnection()
    foreign.principal, elsewhere.host = "User:eve", "192.0.2.1"
    await nine.come_online()
    moment = heard_at(stage)
    await stage.advance(1)
    for nine.connection in (second, foreign, elsewhere, second):
        assert (await nine.fetch()).error is ErrorCode.STALE_BROKER_EPOCH
    assert len([r for r in caplog.records if "is refused: it is not from that broker" in r.message]) == 3, "once for each connection"
    first.is_open = False
    for nine.connection in (foreign, elsewhere):
        assert (await nine.fetch(wants_shutdown=True)).error is ErrorCode.STALE_BROKER_EPOCH
    assert heard_at(stage) == moment and stage.states() == {9: "ONLINE"}
    nine.connection = second
    assert (await nine.fetch()).error is ErrorCode.NONE
    assert heard_at(stage) > moment


@pytest.mark.requirement("RREG-25", "RREG-8")
async def test_a_broker_whose_session_is_over_may_come_back_on_another_connection(stage: DrivenStage, nine: RegisteredBroker) -> None:
    """The network lost its connection, and the controller does not know that."""
    await nine.come_online()
    await stage.advance(SESSION_S + 0.1)
    assert stage.states() == {9: "FENCED"}
    nine.connection = OneConnection()
    await nine.come_online()


@pytest.mark.requirement("RREG-25", "RREG-8")
async def test_a_broker_with_a_secret_is_known_by_it_on_every_connection_and_others_are_refused(stage: DrivenStage) -> None:
    await stage.open(1)
    broker = await stage.registered(9, secret=b"nobody knows")
    await broker.come_online()
    own = broker.connection
    for is_open in (True, False):
        own.is_open = is_open
        for secret in (b"", b"nobody", b"nobody knows."):
            broker.connection = OneConnection()
            assert (await broker.fetch(secret=secret)).error is ErrorCode.STALE_BROKER_EPOCH, secret
    broker.connection = OneConnection()
    assert (await broker.fetch(secret=b"nobody knows")).error is ErrorCode.NONE, "the former connection may be open or not"
    assert (await broker.fetch()).error is ErrorCode.NONE, "and its own connection needs no secret"
    await broker.register(secret=b"another")
    broker.connection = OneConnection()
    assert (await broker.fetch(secret=b"nobody knows")).error is ErrorCode.STALE_BROKER_EPOCH
    assert (await broker.fetch(secret=b"another")).error is ErrorCode.NONE


@pytest.mark.requirement("RREG-25", "RREG-13")
async def test_the_next_controller_knows_a_broker_by_its_secret(stage: DrivenStage) -> None:
    await stage.open(1)
    broker = await stage.registered(9, secret=b"nobody knows")
    await broker.come_online()
    stage.controller.election.resign()
    await stage.settle()
    stage.controller.new_session()
    await stage.settle()
    broker.connection = OneConnection()
    assert (await broker.fetch()).error is ErrorCode.STALE_BROKER_EPOCH
    assert (await broker.fetch(secret=b"nobody knows")).error is ErrorCode.FENCED_LEADER_EPOCH, "from the broker, which begins again"


async def test_a_broker_that_knows_no_controller_epoch_reads_from_the_start(stage: DrivenStage, nine: RegisteredBroker) -> None:
    await stage.advance(1)
    first = await nine.fetch(offset=10**9)
    assert (first.error, first.start_offset, first.controller_epoch) == (ErrorCode.NONE, 0, 1)
    assert first.records is not None and next(iter(decode_records(first.records)))[0] == 0
    assert heard_at(stage) == stage.time.monotonic()


@pytest.mark.requirement("RREG-7")
async def test_a_broker_that_knows_no_controller_epoch_never_comes_online(stage: DrivenStage, nine: RegisteredBroker) -> None:
    end = (await nine.fetch()).high_watermark
    for offset in (end, 0, end):
        assert (await nine.fetch(controller_epoch=-1, offset=offset)).state == BrokerState.FENCED
    assert stage.states() == {9: "FENCED"}


async def test_a_broker_of_an_older_controller_starts_again_and_is_heard(stage: DrivenStage, nine: RegisteredBroker) -> None:
    await stage.advance(1)
    older = await nine.fetch(controller_epoch=0)
    assert (older.error, older.controller_epoch, older.start_offset) == (ErrorCode.FENCED_LEADER_EPOCH, 1, 0)
    assert (older.records, older.state) == (None, BrokerState.FENCED)
    assert heard_at(stage) == stage.time.monotonic()


async def test_an_offset_outside_of_the_log_is_refused_and_heard(stage: DrivenStage, nine: RegisteredBroker) -> None:
    end = (await nine.fetch()).high_watermark
    for offset in (end + 1, -1, 2**63 - 1, -(2**63)):
        await stage.advance(1)
        lie = await nine.fetch(offset=offset, controller_epoch=1)
        assert (lie.error, lie.records, lie.high_watermark) == (ErrorCode.OFFSET_OUT_OF_RANGE, None, end)
        assert heard_at(stage) == stage.time.monotonic()
    assert stage.states() == {9: "FENCED"}


@pytest.mark.requirement("RREG-7")
async def test_a_broker_that_has_read_everything_is_online_before_it_hears_of_it(stage: DrivenStage, nine: RegisteredBroker) -> None:
    await nine.fetch()
    mark = stage.mark()
    waiting = await nine.start_fetch(max_wait_ms=10_000)
    assert stage.states() == {9: "ONLINE"}
    fetched = await waiting
    assert fetched.state == BrokerState.ONLINE and fetched.records is not None
    assert [type(record).__name__ for _, record in decode_records(fetched.records)] == ["UnfenceBrokerRecord"]
    assert set(stage.cluster.brokers) == {1, 2, 9}
    assert stage.frames(mark, "UMR 9") == ["UMR 9: t-0 1 e0 [1, 2] v0"]


@pytest.mark.requirement("RREG-7")
async def test_a_broker_with_a_part_of_the_log_stays_fenced(stage: DrivenStage, nine: RegisteredBroker) -> None:
    end = (await nine.fetch()).high_watermark
    assert (await nine.fetch(offset=end - 1)).records
    assert stage.states() == {9: "FENCED"}


async def test_a_fetch_at_the_end_waits_for_records_and_at_most_for_its_time(stage: DrivenStage, nine: RegisteredBroker) -> None:
    await nine.come_online()
    for wait_ms, seconds in ((500, 0.5), (60_000, INTERVAL_S), (2**31 - 1, INTERVAL_S)):
        waiting = await nine.start_fetch(max_wait_ms=wait_ms)
        await stage.advance(seconds - 0.01)
        assert not waiting.done()
        await stage.advance(0.02)
        assert waiting.done() and (await waiting).records == b""
    for wait_ms in (0, -1, -(2**31)):
        assert (await nine.fetch(max_wait_ms=wait_ms)).records == b"", "at once"
    waiting = await nine.start_fetch(max_wait_ms=2000)
    await stage.create("u", (1,))
    assert waiting.done() and (await waiting).records


async def test_a_batch_is_whole_whatever_may_be_read(stage: DrivenStage, nine: RegisteredBroker) -> None:
    for most in (0, 1, -1, -(2**31)):
        few = await nine.fetch(controller_epoch=-1, max_bytes=most)
        assert few.records and list(decode_records(few.records))
    everything = await nine.fetch(controller_epoch=-1, max_bytes=2**31 - 1)
    assert everything.records is not None and few.records is not None and len(everything.records) >= len(few.records)


async def test_an_observer_reads_the_log_and_is_no_broker(stage: DrivenStage, nine: RegisteredBroker) -> None:
    connection = OneConnection()

    async def observe(controller_epoch: int, offset: int, broker_epoch: int = -1) -> tuple[int, int, bytes | None]:
        fetch = MetadataFetch(-1, broker_epoch, controller_epoch, offset, 0, 1 << 20, wants_shutdown=True)
        fetched = await stage.controller.metadata_fetch(fetch, connection)
        return fetched.error, fetched.state, fetched.records

    assert await observe(0, 5) == (ErrorCode.FENCED_LEADER_EPOCH, BrokerState.OFFLINE, None)
    error, state, records = await observe(1, 0)
    assert (error, state) == (0, 0) and records is not None
    end = [offset for offset, _ in decode_records(records)][-1] + 1
    assert await observe(1, end) == (0, 0, b"")
    assert await observe(1, end + 1) == (ErrorCode.OFFSET_OUT_OF_RANGE, 0, None)
    assert (await observe(1, 0, broker_epoch=1))[0] == ErrorCode.BROKER_ID_NOT_REGISTERED
    assert stage.states() == {9: "FENCED"} and ME not in stage.cluster.registrations


async def test_a_broker_that_fetches_in_a_tight_loop_is_answered_late_and_no_other(stage: DrivenStage, nine: RegisteredBroker) -> None:
    other = await stage.registered(8)
    await nine.fetch()
    await other.fetch()
    for _ in range(FETCHES_AT_ONCE):
        assert (await nine.fetch(offset=0)).throttle_ms == 0
    late = await nine.start_fetch(offset=0)
    assert not late.done()
    assert (await other.fetch()).throttle_ms == 0
    await stage.advance(1 / FETCHES_PER_S)
    assert (await late).throttle_ms == 1000 // FETCHES_PER_S
    await stage.advance(FETCHES_AT_ONCE / FETCHES_PER_S)
    assert (await nine.fetch(offset=0)).throttle_ms == 0, "a pause gives it back"


async def test_a_broker_that_reads_on_is_never_answered_late(stage: DrivenStage, nine: RegisteredBroker) -> None:
    await nine.come_online()
    for number in range(FETCHES_AT_ONCE * 2):
        await stage.create(f"n{number}", (1,))
        assert (await nine.fetch()).throttle_ms == 0


async def test_refused_fetches_are_answered_late_too(stage: DrivenStage, nine: RegisteredBroker) -> None:
    for _ in range(FETCHES_AT_ONCE):
        assert (await nine.fetch(broker_id=77)).throttle_ms == 0
    late = await nine.start_fetch(broker_id=77)
    await stage.advance(1)
    assert (await late).throttle_ms > 0
    assert (await stage.controller.metadata_fetch(nine.request(), OneConnection())).throttle_ms == 0, "another connection"


async def test_waiting_fetches_are_answered_together_and_not_too_often(stage: DrivenStage, nine: RegisteredBroker) -> None:
    await nine.come_online()
    brokers = [nine, *[await stage.online(b) for b in range(20, 30)]]
    for broker in brokers:
        await broker.fetch()
    for topic, seconds in (("a", 0.0), ("b", len(brokers) * WAKE_S_PER_FETCH)):
        waiting = [await broker.start_fetch(max_wait_ms=2000) for broker in brokers]
        await stage.create(topic, (1,))
        assert [task.done() for task in waiting] == [seconds == 0] * len(brokers)
        await stage.advance(seconds)
        for broker, task in zip(brokers, waiting, strict=True):
            fetched = await task
            assert fetched.records
            broker.view.apply(fetched.records, 1)
            await broker.fetch()
