"""Checks of a local cluster's arguments against the tables of configs: properties, topics and topic configs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from klamm.configs.broker_config import BrokerConfig
from klamm.configs.definitions.types import ConfigError
from klamm.configs.topic import validate_topic_configs
from klamm.controller.decisions.topic_requests import is_valid_name
from klamm.protocol.errors import ApiError
from klamm.server.local.arguments import BadArgument, SeedTopic

_ARGUMENTS = {"klamm.as.version": "as_version", "klamm.api.versions": "api_versions"}
"""Configs that have an argument of their own."""


def check_configs(config: Mapping[str, str], topics: Sequence[SeedTopic], brokers: int | None, argument: str = "config") -> None:
    """Raises BadArgument if a broker would refuse it. `brokers` is None if other brokers may use the same ZooKeeper; `argument` names the
    argument with the properties.
    """
    try:
        listener = config.get("security.inter.broker.protocol", "PLAINTEXT")
        checked = BrokerConfig({"broker.id": "1", "zookeeper.connect": "unused", "listeners": f"{listener}://:9092"} | dict(config))
    except ConfigError as error:
        raise BadArgument(_ARGUMENTS.get(error.key, argument), str(error)) from error
    for topic in topics:
        _check_topic(topic, brokers, checked)
    twice = [name for name, count in Counter(topic.name for topic in topics).items() if count > 1]
    if twice:
        raise BadArgument("topics", f"{twice[0]} is named twice")


def _check_topic(topic: SeedTopic, brokers: int | None, config: BrokerConfig) -> None:
    if not is_valid_name(topic.name):
        raise BadArgument("topics", f"{topic.name!r} is not a topic name")
    if topic.partitions < 1:
        raise BadArgument("topics", f"{topic.name} cannot have {topic.partitions} partitions")
    if topic.replication_factor < 1 or (brokers is not None and topic.replication_factor > brokers):
        raise BadArgument("topics", f"{topic.name} cannot have {topic.replication_factor} replicas on {brokers} brokers")
    try:
        validate_topic_configs(dict(topic.configs), config)
    except ApiError as error:
        raise BadArgument("topics", f"{topic.name}: {error.message}") from error
