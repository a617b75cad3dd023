"""`klamm groups describe`: the states of groups, with the columns of `kafka-consumer-groups --describe --state`."""

from __future__ import annotations

import click

from klamm.cli.groups.options import CLIENT_ID, chosen_groups, groups_of
from klamm.cli.tools.commands import Client, json_option, show, with_client

HEAD = ("GROUP", "COORDINATOR", "ID", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS")


@click.command("describe", short_help="Show coordinators, strategies and states of groups.")
@chosen_groups
@with_client(CLIENT_ID)
@json_option
async def command(client: Client, named: list[str] | None, as_json: bool) -> None:
    """Show the state of groups: coordinator, its broker id, assignment strategy, state, number of members.

    If one of the groups does not exist, the others are printed, and the exit code is 1.

    \b
    klamm groups describe billing --bootstrap-server localhost:9092
    """
    from klamm.cli.groups.group_descriptions import described

    brokers = {broker.id: f"{broker.host}:{broker.port}" for broker in (await client.describe_cluster()).brokers}
    async with described(client, await groups_of(client, named)) as found:
        rows = [
            (g.group_id, brokers.get(g.coordinator), g.coordinator, g.protocol or None, g.state, len(g.members)) for g in found
        ]
        show("groups", HEAD, rows, as_json)
