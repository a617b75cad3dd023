"""What words about records have in common: the words of their lines, and requests that have a connection of their own."""

from __future__ import annotations

import re
from typing import Any

from klamm.protocol import messages
from klamm.tests.harness.client import KEYS, Client, ConnectionClosed
from klamm.tests.stories.both.answers import versions
from klamm.tests.stories.both.commands import Words
from klamm.tests.stories.both.stage import Stage

NO_ANSWER_S = 4.0
_VERSIONS = re.compile(r"^v(\d+-\d+|\*)$")
_PARTITION = re.compile(r"^([\w.~?-]+)-(-?\d+)(?:@([^,]+))?((?:,[a-z-]+=[^,]+)*)$")


async def asked(stage: Stage, message: Any, version: int, to: int | None, timeout_s: float = NO_ANSWER_S) -> Any:
    """The response, or what happened instead of one."""
    client = Client("127.0.0.1", stage.brokers[stage.one(to)].port)
    try:
        return await client.ask(message, version, timeout_s)
    except ConnectionClosed:
        return "connection closed"
    except TimeoutError:
        return "no answer"
    finally:
        await client.close()


class Line:
    """A line's words: settings, versions, the broker, and partitions, each with an offset and settings of its own."""

    def __init__(self, words: list[str], api: str) -> None:
        spans = [word for word in words if _VERSIONS.match(word)]
        parsed = Words.of([word for word in words if word not in spans])
        self.settings, self.to, self.rest = parsed.settings, parsed.to, parsed.rest
        newest = messages.APIS[KEYS[api]].max_version
        self.versions = versions(spans[0], api) if spans else [newest if parsed.version is None else parsed.version]

    def number(self, name: str, default: int) -> int:
        return int(self.settings.get(name, default))

    def partitions(self) -> list[tuple[str, int, str, dict[str, str]]]:
        """Topic, index, what stands behind `@`, settings."""
        found = []
        for word in self.rest:
            match = _PARTITION.match(word)
            assert match is not None, f"{word!r} is no partition: write topic-0, topic-0@5 or topic-0@5,name=value"
            settings = dict(pair.partition("=")[::2] for pair in match[4].split(",") if pair)
            found.append((match[1], int(match[2]), match[3] or "", settings))
        return found


def by_topic(rows: list[tuple[str, Any]]) -> dict[str, list[Any]]:
    """Rows by topic, in the order of the line; a topic that comes again behind another is one of its own in no request."""
    topics: dict[str, list[Any]] = {}
    for topic, row in rows:
        topics.setdefault(topic, []).append(row)
    return topics


def current_epoch(stage: Stage, topic: str, index: int, text: str | None) -> int:
    """A leader epoch: none, the number that is given, or `+1` and `-1` beside the present one."""
    if text is None:
        return -1
    return stage.state(topic, index).le + int(text) if text[0] in "+-" else int(text)


def shown(pairs: list[tuple[str, Any]]) -> str:
    return "".join(f" {name} {value}" for name, value in pairs if value not in (-1, None, "none"))
