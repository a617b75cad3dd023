"""The config `preferred_leader_blacklist`: brokers that should lead a partition only if no other replica can (KIP-491, R491-1).

It is a list of broker ids, set for the whole cluster. Spaces around ids, duplicates and the order of the list have no meaning.
"""

from __future__ import annotations

from collections.abc import Mapping

from klamm.configs.definitions.definition import DEFAULT_ONLY, ConfigKey
from klamm.configs.definitions.types import ConfigType, parse_integer
from klamm.seams.value_class import dataclass


@dataclass(frozen=True, slots=True)
class BrokerIds:
    """A list of broker ids, 0 or greater. The brokers do not need to exist."""

    def check(self, _name: str, value: tuple[str, ...]) -> str | None:
        for element in value:
            try:
                valid = parse_integer(element) >= 0
            except ValueError:
                valid = False
            if not valid:
                return f"{element!r} is not the id of a broker"
        return None


BLACKLIST = ConfigKey(
    "preferred_leader_blacklist",
    ConfigType.LIST,
    (),
    "Brokers that should lead a partition only if no other replica can (KIP-491).",
    BrokerIds(),
    DEFAULT_ONLY,
)


def listed_brokers(properties: Mapping[str, str]) -> frozenset[int]:
    """The brokers on the list in these properties; empty if it is not set. Raises ConfigError."""
    return frozenset(_ids(properties.get(BLACKLIST.name, "")))


def with_brokers(text: str, more: str) -> str:
    """The list with these brokers added, without duplicates. Raises ConfigError."""
    return ",".join(map(str, dict.fromkeys(_ids(text) + _ids(more))))


def without_brokers(text: str, gone: str) -> str:
    """The list without any occurrence of these brokers. Raises ConfigError."""
    named = _ids(gone)
    return ",".join(str(broker_id) for broker_id in dict.fromkeys(_ids(text)) if broker_id not in named)


def _ids(text: str) -> list[int]:
    return [parse_integer(element) for element in BLACKLIST.parse(text)]
