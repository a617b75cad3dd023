"""Brokers register with the controller instead of in ZooKeeper (RegisterBroker, controller 25).

The controller writes what such a broker says, and its state, to `/cluster/brokers/<id>`. A broker that is ONLINE or STOPPING is in
`cluster.brokers` like one of `/brokers/ids`; one that is FENCED is in `cluster.fenced` and gets UpdateMetadata alone. A broker with a
znode in `/brokers/ids` is never one of these, whatever registered under its id (RREG-14): the registration is FENCED or OFFLINE then, and
counts again when that znode goes.
Registrations that wait side by side are written together.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Collection, Iterable, Sequence

from klamm.controller.brokers import broker_states
from klamm.controller.brokers import startup_and_failure as brokers
from klamm.controller.cluster import Cluster
from klamm.controller.events import catalogue as events
from klamm.controller.phases import BrokerStatesStored
from klamm.controller.states import REGISTERING_MOVES
from klamm.controller.term.term import Term
from klamm.controller.values import LONGEST_SECRET, BrokerRegistration, BrokerState, BrokerToRegister
from klamm.protocol.errors import ErrorCode
from klamm.protocol.nouns import SecurityProtocol

log = logging.getLogger("klamm.controller")

_HOST = re.compile(r"[0-9a-zA-Z\-%._:]+")
_LISTENER = re.compile(r"[^\s:/]+")

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")

LONGEST_REGISTRATION = 2**15 - 1
"""Bytes of all names that a broker may register with, listeners in capitals: they are sent to every broker, and no string can be longer."""


MOST_REFUSED = 1000
"""Number of refused ids that are remembered with the reason, which is logged once and not for each try."""


def why_invalid(broker: BrokerToRegister, channel_listener: str) -> str | None:
    """What is wrong with a registration, None if nothing is (RREG-3). The controller reaches brokers at `channel_listener`."""
    if broker.id < 0:
        return f"broker id {broker.id} is negative"
    if not broker.endpoints:
        return "it has no endpoint"
    names = [name for e in broker.endpoints for name in (e.listener.upper(), e.host)]
    if sum(len(name.encode()) for name in (*names, broker.rack or "")) > LONGEST_REGISTRATION:
        return f"its names have more than {LONGEST_REGISTRATION} bytes"
    if len(broker.secret) > LONGEST_SECRET:
        return f"its secret has more than {LONGEST_SECRET} bytes"
    if broker.rack is not None and (not broker.rack or _CONTROL.search(broker.rack)):
        return f"{broker.rack!r} is no rack: it is empty, or has control characters"
    listeners: set[str] = set()
    for endpoint in broker.endpoints:
        listener = endpoint.listener.upper()
        if _LISTENER.fullmatch(listener) is None:
            return f"{endpoint.listener!r} is no name of a listener"
        if listener in listeners:
            return f"listener {listener} is named twice"
        if _HOST.fullmatch(endpoint.host) is None:
            return f"{endpoint.host!r} is no host"
        if not 1 <= endpoint.port <= 65535:
            return f"{endpoint.port} is no port"
        if endpoint.security_protocol not in tuple(SecurityProtocol):
            return f"{endpoint.security_protocol} is no security protocol"
        listeners.add(listener)
    if channel_listener not in listeners:
        named = ", ".join(sorted(listeners))
        return f"it has no endpoint for listener {channel_listener}, where the controller reaches brokers, only for {named}"
    return None


async def register(term: Term, requests: Sequence[events.RegisterBroker]) -> None:
    """Brokers want to register. Every request gets its response; of several from one broker each is handled after the one before."""
    waiting = list(requests)
    while waiting:
        first = {request.broker.id: request for request in reversed(waiting)}
        await _register(term, list(first.values()))
        waiting = [request for request in waiting if request is not first[request.broker.id]]


async def _register(term: Term, requests: Sequence[events.RegisterBroker]) -> None:
    """Register brokers, each at most once."""
    cluster = term.cluster
    accepted = {request.broker.id: request for request in await _admitted(term, requests)}
    bounced = [b for b in sorted(accepted) if b in cluster.brokers]
    written = await broker_states.write(term, [_next(cluster, accepted[b].broker) for b in sorted(accepted)])
    for b, registration in written.items():
        term.sessions.began(b, accepted[b].connection)
        term.refused_registrations.pop(b, None)
        if not accepted[b].future.done():
            accepted[b].future.set_result(registration)
    for b in accepted.keys() - written.keys():
        events.refuse(accepted[b], ErrorCode.UNKNOWN_SERVER_ERROR, "ZooKeeper did not take the registration")
    if not written:
        return
    await term.reach(lambda: BrokerStatesStored(cluster.epoch, tuple(written), BrokerState.FENCED))
    bounced = [b for b in bounced if b in written]
    if bounced:
        cluster.brokers_unregistered(bounced)
    broker_states.fence(term, [registration.broker for registration in written.values()])
    if bounced:
        await brokers.on_failure(term, bounced)
    brokers.send_everything(term, written)


async def _admitted(term: Term, requests: Sequence[events.RegisterBroker]) -> list[events.RegisterBroker]:
    """Those that may register; the others have a response (RREG-3)."""
    valid = []
    for request in requests:
        problem = why_invalid(request.broker, term.options.channel_listener)
        if problem is None:
            valid.append(request)
        else:
            _refuse(term, request, ErrorCode.INVALID_REQUEST, problem)
    elsewhere = await broker_states.in_zookeeper(term, [request.broker.id for request in valid])
    admitted = []
    for request in valid:
        b = request.broker.id
        if b in elsewhere:
            _refuse(term, request, ErrorCode.DUPLICATE_BROKER_REGISTRATION, f"broker {b} is registered in ZooKeeper")
        elif term.sessions.is_held_by_another(b, request.connection):
            _refuse(term, request, ErrorCode.DUPLICATE_BROKER_REGISTRATION, f"broker {b} is registered, and its connection is open")
        else:
            admitted.append(request)
    return admitted


def _refuse(term: Term, request: events.RegisterBroker, code: ErrorCode, reason: str) -> None:
    """Respond with an error, and log it, unless the last try of this broker was refused for the same reason."""
    events.refuse(request, code, reason)
    b, refused = request.broker.id, term.refused_registrations
    if refused.get(b) != reason:
        if len(refused) >= MOST_REFUSED:
            refused.clear()
        refused[b] = reason
        log.warning("the registration of broker %d from %s is refused: %s, %s", b, request.connection.host, code.name, reason)


def _next(cluster: Cluster, broker: BrokerToRegister) -> BrokerRegistration:
    """What is stored of a registration: its epoch is one more than that of the one before."""
    before = cluster.registrations.get(broker.id)
    assert (None if before is None else before.state) in REGISTERING_MOVES[BrokerState.FENCED]
    endpoints = tuple(endpoint._replace(listener=endpoint.listener.upper()) for endpoint in broker.endpoints)
    epoch = 1 if before is None else before.epoch + 1
    secret_sha256 = hashlib.sha256(broker.secret).hexdigest() if broker.secret else ""
    return BrokerRegistration(broker.id, epoch, BrokerState.FENCED, endpoints, broker.rack, secret_sha256=secret_sha256)


async def ended(term: Term) -> Collection[int]:
    """The former controller, if its ZooKeeper session is over: its broker has fenced itself before that, if it was alive (RREG-13)."""
    former = term.former_controller
    if not term.options.registerbroker_enable or former in (-1, term.broker_id) or await term.store.shows_session(former):
        return ()
    return (former,)


def loaded(term: Term, registrations: Iterable[BrokerRegistration], in_zookeeper: Collection[int], ended: Collection[int] = ()) -> None:
    """A new controller has read the registrations; all brokers but those that are OFFLINE have a full session time-out (RREG-13), and those
    that have ended none.

    For a broker that is registered in ZooKeeper too, the registration in ZooKeeper counts.
    """
    cluster, listener = term.cluster, term.options.channel_listener
    stored = sorted(registrations)
    if not stored:
        return
    cluster.registrations_changed(stored)
    running: list[BrokerRegistration] = []
    fenced: list[BrokerRegistration] = []
    for registration in stored:
        if registration.state is BrokerState.OFFLINE:
            continue
        term.sessions.began(registration.id, None, is_noted=registration.is_silent)
        if registration.id in in_zookeeper:
            continue
        is_running = cluster.runs_by_request(registration.id) and registration.broker.endpoint(listener) is not None
        is_running = is_running and registration.id not in ended
        (running if is_running else fenced).append(registration)
    cluster.brokers_registered(registration.broker for registration in running)
    for registration in running:
        if registration.state is BrokerState.STOPPING:
            cluster.shutdown_began(registration.id)
    cluster.brokers_fenced(registration.broker for registration in fenced)
    for registration in (*running, *fenced):
        brokers.open_channel(term, registration.broker)


async def settle(term: Term, in_zookeeper: Collection[int]) -> None:
    """Write of brokers that cannot run by request that they do not, for a new controller that has loaded all.

    These are registered in ZooKeeper too, or have no endpoint where this controller dials, or their session has ended.
    """
    cluster = term.cluster
    claims = [b for b in sorted(cluster.registrations) if cluster.runs_by_request(b)]
    wrong = [b for b in claims if b in in_zookeeper or b not in cluster.brokers]
    if not wrong:
        return
    log.warning(
        "brokers %s do not run by request: in ZooKeeper, without an endpoint for %s, or the former controller whose session is over",
        wrong, term.options.channel_listener,
    )
    stopping = [b for b in wrong if cluster.registrations[b].state is BrokerState.STOPPING]
    online = [b for b in wrong if b not in stopping]
    if online:
        await broker_states.move(term, online, BrokerState.FENCED)
    if stopping:
        ended = await broker_states.move(term, stopping, BrokerState.OFFLINE)
        broker_states.forget(term, ended)
        for b in ended:
            term.sessions.ended(b)
