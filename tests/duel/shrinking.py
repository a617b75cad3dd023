"""Making a story that shows a difference shorter, for as long as it still shows one."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator

from klamm.tests.duel.tale import Lines, Tale

Differs = Callable[[Tale], Awaitable[bool]]
Scenes = tuple[Lines, ...]


async def shrunk(tale: Tale, differs: Differs, attempts: int) -> Tale:
    """The shortest story found that `differs`, which is asked at most so many times. `tale` itself is known to."""
    left = attempts
    for shorter in (_fewer_scenes, _fewer_lines, _shorter_requests):
        again = True
        while again:
            again = False
            for scenes in shorter(tale.scenes):
                if left <= 0:
                    return tale
                left -= 1
                candidate = tale.with_scenes(scenes)
                if await differs(candidate):
                    tale, again = candidate, True
                    break
    return tale


def _fewer_scenes(scenes: Scenes) -> Iterator[Scenes]:
    """Without runs of scenes: half of them, a quarter, …, one. The last scene stays: it is the one that differs."""
    size = max(1, (len(scenes) - 1) // 2)
    while True:
        for start in range(0, len(scenes) - 1, size):
            yield (*scenes[:start], *scenes[min(start + size, len(scenes) - 1) :])
        if size == 1:
            return
        size //= 2


def _fewer_lines(scenes: Scenes) -> Iterator[Scenes]:
    """Without one line of a scene that has several."""
    for at, lines in enumerate(scenes):
        if len(lines) > 1:
            for line in range(len(lines)):
                yield (*scenes[:at], (*lines[:line], *lines[line + 1 :]), *scenes[at + 1 :])


def _shorter_requests(scenes: Scenes) -> Iterator[Scenes]:
    """With one member less in a list of one request written as JSON."""
    for at, lines in enumerate(scenes):
        for number, line in enumerate(lines):
            for shorter in _shorter_bodies(line):
                yield (*scenes[:at], (*lines[:number], shorter, *lines[number + 1 :]), *scenes[at + 1 :])


def _shorter_bodies(line: str) -> Iterator[str]:
    head, brace, body = line.partition(" {")
    if not brace or not head.startswith("ask"):
        return
    try:
        value = json.loads("{" + body)
    except ValueError:
        return  # it has marks for numbers
    for shorter in _shorter_values(value):
        yield f"{head} {json.dumps(shorter, separators=(',', ':'), ensure_ascii=False)}"


def _shorter_values(value: object) -> Iterator[object]:
    if isinstance(value, dict):
        for name, each in value.items():
            for shorter in _shorter_values(each):
                yield value | {name: shorter}
    elif isinstance(value, list):
        for at, each in enumerate(value):
            yield [*value[:at], *value[at + 1 :]]
            for shorter in _shorter_values(each):
                yield [*value[:at], shorter, *value[at + 1 :]]
