"""`klamm groups delete`: deletes groups without members, and their offsets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from klamm.cli.groups.options import CLIENT_ID
from klamm.cli.shell.output import say
from klamm.cli.tools.commands import Place, connection_options, fail_together, run

if TYPE_CHECKING:
    from klamm.admin import AsyncAdminClient


@click.command("delete", short_help="Delete groups without members.")
@click.argument("groups", nargs=-1, required=True, metavar="GROUP…")
@connection_options
def command(groups: tuple[str, ...], bootstrap_server: str, command_config: Path | None) -> None:
    """Delete groups and their offsets. Groups with members are not deleted.

    \b
    klamm groups delete billing reports --bootstrap-server localhost:9092
    """

    async def work(client: AsyncAdminClient) -> None:
        from klamm.cli.shell.logs import printable

        outcome = (await client.delete_groups(groups)).values()
        deleted = [f"'{group}'" for group, error in outcome.items() if error is None]
        if deleted:
            say(printable(f"Deletion of requested consumer groups ({', '.join(deleted)}) was successful."))
        failed = {group: error for group, error in outcome.items() if error is not None}
        fail_together([f"Group '{group}' could not be deleted due to: {error}" for group, error in failed.items()])

    run(Place(bootstrap_server, command_config), CLIENT_ID, work)
