"""Telling a story: scene after scene, until each shows what it should.

When replaying, a scene's view is looked at until it shows the expected outcome, within bounds; when recording, until it has not changed
for a while, and that becomes the outcome. A story's last views are looked at once more when the controller has nothing left to do: what
was seen must still be so.
"""

from __future__ import annotations

import asyncio
import difflib
import time

from klamm.tests.stories.both import (
    command_brokers,
    command_connections,
    command_offsets,
    command_reassignment,
    command_records,
    command_requests,
    command_transactions,
    command_views,
)
from klamm.tests.stories.both.commands import ACTIONS, VIEWS, Look
from klamm.tests.stories.both.stage import Stage
from klamm.tests.stories.both.story_file import BadStory, Scene, Story

WITHIN_S = 15.0
"""How long a view may take to show what it should."""
UNCHANGED_S = 0.8
"""How long a view stays as it is before it is recorded."""
CALM_S = 0.015
"""How long a replayed story is left alone before a view is believed."""

WORDS = (
    command_brokers, command_connections, command_offsets, command_reassignment, command_records, command_requests, command_transactions,
    command_views,
)
"""The modules whose words stories may use."""


class Otherwise(AssertionError):
    """The target did not do what the story says; `outcome` is what it did."""

    def __init__(self, where: str, commands: list[str], expected: str, outcome: str) -> None:
        self.outcome = outcome
        difference = difflib.unified_diff(expected.splitlines(), outcome.splitlines(), "expected", "seen", lineterm="", n=99)
        super().__init__("\n".join([where, *(f"    {line}" for line in commands), *difference]))


async def replay(story: Story, stage: Stage) -> None:
    """Tell a story and compare. Raises Otherwise at the first scene that differs."""
    last: list[tuple[Scene, str, Look]] = []
    for scene in story.scenes:
        expected = scene.expected(stage.target.name)
        outcome, look = await act(scene, stage)
        if look is None:
            last = []
        else:
            last = [*(last if len(scene.commands) == 1 else []), (scene, outcome, look)]
            outcome = await _until(stage, look, outcome, expected)
            look.done()
        if outcome != expected:
            raise Otherwise(f"{story.file}.txt:{scene.line} ({story.title}), {stage.target.name}", scene.commands, expected, outcome)
    await _still(story, stage, last)


async def record(story: Story, stage: Stage) -> list[str]:
    """Tell a story and return the outcome of each scene."""
    outcomes = []
    for scene in story.scenes:
        outcome, look = await act(scene, stage)
        if look is not None:
            outcome = joined(outcome, await _unchanged(stage, look))
            look.done()
        outcomes.append(outcome)
    return outcomes


async def act(scene: Scene, stage: Stage) -> tuple[str, Look | None]:
    """Do what a scene says; returns the outcome of its actions and its view, which is its last command if it has one."""
    outcome = ""
    for number, line in enumerate(scene.commands):
        name, *words = line.split()
        if name in ACTIONS:
            outcome = joined(outcome, await ACTIONS[name](stage, words))
        elif name not in VIEWS:
            raise BadStory(f"line {scene.line + number}: {name} is no word of stories")
        elif number < len(scene.commands) - 1:
            raise BadStory(f"line {scene.line + number}: {name} is a view: it can only be the last command of its scene")
        else:
            return outcome, VIEWS[name](stage, words)
    return outcome, None


def joined(first: str, second: str) -> str:
    return "\n".join(part for part in (first, second) if part)


async def _until(stage: Stage, look: Look, before: str, expected: str) -> str:
    """Look until the outcome is the expected one, twice with a pause; returns what was seen last."""
    end = time.monotonic() + WITHIN_S
    calm = False
    while True:
        outcome = joined(before, await look.see())
        if (outcome == expected and calm) or time.monotonic() > end:
            return outcome
        calm = outcome == expected
        if calm:
            await stage.barrier()
        await asyncio.sleep(CALM_S)


async def _unchanged(stage: Stage, look: Look) -> str:
    """Look until nothing has changed for a while."""
    await stage.barrier()
    seen, since = await look.see(), time.monotonic()
    end = since + WITHIN_S
    while time.monotonic() - since < UNCHANGED_S:
        assert time.monotonic() < end, f"never the same for {UNCHANGED_S} s: {seen}"
        await asyncio.sleep(0.03)
        now = await look.see()
        if now != seen:
            seen, since = now, time.monotonic()
    return seen


async def _still(story: Story, stage: Stage, last: list[tuple[Scene, str, Look]]) -> None:
    """The last views of a story, once more."""
    if not last:
        return
    await stage.idle(frames=any(look.frames for _, _, look in last))
    for scene, before, look in last:
        outcome, expected = joined(before, await look.see()), scene.expected(stage.target.name)
        if outcome != expected:
            where = f"{story.file}.txt:{scene.line} ({story.title}), {stage.target.name}, later on"
            raise Otherwise(where, scene.commands, expected, outcome)
