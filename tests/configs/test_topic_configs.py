"""Topic configs: defaults taken from the broker, what is refused, incremental changes of lists. Judged by a real Kafka 3.9.1."""

from __future__ import annotations

import pytest

from klamm.configs.broker_config import BrokerConfig, ConfigError
from klamm.configs.increment import Operation, incremented
from klamm.configs.tables.broker import BROKER, TOPICS
from klamm.configs.topic import topic_defaults, topic_values, validate_topic_configs
from klamm.protocol.errors import ApiError, ErrorCode

FOREVER = 2**63 - 1
TIERED = {"remote.log.storage.system.enable": "true"}


def config(**properties: str) -> BrokerConfig:
    return BrokerConfig({"zookeeper.connect": "z:1"} | properties)


DEFAULTS = [
    ({}, {"retention.ms": 604_800_000, "segment.ms": 604_800_000, "segment.jitter.ms": 0, "flush.ms": FOREVER}),
    ({}, {"cleanup.policy": ("delete",)}),
    ({"log.retention.hours": "-5"}, {"retention.ms": -1}),
    ({"log.retention.minutes": "7", "log.retention.hours": "9"}, {"retention.ms": 420_000}),
    ({"log.retention.minutes": "2147483647"}, {"retention.ms": 128_849_018_820_000}),
    ({"log.roll.hours": "2", "log.roll.jitter.hours": "1"}, {"segment.ms": 7_200_000, "segment.jitter.ms": 3_600_000}),
    ({"log.flush.scheduler.interval.ms": "77"}, {"flush.ms": 77}),
    ({"log.flush.interval.ms": "5", "log.flush.scheduler.interval.ms": "77"}, {"flush.ms": 5}),
    ({"log.message.format.version": "2.8", "inter.broker.protocol.version": "2.8"}, {"message.format.version": "2.8-IV1"}),
    ({"log.message.format.version": "3.4"}, {"message.format.version": "3.0-IV1"}),
    (
        {"log.message.timestamp.difference.max.ms": "1000", "log.message.timestamp.before.max.ms": "9"},
        {"message.timestamp.before.max.ms": 9, "message.timestamp.after.max.ms": 1000, "message.timestamp.difference.max.ms": 1000},
    ),
    ({"message.max.bytes": "5", "log.segment.bytes": "50"}, {"max.message.bytes": 5, "segment.bytes": 50}),
]


@pytest.mark.parametrize(("broker", "expected"), DEFAULTS, ids=str)
def test_defaults_come_from_the_broker(broker, expected):
    defaults = topic_defaults(config(**broker))
    assert {name: defaults[name] for name in expected} == expected
    assert set(defaults) == set(TOPICS)


def test_own_values_come_first():
    values = topic_values({"retention.ms": "5", "nobody.knows": "x"}, config(**{"log.retention.ms": "9"}))
    assert values["retention.ms"] == 5
    assert set(values) == set(TOPICS)
    with pytest.raises(ConfigError):
        topic_values({"retention.ms": "x"}, config())


