"""`klamm groups delete`: deletes groups without members, and their offsets."""

from __future__ import annotations

import click

from klamm.cli.groups.options import CLIENT_ID
from klamm.cli.shell.output import say
from klamm.cli.tools.commands import Client, fail_together, with_client


@click.command("delete", short_help="Delete groups without members.")
@click.argument("groups", nargs=-1, required=True, metavar="GROUP…")
@with_client(CLIENT_ID)
async def command(client: Client, groups: tuple[str, ...]) -> None:
    """Delete groups and their offsets. Groups with members are not deleted.

    \b
    klamm groups delete billing reports --bootstrap-server localhost:9092
    """
    from klamm.cli.shell.logs import printable

    outcome = (await client.delete_groups(groups)).values()
    deleted = [f"'{group}'" for group, error in outcome.items() if error is None]
    if deleted:
        say(printable(f"Deletion of requested consumer groups ({', '.join(deleted)}) was successful."))
    failed = {group: error for group, error in outcome.items() if error is not None}
    fail_together([f"Group '{group}' could not be deleted due to: {error}" for group, error in failed.items()])
