"""The configs of a topic that affect its logs, as one value. Topics with equal configs share it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from klamm.configs.broker_config import BrokerConfig
from klamm.configs.definitions.types import ConfigError
from klamm.configs.tables.broker import TOPICS
from klamm.configs.topic import topic_defaults
from klamm.protocol.records.batch import Codec
from klamm.protocol.records.validation import AppendRules
from klamm.seams.value_class import dataclass

_LONGEST = 2**63 - 1
_LEVELS = {Codec.GZIP: "compression.gzip.level", Codec.LZ4: "compression.lz4.level", Codec.ZSTD: "compression.zstd.level"}
_UNCOMPRESSED = "uncompressed"
_PRODUCER = "producer"


@dataclass(frozen=True, slots=True)
class LogConfig:
    """The log configs of a topic. Times are in milliseconds, sizes in bytes; `retention_ms` and `retention_bytes` of -1 mean no limit."""

    rules: AppendRules = field(default_factory=AppendRules)
    segment_bytes: int = 1 << 30
    segment_ms: int = 604_800_000
    """For a compacted topic at most `max_compaction_lag_ms`."""
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    flush_messages: int = _LONGEST
    flush_ms: int = _LONGEST
    retention_bytes: int = -1
    retention_ms: int = 604_800_000
    file_delete_delay_ms: int = 60_000
    preallocate: bool = False
    delete: bool = True
    """Whether `cleanup.policy` contains `delete`."""
    compact: bool = False
    """Whether `cleanup.policy` contains `compact`."""
    delete_retention_ms: int = 86_400_000
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = _LONGEST
    min_cleanable_dirty_ratio: float = 0.5
    min_insync_replicas: int = 1
    unclean_leader_election: bool = False
    message_downconversion: bool = True

    @property
    def max_message_bytes(self) -> int:
        return self.rules.max_message_bytes


def log_config(values: Mapping[str, Any]) -> LogConfig:
    """Make a LogConfig from the typed values of a topic (`configs.topic.topic_values`)."""
    compression = values["compression.type"]
    codec = None if compression == _PRODUCER else Codec.NONE if compression == _UNCOMPRESSED else Codec[compression.upper()]
    level_name = None if codec is None else _LEVELS.get(codec)
    policies = values["cleanup.policy"]
    compact = "compact" in policies
    return LogConfig(
        rules=AppendRules(
            compression=codec,
            level=None if level_name is None else values[level_name],
            max_message_bytes=values["max.message.bytes"],
            log_append_time=values["message.timestamp.type"] == "LogAppendTime",
            timestamp_before_max_ms=_timestamp_bound(values, "message.timestamp.before.max.ms"),
            timestamp_after_max_ms=_timestamp_bound(values, "message.timestamp.after.max.ms"),
            is_compacted=compact,
        ),
        segment_bytes=values["segment.bytes"],
        segment_ms=min(values["segment.ms"], values["max.compaction.lag.ms"]) if compact else values["segment.ms"],
        segment_jitter_ms=values["segment.jitter.ms"],
        segment_index_bytes=values["segment.index.bytes"],
        index_interval_bytes=values["index.interval.bytes"],
        flush_messages=values["flush.messages"],
        flush_ms=values["flush.ms"],
        retention_bytes=values["retention.bytes"],
        retention_ms=values["retention.ms"],
        file_delete_delay_ms=values["file.delete.delay.ms"],
        preallocate=values["preallocate"],
        delete="delete" in policies,
        compact=compact,
        delete_retention_ms=values["delete.retention.ms"],
        min_compaction_lag_ms=values["min.compaction.lag.ms"],
        max_compaction_lag_ms=values["max.compaction.lag.ms"],
        min_cleanable_dirty_ratio=values["min.cleanable.dirty.ratio"],
        min_insync_replicas=values["min.insync.replicas"],
        unclean_leader_election=values["unclean.leader.election.enable"],
        message_downconversion=values["message.downconversion.enable"],
    )


def _timestamp_bound(values: Mapping[str, Any], name: str) -> int:
    """The bound in milliseconds. If the newer config is not set, the older one counts."""
    bound: int = values[name]
    return values["message.timestamp.difference.max.ms"] if bound == _LONGEST else bound


class LogConfigs:
    """Makes the LogConfig of topics; equal ones are one object."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._shared: dict[LogConfig, LogConfig] = {}
        self.default = self._share(log_config(topic_defaults(config)))

    def defaults_changed(self) -> None:
        """The configs of the broker have changed. `of` uses the new ones from now on."""
        self._shared.clear()
        self.default = self._share(log_config(topic_defaults(self._config)))

    def of(self, overrides: Mapping[str, str]) -> tuple[LogConfig, list[ConfigError]]:
        """The LogConfig of a topic with these overrides, and the errors of invalid ones, which are ignored."""
        if not overrides:
            return self.default, []
        values = topic_defaults(self._config)
        problems = []
        for name, text in overrides.items():
            key = TOPICS.get(name)
            if key is None:
                continue
            try:
                values[name] = key.parse(text)
            except ConfigError as error:
                problems.append(error)
        return self._share(log_config(values)), problems

    def _share(self, config: LogConfig) -> LogConfig:
        return self._shared.setdefault(config, config)
