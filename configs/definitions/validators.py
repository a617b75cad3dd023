"""Validators: what the value of a config must be, beyond its type. A validator returns the reason against a value, or None.

Where Kafka has the validator, the reason is in its words: scripts and tests of clients look for them.
"""

from __future__ import annotations

import re
from typing import Any, Protocol

from klamm.configs.releases.inter_broker_protocol import MetadataVersion
from klamm.seams.value_class import dataclass


class Validator(Protocol):
    """`check` returns the reason against a value, None when there is none."""

    def check(self, name: str, value: Any) -> str | None: ...


@dataclass(frozen=True, slots=True)
class Range:
    """A number from `low` to `high`, both included; `other` is allowed besides."""

    low: int | None = None
    high: int | float | None = None
    other: int | None = None

    def check(self, name: str, value: Any) -> str | None:
        if value is None:
            return "Value must be non-null"
        if self.other is not None and value == self.other:
            return None
        too_low, too_high = self.low is not None and value < self.low, self.high is not None and value > self.high
        if (too_low or too_high) and self.other is not None and self.high is not None:
            return f"Value must be between {self.low} and {self.high} or equal to {self.other}"
        if too_low:
            return f"Value must be at least {self.low}" + ("" if self.other is None else f" or equal to {self.other}")
        return f"Value must be no more than {self.high}" if too_high else None


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of a few words."""

    words: tuple[str, ...]
    ignore_case: bool = False

    def check(self, name: str, value: Any) -> str | None:
        word = value.upper() if self.ignore_case and isinstance(value, str) else value
        case = " (case insensitive)" if self.ignore_case else ""
        return None if word in self.words else f"String must be one of{case}: {', '.join(self.words)}"


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list of a few words."""

    words: tuple[str, ...]

    def check(self, name: str, value: Any) -> str | None:
        return f"String must be one of: {', '.join(self.words)}" if self.wrong(value) else None

    def wrong(self, value: tuple[str, ...]) -> list[str]:
        """The elements that are none of the words."""
        return [word for word in value if word not in self.words]


@dataclass(frozen=True, slots=True)
class NonEmpty:
    """A text that is not empty; null is allowed."""

    def check(self, name: str, value: Any) -> str | None:
        return "String must be non-empty" if value == "" else None


@dataclass(frozen=True, slots=True)
class NonNull:
    """Anything but null."""

    def check(self, name: str, value: Any) -> str | None:
        return "entity must be non null" if value is None else None


@dataclass(frozen=True, slots=True)
class ThrottledReplicas:
    """`*` alone, or pairs partition:broker. Empty elements pass, as they do in Kafka."""

    def check(self, name: str, value: Any) -> str | None:
        if "".join(value) == "*" or all(re.fullmatch(r"([0-9]+:[0-9]+)?", pair) for pair in value):
            return None
        pairs = "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
        return f"{name} must be the literal '*' or a list of replicas in the following format: {pairs}"


@dataclass(frozen=True, slots=True)
class KnownVersion:
    """A release or inter-broker protocol version Kafka knows."""

    def check(self, name: str, value: Any) -> str | None:
        return f"Version {value} is not a valid version" if MetadataVersion.find(value) is None else None


@dataclass(frozen=True, slots=True)
class KafkaRelease:
    """A version of Apache Kafka whose APIs are known."""

    def check(self, name: str, value: Any) -> str | None:
        from klamm.configs.releases.kafka_releases import RELEASES, release_of  # few brokers need the table

        return None if release_of(value) is not None else f"must be a version of Apache Kafka from {RELEASES[0]} to {RELEASES[-1]}"


@dataclass(frozen=True, slots=True)
class ApiVersionRanges:
    """Names of APIs with the versions that are offered."""

    def check(self, name: str, value: Any) -> str | None:
        from klamm.configs.definitions.api_versions import parse_api_versions  # few brokers need it

        try:
            parse_api_versions(value)
        except ValueError as error:
            return str(error)
        return None


@dataclass(frozen=True, slots=True)
class Matching:
    """A list whose elements all have one form."""

    pattern: str
    form: str

    def check(self, name: str, value: Any) -> str | None:
        wrong = [element for element in value if not re.fullmatch(self.pattern, element)]
        return f"{wrong[0]!r} is not of the form {self.form}" if wrong else None


@dataclass(frozen=True, slots=True)
class Pattern:
    """A text of one form."""

    pattern: str
    form: str

    def check(self, name: str, value: Any) -> str | None:
        return None if re.fullmatch(self.pattern, value) else f"must be {self.form}"


def blamed(validator: Validator, value: Any) -> Any:
    """What an error shows of a value: the wrong element of a list of words, of other lists all, as Java writes them."""
    if not isinstance(value, tuple):
        return value
    return validator.wrong(value)[0] if isinstance(validator, ListOf) else f"[{', '.join(value)}]"
