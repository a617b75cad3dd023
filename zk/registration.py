"""The writes of a broker to ZooKeeper at its start: top-level paths, cluster id, broker id, its own znode (layout 1.7, 3.2, 3.3, 3.11).

These writes are not fenced. Brokers that start at the same time race for the same znodes. If another broker has already created a znode,
that is not an error, except for the broker's own znode: its owner must be the session that registers it.
"""

from __future__ import annotations

import uuid

from klamm.controller.values import Broker
from klamm.protocol.errors import RegistrationRefused
from klamm.protocol.nouns import id_text
from klamm.zk.layout import paths
from klamm.zk.layout import znodes as layout
from klamm.zk.layout.broker_node import broker_ids, decode_broker, encode_broker
from klamm.zk.layout.json_values import Unreadable
from klamm.zk.session.requests import NO_NODE, NODE_EXISTS, MultiFailed, NodeExists, NoNode
from klamm.zk.session.session import ZkSession


async def ensure_paths(session: ZkSession) -> None:
    """Create the top-level paths with null data."""
    wanted = list(dict.fromkeys(parent for path in paths.STARTUP_PATHS for parent in _with_parents(path)))
    while True:
        found = await session.read_versions(wanted)
        missing = [path for path, node in zip(wanted, found, strict=True) if node is None]
        if not missing:
            return
        try:
            await session.multi([session.ops.create(path, None) for path in missing])
        except MultiFailed as failure:
            if failure.code not in (NODE_EXISTS, NO_NODE):
                raise failure.cause() from None
            # Another broker has created some of the paths at the same time. The next iteration creates the others.


def _with_parents(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[: count + 1]) for count in range(1, len(parts))]


async def cluster_id(session: ZkSession) -> str:
    """The cluster id. The first broker creates a random one."""
    while True:
        node = await session.get(paths.CLUSTER_ID)
        if node is not None:
            return layout.decode_cluster_id(node.data)
        try:
            await session.create(paths.CLUSTER_ID, layout.encode_cluster_id(id_text(uuid.uuid4().bytes)), makepath=True)
        except NodeExists:
            continue


async def next_broker_id(session: ZkSession, reserved_max: int) -> int:
    """A new broker id, which no other broker has, above the ids that can be configured."""
    while True:
        try:
            return (await session.set(paths.BROKER_SEQUENCE, b"")).version + reserved_max
        except NoNode:
            try:
                await session.create(paths.BROKER_SEQUENCE, None, makepath=True)
            except NodeExists:
                continue


async def registered_brokers(session: ZkSession) -> dict[int, Broker]:
    """All brokers whose znodes can be read."""
    ids = broker_ids(await session.children(paths.BROKER_IDS))
    brokers = {}
    for broker_id, node in zip(ids, await session.read_many(list(map(paths.broker_path, ids))), strict=True):
        if node is not None:
            try:
                brokers[broker_id] = decode_broker(broker_id, node.czxid, node.data)
            except Unreadable:
                continue
    return brokers


async def refuse_taken_addresses(session: ZkSession, broker: Broker) -> None:
    """Raise RegistrationRefused if another broker advertises one of the addresses of this broker."""
    own = {(endpoint.host, endpoint.port) for endpoint in broker.endpoints}
    for other in (await registered_brokers(session)).values():
        for endpoint in other.endpoints if other.id != broker.id else ():
            if (endpoint.host, endpoint.port) in own:
                raise RegistrationRefused(
                    f"broker {broker.id} cannot advertise {endpoint.host}:{endpoint.port}: broker {other.id} has this address"
                )


async def register(session: ZkSession, broker: Broker, timestamp_ms: int, jmx_port: int, json_version: int, former_session: int) -> int:
    """Create the broker's znode and return its epoch. `former_session` is the session that registered it earlier in this process (0: none).
    """
    path, ops = paths.broker_path(broker.id), session.ops
    data = encode_broker(broker, timestamp_ms, jmx_port, json_version)
    while True:
        try:
            _, node = await session.multi([ops.create(path, None, ephemeral=True), ops.set_data(path, data, 0)], results=True)
            return int(node.czxid)
        except MultiFailed as failure:
            if failure.code != NODE_EXISTS:
                raise
        found = await session.exists(path)
        if found is None:
            continue
        if found.ephemeral_owner == session.session_id:
            return found.czxid
        if found.ephemeral_owner != former_session:
            raise RegistrationRefused(f"broker id {broker.id} is already registered in session 0x{found.ephemeral_owner & (1 << 64) - 1:x}")
        await session.delete(path)
