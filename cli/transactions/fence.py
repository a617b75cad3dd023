"""`klamm transactions fence`: fences the producers of transactional ids."""

from __future__ import annotations

import click

from klamm.cli.tools.commands import Client, fail_together, with_client
from klamm.cli.transactions.verb import CLIENT_ID


@click.command("fence", short_help="Fence producers and abort their transactions.")
@click.argument("transactional_ids", nargs=-1, required=True, metavar="TRANSACTIONAL_ID…")
@with_client(CLIENT_ID)
async def command(client: Client, transactional_ids: tuple[str, ...]) -> None:
    """Fence the producers of transactional ids: they get a new epoch, and the open transactions of former producers are aborted.

    A transactional id that does not exist is created.

    \b
    klamm transactions fence copier-1 --bootstrap-server localhost:9092
    """
    from klamm.cli.shell.logs import printable
    from klamm.cli.shell.output import say

    fenced = await client.fence_producers(transactional_ids)
    for transactional_id, (producer_id, epoch) in fenced.found.items():
        say(printable(f"Fenced the producers of '{transactional_id}': producer {producer_id} has epoch {epoch} now."))
    fail_together([f"Transactional id '{each}': {error}" for each, error in fenced.errors.items()])
