"""Simulated brokers that register with the controller: they register, fetch the metadata log, and apply it as the document says.

A broker does one thing at a time, when it is told to go on: it registers where it is not registered, else it fetches. What it has applied
is its own reading of the record table (`metadata_facts.NaiveReplay`), and it comes online when it applies the record that says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm.controller.event_loop.loop import Controller
from klamm.controller.metadata_log.fetches import MetadataFetch
from klamm.controller.values import BrokerToRegister
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.nouns import Endpoint
from klamm.protocol.records.metadata_records import decode_records
from klamm.tests.controller.metadata_log.metadata_facts import NaiveReplay

if TYPE_CHECKING:
    from klamm.tests.controller.simulation.simulation import Simulation

AGAIN = (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.OFFSET_OUT_OF_RANGE)
UNKNOWN = (ErrorCode.BROKER_ID_NOT_REGISTERED, ErrorCode.STALE_BROKER_EPOCH)


class SimulatedPeer:
    """A connection to the controller."""

    def __init__(self) -> None:
        self.is_open = True
        self.host = "127.0.0.1"
        self.principal = "User:ANONYMOUS"


class RequestBroker:
    """One broker process. `epoch` is -1 until it has registered."""

    def __init__(self, simulation: Simulation, broker_id: int) -> None:
        self.id = broker_id
        self.epoch = -1
        self.controller_epoch = -1
        self.replay = NaiveReplay()
        self.is_online = False
        """Whether it has applied that it is."""
        self.stopping = False
        self.silent = False
        """Whether it does not ask for anything, although it runs."""
        self.gone = False
        self.registered_times = 0
        self._simulation = simulation
        self._peer = SimulatedPeer()
        self._busy = False
        simulation.world.by_request.add(broker_id)

    def go_on(self) -> None:
        """Send the next request to the active controller, unless one is on its way."""
        active = self._simulation.active
        if active is not None and not (self._busy or self.gone or self.silent):
            self._busy = True
            active.ask(self._request(active.controller))

    def mark(self) -> tuple[int | bool, ...]:
        """What has become of it so far."""
        return self.id, self.epoch, self.controller_epoch, self.replay.next_offset, self.is_online, self.gone

    def stop(self) -> None:
        """SIGTERM: from now on it wants to shut down."""
        self.stopping = True

    def crash(self) -> None:
        """The process ends, and its connection with it."""
        self.gone = True
        self._peer.is_open = False
        self._simulation.world.by_request.discard(self.id)

    def reconnect(self) -> None:
        """Its connection is lost; it has another one."""
        self._peer.is_open = False
        self._peer = SimulatedPeer()

    async def _request(self, controller: Controller) -> None:
        peer = self._peer
        try:
            if self.epoch < 0:
                await self._register(controller, peer)
            else:
                await self._fetch(controller, peer)
        finally:
            self._busy = False

    async def _register(self, controller: Controller, peer: SimulatedPeer) -> None:
        endpoint = Endpoint("PLAINTEXT", f"host{self.id}", 9092, 0)
        registration = await controller.register_broker(BrokerToRegister(self.id, (endpoint,)), peer)
        if not self.gone:
            assert registration.id == self.id and registration.state.name == "FENCED"
            self.epoch = registration.epoch
            self.registered_times += 1
            self.is_online = False

    async def _fetch(self, controller: Controller, peer: SimulatedPeer) -> None:
        offset = self.replay.next_offset if self.controller_epoch >= 0 else 0
        request = MetadataFetch(self.id, self.epoch, self.controller_epoch, offset, 0, 1 << 20, self.stopping)
        answer = await controller.metadata_fetch(request, peer)
        if self.gone:
            return
        if answer.error in UNKNOWN:
            if self.stopping:
                self.crash()
            self.epoch = -1
        elif answer.error in AGAIN:
            self._start_again(answer.controller_epoch, answer.start_offset)
        elif answer.error is not ErrorCode.NONE:
            raise ApiError(answer.error)
        else:
            if self.controller_epoch != answer.controller_epoch:
                assert self.controller_epoch == -1
                self._start_again(answer.controller_epoch, answer.start_offset)
            self._apply(answer.records)
            if answer.may_go:
                assert self.stopping
                self.crash()

    def _start_again(self, controller_epoch: int, offset: int) -> None:
        self.controller_epoch = controller_epoch
        self.replay.restart(offset)

    def _apply(self, records: bytes | None) -> None:
        assert records is not None
        for offset, record in decode_records(records):
            if offset < self.replay.next_offset:
                continue
            self.replay.apply([(offset, record)])
            mine = self.replay.brokers.get(self.id)
            if mine is not None and mine.epoch == self.epoch:
                self.is_online = mine.state == "ONLINE"
