"""The configs of the metadata log: what was logged last of topics and brokers, and the records of what has changed since."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from klamm.controller.values import DEFAULT_BROKER, ConfigEntity
from klamm.protocol import messages
from klamm.protocol.errors import LocalProtocolError
from klamm.protocol.records.metadata_records import BROKER_CONFIG, TOPIC_CONFIG, encode_value

log = logging.getLogger("klamm.controller")


class LoggedConfigs:
    """Properties by entity."""

    def __init__(self) -> None:
        self._properties: dict[ConfigEntity, dict[str, str]] = {}

    def stored(self, entity: ConfigEntity, properties: dict[str, str]) -> list[bytes]:
        """ZooKeeper holds these properties of an entity; the values of the records to append: a deletion has a null value."""
        before = self._properties.get(entity)
        if before is None:
            if not properties:
                return []
            before = {}
        elif before == properties:
            return []
        changed: dict[str, str | None] = dict.fromkeys(name for name in before if name not in properties)
        changed |= {name: value for name, value in properties.items() if before.get(name) != value}
        if properties:
            self._properties[entity] = dict(properties)
        else:
            del self._properties[entity]
        return _values(entity, changed)

    def entities(self) -> list[ConfigEntity]:
        """Those that have properties."""
        return list(self._properties)

    def forget(self, entity: ConfigEntity) -> None:
        """The records of a topic go with the topic."""
        self._properties.pop(entity, None)

    def of(self, entity: ConfigEntity) -> list[bytes]:
        """All of one entity, once more."""
        return _values(entity, self._properties.get(entity, {}))

    def snapshot(self) -> list[bytes]:
        """All of all entities."""
        return [value for entity, properties in self._properties.items() for value in _values(entity, properties)]


def _values(entity: ConfigEntity, properties: Mapping[str, str | None]) -> list[bytes]:
    kind = TOPIC_CONFIG if entity.kind == "topics" else BROKER_CONFIG
    resource = "" if entity == DEFAULT_BROKER else entity.name
    values = []
    for name, value in properties.items():
        try:
            values.append(encode_value(messages.ConfigRecord(resource_type=kind, resource_name=resource, name=name, value=value)))
        except (LocalProtocolError, ValueError) as problem:  # longer than 32,767 bytes, or half a character
            log.error("config %s of %s is left out of the metadata log: %s", name, entity, problem)
    return values
