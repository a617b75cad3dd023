"""The config `preferred_leader_blacklist`: brokers that are to lead only where no other can (KIP-491, R491-1).

It is a list of broker ids, set for all brokers at once. Blanks around ids, repetitions and the order of the list mean nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from klamm.configs.definition import CLUSTER_WIDE, LIST, ConfigKey
from klamm.configs.types import parse_integer


@dataclass(frozen=True, slots=True)
class BrokerIds:
    """A list of broker ids: numbers from 0 on. Whether there are such brokers does not matter."""

    def check(self, value: Any) -> str | None:
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
    LIST,
    (),
    "Brokers that are to lead a partition only where no other replica can (KIP-491).",
    BrokerIds(),
    CLUSTER_WIDE,
)


def listed_brokers(properties: Mapping[str, str]) -> frozenset[int]:
    """The brokers on the list in these properties, none where it is not set. Raises ConfigError."""
    return frozenset(map(parse_integer, BLACKLIST.parse(properties.get(BLACKLIST.name, ""))))
