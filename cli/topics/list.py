"""`klamm topics list`: the topics of a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from klamm.cli.tools.commands import Place, connection_options, fail_together, json_option, print_json, print_table, run
from klamm.cli.topics.verb import CLIENT_ID

if TYPE_CHECKING:
    from klamm.admin import AsyncAdminClient

HEAD = ("TOPIC", "PARTITIONS", "REPLICAS", "INTERNAL")


@click.command("list", short_help="List topics.")
@connection_options
@click.option("--exclude-internal", is_flag=True, help="Leave out internal topics, such as __consumer_offsets.")
@json_option
def command(bootstrap_server: str, command_config: Path | None, exclude_internal: bool, as_json: bool) -> None:
    """List the topics with the number of their partitions, and the number of replicas of the first partition.

    \b
    klamm topics list --bootstrap-server localhost:9092 --json
    """

    async def work(client: AsyncAdminClient) -> None:
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

    run(Place(bootstrap_server, command_config), CLIENT_ID, work)
