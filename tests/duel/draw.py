"""What a random story is made of: random choices, and a sketch of the cluster as the commands so far should have left it.

The sketch only makes steps likely to mean something. It may be wrong: what a step does is for the brokers to say.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from klamm.tests.duel.tale import Lines

T = TypeVar("T")
INT16, INT32, INT64 = 1 << 15, 1 << 31, 1 << 63
EDGES_32 = (-2, -1, 0, 1, 2, INT16 - 1, INT16, INT32 - 2, INT32 - 1, -INT32)
EDGES_64 = (*EDGES_32, INT32, INT64 - 1, -INT64)
ODD_NAMES = ("", ".", "..", "x" * 249, "y" * 250, "a b", "a/b", "käfer", "__consumer_offsets", "__transaction_state", "no-such-topic")


class Draw:
    """One story while it is drawn."""

    def __init__(self, seed: str) -> None:
        self.random = random.Random(seed)
        self.topics: dict[str, list[list[str]]] = {}
        """Replicas of the partitions of topics that should exist."""
        self.sure: list[str] = []
        """Those of them that were asked for rightly."""
        self.fakes: list[str] = []
        self.alive: list[str] = []
        self.old_protocol = False
        """Whether the inter-broker protocol is an older one."""
        self.notes: dict[str, object] = {}
        """What an area keeps for itself."""

    # choices

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def one(self, choices: Sequence[T]) -> T:
        return self.random.choice(choices)

    def weighted(self, choices: Sequence[tuple[int, T]]) -> T:
        return self.random.choices([each for _, each in choices], [weight for weight, _ in choices])[0]

    def some(self, choices: Sequence[T], at_least: int = 0, at_most: int = 3, repeated: float = 0.1) -> list[T]:
        """A few, in any order, now and then one of them twice."""
        count = min(len(choices), self.random.randint(at_least, at_most))
        picked = self.random.sample(list(choices), count)
        if picked and self.chance(repeated):
            picked.insert(self.random.randrange(len(picked) + 1), self.one(picked))
        return picked

    def versions(self, low: int, high: int) -> str:
        """Mostly one version, sometimes a range or all."""
        if self.chance(0.15):
            return f"v{low}-{high}" if high > low else f"v{low}"
        if self.chance(0.2) and high > low:
            first = self.random.randint(low, high - 1)
            return f"v{first}-{self.random.randint(first + 1, high)}"
        return f"v{self.weighted([(3, high), (2, self.random.randint(low, high))])}"

    # names

    def new_topic(self) -> str:
        """A name nobody has; None is left when the story has nine topics: then an old one."""
        return f"@{min(9, len(self.topics) + 1)}"

    def topic(self) -> str:
        """Mostly a topic that exists."""
        if self.topics and self.chance(0.93):
            return self.one(list(self.topics))
        return self.one(["@9", "no-such-topic"])

    def partition(self, topic: str) -> int:
        """Mostly a partition that exists."""
        count = len(self.topics.get(topic, [[]]))
        return self.random.randrange(count) if self.chance(0.93) else self.one([count, -1, INT32 - 1])

    def broker(self) -> str:
        """Mostly a broker of the story, as it stands in a command."""
        if self.fakes and self.chance(0.9):
            return self.one(self.fakes)
        return self.one(["0", "4711"])

    def replicas(self, of: Sequence[str] | None = None) -> list[str]:
        brokers = list(of or (self.alive if self.alive and self.chance(0.8) else self.fakes) or ["0"])
        return self.random.sample(brokers, self.random.randint(1, min(3, len(brokers))))

    # the sketch

    def created(self, topic: str, replicas: list[list[str]]) -> None:
        self.topics.setdefault(topic, replicas)

    def deleted(self, topic: str) -> None:
        self.topics.pop(topic, None)
        self.sure = [name for name in self.sure if name != topic]


def raw(value: Any) -> str:
    """A value as JSON in a command. Strings of marks that stand for numbers, `~1` or `<epoch ~1>`, lose their quotes."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return re.sub(r'"#([^"]+)"', r"\1", text)


def number(text: str) -> Any:
    """A broker id or placeholder of a command as a number in JSON."""
    return int(text) if text.lstrip("-").isdigit() else f"#{text}"


def lists_of(replicas: Iterable[Sequence[str]]) -> str:
    """Replicas of partitions as words of stories have them: `[0,~1][~1,0]`."""
    return "".join(f"[{','.join(each)}]" for each in replicas)


def scene(*lines: str) -> Lines:
    return tuple(line for line in lines if line)
