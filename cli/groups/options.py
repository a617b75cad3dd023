"""Arguments that the commands of `klamm groups` share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from klamm.admin import AsyncAdminClient

F = TypeVar("F", bound=Callable[..., Any])
CLIENT_ID = "klamm-groups"
group_argument = click.argument("group", metavar="GROUP")
_groups_argument = click.argument("groups", nargs=-1, metavar="[GROUP]…")
_all_option = click.option("--all-groups", is_flag=True, help="All groups of the cluster.")


def chosen_groups(function: F) -> F:
    """The arguments of commands for some groups, or for all."""
    return _groups_argument(_all_option(function))


def check_groups(groups: Sequence[str], all_groups: bool) -> list[str] | None:
    """The named groups without duplicates; None for all. Raises UsageError."""
    if bool(groups) == all_groups:
        raise click.UsageError("exactly one of GROUP and --all-groups is needed")
    return None if all_groups else list(dict.fromkeys(groups))


async def groups_of(client: AsyncAdminClient, groups: list[str] | None) -> list[str]:
    """The named groups; all groups of the cluster for None. Raises AdminError."""
    return list((await client.list_groups()).all()) if groups is None else groups
