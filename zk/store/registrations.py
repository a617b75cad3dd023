"""`/cluster/brokers`: reads and writes registrations of brokers with the controller (RegisterBroker, layout 4.5)."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from typing import Any

from klamm.controller.values import BrokerRegistration, BrokerState, WriteOutcome
from klamm.zk.layout import paths
from klamm.zk.layout import znodes as layout
from klamm.zk.layout.broker_node import broker_ids, decode_endpoints, encode_endpoints
from klamm.zk.layout.json_values import Unreadable, first_value, int32
from klamm.zk.session.requests import NO_NODE, NODE_EXISTS, MultiFailed, Operations
from klamm.zk.session.session import ZkSession
from klamm.zk.store.base import ZkArea
from klamm.zk.store.fenced_writes import Entry, outcome_of

log = logging.getLogger("klamm.zk.store.store")

# How often a write alternates between replacing and creating, if another client keeps deleting and creating the znode.
_ATTEMPTS = 4

_EPOCHS = range(1, 2**63 - 1)


def encode_registration(registration: BrokerRegistration) -> bytes:
    protocols, endpoints = encode_endpoints(registration.endpoints)
    settings: dict[str, Any] = {"listener_security_protocol_map": protocols, "endpoints": endpoints}
    if registration.rack is not None:
        settings["rack"] = registration.rack
    settings["jmx_port"] = registration.jmx_port
    content = {"version": 1, "epoch": registration.epoch, "state": registration.state.name, "settings": settings}
    if registration.is_silent:
        content["silent"] = True
    if registration.secret_sha256:
        content["secret_sha256"] = registration.secret_sha256
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode()


def decode_registration(broker_id: int, data: bytes | None) -> BrokerRegistration:
    """The registration of a znode. Raises Unreadable."""
    try:
        content = first_value(data if data is not None else b"")
        settings = content["settings"]
        endpoints = decode_endpoints(settings["endpoints"], settings["listener_security_protocol_map"])
        rack = settings.get("rack")
        if not isinstance(rack, str | None):
            raise ValueError(f"rack {rack!r}")
        jmx_port = int32(settings.get("jmx_port", -1))
        is_silent = content.get("silent") is True
        secret_sha256 = content.get("secret_sha256", "")
        if not isinstance(secret_sha256, str):
            raise ValueError(f"secret_sha256 {secret_sha256!r}")
        state = BrokerState[content["state"]]
        return BrokerRegistration(broker_id, _epoch(content), state, endpoints, rack, jmx_port, is_silent, secret_sha256)
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as problem:
        raise Unreadable(f"{paths.registration_path(broker_id)} cannot be read ({problem!r}): {data!r}") from problem


def _epoch(content: Any) -> int:
    """The epoch in the JSON of a registration. Raises KeyError, TypeError and ValueError."""
    epoch = content["epoch"]
    if type(epoch) is not int or epoch not in _EPOCHS:
        raise ValueError(f"epoch {epoch!r}")
    return epoch


def _unreadable(broker_id: int, data: bytes | None, version: int) -> BrokerRegistration:
    """A substitute for a registration that cannot be read: state OFFLINE, and the highest epoch that it can have had.

    If only controllers write it, the epoch is at most the version of the znode plus one, because each registration is a write.
    """
    try:
        epoch = max(_epoch(first_value(data if data is not None else b"")), version + 1)
    except (KeyError, RecursionError, TypeError, ValueError):
        epoch = max(version, 0) + 1
    return BrokerRegistration(broker_id, epoch, BrokerState.OFFLINE, ())


async def read_registrations(session: ZkSession) -> dict[int, BrokerRegistration]:
    """All registrations by broker id. One that cannot be read is logged and becomes OFFLINE, so that its broker can register again."""
    ids = broker_ids(await session.children(paths.REGISTERED_BROKERS))
    found = {}
    for broker_id, node in zip(ids, await session.read_versions(list(map(paths.registration_path, ids))), strict=True):
        if node is None:
            continue
        data, version = node
        try:
            found[broker_id] = decode_registration(broker_id, data)
        except Unreadable as problem:
            found[broker_id] = _unreadable(broker_id, data, version)
            log.error("Treating the registration of broker %d as OFFLINE with epoch %d: %s", broker_id, found[broker_id].epoch, problem)
    return found


async def read_registration(session: ZkSession, broker_id: int) -> BrokerRegistration | None:
    """The current registration of a broker, including all writes before this call. Raises Unreadable, StoreLost, ZkError.

    None if there is none, or if the active controller does not support registrations, such as one of Apache Kafka. Such a controller does
    not note that a broker is silent, and elects other leaders for the partitions of registered brokers.
    """
    path = paths.registration_path(broker_id)
    await session.sync(path)
    node = await session.get(path)
    if node is None or not await _counts(session):
        return None
    return decode_registration(broker_id, node.data)


async def _counts(session: ZkSession) -> bool:
    """Whether registrations are valid: there is no controller, or one that makes its session visible, which only controllers with this
    feature do.
    """
    node = await session.get(paths.CONTROLLER)
    if node is None:
        return True
    controller = layout.decode_controller(node.data)
    return controller is not None and await session.exists(paths.controller_session_path(controller.broker_id)) is not None


class _Registration(Entry):
    """A write that replaces a znode, or creates it if it does not exist."""

    __slots__ = ("_attempts", "_data", "_ops", "_path")

    def __init__(self, ops: Operations, registration: BrokerRegistration) -> None:
        self._ops = ops
        self._path = paths.registration_path(registration.id)
        self._data = encode_registration(registration)
        self._attempts = 0
        super().__init__((ops.set_data(self._path, self._data, -1),))

    def correct(self, code: int) -> bool:
        """Change the operation after a failure: create a missing znode, replace an existing one. False after too many attempts."""
        self._attempts += 1
        if code == NO_NODE:
            self.operations = (self._ops.create(self._path, self._data),)
        else:
            self.operations = (self._ops.set_data(self._path, self._data, -1),)
        return code in (NO_NODE, NODE_EXISTS) and self._attempts < _ATTEMPTS


class ZkBrokerRegistrations(ZkArea):
    """Registrations of brokers. Only the controller writes them."""

    async def registrations(self) -> dict[int, BrokerRegistration]:
        return await read_registrations(self._session)

    async def write_registrations(self, registrations: Sequence[BrokerRegistration]) -> list[WriteOutcome]:
        if registrations and await self._session.exists(paths.REGISTERED_BROKERS) is None:
            await self._make_parent()
        return await self._fence.write([_Registration(self._session.ops, each) for each in registrations], self._settle_registration)

    async def _make_parent(self) -> None:
        for path in (paths.REGISTERED_BROKERS.rpartition("/")[0], paths.REGISTERED_BROKERS):
            try:
                await self._fence.multi([self._session.ops.create(path, None)])
            except MultiFailed as failure:
                if failure.code != NODE_EXISTS:
                    raise

    async def _settle_registration(self, _: Sequence[_Registration], entry: _Registration, __: int, failure: MultiFailed) -> None:
        if not entry.correct(failure.code):
            entry.outcome = outcome_of(failure.code)
