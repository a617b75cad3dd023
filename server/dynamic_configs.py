"""Dynamic configs as ZooKeeper has them: taken at start, then followed through the notifications under /config/changes.

A notification names an entity whose node was written. Each broker executes every one once, in their order, by reading the entity's node
as it is then; the highest number executed is remembered in memory only. Notifications older than 15 minutes are removed by whoever
looks. `start` executes what is there and takes the nodes of this broker and of the default entity; `look` is to be called again in every
new session. Nothing stored can stop a broker: what it cannot read or take is logged and left out.

Listeners are told of each change: (kind, name, properties, changed). For this broker's configs, `changed` names those that have a new
value in `BrokerConfig` now; for other entities it is all that are set. `controller_events` says what a controller has to hear of it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from klamm.broker.config import BrokerConfig
from klamm.controller.events import TopicUncleanLeaderElectionEnabled, UncleanLeaderElectionEnabled
from klamm.controller.values import StoreLost
from klamm.zk.layout import Unreadable, decode_config, decode_config_change
from klamm.zk.paths import CONFIG_CHANGE_PREFIX, CONFIG_CHANGES, DEFAULT_ENTITY, config_path, last_part
from klamm.zk.requests import Node, ZkError
from klamm.zk.session import ZkSession

log = logging.getLogger(__name__)

EXPIRES_AFTER_MS = 15 * 60 * 1000
UNCLEAN = "unclean.leader.election.enable"
_PREFIX = last_part(CONFIG_CHANGE_PREFIX)

Listener = Callable[[str, str, Mapping[str, str], frozenset[str]], None]


class DynamicConfigs:
    """Keeps one broker's BrokerConfig up to date. `spawn` runs a coroutine, `now_ms` is the wall clock."""

    def __init__(
        self,
        config: BrokerConfig,
        broker_id: int,
        session: ZkSession,
        spawn: Callable[[Any], Any],
        now_ms: Callable[[], float] = lambda: time.time() * 1000,
    ) -> None:
        self._config = config
        self._own = str(broker_id)
        self._session = session
        self._spawn = spawn
        self._now_ms = now_ms
        self._listeners: list[Listener] = []
        self._executed = -1
        self._created_ms: dict[str, int] = {}
        self._stored: dict[str, dict[str, str]] = {DEFAULT_ENTITY: {}, self._own: {}}
        self._looking = False
        self._look_again = False

    def listen(self, listener: Listener) -> None:
        """Tell this one too from now on. It is called on the loop and must not wait."""
        self._listeners.append(listener)

    async def start(self) -> None:
        """Execute what is announced, then take what is stored. Raises StoreLost, ZkError."""
        self._looking = True
        try:
            await self._execute()
            names = (DEFAULT_ENTITY, self._own)
            for name, node in zip(names, await self._session.read_each([config_path("brokers", name) for name in names]), strict=True):
                self._take("brokers", name, node)
        finally:
            self._looking = False
        if self._look_again:
            self._spawn(self.look())

    async def look(self) -> None:
        """Execute new notifications and watch for the next ones. Does nothing when the session is over: the next one looks again."""
        self._look_again = True
        if self._looking:
            return
        self._looking = True
        try:
            while self._look_again:
                self._look_again = False
                await self._execute()
        except (StoreLost, ZkError) as error:
            log.warning("config changes are not followed for now: %s", error)
        finally:
            self._looking = False

    def _changed(self, *what: Any) -> None:
        self._spawn(self.look())

    async def _execute(self) -> None:
        names = await self._session.children(CONFIG_CHANGES, self._changed)
        numbered = sorted((number, name) for name in names if (number := _sequence(name)) is not None)
        self._created_ms = {name: self._created_ms[name] for _, name in numbered if name in self._created_ms}
        unread = [name for number, name in numbered if number > self._executed or name not in self._created_ms]
        notifications = dict(zip(unread, await self._session.read_each([f"{CONFIG_CHANGES}/{name}" for name in unread]), strict=True))
        self._created_ms |= {name: node.ctime_ms for name, node in notifications.items() if isinstance(node, Node)}
        changes = [(number, _entity(name, notifications[name])) for number, name in numbered if number > self._executed]
        entities = list(dict.fromkeys(entity for _, entity in changes if entity is not None))
        nodes = dict(zip(entities, await self._session.read_each([config_path(*entity) for entity in entities]), strict=True))
        for number, entity in changes:
            if entity is not None:
                self._take(*entity, nodes[entity])
            self._executed = number
        await self._purge()

    async def _purge(self) -> None:
        oldest = self._now_ms() - EXPIRES_AFTER_MS
        for name in [name for name, created_ms in self._created_ms.items() if created_ms < oldest]:
            await self._session.delete(f"{CONFIG_CHANGES}/{name}")
            del self._created_ms[name]

    def _take(self, kind: str, name: str, node: Node | ZkError | None) -> None:
        """An entity's node was read: remember it if it is about this broker, and tell the listeners."""
        if kind == "brokers" and name not in self._stored:
            return
        try:
            if isinstance(node, ZkError):
                raise node
            properties = {} if node is None else decode_config(node.data)
        except (Unreadable, ZkError) as error:
            log.warning("configs of %s/%s are not taken: %s", kind, name, error)
            return
        changed = frozenset(properties)
        if kind == "brokers":
            self._stored[name] = properties
            change = self._config.apply_dynamic(self._stored[DEFAULT_ENTITY], self._stored[self._own])
            changed = change.changed
            for problem in change.problems:
                log.warning("configs of %s/%s: %s", kind, name, problem)
        log.info("configs of %s/%s are %s", kind, name, ", ".join(sorted(properties)) or "unset")
        for listener in self._listeners:
            listener(kind, name, properties, changed)


def controller_events(
    config: BrokerConfig, kind: str, name: str, properties: Mapping[str, str], changed: frozenset[str]
) -> Iterator[UncleanLeaderElectionEnabled | TopicUncleanLeaderElectionEnabled]:
    """What the controller has to do because of a change: look for unclean leaders where they are allowed now."""
    if kind == "brokers" and UNCLEAN in changed and config.get(UNCLEAN):
        yield UncleanLeaderElectionEnabled()
    elif kind == "topics" and properties.get(UNCLEAN, "").lower() == "true":
        yield TopicUncleanLeaderElectionEnabled(name)


def _sequence(name: str) -> int | None:
    """Number of a notification, None for a node that is none."""
    digits = name.removeprefix(_PREFIX)
    return int(digits) if name.startswith(_PREFIX) and digits.isdecimal() else None


def _entity(name: str, notification: Node | ZkError | None) -> tuple[str, str] | None:
    """Kind and name of the entity a notification is about; None for one that is gone or says nothing."""
    if not isinstance(notification, Node):
        return None
    try:
        path = decode_config_change(notification.data)
    except Unreadable as error:
        log.warning("config change %s is skipped: %s", name, error)
        return None
    if path is None:
        return None
    kind, slash, entity = path.partition("/")
    if slash and entity:
        return kind, entity
    log.warning("config change %s is skipped: it is about %r", name, path)
    return None
