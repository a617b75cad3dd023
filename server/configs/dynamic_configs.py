"""Dynamic configs from ZooKeeper. They are read at the start, and again at each notification under /config/changes.

A notification names an entity whose znode was written. Each broker processes every notification once, in order, by reading the znode of the
entity; the number of the last processed one is kept in memory only. Every broker removes those 15 minutes older than the newest. `start`
processes the existing ones and reads the znodes of this broker, of the default entity of brokers, and of all users, clients and addresses;
`look` is called again in every new session. A stored value cannot stop a broker: an unreadable znode or an invalid value is logged and
ignored.

Listeners are called at each change with (kind, name, properties, changed). For this broker's configs, `changed` has the names with a new
value in `BrokerConfig`; for other entities it has all names that are set. `controller_events` returns the events for the controller.
Source: layout 3.8, 3.10.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Iterator, Mapping

from klamm.configs.broker_config import BrokerConfig
from klamm.configs.dynamic import is_password
from klamm.configs.passwords import CannotDecrypt
from klamm.controller.events.catalogue import TopicUncleanLeaderElectionEnabled, UncleanLeaderElectionEnabled
from klamm.server.ground.background import Looking
from klamm.zk.admin import AdminZk
from klamm.zk.layout.json_values import Unreadable
from klamm.zk.layout.paths import DEFAULT_ENTITY, may_be_in_path

log = logging.getLogger(__name__)

UNCLEAN = "unclean.leader.election.enable"

Listener = Callable[[str, str, Mapping[str, str], frozenset[str]], None]
Entity = tuple[str, str]


class DynamicConfigs:
    """Keeps the BrokerConfig of one broker up to date. `spawn` runs a coroutine."""

    def __init__(
        self, config: BrokerConfig, broker_id: int, admin_zk: AdminZk, spawn: Callable[[Coroutine[object, None, None]], object]
    ) -> None:
        self._config = config
        self._own = str(broker_id)
        self._admin_zk = admin_zk
        self._listeners: list[Listener] = []
        self._announce: Callable[[str, str], None] | None = None
        self._executed = -1
        self._stored: dict[str, Mapping[str, str]] = {DEFAULT_ENTITY: {}, self._own: {}}
        self._looking = Looking("config changes", self._execute, spawn)

    def listen(self, listener: Listener) -> None:
        """Add a listener. It is called on the event loop and must not wait."""
        self._listeners.append(listener)

    @property
    def executed(self) -> int:
        """The number of the last notification that was processed, -1 before the first one."""
        return self._executed

    def announce_to(self, announce: Callable[[str, str], None]) -> None:
        """Call `announce` after the listeners, with kind and name of each topic or broker that a notification names, also if it is another
        broker or its znode cannot be read.
        """
        self._announce = announce

    async def start(self) -> None:
        """Process the notifications, then apply the stored configs. Raises ControllerMoved, StoreLost, ZkError."""
        await self._looking.begin(self._read_at_start)

    async def _read_at_start(self) -> None:
        await self._execute()
        await self._encrypt_again()
        entities = [("brokers", DEFAULT_ENTITY), ("brokers", self._own), *await self._admin_zk.quota_entities()]
        for entity, properties in (await self._read_all(entities)).items():
            self._take(entity, properties)

    async def _encrypt_again(self) -> None:
        """If the secret for passwords has changed, store passwords that were encrypted with the old secret under the new one.

        Raises ControllerMoved if there is no controller; an Apache Kafka broker does not start in that case either.
        """
        former, now = self._config.former_passwords, self._config.passwords
        stored = await self._read(("brokers", self._own))
        if former is None or now is None or not any(map(is_password, stored or {})):
            return
        renewed = dict(stored or {})
        for name in filter(is_password, renewed):
            try:
                renewed[name] = now.encode(former.decode(renewed[name]))
            except CannotDecrypt:
                log.debug("the password %s was not encrypted with the former secret", name)
        await self._admin_zk.write_config("brokers", self._own, renewed)

    async def look(self) -> None:
        """Process new notifications and watch for the next ones. After a loss of the session the next session calls it again."""
        await self._looking.look()

    async def _execute(self) -> None:
        changes = await self._admin_zk.config_changes(self._executed, self._looking.changed)
        entities = [(number, _entity(path)) for number, path in changes]
        stored = await self._read_all([entity for _, entity in entities if entity is not None])
        for number, entity in entities:
            self._executed = number
            if entity is not None:
                self._take(entity, stored[entity])
                if self._announce is not None and entity[0] in ("topics", "brokers"):
                    self._announce(*entity)
        if self._executed >= 0:  # also if there is nothing new, as in a new session
            await self._admin_zk.purge_config_changes()

    async def _read_all(self, entities: list[Entity]) -> dict[Entity, Mapping[str, str] | None]:
        """Entity → its configs, None if its znode is unreadable. They are read in one request, or one by one if some are unreadable."""
        stored: dict[Entity, Mapping[str, str] | None] = {}
        for kind in {kind for kind, _ in entities}:
            names = list(dict.fromkeys(name for of, name in entities if of == kind))
            try:
                found = await self._admin_zk.read_configs(kind, names)
            except Unreadable:
                for name in names:
                    stored[kind, name] = await self._read((kind, name))
            else:
                stored.update({(kind, name): config or {} for name, config in zip(names, found, strict=True)})
        return stored

    async def _read(self, entity: Entity) -> Mapping[str, str] | None:
        try:
            return await self._admin_zk.read_config(*entity) or {}
        except Unreadable as error:
            log.warning("configs of %s/%s are ignored: %s", *entity, error)
            return None

    def _take(self, entity: Entity, properties: Mapping[str, str] | None) -> None:
        """Apply the configs of an entity if they are for this broker, and call the listeners."""
        kind, name = entity
        if properties is None or (kind == "brokers" and name not in self._stored):
            return
        changed = frozenset(properties)
        news = True
        if kind == "brokers":
            news = bool(properties or self._stored[name])
            if news:
                self._stored[name] = properties
                change = self._config.apply_dynamic(self._stored[DEFAULT_ENTITY], self._stored[self._own])
                changed = change.changed
                for problem in change.problems:
                    log.warning("configs of %s/%s: %s", kind, name, problem)
        if news:
            log.info("configs of %s/%s: %s", kind, name, ", ".join(sorted(properties)) or "none")
        for listener in self._listeners:
            try:
                listener(kind, name, properties, changed)
            except Exception:  # log the fault of a listener with a traceback, but process later changes
                log.exception("a listener for the configs of %s/%s raised an exception", kind, name)


def controller_events(
    config: BrokerConfig, kind: str, name: str, properties: Mapping[str, str], changed: frozenset[str]
) -> Iterator[UncleanLeaderElectionEnabled | TopicUncleanLeaderElectionEnabled]:
    """The events that a change causes in the controller: unclean leader election may be allowed now."""
    if kind == "brokers" and UNCLEAN in changed and config.get(UNCLEAN):
        yield UncleanLeaderElectionEnabled()
    elif kind == "topics" and properties.get(UNCLEAN, "").lower() == "true":
        yield TopicUncleanLeaderElectionEnabled(name)


def _entity(path: str | None) -> Entity | None:
    """Kind and name of the entity that a notification names; None if the notification is not valid."""
    if path is None:
        return None
    kind, slash, name = path.partition("/")
    if slash and may_be_in_path(path):
        return kind, name
    log.warning("ignoring a config change of unknown entity %r", path)
    return None
