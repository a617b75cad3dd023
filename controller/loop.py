"""The controller's one loop: a queue of events, one task that handles them one at a time (controller 2, 3).

Every broker runs it. Watches, timers, answers of brokers and request handlers only put events on the queue; nothing else
touches the controller's state. While this broker is the active controller there is a Term; events of a controller that is not
active are dropped, or answered NOT_CONTROLLER where somebody waits. Events of one kind that wait side by side may be handled
together: AlterPartition requests, changes of topic nodes.

Errors: a lost epoch looks whether `/controller` still names this broker and resigns if not; a lost session ends the event, the
Expire event follows; what ZooKeeper refuses ends the event with one line in the log; anything else is a fault of ours: logged with its
trace. The last two are answered UNKNOWN_SERVER_ERROR, and the loop goes on. While taking office every error is a reason to give the
office away: nothing acts on a half-loaded cluster. Whoever failed takes part in an election again after a while, longer each time.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from klamm.controller import (
    alter_partition,
    brokers,
    decision_log,
    deletion,
    events,
    failover,
    leader_elections,
    notifications,
    partition_machine,
    requests,
    shutdown,
    topics,
)
from klamm.controller.batch import Channels, RequestSender
from klamm.controller.cluster import Cluster
from klamm.controller.frames import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA, Encoder
from klamm.controller.leader_elections import ElectionResult
from klamm.controller.options import ControllerOptions
from klamm.controller.store import Store
from klamm.controller.term import ELECTION, Phase, Term, no_phase
from klamm.controller.values import (
    Assignment,
    Broker,
    ControllerEpoch,
    ControllerMoved,
    Election,
    StoreLost,
    StoreRefused,
    TopicPartition,
)
from klamm.protocol.errors import ApiError, ErrorCode

log = logging.getLogger("klamm.controller")

FIRST_REBALANCE_SECONDS = 5
"""After an election the first look at the leaders' balance comes this soon."""

FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS = 0.1, 12.8
"""After an election or a fail-over that failed a broker keeps out of elections this long; twice as long after each further one."""

E = TypeVar("E")
Event = Any


def random_topic_id() -> bytes:
    """A random (version 4) uuid that is not reserved and whose text does not begin with a dash (layout 3.4)."""
    while True:
        raw = bytearray(os.urandom(16))
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        if raw[0] >> 2 != 62:  # base64url's dash
            return bytes(raw)


