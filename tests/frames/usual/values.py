"""Values of usual requests: topics, what stands for what only a broker knows, and draws of a few."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from klamm.protocol.nouns import id_text

TOPICS = ("t", "u", "c1", "c2", "nix")
"""The first two always exist, the last never; the others come and go."""
INSTANCE = "frames"
MEMBER = f"{INSTANCE}-{'member ' * 5}."
"""As long as the id of a member: the name of its instance or client, a dash and a uuid."""
GENERATION = 0x71727374
TIMEOUT_MS = 1_000


def topic_mark(topic: str) -> bytes:
    """What stands for the id of a topic."""
    return f"<id of {topic}>".encode().ljust(16, b".")


def some(source: random.Random, values: Any, most: int = 3) -> list[Any]:
    """One, two or `most` of the values, drawn again each time."""
    return [source.choice(values) for _ in range(source.choice((1, 1, 1, 2, most)))]


def some_topics(source: random.Random, key: str = "name", **made: Callable[[], Any]) -> list[dict[str, Any]]:
    """A few topics with name and id; `key` is the field of the name, `made` makes the other fields."""
    return [
        {
            key: topic,
            "topicId": id_text(topic_mark(topic)),
            **{name: each() for name, each in made.items()},
        }
        for topic in some(source, TOPICS)
    ]


def by_name(source: random.Random, key: str = "name", **made: Callable[[], Any]) -> list[dict[str, Any]]:
    """As `some_topics`, without ids."""
    return [{name: value for name, value in topic.items() if name != "topicId"} for topic in some_topics(source, key, **made)]


def partition(source: random.Random) -> int:
    """The number of a partition, which may not exist."""
    return source.choice((0, 0, 0, 1, 2, -1))
