"""States of brokers that registered with the controller: who comes online, who is fenced, who stops (RREG-7 to RREG-11, RREG-14).

A new state is written first. What took hold is in `cluster.registrations`, and what follows from it is the same as for brokers of
`/brokers/ids`: onBrokerStartup, onBrokerFailure, the steps of a controlled shutdown.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Sequence

from klamm.controller.broker_sessions import Silence
from klamm.controller.brokers import controlled_shutdown as shutdown
from klamm.controller.brokers import startup_and_failure as brokers
from klamm.controller.phases import BrokerStatesStored
from klamm.controller.states import BROKER_MOVES
from klamm.controller.term.term import Term
from klamm.controller.values import Broker, BrokerRegistration, BrokerState, StoreRefused, WriteOutcome
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.nouns import TopicPartition

log = logging.getLogger("klamm.controller")

_RUNNING = (BrokerState.ONLINE, BrokerState.STOPPING)


async def write(term: Term, registrations: Sequence[BrokerRegistration]) -> dict[int, BrokerRegistration]:
    """Store registrations; those that took hold, by broker, are known to the cluster."""
    if not registrations:
        return {}
    written = {}
    for registration, outcome in zip(registrations, await term.store.write_registrations(registrations), strict=True):
        if outcome is WriteOutcome.OK:
            silent = ", but silent" if registration.is_silent else ""
            log.info("broker %d with epoch %d is %s%s", registration.id, registration.epoch, registration.state.name, silent)
            written[registration.id] = registration
        else:
            log.error("the registration of broker %d is not stored: %s", registration.id, outcome.name)
    term.cluster.registrations_changed(written.values())
    return written


async def move(term: Term, broker_ids: Iterable[int], target: BrokerState) -> dict[int, BrokerRegistration]:
    """Store a state for those brokers that may move to it; the registrations that took hold. An illegal move is refused and logged."""
    moving = []
    for b in sorted(broker_ids):
        registration = term.cluster.registrations.get(b)
        if registration is not None and registration.state in BROKER_MOVES[target]:
            moving.append(registration._replace(state=target, is_silent=registration.is_silent and target in _RUNNING))
        else:
            before = "not registered" if registration is None else registration.state.name
            log.error("broker %d is %s and does not become %s", b, before, target.name)
    written = await write(term, moving)
    if written:
        await term.reach(lambda: BrokerStatesStored(term.cluster.epoch, tuple(written), target))
    return written


async def in_zookeeper(term: Term, broker_ids: Sequence[int]) -> set[int]:
    """Those of these brokers that are registered in `/brokers/ids`, as far as it can be read or was until now."""
    nodes = await asyncio.gather(*(term.store.broker(b) for b in broker_ids))
    cluster = term.cluster
    return {
        b
        for b, node in zip(broker_ids, nodes, strict=True)
        if node is not None or (b in cluster.brokers and not cluster.runs_by_request(b))
    }


def fence(term: Term, fenced: Collection[Broker]) -> None:
    """These brokers get UpdateMetadata alone from now on, through new channels: what waited for them is dropped."""
    for broker in fenced:
        term.channels.remove_broker(broker.id)
    term.cluster.brokers_fenced(fenced)
    for broker in fenced:
        if broker.endpoint(term.options.channel_listener) is None:
            log.error("broker %d has no endpoint for listener %s: it stays fenced", broker.id, term.options.channel_listener)
        brokers.open_channel(term, broker)


def forget(term: Term, broker_ids: Iterable[int]) -> None:
    """These fenced brokers get nothing any more."""
    gone = [b for b in broker_ids if b in term.cluster.fenced]
    if gone:
        term.cluster.brokers_unfenced(gone)
    for b in gone:
        term.channels.remove_broker(b)


async def on_caught_up(term: Term, caught_up: Iterable[tuple[int, int]]) -> None:
    """Fenced brokers (id, epoch) had the whole metadata log when their requests arrived: they come online (RREG-7)."""
    cluster = term.cluster
    ready = []
    for b, epoch in sorted(set(caught_up)):
        registration = cluster.registrations.get(b)
        if registration is None or (registration.epoch, registration.state) != (epoch, BrokerState.FENCED):
            continue
        if term.sessions.is_live(b) and registration.broker.endpoint(term.options.channel_listener) is not None:
            ready.append(b)
    if not ready:
        return
    elsewhere = await in_zookeeper(term, ready)
    online = await move(term, [b for b in ready if b not in elsewhere], BrokerState.ONLINE)
    if not online:
        return
    for b, registration in online.items():
        if b not in cluster.fenced:
            brokers.open_channel(term, registration.broker)
    cluster.brokers_unfenced(online)
    cluster.brokers_registered(registration.broker for registration in online.values())
    await brokers.on_startup(term, sorted(online))


async def on_silence(term: Term) -> None:
    """Brokers were not heard for a session time-out: they are fenced, those that were stopping are gone (RREG-8, RREG-10). Before that it
    is noted that they are silent, and taken back when they are heard again (RREG-24).
    """
    sessions, registrations = term.sessions, term.cluster.registrations
    try:
        silence = sessions.silence()
        await _note(term, silence)
        noted = [b for b in silence.over if b in registrations and registrations[b].is_silent]
        online = [b for b in noted if registrations[b].state is BrokerState.ONLINE]
        stopping = [b for b in noted if registrations[b].state is BrokerState.STOPPING]
        if noted:
            log.warning("no metadata fetch of brokers %s for %g s", noted, sessions.timeout_s)
        await _leave(term, online, stopping)
        sessions.closed(b for b in silence.over if b not in registrations or registrations[b].state not in _RUNNING)
        forget(term, silence.to_forget)
        sessions.forgotten(silence.to_forget)
    finally:
        sessions.watch()


async def _note(term: Term, silence: Silence) -> None:
    """Store which of the brokers that run are silent now, and which are not any more. Of others there is nothing to store."""
    registrations, sessions = term.cluster.registrations, term.sessions
    again = [b for b in silence.heard_again if b in registrations and registrations[b].is_silent]
    await write(term, [registrations[b]._replace(is_silent=False) for b in again])
    candidates = [*silence.to_note, *(b for b in silence.over if b in registrations and not registrations[b].is_silent)]
    running = [b for b in candidates if b in registrations and registrations[b].state in _RUNNING]
    written = await write(term, [registrations[b]._replace(is_silent=True) for b in sorted(running)])
    sessions.noted([b for b in candidates if b in written or b not in running])


async def _leave(term: Term, to_fence: Collection[int], to_end: Collection[int]) -> None:
    """Online brokers become fenced, stopping ones go offline; leaders on them are elected elsewhere."""
    fenced = await move(term, to_fence, BrokerState.FENCED) if to_fence else {}
    ended = await move(term, to_end, BrokerState.OFFLINE) if to_end else {}
    gone = sorted((*fenced, *ended))
    if not gone:
        return
    for b in ended:
        term.sessions.ended(b)
        term.channels.remove_broker(b)
    term.cluster.brokers_unregistered(gone)
    if fenced:
        fence(term, [registration.broker for registration in fenced.values()])
    await brokers.on_failure(term, gone)


async def on_shutdown_wanted(term: Term, broker_id: int, broker_epoch: int) -> bool:
    """A broker is about to stop: leaders are moved away; true when it may go because it leads nothing any more (RREG-10).

    Raises ApiError: BROKER_ID_NOT_REGISTERED, STALE_BROKER_EPOCH.
    """
    cluster = term.cluster
    registration = cluster.registrations.get(broker_id)
    if registration is None:
        raise ApiError(ErrorCode.BROKER_ID_NOT_REGISTERED)
    if registration.epoch != broker_epoch:
        raise ApiError(ErrorCode.STALE_BROKER_EPOCH)
    if registration.state is BrokerState.OFFLINE:
        return True
    if registration.state is BrokerState.FENCED:
        if not await move(term, [broker_id], BrokerState.OFFLINE):
            return False
        term.sessions.ended(broker_id)
        forget(term, [broker_id])
        return True
    if registration.state is BrokerState.ONLINE and not await move(term, [broker_id], BrokerState.STOPPING):
        raise StoreRefused(f"broker {broker_id} cannot be marked as stopping")
    if await shutdown.controlled_shutdown(term, broker_id, broker_epoch):
        return False
    await _leave(term, (), [broker_id])
    return cluster.registrations[broker_id].state is BrokerState.OFFLINE


async def shutdown_requested(term: Term, broker_id: int, broker_epoch: int) -> list[TopicPartition]:
    """A ControlledShutdown request, from a broker of `/brokers/ids`. One that registered with the controller stops by its fetches, which
    show who sent them; such a request does not, so it is refused. Raises ApiError.
    """
    if term.cluster.runs_by_request(broker_id):
        reason = f"broker {broker_id} registered with the controller: it stops by a MetadataFetch with WantShutDown"
        raise ApiError(ErrorCode.INVALID_REQUEST, reason)
    return await shutdown.controlled_shutdown(term, broker_id, broker_epoch)


async def give_way(term: Term, in_zookeeper: Collection[int]) -> None:
    """Brokers are registered in `/brokers/ids`: what registered with the controller under their ids counts no more (RREG-14)."""
    cluster = term.cluster
    overtaken = [b for b in sorted(in_zookeeper) if b in cluster.brokers and cluster.runs_by_request(b)]
    stopping = [b for b in overtaken if cluster.registrations[b].state is BrokerState.STOPPING]
    if overtaken:
        log.warning("brokers %s registered with the controller, and now there are others of these ids in ZooKeeper", overtaken)
        await _leave(term, [b for b in overtaken if b not in stopping], stopping)
        refused = [b for b in overtaken if cluster.runs_by_request(b)]
        if refused:
            raise StoreRefused(f"the registrations of brokers {refused} cannot be written")
    forget(term, in_zookeeper)


def count_again(term: Term, broker_ids: Iterable[int]) -> None:
    """Brokers are gone from `/brokers/ids`: registrations under their ids are fenced again."""
    registrations = [term.cluster.registrations.get(b) for b in broker_ids]
    fenced = [r.broker for r in registrations if r is not None and r.state is BrokerState.FENCED and term.sessions.is_remembered(r.id)]
    if fenced:
        fence(term, fenced)
        brokers.send_everything(term, [broker.id for broker in fenced])
