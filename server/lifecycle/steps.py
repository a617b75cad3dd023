"""A table of steps that are taken in order, each with its undo, and undone in reverse.

A step is undone as soon as it was begun: an undo finds the step done, half done or not begun, and may be called again. A step without a
start is something that begins to work when it is first used.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

log = logging.getLogger(__name__)

T = TypeVar("T")

Action = Callable[[T], "Awaitable[None] | None"]


class Interrupted(Exception):
    """The steps were undone while they were being taken."""


class Step(NamedTuple, Generic[T]):
    """One line of the table. `start` and `undo` get what all steps share; without `undo` the step leaves nothing."""

    name: str
    start: Action[T] | None = None
    undo: Action[T] | None = None


class Steps(Generic[T]):
    """The steps of one subject."""

    def __init__(self, table: Sequence[Step[T]], subject: T) -> None:
        self._table = table
        self._subject = subject
        self._begun: list[Step[T]] = []
        self._undone = False

    async def take(self) -> None:
        """Take all steps. Raises what a step raises, and leaves the undo to the caller; Interrupted if `undo` was called meanwhile."""
        for step in self._table:
            self._begun.append(step)
            try:
                await self._run(step.start)
            finally:
                if self._undone:  # while this step was going on, which has perhaps done more since then
                    await self._run(step.undo)
            if self._undone:
                raise Interrupted(step.name)

    async def undo(self) -> None:
        """Undo what was begun, the last step first. A step whose undo fails does not keep the others; the first failure is raised then."""
        self._undone = True
        failures: list[Exception] = []
        while self._begun:
            step = self._begun.pop()
            try:
                await self._run(step.undo)
            except Exception as failure:
                log.exception("the step %r could not be undone", step.name)
                failures.append(failure)
        if failures:
            raise failures[0]

    async def _run(self, action: Action[T] | None) -> None:
        if action is not None:
            waiting = action(self._subject)
            if waiting is not None:
                await waiting
