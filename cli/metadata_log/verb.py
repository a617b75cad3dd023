"""The verb `klamm metadata-log` and its only command, `dump`. Options are checked before anything is connected."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import click

from klamm.cli.logs import printable
from klamm.cli.output import say

OFFSETS = click.IntRange(0, 2**63 - 1)


@click.group(short_help="Show the controller's metadata log.")
def command() -> None:
    """Show the metadata log of the active controller.

    The log has a record for each change that the controller has committed to ZooKeeper, and begins with the state that the controller found
    there. Brokers that register by request follow it. A controller keeps it when its registerbroker.enable is true.
    """


@command.command(short_help="Print the records as lines of JSON, or write them to a segment file.")
@click.option("--bootstrap-server", required=True, metavar="HOST:PORT[,…]", help="Brokers to connect to first.")
@click.option(
    "--command-config",
    "--admin.config",
    "command_config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Properties for the connections to brokers, such as security.protocol.",
)
@click.option("--from-offset", type=OFFSETS, metavar="OFFSET", help="First record. Default: the first one that the controller has.")
@click.option("--follow", is_flag=True, help="Go on with each new record until Ctrl-C, also with the log of the next controller.")
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE.log",
    help="Write a segment file of Kafka instead of JSON. FILE is the first offset in 20 digits; in a folder it gets that name.",
)
def dump(bootstrap_server: str, command_config: Path | None, from_offset: int | None, follow: bool, output: Path | None) -> None:
    """Print the records of the metadata log, one line of JSON each.

    A line has the offset, the epoch of the controller that wrote the record, its type and version, and in "data" the fields, with the names
    and values that Kafka's own tools print. A controller begins its log at offset 0, with all that it found in ZooKeeper.

    With --output the record batches are written to a new file, as a segment of a Kafka log. Kafka's tool prints it:

    \b
    klamm metadata-log dump --bootstrap-server localhost:9092
    klamm metadata-log dump --bootstrap-server localhost:9092 --follow
    klamm metadata-log dump --bootstrap-server localhost:9092 --output 00000000000000000000.log
    kafka-dump-log.sh --cluster-metadata-decoder --files 00000000000000000000.log
    """
    logging.getLogger().addHandler(logging.NullHandler())  # libraries log what the tool says in its own words
    asyncio.run(_dump(bootstrap_server, command_config, from_offset, follow, output))


async def _dump(bootstrap_server: str, config: Path | None, from_offset: int | None, follow: bool, output: Path | None) -> None:
    """Read the log and pass it on. Raises ToolFailed, and what a bad file raises."""
    from klamm.cli.metadata_log.reader import Reader
    from klamm.cli.metadata_log.sinks import JsonLines, SegmentFile
    from klamm.cli.tool_client import connected_client

    sink = JsonLines(say) if output is None else SegmentFile(output)
    try:
        async with connected_client(bootstrap_server, config, "klamm-metadata-log") as client:
            await Reader(client, sink, lambda line: click.echo(printable(line), err=True)).read(from_offset, follow)
        if isinstance(sink, SegmentFile):
            say(sink.summary())
    finally:
        sink.close()
