"""Fenced writes of the controller: many independent writes in few multis, each of which begins with a check of `/controller_epoch`.

A multi is all or nothing, and its response names only the first bad operation. The caller settles (or corrects) the entry of that
operation, and the other entries are sent again. After the second bad entry, the entries before it, which are good, are sent together, and
the entries after it in two halves. Thus even many bad entries need few repetitions. Every entry gets its own outcome. If the check itself
fails, another controller was elected, and the multi had no effect (layout 1.1).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any, TypeVar

from klamm.controller.values import ControllerMoved, StoreLost, StoreRefused, WriteOutcome
from klamm.zk.layout import paths
from klamm.zk.session.batches import BATCH_BYTES, BATCH_OPERATIONS
from klamm.zk.session.requests import BAD_VERSION, NO_NODE, NODE_EXISTS, MultiFailed, TooLarge, path_with_data
from klamm.zk.session.session import ZkSession

log = logging.getLogger(__name__)

T = TypeVar("T")

_OUTCOMES = {BAD_VERSION: WriteOutcome.BAD_VERSION, NO_NODE: WriteOutcome.NO_NODE, NODE_EXISTS: WriteOutcome.NODE_EXISTS}


def outcome_of(code: int) -> WriteOutcome:
    return _OUTCOMES.get(code, WriteOutcome.FAILED)


class Entry:
    """Operations that succeed or fail together, independent of other entries. `outcome` is None until it is settled."""

    __slots__ = ("operations", "outcome")

    def __init__(self, operations: Sequence[bytes]) -> None:
        self.operations = operations
        self.outcome: WriteOutcome | None = None


E = TypeVar("E", bound=Entry)

# Called with the failed operation, its entry and all entries of the multi. Must settle the entry or change its operations.
OnBad = Callable[[Sequence[E], E, int, MultiFailed], Awaitable[None]]
# Writes one multi. The index of a MultiFailed is relative to the first operation passed to it.
Send = Callable[[Sequence[bytes]], Awaitable[None]]


class Fence:
    """Checks the controller epoch in every write. Valid as long as the session of the election exists."""

    def __init__(self, session: ZkSession) -> None:
        self._session = session
        self._version: int | None = None
        self._generation = 0
        self.versions: dict[str, int] | None = None
        """Path → version of the znodes that were written, until a caller removes them; None if they are not recorded."""

    def raise_to(self, zk_version: int, generation: int) -> None:
        """Use this version of `/controller_epoch` for all further writes, in this generation of the session only."""
        self._version = zk_version
        self._generation = generation

    def drop(self) -> None:
        self._version = None

    async def multi(self, operations: Sequence[bytes]) -> None:
        """Write with the check of the controller epoch. The index of a MultiFailed does not count the check. Raises ControllerMoved,
        StoreLost.
        """
        if self._version is None:
            raise ControllerMoved("this broker is not the controller")
        if self._generation != self._session.generation:
            raise StoreLost("the ZooKeeper session of the election is over")
        check = self._session.ops.check(paths.CONTROLLER_EPOCH, self._version)
        try:
            if self.versions is None:
                await self._session.multi([check, *operations])
            else:
                self._written(self.versions, operations, await self._session.multi_versions([check, *operations]))
        except MultiFailed as failure:
            if failure.index == 0:
                if failure.code == BAD_VERSION:
                    raise ControllerMoved("the controller epoch was raised by another controller") from None
                raise StoreRefused(f"/controller_epoch cannot be checked: {failure}") from None
            failure.index -= 1
            raise

    def _written(self, versions: dict[str, int], operations: Sequence[bytes], answered: Sequence[int | None]) -> None:
        prefix = len(self._session.chroot)
        for operation, version in zip(operations, answered[1:], strict=True):
            path = None if version is None else path_with_data(operation)  # parents have no data, and their versions are not needed
            if version is not None and path is not None:
                versions[path[prefix:]] = version

    def read(self, path: str, version: int) -> None:
        """Record the version of a znode that an earlier attempt has written."""
        if self.versions is not None:
            self.versions[path] = version

    async def write(self, entries: Sequence[E], on_bad: OnBad[E]) -> list[WriteOutcome]:
        """Write entries, fenced. Returns their outcomes in order."""
        return await write_entries(self.multi, entries, on_bad)


async def write_entries(send: Send, entries: Sequence[E], on_bad: OnBad[E]) -> list[WriteOutcome]:
    """Write entries in as many multis as necessary, each with `send`. Returns their outcomes in order."""
    await together(_write(send, part, on_bad, 0) for part in _parts(entries))
    return [WriteOutcome.FAILED if entry.outcome is None else entry.outcome for entry in entries]


async def _write(send: Send, entries: Sequence[E], on_bad: OnBad[E], bad: int) -> None:
    todo = list(entries)
    while todo:
        try:
            await send([operation for entry in todo for operation in entry.operations])
        except MultiFailed as failure:
            at, operation = _locate(todo, failure.index)
            await on_bad(todo, todo[at], operation, failure)
            bad += 1
            before, behind = _open(todo[:at]), _open(todo[at:])
            if bad < 2:
                todo = before + behind
                continue
            middle = (len(behind) + 1) // 2
            await together(_write(send, part, on_bad, bad) for part in (before, behind[:middle], behind[middle:]) if part)
            return
        except TooLarge:
            if len(todo) > 1:
                await together(_write(send, [entry], on_bad, bad) for entry in todo)
                return
            log.error("A write is too large for ZooKeeper")
            todo[0].outcome = WriteOutcome.FAILED
            return
        for entry in todo:
            entry.outcome = WriteOutcome.OK
        return


async def settle(_: Sequence[Entry], entry: Entry, __: int, failure: MultiFailed) -> None:
    """The default for a bad entry: its outcome is the error of ZooKeeper."""
    entry.outcome = outcome_of(failure.code)


async def settle_delete(_: Sequence[Entry], entry: Entry, __: int, failure: MultiFailed) -> None:
    """Settle a failed deletion: a missing znode is a success."""
    entry.outcome = WriteOutcome.OK if failure.code == NO_NODE else outcome_of(failure.code)


async def together(steps: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Run coroutines concurrently, started in order, without blocking the event loop. If several raise, the most important exception is
    raised.
    """
    begun = list(steps)
    if len(begun) == 1:
        return [await begun[0]]
    tasks = []
    for step in begun:
        tasks.append(asyncio.create_task(step))
        tasks[-1].add_done_callback(_look)  # the waiting task may be cancelled before it retrieves the exception
        await asyncio.sleep(0)
    results = await asyncio.gather(*tasks, return_exceptions=True)
    problems = [result for result in results if isinstance(result, BaseException)]
    if problems:
        raise next((problem for problem in problems if isinstance(problem, ControllerMoved)), problems[0])
    return [task.result() for task in tasks]


def _look(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()


def _open(entries: list[E]) -> list[E]:
    return [entry for entry in entries if entry.outcome is None]


def _locate(entries: Sequence[Entry], index: int) -> tuple[int, int]:
    """The entry with this operation, and the index of the operation in the entry."""
    for at, entry in enumerate(entries):
        if index < len(entry.operations):
            return at, index
        index -= len(entry.operations)
    raise AssertionError("the bad operation is not one of those sent")


def _parts(entries: Sequence[E]) -> list[Sequence[E]]:
    """Split entries so that each part fits into one multi."""
    parts: list[Sequence[E]] = []
    start = size = count = 0
    for index, entry in enumerate(entries):
        needed, more = sum(map(len, entry.operations)), len(entry.operations)
        if index > start and (size + needed > BATCH_BYTES or count + more > BATCH_OPERATIONS):
            parts.append(entries[start:index])
            start, size, count = index, 0, 0
        size += needed
        count += more
    if start < len(entries):
        parts.append(entries[start:])
    return parts
