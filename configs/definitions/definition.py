"""The definition of one config: name, type, default, validator, and how it can change while the broker runs.

The tables are files in `configs/tables/`, which `configs/tables/broker.py` reads. `synonyms` lists the names of one setting in order of
precedence: `log.retention.ms`, then `.minutes`, then `.hours`. The config of one listener (`listener.name.internal.ssl.client.auth`) comes
before the config without the prefix.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Any

from klamm.configs.definitions.types import ConfigError, ConfigType, parse
from klamm.configs.definitions.validators import Validator, blamed
from klamm.seams.value_class import dataclass


class UpdateMode(Enum):
    """How a broker config can change at run time: not at all, per broker, per broker or for the whole cluster, or only for the whole
    cluster.
    """

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"
    DEFAULT_ONLY = "default-only"


READ_ONLY = UpdateMode.READ_ONLY
PER_BROKER = UpdateMode.PER_BROKER
DEFAULT_ONLY = UpdateMode.DEFAULT_ONLY


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """A config. `server` is the broker config with the default of a topic config. `internal` configs are not shown.

    `used`: Klamm acts by it. `effect` says what it does to logs, or why it does nothing (docs/log_configs.md).
    """

    name: str
    type: ConfigType
    default: Any
    documentation: str
    valid: Validator | None = None
    mode: UpdateMode = READ_ONLY
    server: str | None = None
    internal: bool = False
    used: bool = False
    effect: str | None = None

    @property
    def sensitive(self) -> bool:
        """Whether values must never be shown."""
        return self.type is ConfigType.PASSWORD

    def parse(self, text: str) -> Any:
        """The typed value of the text. Raises ConfigError."""
        value = parse(self.name, text, self.type)
        reason = None if self.valid is None else self.valid.check(self.name, value)
        if self.valid is not None and reason is not None:
            raise ConfigError(self.name, blamed(self.valid, value), reason)
        return value


_SYNONYMS = (
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
)
_SYNONYMS_OF = {name: names for names in _SYNONYMS for name in names} | {
    "log.flush.interval.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms")  # but not the reverse
}
_LISTENER_PREFIX = re.compile(r"listener\.name\.[^.]*\.(.*)", re.DOTALL)
# These may have a SASL mechanism between the name of the listener and their own name.
_PER_MECHANISM = (
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.server.callback.handler.class",
    "connections.max.reauth.ms",
)


def without_listener(name: str) -> str | None:
    """The name without the prefix `listener.name.<name>.`; None if there is no such prefix."""
    match = _LISTENER_PREFIX.fullmatch(name)
    return match[1] if match else None


def synonyms(name: str, across_listeners: bool = True) -> tuple[str, ...]:
    """Names of the same setting in order of precedence. Without `across_listeners` the config of one listener has no other synonym."""
    base = without_listener(name)
    if base is None or not across_listeners:
        return _SYNONYMS_OF.get(name, (name,))
    return name, next((config for config in _PER_MECHANISM if base.endswith(config)), base)
