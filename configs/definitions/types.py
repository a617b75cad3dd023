"""Kafka's nine types of configs: parsing of texts, and formatting as in Kafka.

A property is a text in a file, in ZooKeeper and on the wire. `parse` returns its Python value by the rules of Java (blanks around it are
removed, digits can be of any script, a double can end in `f`). `text_of` returns the text in a DescribeConfigs response. Lists are tuples;
classes and passwords stay texts, because no class is loaded. An invalid value raises ConfigError, whose text is one line with key, value
and reason.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any

Values = Mapping[str, Any]
"""Name of a config → its parsed value."""


class ConfigType(IntEnum):
    """A config's type, numbered as DescribeConfigs reports it."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigError(Exception):
    """A config cannot have this value. `reason` goes on after a colon; `text` stands for the whole line where Kafka has another one.

    `response` is the text for a request to change the config of a running broker, where Kafka says it in other words.
    """

    def __init__(self, key: str, value: object, reason: str, text: str | None = None, response: str | None = None) -> None:
        shown = text_of(value)
        what = "Missing value" if shown is None else f"Invalid value {shown}"
        super().__init__(f"{what} for configuration {key}: {reason}" if text is None else text)
        self.key = key
        self.value = value
        self.reason = reason
        self.response = str(self) if response is None else response


# What Java's String.trim takes off: everything up to the blank, and nothing above it.
_JAVA_BLANKS = "".join(map(chr, range(0x21)))
_COMMA = re.compile(r"[ \t\n\x0b\f\r]*,[ \t\n\x0b\f\r]*")
_INTEGER = re.compile(r"[+-]?\d+")
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?")
_HEXADECIMAL = re.compile(r"[+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+[fFdD]?")
_BITS = {ConfigType.SHORT: 15, ConfigType.INT: 31, ConfigType.LONG: 63}


def trim(text: str) -> str:
    """Text without the blanks and control characters around it."""
    return text.strip(_JAVA_BLANKS)


def split_list(text: str) -> tuple[str, ...]:
    """Elements between commas, blanks around each taken off; none in an empty text."""
    text = trim(text)
    return tuple(_COMMA.split(text)) if text else ()


def parse_integer(text: str, bits: int = 31) -> int:
    """An integer as Java parses it, with at most `bits` bits besides its sign. Raises ValueError."""
    if not _INTEGER.fullmatch(text):
        raise ValueError(f"{text!r} is not an integer")
    value = int(text)
    if not -(1 << bits) <= value < 1 << bits:
        raise ValueError(f"{text} has more than {bits} bits")
    return value


def parse_double(text: str) -> float:
    """A double as Java parses it. Raises ValueError."""
    text = trim(text)
    sign = -1.0 if text.startswith("-") else 1.0
    unsigned = text[1:] if text[:1] in ("+", "-") else text
    if unsigned in ("NaN", "Infinity"):
        return math.nan if unsigned == "NaN" else sign * math.inf
    if _DECIMAL.fullmatch(text):
        return float(text.rstrip("fFdD"))
    if _HEXADECIMAL.fullmatch(text):
        return float.fromhex(re.sub(r"[fFdD]$", "", text))
    raise ValueError(f"{text!r} is not a number")


def _boolean(name: str, text: str) -> bool:
    lowered = text.lower()
    if lowered not in ("true", "false"):
        raise ConfigError(name, text, "Expected value to be either true or false")
    return lowered == "true"


def _integer(type_: ConfigType) -> Callable[[str, str], int]:
    def parse_it(name: str, text: str) -> int:
        try:
            return parse_integer(text, _BITS[type_])
        except ValueError as error:
            raise ConfigError(name, text, f"Not a number of type {type_.name}") from error

    return parse_it


def _double(name: str, text: str) -> float:
    try:
        return parse_double(text)
    except ValueError as error:
        raise ConfigError(name, text, "Not a number of type DOUBLE") from error


_PARSERS: dict[ConfigType, Callable[[str, str], Any]] = {
    ConfigType.BOOLEAN: _boolean,
    ConfigType.INT: _integer(ConfigType.INT),
    ConfigType.SHORT: _integer(ConfigType.SHORT),
    ConfigType.LONG: _integer(ConfigType.LONG),
    ConfigType.DOUBLE: _double,
    ConfigType.LIST: lambda name, text: split_list(text),
}


def parse(name: str, text: str, type_: ConfigType) -> Any:
    """The value of a property's text. Raises ConfigError."""
    parser = _PARSERS.get(type_)
    text = trim(text)
    return text if parser is None else parser(name, text)


def text_of(value: object) -> str | None:
    """A value as DescribeConfigs shows it; None stays None."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return double_text(value)
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value)


def double_text(value: float) -> str:
    """A double as Java writes it: plain between 0.001 and 10 million, else with an exponent."""
    if math.isnan(value) or math.isinf(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        digits = repr(value)
        return format(value, "f").rstrip("0") if "e" in digits else digits
    mantissa, _, exponent = repr(value).partition("e")
    sign, digits = ("-", mantissa[1:]) if mantissa.startswith("-") else ("", mantissa)
    whole, _, fraction = digits.partition(".")
    power = int(exponent) if exponent else 0
    significant = (whole + fraction).lstrip("0")
    power += len(whole) - 1 if whole.strip("0") else -(len(fraction) - len(fraction.lstrip("0")) + 1)
    significant = significant.rstrip("0") or "0"
    return f"{sign}{significant[0]}.{significant[1:] or '0'}E{power}"
