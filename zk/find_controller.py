"""Finds the endpoints of the active controller in ZooKeeper: `/controller` has its broker id, the registration of this broker its
endpoints.

A broker that registered with the controller has `/cluster/brokers/<id>`, any other broker `/brokers/ids/<id>`. If both exist, the latter is
used (controller 25, RREG-14). The endpoints may be outdated if the broker has restarted; then connecting to them fails.
"""

from __future__ import annotations

from typing import NamedTuple

from klamm.protocol.nouns import Endpoint
from klamm.zk.layout import paths
from klamm.zk.layout import znodes as layout
from klamm.zk.layout.broker_node import decode_broker
from klamm.zk.layout.json_values import Unreadable
from klamm.zk.session.session import ZkSession
from klamm.zk.store.registrations import decode_registration


class ElectedController(NamedTuple):
    """The broker in `/controller`. `endpoints` is empty if it does not have a readable registration."""

    id: int
    endpoints: tuple[Endpoint, ...]


async def find_controller(session: ZkSession) -> ElectedController | None:
    """The active controller; None if there is none. Raises StoreLost and ZkError."""
    node = await session.get(paths.CONTROLLER)
    try:
        controller = None if node is None else layout.decode_controller(node.data)
    except Unreadable:
        controller = None
    if controller is None:
        return None
    return ElectedController(controller.broker_id, await _endpoints(session, controller.broker_id))


async def _endpoints(session: ZkSession, broker_id: int) -> tuple[Endpoint, ...]:
    ephemeral, registration = await session.read_versions([paths.broker_path(broker_id), paths.registration_path(broker_id)])
    try:
        if ephemeral is not None:
            return decode_broker(broker_id, -1, ephemeral[0]).endpoints
        return () if registration is None else decode_registration(broker_id, registration[0]).endpoints
    except Unreadable:
        return ()
