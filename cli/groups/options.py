"""Arguments that the commands of `klamm groups` share."""

from __future__ import annotations

import functools
from collections.abc import Callable

import click

from klamm.cli.tools.commands import Client

CLIENT_ID = "klamm-groups"
group_argument = click.argument("group", metavar="GROUP")
_groups_argument = click.argument("groups", nargs=-1, metavar="[GROUP]…")
_all_option = click.option("--all-groups", is_flag=True, help="All groups of the cluster.")


def chosen_groups(function: Callable[..., None]) -> Callable[..., None]:
    """The arguments of commands for some groups, or for all. The command gets `named`: the groups without duplicates, None for all."""

    @functools.wraps(function)
    def command(groups: tuple[str, ...], all_groups: bool, **arguments: object) -> None:
        if bool(groups) == all_groups:
            raise click.UsageError("exactly one of GROUP and --all-groups is needed")
        function(named=None if all_groups else list(dict.fromkeys(groups)), **arguments)

    return _groups_argument(_all_option(command))


async def groups_of(client: Client, groups: list[str] | None) -> list[str]:
    """The named groups; all groups of the cluster for None. Raises AdminError."""
    return list((await client.list_groups()).all()) if groups is None else groups
