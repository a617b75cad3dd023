"""The controller's one loop: a queue of events, one task that processes them one at a time (controller 2, 3).

Every broker runs it. Watches, timers, responses of brokers and request handlers only put events on the queue; nothing else
touches the controller's state. While this broker is the active controller there is a Term; elsewhere the events of an active controller are
preempted. Events of one kind that wait side by side may be processed together: AlterPartition requests, changes of topic znodes.
Events of every broker are processed in `controller_election.py`, events of the active controller in `event_table.py`.
`events/faults.py` says what follows an error of an event.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from klamm.controller.broker_sessions import Connection
from klamm.controller.brokers import notifications
from klamm.controller.changes import Change, Subscriber
from klamm.controller.cluster import Cluster, Partition
from klamm.controller.event_loop import decision_log, event_table
from klamm.controller.event_loop.controller_election import ControllerElection
from klamm.controller.events import catalogue as events
from klamm.controller.events import faults as event_faults
from klamm.controller.events.catalogue import ElectionEvent, Event
from klamm.controller.events.causes import WATCH_FIRED, BrokerStarted, Cause, QueuedEvent, RequestReceived, ResponseReceived, SessionChanged
from klamm.controller.events.observation import Observer
from klamm.controller.events.queue import EventQueue
from klamm.controller.ids import random_topic_id
from klamm.controller.metadata_log.fetches import NOT_CONTROLLER, MetadataFetch, MetadataFetched
from klamm.controller.metadata_log.log import MetadataLog
from klamm.controller.metadata_log.logged_store import LoggedStore
from klamm.controller.options import ControllerOptions
from klamm.controller.propagation.batch import Channels, RequestSender
from klamm.controller.propagation.frames import Encoder
from klamm.controller.store import Store
from klamm.controller.term.term import Term
from klamm.controller.values import Assignment, BrokerRegistration, BrokerState, BrokerToRegister, Election, ElectionResult, Result
from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode
from klamm.protocol.nouns import Ints, TopicPartition
from klamm.seams.clock import SYSTEM_CLOCK, Clock
from klamm.seams.steering import Steering

if TYPE_CHECKING:
    from klamm.controller.propagation.batch import BrokerResponse

log = logging.getLogger("klamm.controller")

T = TypeVar("T")


def _both(subscriber: Subscriber | None, observer: Observer | None) -> Subscriber | None:
    """The subscriber of the changes, if there is one."""
    if subscriber is None or observer is None:
        return subscriber if observer is None else observer.changed

    def see(change: Change) -> None:
        observer.changed(change)
        subscriber(change)

    return see


async def _observed(observer: Observer, work: Awaitable[None]) -> None:
    """The work; an observer gets the error it ends with."""
    try:
        await work
    except BaseException as error:
        observer.event_failed(error)
        raise


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
        clock: Clock = SYSTEM_CLOCK,
        new_topic_id: Callable[[], bytes] = random_topic_id,
        finalized_features: Callable[[], Mapping[str, int]] = dict,
        steering: Steering | None = None,
        subscriber: Subscriber | None = None,
        observer: Observer | None = None,
    ) -> None:
        self.broker_id = broker_id
        self.current: QueuedEvent | None = None
        """The event that is being processed: whatever the controller writes or sends now is done because of it."""
        self.queue = EventQueue()
        self.election = ControllerElection(
            broker_id, store, channels, options,
            register_broker=register_broker, new_term=self._new_term, put=self.queue.put, clock=clock, steering=steering,
            resigned=self._drop_rebalance, observer=observer,
        )
        self._store = store
        self._channels = channels
        self._clock = clock
        self._new_topic_id = new_topic_id
        self._finalized_features = finalized_features
        self._steering = steering
        self._subscriber = _both(subscriber, observer)
        self._observer = self.queue.observer = observer
        self._task: asyncio.Task[None] | None = None
        self._decided: decision_log.DecidedStates | None = None

    # --- what others see ---

    @property
    def term(self) -> Term | None:
        """The term of this broker as controller, None while it has none."""
        return self.election.term

    @property
    def options(self) -> ControllerOptions:
        """What this controller decides by."""
        return self.election.options

    @property
    def active_id(self) -> int:
        """The broker that is the controller, as far as this one knows; -1 when it knows of none."""
        return self.election.active_id

    @property
    def is_active(self) -> bool:
        """Whether this broker is the controller, as far as it knows."""
        return self.election.is_active

    @property
    def epoch(self) -> int:
        """The epoch of this broker's term, 0 without one."""
        return 0 if self.term is None else self.term.cluster.epoch

    def queued_for_deletion(self, topic: str) -> bool:
        """Whether the topic is queued for deletion."""
        return self.term is not None and topic in self.term.cluster.deletions

    def propagated_topics(self) -> set[str]:
        """Topics that are sent to brokers: those that have a partition with a state and are not queued for deletion."""
        topics = [] if self.term is None else list(self.term.cluster.topics.values())
        return {topic.name for topic in topics if not topic.queued and any(p.info is not None for p in topic.partitions.values())}

    def registered_state(self, broker_id: int) -> BrokerState:
        """The state of a broker that registered with the controller; OFFLINE where this one knows of none."""
        registration = None if self.term is None else self.term.cluster.registrations.get(broker_id)
        return BrokerState.OFFLINE if registration is None else registration.state

    def topic_name(self, topic_id: bytes) -> str | None:
        """The name of the topic with this id, None when the controller knows none."""
        topic = None if self.term is None else self.term.cluster.topics_by_id.get(topic_id)
        return None if topic is None else topic.name

    # --- what others put on the queue ---

    def start(self) -> None:
        """Begin to process events; the first one is Startup."""
        self.put(events.Startup(), BrokerStarted())
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"controller-{self.broker_id}")

    def put(self, event: Event, cause: Cause = WATCH_FIRED) -> None:
        """Append an event to the queue."""
        self.queue.put(event, cause)

    async def expire(self) -> None:
        """The session expired: preempt what waits, and return when the event that is being processed has ended."""
        begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.queue.clear()
        self.put(events.Expire(begun), SessionChanged())
        await begun

    def new_session(self) -> None:
        """A new session began: register the broker again and take part in the election."""
        self.put(events.RegisterBrokerAndReelect(), SessionChanged())

    async def elect_leaders(
        self, partitions: Sequence[TopicPartition], election: Election, cause: Cause = RequestReceived("ElectLeaders")
    ) -> dict[TopicPartition, ElectionResult]:
        """Elect leaders on request; raises ApiError(NOT_CONTROLLER)."""
        return await self._request(lambda future: events.ElectLeaders(tuple(partitions), election, future), cause)

    async def controlled_shutdown(
        self, broker_id: int, broker_epoch: int, cause: Cause = RequestReceived("ControlledShutdown")
    ) -> list[TopicPartition]:
        """Move leadership away from a broker that is about to stop; the partitions it still leads. Raises ApiError."""
        return await self._request(lambda future: events.ControlledShutdown(broker_id, broker_epoch, future), cause)

    async def register_broker(
        self, broker: BrokerToRegister, connection: Connection, cause: Cause = RequestReceived("RegisterBroker")
    ) -> BrokerRegistration:
        """Register a broker whose request came on this connection; what is stored of it.

        Raises ApiError: NOT_CONTROLLER, INVALID_REQUEST, DUPLICATE_BROKER_REGISTRATION.
        """
        return await self._request(lambda future: events.RegisterBroker(broker, connection, future), cause)

    async def metadata_fetch(
        self, fetch: MetadataFetch, connection: Connection, cause: Cause = RequestReceived("MetadataFetch")
    ) -> MetadataFetched:
        """The part of the metadata log that a broker wants, which shows with it that it is there; errors are in the answer."""
        fetches = None if self.term is None or not self.is_active else self.term.fetches
        return NOT_CONTROLLER if fetches is None else await fetches.fetch(fetch, connection, cause)

    async def alter_partition(
        self, request: messages.AlterPartitionRequest, version: int, cause: Cause = RequestReceived("AlterPartition")
    ) -> messages.AlterPartitionResponse:
        """An AlterPartitionResponse; raises ApiError for a top-level error."""
        return await self._request(lambda future: events.AlterPartition(request, version, future), cause)

    async def list_reassignments(
        self, partitions: Iterable[TopicPartition] | None, cause: Cause = RequestReceived("ListPartitionReassignments")
    ) -> dict[TopicPartition, Assignment]:
        """Those partitions, or all, that are being reassigned; raises ApiError(NOT_CONTROLLER)."""
        named = None if partitions is None else tuple(partitions)
        return await self._request(lambda future: events.ListPartitionReassignments(named, future), cause)

    async def alter_reassignments(
        self, targets: dict[TopicPartition, Ints | None], cause: Cause = RequestReceived("AlterPartitionReassignments")
    ) -> dict[TopicPartition, tuple[ErrorCode, str | None]]:
        """Begin reassignments to these replicas, or (None) cancel them: a code and a text for each. Raises ApiError(NOT_CONTROLLER)."""
        return await self._request(lambda future: events.AlterPartitionReassignments(targets, future), cause)

    async def allocate_producer_ids(
        self, broker_id: int, broker_epoch: int, cause: Cause = RequestReceived("AllocateProducerIds")
    ) -> tuple[int, int]:
        """(first id, count) of a new block; raises ApiError."""
        return await self._request(lambda future: events.AllocateProducerIds(broker_id, broker_epoch, future), cause)

    async def reassign_partitions(
        self,
        targets: Mapping[TopicPartition, Ints],
        throttle: int,
        *,
        remove_throttle: bool = True,
        validate_only: bool = False,
        refused: dict[TopicPartition, Result] | None = None,
        cause: Cause = RequestReceived("ReassignPartitions"),
    ) -> dict[TopicPartition, Result]:
        """Move partitions, throttled to `throttle` bytes per second (`throttles.UNTHROTTLED`: not). Raises ApiError(NOT_CONTROLLER).

        `refused` has what the sender has refused already; what fails besides is put into it as soon as it is known. The results are there
        when the reassignments are recorded.
        """
        failed = {} if refused is None else refused
        return await self._request(
            lambda future: events.ReassignPartitions(targets, throttle, remove_throttle, validate_only, failed, future), cause
        )

    async def alter_throttled_rates(
        self,
        rates: Mapping[int, tuple[int, int]],
        *,
        remove_throttle: bool = True,
        validate_only: bool = False,
        refused: dict[int, Result] | None = None,
        cause: Cause = RequestReceived("AlterInterbrokerThrottledRates"),
    ) -> dict[int, Result]:
        """Throttle brokers to rates in bytes per second, as leaders and as followers. The rest is as in `reassign_partitions`."""
        failed = {} if refused is None else refused
        return await self._request(
            lambda future: events.AlterInterbrokerThrottledRates(rates, remove_throttle, validate_only, failed, future), cause
        )

    async def alter_throttled_replicas(
        self,
        replicas: Mapping[TopicPartition, tuple[Ints | None, Ints | None]],
        *,
        remove_throttle: bool = True,
        validate_only: bool = False,
        refused: dict[TopicPartition, Result] | None = None,
        cause: Cause = RequestReceived("AlterInterbrokerThrottledReplicas"),
    ) -> dict[TopicPartition, Result]:
        """Throttle replicas as leaders and as followers, None being all brokers. The rest is as in `reassign_partitions`."""
        failed = {} if refused is None else refused
        return await self._request(
            lambda future: events.AlterInterbrokerThrottledReplicas(replicas, remove_throttle, validate_only, failed, future), cause
        )

    async def close(self) -> None:
        """Preempt what waits, end the loop, resign. `/controller` goes with the session."""
        self.queue.clear()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self.queue.clear()
        self.election.close()

    async def _request(self, event: Callable[[asyncio.Future[T]], Event], cause: Cause) -> T:
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.put(event(future), cause)
        return await future

    # --- the loop ---

    async def _run(self) -> None:
        while True:
            queued = self.current = await self.queue.get()
            if self._observer is not None:
                self._observer.event_taken(queued, with_others=False)
            if self.term is not None:
                self.term.begin_event(queued)
            await self._guarded(queued)
            self.current = None

    async def _guarded(self, queued: QueuedEvent) -> None:
        """Process one event, and those taken with it; no error goes further."""
        together = [queued.event]
        work = self._logged(queued, together)
        if self._observer is not None:
            work = _observed(self._observer, work)
        await event_faults.contain(self.broker_id, together, work, lost_epoch=self.election.check_lost_epoch)
        if self._observer is not None:
            self._observer.event_ended()

    async def _logged(self, queued: QueuedEvent, together: list[Event]) -> None:
        """Process one event; at DEBUG a line says what came of it."""
        if not log.isEnabledFor(logging.DEBUG):
            await self._process(queued.event, together)
            return
        began = self._clock.monotonic()
        states = self._decided = decision_log.DecidedStates()
        if self.term is not None:
            states.watch(self.term.cluster)
        try:
            await self._process(queued.event, together)
        finally:
            self._decided = None
            states.end()
            line = decision_log.line(queued, len(together) - 1, self._clock.monotonic() - began, states, self.term)
            log.debug("broker %d: %s", self.broker_id, line)

    async def _process(self, event: Event, together: list[Event]) -> None:
        if isinstance(event, ElectionEvent):
            await self.election.process(event)
            return
        term = self.term
        if term is None or not self.is_active:
            events.preempt(event)
        else:
            await event_table.process(term, event, self.queue, together)

    # --- the parts of a term that the loop provides ---

    def _new_term(self, epoch: int) -> Term:
        cluster, options = Cluster(epoch, self._subscriber), self.options
        if self._decided is not None:
            self._decided.watch(cluster)
        encoder = Encoder(
            self.broker_id, options.leader_and_isr_version, options.update_metadata_version, options.stop_replica_version
        )
        store, metadata_log = self._store, None
        if options.registerbroker_enable:
            metadata_log = MetadataLog(epoch, self._clock, options.metadata_log_bytes)
            store = LoggedStore(store, metadata_log)
        sender = RequestSender(cluster, self._channels, encoder, options, self._on_response)
        term = Term(
            self.broker_id, cluster, store, self._channels, sender, options, self.put, self._new_topic_id,
            self._finalized_features, self._steering, self._clock, metadata_log=metadata_log,
            observer=self._observer,
        )
        if self.current is not None:
            term.begin_event(self.current)
        return term

    def _drop_rebalance(self) -> None:
        """A rebalance that waits is of the term that ends; the next term has a timer of its own."""
        self.queue.drop(events.AutoPreferredReplicaLeaderElection)

    def _on_response(self, broker_id: int, sent_by: int, response: BrokerResponse, deleted: frozenset[Partition]) -> None:
        """A response of a broker to a request that event number `sent_by` sent: most need no event."""
        term = self.term
        broker = None if term is None else term.cluster.brokers.get(broker_id)
        if term is None or broker is None:
            return
        event = notifications.event_of_response(term.cluster, broker, response, deleted)
        if event is not None:
            frame = None if self._observer is None else self._observer.response_read(broker_id)
            self.put(event, ResponseReceived(broker_id, sent_by, frame))
