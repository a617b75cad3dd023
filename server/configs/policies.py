"""Policies: what else topics and configs must be, by somebody else's rules.

`create.topic.policy.class.name` and `alter.config.policy.class.name` name a Java class in Kafka. Here they may name a Python function,
`python:module:function`; a Java class cannot run, and a broker that is configured with one does not start, because otherwise it would allow
everything. A program that makes its own brokers hands functions to `BrokerServer` instead, which win over the properties.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from klamm.configs.broker_config import BrokerConfig
from klamm.configs.types import ConfigError

CREATE_TOPIC = "create.topic.policy.class.name"
ALTER_CONFIG = "alter.config.policy.class.name"
REASSIGNMENT = "kip179.policy.class.name"


class TopicPolicy(Protocol):
    """create.topic.policy.class.name: may a topic look like this?"""

    def __call__(
        self,
        name: str,
        partitions: int | None,
        replication_factor: int | None,
        assignments: Mapping[int, Sequence[int]] | None,
        configs: Mapping[str, str | None],
    ) -> str | None:
        """None when it is fine, else the text of the violation. Counts are None when assignments are given."""


class AlterConfigPolicy(Protocol):
    """alter.config.policy.class.name: may somebody change configs so?"""

    def __call__(self, resource_type: int, name: str, configs: Mapping[str, str | None]) -> str | None:
        """None when it is fine, else the text of the violation.

        The resource is a topic (2) or a broker (4, with an empty name all brokers). The configs are those that the request names, with
        its values: for an incremental request also what is appended, subtracted or, mostly with None, deleted.
        """


class ReassignmentPolicy(Protocol):
    """kip179.policy.class.name: may a partition be reassigned to these brokers by ReassignPartitions (KIP-179)?"""

    def __call__(self, topic: str, partition: int, replicas: Sequence[int]) -> str | None:
        """None when it is fine, else the text of the violation. It is called for what passes all checks, with validate_only too."""


def any_topic(
    name: str,
    partitions: int | None,
    replication_factor: int | None,
    assignments: Mapping[int, Sequence[int]] | None,
    configs: Mapping[str, str | None],
) -> str | None:
    """The policy of a broker that has none."""
    return None


def any_change(resource_type: int, name: str, configs: Mapping[str, str | None]) -> str | None:
    """The policy of a broker that has none."""
    return None


def any_reassignment(topic: str, partition: int, replicas: Sequence[int]) -> str | None:
    """The policy of a broker that has none."""
    return None


def topic_policy(config: BrokerConfig) -> TopicPolicy:
    """The policy that the properties name. Raises ConfigError."""
    return _named(config, CREATE_TOPIC) or any_topic


def alter_config_policy(config: BrokerConfig) -> AlterConfigPolicy:
    """The policy that the properties name. Raises ConfigError."""
    return _named(config, ALTER_CONFIG) or any_change


def reassignment_policy(config: BrokerConfig) -> ReassignmentPolicy:
    """The policy that the properties name. Raises ConfigError."""
    return _named(config, REASSIGNMENT) or any_reassignment


def _named(config: BrokerConfig, key: str) -> Callable[..., Any] | None:
    text = config.get(key)
    if not text:
        return None
    scheme, _, path = text.partition(":")
    module, _, function = path.partition(":")
    if scheme != "python" or not module or not function:
        raise ConfigError(key, text, "is a Java class, which cannot run here; a Python function is named python:module:function")
    try:
        found = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise ConfigError(key, text, f"cannot be found: {error}") from error
    if not callable(found):
        raise ConfigError(key, text, "is no function")
    policy: Callable[..., Any] = found
    return policy
