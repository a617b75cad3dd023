"""The verb `klamm topics`: a group of commands, each in a file that is imported only when the command is used."""

from __future__ import annotations

import click

from klamm.cli.shell.lazy_group import LazyGroup

COMMANDS = {
    "add-partitions": "klamm.cli.topics.add_partitions",
    "create": "klamm.cli.topics.create",
    "delete": "klamm.cli.topics.delete",
    "describe": "klamm.cli.topics.describe",
    "list": "klamm.cli.topics.list",
}
"""Command → the module that has its `command`."""
CLIENT_ID = "klamm-topics"


@click.command(cls=LazyGroup, modules=COMMANDS, short_help="Create, show, grow and delete topics.")
def command() -> None:
    """Create, show, grow and delete topics, on clusters of Klamm and of Apache Kafka.

    \b
    klamm topics create orders --partitions 6 --replication-factor 3 --bootstrap-server localhost:9092
    klamm topics describe orders --bootstrap-server localhost:9092
    klamm topics add-partitions orders 12 --bootstrap-server localhost:9092
    """
