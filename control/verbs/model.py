"""The verbs by which a cluster is steered and looked at. Values are plain and can be written as JSON.

`Control` is the one model behind the HTTP interface (`control/verbs/routes.py`), the command line and `klamm.testing`. It runs on one event
loop and has the numbers of holds and faults, limits, conditions and waits. What it does to brokers it asks of the parts of the cluster
(`control/verbs/parts.py`): one part has all brokers of this process, or each broker is a part in a process of its own.

All verbs are coroutines; a wrong argument raises Refused. With brokers in this process those that wait for nothing do not suspend.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from klamm.control.bodies import AdvanceBody
from klamm.control.broker_control import BrokerControl
from klamm.control.event_log import REQUESTS, EventLog
from klamm.control.heartbeats import advance_in_steps, check_step
from klamm.control.json_object import JsonObject
from klamm.control.refusal import Refused
from klamm.control.seen_changes import SeenRows
from klamm.control.verbs.broker_verbs import BrokerVerbs
from klamm.control.verbs.cluster import Cluster, Requests
from klamm.control.verbs.hold_verbs import HoldVerbs
from klamm.control.verbs.parts import ACT_S, Parts, call
from klamm.control.verbs.shared_state import check_timeout
from klamm.control.verbs.shares import ALL
from klamm.control.verbs.topic_verbs import TopicVerbs
from klamm.control.wholeness import LOOK_S, Report, has_processed, until_whole
from klamm.protocol.nouns import TopicPartition
from klamm.server.local.changed_configs import ChangedConfigs, Sessions
from klamm.server.local.steered_clock import SteeredClock

__tracebackhide__ = True  # pytest leaves out the lines of this module

MAX_LISTED = 1000
MAX_ADVANCE_MS = 366 * 86_400_000


class Control(HoldVerbs, BrokerVerbs, TopicVerbs):
    """Steers a cluster."""

    history: Requests

    def __init__(self, cluster: Cluster, parts: Parts, clock: SteeredClock, sessions: Sessions) -> None:
        """`clock` is that of the brokers in this process, or goes along with those of processes. `sessions` are those of ZooKeeper."""
        super().__init__(cluster, parts, clock, EventLog())
        self._configs = ChangedConfigs(sessions)
        self._rows = SeenRows()
        self._crashes: set[asyncio.Future[None]] = set()
        self._first_count = cluster.count

    # --- what parts tell

    def take(self, part: int, kind: str, data: JsonObject) -> None:
        """Something happened at the brokers of a part."""
        match kind:
            case "reached":
                self.state.reached(part, data)
            case "hit":
                self.state.hit(part, data)
            case "change":
                if (news := self._rows.new(data)) is not None:
                    self.events.add(kind, news)
            case _ if kind == REQUESTS:
                self.events.add(REQUESTS, {"total": self.history.total})
            case "expired" | "zookeeper" | "coordinator":
                self.events.add(kind, data)

    def crashed(self, broker: int, phase: str) -> None:
        """A broker is killed at a phase of a hold."""
        self.killed.add(broker)
        self.events.add("crashed", {"broker": broker, "phase": phase})
        work = asyncio.ensure_future(self._crash(broker))
        self._crashes.add(work)
        work.add_done_callback(self._crashes.discard)

    async def _crash(self, broker: int) -> None:
        """Let the others know what the hold took before one of them is controller: it could reach the same phase."""
        if ALL not in self.parts.parts:
            await self.state.sync()
        await self.cluster.crash_broker(broker, expire=True)

    @property
    def is_crashing(self) -> bool:
        """Whether a broker that reached a phase of a hold with `crash` is being killed."""
        return bool(self._crashes)

    # --- requests

    async def requests(
        self, *, api: str | None = None, client_id: str | None = None, topic: str | None = None, group: str | None = None,
        broker: int | None = None, error: str | None = None, clients: bool = False, after: int = 0, limit: int = 100,
    ) -> JsonObject:
        """The last requests that match, oldest first. `total` counts all requests since the start. `error` is the name or number of an
        error, or `any`.
        """
        if not 1 <= limit <= MAX_LISTED:
            raise Refused(f"limit: from 1 to {MAX_LISTED}")
        return await self.history.requests(
            api=api, client_id=client_id, topic=topic, group=group, broker=broker, error=error, clients=clients, after=after, limit=limit
        )

    # --- the clock

    async def clock_state(self) -> JsonObject:
        """The time of the brokers."""
        return {"now_ms": self.clock.now_ms(), "frozen": self.clock.is_frozen, "offset_ms": self.clock.offset_ms}

    async def advance_clock(self, body: AdvanceBody) -> JsonObject:
        """Let time pass at once, with all timers of brokers, controllers and coordinators; with `step_ms` in steps, between which those are
        waited for that are alive. `silent` are those who were waited for in vain. A paused broker follows when it goes on.
        """
        if not 0 <= body.ms <= MAX_ADVANCE_MS:
            raise Refused(f"ms: from 0 to {MAX_ADVANCE_MS}")
        missing: JsonObject = {}

        async def advance(ms: int) -> int:
            nonlocal missing
            fired, missing = await self._advance(ms)
            return fired

        if body.step_ms is None:
            fired, silent = await advance(body.ms), list[str]()
        else:
            check_step(body.ms, body.step_ms)
            fired, silent = await advance_in_steps(body.ms, body.step_ms, advance, self._heard)
        self.events.add("clock", {"advanced_ms": body.ms, "fired": fired})
        return {"fired": fired, "silent": silent, **await self.clock_state()} | missing

    async def _advance(self, ms: int) -> tuple[int, JsonObject]:
        for part in self.parts.parts.values():
            part.behind_ms += ms * part.is_paused
        if ALL not in self.parts.parts:
            await self.clock.advance(ms / 1000)
        answers = await self.parts.ask(call(BrokerControl.advance, ms), limit_s=ACT_S)
        return sum(answers.done.values()), answers.missing

    async def _heard(self) -> dict[str, int]:
        answers = await self.parts.ask(call(BrokerControl.heard))
        return {who: last for each in answers.done.values() for who, last in each.items()}

    async def freeze_clock(self) -> JsonObject:
        """Let time pass only by `advance`."""
        self.clock.freeze()
        return await self._changed_clock()

    async def resume_clock(self) -> JsonObject:
        """Let real time pass again."""
        self.clock.resume()
        return await self._changed_clock()

    async def _changed_clock(self) -> JsonObject:
        await self.state.sync()
        self.events.add("clock", {"frozen": self.clock.is_frozen})
        return await self.clock_state()

    # --- everything

    async def remember(self) -> None:
        """Have the present configs and ACLs as what `reset` stores. Raises TimeoutError, StartFailed."""
        await self._configs.remember()

    async def reset(self) -> JsonObject:
        """Let everything go on (`let_go`), start all brokers, store configs of brokers, users, quotas and ACLs as they were at the start,
        and let preferred replicas lead. Returns when the cluster is whole. Topics, groups, added brokers and the time that passed stay.
        """
        ended = await self.let_go()
        brokers = range(1, self.cluster.count + 1)
        started = [number for number in brokers if self.cluster.state_of(number) == "down"]
        for number in started:
            await self.start_broker(number)
        await self.parts.ask(call(BrokerControl.release_recovery, None, None))
        undone, last = await self._configs.undo(), await self._configs.announced()
        await until_whole(brokers, last, self._reports, self._elect_preferred)
        return ended | {"started": started, "undone": undone, "added": [*range(self._first_count + 1, self.cluster.count + 1)]}

    async def _reports(self) -> dict[int, Report]:
        running = [number for number in range(1, self.cluster.count + 1) if self.cluster.state_of(number) == "running"]
        answers = await self.parts.ask(call(BrokerControl.reports, running))
        return {broker: each for rows in answers.done.values() for broker, each in rows.items()}

    async def _elect_preferred(self, controller: int, partitions: Sequence[TopicPartition]) -> None:
        try:
            await self.parts.one(controller, call(BrokerControl.elect, controller, list(partitions)))
        except Refused:
            return  # it is tried again

    async def configs_processed(self, *, timeout_ms: int = 30_000) -> JsonObject:
        """Wait until all running brokers have processed the changes of configs, users, quotas and ACLs that ZooKeeper has now."""
        check_timeout(timeout_ms)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                last = await self._configs.announced()
                while not all(has_processed(each, last) for each in (await self._reports()).values()):  # noqa: ASYNC110 no one event says it
                    await asyncio.sleep(LOOK_S)
        except TimeoutError:
            what = "all brokers have processed the last changes of configs, users, quotas and ACLs"
            raise Refused(f"not within {timeout_ms} ms: {what}", 408) from None
        return {}

    async def let_go(self) -> JsonObject:
        """Remove all faults and holds, end pauses, let brokers reach ZooKeeper, let the clock run."""
        counts = {"faults": len(self.state.faults), "holds": len(self.state.holds)}
        await self.state.look_at_faults()
        self.state.faults.clear()
        while self.state.holds:
            self.state.holds.popitem()[1].end()
        self.clock.resume()
        for number in range(1, self.cluster.count + 1):
            if self.cluster.state_of(number) == "paused":
                await self.resume_broker(number)
        answers = await self.parts.ask(call(BrokerControl.let_go))
        await self.state.sync()
        return counts | answers.missing

    def end(self) -> None:
        """The control API ends: no broker is paused any more."""
        for number in range(1, self.cluster.count + 1):
            if self.cluster.state_of(number) == "paused":
                self.cluster.go_on(number)
