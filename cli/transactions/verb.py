"""The verb `klamm transactions`: a group of commands, each in a file that is imported only when the command is used."""

from __future__ import annotations

import click

from klamm.cli.shell.lazy_group import LazyGroup

CLIENT_ID = "klamm-transactions"
COMMANDS = {
    "abort": "klamm.cli.transactions.abort",
    "describe": "klamm.cli.transactions.describe",
    "find-hanging": "klamm.cli.transactions.find_hanging",
    "fence": "klamm.cli.transactions.fence",
    "list": "klamm.cli.transactions.list",
    "producers": "klamm.cli.transactions.producers",
}
"""Command → the module that has its `command`."""


@click.command(cls=LazyGroup, modules=COMMANDS, short_help="Show transactions and producers, abort and fence them.")
def command() -> None:
    """Show transactions and the producers of partitions, abort hanging transactions, and fence producers.

    \b
    klamm transactions list --bootstrap-server localhost:9092 --state Ongoing
    klamm transactions producers orders:0 --bootstrap-server localhost:9092
    klamm transactions find-hanging orders --bootstrap-server localhost:9092
    """
