"""What finders return, and what several of them ask."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any

from klamm.pipeline.decode.json_codec import Body

Flaw = tuple[str, str]
"""A rule that a body breaks, and what is wrong, in one line, with APIs and errors as rules write them (`rules.record.with_names`)."""

Finder = Callable[[int, Body], Iterable[Flaw]]
"""Version and body → what is wrong with it, mostly nothing."""

Rows = Iterator[tuple[str, Any, Any]]

NOTHING: tuple[Flaw, ...] = ()


def partitions_of(topics: Iterable[Any] | None, inner: str = "partitions", index: str = "partitionIndex") -> Rows:
    """Name or id, index, and row of each partition in a list of topics with a list inside each."""
    for topic in topics or ():
        name = topic.get("topic") or topic.get("name") or topic.get("topicId") or ""
        for row in topic.get(inner) or ():
            yield name, row.get(index), row


def repeated(names: Iterable[Hashable]) -> list[Any]:
    """What is there more than once."""
    return [name for name, count in Counter(names).items() if count > 1]
