"""The verbs of `Control` for a cluster whose brokers are in processes of their own.

Each process serves the control API of its broker (`owned_broker.py`). Here are the ids of holds and faults and the clock; each
broker is sent the whole state whenever it changes, and to begin with. Brokers tell by events what they reach. Everything else is asked for
when somebody asks, of all brokers at once. A broker that does not respond in time is named in `missing`; what it showed last stays.

The verbs have the same arguments, values and errors as those of `Control`.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import msgspec

from klamm.control import conditions, views
from klamm.control.bodies import (
    AdvanceBody,
    BrokerBody,
    FailBody,
    FaultBody,
    HoldBody,
    LinkBody,
    MoveBody,
    RecoveryBody,
    ZooKeeperDelayBody,
    fault_of,
    faults_of_link,
)
from klamm.control.conditions import condition_of
from klamm.control.event_log import REQUESTS
from klamm.control.heartbeats import advance_in_steps, check_step
from klamm.control.holds import MAX_HOLDS, check_brokers, failure_of, hold_of
from klamm.control.json_object import JsonObject
from klamm.control.model import MAX_ADVANCE_MS, MAX_WAIT_MS
from klamm.control.processes.broker_processes import ACT_S, READ_S, BrokerProcesses, SteeredProcess
from klamm.control.processes.process_history import ProcessHistory
from klamm.control.processes.process_steps import ProcessSteps
from klamm.control.processes.process_topics import ProcessTopics
from klamm.control.processes.shares import FaultShares, HoldShares
from klamm.control.refusal import Refused
from klamm.control.seen_changes import SeenRows
from klamm.control.wholeness import Report, until_whole
from klamm.protocol.nouns import TopicPartition
from klamm.seams.steering import Steering
from klamm.server.faults.fault import MAX_FAULTS, Fault
from klamm.server.local.changed_configs import ChangedConfigs
from klamm.server.local.own_zookeeper import session_at
from klamm.server.local.process_cluster import BrokerProcess, ProcessCluster
from klamm.server.local.steered_clock import SteeredClock
from klamm.server.phases import phase_table

log = logging.getLogger(__name__)

POLL_MS = 20_000
LET_GO_S = 1.0
"""How long a cluster that ends tries to let go on what is held."""
LOOK_S = 0.02
T = TypeVar("T")
Share = TypeVar("Share", HoldShares, FaultShares)


class ProcessControl:
    """Steers the processes of one cluster."""

    def __init__(self, cluster: ProcessCluster) -> None:
        self.cluster = cluster
        self._processes = BrokerProcesses(cluster, self._forget)
        self.events = self._processes.events
        self._steps = ProcessSteps(self._processes, self.sync, self._check_conditions)
        self._clock = SteeredClock()
        self._holds: dict[int, HoldShares] = {}
        self._faults: dict[int, FaultShares] = {}
        self._hold_numbers = itertools.count(1)
        self._fault_numbers = itertools.count(1)
        self._version = 0
        self._tokens: dict[int, str] = {}
        self._rows = SeenRows()
        self._acting: set[int] = set()
        """Faults whose conditions held when all brokers got the last state."""
        self._checking = asyncio.Lock()
        self._crashes = 0
        self._first_count = cluster.count
        self._configs = ChangedConfigs(lambda: session_at(cluster.zookeeper))
        self.history = ProcessHistory(self._processes)
        self.requests, self.exchanges = self.history.requests, self.history.exchanges
        steps, shown = self._steps, ProcessTopics(self._processes, self._steps)
        self.add_broker = steps.add_broker
        self.stop_broker, self.kill_broker, self.start_broker = steps.stop_broker, steps.kill_broker, steps.start_broker
        self.restart_broker, self.pause_broker, self.resume_broker = steps.restart_broker, steps.pause_broker, steps.resume_broker
        self.brokers, self.broker = self._processes.brokers, self._processes.broker
        self.controller_id, self.controllers = self._processes.controller_id, self._processes.controllers
        self.topics, self.topic, self.replicas = shown.topics, shown.topic, shown.replicas
        self.create_topic, self.add_partitions, self.delete_topic = shown.create_topic, shown.add_partitions, shown.delete_topic
        self.groups, self.group, self.transactions = shown.groups, shown.group, shown.transactions
        self.expire_members, self.rebalance = shown.expire_members, shown.rebalance
        self.transaction, self.expire_transaction = shown.transaction, shown.expire_transaction
        self.ended = self._processes.ended
        """Called when a process has ended."""

    # --- processes

    def first_line(self, broker: int) -> JsonObject:
        """What a process is told of its control API when it starts (`OwnedBroker`)."""
        self._tokens[broker] = secrets.token_urlsafe(24)
        clock = self._clock
        return {
            "token": self._tokens[broker], "offset_ms": clock.offset_ms,
            "now_ms": clock.now_ms() if clock.is_frozen else None, "state": self._state(broker),
        }  # fmt: skip

    def heard(self, process: BrokerProcess, report: JsonObject) -> None:
        """A process wrote a line: the address of its control API, or that its broker is killed at a phase."""
        broker = process.broker_id
        if "control" in report:
            part = self._processes.add(process, report["control"], self._tokens[broker])
            self._processes.spawn(self._read_events(broker, part))
        if "crashed" in report:
            self._processes.killed.add(broker)
            process.is_ending = True
            self.events.add("crashed", {"broker": broker, "phase": report["phase"]})
            hold = self._holds.get(report["crashed"])
            if hold is not None:
                hold.seen[broker] = {"hits": report["hits"], "held": []}
            self._processes.ended(process)
            self._processes.spawn(self._after_crash(process))

    async def _after_crash(self, process: BrokerProcess) -> None:
        """Let the others know what the hold took before one of them is controller: it could reach the same phase."""
        self._crashes += 1
        try:
            await self.sync()
            await self._steps.bury(process)
        finally:
            self._crashes -= 1

    @property
    def is_crashing(self) -> bool:
        """Whether a broker that reached a phase of a hold with `crash` is being killed."""
        return bool(self._crashes)

    def _forget(self, broker: int, part: SteeredProcess) -> None:
        self.history.ended(part)
        for hold in self._holds.values():
            hold.ended(broker)
        for fault in self._faults.values():
            fault.ended(broker)
        self._processes.spawn(self._check_conditions())

    def end(self) -> None:
        """The control API ends: no process is paused any more."""
        for part in self._processes.parts.values():
            self._steps.resume(part)

    async def let_go(self) -> None:
        """The cluster ends: remove holds and faults, since what is held cannot stop. The log has a line for each phase that is held."""
        if not self._holds and not self._faults:
            return
        with suppress(TimeoutError, Refused):
            async with asyncio.timeout(LET_GO_S):
                for hold in await self.held():
                    for at in hold["held"]:
                        log.warning("broker %d is held at %s until now; it goes on, since the cluster ends", at["broker"], hold["phase"])
                await self._release_all()

    async def close(self) -> None:
        """End all that is under way here."""
        await self._processes.close()

    async def _read_events(self, broker: int, part: SteeredProcess) -> None:
        async for kind, data in part.client.events():
            if self._processes.parts.get(broker) is not part:
                return  # it has ended, and what it took is counted
            try:
                self._take_event(broker, part, kind, data)
            except Exception:  # the next event counts nevertheless
                log.exception("an event %r of broker %d cannot be processed", kind, broker)

    def _take_event(self, broker: int, part: SteeredProcess, kind: str, data: Any) -> None:
        """A broker tells that something happened."""
        match kind:
            case "reached" if data["id"] in self._holds:
                hold = self._holds[data["id"]]
                hold.seen[broker] = data
                self.events.add("reached", hold.as_json())
                self._processes.spawn(self._check_conditions() if hold.count is None else self.sync())
            case "hit" if data["id"] in self._faults:
                fault = self._faults[data["id"]]
                fault.seen.setdefault(broker, {"matches": 0, "last": []})["hits"] = data["hits"]
                self._processes.spawn(self.sync())
            case kind if kind == REQUESTS:
                part.total = data["total"]
                self.events.add(REQUESTS, {"total": self.history.total})
            case "change":
                news = self._rows.new(data)
                if news is not None:
                    self.events.add(kind, news)
            case "expired" | "zookeeper" | "coordinator":
                self.events.add(kind, data)

    async def sync(self, only: Iterable[int] | None = None) -> None:
        """Let all brokers have the holds and faults of now. A paused one gets them when it goes on."""
        brokers = list(self._processes.parts) if only is None else only
        acting = self._acting_now()
        await asyncio.gather(*(self._processes.ask("PUT", "/own/state", self._state(broker), only=(broker,)) for broker in brokers))
        if only is None:
            self._acting = acting

    def _state(self, broker: int) -> JsonObject:
        self._version += 1
        acting = self._acting_now()
        faults = [share for each in self._faults.values() if (share := each.share(broker, each.number in acting)) is not None]
        holds = [each.share(broker) for each in self._holds.values()]
        return {
            "version": self._version, "brokers": self.cluster.count, "holds": holds, "faults": faults, "frozen": self._clock.is_frozen,
            "is_kept_from_elections": broker in self._steps.kept_from_elections,
        }  # fmt: skip

    # --- conditions of faults

    async def _check_conditions(self) -> None:
        """Something that conditions are about has changed: let all brokers know which faults act."""
        async with self._checking:
            if self._acting_now() != self._acting:
                await self.sync()

    def _acting_now(self) -> set[int]:
        bodies = {number: each.body.filter.while_ for number, each in self._faults.items()}
        return {number for number, body in bodies.items() if body is None or conditions.holds(body, self)}

    def hold_phase(self, number: int) -> tuple[str, str] | None:
        """The phase of a hold and its state, as it was seen last; None if there is no such hold."""
        hold = self._holds.get(number)
        return None if hold is None else (hold.body.phase, hold.state)

    def held_phases(self) -> set[str]:
        """The phases that are held, as it was seen last."""
        return {hold.body.phase for hold in self._holds.values() if hold.state == "reached"}

    def fault_is_spent(self, number: int) -> bool | None:
        """Whether a fault hits nothing any more; None if there is no such fault."""
        return self._faults[number].is_spent if number in self._faults else None

    def broker_state(self, number: int) -> str:
        """`running`, `paused` or `down`."""
        part = self._processes.parts.get(number)
        return "down" if part is None else "paused" if part.is_paused else "running"

    def is_controller(self, number: int) -> bool:
        """Unused here: each broker decides by its own metadata."""
        return True

    async def _until(
        self, look: Callable[[], Awaitable[T | None]], path: str, query: Callable[[int], JsonObject], timeout_ms: int,
        what: Callable[[], str],
    ) -> T:
        """Wait until `look` gives something; look again when a broker answers the long poll, or starts or ends."""
        if not 0 <= timeout_ms <= MAX_WAIT_MS:
            raise Refused(f"timeout_ms: from 0 to {MAX_WAIT_MS}")
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while (seen := await look()) is None:
                    await self._poll(path, query)
                return seen
        except TimeoutError:
            raise Refused(f"not within {timeout_ms} ms: {what()}", 408) from None

    async def _poll(self, path: str, query: Callable[[int], JsonObject]) -> None:
        work: list[asyncio.Future[Any]] = [asyncio.ensure_future(self._processes.changed.wait())]
        for broker, part in self._processes.parts.items():
            if not part.is_paused:
                asked = query(broker) | {"timeout_ms": POLL_MS}
                work.append(asyncio.ensure_future(part.client.call("GET", path, query=asked, limit_s=POLL_MS / 1000 + READ_S)))
        try:
            done, _ = await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
            if all(task.exception() is not None for task in done):
                await asyncio.sleep(LOOK_S)
        finally:
            for task in work:
                task.cancel()
            await asyncio.gather(*work, return_exceptions=True)

    # --- phases and holds

    def phases(self) -> JsonObject:
        """All phases with their fields."""
        return {"phases": [row._asdict() for row in phase_table()]}

    async def hold(self, body: HoldBody) -> JsonObject:
        """Hold phases of all brokers from now on."""
        check_brokers(body, self.cluster.count)
        if len(self._holds) >= MAX_HOLDS:
            raise Refused(f"there are {MAX_HOLDS} holds already; delete some")
        hold_of(body, Steering())
        for other in self._holds.values():
            if other.state != "released" and (other.body.phase, other.body.where) == (body.phase, body.where):
                raise Refused(f"hold {other.number} holds {body.phase} with the same fields already", 409)
        hold = HoldShares(next(self._hold_numbers), body)
        self._holds[hold.number] = hold
        await self.sync()
        self.events.add("hold", hold.as_json())
        return {"id": hold.number}

    async def holds(self) -> JsonObject:
        """All holds."""
        missing = await self._look_at_holds()
        return {"holds": [hold.as_json() for hold in self._holds.values()]} | missing

    async def hold_state(self, number: int, wait: str | None = None, timeout_ms: int = 30_000) -> JsonObject:
        """A hold. `wait=reached` waits until it holds something."""
        hold = self._hold(number)
        if wait is None:
            return await self._shown_hold(hold)
        if wait != "reached":
            raise Refused(f"wait={wait}: a hold can be waited for with wait=reached")

        async def reached() -> JsonObject | None:
            shown = await self._shown_hold(hold)
            return shown if hold.state == "reached" else None

        return await self._until(
            reached, f"/holds/{number}", lambda _: {"wait": "reached"}, timeout_ms,
            lambda: f"hold {number} of {hold.body.phase} is {hold.state}",
        )  # fmt: skip

    async def release(self, number: int) -> JsonObject:
        """End a hold: everything that it holds goes on."""
        hold = self._hold(number)
        hold.released = True
        await self.sync()
        shown = await self._shown_hold(hold)
        self.events.add("released", shown)
        return shown

    async def step(self, number: int) -> JsonObject:
        """Let the first that is held go on: that of the lowest broker id."""
        return await self._act(number, "step")

    async def fail(self, number: int, body: FailBody) -> JsonObject:
        """Let the event of the first that is held fail."""
        failure_of(body)
        return await self._act(number, "fail", {"error": body.error, "message": body.message})

    async def crash(self, number: int) -> JsonObject:
        """Kill the broker that is held first, as it stands there."""
        hold, broker = await self._first_held(number)
        await self._steps.crash(broker)
        self.events.add("crashed", {"broker": broker, "hold": number})
        return {"broker": broker, **hold.as_json()}

    async def delete_holds(self, number: int | None = None) -> JsonObject:
        """End one hold or all, and forget them."""
        numbers = list(self._holds) if number is None else [self._hold(number).number]
        for each in numbers:
            self._holds.pop(each).end()
        await self.sync()
        return {"deleted": len(numbers)}

    async def hold_share(self, number: int) -> HoldShares:
        """A hold, as brokers show it now. It is kept up to date whenever somebody looks, until it is deleted."""
        await self._look_at_holds()
        return self._hold(number)

    async def fault_share(self, number: int) -> FaultShares:
        """A fault, likewise."""
        await self._look_at_faults()
        return self._fault(number)

    def _hold(self, number: int) -> HoldShares:
        if number not in self._holds:
            raise Refused(f"there is no hold {number}", 404)
        return self._holds[number]

    async def held(self) -> list[JsonObject]:
        """The holds that hold something."""
        await self._look_at_holds()
        return [hold.as_json() for hold in self._holds.values() if hold.state == "reached"]

    async def _look_at_holds(self) -> JsonObject:
        return await self._look_at("holds", self._holds, lambda hold: hold.left)

    async def _look_at(self, what: str, shares: Mapping[int, Share], limit: Callable[[Share], int | None]) -> JsonObject:
        """What brokers show of the holds or faults now; returns the brokers that did not respond. If a `limit` has moved, brokers get new
        shares.
        """
        before = {number: limit(share) for number, share in shares.items()}
        answers, missing = await self._processes.ask("GET", f"/{what}")
        for broker, answer in answers.items():
            for shown in [] if isinstance(answer, Refused) else answer[what]:
                if shown["id"] in shares:
                    shares[shown["id"]].seen[broker] = shown
        if any(number in shares and limit(shares[number]) != former for number, former in before.items()):
            await self.sync()
        await self._check_conditions()
        return missing

    async def _shown_hold(self, hold: HoldShares) -> JsonObject:
        missing = await self._look_at_holds()
        return hold.as_json() | missing

    async def _first_held(self, number: int) -> tuple[HoldShares, int]:
        hold = self._hold(number)
        shown = await self._shown_hold(hold)
        if shown["at"] is None:
            raise Refused(f"hold {number} is {hold.state}: it holds nothing", 409)
        return hold, shown["at"]["broker"]

    async def _act(self, number: int, verb: str, body: object = None) -> JsonObject:
        hold, broker = await self._first_held(number)
        hold.seen[broker] = await self._processes.ask_one(broker, "POST", f"/holds/{number}/{verb}", body)
        await self._check_conditions()
        return hold.as_json()

    # --- faults

    async def add_fault(self, body: FaultBody) -> JsonObject:
        """A new fault, at all brokers that it is about."""
        if len(self._faults) >= MAX_FAULTS:
            raise Refused(f"there are {MAX_FAULTS} faults already; remove some")
        parts = fault_of(body, [*range(1, self.cluster.count + 1)])
        if body.filter.while_ is not None:
            await self._look_at_holds()
            conditions.check(body.filter, self, range(1, self.cluster.count + 1))
        condition = None if body.filter.while_ is None else condition_of(body.filter.while_, lambda: True)
        number = next(self._fault_numbers)
        fault = self._faults[number] = FaultShares(number, body, views.fault(Fault(number, *parts, condition)))
        await self.sync()
        self.events.add("fault", fault.as_json())
        return {"id": number}

    async def faults(self) -> JsonObject:
        """All faults."""
        missing = await self._look_at_faults()
        return {"faults": [fault.as_json() for fault in self._faults.values()]} | missing

    async def fault(self, number: int, hits: int | None = None, timeout_ms: int = 30_000) -> JsonObject:
        """A fault with its hits. With `hits` it is waited for until it has this number of them."""
        fault = self._fault(number)

        async def reached() -> JsonObject | None:
            missing = await self._look_at_faults()
            enough = hits is None or fault.hits >= hits or number not in self._faults
            return fault.as_json() | missing if enough else None

        return await self._until(
            reached, f"/faults/{number}", lambda broker: {"hits": fault.seen.get(broker, {}).get("hits", 0) + 1}, timeout_ms,
            lambda: f"fault {number} has {fault.hits} of {hits} hits",
        )  # fmt: skip

    async def delete_faults(self, number: int | None = None) -> JsonObject:
        """Remove one fault or all."""
        faults = list(self._faults.values()) if number is None else [self._fault(number)]
        await self._look_at_faults()
        for fault in faults:
            self._faults.pop(fault.number, None)
        await self.sync()
        return {"deleted": len(faults), "faults": [fault.as_json() for fault in faults]}

    async def add_link(self, body: LinkBody) -> JsonObject:
        """Faults on the requests that one broker sends to another, in one direction or in both."""
        return {"faults": [(await self.add_fault(fault))["id"] for fault in faults_of_link(body)]}

    def _fault(self, number: int) -> FaultShares:
        if number not in self._faults:
            raise Refused(f"there is no fault {number}", 404)
        return self._faults[number]

    async def _look_at_faults(self) -> JsonObject:
        return await self._look_at("faults", self._faults, lambda fault: None if fault.body.first is None else fault.hits)

    # --- brokers and the controller

    async def move_controller(self, body: MoveBody) -> JsonObject:
        """Make a broker the controller."""
        await self._steps.move_controller(body.to)
        shown = await self.controller()
        self.events.add("controller", shown)
        return shown

    async def resign_controller(self) -> JsonObject:
        """Make the controller resign; any broker can become the next one."""
        if (await self.controller())["id"] < 0:
            raise Refused("there is no controller", 409)
        return await self.move_controller(MoveBody())

    async def controller(self) -> JsonObject:
        """The active controller, among the brokers that respond."""
        answers, missing = await self._processes.ask("GET", "/controller")
        active = [each for each in answers.values() if not isinstance(each, Refused) and each["id"] >= 0]
        shown = max(active, key=lambda each: int(each["epoch"]), default={"id": -1, "epoch": None, "queue": 0, "event": None})
        return shown | {"held": await self.held()} | missing

    async def expire_session(self, body: BrokerBody) -> JsonObject:
        """End the ZooKeeper session of a broker, as ZooKeeper does when it hears nothing for too long."""
        return await self._of_broker(body.broker, "/zookeeper/expire", {"broker": body.broker})

    async def cut_zookeeper(self, body: BrokerBody) -> JsonObject:
        """Let a broker lose its connection to ZooKeeper, and get no other until it is restored."""
        return await self._of_broker(body.broker, "/zookeeper/cut", {"broker": body.broker})

    async def restore_zookeeper(self, body: BrokerBody) -> JsonObject:
        """Let a broker connect to ZooKeeper again."""
        return await self._of_broker(body.broker, "/zookeeper/restore", {"broker": body.broker})

    async def delay_zookeeper(self, body: ZooKeeperDelayBody) -> JsonObject:
        """Let each request of a broker to ZooKeeper wait before it is sent."""
        return await self._of_broker(body.broker, "/zookeeper/delay", {"broker": body.broker, "ms": body.ms})

    async def _of_broker(self, broker: int, path: str, body: JsonObject) -> JsonObject:
        answer: JsonObject = await self._processes.ask_one(broker, "POST", path, body)
        return answer

    # --- the clock

    def clock_state(self) -> JsonObject:
        """The time of the brokers."""
        clock = self._clock
        return {"now_ms": clock.now_ms(), "frozen": clock.is_frozen, "offset_ms": clock.offset_ms}

    async def advance_clock(self, body: AdvanceBody) -> JsonObject:
        """As `Control.advance_clock`, at all brokers. A paused one follows when it goes on."""
        if not 0 <= body.ms <= MAX_ADVANCE_MS:
            raise Refused(f"ms: from 0 to {MAX_ADVANCE_MS}")
        if body.step_ms is None:
            fired, missing = await self._advance(body.ms)
            return {"fired": fired, "silent": [], **self.clock_state()} | missing
        check_step(body.ms, body.step_ms)
        missing = {}

        async def advance(ms: int) -> int:
            nonlocal missing
            fired, missing = await self._advance(ms)
            return fired

        fired, silent = await advance_in_steps(body.ms, body.step_ms, advance, self._heard)
        return {"fired": fired, "silent": silent, **self.clock_state()} | missing

    async def _advance(self, ms: int) -> tuple[int, JsonObject]:
        for part in self._processes.parts.values():
            part.behind_ms += ms * part.is_paused
        await self._clock.advance(ms / 1000)
        answers, missing = await self._processes.ask("POST", "/clock/advance", {"ms": ms}, limit_s=ACT_S)
        return sum(answer["fired"] for answer in answers.values() if not isinstance(answer, Refused)), missing

    async def _heard(self) -> dict[str, int]:
        answers, _ = await self._processes.ask("GET", "/own/heard")
        return {who: last for answer in answers.values() if not isinstance(answer, Refused) for who, last in answer.items()}

    async def freeze_clock(self) -> JsonObject:
        """Let time pass only by `advance`."""
        self._clock.freeze()
        await self.sync()
        return self.clock_state()

    async def resume_clock(self) -> JsonObject:
        """Let real time pass again."""
        self._clock.resume()
        await self.sync()
        return self.clock_state()

    # --- everything

    async def remember(self) -> None:
        """Have the present configs and ACLs as what `reset` stores. Raises TimeoutError, StartFailed."""
        await self._configs.remember()

    async def reset(self) -> JsonObject:
        """As `Control.reset`. A broker that does not respond is waited for."""
        ended = await self._release_all()
        started = [each.broker_id for each in self.cluster.processes if not each.runs]
        for number in started:
            await self._steps.start_broker(number)
        await self._processes.ask("POST", "/recovering/release", {})
        undone, last = await self._configs.undo(), await self._configs.announced()
        brokers = [each.broker_id for each in self.cluster.processes]
        await until_whole(brokers, last, partial(self._reports, brokers), self._elect_preferred)
        return ended | {"started": started, "undone": undone, "added": [*range(self._first_count + 1, self.cluster.count + 1)]}

    async def _reports(self, brokers: Sequence[int]) -> dict[int, Report]:
        answers, _ = await self._processes.ask("GET", "/own/report", query={"brokers": ",".join(map(str, brokers))})
        shown = {broker: answer for broker, answer in answers.items() if not isinstance(answer, Refused)}
        return {broker: msgspec.convert(answer, Report, str_keys=True) for broker, answer in shown.items()}

    async def _elect_preferred(self, controller: int, partitions: Sequence[TopicPartition]) -> None:
        with suppress(Refused):
            await self._processes.ask_one(controller, "POST", "/own/elect", {"partitions": list(map(list, partitions))})

    async def configs_processed(self, timeout_ms: int = 30_000) -> JsonObject:
        """Wait until all brokers that respond have processed the changes of configs, users, quotas and ACLs that ZooKeeper has now."""
        if not 0 <= timeout_ms <= MAX_WAIT_MS:
            raise Refused(f"timeout_ms: from 0 to {MAX_WAIT_MS}")
        limit_s = timeout_ms / 1000 + READ_S
        answers, missing = await self._processes.ask("GET", "/configs/processed", query={"timeout_ms": timeout_ms}, limit_s=limit_s)
        for answer in answers.values():
            if isinstance(answer, Refused):
                raise answer
        return missing

    async def recovering(self) -> JsonObject:
        """The leaders that wait to be released, with `kip704.recovery.mode=manual` (KIP-704)."""
        answers, missing = await self._processes.ask("GET", "/recovering")
        return {"recovering": [row for each in answers.values() if isinstance(each, dict) for row in each["recovering"]]} | missing

    async def release_recovery(self, body: RecoveryBody) -> JsonObject:
        """Let leaders that wait in recovery go on."""
        asked = {"topic": body.topic, "partition": body.partition}
        answers, missing = await self._processes.ask("POST", "/recovering/release", asked, limit_s=ACT_S)
        for answer in answers.values():
            if isinstance(answer, Refused):
                raise answer
        return {"released": [row for each in answers.values() for row in each["released"]]} | missing

    async def _release_all(self) -> JsonObject:
        """Remove all faults and holds, end pauses, let brokers reach ZooKeeper, let the clock run."""
        counts = {"faults": len(self._faults), "holds": len(self._holds)}
        self._faults.clear()
        while self._holds:
            self._holds.popitem()[1].end()
        self._clock.resume()
        for number, part in list(self._processes.parts.items()):
            if part.is_paused:
                await self._steps.resume_broker(number)
        _, missing = await self._processes.ask("POST", "/own/let-go")
        await self.sync()
        return counts | missing

