"""What is done to the processes of brokers: stop, kill, start, pause; and to the office of the controller."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Iterable

from klamm.control.bodies import KillBody, NewBrokerBody, StopBody
from klamm.control.json_object import JsonObject
from klamm.control.processes.broker_client import Silent
from klamm.control.processes.broker_processes import BrokerProcesses, SteeredProcess
from klamm.control.refusal import Refused
from klamm.protocol.errors import ErrorCode
from klamm.server.lifecycle.start_failure import StartFailed
from klamm.server.local.own_zookeeper import end_registration, remove_controller
from klamm.server.local.process_cluster import BrokerProcess

STOP_S = 5.0
"""How long a broker may take to stop; then it is killed."""
SHOWN_S = 30.0
"""How long brokers may take to show the outcome of a step."""
TOPIC_S = 40.0
LOOK_S = 0.01
Views = dict[int, JsonObject]
"""What each broker shows that responds (`OwnedControl.view`)."""


class ProcessSteps:
    """Steps of one cluster. A step returns when every broker that responds shows its outcome."""

    def __init__(
        self, processes: BrokerProcesses, sync: Callable[[Iterable[int]], Awaitable[None]], changed: Callable[[], Awaitable[None]]
    ) -> None:
        """`sync` lets brokers have the holds and faults of now, and know whether they are `kept_from_elections`. `changed` is called when
        the state of a broker has changed.
        """
        self._processes = processes
        self._sync = sync
        self._told = changed
        self._moving = asyncio.Lock()
        self.kept_from_elections: set[int] = set()
        """Brokers that take part in no election of the controller: it moves to another one."""

    # --- brokers

    async def stop_broker(self, number: int, body: StopBody) -> JsonObject:
        """Stop a broker with a controlled shutdown; one that is paused goes on for that."""
        process = self._running(number)
        await self._stop(number, process, body.lose_log)
        return await self._changed(number)

    async def kill_broker(self, number: int, body: KillBody) -> JsonObject:
        """End the process of a broker by SIGKILL. With `expire` its znodes in ZooKeeper are deleted, as the end of its session does."""
        process = self._running(number)
        await self._kill(process)
        if body.lose_log:
            await self._processes.cluster.lose_log(number)
        if body.expire:
            await self.bury(process)
            await self._until_forgotten(number)
        return await self._changed(number)

    async def crash(self, number: int) -> None:
        """Kill a broker, and end its registration."""
        process = self._running(number)
        await self._kill(process)
        await self.bury(process)
        await self._until_forgotten(number)

    async def bury(self, process: BrokerProcess) -> None:
        """Wait for the end of a process that is killed, and end its registration."""
        await process.ended()
        self._processes.ended(process)
        await end_registration(self._processes.cluster.zookeeper, process.broker_id)

    async def start_broker(self, number: int) -> JsonObject:
        """Start a broker that does not run, on its former port. The answer says whether its records are lost."""
        self._processes.known(number)
        if self._process(number).runs:
            raise Refused(f"broker {number} runs already", 409)
        cluster = self._processes.cluster
        try:
            await end_registration(cluster.zookeeper, number)
            await cluster.start_broker(number)
        except StartFailed as error:
            raise Refused(str(error), 409) from None
        await self._joined(number)
        return await self._changed(number) | {"records_lost": not cluster.keeps_logs}

    async def add_broker(self, body: NewBrokerBody) -> JsonObject:
        """Start one more broker, with the next id and configs of its own."""
        try:
            number = await self._processes.cluster.add_broker(body.config)
        except StartFailed as error:
            raise Refused(str(error), 409) from None
        except ValueError as error:
            raise Refused(str(error)) from None
        await self._sync(list(self._processes.parts))
        await self._joined(number)
        return await self._changed(number)

    async def _joined(self, number: int) -> None:
        """A process runs: wait until all show its broker. Raises Refused, also if it ends before that."""
        process = self._process(number)
        what = f"broker {number} is shown by all"
        await self.until_shown(lambda shown: not process.runs or _is_shown_by_all(shown, number), what, broker=number)
        if not process.runs:
            raise Refused(f"broker {number} ended before all brokers showed it", 409)

    async def restart_broker(self, number: int, body: StopBody) -> JsonObject:
        """Stop a broker, if it runs, and start it again."""
        self._processes.known(number)
        process = self._process(number)
        if process.runs:
            await self._stop(number, process, body.lose_log)
        started = await self.start_broker(number)
        return started | {"records_lost": started["records_lost"] or body.lose_log}

    async def pause_broker(self, number: int) -> JsonObject:
        """Stop the process of a broker by SIGSTOP: it does nothing at all, and its sessions may end."""
        part = self._part(number)
        part.process.signal(signal.SIGSTOP)
        part.is_paused = True
        return await self._changed(number)

    async def resume_broker(self, number: int) -> JsonObject:
        """End a pause. Holds, faults and the time that passed by `advance` meanwhile reach the broker now."""
        self._running(number)
        part = self._processes.parts.get(number)
        if part is None or not part.is_paused:
            raise Refused(f"broker {number} is not paused", 409)
        self.resume(part)
        await self._sync((number,))
        if part.behind_ms:
            behind_ms, part.behind_ms = part.behind_ms, 0
            await self._processes.ask_one(number, "POST", "/clock/advance", {"ms": behind_ms})
        return await self._changed(number)

    def resume(self, part: SteeredProcess) -> None:
        """Let a process go on."""
        if part.is_paused and part.process.runs:
            part.process.signal(signal.SIGCONT)
        part.is_paused = False

    async def _stop(self, number: int, process: BrokerProcess, lose_log: bool) -> None:
        part = self._processes.parts.get(number)
        if part is not None:
            self.resume(part)
        try:
            async with asyncio.timeout(STOP_S):
                await process.stop()
        except TimeoutError:
            await process.kill()
        self._processes.ended(process)
        if lose_log:
            await self._processes.cluster.lose_log(number)
        await end_registration(self._processes.cluster.zookeeper, number)
        await self._until_forgotten(number)

    async def _kill(self, process: BrokerProcess) -> None:
        self._processes.killed.add(process.broker_id)
        await process.kill()
        self._processes.ended(process)

    def _process(self, number: int) -> BrokerProcess:
        return next(each for each in self._processes.cluster.processes if each.broker_id == number)

    def _running(self, number: int) -> BrokerProcess:
        self._processes.known(number)
        process = self._process(number)
        if not process.runs:
            raise Refused(f"broker {number} does not run", 409)
        return process

    def _part(self, number: int) -> SteeredProcess:
        self._running(number)
        part = self._processes.parts.get(number)
        if part is None:
            raise Refused(f"broker {number} starts: it cannot be paused yet", 409)
        return part

    async def _changed(self, number: int) -> JsonObject:
        await self._told()
        shown = await self._processes.broker(number)
        self._processes.events.add("broker", shown)
        return shown

    # --- the controller

    async def move_controller(self, to: int | None) -> None:
        """Make a broker the controller: `/controller` is deleted while the others are kept from the election. With None it is any other."""
        async with self._moving:
            if to is not None and self._part(to).is_paused:
                raise Refused(f"broker {to} is paused", 409)
            answers, _ = await self._processes.ask("GET", "/own/view")
            before = next((broker for broker, each in answers.items() if isinstance(each, dict) and each["is_controller"]), -1)
            if to is None or to != before:
                await self._elect(to, before)

    async def _elect(self, to: int | None, before: int) -> None:
        ready = [broker for broker, part in self._processes.parts.items() if not part.is_paused]
        candidates = {broker for broker in ready if broker == to or (to is None and broker != before)}
        if not candidates:
            raise Refused("there is no other broker that could be controller", 409)
        others = set(ready) - candidates
        try:
            self.kept_from_elections |= others
            await self._sync(others)
            await remove_controller(self._processes.cluster.zookeeper)
            await self.until_shown(lambda shown: _controller_of(shown) in candidates, "another controller is elected")
        finally:
            self.kept_from_elections -= others  # one that was paused meanwhile learns that when it goes on
            await self._sync(others)

    async def at_controller(self, method: str, path: str, body: object, done: ErrorCode) -> None:
        """Let the controller's process do this, or that of the next controller if it ends meanwhile. `done` is then the error that says
        that the former one did it.
        """
        is_repeated = False
        try:
            async with asyncio.timeout(TOPIC_S):
                while not await self._is_done(method, path, body, done if is_repeated else None):
                    is_repeated = True
                    await asyncio.sleep(LOOK_S)
        except TimeoutError:
            raise Refused(f"the controller did not respond within {TOPIC_S:g} s", 408) from None

    async def _is_done(self, method: str, path: str, body: object, done: ErrorCode | None) -> bool:
        shown = await self.until_shown(lambda shown: _controller_of(shown) >= 0, "there is a controller")
        part = self._processes.parts.get(_controller_of(shown))
        if part is None:
            return False
        try:
            await part.client.call(method, path, body, limit_s=TOPIC_S)
        except Silent:
            return False
        except Refused as refused:
            if done is None or done.name not in str(refused):
                raise
        return True

    # --- what brokers show

    async def until_shown(
        self, holds: Callable[[Views], bool], what: str, *, broker: int | None = None, topic: str | None = None
    ) -> Views:
        """Wait until this holds for what the brokers show that respond. Raises Refused after SHOWN_S."""
        query = {"broker": broker, "topic": topic}
        try:
            async with asyncio.timeout(SHOWN_S):
                while True:
                    answers, _ = await self._processes.ask("GET", "/own/view", query=query)
                    shown = {number: answer for number, answer in answers.items() if isinstance(answer, dict)}
                    if holds(shown):
                        return shown
                    await asyncio.sleep(LOOK_S)
        except TimeoutError:
            raise Refused(f"not within {SHOWN_S:g} s: {what}", 408) from None

    async def _until_forgotten(self, number: int) -> None:
        def forgotten(shown: Views) -> bool:
            others = [view for broker, view in shown.items() if broker != number]
            named = any(view["shows_broker"] or view["shows_as_leader"] for view in others)
            return not others or (_controller_of(shown) not in (-1, number) and not named)

        await self.until_shown(forgotten, f"broker {number} is forgotten", broker=number)


def _controller_of(shown: Views) -> int:
    """The controller, if all agree; -1 otherwise."""
    ids = {view["controller_id"] for view in shown.values()}
    number = ids.pop() if len(ids) == 1 else -1
    return number if number in shown and shown[number]["is_controller"] else -1


def _is_shown_by_all(shown: Views, number: int) -> bool:
    controller = _controller_of(shown)
    if controller < 0 or number not in shown or not shown[number]["is_online"]:
        return False
    views = shown.values()
    return (
        all(view["shows_broker"] for view in views)
        and set(shown[controller]["propagated"]) <= set(shown[number]["topics"])
        and not any(view["shows_without_leader"] for view in views)
    )
