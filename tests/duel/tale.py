"""A random story before it is told: scenes of commands in the words of tests/stories/both, with marks for names.

`@1` is the story's first topic, `~1` its first fake broker. Each telling puts other names there, so that a story can be told again and
again to the same brokers. `story_file` is the story as tests/stories/both reads it.

`<pid a>` and `<epoch a -1>` are marks for the producer id and epoch of the transactional id `a`: a broker gives ids one after the other to
all stories that it is told, so a story does not know them when it is drawn.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

from klamm.tests.stories.both.story_file import Scene, Story, StoryFile

_TOPIC, _FAKE = re.compile(r"(?<!\w)@(\d)"), re.compile(r"~(\d)")
# an @ behind a name is an offset or a time
_MARK = re.compile(r"<(pid|epoch) ([^ >]+)(?: ([+-]\d+))?>")
_GIVEN = re.compile(r"NONE id (\d+) epoch (\d+)")
Lines = tuple[str, ...]
"""The commands of one scene: actions, and a view as the last if there is one."""


class ProducerMarks:
    """The producer ids and epochs that brokers have given in one telling."""

    def __init__(self) -> None:
        self._given: dict[str, tuple[int, int]] = {}

    def filled(self, line: str) -> str:
        """A command with numbers in place of its marks; a mark of an id that has no producer is -1. Other marks stay."""

        def number(match: re.Match[str]) -> str:
            if match[2] not in self._given:
                return "-1" if match[1] == "pid" else match[0]
            pid, epoch = self._given[match[2]]
            return str(pid if match[1] == "pid" else epoch + int(match[3] or 0))

        return _MARK.sub(number, line)

    def learn(self, lines: list[str], outcome: str) -> None:
        """Remember what a broker gave in a scene that begins with InitProducerId."""
        words, given = lines[0].split(), _GIVEN.findall(outcome)
        if words[0] == "tx-init" and given:
            pid, epoch = given[-1]
            self._given[words[1]] = int(pid), int(epoch)


@dataclass(frozen=True)
class Tale:
    """`name` says which seed made it, `properties` what the broker under test is started with."""

    name: str
    properties: tuple[tuple[str, str], ...]
    scenes: tuple[Lines, ...]

    @property
    def steps(self) -> int:
        return sum(len(lines) for lines in self.scenes)

    def with_scenes(self, scenes: tuple[Lines, ...]) -> Tale:
        return replace(self, scenes=scenes)

    def told(self, number: int) -> list[Scene]:
        """The scenes as they are told the `number`th time: topics and fake brokers have names of this telling."""
        return [Scene(at, [named(line, number) for line in lines]) for at, lines in enumerate(self.scenes, 1)]

    def story_file(self, path: Path, outcomes: list[str], comment: str) -> StoryFile:
        """A file of this one story, with these outcomes of a real Kafka; scenes behind the last outcome are left out."""
        scenes, marks = self.told(1)[: len(outcomes)], ProducerMarks()
        for scene, outcome in zip(scenes, outcomes, strict=True):
            scene.commands, scene.outcome = [marks.filled(command) for command in scene.commands], outcome
            marks.learn(scene.commands, outcome)
        return StoryFile(path, [f"# {comment}"], True, dict(self.properties), "", [Story(path.stem, self.name, "random", scenes)])


def named(line: str, number: int) -> str:
    """A command with the names of one telling: topics `t7-1`, fake brokers 71 … 79 in the seventh."""
    line = _TOPIC.sub(lambda match: f"t{number}-{match[1]}", line)
    return _FAKE.sub(lambda match: str(10 * number + int(match[1])), line)
