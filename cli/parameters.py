"""Types of option values: `KEY=VALUE` and `NAME:PARTITIONS:RF[:KEY=VALUE…]`."""

from __future__ import annotations

import click

from klamm.server.local.arguments import SeedTopic


class KeyValue(click.ParamType[tuple[str, str]]):
    """`KEY=VALUE`; the value may be empty and may contain `=`."""

    name = "KEY=VALUE"

    def convert(self, value: str | tuple[str, str], param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        """The pair of key and value."""
        if isinstance(value, tuple):
            return value
        key, separator, text = value.partition("=")
        if not separator or not key.strip():
            self.fail(f"{value!r} is not KEY=VALUE", param, ctx)
        return key.strip(), text.strip()


class Topic(click.ParamType[SeedTopic]):
    """`NAME:PARTITIONS:RF:KEY=VALUE…`. Partitions and replication factor default to 1; configs are optional."""

    name = "NAME:PARTITIONS:RF[:KEY=VALUE…]"

    def convert(self, value: str | SeedTopic, param: click.Parameter | None, ctx: click.Context | None) -> SeedTopic:
        """The requested topic. All topics are validated together later."""
        if isinstance(value, SeedTopic):
            return value
        try:
            return SeedTopic.parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Whole(click.IntRange):
    """A whole number in a range. For text that is not a number, click's own class says "not a valid integer range"."""

    name = "integer"


class Decimal(click.FloatRange):
    """A number in a range, with the same change of click's message as `Whole`."""

    name = "float"


class Int64(click.ParamType[int]):
    """A whole number that fits into 64 bits."""

    name = "NUMBER"

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number."""
        try:
            number = int(value)
        except ValueError:
            self.fail(f"{value!r} is not a whole number", param, ctx)
        if not -(2**63) <= number < 2**63:
            self.fail(f"{value} does not fit into 64 bits", param, ctx)
        return number


KEY_VALUE = KeyValue()
INT64 = Int64()
TOPIC = Topic()
