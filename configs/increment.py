"""Incremental changes of the configs of an entity: SET, DELETE, APPEND, SUBTRACT, applied in order to the stored values.

APPEND and SUBTRACT start from the stored list, or from Kafka's default if nothing is stored. Elements are separated by commas and are not
trimmed. APPEND skips elements that are present; SUBTRACT removes one occurrence of each named element. A list without elements is an empty
text, not unset. Unusual lists (empty elements, commas at the end) give the same results as Apache Kafka 3.9.1. The blacklist of brokers is
treated as a set of ids.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import IntEnum

from klamm.configs.definitions.blacklist import BLACKLIST, with_brokers, without_brokers
from klamm.configs.definitions.definition import ConfigKey
from klamm.configs.definitions.types import ConfigType, text_of
from klamm.protocol.errors import ApiError, ErrorCode


class Operation(IntEnum):
    """The operation on one config, with the numbers of the protocol."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


Change = tuple[str, int, str | None]


def check_operations(changes: Iterable[Change]) -> None:
    """Check that all operations exist. Raises ValueError."""
    for _, number, _ in changes:
        _operation(number)


def incremented(
    stored: Mapping[str, str], changes: Iterable[Change], table: Mapping[str, ConfigKey], elsewhere: Collection[str] = ()
) -> dict[str, str]:
    """The stored values after the changes (name, operation, value). Raises ApiError, ConfigError, and ValueError for an unknown operation.

    `elsewhere` are Klamm's own configs of other resource types.
    """
    configs = dict(stored)
    for name, number, value in changes:
        operation = _operation(number)
        if operation is Operation.DELETE:
            configs.pop(name, None)
        elif value is None:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {name}")
        elif operation is Operation.SET:
            configs[name] = value
        else:
            configs[name] = _list_after(configs.get(name), operation, value, _list_key(name, operation, table, elsewhere))
    return configs


def _operation(number: int) -> Operation:
    """Raises ValueError."""
    try:
        return Operation(number)
    except ValueError:
        raise ValueError(f"Unknown operations type {number}") from None


def _list_key(name: str, operation: Operation, table: Mapping[str, ConfigKey], elsewhere: Collection[str]) -> ConfigKey:
    key = table.get(name)
    if key is None and name in elsewhere:
        raise ApiError(ErrorCode.INVALID_CONFIG, f"{name} is not a config of this resource type")
    if key is None:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR)  # as in Kafka, where an exception causes this code
    if key.type is not ConfigType.LIST:
        raise ApiError(ErrorCode.INVALID_CONFIG, f"Config value {operation.name.lower()} is not allowed for config key: {name}")
    return key


def _list_after(stored: str | None, operation: Operation, value: str, key: ConfigKey) -> str:
    text = text_of(key.default) if stored is None else stored
    if key is BLACKLIST:
        return (with_brokers if operation is Operation.APPEND else without_brokers)(text or "", value)
    present = _elements(text) if text else []
    named = _elements(value)
    if operation is Operation.APPEND:
        return ",".join(present + [element for element in named if element not in present])
    for element in named:
        if element in present:
            present.remove(element)
    return ",".join(present)


def _elements(text: str) -> list[str]:
    """The elements between commas, as Java splits them: empty elements at the end are dropped, and an empty text is one empty element."""
    if not text:
        return [""]
    text = text.rstrip(",")
    return text.split(",") if text else []
