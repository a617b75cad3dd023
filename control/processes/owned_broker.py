"""The control API of one broker in a process of its own. Its owner steers it with the others (`control/processes/process_control.py`).

The broker has its own seams, and a `Control` that knows this broker alone. The owner has the ids: it sends the whole state, all holds and
faults with the owner's numbers, and the broker compares it with what it has. So a state may be sent again, and a late one does no harm.
Routes below `/own` are for the owner.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from base64 import b64encode
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import msgspec

from klamm.broker.recovery import Recovery
from klamm.control import views
from klamm.control.bodies import Body, FaultBody, HoldBody, convert
from klamm.control.conditions import condition_of
from klamm.control.history import History
from klamm.control.http import ControlServer
from klamm.control.json_object import JsonObject
from klamm.control.model import Control
from klamm.control.refusal import Refused
from klamm.control.routes import ROUTES, Route
from klamm.control.wholeness import report_of
from klamm.controller.phases import ControllerElectionDue
from klamm.protocol.nouns import TopicPartition
from klamm.seams.steering import HeldPhase, Hold, Steering
from klamm.server.broker_server import BrokerServer
from klamm.server.faults.fault import Condition, Fault, Faults
from klamm.server.lifecycle.seams import Seams
from klamm.server.local.steered_clock import SteeredClock

log = logging.getLogger(__name__)

Say = Callable[[JsonObject], None]
"""Writes a line to the owner."""


class OwnedHold(Body, frozen=True):
    """A hold with the owner's number. `count` is this broker's share; a released hold only ends what the broker has."""

    number: int
    body: HoldBody
    count: int | None = None
    released: bool = False


class OwnedFault(Body, frozen=True):
    """A fault with the owner's number. `first` is this broker's share."""

    number: int
    body: FaultBody
    first: int | None = None
    acts: bool = True
    """Whether its condition holds, as far as the owner knows."""


class StateBody(Body, frozen=True):
    """Everything that is to be held and faulted. One with a lower version than the last is late, and is ignored."""

    version: int
    brokers: int
    """How many brokers the cluster has."""
    holds: tuple[OwnedHold, ...] = ()
    faults: tuple[OwnedFault, ...] = ()
    frozen: bool = False
    is_kept_from_elections: bool = False
    """Whether this broker is held before it takes part in an election of the controller."""


class ElectionBody(Body, frozen=True):
    """Topics and numbers of partitions."""

    partitions: list[tuple[str, int]]


class OwnedControl(Control):
    """The verbs of one broker with those that its owner needs."""

    def __init__(self, cluster: OwnedBroker, kept: History, clock: SteeredClock, say: Say, set_count: Callable[[int], None]) -> None:
        """`set_count` is told how many brokers the cluster has."""
        super().__init__(cluster, kept, clock)
        self._set_count = set_count
        self._clock_of_broker = clock
        self._say = say
        self._version = 0
        self._elections: Hold[Any] | None = None
        self._watches: dict[int, asyncio.Task[None]] = {}
        self._acting: set[int] = set()
        """Faults whose conditions hold, as the owner knows."""

    def take_state(self, body: StateBody) -> JsonObject:
        """Have these holds and faults, and no others."""
        if body.version >= self._version:
            self._version = body.version
            self._set_count(body.brokers)
            self._take_holds({each.number: each for each in body.holds})
            self._take_faults({each.number: each for each in body.faults})
            self._keep_from_elections(body.is_kept_from_elections)
            if body.frozen != self._clock_of_broker.is_frozen:
                (self.freeze_clock if body.frozen else self.resume_clock)()
        return {"version": self._version}

    def _take_holds(self, wanted: Mapping[int, OwnedHold]) -> None:
        for number in [each for each in self._holds if each not in wanted]:
            self.delete_holds(number)
        for each in wanted.values():
            held = self._holds.get(each.number)
            if each.released:
                if held is not None:
                    held.release()
                continue
            if held is None:
                held = self.add_hold(each.body, each.number)
            if each.count is not None and held.hold.count != each.count:
                held.hold.limit(each.count)

    def _take_faults(self, wanted: Mapping[int, OwnedFault]) -> None:
        for fault in [each for each in self.cluster.faults if each.number not in wanted]:
            self.cluster.faults.remove(fault.number)
        self._acting = {number for number, each in wanted.items() if each.acts}
        present = {fault.number: fault for fault in self.cluster.faults}
        for each in wanted.values():
            fault_ = present.get(each.number)
            if fault_ is None:
                self.add_fault(each.body, each.number)
                fault_ = self.cluster.faults[each.number]
                if each.first is not None:
                    self._watch(fault_)
            if each.first is not None:
                fault_.limit(each.first)

    def _condition_of(self, body: FaultBody, number: int | None) -> Condition | None:
        condition = body.filter.while_
        if condition is None or number is None:
            return None
        if condition.broker is not None and condition.state == "controller":
            return condition_of(condition, partial(self.is_controller, condition.broker))
        return condition_of(condition, lambda: number in self._acting)

    def is_controller(self, number: int) -> bool:
        """Whether a broker is the controller, as this one knows."""
        running = next(iter(self.cluster.brokers), None)
        if running is None or running.id == number:
            return running is not None and running.controller.is_active
        return running.metadata.controller_id == number

    def _watch(self, fault: Fault) -> None:
        """Tell the owner of each hit of a fault with a limit."""
        task = asyncio.ensure_future(self._tell_hits(fault))
        self._watches[fault.number] = task
        task.add_done_callback(lambda _: self._watches.pop(fault.number, None))

    async def _tell_hits(self, fault: Fault) -> None:
        while not fault.removed.is_set():
            hits = fault.hits
            await fault.reached(hits + 1)
            if fault.hits > hits:
                self.events.add("hit", {"id": fault.number, "hits": fault.hits})

    def _crash_held(self, number: int, at: HeldPhase[Any]) -> None:
        """End this process, at the phase."""
        held = self._holds[number]
        self._say({"crashed": number, "phase": type(at.phase).__name__, "hits": held.hold.hits})
        os.kill(os.getpid(), signal.SIGKILL)

    def view(self, broker: int | None = None, topic: str | None = None) -> JsonObject:
        """What this broker shows, as far as its owner waits for it: the controller, another broker, a topic."""
        running = next(iter(self.cluster.brokers), None)
        if running is None:
            raise Refused("the broker does not run", 409)
        metadata = running.metadata
        partitions = [partition for each in metadata.topics.values() for partition in each.partitions.values()]
        shown = metadata.contains(topic) if topic is not None else False
        return {
            "controller_id": -1 if metadata.controller_id is None else metadata.controller_id,
            "is_controller": running.controller.is_active,
            "is_online": running.is_online,
            "topics": sorted(metadata.topics),
            "propagated": sorted(running.controller.propagated_topics()),
            "shows_broker": broker in metadata.brokers,
            "shows_as_leader": any(each.leader == broker for each in partitions),
            "shows_without_leader": any(each.leader < 0 and broker in each.isr for each in partitions),
            "shows_topic": shown,
            "topic_partitions": len(metadata.topics[topic].partitions) if shown and topic is not None else 0,
            "topic_has_leaders": bool(
                shown and topic is not None and all(each.leader >= 0 for each in metadata.topics[topic].partitions.values())
            ),
        }

    def replica(self, topic: str, partition: int) -> JsonObject:
        """A partition as this broker sees it: leader and ISR in its metadata, and its replica, if it has one."""
        running = next(iter(self.serving()), None)
        if running is None:
            raise Refused("the broker does not run", 409)
        return views.as_seen(running, topic, partition)

    def exchanges(self, since_ms: int = 0) -> JsonObject:
        """Requests of clients that were received at this time (ms since 1970) or later, as bytes, and the ids of topics."""
        found = self.history.newest(clients_only=True, since_ms=since_ms)
        running = next(iter(self.cluster.brokers), None)
        names = [] if running is None else sorted(running.metadata.topics)
        return {
            "exchanges": [
                {
                    "number": each.number, "at_ms": each.at_ms, "broker": each.broker, "peer": each.peer,
                    "request": b64encode(each.request).decode(),
                    "response": None if each.response is None else b64encode(each.response).decode(),
                }
                for each in found
            ],
            "topic_ids": {} if running is None else {name: running.metadata.topic_id(name).hex() for name in names},
        }  # fmt: skip

    def _keep_from_elections(self, is_kept: bool) -> None:
        """Hold this broker before it takes part in an election, or let it go on."""
        if is_kept and self._elections is None:
            self._elections = self.cluster.steering.hold(ControllerElectionDue)
        elif not is_kept and self._elections is not None:
            self._elections.release()
            self._elections = None

    def let_go(self) -> JsonObject:
        """As `Control.let_go`, and elections go on."""
        self._keep_from_elections(False)
        return super().let_go()

    def report(self, brokers: str) -> JsonObject:
        """What this broker shows (`control/wholeness.py`); the ids of the brokers that run are separated by commas."""
        running = next(iter(self.serving()), None)
        if running is None:
            raise Refused("the broker does not run", 409)
        report: JsonObject = msgspec.to_builtins(report_of(running, list(map(int, brokers.split(",")))), str_keys=True)
        return report

    async def elect(self, body: ElectionBody) -> JsonObject:
        """Elect preferred leaders, if this broker is the controller."""
        for broker in self.serving():
            await self.whole.elect_preferred(broker.id, [TopicPartition(*each) for each in body.partitions])
        return {}


def _is_step(route: Route) -> bool:
    return route.method == "POST" and route.path.startswith(("/brokers", "/controller", "/reset"))


OWN_ROUTES = (
    *(route for route in ROUTES if not _is_step(route)),
    Route("PUT", "/own/state", "Have these holds and faults", lambda c, body: c.take_state(body), StateBody),
    Route("GET", "/own/view", "What the broker shows", lambda c, **query: c.view(**query), query={"broker": int, "topic": str}),
    Route(
        "GET", "/own/replica", "A partition as the broker sees it", lambda c, **query: c.replica(**query),
        query={"topic": str, "partition": int},
    ),
    Route("POST", "/own/let-go", "Remove holds and faults, and let everything go on", lambda c: c.let_go()),
    Route("GET", "/own/report", "What is whole as the broker sees it", lambda c, **query: c.report(**query), query={"brokers": str}),
    Route("POST", "/own/elect", "Elect preferred leaders", lambda c, body: c.elect(body), ElectionBody),
    Route("GET", "/own/heard", "Who has to show that it is alive", lambda c: c.heard()),
    Route("GET", "/own/exchanges", "Requests of clients as bytes", lambda c, **query: c.exchanges(**query), query={"since_ms": int}),
    Route(
        "GET", "/own/requests", "The last requests since a time", lambda c, **query: c.requests(**query),
        query={
            "api": str, "client_id": str, "topic": str, "group": str, "error": str, "clients": bool, "limit": int, "since_ms": int,
        },
    ),
)  # fmt: skip
"""What a broker serves to its owner: all but the steps of brokers, which are the owner's."""


