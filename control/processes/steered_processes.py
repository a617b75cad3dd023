"""A cluster with one process for each broker, and the control API for all of them.

Each process serves the methods of its `BrokerControl` to its owner (`owned_broker.py`); it is sent the whole state of holds and faults
whenever that changes, and to begin with, and tells by events what it reaches. Everything else is asked for when somebody asks, of all
processes at once. A broker that does not respond in time is named in `missing`; what it showed last counts.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import aiohttp
import msgspec

from klamm.control.event_log import REQUESTS
from klamm.control.json_object import JsonObject
from klamm.control.processes.process_requests import ProcessRequests
from klamm.control.processes.remote_part import RemotePart
from klamm.control.refusal import Refused
from klamm.control.verbs.model import Control
from klamm.control.verbs.parts import Part, Parts
from klamm.control.verbs.served_control import ServedControl
from klamm.control.verbs.shown import Views, until_shown
from klamm.server.lifecycle.start_failure import StartFailed
from klamm.server.local.cluster import HOLDING
from klamm.server.local.own_zookeeper import end_registration, remove_controller, session_at
from klamm.server.local.process_cluster import BrokerProcess, ProcessCluster
from klamm.server.local.shown import controller_of, is_forgotten, is_shown_by_all
from klamm.server.local.steered_clock import SteeredClock

log = logging.getLogger(__name__)

STOP_S = 5.0
"""How long a broker may take to stop; then it is killed."""
LET_GO_S = 1.0
"""How long a cluster that ends tries to let go on what is held."""


class SteeredProcessCluster(ServedControl, ProcessCluster):
    """A `ProcessCluster` that serves its control API while it runs. Brokers that were ended can be started again, so it goes on without
    any. A step returns when every broker that responds shows its outcome.
    """

    def __init__(
        self, command: Sequence[str], brokers: int = 3, *, control_host: str = "127.0.0.1", control_port: int | None = 0,
        control_token: str | None = None, **shape: Any,
    ) -> None:
        """`control_port`: 0 for a free one, None for no HTTP. `shape` are the other arguments of `ProcessCluster`.

        Raises CannotServe: an address beyond loopback without a token.
        """
        super().__init__(command, brokers, **shape)
        self._remote: dict[int, RemotePart] = {}
        self._of_parts: dict[int, BrokerProcess] = {}
        """The processes that serve their owner, by broker."""
        parts: dict[int, Part] = {}
        self._parts = Parts(parts, lambda: self.count)
        self.control = Control(self, self._parts, SteeredClock(), lambda: session_at(self.zookeeper))
        self._serve(self.control, control_host, control_port, control_token)
        self.requests = self.control.history = ProcessRequests(self._parts, self._remote, lambda: self.count)
        self._tokens: dict[int, str] = {}
        self._moving = asyncio.Lock()
        self._session: aiohttp.ClientSession | None = None

    async def start(self) -> None:
        """Start the control API and the cluster; return when both are ready. Raises CannotServe, and what the cluster raises; then call
        `stop`.
        """
        await self._start_server()
        await super().start()
        await self.control.remember()

    async def stop(self) -> None:
        """End the control API, let everything go on that is held, and stop the cluster."""
        self._stopping = True
        self.control.end()
        await self._let_go()
        await self._stop_server()
        await super().stop()
        self.control.state.close()
        if self._session is not None:
            await self._session.close()

    async def _let_go(self) -> None:
        """Remove holds and faults, since what is held cannot stop. The log has a line for each phase that is held."""
        state = self.control.state
        if not state.holds and not state.faults:
            return
        with suppress(TimeoutError, Refused):
            async with asyncio.timeout(LET_GO_S):
                await state.look_at_holds()
                for hold in state.holds.values():
                    for at in hold.held:
                        log.warning("broker %d is held at %s until now; it goes on, since the cluster ends", at["broker"], hold.body.phase)
                await self.control.let_go()

    async def _all_ended(self) -> None:
        await asyncio.get_running_loop().create_future()

    # --- what processes say

    def _control_of(self, broker_id: int) -> JsonObject | None:
        self._tokens[broker_id] = secrets.token_urlsafe(24)
        clock = self.control.clock
        return {
            "token": self._tokens[broker_id], "offset_ms": clock.offset_ms,
            "now_ms": clock.now_ms() if clock.is_frozen else None, "state": msgspec.to_builtins(self.control.state.state(broker_id)),
        }

    def _heard(self, process: BrokerProcess, report: JsonObject) -> None:
        broker = process.broker_id
        if "control" in report:
            if self._session is None:
                self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))  # each client that waits has a connection
            part = self._remote[broker] = RemotePart(self._session, report["control"], self._tokens[broker])
            self._parts.parts[broker], self._of_parts[broker] = part, process
            self.control.killed.discard(broker)
            self._parts.tell_change()
            self.control.state.spawn(self._read_events(broker, part))
        if "crashed" in report:
            process.is_ending = True
            self.control.state.counted(broker, report["holds"], report["faults"])
            self.control.killed.add(broker)
            self._ended(process)
            self.control.crashed(broker, report["phase"])

    async def _read_events(self, broker: int, part: RemotePart) -> None:
        async for kind, data in part.events():
            if self._remote.get(broker) is not part:
                return  # it has ended, and what it took is counted
            try:
                if kind == REQUESTS:
                    part.total = data["total"]
                self.control.take(broker, kind, data)
            except Exception:  # the next event counts nevertheless
                log.exception("an event %r of broker %d cannot be processed", kind, broker)

    def _ended(self, process: BrokerProcess) -> None:
        """A process has ended. A second call does nothing."""
        broker = process.broker_id
        if self._of_parts.get(broker) is not process:
            return
        del self._parts.parts[broker], self._of_parts[broker]
        if not process.is_ending:
            self.control.killed.add(broker)
        self.requests.ended(self._remote.pop(broker))
        self.control.state.ended(broker)
        self._parts.tell_change()
        self.control.events.add("broker", {"id": broker, "state": "killed" if broker in self.control.killed else "stopped"})

    # --- steps

    def state_of(self, broker_id: int) -> str:
        """`running`, `paused`, `starting` or `down`."""
        process = next((each for each in self.processes if each.broker_id == broker_id), None)
        if process is None or not process.runs:
            return "down"
        part = self._remote.get(broker_id)
        return "starting" if part is None or not process.is_ready else "paused" if part.is_paused else "running"

    def _process(self, number: int) -> BrokerProcess:
        return next(each for each in self.processes if each.broker_id == number)

    async def stop_broker(self, broker_id: int, *, lose_log: bool = False) -> None:
        """Stop a broker with a controlled shutdown; one that is paused goes on for that."""
        await self._see_before_end()
        process = self._process(broker_id)
        if broker_id in self._remote:
            self.go_on(broker_id)
        try:
            async with asyncio.timeout(STOP_S):
                await process.stop()
        except TimeoutError:
            await process.kill()
        self._ended(process)
        if lose_log:
            await self.lose_log(broker_id)
        await end_registration(self.zookeeper, broker_id)
        await self._until_forgotten(broker_id)

    async def _see_before_end(self) -> None:
        """A process is to be ended: see the requests that it received, and what it counted of holds and faults."""
        await self.requests.before_end()
        if self.control.state.holds:
            await self.control.state.look_at_holds()
        if self.control.state.faults:
            await self.control.state.look_at_faults()

    async def kill_broker(self, broker_id: int, *, expire: bool = False, lose_log: bool = False) -> None:
        """End a process by SIGKILL. With `expire` its znodes in ZooKeeper are deleted, as the end of its session does."""
        await self._see_before_end()
        process = self._process(broker_id)
        await process.kill()
        self._ended(process)
        if lose_log:
            await self.lose_log(broker_id)
        if expire:
            await end_registration(self.zookeeper, broker_id)
            await self._until_forgotten(broker_id)

    async def crash_broker(self, broker_id: int, *, expire: bool = False) -> None:
        """End a process by SIGKILL, and its registration."""
        await self._see_before_end()
        process = self._process(broker_id)
        await process.kill()
        self._ended(process)
        if expire:
            await end_registration(self.zookeeper, broker_id)

    async def start_broker(self, broker_id: int) -> None:
        """Start a broker that does not run, on its former ports."""
        await end_registration(self.zookeeper, broker_id)
        await super().start_broker(broker_id)
        await self._joined(broker_id)

    async def add_broker(self, config: Mapping[str, str] | None = None) -> int:
        """Start one more broker, with the next id and these properties besides those of all. Returns its id."""
        number = await super().add_broker(config)
        await self._joined(number)
        return number

    async def _joined(self, number: int) -> None:
        """A process runs: wait until all show its broker. Raises StartFailed if it ends before that, Refused."""
        process, what = self._process(number), f"broker {number} is shown by all"
        await self._until(lambda shown: not process.runs or is_shown_by_all(shown, number), what, number)
        if not process.runs:
            raise StartFailed(f"broker {number} ended before all brokers showed it")

    async def _until_forgotten(self, number: int) -> None:
        await self._until(lambda shown: is_forgotten(shown, number), f"broker {number} is forgotten", number)

    async def _until(self, holds: Callable[[Views], bool], what: str, number: int) -> None:
        """Wait for the outcome of a step, until the controller is held: then it cannot come. Raises Refused."""
        state = self.control.state
        await until_shown(self._parts, lambda shown: holds(shown) or not HOLDING.isdisjoint(state.held_phases()), what, broker=number)

    def stand(self, broker_id: int) -> None:
        """Stop a process by SIGSTOP: it does nothing at all, and its sessions may end."""
        self._process(broker_id).signal(signal.SIGSTOP)
        self._remote[broker_id].is_paused = True

    def go_on(self, broker_id: int) -> None:
        """Let a process go on."""
        part, process = self._remote[broker_id], self._process(broker_id)
        if part.is_paused and process.runs:
            process.signal(signal.SIGCONT)
        part.is_paused = False

    async def move_controller(self, to: int | None = None) -> int:
        """Make a broker the controller: `/controller` is deleted while the others are kept from the election. With None it is any other."""
        async with self._moving:
            shown = await until_shown(self._parts, lambda shown: True, "brokers respond")
            before = next((broker for broker, each in shown.items() if each.is_controller), -1)
            return before if to is not None and to == before else await self._elect(to, before)

    async def _elect(self, to: int | None, before: int) -> int:
        ready = [broker for broker, part in self._remote.items() if not part.is_paused]
        candidates = {broker for broker in ready if broker == to or (to is None and broker != before)}
        if not candidates:
            raise Refused("there is no other broker that could be controller", 409)
        others, state = set(ready) - candidates, self.control.state
        try:
            state.kept_from_elections |= others
            await state.sync(others)
            await remove_controller(self.zookeeper)
            shown = await until_shown(self._parts, lambda shown: controller_of(shown) in candidates, "another controller is elected")
            return controller_of(shown)
        finally:
            state.kept_from_elections -= others  # one that was paused meanwhile learns that when it goes on
            await state.sync(others)
