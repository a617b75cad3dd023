"""The processes of a cluster's brokers as its control API sees them: which of them serve their API, and calls to them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import aiohttp

from klamm.control.event_log import EventLog
from klamm.control.json_object import JsonObject
from klamm.control.processes.broker_client import BrokerClient, Silent
from klamm.control.refusal import Refused
from klamm.server.local.process_cluster import BrokerProcess, ProcessCluster

READ_S = 1.0
"""How long a broker may take to show something."""
ACT_S = 15.0
"""How long a broker may take to do something."""


class SteeredProcess:
    """A process of a broker that serves its control API."""

    def __init__(self, process: BrokerProcess, client: BrokerClient) -> None:
        self.process = process
        self.client = client
        self.is_paused = False
        self.behind_ms = 0
        """How far the clock was moved while this process was paused."""
        self.total = 0
        """Requests that it received."""


class BrokerProcesses:
    """The processes of one cluster."""

    def __init__(self, cluster: ProcessCluster, ended: Callable[[int, SteeredProcess], None]) -> None:
        """`ended` is called when the process of a broker has ended."""
        self.cluster = cluster
        self.events = EventLog()
        self.parts: dict[int, SteeredProcess] = {}
        """The processes that serve their control API, by broker id."""
        self.killed: set[int] = set()
        self.changed = asyncio.Event()
        """Is set when the next process starts or ends; then there is another one."""
        self._tell_ended = ended
        self._tasks: set[asyncio.Future[Any]] = set()
        self._session: aiohttp.ClientSession | None = None

    def add(self, process: BrokerProcess, url: str, token: str) -> SteeredProcess:
        """A process serves its control API here."""
        if self._session is None:
            self._session = aiohttp.ClientSession()
        part = self.parts[process.broker_id] = SteeredProcess(process, BrokerClient(self._session, url, token))
        self.killed.discard(process.broker_id)
        self._tell_change()
        return part

    def ended(self, process: BrokerProcess) -> None:
        """A process has ended. A second call does nothing."""
        broker = process.broker_id
        part = self.parts.get(broker)
        if part is None or part.process is not process:
            return
        del self.parts[broker]
        if not process.is_ending:
            self.killed.add(broker)
        self._tell_ended(broker, part)
        self._tell_change()
        self.events.add("broker", self.ended_broker(broker))

    def _tell_change(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()

    def ended_broker(self, broker: int) -> JsonObject:
        """A broker whose process has ended."""
        return {"id": broker, "state": "killed" if broker in self.killed else "stopped"}

    def spawn(self, work: Awaitable[Any]) -> None:
        """Do this meanwhile."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """End all that is under way here."""
        for task in self._tasks:
            task.cancel()
        if self._session is not None:
            await self._session.close()

    async def ask(
        self, method: str, path: str, body: object = None, query: JsonObject | None = None, *, limit_s: float = READ_S,
        only: Iterable[int] | None = None,
    ) -> tuple[dict[int, Any], JsonObject]:
        """Call all brokers that run, or only these. Returns the answers by broker, Refused among them, and `missing` if one is."""
        parts = {broker: part for broker, part in sorted(self.parts.items()) if only is None or broker in only}
        asked = [broker for broker, part in parts.items() if not part.is_paused]
        calls = (parts[broker].client.call(method, path, body, query, limit_s=limit_s) for broker in asked)
        answers: dict[int, Any] = dict(zip(asked, await asyncio.gather(*calls, return_exceptions=True), strict=True))
        for answer in answers.values():
            if isinstance(answer, BaseException) and not isinstance(answer, (Refused, Silent)):
                raise answer
        silent = [broker for broker in parts if broker not in answers or isinstance(answers[broker], Silent)]
        heard = {b: a for b, a in answers.items() if not isinstance(a, Silent) and self.parts.get(b) is parts[b]}
        return heard, {"missing": silent} if silent else {}

    async def ask_one(self, broker: int, method: str, path: str, body: object = None, *, limit_s: float = ACT_S) -> Any:
        """Call a broker. Raises Refused, also if it does not respond."""
        self.known(broker)
        part = self.parts.get(broker)
        if part is None:
            raise Refused(f"broker {broker} does not run", 409)
        if part.is_paused:
            raise Refused(f"broker {broker} is paused", 409)
        try:
            return await part.client.call(method, path, body, limit_s=limit_s)
        except Silent:
            raise Refused(f"broker {broker} did not respond within {limit_s:g} s", 409) from None

    def known(self, broker: int) -> None:
        """Raises Refused if there is no such broker."""
        if not 1 <= broker <= self.cluster.count:
            raise Refused(f"there is no broker {broker}; the cluster has 1 to {self.cluster.count}", 404)

    async def controllers(self) -> tuple[int, dict[int, int]]:
        """The active controller, -1 without one, and which controller each broker shows that responds."""
        answers, _ = await self.ask("GET", "/own/view")
        shown = {broker: answer for broker, answer in answers.items() if isinstance(answer, dict)}
        active = next((broker for broker, each in shown.items() if each["is_controller"]), -1)
        return active, {broker: each["controller_id"] for broker, each in shown.items()}

    async def controller_id(self) -> int:
        """The active controller among the brokers that respond, -1 without one."""
        return (await self.controllers())[0]

    async def brokers(self) -> JsonObject:
        """All brokers, those that do not run or do not respond included."""
        shown = await asyncio.gather(*(self.broker(number) for number in range(1, self.cluster.count + 1)))
        return {"brokers": shown, "controller_id": next((each["id"] for each in shown if each.get("is_controller")), -1)}

    async def broker(self, number: int) -> JsonObject:
        """A broker. Its state is running, paused, stopped, killed, starting, or not responding."""
        self.known(number)
        process = next((each for each in self.cluster.processes if each.broker_id == number), None)
        if process is None or not process.runs:
            return self.ended_broker(number)
        shown: JsonObject = {"id": number, "pid": process.pid}
        part = self.parts.get(number)
        if part is None or not process.is_ready:
            return shown | {"state": "starting"}
        if part.is_paused:
            return shown | {"state": "paused"}
        try:
            answer: JsonObject = await part.client.call("GET", f"/brokers/{number}", limit_s=READ_S)
        except Silent:
            return shown | {"state": "not responding"} if process.runs else self.ended_broker(number)
        return answer | {"pid": process.pid}
