"""A real Kafka and a Klamm, started alike, to which one story after the other is told at the same time.

A scene's actions are done by both, then both are looked at until they show the same, twice with a pause, as tests/stories/both replays a
story; there is no expectation but the other side. Where both have been still for a while and differ, the story ends.

A story leaves nothing behind: its fake brokers come back to give up their replicas, its topics are deleted, the dynamic configs are gone.
A pair that cannot be brought back to that state is started anew.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from pathlib import Path

from kazoo.exceptions import KazooException

from klamm.tests.duel.sweeping import baseline, swept
from klamm.tests.duel.tale import ProducerMarks, Tale
from klamm.tests.harness.client import ConnectionClosed
from klamm.tests.stories.both.commands import Look
from klamm.tests.stories.both.stage import Grounds, Stage, Target
from klamm.tests.stories.both.story_file import BadStory, Scene, StoryFile
from klamm.tests.stories.both.telling import CALM_S, WITHIN_S, act, joined
from klamm.zk.embedded.server import EmbeddedZooKeeper

STILL_S = 2.5
"""How long both sides show the same each, one something else than the other, before it is a difference."""
FAILURES = (AssertionError, ConnectionClosed, KazooException, OSError, TimeoutError, ValueError, KeyError, TypeError)
"""What a step may end with when the cluster is not in the state that the step needs; it becomes the step's outcome."""


class PairLost(Exception):
    """One of the brokers under test is gone or does not come up; `side` is which."""

    def __init__(self, side: str, reason: str) -> None:
        self.side = side
        super().__init__(f"{side}: {reason}")


@dataclass
class Difference:
    """The first scene that the two told differently."""

    scene: int
    commands: list[str]
    kafka: str
    klamm: str


@dataclass
class Told:
    """What came of one telling: outcomes on which both agree, and a difference if there is one.

    `broken` is set when a step failed on both sides: the story makes no sense from there on.
    """

    outcomes: list[str] = field(default_factory=list)
    difference: Difference | None = None
    broken: bool = False

    @classmethod
    def lost(cls, reason: str) -> Told:
        """Klamm ended by itself, or did not start."""
        return cls([], Difference(0, ["(klamm lives)"], "alive", reason))


class Pair:
    """Both brokers, from `properties`. `tell` numbers the tellings, so that each has names of its own."""

    def __init__(self, jars: Path, properties: tuple[tuple[str, str], ...]) -> None:
        """Starts a ZooKeeper for both."""
        self.properties, self.tellings = properties, 0
        self._zookeeper = EmbeddedZooKeeper()
        zookeeper = self._zookeeper.start()
        file = StoryFile(Path("random"), [], True, dict(properties), "", [])
        self._grounds = [Grounds(target, zookeeper, file) for target in (Target("kafka", jars), Target("klamm"))]

    def close(self) -> None:
        for grounds in self._grounds:
            grounds.close()
        self._zookeeper.stop()

    async def start(self) -> None:
        """Start both brokers. Raises PairLost."""
        stages = await self._stages()
        epochs = [stage.tree.controller_epoch() for stage in stages]
        for stage in stages:
            await stage.close()
        if epochs[0] != epochs[1]:
            raise PairLost("kafka", f"controller epochs {epochs} after the start")

    async def _stages(self) -> list[Stage]:
        outcomes = await asyncio.gather(*(asyncio.to_thread(grounds.stage) for grounds in self._grounds), return_exceptions=True)
        stages = []
        for grounds, outcome in zip(self._grounds, outcomes, strict=True):
            if isinstance(outcome, BaseException):
                raise PairLost(grounds.target.name, f"no start: {str(outcome).partition(chr(10))[0]}") from outcome
            stages.append(outcome)
        return stages

    async def tell(self, tale: Tale) -> tuple[Told, str | None]:
        """Tell a story to both. Returns what came of it, and what is not as it was before it, if anything. Raises PairLost."""
        self.tellings += 1
        stages = await self._stages()
        try:
            told = await _tell(tale.told(self.tellings), stages)
            for stage in stages:
                if not stage.brokers[0].alive():
                    raise PairLost(stage.target.name, f"exit code {stage.brokers[0].exit_code()}")
            return told, await _left(stages, told)
        finally:
            for grounds, stage in zip(self._grounds, stages, strict=True):
                grounds.keep(stage)
            for fake in [fake for stage in stages for fake in stage.fake_brokers]:
                await fake.refuse()  # those of a telling that was broken off


