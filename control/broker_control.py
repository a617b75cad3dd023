"""What the brokers of one process do and show for the `Control` of their cluster.

`Control` has the ids: it sends the whole state, all holds and faults with their numbers, and what is here is compared with it. So a state
may be sent again, and a late one does no harm. The methods that `Control` calls are coroutines (`control/verbs/parts.py`). A wrong argument
raises Refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any, Protocol

from klamm.control import conditions, history, views
from klamm.control.bodies import BrokerBody, FailBody, ZooKeeperDelayBody, checked_filter, fault_of
from klamm.control.conditions import Present, condition_of
from klamm.control.coordinators import Coordinators
from klamm.control.event_log import COORDINATOR, REQUESTS
from klamm.control.heartbeats import heard_by
from klamm.control.history import History
from klamm.control.holds import Held, failure_of, hold_of
from klamm.control.json_object import JsonObject
from klamm.control.own_brokers import OwnBrokers
from klamm.control.refusal import Refused
from klamm.control.seen_changes import SeenChanges
from klamm.control.state import SeenExchange, SeenExchanges, SeenFault, SeenHold, State, View, WantedFault
from klamm.control.topics import Topics
from klamm.control.wholeness import Report, report_of
from klamm.controller.changes import Change
from klamm.controller.phases import ControllerElectionDue
from klamm.controller.values import Election, StoreRefused
from klamm.protocol.errors import ApiError
from klamm.protocol.nouns import TopicPartition
from klamm.seams.steering import HeldPhase, Hold
from klamm.server.broker_server import BrokerServer
from klamm.server.faults.fault import Condition, Fault
from klamm.server.local.shown import LiveView
from klamm.server.local.steered_clock import SteeredClock

__tracebackhide__ = True  # pytest leaves out the lines of this module

MAX_ZOOKEEPER_DELAY_MS = 60_000
POLL_S = 20.0
"""How long a broker waits for something that a client waits for; then it is asked again."""
ANNOUNCE_S = 0.2
Crash = Callable[[int, HeldPhase[Any]], None]
"""Kills the broker that reached a phase, for the hold with this number."""


class Events(Protocol):
    """Where is told what happens: the `EventLog` of this process, or `Control`."""

    @property
    def has_readers(self) -> bool:
        """Whether somebody reads along."""

    def add(self, kind: str, what: JsonObject) -> None:
        """Something happened."""


class LiveFault:
    """A fault of these brokers, as it is now."""

    def __init__(self, fault: Fault) -> None:
        self._fault = fault

    @property
    def hits(self) -> int:
        """How many requests it hit."""
        return self._fault.hits

    @property
    def matches(self) -> int:
        """How many matched."""
        return self._fault.matches

    @property
    def last(self) -> list[JsonObject]:
        """The last hits."""
        return [views.hit_json(hit) for hit in list(self._fault.last)]


class BrokerControl(Topics, Coordinators):
    """Steers the brokers of one process. Its methods about topics, groups and transactional ids are in files of their own."""

    def __init__(self, cluster: OwnBrokers, kept: History, clock: SteeredClock, events: Events, crash: Crash) -> None:
        """`kept` has the requests of the brokers, `clock` is theirs."""
        super().__init__(cluster)
        self.history = kept
        self._clock = clock
        self._events = events
        self._tell = events.add
        self._announces = False
        self._crash = crash
        self._seen = SeenChanges()
        self._version = 0
        self._brokers = 0
        self.held: dict[int, Held] = {}
        """By number, as Control has them."""
        self.present: Present | None = None
        """What conditions of faults are about, if it is known here. Otherwise Control says which faults act."""
        self._acting: set[int] = set()
        self._elections: Hold[Any] | None = None
        self._watches: set[asyncio.Task[None]] = set()
        self._cut: dict[int, object] = {}
        """The ZooKeeper sessions that were cut, by broker."""
        self._cluster_id = ""
        """The real cluster id, once another one was shown."""
        kept.topic_id = self._topic_id
        kept.on_chunk = self._heard

    def _running(self, number: int) -> BrokerServer:
        broker = next((broker for broker in self._cluster.brokers if broker.id == number), None)
        if broker is None:
            raise Refused(f"broker {number} does not run", 409)
        return broker

    def _topic_id(self, name: str) -> bytes:
        return next((broker.metadata.topic_id(name) for broker in self._cluster.brokers if broker.started), bytes(16))

    # --- holds and faults

    async def take_state(self, state: State) -> None:
        """Have these holds and faults, and no others."""
        if state.version < self._version:
            return
        self._version, self._brokers = state.version, state.brokers
        for number in self.held.keys() - {each.number for each in state.holds}:
            self.held.pop(number).hold.release()
        for each in state.holds:
            held = self.held.get(each.number)
            if each.released:
                if held is not None:
                    held.hold.release()
                continue
            if held is None:
                held = self.held[each.number] = Held(each.number, each.body, hold_of(each.body, self._cluster.steering, self._arrived))
            if each.count is not None and held.hold.count != each.count:
                held.hold.limit(each.count)
        self._take_faults({each.number: each for each in state.faults})
        self._keep_from_elections(state.is_kept_from_elections)
        if state.frozen != self._clock.is_frozen:
            (self._clock.freeze if state.frozen else self._clock.resume)()

    def _take_faults(self, wanted: Mapping[int, WantedFault]) -> None:
        faults = self._cluster.faults
        for fault in [each for each in faults if each.number not in wanted]:
            faults.remove(fault.number)
        self._acting = {number for number, each in wanted.items() if each.acts}
        present = {fault.number: fault for fault in faults}
        for number, each in wanted.items():
            made = present.get(number)
            if made is None:
                parts = fault_of(each.body, [*range(1, self._brokers + 1)])
                made = faults.add(*parts, number, self._condition_of(each))
                if each.first is not None and self.present is None:
                    self._watch(made)
            if each.first is not None and made.limits.first != each.first:
                made.limit(each.first)

    def _condition_of(self, wanted: WantedFault) -> Condition | None:
        condition, present = wanted.body.filter.while_, self.present
        if condition is None:
            return None
        if condition.broker is not None and condition.state == "controller":
            return condition_of(condition, partial(self._is_controller, condition.broker))
        if present is not None:
            return condition_of(condition, lambda: conditions.holds(condition, present))
        return condition_of(condition, lambda: wanted.number in self._acting)

    def _is_controller(self, number: int) -> bool:
        """Whether a broker is the controller, as these brokers know."""
        brokers = self._cluster.brokers
        if not brokers or any(each.id == number for each in brokers):
            return self._cluster.controller_id == number
        return brokers[0].metadata.controller_id == number

    def _watch(self, fault: Fault) -> None:
        """Tell of each hit of a fault with a limit."""
        task = asyncio.ensure_future(self._tell_hits(fault))
        self._watches.add(task)
        task.add_done_callback(self._watches.discard)

    async def _tell_hits(self, fault: Fault) -> None:
        while not fault.removed.is_set():
            hits = fault.hits
            await fault.reached(hits + 1)
            if fault.hits > hits:
                self._tell("hit", {"id": fault.number, "hits": fault.hits})

    def _arrived(self, at: HeldPhase[Any]) -> None:
        """A phase is held."""
        held = next((each for each in self.held.values() if each.hold is at.hold), None)
        if held is None:
            return
        held.arrived()
        self._tell("reached", {"id": held.number, "hits": held.hits, "held": held.held, "since": held.since})
        if held.body.crash:
            self._crash(held.number, at)
        elif held.body.fail is not None:
            at.fail(failure_of(FailBody(error=held.body.fail)))
        elif held.body.delay_ms is not None:
            self._clock.call_later(held.body.delay_ms / 1000, at.step)

    def _keep_from_elections(self, is_kept: bool) -> None:
        """Hold these brokers before they take part in an election, or let them go on."""
        if is_kept and self._elections is None:
            self._elections = self._cluster.steering.hold(ControllerElectionDue)
        elif not is_kept and self._elections is not None:
            self._elections.release()
            self._elections = None

    @property
    def faulted(self) -> dict[int, LiveFault]:
        """The faults by number."""
        return {fault.number: LiveFault(fault) for fault in self._cluster.faults}

    async def holds(self) -> dict[int, SeenHold]:
        """The holds by number."""
        return {number: SeenHold(each.hits, each.held, each.since) for number, each in self.held.items()}

    async def faults(self) -> dict[int, SeenFault]:
        """The faults by number."""
        return {number: SeenFault(each.hits, each.matches, each.last) for number, each in self.faulted.items()}

    async def hold_reached(self, number: int) -> None:
        """Wait until a hold holds something, at most POLL_S. Raises Refused if it is not here: nothing is left of it for these brokers."""
        if number not in self.held:
            raise Refused(f"there is no hold {number}", 404)
        await _at_most_poll(self.held[number].hold.reached())

    async def fault_reached(self, number: int, hits: int) -> None:
        """Wait until a fault has this number of hits here, or is removed, at most POLL_S. Raises Refused if it is not here."""
        fault = next((each for each in self._cluster.faults if each.number == number), None)
        if fault is None:
            raise Refused(f"there is no fault {number}", 404)
        await _at_most_poll(fault.reached(hits))

    async def step(self, number: int) -> None:
        """Let the first that a hold holds go on."""
        self._first(number).step()

    async def fail(self, number: int, body: FailBody) -> None:
        """Let the first that a hold holds fail."""
        try:
            self._first(number).fail(failure_of(body))
        except ValueError as problem:
            if isinstance(problem, Refused):
                raise
            raise Refused(f"{problem}; release it, or crash its broker", 409) from None

    def _first(self, number: int) -> HeldPhase[Any]:
        held = self.held.get(number)
        if held is None or not held.is_holding:
            raise Refused(f"hold {number} holds nothing", 409)
        return held.hold.held_phases[0]

    async def let_go(self) -> None:
        """Let brokers reach ZooKeeper, and elections go on, and show the real cluster id."""
        self._keep_from_elections(False)
        if self._cluster_id:
            await self.show_cluster_id(None)
        for broker in self._cluster.brokers:
            broker.zk.restore()
            broker.zk.delay_s = 0.0
        self._cut.clear()

    # --- what brokers show

    async def brokers(self) -> list[JsonObject]:
        """The brokers that run."""
        return [views.broker(each, "running") for each in self._cluster.brokers]

    async def controller(self) -> JsonObject | None:
        """The active controller, if it is one of these."""
        active = self._cluster.controller_id
        return next((views.controller(each) for each in self._cluster.brokers if each.id == active), None)

    async def views(self, broker: int | None = None, topic: str | None = None) -> dict[int, View]:
        """What each broker that is not paused shows, as far as it is waited for: the controller, another broker, a topic."""
        return {each.id: _view(each, broker, topic) for each in self.serving()}

    async def replicas(self, topic: str, partition: int) -> dict[int, JsonObject]:
        """A partition as each broker sees it: leader and ISR in its metadata, and its replica, if it has one."""
        return {each.id: views.as_seen(each, topic, partition) for each in self.serving()}

    async def features(self) -> dict[int, JsonObject]:
        """The features that each broker shows to its clients, their epoch, and the levels that it supports."""
        return {each.id: views.features(each) for each in self.serving()}

    async def reports(self, brokers: list[int]) -> dict[int, Report]:
        """What each broker lacks; `brokers` are all that run."""
        return {each.id: report_of(each, brokers) for each in self.serving()}

    async def heard(self) -> dict[str, int]:
        """Who has to show that it is alive (`control/heartbeats.py`)."""
        return {who: last for broker in self.serving() for who, last in heard_by(broker).items()}

    async def requests(
        self, *, api: str | None = None, client_id: str | None = None, topic: str | None = None, group: str | None = None,
        broker: int | None = None, error: str | None = None, clients: bool = False, after: int = 0, limit: int = 100, since_ms: int = 0,
    ) -> JsonObject:
        """The last requests that match, oldest first, and the number of all. `since_ms`: none received before."""
        wanted = checked_filter({"api": api, "broker": broker, "error": error}, range(1, self._cluster.count + 1))
        found = self.history.newest(
            client_id=client_id, topic=topic, group=group, clients_only=clients, after=after, since_ms=since_ms, **wanted
        )
        kept = list(islice(found, limit))
        return {"requests": [history.as_json(exchange) for exchange in reversed(kept)], "total": self.history.total}

    async def exchanges(self, since_ms: int) -> SeenExchanges:
        """Requests of clients that were received at this time (ms since 1970) or later."""
        found = self.history.newest(clients_only=True, since_ms=since_ms)
        return SeenExchanges(
            [SeenExchange(each.number, each.at_ms, each.broker, each.peer, each.request, each.response) for each in found],
            {name: broker.metadata.topic_id(name) for broker in self._cluster.brokers for name in broker.metadata.topics},
        )

    # --- what is done to them

    async def elect(self, controller: int, partitions: list[TopicPartition]) -> None:
        """Let the controller elect the preferred replicas of these partitions as leaders. Does nothing if it is not the controller now."""
        with suppress(ApiError):
            for each in self._cluster.brokers:
                if each.id == controller:
                    await each.controller.elect_leaders(partitions, Election.PREFERRED)

    async def write_feature(self, broker: int, name: str, level: int) -> None:
        """Let a broker write the level of a feature to ZooKeeper."""
        try:
            await self._running(broker).admin_zk.write_features({name: level})
        except StoreRefused as error:
            raise Refused(str(error), 409) from None

    async def show_cluster_id(self, cluster_id: str | None) -> None:
        """Let these brokers show this cluster id, or the real one."""
        for broker in self._cluster.brokers:
            self._cluster_id = self._cluster_id or broker.identity.cluster_id
            broker.identity.cluster_id = self._cluster_id if cluster_id is None else cluster_id
            broker.metadata.encoded.clear()
            broker.listeners.clear_response_caches()

    async def expire_session(self, body: BrokerBody) -> JsonObject:
        """End the ZooKeeper session of a broker, as ZooKeeper does when it hears nothing for too long."""
        await self._running(body.broker).zk.expire()
        self._tell("expired", {"broker": body.broker})
        return {"broker": body.broker}

    async def cut_zookeeper(self, body: BrokerBody) -> JsonObject:
        """Let a broker lose its connection to ZooKeeper, and get no other until it is restored."""
        session = self._running(body.broker).zk
        session.cut()
        self._cut[body.broker] = session
        return self._changed_session(body.broker, cut=True)

    async def restore_zookeeper(self, body: BrokerBody) -> JsonObject:
        """Let a broker connect to ZooKeeper again."""
        session = self._running(body.broker).zk
        if self._cut.pop(body.broker, None) is not session:
            raise Refused(f"broker {body.broker} is not cut off from ZooKeeper", 409)
        session.restore()
        return self._changed_session(body.broker, cut=False)

    async def delay_zookeeper(self, body: ZooKeeperDelayBody) -> JsonObject:
        """Let each request of a broker to ZooKeeper wait before it is sent."""
        if not 0 <= body.ms <= MAX_ZOOKEEPER_DELAY_MS:
            raise Refused(f"ms: from 0 to {MAX_ZOOKEEPER_DELAY_MS}")
        self._running(body.broker).zk.delay_s = body.ms / 1000
        return self._changed_session(body.broker, delay_ms=body.ms)

    def _changed_session(self, broker: int, **how: object) -> JsonObject:
        done = {"broker": broker, **how}
        self._tell("zookeeper", done)
        return done

    async def recovering(self) -> list[JsonObject]:
        """The leaders that wait to be released from recovery."""
        return [views.recovery(each) for each in self._cluster.recovering]

    async def release_recovery(self, topic: str | None, partition: int | None) -> list[JsonObject]:
        """Let leaders that wait in recovery go on."""
        return [views.recovery(each) for each in await self._cluster.release_recovery(topic, partition)]

    async def advance(self, ms: int) -> int:
        """Let this time pass at once. Returns how many timers fired."""
        return await self._clock.advance(ms / 1000)

    # --- what happens there

    def _heard(self) -> None:
        """Something was received or sent: tell those who read events, a few times a second."""
        if self._events.has_readers and not self._announces:
            self._announces = True
            asyncio.get_running_loop().call_later(ANNOUNCE_S, self._announce)

    def _announce(self) -> None:
        self._announces = False
        self._tell(REQUESTS, {"total": self.history.total})

    def changed(self, broker_id: int, change: Change) -> None:
        """The cluster that the controller of this broker remembers changed."""
        news = self._seen.new(change)
        shown = None if news is None else views.change(broker_id, news)
        if shown is not None:
            self._tell("change", shown)

    def coordinated(self, phase: Any) -> None:
        """A coordinator reached a phase. Commits of offsets are too many to be events."""
        name = type(phase).__name__
        if name != "OffsetsAppended":
            self._tell(COORDINATOR, {"phase": name, **views.fields_of(phase)})


async def _at_most_poll(wait: Awaitable[object]) -> None:
    """Over HTTP the end of the caller does not end a wait."""
    with suppress(TimeoutError):
        async with asyncio.timeout(POLL_S):
            await wait


def _view(running: BrokerServer, broker: int | None, topic: str | None) -> View:
    live, metadata = LiveView(running, broker), running.metadata
    asked = metadata.topics[topic].partitions if topic is not None and metadata.contains(topic) else {}
    return View(
        controller_id=live.controller_id, is_controller=live.is_controller, is_online=live.is_online,
        topics=set(live.topics), propagated=set(live.propagated),
        shows_broker=live.shows_broker, shows_as_leader=live.shows_as_leader, shows_without_leader=live.shows_without_leader,
        topic_partitions=len(asked),
        topic_has_leaders=bool(asked) and all(each.leader >= 0 for each in asked.values()),
    )
