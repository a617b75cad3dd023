"""`klamm topics delete`: deletes topics with all their records."""

from __future__ import annotations

import click

from klamm.cli.tools.commands import Client, with_client
from klamm.cli.topics.outcomes import json_outcomes_option, report
from klamm.cli.topics.verb import CLIENT_ID


@click.command("delete", short_help="Delete topics.")
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC…")
@with_client(CLIENT_ID)
@click.option("--if-exists", is_flag=True, help="A topic that does not exist is not an error.")
@json_outcomes_option
async def command(client: Client, topics: tuple[str, ...], if_exists: bool, as_json: bool) -> None:
    """Delete topics with all their records. If one of them cannot be deleted, the others are, and the exit code is 1.

    \b
    klamm topics delete orders audit --bootstrap-server localhost:9092
    """
    from klamm.protocol.errors import ErrorCode

    outcomes = (await client.delete_topics(topics)).values()
    report(outcomes, "deleted", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if if_exists else None, "does not exist", as_json)
