"""The words of stories. An action does something and says what came of it; a view looks, again and again until it sees what it should.

`@action` and `@view` enter functions into the two tables; the first word of a line finds them. An action is a coroutine of the stage and
the line's other words that returns its outcome as text. A view returns a `Look`.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from klamm.tests.stories.both.stage import Stage
from klamm.tests.stories.both.story_file import BadStory

Action = Callable[[Stage, list[str]], Awaitable[str]]


@dataclass
class Look:
    """What a view sees at each look; `done` is called when the story goes on. `frames`: it shows what fake brokers were sent."""

    see: Callable[[], Awaitable[str]]
    done: Callable[[], None] = lambda: None
    frames: bool = False


ACTIONS: dict[str, Action] = {}
VIEWS: dict[str, Callable[[Stage, list[str]], Look]] = {}


def action(name: str) -> Callable[[Action], Action]:
    def enter(function: Action) -> Action:
        assert name not in ACTIONS and name not in VIEWS, name
        ACTIONS[name] = function
        return function

    return enter


def view(name: str) -> Callable[[Callable[[Stage, list[str]], Look]], Callable[[Stage, list[str]], Look]]:
    def enter(function: Callable[[Stage, list[str]], Look]) -> Callable[[Stage, list[str]], Look]:
        assert name not in ACTIONS and name not in VIEWS, name
        VIEWS[name] = function
        return function

    return enter


@dataclass
class Words:
    """The words of a line after its first: `name=value` pairs, numbers after a keyword, and the rest in order."""

    rest: list[str]
    settings: dict[str, str]
    to: int | None
    version: int | None

    @classmethod
    def of(cls, words: list[str]) -> Words:
        """Take out `to N`, `vN` and `name=value`."""
        parsed = cls([], {}, None, None)
        line = iter(words)
        for word in line:
            if word == "to":
                parsed.to = int(next(line))
            elif re.fullmatch(r"v\d+", word):
                parsed.version = int(word[1:])
            elif re.fullmatch(r"[a-z][\w.-]*=.*", word):
                name, _, value = word.partition("=")
                parsed.settings[name] = value
            else:
                parsed.rest.append(word)
        return parsed


def ids(text: str) -> list[int]:
    """Broker ids of `11,12`; `none` is no broker."""
    return [] if text == "none" else [int(each) for each in text.split(",")]


def lists(text: str) -> list[list[int]]:
    """Replicas of partitions, from `[11,12][12,11]`."""
    if not re.fullmatch(r"(\[[-\d,]*\])+", text):
        raise BadStory(f"{text!r} is no list of replicas; write [11,12][12,11]")
    return [[int(each) for each in inner.split(",") if each] for inner in re.findall(r"\[([^\]]*)\]", text)]
