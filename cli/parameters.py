"""Shapes of option values: `KEY=VALUE` and `NAME:PARTITIONS:RF`."""

from __future__ import annotations

from typing import NamedTuple

import click


class SeededTopic(NamedTuple):
    """A topic to create at start."""

    name: str
    partitions: int
    replication_factor: int


class KeyValue(click.ParamType[tuple[str, str]]):
    """`KEY=VALUE`; the value may be empty and may hold more `=`."""

    name = "KEY=VALUE"

    def convert(self, value: str | tuple[str, str], param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        """The pair."""
        if isinstance(value, tuple):
            return value
        key, separator, text = value.partition("=")
        if not separator or not key.strip():
            self.fail(f"{value!r} is not KEY=VALUE", param, ctx)
        return key.strip(), text.strip()


class Topic(click.ParamType[SeededTopic]):
    """`NAME:PARTITIONS:RF`; partitions and replication factor default to 1."""

    name = "NAME:PARTITIONS:RF"

    def convert(self, value: str | SeededTopic, param: click.Parameter | None, ctx: click.Context | None) -> SeededTopic:
        """The topic asked for; whether the name is legal is the broker's business."""
        if isinstance(value, SeededTopic):
            return value
        name, *numbers = value.split(":")
        if not name or len(numbers) > 2 or not all(number.isascii() and number.isdigit() and int(number) > 0 for number in numbers):
            self.fail(f"{value!r} is not NAME:PARTITIONS:RF, such as orders:6:3", param, ctx)
        partitions, replication_factor = (*map(int, numbers), 1, 1)[:2]
        return SeededTopic(name, partitions, replication_factor)


KEY_VALUE = KeyValue()
TOPIC = Topic()