class OwnedBroker:
    """A broker in its own process, with its control API. It is the `Brokers` of its `Control`."""

    def __init__(self, make: Callable[[Seams], BrokerServer], control: JsonObject, say: Say) -> None:
        """`make` makes the broker with these seams. `control`: `token`; `offset_ms` of the clock, or `now_ms` if it is frozen; `state`,
        as for `OwnedControl.take_state`.

        Raises what `make` raises.
        """
        self.count = 0
        self.steering = Steering()
        self.faults = Faults()
        self._state = convert(StateBody, control["state"])
        self._say = say
        history, clock = History(), _clock(control)
        self.control = OwnedControl(self, history, clock, say, self._set_count)
        seams = Seams(
            clock=clock, history=history, steering=self.steering, faults=self.faults,
            subscriber=lambda broker_id: partial(self.control.changed, broker_id), watch_coordinators=lambda _: self.control.coordinated,
        )  # fmt: skip
        self._gate = seams.recovery_gate
        self.broker = make(seams)
        self._server = ControlServer(self.control, token=control["token"], routes=OWN_ROUTES)
        self._serves = False

    def _set_count(self, count: int) -> None:
        self.count = count

    @property
    def brokers(self) -> list[BrokerServer]:
        """The broker, when it serves."""
        return [self.broker] if self._serves else []

    @property
    def controller_id(self) -> int:
        """Its id while it is the controller, -1 otherwise."""
        return self.broker.id if self._serves and self.broker.controller.is_active else -1

    @property
    def addresses(self) -> list[tuple[int, str, int]]:
        """(id, host, port) of its inter-broker listener."""
        return [(b.id, e.host, e.port) for b in self.brokers for e in b.advertised if e.listener == b.inter_broker_listener]

    async def start(self) -> None:
        """Serve the control API, tell the owner its address, and start the broker. Raises StartFailed, CannotServe."""
        self.control.take_state(self._state)
        await self._server.start()
        self._say({"control": self._server.url})
        await self.broker.start()
        self._serves = True

    async def stop(self) -> None:
        """Let everything go on that is held, and stop the broker in order."""
        self.steering.release_at_end(log)
        self.control.let_go()
        await self.broker.stop()
        self._serves = False
        await self._server.stop()

    async def stop_broker(self, broker_id: int, *, lose_log: bool = False) -> None:
        """Refused: the owner does it."""
        raise _owners_step()

    async def kill_broker(self, broker_id: int, *, expire: bool = False, lose_log: bool = False) -> None:
        """Refused: the owner does it."""
        raise _owners_step()

    async def crash_broker(self, broker_id: int, *, expire: bool = False) -> None:
        """Refused: `OwnedControl` ends the process."""
        raise _owners_step()

    async def start_broker(self, broker_id: int) -> None:
        """Refused: the owner does it."""
        raise _owners_step()

    async def add_broker(self, config: Mapping[str, str] | None = None) -> int:
        """Refused: the owner does it."""
        raise _owners_step()

    @property
    def recovering(self) -> list[Recovery]:
        """Those of the broker."""
        return self._gate.waiting

    async def release_recovery(self, topic: str | None = None, partition: int | None = None) -> list[Recovery]:
        """Release those of the broker."""
        return self._gate.release(topic, partition)

    def stand(self, broker_id: int) -> None:
        """Refused: the owner does it."""
        raise _owners_step()

    def go_on(self, broker_id: int) -> None:
        """Refused: the owner does it."""
        raise _owners_step()

    async def move_controller(self, to: int | None = None) -> int:
        """Refused: the owner does it."""
        raise _owners_step()


def _clock(control: JsonObject) -> SteeredClock:
    now_ms = control["now_ms"]
    if now_ms is None:
        return SteeredClock(control["offset_ms"] / 1000)
    clock = SteeredClock(now_ms / 1000 - time.time())
    clock.freeze()
    return clock


def _owners_step() -> Refused:
    return Refused("the owner of this process does this", 409)
