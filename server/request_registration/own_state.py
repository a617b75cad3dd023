"""The state of a broker that registers with the controller, as the broker itself knows it (controller 25).

It is FENCED from the answer to its registration on, and ONLINE when it applies the UnfenceBroker record with its id and epoch (RREG-7).
The log can fence it again; an old part of the log does not unfence it while the answer says that it is fenced now. A log that begins after
its UnfenceBroker record has none: there the broker is online when it has everything, the log does not fence it, and the controller says so
(RREG-22).

A broker serves as long as it knows that nobody can have fenced it (RREG-22, RREG-24). Two things tell it so, each for a time that begins
when the request was sent. An answer that counts as a heartbeat does for `broker.session.timeout.ms`: the controller counts from the
arrival of the fetch. A read of its own registration that says neither that it is fenced nor that it is silent does for a third of that:
the controller fences nobody sooner after it has noted the silence. So a broker that is cut off fences itself before anybody else leads in
its place, and a broker whose controller is dead or frozen goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from klamm.broker.metadata_view import ViewedBroker
from klamm.controller.registrations.broker_sessions import NOTICE_SHARE
from klamm.controller.values import BrokerRegistration, BrokerState
from klamm.protocol import messages
from klamm.protocol.clock import Clock, Timer
from klamm.protocol.metadata_records import MetadataRecord
from klamm.server.identity import BrokerIdentity

log = logging.getLogger(__name__)

SERVING = frozenset({BrokerState.ONLINE, BrokerState.STOPPING})


class OwnState:
    """`on_serving` is called with true or false each time this broker begins or ends to serve clients."""

    def __init__(self, identity: BrokerIdentity, session_timeout_ms: int, on_serving: Callable[[bool], None], clock: Clock) -> None:
        self.state = BrokerState.OFFLINE
        self.notice_s = session_timeout_ms / 1000 / NOTICE_SHARE
        """The controller fences a broker so long after it has noted that it is silent, at the earliest."""
        self._identity = identity
        self._session_timeout_s = session_timeout_ms / 1000
        self._on_serving = on_serving
        self._clock = clock
        self._lease_until = 0.0
        self._timer: Timer | None = None

    @property
    def serves(self) -> bool:
        """Whether clients are served."""
        return self.state in SERVING

    @property
    def remaining_s(self) -> float:
        """How long the lease lasts still; negative when it is over."""
        return self._lease_until - self._clock.monotonic()

    def registered(self, broker_epoch: int) -> None:
        """The controller has registered this broker."""
        self._identity.broker_epoch = broker_epoch
        self._become(BrokerState.FENCED, f"registered with epoch {broker_epoch}")

    def offline(self, reason: str) -> None:
        """The broker is not registered any more."""
        self._become(BrokerState.OFFLINE, reason)

    def heartbeat(self, sent: float) -> None:
        """A fetch that was sent at this time, on the clock's scale, has an answer that counts."""
        self._lease_until = max(self._lease_until, sent + self._session_timeout_s)

    def own_heartbeat(self, sent: float, session_until: float) -> None:
        """The same of a fetch from the controller in this very broker. The next controller fences it at once when the ZooKeeper session is
        over, and that lasts until `session_until` at least; so the lease ends then, whatever was granted before.
        """
        self._lease_until = min(sent + self._session_timeout_s, session_until)

    def session_expired(self) -> None:
        """The ZooKeeper session in which this broker was the controller is over."""
        self._fence("it was the controller, and its ZooKeeper session is over")

    def stored(self, registration: BrokerRegistration | None, sent: float) -> None:
        """What ZooKeeper had of this broker at some moment after `sent`. It prolongs a lease, and never begins one."""
        if registration is None or registration.epoch != self._identity.broker_epoch:
            return
        if self.serves and registration.state in SERVING and not registration.is_silent:
            self._lease_until = max(self._lease_until, sent + self.notice_s)

    def apply(self, record: MetadataRecord) -> None:
        """A record about a broker was applied."""
        own_id, own_epoch = self._identity.broker_id, self._identity.broker_epoch
        match record:
            case messages.UnfenceBrokerRecord(id=broker_id, epoch=epoch) if (broker_id, epoch) == (own_id, own_epoch):
                self._online("unfenced by the controller")
            case messages.FenceBrokerRecord(id=broker_id, epoch=epoch) if (broker_id, epoch) == (own_id, own_epoch):
                self._fence("fenced by the controller")
            case messages.RegisterBrokerRecord(broker_id=broker_id, broker_epoch=epoch, fenced=fenced) if broker_id == own_id:
                if epoch != own_epoch or fenced:
                    self._fence(f"the log has its id fenced, with epoch {epoch}")
            case messages.UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=epoch) if (broker_id, epoch) == (own_id, own_epoch):
                self.offline("the controller has taken it offline")
            case messages.BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=epoch, in_controlled_shutdown=1):
                if (broker_id, epoch) == (own_id, own_epoch) and self.state is BrokerState.ONLINE:
                    self._become(BrokerState.STOPPING, "its leaders are moved away")
            case _:
                pass

    def caught_up(self, viewed: ViewedBroker | None, said: int) -> None:
        """Everything up to the end of the log is applied: `viewed` is what the log has of this broker, `said` the state in the answer."""
        if viewed is not None and viewed.epoch == self._identity.broker_epoch and not viewed.fenced and said == BrokerState.ONLINE:
            self._online("online in the log and to the controller")

    def behind(self, said: int) -> None:
        """An answer is applied, but the log goes on behind it; `said` as above. Where the controller says FENCED, the record that fences
        this broker is still to come, so nobody is served until then, whatever an older record says.
        """
        if said == BrokerState.FENCED:
            self._fence("the controller has fenced it")

    def close(self) -> None:
        """Forget the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _online(self, reason: str) -> None:
        if self.state is not BrokerState.FENCED:
            return
        if self.remaining_s <= 0:
            log.info("broker %d stays fenced: the answer that unfences it came too late", self._identity.broker_id)
            return
        self._become(BrokerState.ONLINE, reason)
        if self._timer is None:
            self._timer = self._clock.call_later(self.remaining_s, self._lease_ends)

    def _fence(self, reason: str) -> None:
        if self.serves:
            self._become(BrokerState.FENCED, reason)

    def _lease_ends(self) -> None:
        """RREG-22."""
        self._timer = None
        if not self.serves:
            return
        if self.remaining_s > 0:
            self._timer = self._clock.call_later(self.remaining_s, self._lease_ends)
        else:
            self._fence(
                f"fences itself: no answer of the controller for {self._session_timeout_s:g} s, and none of ZooKeeper that it is online"
            )

    def _become(self, state: BrokerState, reason: str) -> None:
        served = self.serves
        if state is not self.state:
            log.info("broker %d: %s → %s: %s", self._identity.broker_id, self.state.name, state.name, reason)
        self.state = state
        if self.serves != served:
            self._on_serving(self.serves)
