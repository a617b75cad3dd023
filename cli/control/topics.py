"""`klamm control topics` and `topic`: topics, and what ZooKeeper and each broker have of one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from klamm.cli.control.client import ControlApi, control_command, key_values, print_line
from klamm.cli.control.tables import numbers, show
from klamm.cli.shell.logs import printable
from klamm.cli.shell.output import say

HEAD = ("PARTITION", "SEEN-BY", "LEADER", "LEADER-EPOCH", "ISR", "REPLICAS", "ROLE", "LOG-START", "LOG-END", "HIGH-WATERMARK")


@click.command("topics", short_help="List topics.")
@control_command()
def topics(api: ControlApi) -> None:
    """List all topics."""
    response = api.get("topics")
    show(api, response, ("TOPIC", "PARTITIONS"), [(topic["name"], topic["partitions"]) for topic in response["topics"]])


@click.command("topic", short_help="Show a topic as ZooKeeper and each broker see it.")
@click.argument("name")
@control_command()
def topic(api: ControlApi, name: str) -> None:
    """Show the partitions of the topic NAME: what ZooKeeper has, what each broker has in its metadata, and the logs of its replicas."""
    response = api.get("topics", name)
    show(api, response, HEAD, [row for partition in response["partitions"] for row in _rows(partition)])


@click.command("create-topic", short_help="Create a topic.")
@click.argument("name")
@click.option("--partitions", type=int, help="Number of partitions. Default: num.partitions of the brokers.")
@click.option("--replication-factor", type=int, help="Number of replicas. Default: default.replication.factor of the brokers.")
@click.option(
    "--replicas", metavar="ID:ID,…", help="Brokers of each partition, in place of the two numbers: 1:2,2:3 has two partitions."
)
@click.option("--config", "configs", multiple=True, metavar="KEY=VALUE", help="Config of the topic. Repeatable.")
@control_command()
def create_topic(
    api: ControlApi, name: str, partitions: int | None, replication_factor: int | None, replicas: str | None, configs: tuple[str, ...]
) -> None:
    """Create the topic NAME. The command ends when every broker that runs shows it, each partition with a leader."""
    body = {
        "name": name, "partitions": partitions, "replication_factor": replication_factor, "replicas": _replicas(replicas),
        "configs": key_values(configs),
    }
    _done(api, api.post("topics", body=body), f"topic {name} is created")


@click.command("add-partitions", short_help="Let a topic have more partitions.")
@click.argument("name")
@click.argument("partitions", type=int)
@click.option("--replicas", metavar="ID:ID,…", help="Brokers of each new partition: 1:2,2:3 for two of them.")
@control_command()
def add_partitions(api: ControlApi, name: str, partitions: int, replicas: str | None) -> None:
    """Let the topic NAME have this number of PARTITIONS. The command ends when every broker that runs shows them with leaders."""
    body = {"partitions": partitions, "replicas": _replicas(replicas)}
    _done(api, api.post("topics", name, "partitions", body=body), f"topic {name} has {partitions} partitions")


def _replicas(text: str | None) -> list[list[int]] | None:
    try:
        return None if text is None else [[int(broker) for broker in partition.split(":")] for partition in text.split(",")]
    except ValueError:
        raise click.UsageError(f"--replicas: {text!r} is not ID:ID,…") from None


@click.command("delete-topic", short_help="Delete a topic.")
@click.argument("name")
@control_command()
def delete_topic(api: ControlApi, name: str) -> None:
    """Delete the topic NAME."""
    _done(api, api.delete("topics", name), f"topic {name} is deleted")


def _done(api: ControlApi, response: dict[str, Any], text: str) -> None:
    if api.as_json:
        print_line(response)
    else:
        say(printable(text))


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
