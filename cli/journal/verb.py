"""The verb `klamm journal`: a group of commands. The file of a command is imported only when the command is used."""

from __future__ import annotations

import click

from klamm.cli.shell.lazy_group import LazyGroup

COMMANDS = {
    "export": "klamm.cli.journal.export",
    "import": "klamm.cli.journal.import_capture",
    "ship": "klamm.cli.journal.ship",
    "tail": "klamm.cli.journal.tail",
    "verify": "klamm.cli.journal.verify",
}
"""Command → the module that has its `command`."""


@click.command(cls=LazyGroup, modules=COMMANDS, extra="journal", short_help="Show, export, verify, ship and import journals.")
def command() -> None:
    """Show, export and verify the journals in a lake, the folder that `klamm serve --journal LAKE` writes. Brokers may still be writing.
    Captures of packets become journals, and frames become captures. Sealed segments are shipped to a lake in an object store.

    These commands need pyarrow, but not Java or Spark.

    \b
    klamm journal tail LAKE --follow --api Metadata
    klamm journal export LAKE --format parquet -o ./rows
    klamm journal verify LAKE
    klamm journal ship LAKE s3://BUCKET/LAKE
    """
