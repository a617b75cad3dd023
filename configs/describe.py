"""Rows of a DescribeConfigs response: the value, source and synonyms of every config.

The synonyms of a config are all sources that give it a value, in order of precedence: the topic, this broker's entity, the default entity,
the properties file, Kafka's default. Within a source, names are in order of precedence too. The list starts with the name of the config
itself; other names before it are left out. The first synonym is the source of the effective value. Without synonyms the source is Kafka's
default. An unknown name is listed too, as sensitive. Compared with responses of Apache Kafka 3.9.1.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from enum import IntEnum
from itertools import dropwhile
from typing import NamedTuple

from klamm.configs.broker_config import BrokerConfig
from klamm.configs.definitions.definition import READ_ONLY, ConfigKey, synonyms
from klamm.configs.definitions.types import ConfigType, text_of
from klamm.configs.tables.broker import BROKER, TOPICS
from klamm.configs.topic import topic_values


class ConfigSource(IntEnum):
    """Where a value comes from, with the numbers of the protocol."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6


class Synonym(NamedTuple):
    """One source that gives a config a value. `value` is None if it is sensitive."""

    name: str
    value: str | None
    source: ConfigSource


class DescribedConfig(NamedTuple):
    """One row. `value` is None if it is not set or sensitive."""

    name: str
    value: str | None
    read_only: bool
    source: ConfigSource
    sensitive: bool
    synonyms: tuple[Synonym, ...]
    type: ConfigType
    documentation: str | None

    @property
    def is_default(self) -> bool:
        return self.source is ConfigSource.DEFAULT


def describe_topic(stored: Mapping[str, str], config: BrokerConfig) -> list[DescribedConfig]:
    """The configs of a topic: all that Kafka has, and stored unknown ones. Raises ConfigError for an invalid stored value."""
    rows = []
    for name, value in topic_values(stored, config).items():
        key = TOPICS[name]
        text = text_of(value)
        own = (Synonym(name, text, ConfigSource.TOPIC),) if name in stored else ()
        inherited = _synonyms(key.server, config) if key.server is not None else ()
        rows.append(_row(name, key, text, False, own + inherited, key.documentation))
    rows.extend(_row(name, None, None, False, (Synonym(name, None, ConfigSource.TOPIC),), None) for name in stored if name not in TOPICS)
    return rows


def describe_broker(config: BrokerConfig, named: Collection[str] = ()) -> list[DescribedConfig]:
    """The configs of a broker: all that Kafka has, unknown ones that are set, and Klamm's own ones that are set or in `named`."""
    texts = {name: text_of(config.get(name)) for name, key in BROKER.items() if not key.internal}
    texts |= {name: text for name, text in config.effective.items() if name not in texts}
    for name, key in config.own_keys.items():
        if name in texts or name in named:
            texts[name] = text_of(config.get(name) if name in config.values else key.parse(texts.get(name) or ""))
    return [_broker_row(name, text, _synonyms(name, config), config) for name, text in texts.items()]


def describe_default_broker(config: BrokerConfig) -> list[DescribedConfig]:
    """Only the configs of the default entity."""
    rows = []
    for name, text in config.dynamic_default.items():
        found = tuple(synonym for synonym in _synonyms(name, config) if synonym.source is ConfigSource.DYNAMIC_DEFAULT_BROKER)
        rows.append(_broker_row(name, text, found, config))
    return rows


def _broker_row(name: str, text: str | None, found: tuple[Synonym, ...], config: BrokerConfig) -> DescribedConfig:
    # As in Kafka, the config of one listener and a quota have a type, but are read-only and have no documentation.
    own = BROKER.get(name) or config.own_keys.get(name)
    documentation = None if own is None else own.documentation
    return _row(name, config.key_of(name), text, own is None or own.mode is READ_ONLY, found, documentation)


def _row(
    name: str, key: ConfigKey | None, text: str | None, read_only: bool, found: tuple[Synonym, ...], documentation: str | None
) -> DescribedConfig:
    sensitive = key is None or key.sensitive
    source = found[0].source if found else ConfigSource.DEFAULT
    kind = ConfigType.UNKNOWN if key is None else key.type
    return DescribedConfig(name, None if sensitive else text, read_only, source, sensitive, found, kind, documentation)


def _synonyms(name: str, config: BrokerConfig) -> tuple[Synonym, ...]:
    """All sources of a broker config, in order of precedence."""
    key = config.key_of(name)
    hidden = key is None or key.sensitive
    found = (Synonym(synonym.name, None if hidden else synonym.value, synonym.source) for synonym in _said(name, config))
    return tuple(dropwhile(lambda synonym: synonym.name != name, found))


def _said(name: str, config: BrokerConfig) -> Iterator[Synonym]:
    names = synonyms(name)
    for source, properties in (
        (ConfigSource.DYNAMIC_BROKER, config.dynamic_own),
        (ConfigSource.DYNAMIC_DEFAULT_BROKER, config.dynamic_default),
        (ConfigSource.STATIC_BROKER, config.own_static if name in config.own_keys else config.static),
    ):
        for known in names:
            if known in properties:
                yield Synonym(known, properties[known], source)
    for known in names:
        key = BROKER.get(known) or config.own_keys.get(known)
        if key is not None and (default := config.default_of(key)) is not None:
            yield Synonym(known, text_of(default), ConfigSource.DEFAULT)
