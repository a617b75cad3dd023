"""The verbs by which a local cluster is steered and looked at. Values are plain and can be written as JSON.

`Control` is the one model behind the HTTP interface (`control/routes.py`), the command line and `klamm.testing`. It belongs to brokers that
run in this process; its methods run on their event loop. A wrong argument raises Refused. Its verbs about topics are in `topics.py`, those
about groups and transactions in `coordinators.py`. `ProcessControl` has the same verbs for brokers in processes of their own, each of which
has a `Control`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import islice
from typing import Any, TypeVar

from klamm.control import conditions, history, views
from klamm.control.bodies import (
    AdvanceBody,
    BrokerBody,
    FailBody,
    FaultBody,
    HoldBody,
    KillBody,
    LinkBody,
    MoveBody,
    NewBrokerBody,
    RecoveryBody,
    StopBody,
    ZooKeeperDelayBody,
    checked_filter,
    fault_of,
    faults_of_link,
)
from klamm.control.brokers import Brokers
from klamm.control.conditions import condition_of
from klamm.control.coordinators import Coordinators
from klamm.control.event_log import COORDINATOR, REQUESTS, EventLog
from klamm.control.heartbeats import advance_in_steps, check_step, heard_by
from klamm.control.history import History
from klamm.control.holds import MAX_HOLDS, Held, check_brokers, failure_of, hold_of
from klamm.control.json_object import JsonObject
from klamm.control.refusal import Refused
from klamm.control.seen_changes import SeenChanges
from klamm.control.topics import Topics
from klamm.control.wholeness import WholeCluster
from klamm.controller.changes import Change
from klamm.seams.clock import SYSTEM_CLOCK
from klamm.seams.steering import HeldPhase
from klamm.server.broker_server import BrokerServer
from klamm.server.faults.fault import Condition, Fault
from klamm.server.local.steered_clock import SteeredClock
from klamm.server.phases import phase_table

__tracebackhide__ = True  # pytest leaves out the lines of this module

MAX_WAIT_MS = 600_000
MAX_LISTED = 1000
ANNOUNCE_S = 0.2
MAX_ZOOKEEPER_DELAY_MS = 60_000
MAX_ADVANCE_MS = 366 * 86_400_000
T = TypeVar("T")


class Control:
    """Steers the brokers of one process."""

    def __init__(self, cluster: Brokers, kept: History, clock: SteeredClock | None = None) -> None:
        """`kept` has the requests of the cluster, `clock` the clock of its brokers, if it can be moved."""
        self.cluster = cluster
        self.history = kept
        self.clock = clock
        kept.topic_id = self._topic_id
        kept.on_chunk = self._heard
        self._announces = False
        self.events = EventLog()
        self._seen = SeenChanges()
        self._holds: dict[int, Held] = {}
        self._paused: set[int] = set()
        self._killed: set[int] = set()
        self._crashes: set[asyncio.Future[None]] = set()
        self._cut: set[int] = set()
        self._first_count = cluster.count
        self.whole = WholeCluster(cluster, self.serving)
        topics, coordinators = Topics(cluster, self.events, self.serving), Coordinators(cluster)
        self.topics, self.topic = topics.topics, topics.topic
        self.create_topic, self.add_partitions, self.delete_topic = topics.create_topic, topics.add_partitions, topics.delete_topic
        self.groups, self.group = coordinators.groups, coordinators.group
        self.expire_members, self.rebalance = coordinators.expire_members, coordinators.rebalance
        self.transactions, self.transaction = coordinators.transactions, coordinators.transaction
        self.expire_transaction = coordinators.expire_transaction

    # --- phases and holds

    def phases(self) -> JsonObject:
        """All phases with their fields."""
        return {"phases": [row._asdict() for row in phase_table()]}

    def hold(self, body: HoldBody) -> JsonObject:
        """Hold phases from now on."""
        check_brokers(body, self.cluster.count)
        if len(self._holds) >= MAX_HOLDS:
            raise Refused(f"there are {MAX_HOLDS} holds already; delete some")
        for other in self._holds.values():
            if other.state != "released" and (other.body.phase, other.body.where) == (body.phase, body.where):
                raise Refused(f"hold {other.number} holds {body.phase} with the same fields already", 409)
        held = self.add_hold(body)
        self.events.add("hold", held.as_json())
        return {"id": held.number}

    def add_hold(self, body: HoldBody, number: int | None = None) -> Held:
        """A new hold, with the next number unless one is given. Raises Refused."""
        held = Held(body, hold_of(body, self.cluster.steering, self._arrived), number)
        self._holds[held.number] = held
        return held

    def holds(self) -> JsonObject:
        """All holds."""
        return {"holds": [held.as_json() for held in self._holds.values()]}

    async def hold_state(self, number: int, wait: str | None = None, timeout_ms: int = 30_000) -> JsonObject:
        """A hold. `wait=reached` waits until it holds something."""
        held = self.held(number)
        if wait is not None:
            if wait != "reached":
                raise Refused(f"wait={wait}: a hold can be waited for with wait=reached")
            await self._wait(held.hold.reached(), timeout_ms, lambda: f"hold {number} of {held.body.phase} is {held.state}")
        return held.as_json()

    def release(self, number: int) -> JsonObject:
        """End a hold: everything that it holds goes on."""
        held = self.held(number)
        held.release()
        self.events.add("released", held.as_json())
        return held.as_json()

    def step(self, number: int) -> JsonObject:
        """Let the first that is held go on; the hold stays."""
        held = self._reached(number)
        held.hold.step()
        return held.as_json()

    def fail(self, number: int, body: FailBody) -> JsonObject:
        """Let the event of the first that is held fail."""
        held = self._reached(number)
        error = failure_of(body)
        try:
            held.hold.fail(error)
        except ValueError as problem:
            raise Refused(f"{problem}; release it, or crash its broker", 409) from None
        return held.as_json()

    async def crash(self, number: int) -> JsonObject:
        """Kill the broker that is held first, as it stands there."""
        held = self._reached(number)
        broker_id = held.hold.held_phases[0].broker_id
        self._go_on(broker_id)
        self._killed.add(broker_id)
        await self.cluster.crash_broker(broker_id, expire=True)
        self.events.add("crashed", {"broker": broker_id, "hold": number})
        return {"broker": broker_id, **held.as_json()}

    def _arrived(self, at: HeldPhase[Any]) -> None:
        """A phase is held."""
        held = next((each for each in self._holds.values() if each.hold is at.hold), None)
        if held is None:
            return
        self.events.add("reached", held.as_json())
        if held.body.crash:
            self._crash_held(held.number, at)
        elif held.body.fail is not None:
            at.fail(failure_of(FailBody(error=held.body.fail)))
        elif held.body.delay_ms is not None:
            clock = SYSTEM_CLOCK if self.clock is None else self.clock
            clock.call_later(held.body.delay_ms / 1000, at.step)

    def _crash_held(self, number: int, at: HeldPhase[Any]) -> None:
        """Kill the broker that reached a phase. Every event of the loop that comes later finds it dead."""
        work = asyncio.ensure_future(self._crash_broker(at.broker_id, type(at.phase).__name__))
        self._crashes.add(work)
        work.add_done_callback(self._crashes.discard)

    async def _crash_broker(self, broker_id: int, phase: str) -> None:
        self._go_on(broker_id)
        self._killed.add(broker_id)
        self.events.add("crashed", {"broker": broker_id, "phase": phase})
        await self.cluster.crash_broker(broker_id, expire=True)

    def delete_holds(self, number: int | None = None) -> JsonObject:
        """End one hold or all, and forget them."""
        numbers = list(self._holds) if number is None else [self.held(number).number]
        for each in numbers:
            self._holds.pop(each).release()
        return {"deleted": len(numbers)}

    def held(self, number: int) -> Held:
        """The hold with this number. Raises Refused."""
        if number not in self._holds:
            raise Refused(f"there is no hold {number}", 404)
        return self._holds[number]

    def _reached(self, number: int) -> Held:
        held = self.held(number)
        if held.state != "reached":
            raise Refused(f"hold {number} is {held.state}: it holds nothing", 409)
        return held

    # --- faults

    def add_fault(self, body: FaultBody, number: int | None = None) -> JsonObject:
        """A new fault, with the next number unless one is given."""
        wanted, effect, limits = fault_of(body, [*range(1, self.cluster.count + 1)])
        try:
            fault = self.cluster.faults.add(wanted, effect, limits, number, self._condition_of(body, number))
        except ValueError as error:
            raise Refused(str(error)) from None
        self.events.add("fault", views.fault(fault))
        return {"id": fault.number}

    def _condition_of(self, body: FaultBody, number: int | None) -> Condition | None:
        """The condition of a fault. Raises Refused."""
        condition = body.filter.while_
        if condition is None:
            return None
        conditions.check(body.filter, self, range(1, self.cluster.count + 1))
        return condition_of(condition, lambda: conditions.holds(condition, self))

    def hold_phase(self, number: int) -> tuple[str, str] | None:
        """The phase of a hold and its state; None if there is no such hold."""
        held = self._holds.get(number)
        return None if held is None else (held.body.phase, held.state)

    def held_phases(self) -> set[str]:
        """The phases that are held."""
        return {type(held.phase).__name__ for held in self.cluster.steering.held_phases}

    def fault_is_spent(self, number: int) -> bool | None:
        """Whether a fault hits nothing any more; None if there is no such fault."""
        return next((fault.is_spent for fault in self.cluster.faults if fault.number == number), None)

    def broker_state(self, number: int) -> str:
        """`running`, `paused` or `down`."""
        return "paused" if number in self._paused else "down" if self._find(number) is None else "running"

    def is_controller(self, number: int) -> bool:
        """Whether a broker is the controller."""
        return self.cluster.controller_id == number

    def faults(self) -> JsonObject:
        """All faults."""
        return {"faults": [views.fault(fault) for fault in self.cluster.faults]}

    async def fault(self, number: int, hits: int | None = None, timeout_ms: int = 30_000) -> JsonObject:
        """A fault with its hits. With `hits` it is waited for until it has this number of them."""
        fault = self._fault(number)
        if hits is not None:
            await self._wait(fault.reached(hits), timeout_ms, lambda: f"fault {number} has {fault.hits} of {hits} hits")
        return views.fault(fault)

    def delete_faults(self, number: int | None = None) -> JsonObject:
        """Remove one fault or all."""
        faults = list(self.cluster.faults) if number is None else [self._fault(number)]
        for fault in faults:
            self.cluster.faults.remove(fault.number)
        return {"deleted": len(faults), "faults": [views.fault(fault) for fault in faults]}

    def _fault(self, number: int) -> Fault:
        try:
            return self.cluster.faults[number]
        except KeyError:
            raise Refused(f"there is no fault {number}", 404) from None

    # --- requests

    def requests(
        self,
        *,
        api: str | None = None,
        client_id: str | None = None,
        topic: str | None = None,
        group: str | None = None,
        broker: int | None = None,
        error: str | None = None,
        clients: bool = False,
        after: int = 0,
        limit: int = 100,
        since_ms: int = 0,
    ) -> JsonObject:
        """The last requests that match, oldest first. `total` counts all requests since the start. `since_ms`: none received before.

        `error` is the name or number of an error, or `any`.
        """
        if not 1 <= limit <= MAX_LISTED:
            raise Refused(f"limit: from 1 to {MAX_LISTED}")
        wanted = checked_filter({"api": api, "broker": broker, "error": error}, range(1, self.cluster.count + 1))
        found = self.history.newest(
            client_id=client_id, topic=topic, group=group, clients_only=clients, after=after, since_ms=since_ms, **wanted
        )
        kept = list(islice(found, limit))
        return {"requests": [history.as_json(exchange) for exchange in reversed(kept)], "total": self.history.total}

    # --- brokers and the controller

    def brokers(self) -> JsonObject:
        """All brokers, those that do not run included."""
        shown = [self.broker(number) for number in range(1, self.cluster.count + 1)]
        return {"brokers": shown, "controller_id": self.cluster.controller_id}

    def broker(self, number: int) -> JsonObject:
        """A broker."""
        self._known(number)
        running = self._find(number)
        if running is None:
            return {"id": number, "state": "killed" if number in self._killed else "stopped"}
        return views.broker(running, "paused" if number in self._paused else "running")

    async def add_broker(self, body: NewBrokerBody) -> JsonObject:
        """Start one more broker, with the next id and configs of its own."""
        try:
            number = await self.cluster.add_broker(body.config)
        except ValueError as error:
            raise Refused(str(error)) from None
        return self._changed_broker(number)

    async def stop_broker(self, number: int, body: StopBody) -> JsonObject:
        """Stop a broker with a controlled shutdown."""
        self._running(number)
        self._go_on(number)
        await self.cluster.stop_broker(number, lose_log=body.lose_log)
        return self._changed_broker(number)

    async def kill_broker(self, number: int, body: KillBody) -> JsonObject:
        """End a broker as `kill -9` does."""
        self._running(number)
        self._go_on(number)
        self._killed.add(number)
        await self.cluster.kill_broker(number, expire=body.expire, lose_log=body.lose_log)
        return self._changed_broker(number)

    async def start_broker(self, number: int) -> JsonObject:
        """Start a broker that does not run."""
        self._known(number)
        if self._find(number) is not None:
            raise Refused(f"broker {number} runs already", 409)
        await self._start(number)
        return self._changed_broker(number)

    def _go_on(self, number: int) -> None:
        """End the pause of a broker that is to stop, so that it can do what this needs."""
        if number in self._paused and self._find(number) is not None:
            self.cluster.go_on(number)
        self._paused.discard(number)

    async def _start(self, number: int) -> None:
        """Start a broker: it is neither paused nor cut off, whatever its former self was."""
        self._paused.discard(number)
        self._cut.discard(number)
        await self.cluster.start_broker(number)

    async def restart_broker(self, number: int, body: StopBody) -> JsonObject:
        """Stop a broker, if it runs, and start it again."""
        self._known(number)
        if self._find(number) is not None:
            self._go_on(number)
            await self.cluster.stop_broker(number, lose_log=body.lose_log)
        await self._start(number)
        return self._changed_broker(number)

    def pause_broker(self, number: int) -> JsonObject:
        """Let a broker stand still as SIGSTOP does: it reads and sends nothing, its timers stand, its ZooKeeper session ends in time."""
        self._running(number)
        self.cluster.stand(number)
        self._paused.add(number)
        return self._changed_broker(number)

    def resume_broker(self, number: int) -> JsonObject:
        """End a pause."""
        if number not in self._paused:
            raise Refused(f"broker {number} is not paused", 409)
        self._running(number)
        self.cluster.go_on(number)
        self._paused.discard(number)
        return self._changed_broker(number)

    def controller(self) -> JsonObject:
        """The active controller."""
        running = self._find(self.cluster.controller_id)
        return views.controller(running, [held.as_json() for held in self._holds.values()])

    async def move_controller(self, body: MoveBody) -> JsonObject:
        """Make a broker the controller."""
        if body.to is not None:
            self._running(body.to)
            if body.to in self._paused:
                raise Refused(f"broker {body.to} is paused", 409)
        try:
            await self.cluster.move_controller(body.to)
        except ValueError as error:
            raise Refused(str(error), 409) from None
        self.events.add("controller", self.controller())
        return self.controller()

    async def resign_controller(self) -> JsonObject:
        """Make the controller resign; any broker can become the next one."""
        if self.cluster.controller_id < 0:
            raise Refused("there is no controller", 409)
        return await self.move_controller(MoveBody())

    async def expire_session(self, body: BrokerBody) -> JsonObject:
        """End the ZooKeeper session of a broker, as ZooKeeper does when it hears nothing for too long."""
        await self._running(body.broker).zk.expire()
        self.events.add("expired", {"broker": body.broker})
        return {"broker": body.broker}

    def cut_zookeeper(self, body: BrokerBody) -> JsonObject:
        """Let a broker lose its connection to ZooKeeper, and get no other until it is restored."""
        self._running(body.broker).zk.cut()
        self._cut.add(body.broker)
        self.events.add("zookeeper", {"broker": body.broker, "cut": True})
        return {"broker": body.broker, "cut": True}

    def restore_zookeeper(self, body: BrokerBody) -> JsonObject:
        """Let a broker connect to ZooKeeper again."""
        if body.broker not in self._cut:
            raise Refused(f"broker {body.broker} is not cut off from ZooKeeper", 409)
        self._running(body.broker).zk.restore()
        self._cut.discard(body.broker)
        self.events.add("zookeeper", {"broker": body.broker, "cut": False})
        return {"broker": body.broker, "cut": False}

    def delay_zookeeper(self, body: ZooKeeperDelayBody) -> JsonObject:
        """Let each request of a broker to ZooKeeper wait before it is sent."""
        if not 0 <= body.ms <= MAX_ZOOKEEPER_DELAY_MS:
            raise Refused(f"ms: from 0 to {MAX_ZOOKEEPER_DELAY_MS}")
        self._running(body.broker).zk.delay_s = body.ms / 1000
        self.events.add("zookeeper", {"broker": body.broker, "delay_ms": body.ms})
        return {"broker": body.broker, "delay_ms": body.ms}

    def recovering(self) -> JsonObject:
        """The leaders that wait to be released, with `kip704.recovery.mode=manual` (KIP-704)."""
        return {"recovering": [views.recovery(each) for each in self.cluster.recovering]}

    async def release_recovery(self, body: RecoveryBody) -> JsonObject:
        """Let leaders that wait in recovery go on."""
        if body.partition is not None and body.topic is None:
            raise Refused("partition: it needs its topic")
        return {"released": [views.recovery(each) for each in await self.cluster.release_recovery(body.topic, body.partition)]}

    def add_link(self, body: LinkBody) -> JsonObject:
        """Faults on the requests that one broker sends to another, in one direction or in both."""
        return {"faults": [self.add_fault(fault)["id"] for fault in faults_of_link(body)]}

    def _changed_broker(self, number: int) -> JsonObject:
        if self._find(number) is not None:
            self._killed.discard(number)
        else:
            self._paused.discard(number)
            self._cut.discard(number)
        shown = self.broker(number)
        self.events.add("broker", shown)
        return shown

    def _known(self, number: int) -> None:
        if not 1 <= number <= self.cluster.count:
            raise Refused(f"there is no broker {number}; the cluster has 1 to {self.cluster.count}", 404)

    def _find(self, number: int) -> BrokerServer | None:
        return next((broker for broker in self.cluster.brokers if broker.id == number), None)

    def _topic_id(self, name: str) -> bytes:
        return next((broker.metadata.topic_id(name) for broker in self.cluster.brokers if broker.started), bytes(16))

    def serving(self) -> list[BrokerServer]:
        """The brokers that run and are not paused."""
        return [broker for broker in self.cluster.brokers if broker.started and broker.id not in self._paused]

    def _running(self, number: int) -> BrokerServer:
        self._known(number)
        broker = self._find(number)
        if broker is None:
            raise Refused(f"broker {number} does not run", 409)
        return broker

    # --- the clock

    def clock_state(self) -> JsonObject:
        """The time of the brokers."""
        clock = self._clock()
        return {"now_ms": clock.now_ms(), "frozen": clock.is_frozen, "offset_ms": clock.offset_ms}

    async def advance_clock(self, body: AdvanceBody) -> JsonObject:
        """Let time pass at once, with all timers of brokers, controllers and coordinators; with `step_ms` in steps, between which those are
        waited for that are alive. `silent` are those who were waited for in vain.
        """
        if not 0 <= body.ms <= MAX_ADVANCE_MS:
            raise Refused(f"ms: from 0 to {MAX_ADVANCE_MS}")
        clock, silent = self._clock(), list[str]()
        if body.step_ms is None:
            fired = await clock.advance(body.ms / 1000)
        else:
            check_step(body.ms, body.step_ms)
            fired, silent = await advance_in_steps(body.ms, body.step_ms, lambda ms: clock.advance(ms / 1000), self._look_who_is_heard)
        self.events.add("clock", {"advanced_ms": body.ms, "fired": fired})
        return {"fired": fired, "silent": silent, **self.clock_state()}

    async def _look_who_is_heard(self) -> dict[str, int]:
        return self.heard()

    def heard(self) -> dict[str, int]:
        """Who has to show that it is alive (`control/heartbeats.py`), at all running brokers."""
        return {who: last for broker in self.serving() for who, last in heard_by(broker).items()}

    def freeze_clock(self) -> JsonObject:
        """Let time pass only by `advance`."""
        self._clock().freeze()
        self.events.add("clock", {"frozen": True})
        return self.clock_state()

    def resume_clock(self) -> JsonObject:
        """Let real time pass again."""
        self._clock().resume()
        self.events.add("clock", {"frozen": False})
        return self.clock_state()

    def _clock(self) -> SteeredClock:
        if self.clock is None:
            raise Refused("the clock of this cluster cannot be moved", 409)
        return self.clock

    # --- everything

    def end(self) -> None:
        """The control API ends: requests that faults delay or drop end."""
        self.cluster.faults.clear()

    async def reset(self) -> JsonObject:
        """Let everything go on (`let_go`), start all brokers, store configs of brokers, users, quotas and ACLs as they were at the start,
        and let preferred replicas lead. Returns when the cluster is whole. Topics, groups, added brokers and the time that passed stay.
        """
        ended = self.let_go()
        started = [number for number in range(1, self.cluster.count + 1) if self._find(number) is None]
        for number in started:
            await self.start_broker(number)
        await self.cluster.release_recovery()
        undone = await self.whole.restored()
        return ended | {"started": started, "undone": undone, "added": [*range(self._first_count + 1, self.cluster.count + 1)]}

    async def configs_processed(self, timeout_ms: int = 30_000) -> JsonObject:
        """Wait until all running brokers have processed the changes of configs, users, quotas and ACLs that ZooKeeper has now."""
        what = "all brokers have processed the last changes of configs, users, quotas and ACLs"
        await self._wait(self.whole.configs_processed(), timeout_ms, lambda: what)
        return {}

    def let_go(self) -> JsonObject:
        """Remove all faults and holds, end pauses, let brokers reach ZooKeeper, let the clock run."""
        faults, holds = self.delete_faults(), self.delete_holds()
        for number in list(self._paused):
            if self._find(number) is not None:
                self.resume_broker(number)
        for broker in self.cluster.brokers:
            broker.zk.restore()
            broker.zk.delay_s = 0.0
        self._cut.clear()
        if self.clock is not None:
            self.clock.resume()
        return {"faults": faults["deleted"], "holds": holds["deleted"]}

    @property
    def is_crashing(self) -> bool:
        """Whether a broker that reached a phase of a hold with `crash` is being killed."""
        return bool(self._crashes)

    def changed(self, broker_id: int, change: Change) -> None:
        """The cluster that the controller of this broker remembers changed."""
        news = self._seen.new(change)
        shown = None if news is None else views.change(broker_id, news)
        if shown is not None:
            self.events.add("change", shown)

    def coordinated(self, phase: Any) -> None:
        """A coordinator reached a phase. Commits of offsets are too many to be events."""
        name = type(phase).__name__
        if name != "OffsetsAppended":
            self.events.add(COORDINATOR, {"phase": name, **views.fields_of(phase)})

    def _heard(self) -> None:
        """Something was received or sent: tell those who read events, a few times a second."""
        if self.events.has_readers and not self._announces:
            self._announces = True
            asyncio.get_running_loop().call_later(ANNOUNCE_S, self._announce)

    def _announce(self) -> None:
        self._announces = False
        self.events.add(REQUESTS, {"total": self.history.total})

    @staticmethod
    async def _wait(work: Any, timeout_ms: int, what: Callable[[], str]) -> None:
        """Wait for this in real time. Raises Refused with the state when the time is over."""
        if not 0 <= timeout_ms <= MAX_WAIT_MS:
            work.close()
            raise Refused(f"timeout_ms: from 0 to {MAX_WAIT_MS}")
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await work
        except TimeoutError:
            raise Refused(f"not within {timeout_ms} ms: {what()}", 408) from None
