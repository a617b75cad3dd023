"""Looks up the topic of `klamm produce` and `klamm consume` before records are written or read."""

from __future__ import annotations

from klamm.cli.tools.commands import Client, Place, run

CLIENT_ID = "klamm-records"


def partitions_of(place: Place, topic: str, partition: int | None) -> list[int]:
    """The partitions of an existing topic, or the named one. Raises ToolFailed."""
    found: list[int] = []

    async def work(client: Client) -> None:
        from klamm.cli.tools.client import error_text
        from klamm.cli.tools.failures import ToolFailed

        described = await client.describe_topics([topic])
        if topic in described.errors:
            raise ToolFailed(f"{topic}: {error_text(described.errors[topic])}")
        found.extend(each.partition for each in described.found[topic].partitions)
        if partition is not None and partition not in found:
            raise ToolFailed(f"{topic} has partitions 0 to {len(found) - 1}, not {partition}")

    run(place, CLIENT_ID, work)
    return found if partition is None else [partition]
