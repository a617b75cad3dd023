"""A cluster of several brokers in one process and one event loop. It starts an embedded ZooKeeper unless one is given.

Each broker has its own ZooKeeper session, listener and controller, and talks to the others over TCP, so clients see a normal cluster. The
cluster is ready when every broker is registered and not fenced, one of them is the controller, and every broker's metadata cache has
all brokers and the requested topics.

It stops as a whole: brokers in descending order of their ids, the controller last, each with a controlled shutdown that does not
wait for something that cannot happen any more. All this takes a second at most; brokers that still run then are closed at once.

While the cluster runs, single brokers can be stopped, killed and started again, and the controller can be moved, one step at a time. A step
returns when every running broker shows its outcome, or somebody holds the controller, so that it cannot.

A broker that starts again finds its logs, also if they are in memory: each broker has a `MemoryDirectory` that outlives it
([ADR 12](../../docs/adr/0012-logs-in-memory-outlive-their-broker.md)). With `lose_log` it finds no logs, as after the loss of its disk.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Unpack, get_args

from klamm.broker.log.files.removal import remove_logs
from klamm.broker.log.memory_directory import MemoryDirectory
from klamm.broker.recovery import Recovery
from klamm.configs.broker_config import BrokerConfig
from klamm.controller.phases import ControllerElectionDue, EventPhase
from klamm.seams.steering import Steering
from klamm.server.broker_server import BrokerServer
from klamm.server.configs.policies import AlterConfigPolicy, TopicPolicy
from klamm.server.faults.fault import Faults
from klamm.server.lifecycle.disks import are_on_disk
from klamm.server.lifecycle.seams import Seams
from klamm.server.lifecycle.start_failure import StartFailed
from klamm.server.local.arguments import SeedTopic
from klamm.server.local.configured_brokers import ConfiguredBrokers, Shape
from klamm.server.local.seed_topics import create_topics
from klamm.server.local.shown import LiveView, controller_of, is_forgotten, is_shown_by_all
from klamm.server.local.standing_clock import StandingClock
from klamm.zk.layout.paths import CONTROLLER
from klamm.zk.session.requests import NoNode

log = logging.getLogger(__name__)

LOOK_S = 0.002
START_TIMEOUT_S = 60.0
IN_ORDER_S = 1.0


class LocalCluster(ConfiguredBrokers):
    """Brokers 1 to `brokers`, in this process."""

    def __init__(
        self,
        brokers: int = 3,
        *,
        topic_policy: TopicPolicy | None = None,
        alter_config_policy: AlterConfigPolicy | None = None,
        seams: Seams | None = None,
        can_stand: bool = False,
        **shape: Unpack[Shape],
    ) -> None:
        """Logs in memory end with the cluster. With `can_stand` brokers can stand still (`stand`); that costs little for each timer.

        `seams` are given to all brokers. The cluster itself waits for its brokers in real time.
        """
        super().__init__(brokers, **shape)
        self.brokers: list[BrokerServer] = []
        """The running brokers, sorted by id."""
        self.steering = Steering() if seams is None or seams.steering is None else seams.steering
        """Holds the brokers at phases."""
        self.faults = Faults() if seams is None or seams.faults is None else seams.faults
        """What requests of clients, brokers and controllers meet."""
        self._topic_policy = topic_policy
        self._alter_config_policy = alter_config_policy
        self._memory = {broker_id: MemoryDirectory() for broker_id in range(1, brokers + 1)}
        self._seams = replace(seams or Seams(), steering=self.steering, faults=self.faults, memory_directory=self._memory.get)
        self._can_stand = can_stand
        self._latest: dict[int, BrokerServer] = {}
        """Each broker as it was made last, also while it starts or stops."""
        self._killed: dict[int, BrokerServer] = {}
        self._step = asyncio.Lock()
        self._moving = asyncio.Lock()
        self._standing: set[int] = set()
        """Brokers that stand still."""

    @property
    def controller_id(self) -> int:
        """Broker id of the controller, -1 if there is none at the moment."""
        active = [broker for broker in self.brokers if broker.controller.is_active]
        return next((broker.id for broker in active if broker.id not in self._standing), active[0].id if active else -1)

    @property
    def addresses(self) -> list[tuple[int, str, int]]:
        """(id, host, port) of the inter-broker listener of each running broker, sorted by id."""
        return _addresses(self.brokers)

    @property
    def metrics_ports(self) -> dict[int, int]:
        """The port of each broker's metrics, by broker id; none without `metrics_port`."""
        return {broker.id: broker.endpoint.port for broker in self.brokers if broker.endpoint is not None}

    @property
    def keeps_logs(self) -> bool:
        """True: a broker that starts again finds its records, also those in memory."""
        return True

    def state_of(self, broker_id: int) -> str:
        """`running`, `paused` while it stands still, or `down`."""
        runs = any(broker.id == broker_id for broker in self.brokers)
        return "down" if not runs else "paused" if broker_id in self._standing else "running"

    @property
    def pids(self) -> dict[int, int]:
        """Empty: the brokers do not have their own processes."""
        return {}

    async def start(self) -> None:
        """Start, and return when the cluster is ready. Raises StartFailed, EmbeddedZooKeeperError or ConfigError; all is stopped then."""
        async with self._step:
            try:
                await self._start()
            except TimeoutError:
                await self._stop()
                raise StartFailed(f"the cluster was not ready within {START_TIMEOUT_S:g} s") from None
            except BaseException:
                await self._stop()
                raise

    async def stop(self) -> None:
        """Stop every broker in order, then the embedded ZooKeeper. May also be called after a failed start. What is held goes on."""
        self.steering.release_at_end(log)
        async with self._moving, self._step:
            await self._stop()

    async def stop_broker(self, broker_id: int, *, lose_log: bool = False) -> None:
        """Stop a broker with a controlled shutdown. Returns when no other broker shows it any more.

        Its logs stay, in memory or in its log directories, and `start_broker` finds them: records, high watermarks, leader epochs,
        producer states, topic ids. With `lose_log` they are removed, as if its disk was replaced. Raises OSError if they cannot be removed.
        """
        async with self._step:
            broker = self._running(broker_id)
            self._wake(broker_id)
            await broker.stop()
            self._drop(broker)
            if lose_log:
                await self._lose_log(broker)
            await self._until_forgotten(broker_id)

    async def kill_broker(self, broker_id: int, *, expire: bool = False, lose_log: bool = False) -> None:
        """End a broker like `kill -9`: its connections are cut, and it sends nothing.

        Its logs stay with every record that was appended, in memory or in its log directories. Like a killed process it does not write a
        checkpoint: `start_broker` finds the high watermarks and log start offsets of the last one
        (`replica.high.watermark.checkpoint.interval.ms`). With `lose_log` the logs are removed, as in `stop_broker`.

        ZooKeeper notices the loss after `zookeeper.session.timeout.ms`. Until then the broker stays registered, and stays controller if it
        was the controller. With `expire` its session expires at once, and this returns when no other broker shows it any more. If it
        registers with the controller, that is after `broker.session.timeout.ms`.
        """
        async with self._step:
            broker = self._running(broker_id)
            self._wake(broker_id)
            await broker.kill()
            self._drop(broker)
            self._killed[broker_id] = broker
            if lose_log:
                await self._lose_log(broker)
            if expire:
                await self._bury(broker_id)
                await self._until_forgotten(broker_id)

    async def crash_broker(self, broker_id: int, *, expire: bool = False) -> None:
        """End a broker like `kill -9`, also while another step is under way: a broker that is held at a phase, one that starts or stops.

        Otherwise like `kill_broker`. Returns when it is closed, with `expire` when its session has ended too.
        """
        broker = self._latest.get(broker_id)
        if broker is None:
            raise ValueError(f"there is no broker {broker_id}")
        self._wake(broker_id)
        self._halted(broker)
        await broker.kill()
        if expire:
            await self._bury(broker_id)

    async def start_broker(self, broker_id: int) -> None:
        """Start a stopped or killed broker again, on its former port and with a new epoch. Returns when every broker shows it.

        It finds its logs, unless they were removed with `lose_log`; those of topics that were deleted in the meantime are deleted. Its
        former session is ended first. Raises StartFailed.
        """
        async with self._step:
            if broker_id in (broker.id for broker in self.brokers):
                raise ValueError(f"broker {broker_id} runs")
            if broker_id not in self._kept_ports:
                raise ValueError(f"there is no broker {broker_id}")
            await self._bury(broker_id)
            broker = self._make_broker(broker_id)
            await broker.start()
            await self._joined(broker)

    async def add_broker(self, config: Mapping[str, str] | None = None) -> int:
        """Start one more broker, with the next id and these properties besides those of all. Returns its id when every broker shows it.

        Raises ValueError for properties that a broker refuses, StartFailed.
        """
        async with self._step:
            number = self._add_next(config)
            self._memory[number] = MemoryDirectory()
            broker = self._make_broker(number)
            try:
                await broker.start()
            except BaseException:  # then the cluster is as before, and the next one has this id
                self._remove_last()
                del self._memory[number], self._latest[number]
                raise
            self._keep_ports(broker)
            await self._joined(broker)
            return number

    async def _joined(self, broker: BrokerServer) -> None:
        """A broker runs: wait until all show it. Raises StartFailed if it ends before that, as when somebody crashes it at a phase."""
        if not broker.is_closing:
            self.brokers = sorted([*self.brokers, broker], key=lambda broker: broker.id)
            await self._until(
                lambda: broker.is_closing or is_shown_by_all(self._views(broker.id), broker.id), f"broker {broker.id} is shown by all"
            )
        if broker.is_closing:
            raise StartFailed(f"broker {broker.id} ended before all brokers showed it")

    async def move_controller(self, to: int | None = None) -> int:
        """Make this broker the controller, or with None any other than the present one. Returns its id when every broker shows it.

        It works as an operator would do it: `/controller` is deleted, all brokers notice that, and an election follows. It does not wait
        for the end of other steps: where the controller has failed to do its part of one, only a new controller does it. Raises ValueError
        if there is no such broker, or if it ends before it is elected.
        """
        async with self._moving:
            before = self.controller_id
            if to is not None and self._running(to).id == before:
                return before
            candidates = frozenset(broker.id for broker in self.brokers if broker.id == to or (to is None and broker.id != before))
            if not candidates:
                raise ValueError("there is no other broker that could be controller")
            others = self.steering.hold(ControllerElectionDue, where={"broker_id": {broker.id for broker in self.brokers} - candidates})
            try:
                # A broker whose election was under way when the others were held may win, so it is repeated until a candidate has won.
                while self.controller_id not in candidates:
                    await self._depose(candidates)
            finally:
                others.release()
            return self.controller_id

    @property
    def recovering(self) -> list[Recovery]:
        """The partitions whose leaders wait for `release_recovery`, with `kip704.recovery.mode=manual` (KIP-704)."""
        return self._seams.recovery_gate.waiting

    async def release_recovery(self, topic: str | None = None, partition: int | None = None) -> list[Recovery]:
        """Release leaders that wait in recovery: all, those of a topic, or that of one partition. Returns the released ones."""
        return self._seams.recovery_gate.release(topic, partition)

    async def _start(self) -> None:
        config = await self._reach_zookeeper()
        self.brokers = [self._make_broker(number) for number in range(1, self._count + 1)]
        started = await asyncio.gather(*(broker.start() for broker in self.brokers), return_exceptions=True)
        for failure in started:
            if failure is not None:
                raise failure
        self.cluster_id = self.brokers[0].cluster_id
        for each in self.brokers:
            self._keep_ports(each)
        async with asyncio.timeout(START_TIMEOUT_S):
            await self._shown([])
            await self._create_topics(config)

    async def _stop(self) -> None:
        try:
            async with asyncio.timeout(IN_ORDER_S):
                for broker in sorted(self.brokers, key=lambda broker: (not self._is_controller(broker), broker.id), reverse=True):
                    await broker.stop()
        except TimeoutError:
            log.warning("controlled shutdown took longer than %g s; the brokers are closed at once", IN_ORDER_S)
            await asyncio.gather(*(broker.close() for broker in self.brokers))
        try:
            await asyncio.gather(*(self._bury(broker_id, IN_ORDER_S) for broker_id in list(self._killed)))
        except TimeoutError as error:
            log.warning("cannot close the sessions of killed brokers; they will expire: %s", error)
        for memory in self._memory.values():
            memory.clear()
        self._seams.log_memory.close()
        await self._stop_zookeeper()

    async def _lose_log(self, broker: BrokerServer) -> None:
        """Remove the logs of a stopped broker. Raises OSError."""
        self._memory[broker.id].clear()
        for directory in broker.config.log_dirs if are_on_disk(broker.config) else ():
            await asyncio.to_thread(remove_logs, directory)

    def _make_broker(self, number: int) -> BrokerServer:
        self._standing.discard(number)
        broker = self._latest[number] = BrokerServer(
            self.config_of(number),
            topic_policy=self._topic_policy,
            alter_config_policy=self._alter_config_policy,
            patient=False,
            seams=replace(self._seams, clock=StandingClock(self._seams.clock)) if self._can_stand else self._seams,
        )
        broker.on_halted = self._halted
        return broker

    def _halted(self, broker: BrokerServer) -> None:
        """This broker has ended as a killed one does, perhaps by itself."""
        self._drop(broker)
        self._killed[broker.id] = broker

    def _drop(self, broker: BrokerServer) -> None:
        """This broker runs no more; it may be gone already."""
        self.brokers = [other for other in self.brokers if other is not broker]

    def _running(self, broker_id: int) -> BrokerServer:
        for broker in self.brokers:
            if broker.id == broker_id:
                return broker
        raise ValueError(f"broker {broker_id} is not running" if broker_id in self._kept_ports else f"there is no broker {broker_id}")

    def _connected(self) -> BrokerServer:
        """A running broker that is connected to ZooKeeper; any if none is. Raises ValueError."""
        if not self.awake:
            raise ValueError("no broker runs")
        return next((broker for broker in self.awake if broker.zk.is_connected), self.awake[0])

    async def _bury(self, broker_id: int, limit_s: float = START_TIMEOUT_S) -> None:
        """End the ZooKeeper session of a killed broker. Raises TimeoutError if ZooKeeper does not respond."""
        killed = self._killed.pop(broker_id, None)
        if killed is not None:
            await killed.zk.end_severed(limit_s)

    def stand(self, broker_id: int) -> None:
        """Let a broker stand still, as SIGSTOP does: it reads nothing, its timers stand, and ZooKeeper hears nothing of it, so that it ends
        the session after its time-out. Steps do not wait for this broker. Raises ValueError.
        """
        broker = self._running(broker_id)
        self._standing.add(broker_id)
        broker.listeners.pause()
        broker.zk.pause()
        if isinstance(broker.clock, StandingClock):
            broker.clock.stand()

    def go_on(self, broker_id: int) -> None:
        """The opposite of `stand`. Raises ValueError."""
        broker = self._running(broker_id)
        self._standing.discard(broker_id)
        if isinstance(broker.clock, StandingClock):
            broker.clock.go_on()
        broker.zk.resume()
        broker.listeners.resume()

    def _wake(self, broker_id: int) -> None:
        """A broker that stands still goes on, so that it can end."""
        if self.state_of(broker_id) == "paused":
            self.go_on(broker_id)

    @property
    def awake(self) -> list[BrokerServer]:
        """The running brokers that do not stand still."""
        return [broker for broker in self.brokers if broker.id not in self._standing]

    async def _depose(self, candidates: frozenset[int]) -> None:
        """Delete `/controller`, and wait for the next term. Raises ValueError if no candidate runs any more."""
        deposed = self._term()
        with suppress(NoNode):
            await self._connected().zk.delete(CONTROLLER)

        def have_ended() -> bool:
            return candidates.isdisjoint(broker.id for broker in self.brokers)

        def is_done() -> bool:
            return have_ended() or (controller_of(self._views()) >= 0 and self._term() != deposed)

        await self._until(is_done, "another controller is elected", when_held=True)
        if have_ended():
            raise ValueError(f"no broker that was to be the controller runs any more: {sorted(candidates)}")

    def _term(self) -> tuple[int, int | None]:
        """Id and epoch of the active controller; -1 and None if there is none."""
        active = self.controller_id
        return active, next((broker.controller.epoch for broker in self.brokers if broker.id == active), None)

    def _views(self, about: int | None = None) -> dict[int, LiveView]:
        """What each broker shows that runs and does not stand still, also of the broker `about`."""
        return {broker.id: LiveView(broker, about) for broker in self.awake}

    async def _until_forgotten(self, broker_id: int) -> None:
        """Wait until no running broker shows this broker, neither as a broker nor as a leader. Raises TimeoutError."""
        await self._until(lambda: is_forgotten(self._views(broker_id), broker_id), f"broker {broker_id} is forgotten")

    def _is_controller_held(self) -> bool:
        """Whether somebody holds the controller inside an event or a write, so that the outcome of a step cannot come."""
        return any(type(held.phase).__name__ in HOLDING for held in self.steering.held_phases)

    async def _until(self, holds: Callable[[], bool], what: str, *, when_held: bool = False) -> None:
        """Wait until `holds()` is true; `what` describes it in the error. Raises TimeoutError.

        The wait ends when the controller is held, because the outcome cannot come; with `when_held` it goes on, until somebody releases it.
        """
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                while not holds() and (when_held or not self._is_controller_held()):  # noqa: ASYNC110 no one event says that all caches agree
                    await asyncio.sleep(LOOK_S)
        except TimeoutError:
            raise TimeoutError(f"not within {START_TIMEOUT_S:g} s: {what}") from None

    @staticmethod
    def _is_controller(broker: BrokerServer) -> bool:
        return broker.started and broker.controller.is_active

    def _keep_ports(self, broker: BrokerServer) -> None:
        """Let a broker that has started take its ports again."""
        (port,) = (port for _, _, port in _addresses([broker]))
        self._kept_ports[broker.id] = port, None if broker.endpoint is None else broker.endpoint.port

    async def _shown(self, topics: Sequence[SeedTopic]) -> None:
        """Wait until every broker's metadata cache has a controller, all brokers and these topics, each partition with a leader."""
        ids = {broker.id for broker in self.brokers}
        while not all(_shows(broker, ids, topics) for broker in self.brokers):  # noqa: ASYNC110 no one event says that all caches agree
            await asyncio.sleep(LOOK_S)

    async def _create_topics(self, config: BrokerConfig) -> None:
        if not self._topics:
            return
        await create_topics(self._topics, self._controller_address, START_TIMEOUT_S, config)
        await self._shown(self._topics)
        for t in self._topics:
            count = len(self.brokers[0].metadata.topics[t.name].partitions)
            if count != t.partitions:
                log.warning("topic %s already exists with %d partitions instead of %d; it is not changed", t.name, count, t.partitions)

    async def _controller_address(self) -> tuple[str, int] | None:
        controller_id = self.controller_id
        return next(((host, port) for broker_id, host, port in self.addresses if broker_id == controller_id), None)


HOLDING = frozenset(("ZooKeeperWrite", *(each.__name__ for each in get_args(EventPhase)))) - {ControllerElectionDue.__name__}
"""The phases at which a controller is held inside an event or a write."""


def _addresses(brokers: Sequence[BrokerServer]) -> list[tuple[int, str, int]]:
    return [(b.id, e.host, e.port) for b in brokers for e in b.advertised if e.listener == b.inter_broker_listener]


def _shows(broker: BrokerServer, ids: set[int], topics: Sequence[SeedTopic]) -> bool:
    metadata = broker.metadata
    if not broker.is_online or metadata.controller_id is None or not ids <= metadata.brokers.keys():
        return False
    return all(metadata.contains(t.name) and all(p.leader >= 0 for p in metadata.topics[t.name].partitions.values()) for t in topics)