class Controller:
    """One broker's controller, active or not."""

    def __init__(
        self,
        broker_id: int,
        store: Store,
        channels: Channels,
        options: ControllerOptions,
        register_broker: Callable[[], Awaitable[None]],
        *,
        now_ms: Callable[[], int] = lambda: int(time.time() * 1000),
        new_topic_id: Callable[[], bytes] = random_topic_id,
        finalized_features: Callable[[], Mapping[str, int]] = dict,
        phase: Phase = no_phase,
    ) -> None:
        self.broker_id = broker_id
        self.options = options
        self.active_id = -1
        self.term: Term | None = None
        self._store = store
        self._channels = channels
        self._register_broker = register_broker
        self._now_ms = now_ms
        self._new_topic_id = new_topic_id
        self._finalized_features = finalized_features
        self._phase = phase
        self._queue: deque[Event] = deque()
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._expiring: asyncio.Future[None] | None = None
        self._rebalance: asyncio.TimerHandle | None = None
        self._decided: decision_log.DecidedStates | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._retry_seconds: float = FIRST_RETRY_SECONDS

    # --- what others see and ask ---

    @property
    def is_active(self) -> bool:
        """Whether this broker is the controller, as far as it knows. A node of its own that outlived a failed term does not make it one."""
        return self.term is not None and self.active_id == self.broker_id

    @property
    def epoch(self) -> int:
        """The epoch of this broker's term, 0 without one."""
        return 0 if self.term is None else self.term.cluster.epoch

    def queued_for_deletion(self, topic: str) -> bool:
        """Whether the topic is marked for deletion."""
        return self.term is not None and topic in self.term.cluster.to_delete

    def told_topics(self) -> set[str]:
        """Topics that brokers are told of: those that have a partition with a state, and are not marked for deletion."""
        topics = [] if self.term is None else list(self.term.cluster.topics.values())
        return {topic.name for topic in topics if not topic.queued and any(p.info is not None for p in topic.partitions.values())}

    def topic_name(self, topic_id: bytes) -> str | None:
        """The name of the topic with this id, None when the controller knows none."""
        topic = None if self.term is None else self.term.cluster.topics_by_id.get(topic_id)
        return None if topic is None else topic.name

    def start(self) -> None:
        """Begin handling events; the first one is Startup."""
        self.put(events.Startup())
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"controller-{self.broker_id}")

    def put(self, event: Event) -> None:
        """Append an event to the queue."""
        self._queue.append(event)
        self._wake.set()

    def clear_and_put(self, event: Event) -> None:
        """Preempt everything that waits, then append an event. Options are no work to be preempted: the last ones stay."""
        waiting, self._queue = self._queue, deque()
        self._queue.extend([e for e in waiting if isinstance(e, events.OptionsChanged)][-1:])
        for e in waiting:
            if isinstance(e, requests.Asked):
                requests.preempt(e)
        self.put(event)

    async def expire(self) -> None:
        """The session expired: clear the queue and wait until Expire is being handled."""
        self._expiring = asyncio.get_running_loop().create_future()
        self.clear_and_put(events.Expire())
        await self._expiring

    def new_session(self) -> None:
        """A new session began: register the broker again and take part in the election."""
        self.put(events.RegisterBrokerAndReelect())

    async def elect_leaders(self, partitions: Sequence[TopicPartition], election: Election) -> dict[TopicPartition, ElectionResult]:
        """Elect leaders on request; raises ApiError(NOT_CONTROLLER)."""
        future = self._future()
        self.put(requests.ElectLeaders(tuple(partitions), election, future))
        result: dict[TopicPartition, ElectionResult] = await future
        return result

    async def controlled_shutdown(self, broker_id: int, broker_epoch: int) -> list[TopicPartition]:
        """Let a broker leave; the partitions it still leads. Raises ApiError."""
        future = self._future()
        self.put(requests.ControlledShutdown(broker_id, broker_epoch, future))
        remaining: list[TopicPartition] = await future
        return remaining

    async def alter_partition(self, request: Any, version: int) -> Any:
        """An AlterPartitionResponse; raises ApiError for a top-level error."""
        future = self._future()
        self.put(requests.AlterPartition(request, version, future))
        return await future

    async def list_reassignments(self, partitions: Iterable[TopicPartition] | None) -> dict[TopicPartition, Assignment]:
        """Those partitions, or all, that are being reassigned; raises ApiError(NOT_CONTROLLER)."""
        future = self._future()
        self.put(requests.ListReassignments(None if partitions is None else tuple(partitions), future))
        found: dict[TopicPartition, Assignment] = await future
        return found

    async def allocate_producer_ids(self, broker_id: int, broker_epoch: int) -> tuple[int, int]:
        """(first id, count) of a new block; raises ApiError."""
        future = self._future()
        self.put(requests.AllocateProducerIds(broker_id, broker_epoch, future))
        block: tuple[int, int] = await future
        return block

    async def close(self) -> None:
        """Preempt what waits, end the loop, resign. `/controller` goes with the session."""
        self.clear_and_put(None)
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        for e in self._queue:
            if isinstance(e, requests.Asked):
                requests.preempt(e)
        self._queue.clear()
        self._resign()
        self.active_id = -1
        if self._retry is not None:
            self._retry.cancel()

    @staticmethod
    def _future() -> asyncio.Future[Any]:
        return asyncio.get_running_loop().create_future()

    # --- the loop ---

    async def _run(self) -> None:
        while True:
            while not self._queue:
                self._wake.clear()
                await self._wake.wait()
            event = self._queue.popleft()
            if event is None:
                return
            if self.term is not None:
                self.term.written.clear()
                self.term.sender.posted.clear()
            await self._guarded(event)

    async def _guarded(self, event: Event) -> None:
        """Handle one event, and those taken with it; every error ends here (the table of faults) and answers all of them."""
        taken: list[Event] = [event]
        name = type(event).__name__
        answer: Callable[[requests.Asked], None] = partial(requests.refuse, error=ErrorCode.UNKNOWN_SERVER_ERROR)
        try:
            await self._handle(event, taken)
            return
        except asyncio.CancelledError:
            answer = requests.preempt
            raise
        except ControllerMoved as e:
            log.warning("broker %d: another controller was elected (%s)", self.broker_id, e)
            answer = requests.preempt
            await self._after_a_lost_epoch()
        except StoreLost as e:
            log.warning("broker %d: %s was cut short by the end of the ZooKeeper session: %s", self.broker_id, name, e)
            answer = requests.preempt
        except StoreRefused as e:
            log.error("broker %d: %s failed, ZooKeeper refused: %s", self.broker_id, name, e)
        except ApiError as e:
            if not isinstance(event, requests.Asked):
                log.exception("broker %d: %s failed", self.broker_id, name)
            answer = partial(requests.refuse, error=e.code, message=e.message)
        except Exception:
            log.exception("broker %d: %s failed", self.broker_id, name)
        finally:
            for asked in taken:
                if isinstance(asked, requests.Asked):
                    answer(asked)

    async def _after_a_lost_epoch(self) -> None:
        try:
            await self._maybe_resign()
        except StoreLost as e:
            log.warning("broker %d: the ZooKeeper session ended: %s", self.broker_id, e)
        except StoreRefused as e:
            log.error("broker %d: /controller cannot be read: %s", self.broker_id, e)

    async def _handle(self, event: Event, taken: list[Event]) -> None:
        """Handle one event, and those put into `taken` with it; at DEBUG a line says what came of it."""
        if not log.isEnabledFor(logging.DEBUG):
            await self._take(event, taken)
            return
        began = time.monotonic()
        states = self._decided = decision_log.DecidedStates()
        if self.term is not None:
            states.watch(self.term.cluster)
        try:
            await self._take(event, taken)
        finally:
            self._decided = None
            states.end()
            log.debug("broker %d: %s", self.broker_id, decision_log.line(taken, time.monotonic() - began, states, self.term))

    async def _take(self, event: Event, taken: list[Event]) -> None:
        match event:
            case events.Startup():
                await self._store.watch_controller()
                await self._elect()
            case events.ControllerChange():
                await self._maybe_resign()
                if self.active_id == -1:  # created and deleted before the watch was armed again: nobody else would be told
                    await self._elect()
            case events.Reelect():
                await self._maybe_resign()
                await self._elect()
            case events.Expire():
                if self._expiring is not None and not self._expiring.done():
                    self._expiring.set_result(None)
                self.active_id = -1
                self._resign()
            case events.OptionsChanged(options):
                self.options = options
                if self.term is not None:
                    self.term.options_changed(options)
            case events.RegisterBrokerAndReelect():
                await self._register_broker()
                await self._maybe_resign()
                await self._elect()
            case _:
                term = self.term
                if term is None or not self.is_active:
                    if isinstance(event, requests.Asked):
                        requests.preempt(event)
                    return
                await self._handle_active(term, event, taken)

    async def _handle_active(self, term: Term, event: Event, taken: list[Event]) -> None:
        match event:
            case events.BrokerChange():
                await brokers.on_broker_change(term)
            case events.BrokerModifications(broker_id):
                await brokers.on_broker_modifications(term, broker_id)
            case events.TopicChange():
                await topics.on_topic_change(term)
            case events.PartitionModifications():
                same = self._take_waiting(events.PartitionModifications)
                await topics.on_partition_modifications(term, list(dict.fromkeys([event.topic, *(e.topic for e in same)])))
            case events.TopicDeletion():
                await deletion.on_topic_deletion(term)
            case events.LogDirEventNotification():
                await notifications.on_log_dir_event(term)
            case events.IsrChangeNotification():
                await notifications.on_isr_change(term)
            case events.PreferredReplicaElection():
                await leader_elections.by_node(term)
            case events.AutoPreferredReplicaLeaderElection():
                try:
                    await leader_elections.auto_rebalance(term)
                finally:
                    self._schedule_rebalance(term.options.leader_imbalance_check_interval_seconds)
            case events.UncleanLeaderElectionEnabled():
                await partition_machine.trigger(term)
            case events.TopicUncleanLeaderElectionEnabled(topic):
                await partition_machine.trigger(term, topic)
            case events.ZkPartitionReassignment():
                log.warning("the reassignment node is not handled by this version")
            case requests.LeaderAndIsrAnswered(broker_id, broker_epoch, response):
                if _is_registered(term, broker_id, broker_epoch):
                    await notifications.on_leader_and_isr_answered(term, broker_id, response)
            case requests.StopReplicaAnswered(broker_id, broker_epoch, response):
                if _is_registered(term, broker_id, broker_epoch):
                    await notifications.on_stop_replica_answered(term, broker_id, response)
            case requests.ElectLeaders(partitions, election, future):
                _answer(future, await leader_elections.elect(term, partitions, election, by_admin=True))
            case requests.ControlledShutdown(broker_id, broker_epoch, future):
                _answer(future, await shutdown.controlled_shutdown(term, broker_id, broker_epoch))
            case requests.AlterPartition():
                taken += self._take_waiting(requests.AlterPartition)
                answers = await alter_partition.alter_partitions(term, [(e.request, e.version) for e in taken])
                for e, answer in zip(taken, answers, strict=True):
                    _answer(e.future, answer)
            case requests.ListReassignments(partitions_or_none, future):
                _answer(future, _reassigning(term, partitions_or_none))
            case requests.AllocateProducerIds(broker_id, broker_epoch, future):
                _check_sender(term.cluster.brokers.get(broker_id), broker_epoch)
                _answer(future, await term.store.allocate_producer_ids(broker_id))
            case _:
                raise AssertionError(f"no such event: {event!r}")

    def _take_waiting(self, kind: type[E]) -> list[E]:
        """The events of one kind at the head of the queue."""
        out: list[E] = []
        while self._queue and isinstance(self._queue[0], kind):
            out.append(self._queue.popleft())
        return out

    # --- election and resignation ---

    async def _elect(self) -> None:
        self.active_id = await self._store.controller_id()
        if self.active_id == self.broker_id and self.term is None and await self._store.end_leftover(self.broker_id):
            self.active_id = await self._store.controller_id()
        if self.active_id != -1:
            log.debug("broker %d: the controller is broker %d", self.broker_id, self.active_id)
            return
        if self._retry is not None:
            return
        await self._phase(ELECTION)
        try:
            epoch = await self._store.register_controller(self.broker_id, self._now_ms())
        except ControllerMoved:
            await self._maybe_resign()
            return
        except StoreRefused as e:
            self._try_again_later(f"cannot be elected: {e}")
            return
        self.active_id = self.broker_id
        log.info("broker %d is elected controller with epoch %d", self.broker_id, epoch.epoch)
        await self._take_office(epoch)

    async def _take_office(self, epoch: ControllerEpoch) -> None:
        """Fail over. Whatever keeps it from being complete, no term is left behind."""
        began = time.monotonic()
        try:
            self.term = self._new_term(epoch.epoch)
            await failover.fail_over(self.term)
        except StoreLost:
            self._leave_office()
            raise
        except ControllerMoved as e:
            await self._maybe_resign()
            if self.term is not None:  # the epoch was raised, but `/controller` names this broker still
                await self._give_office_away(str(e))
            return
        except StoreRefused as e:
            await self._give_office_away(str(e))
            return
        except Exception as e:
            log.exception("broker %d: taking office failed", self.broker_id)
            await self._give_office_away(repr(e))
            return
        self._retry_seconds = FIRST_RETRY_SECONDS
        cluster = self.term.cluster
        log.info(
            "broker %d took office in %.3f s: brokers %s, %d topics, %d partitions",
            self.broker_id, time.monotonic() - began, sorted(cluster.brokers), len(cluster.topics), sum(1 for _ in cluster.partitions()),
        )  # fmt: skip
        if self.options.auto_leader_rebalance_enable:
            self._schedule_rebalance(FIRST_REBALANCE_SECONDS)

    def _new_term(self, epoch: int) -> Term:
        cluster, options = Cluster(epoch), self.options
        if self._decided is not None:
            self._decided.watch(cluster)
        encoder = Encoder(
            self.broker_id, options.leader_and_isr_version, options.update_metadata_version, options.stop_replica_version
        )  # fmt: skip
        sender = RequestSender(cluster, self._channels, encoder, options, self._on_response)
        return Term(
            self.broker_id, cluster, self._store, self._channels, sender, options, self.put, self._new_topic_id,
            self._finalized_features, self._phase,
        )  # fmt: skip

    async def _maybe_resign(self) -> None:
        was_active = self.is_active
        await self._store.watch_controller()
        self.active_id = await self._store.controller_id()
        if was_active and not self.is_active:
            self._resign()

    def _resign(self) -> None:
        """Drop everything that belongs to the term; waiting requests to brokers are lost."""
        if self._rebalance is not None:
            self._rebalance.cancel()
            self._rebalance = None
        # One that fired and waits is of this term too; the next one has a timer of its own.
        self._queue = deque(e for e in self._queue if not isinstance(e, events.AutoPreferredReplicaLeaderElection))
        self._store.reset_fence()
        if self.term is None:
            return
        log.info("broker %d resigns (epoch %d)", self.broker_id, self.term.cluster.epoch)
        for b in list(self.term.cluster.brokers):
            self._channels.remove_broker(b)
        self.term.cluster.dissolve()
        self.term = None

    def _leave_office(self) -> None:
        self.active_id = -1
        self._resign()

    async def _give_office_away(self, why: str) -> None:
        """The deleted node makes everybody elect anew; what cannot be deleted now is a leftover for the next election."""
        self._try_again_later(f"could not take office: {why}")
        try:
            if await self._store.controller_id() == self.broker_id:
                await self._store.delete_controller()
        except (ControllerMoved, StoreRefused) as e:
            log.debug("broker %d: /controller is not deleted: %s", self.broker_id, e)
        finally:
            self._leave_office()

    def _try_again_later(self, why: str) -> None:
        """Keep out of elections for a while, so that brokers that all fail do not elect each other in a tight loop."""
        seconds = self._retry_seconds
        self._retry_seconds = min(2 * seconds, LAST_RETRY_SECONDS)
        log.error("broker %d %s; it takes part in an election again in %g s", self.broker_id, why, seconds)
        self._retry = asyncio.get_running_loop().call_later(seconds, self._try_again)

    def _try_again(self) -> None:
        self._retry = None
        self.put(events.Reelect())

    def _schedule_rebalance(self, seconds: float) -> None:
        if self.term is not None:
            loop = asyncio.get_running_loop()
            self._rebalance = loop.call_later(seconds, self.put, events.AutoPreferredReplicaLeaderElection())

    def _on_response(self, broker_id: int, api_key: int, response: Any) -> None:
        """An answer from a broker: most need no event."""
        term = self.term
        broker = None if term is None else term.cluster.brokers.get(broker_id)
        if term is None or broker is None:
            return
        if api_key == LEADER_AND_ISR:
            if notifications.worth_an_event(term.cluster, broker_id, response):
                self.put(requests.LeaderAndIsrAnswered(broker_id, broker.epoch, response))
        elif api_key == STOP_REPLICA:
            self.put(requests.StopReplicaAnswered(broker_id, broker.epoch, response))
        elif api_key == UPDATE_METADATA and response.error_code:
            log.error("broker %d answered UpdateMetadata with %s", broker_id, ErrorCode(response.error_code).name)


def _answer(future: asyncio.Future[Any], result: Any) -> None:
    if not future.done():
        future.set_result(result)


def _is_registered(term: Term, broker_id: int, broker_epoch: int) -> bool:
    """Whether an answer that waited is of the process that is there now; one that bounced meanwhile knows nothing of it."""
    broker = term.cluster.brokers.get(broker_id)
    return broker is not None and broker.epoch == broker_epoch


def _reassigning(term: Term, asked: Iterable[TopicPartition] | None) -> dict[TopicPartition, Assignment]:
    """Partitions that are being reassigned, sorted, with their assignments (controller 11.2)."""
    known = {p.key: p.assignment for p in term.cluster.reassigning}
    named = known.keys() if asked is None or not known else {key for key in asked if key in known}
    return {key: known[key] for key in sorted(named)}


def _check_sender(broker: Broker | None, broker_epoch: int) -> None:
    if broker is None:
        raise ApiError(ErrorCode.BROKER_ID_NOT_REGISTERED)
    if broker.epoch != broker_epoch:
        raise ApiError(ErrorCode.STALE_BROKER_EPOCH)
