"""`klamm groups offsets`: committed offsets and lags, with the columns of `kafka-consumer-groups --describe`."""

from __future__ import annotations

import click

from klamm.cli.groups.options import CLIENT_ID, chosen_groups, groups_of
from klamm.cli.tools.commands import Client, json_option, show, with_client

ENDS_MS = 5000
"""Limit for the ends of logs; a partition without a leader would use the time of the whole call."""
HEAD = ("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST", "CLIENT-ID")


@click.command("offsets", short_help="Show offsets and lags of groups.")
@chosen_groups
@with_client(CLIENT_ID)
@json_option
async def command(client: Client, named: list[str] | None, as_json: bool) -> None:
    """Show the committed offset, the end of the log, the lag and the member of each partition that groups read.

    A value that does not exist, or that cannot be found because a partition has no leader, is "-". If one of the groups does not exist,
    the others are printed, and the exit code is 1.

    \b
    klamm groups offsets billing --bootstrap-server localhost:9092
    """
    from klamm.admin import OffsetSpec
    from klamm.cli.groups.group_descriptions import described, offset_rows
    from klamm.cli.tools.client import all_found

    async with described(client, await groups_of(client, named)) as found:
        fetched = all_found(await client.list_group_offsets([group.group_id for group in found]))
        committed = {group: all_found(offsets) for group, offsets in fetched.items()}
        partitions = {partition for offsets in committed.values() for partition in offsets}
        partitions |= {partition for group in found for member in group.members for partition in member.partitions or ()}
        ends = (await client.list_offsets(dict.fromkeys(sorted(partitions), OffsetSpec.LATEST), timeout_ms=ENDS_MS)).found
        rows = [row for group in found for row in offset_rows(group, committed[group.group_id], ends)]
        show("offsets", HEAD, rows, as_json)
