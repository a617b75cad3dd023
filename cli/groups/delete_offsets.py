"""`klamm groups delete-offsets`: deletes committed offsets of a group."""

from __future__ import annotations

import click

from klamm.cli.groups.options import CLIENT_ID, group_argument
from klamm.cli.tools.chosen_topics import TOPIC, ChosenTopic, partitions_of
from klamm.cli.tools.commands import Client, print_table, with_client

HEAD = ("TOPIC", "PARTITION", "STATUS")


@click.command("delete-offsets", short_help="Delete committed offsets of a group.")
@group_argument
@click.option(
    "--topic", "topics", type=TOPIC, multiple=True, required=True, help="Topic, with some of its partitions or with all. Repeatable."
)
@with_client(CLIENT_ID)
async def command(client: Client, group: str, topics: tuple[ChosenTopic, ...]) -> None:
    """Delete offsets of a group. Offsets of topics that its members read are not deleted.

    \b
    klamm groups delete-offsets billing --topic orders --topic refunds:0,1 --bootstrap-server localhost:9092
    """
    from klamm.cli.shell.output import counted
    from klamm.cli.tools.failures import ToolFailed

    outcome = (await client.delete_group_offsets(group, await partitions_of(client, topics))).values()
    print_table(HEAD, [(*partition, "Successful" if error is None else f"Error: {error}") for partition, error in outcome.items()])
    failed = sum(error is not None for error in outcome.values())
    if failed:
        raise ToolFailed(f"{counted(failed, 'offset')} could not be deleted")