FIT = [
    ({}, {}),
    ({"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "5"}, {}),
    ({"remote.log.copy.disable": "false"}, {}),
    ({"local.retention.ms": "60", "retention.ms": "50"}, {}),
    ({"remote.storage.enable": "true"}, TIERED),
    ({"remote.storage.enable": "true", "local.retention.ms": "100", "retention.ms": "-1"}, TIERED),
    ({"remote.storage.enable": "true", "local.retention.bytes": "-1", "retention.bytes": "-1"}, TIERED),
]
UNFIT = [
    ({"nobody.knows": "x"}, {}),
    ({"": "x"}, {}),
    ({"retention.ms": None}, {}),
    ({"retention.ms": "x"}, {}),
    ({"retention.ms": ""}, {}),
    ({"min.compaction.lag.ms": "6", "max.compaction.lag.ms": "5"}, {}),
    ({"max.compaction.lag.ms": "5"}, {"log.cleaner.min.compaction.lag.ms": "6"}),
    ({"remote.storage.enable": "true"}, {}),
    ({"remote.log.copy.disable": "true"}, TIERED),
    ({"remote.log.delete.on.disable": "true"}, {}),
    ({"remote.storage.enable": "true", "cleanup.policy": "delete,compact"}, TIERED),
    ({"remote.storage.enable": "true", "local.retention.ms": "100", "retention.ms": "50"}, TIERED),
    ({"remote.storage.enable": "true", "local.retention.ms": "-1", "retention.ms": "50"}, TIERED),
    ({"remote.storage.enable": "true", "local.retention.bytes": "100", "retention.bytes": "50"}, TIERED),
    ({"preferred_leader_blacklist": "1"}, {}),
]


@pytest.mark.parametrize(("configs", "broker"), FIT, ids=str)
def test_fit(configs, broker):
    validate_topic_configs(configs, config(**broker))


@pytest.mark.parametrize(("configs", "broker"), UNFIT, ids=str)
def test_unfit(configs, broker):
    with pytest.raises(ApiError) as caught:
        validate_topic_configs(configs, config(**broker))
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    assert caught.value.message


NUMBER, FLAG, LEAST = "Not a number of type", "Expected value to be either true or false", "Value must be at least"
REPLICAS = "must be the literal '*' or a list of replicas in the following format: [partitionId]:[brokerId],[partitionId]:[brokerId],..."
CODECS = "String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer"
KAFKAS_TEXTS = [
    # (config, value, the value and the reason that Apache Kafka 3.9.1 shows)
    ("retention.ms", "x", "x", f"{NUMBER} LONG"),
    ("retention.ms", "", "", f"{NUMBER} LONG"),
    ("retention.ms", "-2", "-2", f"{LEAST} -1"),
    ("max.message.bytes", "99999999999", "99999999999", f"{NUMBER} INT"),
    ("max.message.bytes", "-1", "-1", f"{LEAST} 0"),
    ("min.cleanable.dirty.ratio", "x", "x", f"{NUMBER} DOUBLE"),
    ("min.cleanable.dirty.ratio", "1.5", "1.5", "Value must be no more than 1"),
    ("compression.zstd.level", "100", "100", "Value must be no more than 22"),
    ("compression.gzip.level", "0", "0", "Value must be between 1 and 9 or equal to -1"),
    ("compression.gzip.level", "10", "10", "Value must be between 1 and 9 or equal to -1"),
    ("preallocate", "1", "1", FLAG),
    ("compression.type", "brotli", "brotli", CODECS),
    ("cleanup.policy", "compact,foo", "foo", "String must be one of: compact, delete"),
    ("message.timestamp.type", "never", "never", "String must be one of: CreateTime, LogAppendTime"),
    ("message.format.version", "9.9", "9.9", "Version 9.9 is not a valid version"),
    ("leader.replication.throttled.replicas", "x:1", "[x:1]", f"leader.replication.throttled.replicas {REPLICAS}"),
]


@pytest.mark.parametrize(("name", "text", "shown", "reason"), KAFKAS_TEXTS)
def test_a_value_is_refused_in_the_words_of_kafka(name, text, shown, reason):
    with pytest.raises(ApiError) as caught:
        validate_topic_configs({name: text}, config())
    assert caught.value.message == f"Invalid value {shown} for configuration {name}: {reason}"


@pytest.mark.parametrize(
    ("configs", "text"),
    [
        ({"no.such": "1"}, "Unknown topic config name: no.such"),
        (
            {"min.compaction.lag.ms": "100", "max.compaction.lag.ms": "10"},
            "conflict topic config setting min.compaction.lag.ms (100) > max.compaction.lag.ms (10)",
        ),
        (
            {"remote.log.copy.disable": "true"},
            "It is invalid to set `remote.log.delete.on.disable` or `remote.log.copy.disable` under Zookeeper's mode.",
        ),
        (
            {"remote.storage.enable": "true"},
            "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage.",
        ),
    ],
)
def test_configs_are_refused_in_the_words_of_kafka(configs, text):
    with pytest.raises(ApiError) as caught:
        validate_topic_configs(configs, config())
    assert caught.value.message == text


LIST = "leader.replication.throttled.replicas"
SET, DELETE, APPEND, SUBTRACT = Operation
STEPS = [
    # (stored, operation, value, stored then)
    (None, SET, "0:1", "0:1"),
    ("0:1", DELETE, None, None),
    (None, DELETE, "0:1", None),
    (None, APPEND, "0:1", "0:1"),
    ("0:1", APPEND, "0:1,0:1,0:3", "0:1,0:3"),
    ("0:1", APPEND, "0:2,0:2, 0:1 ", "0:1,0:2,0:2, 0:1 "),
    ("0:1", APPEND, "", "0:1,"),
    ("0:1,", APPEND, "", "0:1,"),
    ("0:1,", APPEND, ",0:2", "0:1,,0:2"),
    ("0:1,,0:2", APPEND, "0:3,,", "0:1,,0:2,0:3"),
    ("", APPEND, "0:1", "0:1"),
    (" ", APPEND, "0:3", " ,0:3"),
    (",0:1", APPEND, "0:3", ",0:1,0:3"),
    (None, APPEND, "", ""),
    (None, APPEND, ",", ""),
    ("0:1", APPEND, ",,", "0:1"),
    ("0:1,0:2,0:1", SUBTRACT, "0:1", "0:2,0:1"),
    ("0:1,0:2,0:1", SUBTRACT, "0:1,0:1", "0:2"),
    ("0:1", SUBTRACT, "0:1", ""),
    ("0:1", SUBTRACT, "0:9", "0:1"),
    ("0:1,,0:2", SUBTRACT, "", "0:1,0:2"),
    ("0:1,,0:2", SUBTRACT, ",", "0:1,,0:2"),
    (None, SUBTRACT, "0:1", ""),
]


@pytest.mark.parametrize(("stored", "operation", "value", "then"), STEPS, ids=str)
def test_increments(stored, operation, value, then):
    before = {"retention.ms": "5"} | ({} if stored is None else {LIST: stored})
    after = incremented(before, [(LIST, operation, value)], TOPICS)
    assert after == {"retention.ms": "5"} | ({} if then is None else {LIST: then})


def test_lists_grow_from_kafkas_default():
    assert incremented({}, [("cleanup.policy", APPEND, "compact")], TOPICS) == {"cleanup.policy": "delete,compact"}
    assert incremented({}, [("log.cleanup.policy", APPEND, "compact")], BROKER) == {"log.cleanup.policy": "delete,compact"}


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (("retention.ms", APPEND, "1"), ErrorCode.INVALID_CONFIG),
        (("retention.ms", SUBTRACT, "1"), ErrorCode.INVALID_CONFIG),
        (("nobody.knows", APPEND, "1"), ErrorCode.UNKNOWN_SERVER_ERROR),
        (("retention.ms", SET, None), ErrorCode.INVALID_REQUEST),
    ],
)
def test_refused_increments(change, code):
    with pytest.raises(ApiError) as caught:
        incremented({}, [change], TOPICS)
    assert caught.value.code is code


def test_no_such_operation():
    with pytest.raises(ValueError, match="9"):
        incremented({}, [("retention.ms", 9, "1")], TOPICS)
