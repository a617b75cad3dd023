"""States of brokers that registered with the controller: fenced, online, stopping, gone; fail-over; two kinds of brokers under one id."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator

import pytest

from klamm.controller.broker_sessions import FORGOTTEN_AFTER, GRACE_S, NOTED_AFTER, BrokerSessions
from klamm.controller.brokers import broker_states
from klamm.controller.changes import RegistrationsChanged
from klamm.controller.event_loop.controller_election import SeenController
from klamm.controller.phases import FailoverBegun
from klamm.controller.states import BROKER_MOVES, REGISTERING_MOVES
from klamm.controller.values import BrokerRegistration, BrokerState
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.server.local.driven_clock import DrivenClock
from klamm.tests.controller.registrations.registered import NOTICE_S, SESSION_S, DrivenStage, RegisteredBroker
from klamm.tests.controller.stage import OneConnection, Stage, events, isr_request

OFFLINE, FENCED, ONLINE, STOPPING = BrokerState


@pytest.fixture
async def stage() -> AsyncIterator[DrivenStage]:
    one = DrivenStage()
    yield one
    await one.close()


async def keep(stage: DrivenStage, seconds: float, *brokers: RegisteredBroker) -> None:
    """Time passes in which these brokers fetch; others are silent."""
    for _ in range(int(seconds)):
        await stage.advance(1)
        for broker in brokers:
            await broker.fetch()


# --- silence ---


@pytest.mark.requirement("RREG-8", "RREG-20")
async def test_a_silent_broker_is_fenced_and_its_leaders_move_although_its_process_lives(stage: DrivenStage) -> None:
    await stage.open(1, 2)
    nine = await stage.online(9)
    await stage.create("t", (9, 1), (1, 9))
    mark = stage.mark()
    await stage.advance(SESSION_S - 0.1)
    assert stage.states() == {9: "ONLINE"}
    await stage.advance(0.2)
    assert stage.states() == {9: "FENCED"}
    assert (stage.state("t"), stage.state("t", 1)) == ("1 e1 [1] v1", "1 e1 [1] v1")
    assert not [text for text in stage.frames(mark) if text.startswith(("LISR 9", "SR 9"))]
    assert 9 not in stage.cluster.registered
    assert [(change.state, change.is_silent) for change in _registrations(stage)] == [
        (FENCED, False), (ONLINE, False), (ONLINE, True), (FENCED, False),
    ]
    await nine.fetch()
    await nine.fetch()
    assert stage.states() == {9: "ONLINE"}
    assert stage.world.registrations[9].epoch == 1, "the same epoch"
    assert "LISR 9: t-0 1 e1 [1] v1 t-1 1 e1 [1] v1" in stage.frames(mark)


def _registrations(stage: Stage) -> list[BrokerRegistration]:
    return [r for change in stage.changes if isinstance(change, RegistrationsChanged) for r in change.registrations]


@pytest.mark.requirement("RREG-24")
@pytest.mark.parametrize("state", [ONLINE, STOPPING])
async def test_silence_is_noted_before_a_broker_is_fenced_and_taken_back_when_it_is_heard(stage: DrivenStage, state: BrokerState) -> None:
    nine = await _nine_in(stage, state)
    await stage.advance(SESSION_S * NOTED_AFTER - 0.1)
    assert not stage.world.registrations[9].is_silent
    await stage.advance(0.2)
    assert (stage.world.registrations[9].state, stage.world.registrations[9].is_silent) == (state, True)
    high_watermark = (await nine.fetch()).high_watermark
    assert (stage.world.registrations[9].state, stage.world.registrations[9].is_silent) == (state, False)
    assert (await nine.fetch()).high_watermark == high_watermark, "nothing of it is in the log"
    assert 9 in stage.cluster.brokers
    await stage.advance(SESSION_S - 0.1)
    assert (stage.world.registrations[9].state, stage.world.registrations[9].is_silent) == (state, True)
    await stage.advance(0.2)
    gone = FENCED if state is ONLINE else BrokerState.OFFLINE
    assert (stage.world.registrations[9].state, stage.world.registrations[9].is_silent) == (gone, False)


@pytest.mark.requirement("RREG-24")
async def test_a_new_controller_takes_back_that_a_broker_is_silent_when_it_hears_it(stage: DrivenStage) -> None:
    await stage.open(1, 2)
    heard, silent = await stage.online(8), await stage.online(9)
    await stage.advance(SESSION_S - 1)
    assert all(registration.is_silent for registration in stage.world.registrations.values())
    await stage.fail_over()
    assert all(registration.is_silent for registration in stage.cluster.registrations.values())
    await heard.fetch()
    assert {b: registration.is_silent for b, registration in stage.world.registrations.items()} == {8: False, 9: True}
    await keep(stage, SESSION_S - 1, heard)
    assert stage.states() == {8: "ONLINE", 9: "ONLINE"}
    await keep(stage, 2, heard)
    assert stage.states() == {8: "ONLINE", 9: "FENCED"}
    await silent.come_online()
    assert not stage.world.registrations[9].is_silent


@pytest.mark.requirement("RREG-24")
async def test_a_broker_whose_silence_is_noted_late_is_fenced_late() -> None:
    clock = DrivenClock()
    sessions = BrokerSessions(clock, SESSION_S, lambda: None)
    sessions.began(9, None)
    await clock.advance(SESSION_S - 1)
    assert sessions.silence().to_note == [9]
    await clock.advance(5)
    assert sessions.silence() == ([9], [], [], []), "ZooKeeper did not take it"
    sessions.noted([9])
    await clock.advance(NOTICE_S - 0.1)
    assert not any(sessions.silence())
    await clock.advance(0.1)
    assert sessions.silence().over == [9]


@pytest.mark.requirement("RREG-8")
async def test_every_fetch_restarts_the_session_and_a_silent_broker_is_fenced_alone(stage: DrivenStage) -> None:
    await stage.open(1)
    brokers = [await stage.online(b) for b in (7, 8, 9)]
    await keep(stage, 3 * SESSION_S, *brokers[:2])
    assert stage.states() == {7: "ONLINE", 8: "ONLINE", 9: "FENCED"}


@pytest.mark.requirement("RREG-8")
async def test_a_fenced_broker_that_stops_fetching_stays_fenced_and_is_sent_nothing_after_long_silence(stage: DrivenStage) -> None:
    await stage.open(1)
    nine = await stage.registered(9)
    await stage.advance(SESSION_S + 1)
    assert stage.states() == {9: "FENCED"} and 9 in stage.cluster.fenced
    assert (await stage.register(9)).epoch == 2, "nobody holds the id"
    await stage.advance((FORGOTTEN_AFTER + 1) * SESSION_S)
    assert stage.states() == {9: "FENCED"} and 9 not in stage.cluster.fenced
    mark = stage.mark()
    await stage.create("t", (1,))
    assert not stage.frames(mark, "UMR 9")
    nine.epoch = 2
    await nine.come_online()
    assert stage.frames(mark, "UMR 9") and set(stage.cluster.brokers) == {1, 9}


@pytest.mark.requirement("RREG-8")
async def test_a_broker_is_fenced_in_its_time_although_another_one_has_been_silent_for_long(stage: DrivenStage) -> None:
    await stage.open(1)
    await stage.online(7)
    await stage.advance(SESSION_S + 1)
    assert stage.states() == {7: "FENCED"}, "the next time to look at its session is long after"
    await stage.online(9)
    await stage.advance(SESSION_S + 0.1)
    assert stage.states() == {7: "FENCED", 9: "FENCED"}


@pytest.mark.requirement("RREG-8")
async def test_a_broker_that_came_back_is_fenced_in_its_time_again(stage: DrivenStage) -> None:
    await stage.open(1)
    nine = await stage.online(9)
    await stage.advance(SESSION_S + 1)
    await nine.come_online()
    await stage.advance(SESSION_S + 0.1)
    assert stage.states() == {9: "FENCED"}


async def test_time_in_which_the_controller_did_not_run_is_not_silence(stage: DrivenStage) -> None:
    await stage.open(1)
    nine = await stage.online(9)
    stage.time.jump(5 * SESSION_S)
    await stage.settle()
    assert stage.states() == {9: "ONLINE"}
    await nine.fetch()
    await stage.advance(SESSION_S - 0.1)
    assert stage.states() == {9: "ONLINE"}
    await stage.advance(0.2)
    assert stage.states() == {9: "FENCED"}


async def test_after_time_in_which_the_controller_did_not_run_brokers_have_a_moment_to_fetch(stage: DrivenStage) -> None:
    await stage.open(1)
    nine = await stage.online(9)
    await stage.online(8)
    stage.time.jump(5 * SESSION_S)
    await stage.advance(GRACE_S - 0.1)
    assert stage.states() == {8: "ONLINE", 9: "ONLINE"}
    await nine.fetch()
    await stage.advance(0.2)
    assert {b: r.is_silent for b, r in stage.world.registrations.items()} == {8: True, 9: False}
    await stage.advance(NOTICE_S - 0.2)
    assert stage.states() == {8: "ONLINE", 9: "ONLINE"}, "the broker may rely on this time"
    await stage.advance(1)
    assert stage.states() == {8: "FENCED", 9: "ONLINE"}


async def test_a_fetch_that_arrives_while_the_end_of_the_session_waits_in_the_queue_counts(stage: DrivenStage) -> None:
    await stage.open(1)
    nine = await stage.online(9)
    await stage.time.advance(SESSION_S - 0.01)
    await nine.fetch()
    await stage.put(events.BrokerSessionsExpired())
    assert stage.states() == {9: "ONLINE"}


async def test_all_brokers_that_are_silent_together_are_fenced_together(stage: DrivenStage) -> None:
    await stage.open(1)
    for b in range(10, 20):
        await stage.registered(b)
    for b in range(10, 20):
        stage.controller.put(events.BrokerCaughtUp(b, 1))
    mark = stage.mark()
    await stage.settle()
    assert set(stage.states().values()) == {"ONLINE"}
    assert len(stage.frames(mark, "UMR 1:")) == 1, "one request for all that came online"
    mark = stage.mark()
    await stage.advance(2 * SESSION_S)
    assert set(stage.states().values()) == {"FENCED"}
    assert len(stage.frames(mark, "UMR 1:")) == 1


# --- stopping ---


@pytest.mark.requirement("RREG-10")
async def test_a_broker_that_wants_to_stop_goes_offline_once_it_leads_nothing(stage: DrivenStage) -> None:
    await stage.open(1, 2)
    nine = await stage.online(9)
    await stage.create("t", (9, 1), (2, 9))
    await stage.create("alone", (9,))
    mark = stage.mark()
    stopped = await nine.fetch(wants_shutdown=True, max_wait_ms=10_000)
    assert (stopped.error, stopped.may_go, stopped.state) == (ErrorCode.NONE, True, BrokerState.OFFLINE)
    assert [r.state for r in _registrations(stage)] == [FENCED, ONLINE, STOPPING, OFFLINE]
    assert (stage.state("t"), stage.state("t", 1), stage.state("alone")) == ("1 e1 [1] v1", "2 e1 [2] v1", "-1 e1 [9] v1")
    assert stage.frames(mark, "SR 9")[0] == "SR 9: t-1 e0"
    assert set(stage.cluster.brokers) == {1, 2} and not stage.cluster.shutting_down and not stage.cluster.fenced
    assert (await nine.fetch(wants_shutdown=True)).error is ErrorCode.BROKER_ID_NOT_REGISTERED
    assert (await nine.register()).epoch == 2


@pytest.mark.requirement("RREG-10")
async def test_a_broker_that_leads_what_nobody_else_can_is_stopping(stage: DrivenStage) -> None:
    await stage.open(1, 2)
    nine = await stage.online(9)
    await stage.create("t", (9, 1))
    await stage.stop(1)
    assert stage.state("t") == "9 e1 [9] v1"
    for _ in range(2):
        stopping = await nine.fetch(wants_shutdown=True, max_wait_ms=10_000)
        assert (stopping.error, stopping.may_go, stopping.state) == (ErrorCode.NONE, False, BrokerState.STOPPING)
    assert stage.states() == {9: "STOPPING"} and 9 in stage.cluster.shutting_down
    stage.world.delete_topic("t")
    await stage.settle()
    waiting = await nine.start_fetch(max_wait_ms=2000)
    assert (await nine.fetch(wants_shutdown=True)).may_go
    fetched = await waiting
    assert (fetched.error, fetched.may_go, fetched.state) == (ErrorCode.NONE, True, BrokerState.OFFLINE), "so is a fetch that waited"


@pytest.mark.requirement("RREG-10", "RREG-14")
async def test_a_broker_that_leads_what_another_can_lead_again_may_go(stage: DrivenStage) -> None:
    await stage.open(1, 2)
    nine = await stage.online(9)
    await stage.create("t", (9, 1))
    await stage.stop(1)
    await stage.start(1)
    for epoch, error in ((0, ErrorCode.STALE_BROKER_EPOCH), (1, ErrorCode.NONE)):
        response = await stage.controller.alter_partition(isr_request(9, epoch, b"t".ljust(16, b"\1"), 0, 1, 1, [9, 1]), 2)
        assert response.error_code == error, "the epoch of the znode is the broker epoch"
    await stage.settle()
    assert (await nine.fetch(wants_shutdown=True)).may_go
    assert stage.state("t") == "1 e2 [1] v3"


@pytest.mark.requirement("RREG-10")
async def test_a_fenced_broker_that_wants_to_stop_is_offline_at_once(stage: DrivenStage) -> None:
    await stage.open(1)
    nine = await stage.registered(9)
    stopped = await nine.fetch(wants_shutdown=True)
    assert (stopped.may_go, stopped.state, stage.states()) == (True, BrokerState.OFFLINE, {9: "OFFLINE"})
    assert not stage.cluster.fenced


@pytest.mark.requirement("RREG-10")
async def test_a_stopping_broker_that_is_silent_goes_offline(stage: DrivenStage) -> None:
    await stage.open(1, 2)
    nine = await stage.online(9)
    await stage.create("t", (9, 1))
    await stage.stop(1)
    await nine.fetch(wants_shutdown=True)
    await stage.advance(SESSION_S + 0.1)
    assert stage.states() == {9: "OFFLINE"}
    assert stage.state("t") == "-1 e2 [9] v2" and not stage.cluster.shutting_down


@pytest.mark.requirement("RREG-25")
@pytest.mark.parametrize("epoch", [-1, 0, 1, 2])
async def test_a_controlled_shutdown_request_does_not_stop_a_broker_that_registered_with_the_controller(
    stage: DrivenStage, epoch: int
) -> None:
    await stage.open(1)
    nine = await stage.online(9)
    await stage.create("t", (9, 1))
    with pytest.raises(ApiError, match="INVALID_REQUEST: broker 9 registered with the controller"):
        await stage.controller.controlled_shutdown(9, epoch)
    assert stage.states() == {9: "ONLINE"} and not stage.cluster.shutting_down
    assert (await nine.fetch(wants_shutdown=True)).may_go


# --- moves ---


@pytest.mark.requirement("RREG-11")
@pytest.mark.parametrize("before", BrokerState)
@pytest.mark.parametrize("after", BrokerState)
async def test_only_legal_moves_are_written_and_others_are_logged(
    stage: DrivenStage, before: BrokerState, after: BrokerState, caplog: pytest.LogCaptureFixture
) -> None:
    legal = {(FENCED, ONLINE), (FENCED, OFFLINE), (ONLINE, FENCED), (ONLINE, STOPPING), (STOPPING, OFFLINE)}
    assert {(source, target) for target, sources in BROKER_MOVES.items() for source in sources} == legal
    assert {(source, target) for target, sources in REGISTERING_MOVES.items() for source in sources} == {
        (source, FENCED) for source in (None, OFFLINE, FENCED, ONLINE, STOPPING)
    }
    await stage.open(1)
    await stage.registered(9)
    if before is not FENCED:
        stage.cluster.registrations_changed([stage.cluster.registrations[9]._replace(state=before)])
    moved = await broker_states.move(stage.term, [9], after)
    assert bool(moved) == ((before, after) in legal)
    assert stage.cluster.registrations[9].state is (after if moved else before)
    assert (f"broker 9 is {before.name} and does not become {after.name}" in caplog.text) == (not moved)


@pytest.mark.requirement("RREG-16")
async def test_a_second_registration_bounces_the_broker_with_its_new_endpoints(stage: DrivenStage) -> None:
    await stage.open(1)
    nine = await stage.online(9)
    await stage.create("t", (9, 1))
    mark = stage.mark()
    old = stage.world.registrations[9].endpoints[0]
    await nine.register(endpoints=(old._replace(host="moved"),), rack="r")
    assert stage.states() == {9: "FENCED"}
    assert stage.state("t") == "1 e1 [1] v1"
    stored = stage.world.registrations[9]
    assert (stored.epoch, stored.endpoints[0].host, stored.rack) == (2, "moved", "r")
    assert [text for text in stage.frames(mark) if text.startswith("UMR 9")], "it hears of everything again"
    await nine.come_online()
    assert stage.cluster.brokers[9].epoch == 2
    assert stage.channels.open >= {1, 9}
    with pytest.raises(ApiError):
        await stage.register(9, OneConnection())


@pytest.mark.requirement("RREG-16")
async def test_a_stopping_broker_that_registers_again_is_fenced_and_comes_back(stage: DrivenStage) -> None:
    await stage.open(1, 2)
    nine = await stage.online(9)
    await stage.create("t", (9, 1))
    await stage.stop(1)
    await nine.fetch(wants_shutdown=True)
    assert stage.states() == {9: "STOPPING"}
    await nine.register()
    assert stage.states() == {9: "FENCED"} and not stage.cluster.shutting_down
    await nine.come_online()
    assert stage.state("t") == "9 e3 [9] v3"


# --- fail-over ---


@pytest.mark.requirement("RREG-13")
def test_the_former_controller_is_only_known_to_who_has_seen_the_epoch_before_its_own() -> None:
    """Who did not run in the whole term of another controller does not take the one before that for the last one."""
    seen = SeenController(3, 7)
    assert [seen.before(epoch) for epoch in (7, 8, 9)] == [-1, 3, -1]
    assert SeenController(-1, 0).before(1) == -1


@pytest.mark.requirement("RREG-13")
async def test_a_new_controller_takes_over_states_and_gives_everybody_a_full_session(stage: DrivenStage) -> None:
    await stage.open(1, 2)
    online, fenced, stopping = await stage.online(7), await stage.registered(8), await stage.online(9)
    gone = await stage.registered(6)
    await gone.fetch(wants_shutdown=True)
    await stage.create("t", (7, 1), (9, 2), (2,))
    await stage.stop(2)
    await stopping.fetch(wants_shutdown=True)
    await keep(stage, SESSION_S - 1, online, stopping)
    assert stage.states() == {6: "OFFLINE", 7: "ONLINE", 8: "FENCED", 9: "STOPPING"}
    before = stage.state("t")
    await stage.fail_over()
    assert set(stage.cluster.brokers) == {1, 7, 9} and set(stage.cluster.fenced) == {8} and stage.cluster.shutting_down == {9}
    assert stage.state("t") == before, "the leader counts as alive"
    await stage.advance(SESSION_S - 0.1)
    assert stage.states() == {6: "OFFLINE", 7: "ONLINE", 8: "FENCED", 9: "STOPPING"}
    await fenced.come_online()
    await stage.advance(0.2)
    assert stage.states() == {6: "OFFLINE", 7: "FENCED", 8: "ONLINE", 9: "OFFLINE"}


@pytest.mark.requirement("RREG-13", "RREG-10")
async def test_a_broker_that_is_stopping_leads_what_only_it_can_lead_through_a_fail_over(stage: DrivenStage) -> None:
    await stage.open(1, 2)
    nine = await stage.online(9)
    await stage.create("t", (9, 2), (1, 9))
    await stage.stop(2)
    await nine.fetch(wants_shutdown=True)
    before = [stage.state("t", partition) for partition in (0, 1)]
    assert before == ["9 e1 [9] v1", "1 e1 [1] v1"], before
    for _ in range(2):
        await stage.fail_over()
        assert stage.states() == {9: "STOPPING"} and stage.cluster.shutting_down == {9}
        assert [stage.state("t", partition) for partition in (0, 1)] == before
    assert (await nine.fetch(wants_shutdown=True)).error is ErrorCode.FENCED_LEADER_EPOCH
    assert not (await nine.fetch(wants_shutdown=True)).may_go
    await stage.advance(SESSION_S + 0.1)
    assert stage.states() == {9: "OFFLINE"} and stage.state("t", 0) == "-1 e2 [9] v2"


@pytest.mark.requirement("RREG-13")
async def test_a_broker_goes_on_with_its_epoch_after_a_fail_over_and_its_id_is_free_for_others(stage: DrivenStage) -> None:
    await stage.open(1)
    nine = await stage.online(9)
    await stage.fail_over()
    assert (await nine.fetch()).error is ErrorCode.FENCED_LEADER_EPOCH
    assert (await nine.fetch()).state == ONLINE
    await stage.fail_over()
    assert (await stage.register(9, OneConnection())).epoch == 2, "no request of the old one came since"


@pytest.mark.requirement("RREG-13")
async def test_fetches_during_a_fail_over_are_sent_to_look_for_the_controller(stage: DrivenStage) -> None:
    await stage.open(1)
    nine = await stage.online(9)
    hold = stage.steering.hold(FailoverBegun)
    await stage.close()
    stage.take_office()
    stage.controller.start()
    await hold.reached()
    assert (await nine.fetch()).error is ErrorCode.NOT_CONTROLLER
    hold.release()
    await stage.settle()
    assert (await nine.fetch()).error is ErrorCode.FENCED_LEADER_EPOCH


@pytest.mark.requirement("RREG-11", "RREG-13")
async def test_a_new_controller_that_cannot_reach_a_broker_writes_that_it_runs_no_more(stage: DrivenStage) -> None:
    await stage.open(1, 2)
    online, stopping = await stage.online(8), await stage.online(9)
    await stage.create("t", (8, 1), (9, 2))
    await stage.stop(2)
    await stopping.fetch(wants_shutdown=True)
    assert stage.states() == {8: "ONLINE", 9: "STOPPING"}
    stage.options = dataclasses.replace(stage.options, control_plane_listener="CONTROL")
    await stage.fail_over()
    assert stage.states() == {8: "FENCED", 9: "OFFLINE"}
    assert set(stage.cluster.fenced) == {8} and not {8, 9} & set(stage.cluster.brokers)
    assert (await online.fetch(wants_shutdown=True)).may_go


# --- two brokers with one id ---


async def _nine_in(stage: DrivenStage, state: BrokerState) -> RegisteredBroker:
    """Broker 9, which has registered with the controller and is in this state."""
    await stage.open(1, 2)
    nine = await (stage.registered(9) if state is FENCED else stage.online(9))
    await stage.create("t", (9, 1))
    if state is STOPPING:
        await stage.stop(1)
        await nine.fetch(wants_shutdown=True)
    return nine


@pytest.mark.requirement("RREG-14", "RREG-15")
@pytest.mark.parametrize("state", [FENCED, ONLINE, STOPPING])
async def test_a_broker_in_zookeeper_wins_over_one_that_registered_under_its_id(stage: DrivenStage, state: BrokerState) -> None:
    nine = await _nine_in(stage, state)
    assert stage.states() == {9: state.name}
    await stage.start(9)
    assert stage.states() == {9: "OFFLINE" if state is STOPPING else "FENCED"}
    epoch = stage.world.brokers[9].epoch
    assert stage.cluster.brokers[9].epoch == epoch and 9 not in stage.cluster.fenced
    if state is not STOPPING:
        for _ in range(4):
            assert (await nine.fetch()).state == FENCED
        assert stage.states() == {9: "FENCED"}, "it can not come online"
        with pytest.raises(ApiError) as error:
            await nine.register()
        assert error.value.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert stage.cluster.brokers[9].epoch == epoch
    await stage.stop(9)
    if state is STOPPING:
        assert not stage.cluster.fenced
        await nine.register()
    else:
        assert set(stage.cluster.fenced) == {9}, "the registration counts again"
    await nine.come_online()
    assert stage.cluster.brokers[9].epoch == nine.epoch


@pytest.mark.requirement("RREG-6", "RREG-14")
async def test_a_registration_counts_again_although_its_broker_was_silent_while_there_was_one_in_zookeeper(stage: DrivenStage) -> None:
    await stage.open(1)
    nine = await stage.online(9)
    await stage.start(9)
    await stage.advance(3 * SESSION_S)
    await stage.stop(9)
    assert stage.states() == {9: "FENCED"} and set(stage.cluster.fenced) == {9}
    mark = stage.mark()
    await stage.create("t", (1,))
    assert stage.frames(mark, "UMR 9"), "a fenced broker is told of all partitions"
    await nine.come_online()


@pytest.mark.requirement("RREG-14")
async def test_a_broker_that_has_just_come_in_zookeeper_keeps_the_one_of_its_id_from_coming_online(stage: DrivenStage) -> None:
    await stage.open(1)
    await stage.registered(9)
    stage.controller.put(events.BrokerCaughtUp(9, 1))
    stage.world.start_broker(9)
    await stage.settle()
    assert [registration.state for registration in _registrations(stage)] == [FENCED]
    assert stage.cluster.brokers[9].epoch == stage.world.brokers[9].epoch


@pytest.mark.requirement("RREG-14")
@pytest.mark.parametrize("state", [FENCED, ONLINE, STOPPING])
async def test_a_new_controller_finds_both_and_the_one_in_zookeeper_wins(stage: DrivenStage, state: BrokerState) -> None:
    await _nine_in(stage, state)
    await stage.close()
    stage.world.start_broker(9)
    stage.take_office()
    stage.controller.start()
    await stage.settle()
    assert stage.cluster.brokers[9].epoch == stage.world.brokers[9].epoch
    assert stage.states() == {9: "OFFLINE" if state is STOPPING else "FENCED"}
    assert not stage.cluster.shutting_down and not stage.cluster.fenced
    await stage.stop(9)
    assert 9 not in stage.cluster.brokers


@pytest.mark.requirement("RREG-15")
async def test_both_kinds_of_brokers_are_told_alike_and_lead_alike(stage: DrivenStage) -> None:
    await stage.open(1, 2)
    nine = await stage.online(9)
    await stage.create("t", (9, 1), (1, 9))
    assert (stage.state("t"), stage.state("t", 1)) == ("9 e0 [9, 1] v0", "1 e0 [1, 9] v0")
    assert stage.told[1].live == stage.told[9].live == {1, 2, 9}
    assert stage.told[9].epoch == nine.epoch
    await stage.stop(2)
    assert stage.told[9].live == {1, 9}


@pytest.mark.requirement("RREG-6")
async def test_a_fenced_broker_cannot_be_elected_or_enter_an_isr(stage: DrivenStage) -> None:
    await stage.open(1, 2)
    await stage.registered(9)
    await stage.create("t", (9, 1))
    assert stage.state("t") == "1 e0 [1] v0"
    request = isr_request(1, stage.world.brokers[1].epoch, b"t".ljust(16, b"\1"), 0, 0, 0, [1, 9])
    response = await stage.controller.alter_partition(request, 2)
    assert response.topics[0].partitions[0].error_code == ErrorCode.INELIGIBLE_REPLICA
    await stage.stop(1)
    assert stage.state("t") == "-1 e1 [1] v1"
    with pytest.raises(ApiError) as error:
        await stage.controller.allocate_producer_ids(9, 1)
    assert error.value.code is ErrorCode.BROKER_ID_NOT_REGISTERED


# --- off ---


@pytest.mark.requirement("RREG-19")
async def test_without_the_feature_registrations_are_ignored_and_stay() -> None:
    stage = DrivenStage()
    await stage.open(1)
    await stage.online(9)
    stored = stage.world.zk.nodes["/cluster/brokers/9"].data
    stage.change_options(registerbroker_enable=False)
    await stage.fail_over()
    assert set(stage.cluster.brokers) == {1} and not stage.cluster.registrations and not stage.cluster.fenced
    assert stage.term.metadata_log is None and stage.term.fetches is None
    await stage.advance(10 * SESSION_S)
    assert stage.world.zk.nodes["/cluster/brokers/9"].data == stored
    await stage.close()
