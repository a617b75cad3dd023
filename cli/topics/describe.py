"""`klamm topics describe`: the partitions of topics."""

from __future__ import annotations

import click

from klamm.cli.tools.commands import Client, fail_together, json_option, print_json, print_table, with_client
from klamm.cli.topics.verb import CLIENT_ID

HEAD = ("TOPIC", "PARTITION", "LEADER", "LEADER-EPOCH", "REPLICAS", "ISR", "OFFLINE")


@click.command("describe", short_help="Show the partitions of topics.")
@click.argument("topics", nargs=-1, metavar="[TOPIC]…")
@with_client(CLIENT_ID)
@click.option("--out-of-sync", is_flag=True, help="Only partitions with a replica that is not in the ISR.")
@click.option("--without-leader", is_flag=True, help="Only partitions that have no leader.")
@json_option
async def command(client: Client, topics: tuple[str, ...], out_of_sync: bool, without_leader: bool, as_json: bool) -> None:
    """Show leader, leader epoch, replicas, ISR and offline replicas of each partition; of all topics if none is named.

    If one of the topics does not exist, the others are printed, and the exit code is 1.

    \b
    klamm topics describe orders --bootstrap-server localhost:9092
    klamm topics describe --out-of-sync --bootstrap-server localhost:9092
    """
    described = await client.describe_topics(topics or None)
    rows = [
        (topic.name, each.partition, each.leader, each.leader_epoch, each.replicas, each.isr, each.offline)
        for topic in described.found.values()
        for each in topic.partitions
        if not (out_of_sync and set(each.replicas) <= set(each.isr)) and not (without_leader and each.leader is not None)
    ]
    if as_json:
        print_json("partitions", HEAD, rows)
    else:
        print_table(HEAD, [(*row[:4], *(",".join(map(str, brokers)) or None for brokers in row[4:])) for row in rows])
    fail_together([f"{topic}: {error}" for topic, error in described.errors.items()])
