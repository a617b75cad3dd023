"""Configs of topics, brokers, users, clients and addresses in ZooKeeper, and the notifications of their changes (layout 3.8 to 3.10).

A config znode is replaced completely, on condition that there is a controller in ZooKeeper mode. Then a notification names the entity that
every broker must read again. Brokers keep the highest number that they have processed; old notifications are deleted.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from klamm.controller.values import ControllerMoved
from klamm.zk.layout import paths
from klamm.zk.layout import znodes as layout
from klamm.zk.layout.json_values import Unreadable
from klamm.zk.session.connection import WatchCallback
from klamm.zk.session.requests import MultiFailed, NodeExists, NoNode, NotEmpty
from klamm.zk.session.session import ZkSession

log = logging.getLogger(__name__)

EXPIRATION_MS = 15 * 60 * 1000
_PREFIX = paths.last_part(paths.CONFIG_CHANGE_PREFIX)
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


async def announce(session: ZkSession, entity_path: str) -> None:
    """Notify all brokers that they must read an entity again."""
    await session.create(paths.CONFIG_CHANGE_PREFIX, layout.encode_config_change(entity_path), sequence=True, makepath=True)


async def config_changes(session: ZkSession, after: int, watch: WatchCallback | None) -> list[ConfigChange]:
    """Notifications with numbers above `after`, in order. Sets a watch for the next one."""
    numbers = sorted(number for number in _numbers(await session.children(paths.CONFIG_CHANGES, watch)) if number > after)
    nodes = await session.read_versions(list(map(_change_path, numbers)))
    changes = []
    for number, node in zip(numbers, nodes, strict=True):
        if node is not None:
            try:
                changes.append(ConfigChange(number, layout.decode_config_change(node[0])))
            except Unreadable as problem:
                log.error("Config change %d: %s", number, problem)
                changes.append(ConfigChange(number, None))
    return changes


async def purge_config_changes(session: ZkSession, now_ms: int) -> None:
    """Delete notifications that are older than 15 minutes. As in Kafka, those without data are not deleted."""
    nodes = list(map(_change_path, _numbers(await session.children(paths.CONFIG_CHANGES))))
    for path, node in zip(nodes, await session.read_many(nodes), strict=True):
        if node is not None and node.data is not None and now_ms - node.ctime_ms > EXPIRATION_MS:
            await session.delete(path)


def _numbers(names: Iterable[str]) -> list[int]:
    return [int(name[len(_PREFIX) :]) for name in names if name.startswith(_PREFIX) and name[len(_PREFIX) :].isdecimal()]


def _change_path(number: int) -> str:
    return f"{paths.CONFIG_CHANGE_PREFIX}{number:010d}"
