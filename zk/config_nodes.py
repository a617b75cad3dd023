"""Configs of topics, brokers, users, clients and addresses in ZooKeeper, and the notifications of their changes (layout 3.8 to 3.10).

A config znode is replaced completely, on condition that there is a controller in ZooKeeper mode. Then a notification names the entity that
every broker must read again. Brokers keep the highest number that they have processed; old notifications are deleted.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from klamm.controller.values import ControllerMoved
from klamm.zk.change_notifications import ChangeNotifications
from klamm.zk.layout import paths
from klamm.zk.layout import znodes as layout
from klamm.zk.layout.json_values import Unreadable
from klamm.zk.session.connection import WatchCallback
from klamm.zk.session.requests import MultiFailed, NodeExists, NoNode, NotEmpty
from klamm.zk.session.session import ZkSession

log = logging.getLogger(__name__)

# Entities whose znode is deleted together with their last property.
_TRANSIENT = ("users", "clients", "ips")


class ConfigChange(NamedTuple):
    """A notification: its number, and the entity, such as `topics/foo`; None if it cannot be read."""

    sequence: int
    entity_path: str | None


async def read_configs(session: ZkSession, kind: str, names: Sequence[str]) -> list[dict[str, str] | None]:
    """Properties of each entity; None if it has no znode. Raises Unreadable."""
    nodes = await session.read_versions([paths.config_path(kind, name) for name in names])
    return [None if node is None else layout.decode_config(node[0]) for node in nodes]


async def write_config(session: ZkSession, kind: str, name: str, properties: Mapping[str, str]) -> None:
    """Replace the properties of an entity. Raises ControllerMoved if there is no controller, BadVersion if the controller changes during
    the write.
    """
    controller = await session.get(paths.CONTROLLER)
    content = layout.decode_controller(controller.data) if controller is not None else None
    if controller is None or content is None or content.kraft_epoch >= 0:
        raise ControllerMoved("a config can only be written while there is a controller")
    path, data, ops = paths.config_path(kind, name), layout.encode_config(properties), session.ops
    for _ in range(2):
        try:
            await session.multi([ops.check(paths.CONTROLLER, controller.version), ops.set_data(path, data, -1)])
            break
        except MultiFailed as failure:
            if failure.index == 0 or not isinstance(failure.cause(), NoNode):
                raise failure.cause() from None
        try:
            await session.create(path, data, makepath=True)
            break
        except NodeExists:
            continue
    if kind in _TRANSIENT and not properties:
        await _remove_empty(session, kind, name)


async def _remove_empty(session: ZkSession, kind: str, name: str) -> None:
    """Delete the empty znode of an entity. For a client of a user, also delete its empty parents."""
    doomed = [paths.config_path(kind, name)]
    user, _, client = name.partition("/clients/")
    if client:
        doomed += [paths.config_path(kind, f"{user}/clients"), paths.config_path(kind, user)]
    for path in doomed:
        node = await session.get(path)
        if node is None or layout.decode_config(node.data):
            return
        try:
            await session.delete(path)
        except NotEmpty:
            return


class ConfigChanges:
    """The notifications of changed configs."""

    def __init__(self, session: ZkSession) -> None:
        self._notifications = ChangeNotifications(session, paths.CONFIG_CHANGES, paths.last_part(paths.CONFIG_CHANGE_PREFIX))

    async def announce(self, entity_path: str) -> None:
        """Notify all brokers that they must read an entity again."""
        await self._notifications.announce(layout.encode_config_change(entity_path))

    async def after(self, number: int, watch: WatchCallback | None) -> list[ConfigChange]:
        """Notifications above `number`, in order. Sets a watch for the next one."""
        changes = []
        for sequence, data in await self._notifications.after(number, watch):
            try:
                changes.append(ConfigChange(sequence, layout.decode_config_change(data)))
            except Unreadable as problem:
                log.error("Config change %d: %s", sequence, problem)
                changes.append(ConfigChange(sequence, None))
        return changes

    async def purge(self) -> None:
        """Delete notifications that have expired."""
        await self._notifications.purge()
