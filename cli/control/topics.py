"""`klamm control topics` and `topic`: topics, and what ZooKeeper and each broker have of one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from klamm.cli.control.client import ControlApi, control_command
from klamm.cli.control.tables import numbers, show

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


def _rows(partition: dict[str, Any]) -> Iterator[tuple[object, ...]]:
    index, written = partition["partition"], partition["zookeeper"]
    yield (
        index, "zookeeper", partition["leader"], written.get("leader_epoch"), numbers(partition["isr"]), numbers(partition["replicas"]),
        None, None, None, None,
    )  # fmt: skip
    for broker, seen in sorted(partition["brokers"].items(), key=lambda each: int(each[0])):
        yield (
            index, f"broker {broker}", seen.get("leader"), seen.get("leader_epoch"), numbers(seen.get("isr", ())), None, seen.get("role"),
            seen.get("log_start_offset"), seen.get("log_end_offset"), seen.get("high_watermark"),
        )  # fmt: skip
