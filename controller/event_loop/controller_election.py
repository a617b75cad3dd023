"""Whether this broker is the active controller: election, fail-over, resignation, and the retries after a failure (controller 3).

`/controller` names the active controller. A broker that finds it missing tries to create it; the one that succeeds has raised the
controller epoch and fails over. While failing over every error makes it delete `/controller` again: nothing acts on a half-loaded
cluster. A broker whose election or fail-over failed, for whatever reason, takes part in elections again after a while, twice as long each
time; after the end of its session it does so in the next one.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import NamedTuple, assert_never

from klamm.controller.event_loop import failover
from klamm.controller.events import catalogue as events
from klamm.controller.events.catalogue import ElectionEvent, Event
from klamm.controller.events.causes import Cause, TimerFired
from klamm.controller.events.observation import Observer
from klamm.controller.options import ControllerOptions
from klamm.controller.phases import ControllerElectionDue
from klamm.controller.propagation.batch import Channels
from klamm.controller.store import Store
from klamm.controller.term.term import Term, reach
from klamm.controller.values import ControllerEpoch, ControllerMoved, StoreLost, StoreRefused
from klamm.protocol.nouns import next_epoch
from klamm.seams.clock import Clock, Timer
from klamm.seams.steering import Steering

log = logging.getLogger("klamm.controller")

FIRST_REBALANCE_SECONDS = 5
"""After an election the first look at the leaders' balance comes this soon."""

FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS = 0.1, 12.8
"""How long a broker takes part in no election after an election or a fail-over that failed: the first time, and at most."""


class SeenController(NamedTuple):
    """The broker that `/controller` named when it was read last and there was one, and the controller epoch just before that."""

    id: int
    epoch: int

    def before(self, epoch: int) -> int:
        """The controller with the epoch before this one; -1 where it was not seen: the epoch tells that there was another one since."""
        return self.id if epoch == next_epoch(self.epoch) else -1


