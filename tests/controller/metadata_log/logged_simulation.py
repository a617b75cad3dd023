"""Simulated clusters that keep a metadata log, and have brokers that register with the controller beside those that register themselves.

`LoggedSimulation` goes before another simulation in the list of a class's bases.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from klamm.controller.options import ControllerOptions
from klamm.controller.values import BrokerState
from klamm.server.local.driven_clock import DrivenClock
from klamm.tests.controller.metadata_log.log_watch import LogWatch, Past
from klamm.tests.controller.registrations.simulated_registrations import RequestBroker
from klamm.tests.controller.simulation.simulation import Process, Simulation

REGISTERING = dataclasses.replace(Simulation.options, registerbroker_enable=True)
"""The options of controllers with which brokers may register."""


class LoggingProcess(Process):
    """A process whose log is looked at."""

    def __init__(self, simulation: LoggedSimulation, broker_id: int) -> None:
        self.watch: LogWatch | None = None
        super().__init__(simulation, broker_id)
        self.watch = LogWatch(self, simulation.past)

    def _changed(self, change: Any) -> None:
        super()._changed(change)
        if self.watch is not None:
            self.watch.changed()


class LoggedSimulation(Simulation):
    """See the file's text. `enlisted` are the brokers that register by request and run."""

    options: ControllerOptions = REGISTERING

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.driven = self.clock = DrivenClock()
        self.past = Past(self.world)
        self.enlisted: dict[int, RequestBroker] = {}

    def new_process(self, broker_id: int) -> LoggingProcess:
        return LoggingProcess(self, broker_id)

    def read_batches(self) -> int:
        """How many batches the readers of the present processes have read."""
        return sum(process.watch.batches for process in self.processes if isinstance(process, LoggingProcess) and process.watch is not None)

    def start_request_broker(self, broker_id: int) -> None:
        self.enlisted[broker_id] = RequestBroker(self, broker_id)

    def crash_request_broker(self, broker_id: int) -> None:
        self.enlisted.pop(broker_id).crash()
        if broker_id not in self.world.brokers:
            self.world.offline_dirs = {(b, k) for b, k in self.world.offline_dirs if b != broker_id}

    def let_fetch(self, broker_ids: list[int]) -> None:
        """Each of them sends its next request, where it waits for none."""
        for b in broker_ids:
            if b in self.enlisted:
                self.enlisted[b].go_on()
        self.enlisted = {b: broker for b, broker in self.enlisted.items() if not broker.gone}

    async def settle(self) -> None:
        """Until nothing changes for brokers that registered by request either."""
        await super().settle()
        last: Any = None
        while last != (now := (self.world.zk.zxid, [broker.mark() for broker in self.enlisted.values()])):
            last = now
            self.let_fetch(sorted(self.enlisted))
            await super().settle()
        for process in self.processes:
            assert isinstance(process, LoggingProcess) and process.watch is not None
            assert not process.watch.problems, process.watch.problems[:3]

    async def quieten(self) -> None:
        """A fetch may be answered late, because its connection has fetched too often: time goes on for it."""
        await super().quieten()
        for _ in range(20):
            if not any(process.callers for process in self.processes):
                return
            self.driven.jump(0.1)
            await super().quieten()

    async def pass_seconds(self, seconds: int) -> None:
        """Time passes, and brokers that are not silent fetch each second."""
        for _ in range(seconds):
            self.driven.jump(1)
            await self.settle()

    def check(self) -> None:
        super().check()
        active = self.active
        assert isinstance(active, LoggingProcess) and active.watch is not None
        active.watch.check()
        for b in self.enlisted.values():
            registration = self.world.registrations.get(b.id)
            if b.silent or b.id in self.world.brokers:
                assert registration is None or registration.state is not BrokerState.ONLINE or b.silent, registration
            else:
                assert registration is not None and registration.state is BrokerState.ONLINE, (b.id, registration)
                assert registration.epoch == b.epoch and b.is_online, (b.id, b.epoch, registration)
