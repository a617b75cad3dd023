"""`klamm topics add-partitions`: raises the number of partitions of a topic."""

from __future__ import annotations

import click

from klamm.cli.shell.parameters import Whole
from klamm.cli.tools.commands import Client, with_client
from klamm.cli.topics.outcomes import json_outcomes_option, report
from klamm.cli.topics.verb import CLIENT_ID


@click.command("add-partitions", short_help="Raise the number of partitions of a topic.")
@click.argument("topic")
@click.argument("count", type=Whole(1))
@with_client(CLIENT_ID)
@click.option("--validate-only", is_flag=True, help="Check everything, and change nothing.")
@json_outcomes_option
async def command(client: Client, topic: str, count: int, validate_only: bool, as_json: bool) -> None:
    """Raise the number of partitions of TOPIC to COUNT. Records stay where they are; records with a key may get another partition.

    \b
    klamm topics add-partitions orders 12 --bootstrap-server localhost:9092
    """
    outcomes = (await client.create_partitions({topic: count}, validate_only=validate_only)).values()
    report(outcomes, f"{'can have' if validate_only else 'has'} {count} partitions", None, "", as_json)
