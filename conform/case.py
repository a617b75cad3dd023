"""What a case is, and what can come out of it.

A case is one coroutine function with a level, a sentence and the source of that sentence. It returns None, or a text to show, if the
server does what the sentence says. Otherwise it raises `Broken` (the server does something else) or `Absent` (the server lacks what the
case needs). A broken MUST is a failure, a broken SHOULD is Non-strict.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

Run = Callable[[Any], Awaitable[str | None]]
"""Takes a `klamm.conform.lab.Lab`."""


class Level(Enum):
    """How binding a sentence is. INFO: nothing is demanded, because releases of Apache Kafka differ."""

    MUST = "MUST"
    SHOULD = "SHOULD"
    INFO = "INFO"


class Result(Enum):
    """What came out of a case."""

    PASS = "Pass"
    NON_STRICT = "Non-strict"
    FAIL = "Fail"
    INFO = "Info"
    MISSING = "Missing"


class Broken(Exception):
    """The server does not do what the sentence of the case says; the text says what it does."""


class Absent(Exception):
    """The server, or the command line, lacks what the case needs."""


class Unreachable(Exception):
    """The server cannot be tested at all; the text is one line."""


@dataclass(frozen=True)
class Case:
    """One case. Its id is `SECTION/NUMBER.INDEX`, which stays the same from release to release."""

    section: str
    number: int
    index: str
    level: Level
    sentence: str
    source: str
    run: Run
    destructive: bool = False
    shape: dict[str, Any] = field(default_factory=dict)
    """Of a case for clients: arguments of `klamm.testing.Cluster`."""

    @property
    def id(self) -> str:
        return f"{self.section}/{self.number}.{self.index}"


class Exchange(NamedTuple):
    """A request frame and what came back; `response` is None if nothing did. `name` is empty if the frame is not a request of an API."""

    name: str
    version: int
    request: bytes
    response: bytes | None


@dataclass
class Outcome:
    """What came out of one case, with the frames of the case."""

    case: Case
    result: Result
    reason: str = ""
    exchanges: list[Exchange] = field(default_factory=list)
    seconds: float = 0.0
    output: str = ""
    """The last lines of the client under test, if its case is broken."""
    is_broken: bool = False
    """Whether the server does not do what the sentence says, whatever its level."""


@dataclass
class Section:
    """The cases of one section, in order."""

    number: int
    name: str
    title: str
    cases: list[Case] = field(default_factory=list)

    def must(self, index: int, sentence: str, source: str, *, destructive: bool = False) -> Callable[[Run], Run]:
        """Register a case whose sentence every server has to obey."""
        return self._register(index, Level.MUST, sentence, source, destructive)

    def should(self, index: int, sentence: str, source: str, *, destructive: bool = False) -> Callable[[Run], Run]:
        """Register a case of which servers may differ without breaking a client."""
        return self._register(index, Level.SHOULD, sentence, source, destructive)

    def _register(self, index: int, level: Level, sentence: str, source: str, destructive: bool) -> Callable[[Run], Run]:
        def add(run: Run) -> Run:
            self.cases.append(Case(self.name, self.number, str(index), level, sentence, source, run, destructive))
            return run

        return add


def expect(condition: object, what: str) -> None:
    """Raise Broken with this text if the condition does not hold."""
    if not condition:
        raise Broken(what)
