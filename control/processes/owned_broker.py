"""One broker in a process of its own, a part of its cluster (`control/processes/steered_processes.py` is the owner)."""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from klamm.broker.recovery import Recovery
from klamm.control.bodies import convert
from klamm.control.broker_control import BrokerControl
from klamm.control.event_log import EventLog
from klamm.control.history import History
from klamm.control.json_object import JsonObject
from klamm.control.processes.own_calls import own_routes
from klamm.control.state import State
from klamm.control.verbs.http import ControlServer
from klamm.seams.steering import HeldPhase, Steering
from klamm.server.broker_server import BrokerServer
from klamm.server.faults.fault import Faults
from klamm.server.lifecycle.seams import Seams
from klamm.server.local.steered_clock import SteeredClock

log = logging.getLogger(__name__)

MAX_STATE_BYTES = 1 << 30
"""Maximum size of what the owner sends: all holds and faults of a cluster."""

Say = Callable[[JsonObject], None]
"""Writes a line to the owner."""


class OwnedBroker:
    """A broker in its own process, with the routes that its owner calls. It is the `OwnBrokers` of its `BrokerControl`."""

    def __init__(self, make: Callable[[Seams], BrokerServer], control: JsonObject, say: Say) -> None:
        """`make` makes the broker with these seams. `control`: `token`; `offset_ms` of the clock, or `now_ms` if it is frozen; `state`,
        as for `BrokerControl.take_state`.

        Raises what `make` raises.
        """
        self.steering = Steering()
        self.faults = Faults()
        self.events = EventLog()
        self._state = convert(State, control["state"])
        self.count = self._state.brokers
        self._say = say
        history, clock = History(), _clock(control)
        self.control = BrokerControl(self, history, clock, self.events, self._crash_held)
        seams = Seams(
            clock=clock, history=history, steering=self.steering, faults=self.faults,
            subscriber=lambda broker_id: partial(self.control.changed, broker_id), watch_coordinators=lambda _: self.control.coordinated,
        )
        self._gate = seams.recovery_gate
        self.broker = make(seams)
        self._server = ControlServer(self, token=control["token"], routes=own_routes(), max_body_bytes=MAX_STATE_BYTES)
        self._serves = False

    @property
    def brokers(self) -> list[BrokerServer]:
        """The broker, when it serves."""
        return [self.broker] if self._serves else []

    awake = brokers

    @property
    def controller_id(self) -> int:
        """Its id while it is the controller, -1 otherwise."""
        return self.broker.id if self._serves and self.broker.controller.is_active else -1

    @property
    def addresses(self) -> list[tuple[int, str, int]]:
        """(id, host, port) of its inter-broker listener."""
        return [(b.id, e.host, e.port) for b in self.brokers for e in b.advertised if e.listener == b.inter_broker_listener]

    async def start(self) -> None:
        """Serve the owner, tell it the address, and start the broker. Raises StartFailed, CannotServe."""
        await self.control.take_state(self._state)
        await self._server.start()
        self._say({"control": self._server.url})
        await self.broker.start()
        self._serves = True

    async def stop(self) -> None:
        """Let everything go on that is held, and stop the broker in order."""
        self.steering.release_at_end(log)
        await self.control.let_go()
        self.faults.clear()
        await self.broker.stop()
        self._serves = False
        await self._server.stop()

    def end(self) -> None:
        """The owner can call no more."""

    def _crash_held(self, number: int, at: HeldPhase[Any]) -> None:
        """End this process, at the phase."""
        holds = {each.number: each.hits for each in self.control.held.values()}
        faults = {each: (fault.hits, fault.matches) for each, fault in self.control.faulted.items()}
        self._say({"crashed": number, "phase": type(at.phase).__name__, "holds": holds, "faults": faults})
        os.kill(os.getpid(), signal.SIGKILL)

    @property
    def recovering(self) -> list[Recovery]:
        """Those of the broker."""
        return self._gate.waiting

    async def release_recovery(self, topic: str | None = None, partition: int | None = None) -> list[Recovery]:
        """Release those of the broker."""
        return self._gate.release(topic, partition)


def _clock(control: JsonObject) -> SteeredClock:
    now_ms = control["now_ms"]
    if now_ms is None:
        return SteeredClock(control["offset_ms"] / 1000)
    clock = SteeredClock(now_ms / 1000 - time.time())
    clock.freeze()
    return clock
