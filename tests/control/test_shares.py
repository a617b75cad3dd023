"""Shares of holds and faults of brokers in processes of their own, the numbers of their requests, and their events."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import aiohttp
import msgspec
import pytest
from aiohttp import web

from klamm.configs.broker_config import BrokerConfig
from klamm.control.bodies import EffectBody, FaultBody, FilterBody, HoldBody, WhileBody, convert
from klamm.control.broker_control import BrokerControl
from klamm.control.event_log import EventLog
from klamm.control.processes.owned_broker import OwnedBroker
from klamm.control.processes.remote_part import RemotePart
from klamm.control.processes.request_numbers import RequestNumbers
from klamm.control.refusal import Refused
from klamm.control.seen_changes import SeenRows
from klamm.control.state import SeenFault, SeenHold, State, WantedFault, WantedHold
from klamm.control.verbs.parts import Parts, call
from klamm.control.verbs.shared_state import SharedState
from klamm.control.verbs.shares import FaultShares, HoldShares
from klamm.protocol.apis import ApiKey
from klamm.seams.steering import HeldPhase, Steering
from klamm.server.broker_server import BrokerServer
from klamm.server.faults.fault import Effect, Faults, Hit, Limits, RequestFilter
from klamm.server.local.steered_clock import SteeredClock

AT = {"broker": 2, "topic": "t"}
HIT = Hit(1, 1, "c", "Metadata", 12, 1)


def first_of(shares: FaultShares, broker: int) -> int | None:
    share = shares.share(broker)
    assert share is not None
    return share.first


def hold(**values: Any) -> HoldShares:
    return HoldShares(1, HoldBody(phase="DeletionQueued", **values))


def test_a_hold_without_a_limit_is_whole_at_each_broker() -> None:
    shares = hold()
    assert [shares.share(broker).count for broker in (1, 2)] == [None, None]
    assert (shares.state, shares.left) == ("armed", None)


def test_what_processes_hold_is_in_the_order_in_which_it_was_reached() -> None:
    shares = hold()
    shares.told(1, SeenHold(2, [{"broker": 1, "topic": "b"}, {"broker": 1, "topic": "c"}], [20, 30]))
    shares.told(3, SeenHold(1, [{"broker": 3, "topic": "a"}], [10]))
    assert [at["topic"] for at in shares.held] == ["a", "b", "c"] and shares.as_json()["at"]["broker"] == 3


def test_of_a_limited_hold_a_broker_may_take_what_it_took_and_what_is_left() -> None:
    shares = hold(count=3)
    shares.seen[2] = SeenHold(2, [AT], [5])
    assert [shares.share(broker).count for broker in (1, 2)] == [1, 3]
    assert shares.state == "reached"
    shares.seen[1] = SeenHold(1, [])
    assert [(shares.share(broker).count, shares.share(broker).released) for broker in (1, 2)] == [(1, False), (2, False)]
    assert shares.share(3).released, "nothing is left for a broker that took nothing"
    shares.seen[2] = SeenHold(2)
    assert (shares.state, shares.as_json()["hits"]) == ("released", 3)


def test_phases_that_pass_before_the_nth_are_not_taken() -> None:
    shares = hold(count=1, nth=3)
    shares.seen[1] = SeenHold(2, [])
    assert (shares.left, shares.share(1).count, shares.state) == (1, 1, "armed")
    shares.seen[1] = SeenHold(3, [])
    assert (shares.left, shares.state) == (0, "released")


def test_a_crash_is_one_crash_and_what_the_process_took_still_counts() -> None:
    shares = hold(crash=True)
    shares.seen[1] = SeenHold(1, [])
    shares.ended(1)
    assert (shares.left, shares.state, shares.as_json()["hits"]) == (0, "released", 1)
    assert shares.share(1).released, "its next process has nothing of it"


def test_what_a_part_shows_and_tells_counts_in_the_order_of_its_hits() -> None:
    shares = hold(count=3)
    shares.told(1, SeenHold(2, [AT], [5]))
    shares.shown(1, SeenHold(1))  # it was asked before the second hit, and another part was waited for
    assert (shares.state, shares.left) == ("reached", 1)
    shares.shown(1, SeenHold(2))
    shares.told(1, SeenHold(2, [AT], [5]))  # it went on before its event was read
    assert (shares.state, shares.left) == ("armed", 1)
    fault = FaultShares(1, FaultBody(filter=FilterBody(api="Metadata"), effect=EffectBody(drop=True), first=4), {"id": 1})
    fault.told(1, 2)
    fault.shown(1, SeenFault(1, 5))
    fault.told(1, 1)
    assert (fault.hits, first_of(fault, 2)) == (2, 2)
    fault.shown(1, SeenFault(3, 6, [{"at": "a"}]))
    fault.told(1, 4)
    assert fault.as_json() == {"id": 1, "hits": 4, "matches": 6, "spent": True, "last": [{"at": "a"}]}


class TwoBrokers:
    """A cluster that runs."""

    count = 2

    def state_of(self, number: int) -> str:
        return "running"


class SlowPart:
    """A part that has what it is told, and does not respond before `responds` is set."""

    is_paused = False
    behind_ms = 0

    def __init__(self) -> None:
        self.told: list[State] = []
        self.shows: dict[int, SeenHold] = {}
        self.asked = asyncio.Event()
        self.responds = asyncio.Event()
        self.responds.set()

    async def done(self, wanted: Any, limit_s: float) -> None:
        self.told.append(wanted.arguments[0])
        self.asked.set()
        await self.responds.wait()

    async def holds(self) -> dict[int, SeenHold]:
        shown = dict(self.shows)
        self.asked.set()
        await self.responds.wait()
        return shown

    async def faults(self) -> dict[int, SeenFault]:
        return {}


def state_of_two(first: SlowPart, second: SlowPart) -> SharedState:
    """Fault 1 acts while hold 1 holds something."""
    cluster: Any = TwoBrokers()
    parts: dict[int, Any] = {1: first, 2: second}
    state = SharedState(Parts(parts, lambda: 2), cluster, SteeredClock(), EventLog())
    state.holds[1] = hold()
    condition = FilterBody(api="Metadata", while_=WhileBody(hold=1))
    state.faults[1] = FaultShares(1, FaultBody(filter=condition, effect=EffectBody(drop=True)), {"id": 1})
    return state


async def test_a_hit_that_is_told_while_another_broker_is_waited_for_is_not_forgotten() -> None:
    first, second = SlowPart(), SlowPart()
    state = state_of_two(first, second)
    first.shows = second.shows = {1: SeenHold()}
    second.responds.clear()
    looking = asyncio.ensure_future(state.look_at_holds())
    await second.asked.wait()
    state.reached(1, {"id": 1, "hits": 1, "held": [AT], "since": [5]})
    second.responds.set()
    await looking
    assert state.holds[1].state == "reached"
    assert first.told[-1].faults[0].acts


async def test_a_condition_that_ends_ends_its_fault_also_if_an_older_state_was_answered_late() -> None:
    first, second = SlowPart(), SlowPart()
    state = state_of_two(first, second)
    second.responds.clear()
    late = asyncio.ensure_future(state.sync())
    await second.asked.wait()
    state.holds[1].told(1, SeenHold(1, [AT], [5]))
    second.responds, slow = asyncio.Event(), second.responds
    second.responds.set()
    await state.check_conditions()
    assert second.told[-1].faults[0].acts
    slow.set()
    await late
    state.holds[1].shown(1, SeenHold(1))
    await state.check_conditions()
    assert not second.told[-1].faults[0].acts


async def test_a_wait_without_time_sees_what_is_there_already() -> None:
    state = state_of_two(SlowPart(), SlowPart())
    state.holds[1].told(1, SeenHold(1, [AT], [5]))

    async def reached() -> str | None:
        await state.look_at_holds()
        return state.holds[1].state if state.holds[1].state == "reached" else None

    assert await state.until(reached, lambda _: call(BrokerControl.hold_reached, 1), 0, lambda: "reached") == "reached"
    state.holds[1].end()
    with pytest.raises(Refused, match="not within 0 ms: it is reached"):
        await state.until(reached, lambda _: call(BrokerControl.hold_reached, 1), 0, lambda: "it is reached")


def test_of_a_limited_fault_a_broker_may_hit_what_it_hit_and_what_is_left() -> None:
    body = FaultBody(filter=FilterBody(api="Metadata"), effect=EffectBody(drop=True), first=2)
    shares = FaultShares(1, body, {"id": 1})
    assert [first_of(shares, broker) for broker in (1, 2)] == [2, 2]
    shares.seen[1] = SeenFault(1, 4, [{"at": "b"}])
    assert [first_of(shares, broker) for broker in (1, 2)] == [2, 1]
    shares.ended(1)
    shares.seen[2] = SeenFault(1, 1, [{"at": "a"}])
    assert shares.share(1) is None, "nothing is left for the next process"
    assert first_of(shares, 2) == 1
    assert shares.as_json() == {"id": 1, "hits": 2, "matches": 5, "spent": True, "last": [{"at": "a"}, {"at": "b"}]}


def test_a_fault_about_one_broker_is_not_told_to_others() -> None:
    shares = FaultShares(1, FaultBody(filter=FilterBody(broker=2), effect=EffectBody(drop=True)), {"id": 1})
    assert shares.share(1) is None
    assert first_of(shares, 2) is None


@pytest.mark.parametrize("brokers", [1, 3])
def test_numbers_of_requests_are_in_the_order_of_time_and_say_it(brokers: int) -> None:
    numbers = RequestNumbers(brokers, 1_800_000_000_000)
    times = ((999, 1, 1), (1, brokers, 2), (2, brokers, 2), (5, 1, 9))
    shown = [numbers.number_of(1_800_000_000_000 + ms, number, broker) for number, broker, ms in times]
    assert sorted(set(shown)) == shown
    assert [numbers.ms_of(each) - 1_800_000_000_000 for each in shown] == [1, 2, 2, 9]
    assert numbers.ms_of(0) == 0


def test_what_a_second_controller_says_again_is_no_change() -> None:
    rows = SeenRows()
    states = [{"topic": "t", "partition": index, "leader": 1, "isr": [1], "leader_epoch": 0} for index in (0, 1)]
    change = {"change": "StatesChanged", "partitions": states, "more": 0}
    assert rows.new(change) == change
    assert rows.new(change) is None
    moved = [states[0], states[1] | {"leader": 2, "leader_epoch": 1}]
    assert rows.new(change | {"partitions": moved}) == change | {"partitions": moved[1:]}
    term = {"change": "TermBegan", "controller_id": 1, "controller_epoch": 2}
    assert rows.new(term) == term
    rows.new({"change": "TopicRemoved", "topic": "t"})
    assert rows.new(change) == change


def test_a_fault_hits_no_more_than_its_changed_limit() -> None:
    faults = Faults()
    fault = faults.add(RequestFilter(ApiKey.METADATA), Effect(is_dropped=True), Limits(first=5), 7)
    assert faults[7] is fault
    assert fault.takes(HIT)
    fault.limit(1)
    assert (fault.takes(HIT), fault.is_spent) == (False, True)
    fault.limit(2)
    assert fault.takes(HIT)


async def test_a_late_state_of_the_owner_is_ignored() -> None:
    shares = FaultShares(1, FaultBody(filter=FilterBody(api="Metadata"), effect=EffectBody(drop=True)), {"id": 1})
    state = {"version": 2, "brokers": 1, "faults": [msgspec.to_builtins(shares.share(1))]}
    said: list[dict[str, Any]] = []
    config = BrokerConfig({"broker.id": "1", "listeners": "PLAINTEXT://127.0.0.1:0", "zookeeper.connect": "127.0.0.1:1"})
    control = {"token": "x", "offset_ms": 0, "now_ms": None, "state": state}
    owned = OwnedBroker(lambda seams: BrokerServer(config, seams=seams), control, said.append)
    await owned.control.take_state(convert(State, state))
    assert [fault.number for fault in owned.faults] == [1]
    await owned.control.take_state(State(version=1, brokers=1))
    assert [fault.number for fault in owned.faults] == [1]
    await owned.control.take_state(State(version=3, brokers=1))
    assert not list(owned.faults)


async def test_a_broker_takes_a_state_of_holds_that_is_larger_than_a_request_of_users_may_be() -> None:
    names = ",".join("t" * 100 for _ in range(100))
    holds = [WantedHold(number=number, body=HoldBody(phase="DeletionQueued", where={"topic": names})) for number in range(1, 121)]
    config = BrokerConfig({"broker.id": "1", "listeners": "PLAINTEXT://127.0.0.1:0", "zookeeper.connect": "127.0.0.1:1"})
    control = {"token": "x", "offset_ms": 0, "now_ms": None, "state": {"version": 1, "brokers": 1}}
    owned = OwnedBroker(lambda seams: BrokerServer(config, seams=seams), control, lambda _: None)
    await owned._server.start()
    try:
        async with aiohttp.ClientSession() as session:
            part = RemotePart(session, owned._server.url, "x")
            await part.done(call(BrokerControl.take_state, State(version=2, brokers=1, holds=tuple(holds))), 10)
    finally:
        await owned._server.stop()
    assert len(owned.control.held) == 120


async def test_a_wait_at_a_broker_ends_although_nobody_is_left_who_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("klamm.control.broker_control.POLL_S", 0.01)
    config = BrokerConfig({"broker.id": "1", "listeners": "PLAINTEXT://127.0.0.1:0", "zookeeper.connect": "127.0.0.1:1"})
    control = {"token": "x", "offset_ms": 0, "now_ms": None, "state": {"version": 1, "brokers": 1}}
    owned = OwnedBroker(lambda seams: BrokerServer(config, seams=seams), control, lambda _: None)
    fault = FaultBody(filter=FilterBody(api="Metadata"), effect=EffectBody(drop=True))
    held = WantedHold(number=1, body=HoldBody(phase="DeletionQueued"))
    await owned.control.take_state(State(version=2, brokers=1, holds=(held,), faults=(WantedFault(number=1, body=fault),)))
    await owned.control.hold_reached(1)
    await owned.control.fault_reached(1, 1)
    assert not owned.control.held[1].hits and not owned.control.faulted[1].hits


class Reached:
    """A phase."""


async def test_a_hold_takes_no_more_than_its_changed_limit_and_ends_when_it_holds_nothing() -> None:
    steering = Steering()
    made = steering.hold(Reached, count=5)
    at = steering.park(Reached(), lambda: None, 1)
    assert isinstance(at, HeldPhase) and at.hold is made
    made.limit(1)
    assert (made.state, steering.park(Reached(), lambda: None, 1)) == ("reached", None)
    at.step()
    assert (made.state, steering.present) == ("released", ())
    other = steering.hold(Reached)
    other.limit(0)
    assert (other.state, steering.park(Reached(), lambda: None, 1)) == ("released", None)


# --- the events of one broker

HELD = [{"id": 1, "held": ["t" * 1000] * 1000}, {"id": 2}]


async def events(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    for each in HELD:
        await response.write(f"event: reached\ndata: {json.dumps(each)}\n\n".encode())
    return response


async def test_an_event_of_a_megabyte_does_not_end_the_events_of_its_broker() -> None:
    app = web.Application()
    app.router.add_get("/events", events)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    heard: list[Any] = []
    try:
        async with aiohttp.ClientSession() as session:
            heard = [event async for event in RemotePart(session, f"http://{host}:{port}", "token").events()]
    finally:
        await runner.cleanup()
    assert heard == [("reached", each) for each in HELD]