class ControllerElection:
    """One broker's part in the election of the controller. `term` is there while this broker is elected."""

    def __init__(
        self,
        broker_id: int,
        store: Store,
        channels: Channels,
        options: ControllerOptions,
        *,
        register_broker: Callable[[], Awaitable[None]],
        new_term: Callable[[int], Term],
        put: Callable[[Event, Cause], None],
        clock: Clock,
        steering: Steering | None,
        resigned: Callable[[], None],
        observer: Observer | None = None,
    ) -> None:
        self.active_id = -1
        self.term: Term | None = None
        self._broker_id = broker_id
        self._store = store
        self._channels = channels
        self.options = options
        self._register_broker = register_broker
        self._new_term = new_term
        self._put = put
        self._clock = clock
        self._steering = steering
        self._observer = observer
        self._resigned = resigned
        self._seen = SeenController(-1, 0)
        self._retry: Timer | None = None
        self._retry_seconds: float = FIRST_RETRY_SECONDS

    @property
    def is_active(self) -> bool:
        """Whether this broker is the controller, as far as it knows. A `/controller` left over from a failed term does not count."""
        return self.term is not None and self.active_id == self._broker_id

    async def process(self, event: ElectionEvent) -> None:
        """Process an event that concerns every broker, controller or not. If it fails, this broker takes part in an election later."""
        try:
            await self._process(event)
        except Exception as problem:
            if self.term is None and self._retry is None:
                self._try_again_later(f"could not process {type(event).__name__}: {problem!r}")
            raise

    async def _process(self, event: ElectionEvent) -> None:
        match event:
            case events.Startup():
                await self._store.watch_controller()
                await self._elect()
            case events.ControllerChange():
                await self.maybe_resign()
                if self.active_id == -1:  # created and deleted before the watch was armed again: no other event will come
                    await self._elect()
            case events.Reelect():
                await self.maybe_resign()
                await self._elect()
            case events.Expire(begun):
                if not begun.done():
                    begun.set_result(None)
                self.resign()
                self._drop_retry()  # RegisterBrokerAndReelect follows in the next session
            case events.RegisterBrokerAndReelect():
                await self._register_broker()
                await self.maybe_resign()
                await self._elect()
            case events.OptionsChanged(options):
                self.options = options
                if self.term is not None:
                    self.term.options_changed(options)
            case _:
                assert_never(event)

    async def _look(self) -> None:
        """Read who `/controller` names, and the controller epoch before that, where it matters who had which."""
        epoch = await self._store.controller_epoch() if self.options.registerbroker_enable else 0
        self.active_id = await self._store.controller_id()
        if self.active_id != -1:
            self._seen = SeenController(self.active_id, epoch)

    async def maybe_resign(self) -> None:
        """Read `/controller`, and resign if it does not name this broker any more."""
        was_active = self.is_active
        await self._store.watch_controller()
        await self._look()
        if was_active and not self.is_active:
            self._end_term()

    async def check_lost_epoch(self) -> None:
        """A write was refused for its controller epoch: resign if `/controller` names another broker."""
        try:
            await self.maybe_resign()
        except StoreLost as e:
            log.warning("broker %d: the ZooKeeper session ended: %s", self._broker_id, e)
        except StoreRefused as e:
            log.error("broker %d: /controller cannot be read: %s", self._broker_id, e)

    def resign(self) -> None:
        """End the term, if there is one. Which broker is the controller is not known any more."""
        self.active_id = -1
        self._end_term()

    def close(self) -> None:
        """Resign, and take part in no election any more. `/controller` goes with the session."""
        self.resign()
        self._drop_retry()

    def _drop_retry(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None

    async def _elect(self) -> None:
        await self._look()
        if self.active_id == self._broker_id and self.term is None and await self._store.end_leftover(self._broker_id):
            await self._look()
        if self.active_id != -1:
            log.debug("broker %d: the controller is broker %d", self._broker_id, self.active_id)
            return
        if self._retry is not None:
            return
        if self._steering is not None:
            await reach(self._steering, ControllerElectionDue(self._broker_id), self._broker_id, self._observer)
        try:
            epoch = await self._store.register_controller(
                self._broker_id, self._clock.now_ms(), shows_session=self.options.registerbroker_enable
            )
        except ControllerMoved:
            await self.maybe_resign()
            return
        except StoreRefused as e:
            self._try_again_later(f"cannot be elected: {e}")
            return
        self.active_id = self._broker_id
        log.info("broker %d is elected controller with epoch %d", self._broker_id, epoch.epoch)
        await self._fail_over(epoch)

    async def _fail_over(self, epoch: ControllerEpoch) -> None:
        """Fail over. Whatever keeps it from being complete, no term is left behind."""
        began = self._clock.monotonic()
        try:
            self.term = self._new_term(epoch.epoch)
            self.term.former_controller = self._seen.before(epoch.epoch)
            await failover.fail_over(self.term)
        except StoreLost:
            self.resign()
            raise
        except ControllerMoved as e:
            try:
                await self.maybe_resign()
            finally:
                if self.term is not None:  # the epoch was raised, but `/controller` names this broker still, or cannot be read
                    await self._delete_controller(str(e))
            return
        except StoreRefused as e:
            await self._delete_controller(str(e))
            return
        except Exception as e:
            log.exception("broker %d: controller fail-over failed", self._broker_id)
            await self._delete_controller(repr(e))
            return
        self._retry_seconds = FIRST_RETRY_SECONDS
        cluster = self.term.cluster
        took_s = self._clock.monotonic() - began
        log.info(
            "broker %d is the active controller after %.3f s: brokers %s, %d topics, %d partitions",
            self._broker_id, took_s, sorted(cluster.brokers), len(cluster.topics), sum(1 for _ in cluster.partitions()),
        )
        if self.options.auto_leader_rebalance_enable:
            self.term.schedule_rebalance(FIRST_REBALANCE_SECONDS)

    async def _delete_controller(self, why: str) -> None:
        """Deleting `/controller` makes all brokers elect again; where that fails, it is a leftover for the next election."""
        self._try_again_later(f"could not complete the fail-over: {why}")
        try:
            if await self._store.controller_id() == self._broker_id:
                await self._store.delete_controller()
        except (ControllerMoved, StoreRefused) as e:
            log.debug("broker %d: /controller is not deleted: %s", self._broker_id, e)
        finally:
            self.resign()

    def _end_term(self) -> None:
        self._resigned()
        self._store.reset_fence()
        if self.term is not None:
            log.info("broker %d resigns (epoch %d)", self._broker_id, self.term.cluster.epoch)
            self.term.end()
            self.term = None

    def _try_again_later(self, why: str) -> None:
        """Take part in no election for a while, so that brokers that all fail do not elect each other in a tight loop."""
        seconds = self._retry_seconds
        self._retry_seconds = min(2 * seconds, LAST_RETRY_SECONDS)
        log.error("broker %d %s; it takes part in an election again in %g s", self._broker_id, why, seconds)
        self._retry = self._clock.call_later(seconds, self._try_again)

    def _try_again(self) -> None:
        self._retry = None
        self._put(events.Reelect(), TimerFired("election retry"))
