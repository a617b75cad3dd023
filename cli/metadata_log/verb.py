"""The group `klamm metadata-log` and its only command, `dump`. Options are checked before a connection is opened."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import click

from klamm.cli.shell.logs import printable
from klamm.cli.shell.output import say
from klamm.cli.tools.options import admin_config_option, bootstrap_option

OFFSETS = click.IntRange(0, 2**63 - 1)


@click.group(short_help="Show the controller's metadata log.")
def command() -> None:
    """Show the metadata log of the active controller.

    The log has a record for each change that the controller has committed to ZooKeeper. It begins with the state that the controller read
    from ZooKeeper. Brokers that register with the controller follow it. A controller has this log if its registerbroker.enable is true.
    """


@command.command(short_help="Print the records as lines of JSON, or write them to a segment file.")
@bootstrap_option(required=True)
@admin_config_option("Properties file for the admin client, with keys such as security.protocol.")
@click.option(
    "--from-offset", type=OFFSETS, metavar="OFFSET",
    help="Offset of the first record to print. Default: the first record of the log.",
)
@click.option(
    "--follow", is_flag=True,
    help="Print new records as they are written, until Ctrl-C. After a fail-over, continue with the log of the new controller.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE.log",
    help="Write a Kafka segment file instead of JSON. Its name must be the first offset in 20 digits. In a folder it gets this name.",
)
def dump(bootstrap_server: str, command_config: Path | None, from_offset: int | None, follow: bool, output: Path | None) -> None:
    """Print the records of the metadata log as JSON, one line each.

    A line has the offset, the epoch of the controller that wrote the record, and the record's type and version. "data" has the fields, with
    the names and values that Kafka's own tools print. Each new controller begins its log at offset 0, with the state that it read from
    ZooKeeper.

    With --output the record batches are written to a new file, as a segment of a Kafka log. Kafka's own tool can print it:

    \b
    klamm metadata-log dump --bootstrap-server localhost:9092
    klamm metadata-log dump --bootstrap-server localhost:9092 --follow
    klamm metadata-log dump --bootstrap-server localhost:9092 --output 00000000000000000000.log
    kafka-dump-log.sh --cluster-metadata-decoder --files 00000000000000000000.log
    """
    logging.getLogger().addHandler(logging.NullHandler())  # hides log lines of libraries: the tool reports the same in its own words
    asyncio.run(_dump(bootstrap_server, command_config, from_offset, follow, output))


async def _dump(bootstrap_server: str, config: Path | None, from_offset: int | None, follow: bool, output: Path | None) -> None:
    """Read the log and write it to the chosen output. Raises ToolFailed, and the errors of `client_settings`."""
    from klamm.cli.metadata_log.reader import Reader
    from klamm.cli.metadata_log.sinks import JsonLines, SegmentFile
    from klamm.cli.tools.client import connected_client

    sink = JsonLines(say) if output is None else SegmentFile(output)
    try:
        async with connected_client(bootstrap_server, config, "klamm-metadata-log") as client:
            await Reader(client, sink, lambda line: click.echo(printable(line), err=True)).read(from_offset, follow)
        if isinstance(sink, SegmentFile):
            say(sink.summary())
    finally:
        sink.close()
