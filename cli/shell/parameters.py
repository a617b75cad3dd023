"""Types of option values: `KEY=VALUE` and `NAME:PARTITIONS:RF[:KEY=VALUE…]`."""

from __future__ import annotations

import re
from collections import Counter
from typing import ClassVar, TypeVar

import click

from klamm.cli.shell.value_completion import complete_apis
from klamm.protocol.addresses import Address, address_of
from klamm.server.local.arguments import Advertised, SeedTopic

P = TypeVar("P", SeedTopic, Advertised)


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


class UserPassword(click.ParamType[tuple[str, str]]):
    """`NAME:PASSWORD`; the password may contain `:`. An error does not show it."""

    name = "NAME:PASSWORD"

    def convert(self, value: str | tuple[str, str], param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        """The pair of name and password."""
        if isinstance(value, tuple):
            return value
        user, colon, password = value.partition(":")
        if not (user and colon and password):
            self.fail("not NAME:PASSWORD, such as eve:secret", param, ctx)
        return user, password


class BrokerKeyValue(click.ParamType[tuple[int, str, str]]):
    """`ID:KEY=VALUE`: a property of one broker."""

    name = "ID:KEY=VALUE"

    def convert(
        self, value: str | tuple[int, str, str], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, str, str]:
        """The id of the broker, key and value."""
        if isinstance(value, tuple):
            return value
        number, _, rest = value.partition(":")
        key, separator, text = rest.partition("=")
        if not (number.isascii() and number.isdigit()) or not separator or not key.strip():
            self.fail(f"{value!r} is not ID:KEY=VALUE, such as 2:broker.rack=b", param, ctx)
        return int(number), key.strip(), text.strip()


class _Parsed(click.ParamType[P]):
    """A value that its class parses."""

    kind: type[P]

    def convert(self, value: str | P, param: click.Parameter | None, ctx: click.Context | None) -> P:
        """The value."""
        if isinstance(value, self.kind):
            return value
        try:
            return self.kind.parse(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Topic(_Parsed[SeedTopic]):
    """`NAME:PARTITIONS:RF:KEY=VALUE…`. Partitions and replication factor default to 1; configs are optional. All topics are validated
    together later.
    """

    name = "NAME:PARTITIONS:RF[:KEY=VALUE…]"
    kind = SeedTopic


class AdvertisedAddress(_Parsed[Advertised]):
    """`HOST:PORT` of the brokers, for clients."""

    name = "HOST:PORT[,…]"
    kind = Advertised


class HostPort(click.ParamType[Address]):
    """`HOST:PORT`; an IPv6 address may be in brackets. With `lowest_port` 0 the port may be any free one."""

    name = "HOST:PORT"

    def __init__(self, lowest_port: int = 1) -> None:
        self._lowest_port = lowest_port

    def convert(self, value: str | Address, param: click.Parameter | None, ctx: click.Context | None) -> Address:
        """Host and port."""
        if isinstance(value, tuple):
            return value
        try:
            return address_of(value, self._lowest_port)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Host(click.ParamType[str]):
    """An address or a host name. An IPv6 address may be in brackets, which the value does not have."""

    name = "HOST"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The host without brackets."""
        return value[1:-1] if value[:1] + value[-1:] == "[]" and ":" in value else value


class Whole(click.IntRange):
    """A whole number in a range. For text that is not a number, click's own class says "not a valid integer range"."""

    name = "integer"


class Decimal(click.FloatRange):
    """A number in a range, with the same change of click's message as `Whole`."""

    name = "float"


class Duration(click.ParamType[int]):
    """A number of minutes, hours, days or weeks, as `12h` or `7d`; programs may give milliseconds."""

    name = "TIME"
    _NS: ClassVar[dict[str, int]] = {"ms": 10**6, "m": 60 * 10**9, "h": 3600 * 10**9, "d": 86_400 * 10**9, "w": 604_800 * 10**9}

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Nanoseconds."""
        if isinstance(value, int):
            return value
        parts = re.fullmatch(r"([0-9]{1,5})([mhdw])|([0-9]{1,15})(ms)", value, re.ASCII)
        if parts is None:
            self.fail(f"{value!r} is not a time such as 12h, 7d or 4w", param, ctx)
        return int(parts[1] or parts[3]) * self._NS[parts[2] or parts[4]]


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


class AsVersion(click.ParamType[str]):
    """A version of Apache Kafka whose APIs are known."""

    name = "VERSION"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The version as it was given."""
        from klamm.configs.releases.kafka_releases import RELEASES, release_of

        if release_of(value) is None:
            self.fail(f"{value!r} is not a version of Apache Kafka from {RELEASES[0]} to {RELEASES[-1]}", param, ctx)
        return value


class ApiVersion(click.ParamType[tuple[str, str]]):
    """`NAME=LOW-HIGH`, `NAME=VERSION` or `NAME=none`."""

    name = "NAME=LOW-HIGH|none"

    def convert(self, value: str | tuple[str, str], param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        """The pair of name and range. Whether the range is offered at all is checked later."""
        from klamm.configs.definitions.api_versions import parse_api_versions

        if isinstance(value, tuple):
            return value
        try:
            parse_api_versions(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        name, _, wanted = value.partition("=")
        return name.strip(), wanted.strip()


def each_once(ctx: click.Context, param: click.Parameter, values: tuple[tuple[object, ...], ...]) -> tuple[tuple[object, ...], ...]:
    """Callback of an option that repeats: two values that differ in their last element alone, the value of the same name, are an error."""
    for name, count in Counter(value[:-1] for value in values).items():
        if count > 1:
            raise click.BadParameter(f"{':'.join(map(str, name))} is named twice", ctx, param)
    return values


KEY_VALUE = KeyValue()
ADVERTISED = AdvertisedAddress()
USER_PASSWORD = UserPassword()

BROKER_KEY_VALUE = BrokerKeyValue()
INT64 = Int64()
TOPIC = Topic()
HOST = Host()

as_version_option = click.option(
    "--as-version",
    type=AsVersion(),
    help="Offer exactly the APIs and versions of this Apache Kafka, 1.0 to 4.4, with its defaults.",
)
api_version_option = click.option(
    "--api-version",
    "api_versions",
    multiple=True,
    type=ApiVersion(),
    shell_complete=complete_apis,
    help="Offer only these versions of an API, such as Produce=0-7, or hide it: Produce=none. Can be given more than once.",
)
