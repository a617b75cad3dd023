"""Partitions of `--topic NAME` and `--topic NAME:0,1`, as in kafka-consumer-groups."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import click

if TYPE_CHECKING:
    from klamm.admin import AsyncAdminClient
    from klamm.protocol.nouns import TopicPartition

_NUMBERS = re.compile(r"(.+):(\d{1,9}(?:,\d{1,9})*)")


class ChosenTopic(NamedTuple):
    """A topic and partitions of it; None means all."""

    name: str
    partitions: tuple[int, ...] | None


class TopicType(click.ParamType[ChosenTopic]):
    """`NAME` or `NAME:0,1`."""

    name = "NAME[:PARTITION,…]"

    def convert(self, value: str | ChosenTopic, param: click.Parameter | None, ctx: click.Context | None) -> ChosenTopic:
        """The topic and its partitions."""
        if isinstance(value, ChosenTopic):
            return value
        numbers = _NUMBERS.fullmatch(value)
        if numbers is not None:
            return ChosenTopic(numbers[1], tuple(dict.fromkeys(map(int, numbers[2].split(",")))))
        if not value or ":" in value:
            self.fail(f"{value!r} is not NAME or NAME:0,1", param, ctx)
        return ChosenTopic(value, None)


TOPIC = TopicType()


async def partitions_of(client: AsyncAdminClient, topics: tuple[ChosenTopic, ...]) -> list[TopicPartition]:
    """The partitions of these topics, sorted. Raises ToolFailed with the name of a topic that does not exist."""
    from klamm.cli.tools.client import all_found
    from klamm.protocol.nouns import TopicPartition

    whole = [topic.name for topic in topics if topic.partitions is None]
    described = all_found(await client.describe_topics(whole)) if whole else {}
    partitions = {TopicPartition(name, one.partition) for name, topic in described.items() for one in topic.partitions}
    return sorted(partitions | {TopicPartition(topic.name, number) for topic in topics for number in topic.partitions or ()})
