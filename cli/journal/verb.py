"""The verb `klamm journal`: a group of commands, each in a file that is imported only when the command is used."""

from __future__ import annotations

import importlib
from typing import cast

import click

COMMANDS = {
    "export": "klamm.cli.journal.export",
    "tail": "klamm.cli.journal.tail",
    "verify": "klamm.cli.journal.verify",
}
"""Command → the module that has its `command`."""


class Commands(click.Group):
    """Finds a command by its name without importing the others."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All commands, sorted."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """A command by its name; None when there is no such command."""
        if cmd_name not in COMMANDS:
            return None
        return cast(click.Command, importlib.import_module(COMMANDS[cmd_name]).command)


@click.command(cls=Commands, short_help="Show, export and verify journals of frames and events.")
def command() -> None:
    """Show, export and verify the journals in a lake, the folder of `klamm serve --journal LAKE`, also while brokers write them.

    Neither Java nor Spark is needed: pip install 'klamm[journal]'.

    \b
    klamm journal tail LAKE --follow --api Metadata
    klamm journal export LAKE --format parquet -o ./rows
    klamm journal verify LAKE
    """
