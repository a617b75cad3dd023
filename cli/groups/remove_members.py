"""`klamm groups remove-members`: removes members from a group, for example static ones whose consumers do not come back."""

from __future__ import annotations

from pathlib import Path

import click

from klamm.cli.groups.options import CLIENT_ID, group_argument
from klamm.cli.shell.logs import printable
from klamm.cli.shell.output import say
from klamm.cli.tools.commands import Client, Place, connection_options, fail_together, run


@click.command("remove-members", short_help="Remove members from a group.")
@group_argument
@click.option(
    "--instance-id", "instance_ids", multiple=True, metavar="ID", help="Remove the static member with this group.instance.id. Repeatable."
)
@click.option("--member-id", "member_ids", multiple=True, metavar="ID", help="Remove the member with this member id. Repeatable.")
@click.option("--all-members", is_flag=True, help="Remove all members.")
@click.option("--reason", metavar="TEXT", help="Reason, for the log of the coordinator.")
@connection_options
def command(
    group: str,
    instance_ids: tuple[str, ...],
    member_ids: tuple[str, ...],
    all_members: bool,
    reason: str | None,
    bootstrap_server: str,
    command_config: Path | None,
) -> None:
    """Remove members from a group, which rebalances. A consumer that is still running joins again.

    `klamm groups members` shows the ids.

    \b
    klamm groups remove-members billing --instance-id pod-3 --bootstrap-server localhost:9092
    """
    if bool(instance_ids or member_ids) == all_members:
        raise click.UsageError("either --all-members, or --instance-id and --member-id, is needed")
    if "" in instance_ids + member_ids:
        raise click.UsageError("an id is empty")

    async def work(client: Client) -> None:
        from klamm.admin import MemberToRemove

        named = [*map(MemberToRemove, instance_ids), *(MemberToRemove(member_id=each) for each in member_ids)]
        outcome = (await client.remove_members(group, None if all_members else named, reason=reason)).values()
        removed = {member: member.instance_id or member.member_id for member in outcome}
        for member, error in outcome.items():
            if error is None:
                say(printable(f"Removed member {removed[member]} from group '{group}'."))
        fail_together([f"Member {removed[member]}: {error}" for member, error in outcome.items() if error is not None])

    run(Place(bootstrap_server, command_config), CLIENT_ID, work)
