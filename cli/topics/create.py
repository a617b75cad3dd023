"""`klamm topics create`: creates topics that all have the same shape."""

from __future__ import annotations

import click

from klamm.cli.shell.parameters import KEY_VALUE, Whole, each_once
from klamm.cli.shell.value_completion import complete_topic_configs
from klamm.cli.tools.commands import Client, with_client
from klamm.cli.topics.outcomes import json_outcomes_option, report
from klamm.cli.topics.verb import CLIENT_ID


@click.command("create", short_help="Create topics.")
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC…")
@with_client(CLIENT_ID)
@click.option("-p", "--partitions", type=Whole(1), help="Number of partitions. Default: num.partitions of the brokers.")
@click.option(
    "-r", "--replication-factor", type=Whole(1, 32767), help="Number of replicas. Default: default.replication.factor of the brokers."
)
@click.option(
    "--config", "configs", multiple=True, type=KEY_VALUE, callback=each_once, shell_complete=complete_topic_configs,
    help="Set a config of the topics; can be given more than once.",
)
@click.option("--if-not-exists", is_flag=True, help="A topic that exists is not an error.")
@click.option("--validate-only", is_flag=True, help="Check everything, and create nothing.")
@json_outcomes_option
async def command(
    client: Client,
    topics: tuple[str, ...],
    partitions: int | None,
    replication_factor: int | None,
    configs: tuple[tuple[str, str], ...],
    if_not_exists: bool,
    validate_only: bool,
    as_json: bool,
) -> None:
    """Create topics. If one of them cannot be created, the others are, and the exit code is 1.

    \b
    klamm topics create orders audit --partitions 6 --replication-factor 3 --bootstrap-server localhost:9092
    klamm topics create latest --config cleanup.policy=compact --bootstrap-server localhost:9092
    """
    from klamm.admin import NewTopic
    from klamm.protocol.errors import ErrorCode

    counts = (-1 if partitions is None else partitions, -1 if replication_factor is None else replication_factor)
    wanted = [NewTopic(name, *counts, dict(configs)) for name in dict.fromkeys(topics)]
    result = await client.create_topics(wanted, validate_only=validate_only)
    accepted = ErrorCode.TOPIC_ALREADY_EXISTS if if_not_exists else None
    report(result.values(), "can be created" if validate_only else "created", accepted, "exists already", as_json)
