"""`klamm topics list`: the topics of a cluster."""

from __future__ import annotations

import click

from klamm.cli.tools.commands import Client, fail_together, json_option, print_json, print_table, with_client
from klamm.cli.topics.verb import CLIENT_ID

HEAD = ("TOPIC", "PARTITIONS", "REPLICAS", "INTERNAL")


@click.command("list", short_help="List topics.")
@with_client(CLIENT_ID)
@click.option("--exclude-internal", is_flag=True, help="Leave out internal topics, such as __consumer_offsets.")
@json_option
async def command(client: Client, exclude_internal: bool, as_json: bool) -> None:
    """List the topics with the number of their partitions, and the number of replicas of the first partition.

    \b
    klamm topics list --bootstrap-server localhost:9092 --json
    """
    topics = await client.describe_topics()
    rows = [
        (topic.name, len(topic.partitions), len(topic.partitions[0].replicas) if topic.partitions else 0, topic.is_internal)
        for topic in topics.found.values()
        if not (exclude_internal and topic.is_internal)
    ]
    if as_json:
        print_json("topics", HEAD, rows)
    else:
        print_table(HEAD, [(name, partitions, replicas, "yes" if internal else "no") for name, partitions, replicas, internal in rows])
    fail_together([f"{topic}: {error}" for topic, error in topics.errors.items()])
