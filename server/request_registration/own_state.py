"""The state of a broker that registers with the controller, as the broker itself knows it (controller 25).

It is FENCED from the response to its registration on, and ONLINE when it applies the UnfenceBroker record with its id and epoch (RREG-7).
The log can fence it again. An old record does not unfence it while the response says that it is fenced now. If the log begins after the
UnfenceBroker record, the broker is online when it has applied the whole log, the log does not fence it, and the controller says that it is
online (RREG-22).

A broker serves only while it knows that it cannot have been fenced: it holds a lease (RREG-22, RREG-24). Two things extend the lease, each
counted from the time when the request was sent:

* A response that counts as a heartbeat, for `broker.session.timeout.ms`: the controller counts from the arrival of the fetch.
* A read of its own registration in ZooKeeper that shows neither that it is fenced nor that it is silent, for a third of that: the
  controller first notes the silence there and fences the broker this much later, or more.

So a broker that is cut off fences itself before another broker leads in its place, and a broker whose controller is dead or frozen
continues to serve.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from klamm.broker.metadata_view import ViewedBroker
from klamm.controller.broker_sessions import NOTICE_SHARE
from klamm.controller.values import BrokerRegistration, BrokerState
from klamm.protocol import messages
from klamm.protocol.records.metadata_records import MetadataRecord
from klamm.seams.clock import Clock, Timer
from klamm.server.ground.identity import BrokerIdentity

log = logging.getLogger(__name__)

SERVING = frozenset({BrokerState.ONLINE, BrokerState.STOPPING})


class OwnState:
    """The own state of one broker. `on_serving` is called with True when it begins to serve clients, with False when it stops."""

    def __init__(self, identity: BrokerIdentity, session_timeout_ms: int, on_serving: Callable[[bool], None], clock: Clock) -> None:
        self.state = BrokerState.OFFLINE
        self.notice_s = session_timeout_ms / 1000 / NOTICE_SHARE
        """Minimum time (s) between the controller's note that a broker is silent and its fencing."""
        self._identity = identity
        self._session_timeout_s = session_timeout_ms / 1000
        self._on_serving = on_serving
        self._clock = clock
        self._lease_until = 0.0
        self._timer: Timer | None = None

    @property
    def serves(self) -> bool:
        """Whether this broker serves clients."""
        return self.state in SERVING

    @property
    def remaining_s(self) -> float:
        """Seconds until the end of the lease; negative after it."""
        return self._lease_until - self._clock.monotonic()

    def registered(self, broker_epoch: int) -> None:
        """The controller has registered this broker."""
        self._identity.broker_epoch = broker_epoch
        self._become(BrokerState.FENCED, f"registered with epoch {broker_epoch}")

    def offline(self, reason: str) -> None:
        """The broker is not registered any more."""
        self._become(BrokerState.OFFLINE, reason)

    def heartbeat(self, sent: float) -> None:
        """A fetch that was sent at this time (of the clock) has a response that counts as a heartbeat."""
        self._lease_until = max(self._lease_until, sent + self._session_timeout_s)

    def own_heartbeat(self, sent: float, session_until: float) -> None:
        """Like `heartbeat`, if this broker is the controller. When its ZooKeeper session ends, the next controller fences it at once. The
        session lasts at least until `session_until`, so the lease ends then at the latest, even if it was longer before.
        """
        self._lease_until = min(sent + self._session_timeout_s, session_until)

    def session_expired(self) -> None:
        """The ZooKeeper session in which this broker was the controller has expired."""
        self._fence("it was the controller, and its ZooKeeper session has expired")

    def stored(self, registration: BrokerRegistration | None, sent: float) -> None:
        """A read of ZooKeeper, sent at `sent`, returned this registration of the broker. It can extend a lease, but not begin one."""
        if registration is None or registration.epoch != self._identity.broker_epoch:
            return
        if self.serves and registration.state in SERVING and not registration.is_silent:
            self._lease_until = max(self._lease_until, sent + self.notice_s)

    def apply(self, record: MetadataRecord) -> None:
        """Apply a record about any broker to the state of this one."""
        own_id, own_epoch = self._identity.broker_id, self._identity.broker_epoch
        match record:
            case messages.UnfenceBrokerRecord(id=broker_id, epoch=epoch) if (broker_id, epoch) == (own_id, own_epoch):
                self._online("unfenced by the controller")
            case messages.FenceBrokerRecord(id=broker_id, epoch=epoch) if (broker_id, epoch) == (own_id, own_epoch):
                self._fence("fenced by the controller")
            case messages.RegisterBrokerRecord(broker_id=broker_id, broker_epoch=epoch, fenced=fenced) if broker_id == own_id:
                if epoch != own_epoch or fenced:
                    self._fence(f"in the log its id is fenced, with epoch {epoch}")
            case messages.UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=epoch) if (broker_id, epoch) == (own_id, own_epoch):
                self.offline("the controller has taken it offline")
            case messages.BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=epoch, in_controlled_shutdown=1):
                if (broker_id, epoch) == (own_id, own_epoch) and self.state is BrokerState.ONLINE:
                    self._become(BrokerState.STOPPING, "its leaders are moved away")
            case _:
                pass

    def caught_up(self, viewed: ViewedBroker | None, said: int) -> None:
        """The whole log is applied. `viewed` is this broker according to the log, `said` its state in the response."""
        if viewed is not None and viewed.epoch == self._identity.broker_epoch and not viewed.fenced and said == BrokerState.ONLINE:
            self._online("online according to the log and to the controller")

    def behind(self, said: int) -> None:
        """A response is applied, but the log has more records. `said` is the state in the response. If it is FENCED, the record that
        fences this broker is still to come; the broker does not serve until then, even if an older record unfences it.
        """
        if said == BrokerState.FENCED:
            self._fence("the controller has fenced it")

    def close(self) -> None:
        """Cancel the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _online(self, reason: str) -> None:
        if self.state is not BrokerState.FENCED:
            return
        if self.remaining_s <= 0:
            log.info("broker %d stays fenced: the response that unfences it came too late", self._identity.broker_id)
            return
        self._become(BrokerState.ONLINE, reason)
        if self._timer is None:
            self._timer = self._clock.call_later(self.remaining_s, self._lease_ends)

    def _fence(self, reason: str) -> None:
        if self.serves:
            self._become(BrokerState.FENCED, reason)

    def _lease_ends(self) -> None:
        """The lease may have ended: fence the broker, or wait for the extended lease (RREG-22)."""
        self._timer = None
        if not self.serves:
            return
        if self.remaining_s > 0:
            self._timer = self._clock.call_later(self.remaining_s, self._lease_ends)
        else:
            self._fence(
                f"fences itself: no response from the controller for {self._session_timeout_s:g} s, and not online in ZooKeeper"
            )

    def _become(self, state: BrokerState, reason: str) -> None:
        served = self.serves
        if state is not self.state:
            log.info("broker %d: %s → %s: %s", self._identity.broker_id, self.state.name, state.name, reason)
        self.state = state
        if self.serves != served:
            self._on_serving(self.serves)
