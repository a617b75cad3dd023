"""`klamm transactions abort`: aborts a hanging transaction in a partition, as `kafka-transactions abort --start-offset`."""

from __future__ import annotations

import click

from klamm.cli.shell.parameters import Whole
from klamm.cli.tools.commands import Client, with_client
from klamm.cli.transactions.verb import CLIENT_ID


@click.command("abort", short_help="Abort a hanging transaction in a partition.")
@click.option("--topic", required=True, metavar="NAME", help="Topic of the partition.")
@click.option("--partition", type=Whole(0, 2**31 - 1), required=True, metavar="NUMBER", help="Number of the partition.")
@click.option("--start-offset", type=Whole(0), required=True, metavar="OFFSET", help="First offset of the transaction.")
@with_client(CLIENT_ID)
async def command(client: Client, topic: str, partition: int, start_offset: int) -> None:
    """Abort a transaction in one partition: its leader writes an abort marker. The coordinator does not learn of it.

    Use it only for a hanging transaction, which its coordinator has forgotten: `klamm transactions find-hanging` shows its start offset.

    \b
    klamm transactions abort --topic orders --partition 0 --start-offset 1234 --bootstrap-server localhost:9092
    """
    from klamm.cli.shell.logs import printable
    from klamm.cli.shell.output import say
    from klamm.cli.tools.client import all_found
    from klamm.cli.tools.failures import ToolFailed
    from klamm.protocol.nouns import TopicPartition

    where = (topic, partition)
    active = all_found(await client.describe_producers([TopicPartition(*where)]))
    chosen = [each for producers in active.values() for each in producers if each.transaction_start_offset == start_offset]
    if not chosen:
        raise ToolFailed(f"Could not find any open transactions starting at offset {start_offset} on partition {topic}-{partition}")
    one = chosen[0]
    await client.abort_transaction(where, one.producer_id, one.producer_epoch, one.coordinator_epoch or 0)
    say(printable(f"Aborted the transaction of producer {one.producer_id} with epoch {one.producer_epoch} in {topic}-{partition}."))
