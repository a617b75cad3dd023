"""Files of stories: read, written back with other outcomes, and signed.

    # What the file is about: comment lines at its top.
    cluster: shared
    properties: controlled.shutdown.max.retries=1
    recorded: Apache Kafka 3.9.1, 2 stories, 0123456789ab

    == A title (4.3, 8)
    fakes 11 12
    state orders
    ----
    orders-0 leader 12 isr 12 le 1 pe 1 ce 1
    ---- klamm: why it does otherwise
    another outcome

A story is a heading and scenes. A scene is command lines, dashes and their outcome, up to an empty line. What stands in the outcome was
seen on real Kafka; a second outcome behind `---- klamm: reason` is a known difference, written by hand and kept when recording. Numbers
in a title's brackets are sections of Kafka's behaviour as the controller's rules are divided, or names of APIs. `cluster: own` means
that every story starts brokers itself, on an empty ZooKeeper; otherwise broker 0 runs for all stories of the file.

`recorded` signs what a run on real Kafka wrote: a story that was changed since is told from one that was seen to pass.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from pathlib import Path

DASHES = "----"
_KLAMM = re.compile(r"^---- klamm: (.+)$")
_TITLE = re.compile(r"^== (.+?) \(([^()]+)\)$")
_HEAD = re.compile(r"^(cluster|properties|recorded): (.+)$")


class BadStory(Exception):
    """A file that is no story file, or a command that is none."""


@dataclass
class Scene:
    """Commands and their outcome on real Kafka; `klamm` is set where Klamm's is another, for this reason."""

    line: int
    commands: list[str]
    outcome: str = ""
    klamm: tuple[str, str] | None = None
    """(reason, outcome)"""

    def expected(self, target: str) -> str:
        return self.klamm[1] if target == "klamm" and self.klamm is not None else self.outcome

    def text(self) -> str:
        parts = [*self.commands, DASHES]
        if self.outcome:
            parts.append(self.outcome)
        if self.klamm is not None:
            parts.append(f"---- klamm: {self.klamm[0]}")
            if self.klamm[1]:
                parts.append(self.klamm[1])
        return "\n".join(parts)


@dataclass
class Story:
    """One story; `sections` is what it is about."""

    file: str
    title: str
    sections: str
    scenes: list[Scene] = field(default_factory=list)

    @property
    def id(self) -> str:
        return f"{self.file}-{re.sub(r'[^a-z0-9]+', '-', self.title.lower()).strip('-')}"

    def text(self) -> str:
        return "\n\n".join([f"== {self.title} ({self.sections})", *(scene.text() for scene in self.scenes)])


@dataclass
class StoryFile:
    path: Path
    comment: list[str]
    shared: bool
    properties: dict[str, str]
    recorded: str
    stories: list[Story]

    def signature(self, by: str) -> str:
        """What `recorded` says when `by` told all these stories."""
        commands = "\n".join(line for story in self.stories for scene in story.scenes for line in (*scene.commands, DASHES, scene.outcome))
        return f"{by}, {len(self.stories)} stories, {hashlib.sha256(commands.encode()).hexdigest()[:12]}"

    def is_recorded(self) -> bool:
        """Whether commands and outcomes are those that a real broker was seen with."""
        return bool(self.recorded) and self.recorded == self.signature(self.recorded.split(",")[0])

    def text(self) -> str:
        head = [*self.comment, f"cluster: {'shared' if self.shared else 'own'}"]
        if self.properties:
            head.append("properties: " + " ".join(f"{k}={v}" for k, v in self.properties.items()))
        if self.recorded:
            head.append(f"recorded: {self.recorded}")
        return "\n\n".join(["\n".join(head), *(story.text() for story in self.stories)]) + "\n"


def read(path: Path) -> StoryFile:
    """Read a file. Raises BadStory."""
    file = StoryFile(path, [], True, {}, "", [])
    lines = path.read_text(encoding="utf-8").splitlines()
    block: list[str] = []
    for number, line in enumerate([*lines, ""], 1):
        if line.strip():
            block.append(line.rstrip())
            continue
        if block:
            _add(file, block, number - len(block))
        block = []
    ids = [story.id for story in file.stories]
    if len(set(ids)) != len(ids):
        raise BadStory(f"{path.name}: two stories of one title")
    return file


def _add(file: StoryFile, block: list[str], line: int) -> None:
    """One group of lines: the head of the file, or a title with or without its first scene, or a scene."""
    where = f"{file.path.name}:{line}"
    if not file.stories and not block[0].startswith("=="):
        _head(file, block, where)
        return
    if block[0].startswith("=="):
        title = _TITLE.match(block[0])
        if title is None:
            raise BadStory(f"{where}: a title is `== Text (sections)`")
        file.stories.append(Story(file.path.stem, title[1], title[2]))
        block, line = block[1:], line + 1
        if not block:
            return
    file.stories[-1].scenes.append(_scene(block, line, where))


def _head(file: StoryFile, block: list[str], where: str) -> None:
    for line in block:
        setting = _HEAD.match(line)
        if line.startswith("#"):
            file.comment.append(line)
        elif setting is None:
            raise BadStory(f"{where}: {line!r} is nothing for the head of a file")
        elif setting[1] == "cluster":
            file.shared = {"shared": True, "own": False}[setting[2]]
        elif setting[1] == "properties":
            pairs = (pair.partition("=") for pair in setting[2].split())
            file.properties = {name: value for name, _, value in pairs}
        else:
            file.recorded = setting[2]


def _scene(block: list[str], line: int, where: str) -> Scene:
    commands: list[str] = []
    outcome: list[str] = []
    klamm: list[str] = []
    reason = None
    into = commands
    for each in block:
        other = _KLAMM.match(each)
        if each == DASHES:
            into = outcome
        elif other is not None:
            reason, into = other[1], klamm
        else:
            into.append(each)
    if not commands:
        raise BadStory(f"{where}: an outcome without commands")
    return Scene(line, commands, "\n".join(outcome), None if reason is None else (reason, "\n".join(klamm)))


def read_all(folder: Path) -> list[StoryFile]:
    """All story files of a folder, by name."""
    return [read(path) for path in sorted(folder.glob("*.txt"))]
