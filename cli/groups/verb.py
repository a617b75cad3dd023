"""The verb `klamm groups`: a group of commands, each in a file that is imported only when the command is used."""

from __future__ import annotations

import click

from klamm.cli.shell.lazy_group import LazyGroup

COMMANDS = {
    "delete": "klamm.cli.groups.delete",
    "delete-offsets": "klamm.cli.groups.delete_offsets",
    "describe": "klamm.cli.groups.describe",
    "list": "klamm.cli.groups.list",
    "members": "klamm.cli.groups.members",
    "offsets": "klamm.cli.groups.offsets",
    "remove-members": "klamm.cli.groups.remove_members",
    "reset-offsets": "klamm.cli.groups.reset_offsets",
}
"""Command → the module that has its `command`."""


@click.command(cls=LazyGroup, modules=COMMANDS, short_help="Show and change consumer groups, their members and offsets.")
def command() -> None:
    """Show and change consumer groups, their members and their offsets, on clusters of Klamm and of Apache Kafka.

    \b
    klamm groups list --bootstrap-server localhost:9092
    klamm groups offsets billing --bootstrap-server localhost:9092
    klamm groups reset-offsets billing --bootstrap-server localhost:9092 --all-topics --to-earliest --execute
    """