async def _tell(scenes: list[Scene], stages: list[Stage]) -> Told:
    told, last, marks = Told(), list[tuple[Scene, tuple[str, str], list[Look]]](), ProducerMarks()
    for at, scene in enumerate(scenes):
        scene.commands = [marks.filled(command) for command in scene.commands]
        acted = await asyncio.gather(*(_acted(scene, stage) for stage in stages))
        before = (acted[0][0], acted[1][0])
        looks = [look for _, look in acted if look is not None]
        outcomes = before
        if before[0] != before[1]:
            told.difference = Difference(at, scene.commands, *before)
            return told
        if looks and len(looks) == len(stages):
            last = [*(last if len(scene.commands) == 1 else []), (scene, before, looks)]
            outcomes = await _agreed(stages, before, looks)
            for look in looks:
                look.done()
        else:
            last = []
        if outcomes[0] != outcomes[1]:
            told.difference = Difference(at, scene.commands, *outcomes)
            return told
        told.outcomes.append(outcomes[0])
        marks.learn(scene.commands, outcomes[0])
        if _FAILED in outcomes[0]:
            told.broken = True
            return told
    await asyncio.gather(*(stage.idle(frames=any(look.frames for _, _, looks in last for look in looks)) for stage in stages))
    for scene, before, looks in last:
        outcomes = await _agreed(stages, before, looks)
        if outcomes[0] != outcomes[1]:
            told.difference = Difference(scenes.index(scene), [*scene.commands, "(later on)"], *outcomes)
            return told
    return told


_FAILED = "(failed) "


def _failure(problem: BaseException) -> str:
    """A step that could not be done, as an outcome: the kind of failure, because texts hold numbers of the run."""
    return f"{_FAILED}{type(problem).__name__}"


async def _acted(scene: Scene, stage: Stage) -> tuple[str, Look | None]:
    try:
        outcome, look = await act(scene, stage)
        if look is None:
            await stage.barrier()
        return outcome, look
    except BadStory:
        raise
    except FAILURES as problem:
        return _failure(problem), None


async def _seen(look: Look) -> str:
    try:
        return await look.see()
    except FAILURES as problem:
        return _failure(problem)


async def _agreed(stages: list[Stage], before: tuple[str, str], looks: list[Look]) -> tuple[str, str]:
    """Look at both until they show the same, twice with a pause, or differ and do not move any more."""
    begun = since = time.monotonic()
    last: tuple[str, str] | None = None
    calm = False
    while True:
        seen = await asyncio.gather(*(_seen(look) for look in looks))
        outcomes = (joined(before[0], seen[0]), joined(before[1], seen[1]))
        now = time.monotonic()
        if outcomes != last:
            last, since = outcomes, now
        if outcomes[0] == outcomes[1]:
            if calm:
                return outcomes
            await asyncio.gather(*(_settled(stage) for stage in stages))
            calm = True
        else:
            calm = False
            if now - since > STILL_S or now - begun > WITHIN_S:
                return outcomes
        await asyncio.sleep(CALM_S)


async def _settled(stage: Stage) -> None:
    try:
        await stage.barrier()
    except FAILURES:
        return  # what is wrong with it shows in the next look


async def _left(stages: list[Stage], told: Told) -> str | None:
    """End the story on both sides. Returns what is not as it was, None when both are back at the same controller epoch."""
    problems = await asyncio.gather(*(_ended(stage) for stage in stages))
    for stage, problem in zip(stages, problems, strict=True):
        if problem is not None and "bytes too many" in problem and told.difference is None:
            told.difference = Difference(len(told.outcomes) - 1, ["(frames of the controller)"], *_for(stage, problem))
    if any(problems):
        return "; ".join(f"{stage.target.name}: {problem}" for stage, problem in zip(stages, problems, strict=True) if problem)
    epochs = [stage.tree.controller_epoch() for stage in stages]
    return None if epochs[0] == epochs[1] else f"controller epochs {epochs}"


def _for(stage: Stage, problem: str) -> tuple[str, str]:
    return (problem, "") if stage.target.name == "kafka" else ("", problem)


async def _ended(stage: Stage) -> str | None:
    """Sweep and close a stage; returns what is not as it was."""
    problem: str | None = None
    try:
        problem = await swept(stage)
    except FAILURES as failure:
        problem = f"{type(failure).__name__}: {failure}"
    try:
        await stage.close()
        problem = problem or baseline(stage.tree)
    except FAILURES as failure:
        problem = f"{problem}; {type(failure).__name__}: {failure}"
    return problem
