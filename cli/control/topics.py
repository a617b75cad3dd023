"""`klamm control topics` and `topic`: topics, and what ZooKeeper and each broker have of one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from klamm.cli.control.client import ControlApi, control_command, key_values, says, verb_command
from klamm.cli.control.tables import numbers, show

HEAD = ("PARTITION", "SEEN-BY", "LEADER", "LEADER-EPOCH", "ISR", "REPLICAS", "ROLE", "LOG-START", "LOG-END", "HIGH-WATERMARK")


@click.command("topics", short_help="List topics.")
@control_command()
def topics(api: ControlApi) -> None:
    """List all topics."""
    response = api.call("topics")
    show(api, response, ("TOPIC", "PARTITIONS"), [(topic["name"], topic["partitions"]) for topic in response["topics"]])


@click.command("topic", short_help="Show a topic as ZooKeeper and each broker see it.")
@click.argument("name")
@control_command()
def topic(api: ControlApi, name: str) -> None:
    """Show the partitions of the topic NAME: what ZooKeeper has, what each broker has in its metadata, and the logs of its replicas."""
    response = api.call("topic", name=name)
    show(api, response, HEAD, [row for partition in response["partitions"] for row in _rows(partition)])


def _replicas(ctx: click.Context, param: click.Parameter, text: str | None) -> list[list[int]] | None:
    try:
        return None if text is None else [[int(broker) for broker in partition.split(":")] for partition in text.split(",")]
    except ValueError:
        raise click.UsageError(f"--replicas: {text!r} is not ID:ID,…") from None


def _replicas_option(text: str) -> click.Option:
    return click.Option(["--replicas"], metavar="ID:ID,…", callback=_replicas, help=text)


_NAME = click.Argument(["name"])

create_topic = verb_command(
    "create_topic", says("topic {name} is created"), _NAME,
    click.Option(["--partitions"], type=int, help="Number of partitions. Default: num.partitions of the brokers."),
    click.Option(["--replication-factor"], type=int, help="Number of replicas. Default: default.replication.factor of the brokers."),
    _replicas_option("Brokers of each partition, in place of the two numbers: 1:2,2:3 has two partitions."),
    click.Option(
        ["--config", "configs"], multiple=True, callback=key_values, metavar="KEY=VALUE", help="Config of the topic. Repeatable."
    ),
    text="Create the topic NAME. The command ends when every broker that runs shows it, each partition with a leader.",
)
add_partitions = verb_command(
    "add_partitions", lambda api, made: says(f"topic {{name}} has {len(made['partitions'])} partitions")(api, made), _NAME,
    click.Argument(["partitions"], type=int), _replicas_option("Brokers of each new partition: 1:2,2:3 for two of them."),
    text="Let the topic NAME have this number of PARTITIONS. The command ends when every broker that runs shows them with leaders.",
)
delete_topic = verb_command("delete_topic", says("topic {name} is deleted"), _NAME, text="Delete the topic NAME.")


def _rows(partition: dict[str, Any]) -> Iterator[tuple[object, ...]]:
    index, written = partition["partition"], partition["zookeeper"]
    yield (
        index, "zookeeper", partition["leader"], written.get("leader_epoch"), numbers(partition["isr"]), numbers(partition["replicas"]),
        None, None, None, None,
    )
    for broker, seen in sorted(partition["brokers"].items(), key=lambda each: int(each[0])):
        yield (
            index, f"broker {broker}", seen.get("leader"), seen.get("leader_epoch"), numbers(seen.get("isr", ())), None, seen.get("role"),
            seen.get("log_start_offset"), seen.get("log_end_offset"), seen.get("high_watermark"),
        )
