"""The table of configs that act on logs is whole, and what it says is so."""

from __future__ import annotations

from typing import Any

import pytest

from klamm.broker.log.config import LogConfigs
from klamm.configs.tables.broker import BROKER, TOPICS
from klamm.tests.services import broker_config

OTHER: dict[str, dict[str, str]] = {
    "cleanup.policy": {"cleanup.policy": "compact"},
    "compression.type": {"compression.type": "gzip"},
    "compression.gzip.level": {"compression.type": "gzip", "compression.gzip.level": "3"},
    "compression.lz4.level": {"compression.type": "lz4", "compression.lz4.level": "3"},
    "compression.zstd.level": {"compression.type": "zstd", "compression.zstd.level": "4"},
    "message.timestamp.type": {"message.timestamp.type": "LogAppendTime"},
    "message.downconversion.enable": {"message.downconversion.enable": "false"},
    "unclean.leader.election.enable": {"unclean.leader.election.enable": "true"},
    "min.cleanable.dirty.ratio": {"min.cleanable.dirty.ratio": "0.25"},
}
"""Configs with another value than the default, where a number will not do; and what has to stand beside it."""

OF_QUOTAS = {"leader.replication.throttled.replicas", "follower.replication.throttled.replicas"}
"""Configs that act on the copying of logs; `tests/broker/test_replication_quotas.py` has them."""


def of(overrides: dict[str, str]) -> Any:
    config, problems = LogConfigs(broker_config()).of(overrides)
    assert not problems
    return config


def test_every_topic_config_is_listed() -> None:
    assert all(key.effect for key in TOPICS.values())


def test_every_broker_config_of_logs_is_listed_or_is_the_default_of_a_topic_config() -> None:
    defaults = {key.server for key in TOPICS.values()} | {"log.roll.hours", "log.roll.jitter.hours", "log.retention.minutes"}
    defaults |= {"log.retention.hours"}
    names = {name for name, key in BROKER.items() if name.startswith(("log.", "producer.id.")) and key.effect is None}
    assert names - defaults == set()


@pytest.mark.parametrize("name", [name for name, key in TOPICS.items() if key.used and name not in OF_QUOTAS])
def test_a_topic_config_that_acts_changes_the_config_of_the_log(name: str) -> None:
    overrides = OTHER.get(name, {name: "12345"})
    others = {other: value for other, value in overrides.items() if other != name}
    assert of(overrides) != of(others)


@pytest.mark.parametrize("name", [name for name, key in TOPICS.items() if not key.used and name != "preallocate"])
def test_a_topic_config_that_does_not_act_changes_nothing(name: str) -> None:
    values = {"BOOLEAN": "true", "LONG": "5", "LIST": "0:1", "STRING": "3.0"}
    assert of({name: values[TOPICS[name].type.name]}) is not None
    configs = LogConfigs(broker_config())
    assert configs.of({name: values[TOPICS[name].type.name]})[0] is configs.default
