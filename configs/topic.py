"""The configs of a topic: the values in its config znode, over the defaults of the brokers.

`validate_topic_configs` runs before a topic is created or altered: an unknown name, an invalid value, and values that contradict each
other or the broker's defaults are INVALID_CONFIG. `topic_values` gives the typed result for a topic.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from klamm.configs import rules as config_rules
from klamm.configs.broker_config import BrokerConfig
from klamm.configs.definitions.types import ConfigError, Values
from klamm.configs.releases.inter_broker_protocol import MetadataVersion
from klamm.configs.tables.broker import TOPICS
from klamm.protocol.errors import ApiError, ErrorCode

_NOT_WITH_ZOOKEEPER = "It is invalid to set `remote.log.delete.on.disable` or `remote.log.copy.disable` under Zookeeper's mode."
_NO_TIERED_STORAGE = "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage."
_MESSAGE_FORMAT_FIXED_SINCE = MetadataVersion.of("3.0-IV0")
_MAX_LONG = 2**63 - 1


def topic_defaults(config: BrokerConfig) -> dict[str, Any]:
    """Typed values of a topic that has none of its own."""
    values = config.values
    defaults = {name: key.default if key.server is None else values[key.server] for name, key in TOPICS.items()}
    defaults["segment.ms"] = config_rules.segment_ms(values)
    defaults["segment.jitter.ms"] = config_rules.segment_jitter_ms(values)
    defaults["retention.ms"] = config_rules.retention_ms(values)
    if defaults["flush.ms"] is None:
        defaults["flush.ms"] = values["log.flush.scheduler.interval.ms"]
    for name in ("message.timestamp.before.max.ms", "message.timestamp.after.max.ms"):
        if defaults[name] == _MAX_LONG:
            defaults[name] = defaults["message.timestamp.difference.max.ms"]
    if config.inter_broker_protocol_version >= _MESSAGE_FORMAT_FIXED_SINCE:
        defaults["message.format.version"] = TOPICS["message.format.version"].default
    else:
        defaults["message.format.version"] = str(MetadataVersion.of(defaults["message.format.version"]))
    return defaults


def topic_values(stored: Mapping[str, str], config: BrokerConfig) -> dict[str, Any]:
    """Typed values of a topic with these configs of its own; unknown names are left out. Raises ConfigError."""
    values = topic_defaults(config)
    for name, text in stored.items():
        key = TOPICS.get(name)
        if key is not None:
            values[name] = key.parse(text)
    return values


def validate_topic_configs(configs: Mapping[str, str | None], config: BrokerConfig) -> None:
    """Check the configs of a topic. Raises ApiError with INVALID_CONFIG."""
    given: dict[str, str] = {}
    for name, text in configs.items():
        if name not in TOPICS:
            raise ApiError(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {name}")
        if text is None:
            raise ApiError(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {name}")
        given[name] = text
    try:
        values = topic_values(given, config)
        _check(values, config)
    except ConfigError as error:
        raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from error


def _check(values: Values, config: BrokerConfig) -> None:
    """The rules between a topic's configs."""
    if values["min.compaction.lag.ms"] > values["max.compaction.lag.ms"]:
        least, most = values["min.compaction.lag.ms"], values["max.compaction.lag.ms"]
        text = f"conflict topic config setting min.compaction.lag.ms ({least}) > max.compaction.lag.ms ({most})"
        raise ConfigError("min.compaction.lag.ms", least, "is above max.compaction.lag.ms", text)
    for name in ("remote.log.copy.disable", "remote.log.delete.on.disable"):
        if values[name]:
            raise ConfigError(name, True, "cannot be set with ZooKeeper", _NOT_WITH_ZOOKEEPER)
    if not values["remote.storage.enable"]:
        return
    if not config.get("remote.log.storage.system.enable"):
        raise ConfigError("remote.storage.enable", True, "the brokers have no tiered storage", _NO_TIERED_STORAGE)
    if "compact" in values["cleanup.policy"]:
        raise ConfigError("remote.storage.enable", True, "compacted topics cannot be tiered")
    for local, total in (("local.retention.ms", "retention.ms"), ("local.retention.bytes", "retention.bytes")):
        config_rules.check_local_retention(values[local], local, values[total], total)
