"""The configs whose values may be shown and written."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from klamm.configs.definitions.definition import ConfigKey
from klamm.configs.tables.broker import BROKER, OWN, QUOTAS, SWITCHES, TOPICS

_TABLES: tuple[Mapping[str, ConfigKey], ...] = (BROKER, SWITCHES, OWN, QUOTAS, TOPICS)


@cache
def public_configs() -> frozenset[str]:
    """Names of all configs that are not sensitive."""
    return frozenset(name for table in _TABLES for name, key in table.items() if not key.sensitive)
