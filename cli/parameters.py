"""Shapes of option values: `KEY=VALUE` and `NAME:PARTITIONS:RF[:KEY=VALUE…]`."""

from __future__ import annotations

import click

from klamm.server.local.arguments import SeedTopic


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


class Topic(click.ParamType[SeedTopic]):
    """`NAME:PARTITIONS:RF:KEY=VALUE…`; partitions and replication factor default to 1, configs may follow or not."""

    name = "NAME:PARTITIONS:RF[:KEY=VALUE…]"

    def convert(self, value: str | SeedTopic, param: click.Parameter | None, ctx: click.Context | None) -> SeedTopic:
        """The topic asked for; whether a broker would create it is checked later, with all of them."""
        if isinstance(value, SeedTopic):
            return value
        try:
            return SeedTopic.parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


KEY_VALUE = KeyValue()
TOPIC = Topic()
