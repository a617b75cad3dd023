"""Policies: the user's own rules for topics, configs and reassignments.

In Kafka `create.topic.policy.class.name` and `alter.config.policy.class.name` name a Java class. Here they may name a Python function:
`python:module:function`. Klamm cannot run a Java class; a broker that is configured with one does not start, because otherwise it would
allow everything. A program can also give functions to its `BrokerServer`; they take precedence over the properties.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from klamm.configs.broker_config import BrokerConfig
from klamm.configs.definitions.types import ConfigError

CREATE_TOPIC = "create.topic.policy.class.name"
ALTER_CONFIG = "alter.config.policy.class.name"
REASSIGNMENT = "kip179.policy.class.name"


class TopicPolicy(Protocol):
    """create.topic.policy.class.name: decides whether a topic may be created."""

    def __call__(
        self,
        name: str,
        partitions: int | None,
        replication_factor: int | None,
        assignments: Mapping[int, Sequence[int]] | None,
        configs: Mapping[str, str | None],
    ) -> str | None:
        """Return None to allow the topic, else the text of the violation. The counts are None if assignments are given."""


class AlterConfigPolicy(Protocol):
    """alter.config.policy.class.name: decides whether configs may be changed."""

    def __call__(self, resource_type: int, name: str, configs: Mapping[str, str | None]) -> str | None:
        """Return None to allow the change, else the text of the violation.

        The resource is a topic (2) or a broker (4; an empty name means all brokers). The configs are those in the request, with its values.
        An incremental request also has values to append or subtract, and configs to delete, mostly with None.
        """


class ReassignmentPolicy(Protocol):
    """kip179.policy.class.name: decides whether ReassignPartitions may move a partition to these brokers (KIP-179)."""

    def __call__(self, topic: str, partition: int, replicas: Sequence[int]) -> str | None:
        """Return None to allow it, else the text of the violation. Called after all other checks, also for validate_only."""


def any_topic(
    name: str,
    partitions: int | None,
    replication_factor: int | None,
    assignments: Mapping[int, Sequence[int]] | None,
    configs: Mapping[str, str | None],
) -> str | None:
    """The default policy: every topic is allowed."""
    return None


def any_change(resource_type: int, name: str, configs: Mapping[str, str | None]) -> str | None:
    """The default policy: every change is allowed."""
    return None


def any_reassignment(topic: str, partition: int, replicas: Sequence[int]) -> str | None:
    """The default policy: every reassignment is allowed."""
    return None


def topic_policy(config: BrokerConfig) -> TopicPolicy:
    """The configured policy, or the default. Raises ConfigError."""
    return _named(config, CREATE_TOPIC) or any_topic


def alter_config_policy(config: BrokerConfig) -> AlterConfigPolicy:
    """The configured policy, or the default. Raises ConfigError."""
    return _named(config, ALTER_CONFIG) or any_change


def reassignment_policy(config: BrokerConfig) -> ReassignmentPolicy:
    """The configured policy, or the default. Raises ConfigError."""
    return _named(config, REASSIGNMENT) or any_reassignment


def _named(config: BrokerConfig, key: str) -> Callable[..., Any] | None:
    text = config.get(key)
    if not text:
        return None
    scheme, _, path = text.partition(":")
    module, _, function = path.partition(":")
    if scheme != "python" or not module or not function:
        raise ConfigError(key, text, "is a Java class, which Klamm cannot run; name a Python function as python:module:function")
    try:
        policy = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise ConfigError(key, text, f"cannot be imported: {error}") from error
    if not callable(policy):
        raise ConfigError(key, text, "is not a function")
    checked: Callable[..., Any] = policy
    return checked
