"""Validators: what the value of a config must be, beyond its type. A validator returns the reason against a value, or None."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Protocol

from klamm.configs.inter_broker_protocol import MetadataVersion


class Validator(Protocol):
    """`check` returns the reason against a value, None when there is none."""

    def check(self, value: Any) -> str | None: ...


@dataclass(frozen=True, slots=True)
class Range:
    """A number from `low` to `high`, both included; `other` is allowed besides."""

    low: int | None = None
    high: int | float | None = None
    other: int | None = None

    def check(self, value: Any) -> str | None:
        if value is None:
            return "must not be null"
        if self.other is not None and value == self.other:
            return None
        besides = "" if self.other is None else f", or {self.other}"
        if self.low is not None and value < self.low:
            return f"must be at least {self.low}{besides}"
        if self.high is not None and value > self.high:
            return f"must be at most {self.high}{besides}"
        return None


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of a few words."""

    words: tuple[str, ...]
    ignore_case: bool = False

    def check(self, value: Any) -> str | None:
        word = value.upper() if self.ignore_case and isinstance(value, str) else value
        return None if word in self.words else f"must be one of {', '.join(self.words)}"


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list of a few words."""

    words: tuple[str, ...]

    def check(self, value: Any) -> str | None:
        wrong = [word for word in value if word not in self.words]
        return f"{wrong[0]!r} is none of {', '.join(self.words)}" if wrong else None


@dataclass(frozen=True, slots=True)
class NonEmpty:
    """A text that is not empty; null is allowed."""

    def check(self, value: Any) -> str | None:
        return "must not be empty" if value == "" else None


@dataclass(frozen=True, slots=True)
class NonNull:
    """Anything but null."""

    def check(self, value: Any) -> str | None:
        return "must not be null" if value is None else None


@dataclass(frozen=True, slots=True)
class ThrottledReplicas:
    """`*` alone, or pairs partition:broker. Empty elements pass, as they do in Kafka."""

    def check(self, value: Any) -> str | None:
        if "".join(value) == "*" or all(re.fullmatch(r"([0-9]+:[0-9]+)?", pair) for pair in value):
            return None
        return "must be * or pairs partition:broker joined by commas"


@dataclass(frozen=True, slots=True)
class KnownVersion:
    """A release or inter-broker protocol version Kafka knows."""

    def check(self, value: Any) -> str | None:
        return "not a known version" if MetadataVersion.find(value) is None else None


@dataclass(frozen=True, slots=True)
class Matching:
    """A list whose elements all have one form."""

    pattern: str
    form: str

    def check(self, value: Any) -> str | None:
        wrong = [element for element in value if not re.fullmatch(self.pattern, element)]
        return f"{wrong[0]!r} is not of the form {self.form}" if wrong else None


@dataclass(frozen=True, slots=True)
class Pattern:
    """A text of one form."""

    pattern: str
    form: str

    def check(self, value: Any) -> str | None:
        return None if re.fullmatch(self.pattern, value) else f"must be {self.form}"
