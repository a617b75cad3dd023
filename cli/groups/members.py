"""`klamm groups members`: the members of groups, with the columns of `kafka-consumer-groups --describe --members --verbose`."""

from __future__ import annotations

import click

from klamm.cli.groups.options import CLIENT_ID, chosen_groups, groups_of
from klamm.cli.tools.commands import Client, json_option, show, with_client

HEAD = ("GROUP", "CONSUMER-ID", "GROUP-INSTANCE-ID", "HOST", "CLIENT-ID", "#PARTITIONS", "ASSIGNMENT")


@click.command("members", short_help="Show members of groups and their partitions.")
@chosen_groups
@with_client(CLIENT_ID)
@json_option
async def command(client: Client, named: list[str] | None, as_json: bool) -> None:
    """Show the members of groups: ids, host, client id, and the partitions that each is assigned. Partitions are shown of stable groups.

    If one of the groups does not exist, the others are printed, and the exit code is 1.

    \b
    klamm groups members billing --bootstrap-server localhost:9092
    """
    from klamm.cli.groups.group_descriptions import described, member_row

    async with described(client, await groups_of(client, named)) as found:
        rows = [member_row(group, member) for group in found for member in group.members]
        show("members", HEAD, rows, as_json, "member")
