"""The configs of client quotas: which of them an entity has, and their values as numbers and as stored text.

A user, a client of a user and a client have rates of bytes, a percentage of time and a rate of mutations; an address has a rate of
connections. Rates of bytes and of connections are whole numbers. As in Apache Kafka, a number counts as whole if it exceeds an integer by
at most a millionth or is below it by less; so no negative number is whole. Source: `QuotaConfigs`, `DynamicConfig` and
`ZkAdminManager.alterClientQuotas` of Apache Kafka 3.9.1.
"""

from __future__ import annotations

from collections.abc import Mapping

from klamm.configs.definitions.types import ConfigType, double_text, parse_double, parse_integer

PRODUCER_BYTE_RATE = "producer_byte_rate"
CONSUMER_BYTE_RATE = "consumer_byte_rate"
REQUEST_PERCENTAGE = "request_percentage"
CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
CONNECTION_CREATION_RATE = "connection_creation_rate"

CLIENT_QUOTAS: Mapping[str, ConfigType] = {
    PRODUCER_BYTE_RATE: ConfigType.LONG,
    CONSUMER_BYTE_RATE: ConfigType.LONG,
    REQUEST_PERCENTAGE: ConfigType.DOUBLE,
    CONTROLLER_MUTATION_RATE: ConfigType.DOUBLE,
}
IP_QUOTAS: Mapping[str, ConfigType] = {CONNECTION_CREATION_RATE: ConfigType.INT}
SCRAM_MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
"""Configs of users beside their quotas."""

EPSILON = 1e-6
_LIMITS = {ConfigType.LONG: 1 << 63, ConfigType.INT: 1 << 31}


def quota_text(value: float, type_: ConfigType) -> str:
    """The text that is stored for a number. Raises ValueError if the number must be whole and is not, or has too many digits."""
    if type_ is ConfigType.DOUBLE:
        return double_text(value)
    whole = _as_java_integer(value + EPSILON, _LIMITS[type_])
    if abs(float(whole) - value) > EPSILON:
        raise ValueError(f"{value} is not a {type_.name}")
    return str(whole)


def _as_java_integer(value: float, limit: int) -> int:
    """A double cut to an integer as Java does it: NaN is 0, what is too large is the largest number."""
    if value != value:  # NaN
        return 0
    if abs(value) >= limit:
        return limit - 1 if value > 0 else -limit
    return int(value)


def check_quotas(properties: Mapping[str, str], quotas: Mapping[str, ConfigType], others: tuple[str, ...] = ()) -> None:
    """Raises ValueError if a config is none of these quotas and not in `others`, or its text is not a number of its type."""
    for name, text in properties.items():
        if name in quotas:
            number_of(text, quotas[name])
        elif name not in others:
            raise ValueError(f"{name} is not a config of this entity")


def number_of(text: str, type_: ConfigType) -> float:
    """The number of a stored text. Raises ValueError."""
    text = text.strip()
    if type_ is ConfigType.DOUBLE:
        return parse_double(text)
    number = parse_integer(text, 63 if type_ is ConfigType.LONG else 31)
    if type_ is ConfigType.INT and number < 0:
        raise ValueError(f"{text} is below 0")
    return float(number)
