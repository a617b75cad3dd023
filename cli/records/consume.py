"""`klamm consume`: prints records of a topic, with the options of kcat where both have them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from klamm.cli.records.record_format import BadFormat, as_json, format_of
from klamm.cli.shell.output import write
from klamm.cli.shell.parameters import Whole
from klamm.cli.tools.commands import Place, connection_options

if TYPE_CHECKING:
    from klamm.cli.records.record_format import Format


class Offset(NamedTuple):
    """Where to begin: `number` records after offset 0, or before the end."""

    number: int
    absolute: bool


class OffsetType(click.ParamType[Offset]):
    """`beginning`, `end`, an offset, or -N for N records before the end."""

    name = "beginning|end|N|-N"

    def convert(self, value: str | Offset, param: click.Parameter | None, ctx: click.Context | None) -> Offset:
        """The place as a number."""
        if isinstance(value, Offset):
            return value
        if value in ("beginning", "end"):
            return Offset(0, value == "beginning")
        digits = value.removeprefix("-")
        if not (digits.isascii() and digits.isdecimal() and len(digits) < 19):
            self.fail(f"{value!r} is not beginning, end, an offset, or -N for N records before the end", param, ctx)
        return Offset(int(digits), value == digits)


@click.command(short_help="Print records of a topic.")
@click.argument("topic")
@connection_options
@click.option("-o", "--offset", type=OffsetType(), help="Where to begin in each partition. Default: beginning.")
@click.option("-p", "--partition", type=Whole(0), help="Only this partition.")
@click.option("-c", "--count", type=Whole(1), help="End after this many records.")
@click.option("-e", "--exit-at-end", is_flag=True, help="End when all records that are there at the start have been printed.")
@click.option("-G", "--group", help="Read as a member of this group, and commit offsets. -o counts where nothing is committed.")
@click.option("-f", "--format", "layout", default="%s\\n", show_default=True, help="Format of a record, see below.")
@click.option("--read-committed", is_flag=True, help="Leave out records of transactions that are open or were aborted.")
@click.option("--json", "in_json", is_flag=True, help="Print a line of JSON for each record.")
def command(
    topic: str,
    bootstrap_server: str,
    command_config: Path | None,
    offset: Offset | None,
    partition: int | None,
    count: int | None,
    exit_at_end: bool,
    group: str | None,
    layout: str,
    read_committed: bool,
    in_json: bool,
) -> None:
    """Print the records of TOPIC, which must exist. Without -c and -e the command goes on until Ctrl-C.

    In a format %t is the topic, %p the partition, %o the offset, %k the key, %s the value, %K and %S their lengths (-1 for null), %T the
    timestamp in ms, %h the headers, %% a percent sign; \\n, \\t, \\r, \\0, \\\\ and \\xNN are bytes.

    \b
    klamm consume orders -e --bootstrap-server localhost:9092
    klamm consume orders -o -10 -e -f '%p %o %k: %s\\n' --bootstrap-server localhost:9092
    klamm consume orders -G billing -c 100 --json --bootstrap-server localhost:9092
    """
    if group is not None and partition is not None:
        raise click.UsageError("-p and -G cannot be used together: the group assigns the partitions")
    if group is not None and offset is not None and offset.number != 0:
        raise click.UsageError("with -G, -o can only be beginning or end")
    layout_of = _layout(layout, in_json)
    place = Place(bootstrap_server, command_config)

    from klamm.cli.records.topic_partitions import CLIENT_ID, partitions_of

    partitions = partitions_of(place, topic, partition)

    from klamm.admin import AdminError
    from klamm.admin.records.record_reader import RecordReader, Start
    from klamm.cli.tools.client import error_text
    from klamm.cli.tools.client_properties import client_settings
    from klamm.cli.tools.failures import ToolFailed

    settings = {"client_id": CLIENT_ID, **client_settings(command_config)}
    settings.pop("request_timeout_ms", None)
    client_id = settings.pop("client_id")
    begin = Offset(0, True) if offset is None else offset
    try:
        security: Any = settings
        with RecordReader(bootstrap_server, topic, client_id, group, not begin.absolute, read_committed, security) as reader:
            if group is None:
                reader.begin(partitions, Start(*begin))
            for record in reader.records(count, exit_at_end):
                write(layout_of(record))
    except AdminError as error:
        raise ToolFailed(f"{topic}: {error_text(error)}") from error


def _layout(layout: str, in_json: bool) -> Format:
    try:
        return as_json if in_json else format_of(layout)
    except BadFormat as bad:
        raise click.BadParameter(str(bad), param_hint="'-f'") from bad
