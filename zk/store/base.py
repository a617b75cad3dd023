"""Base class of the areas of the controller's store: session, fence, conversion of watches to events, deletions."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from klamm.controller.events import catalogue as events
from klamm.controller.values import StoreRefused, WriteOutcome
from klamm.zk.session.connection import Change
from klamm.zk.session.requests import MultiFailed, TooLarge, ZkError
from klamm.zk.session.session import ZkSession
from klamm.zk.store.fenced_writes import Entry, Fence, settle_delete
from klamm.zk.store.watches import event_of

# How often a deletion is repeated if another client keeps creating znodes below the deleted one.
_DELETE_ATTEMPTS = 5


class ZkArea:
    """One area of the store of the controller that uses this `session`."""

    def __init__(self, session: ZkSession, fence: Fence, on_event: Callable[[events.WatchEvent], None]) -> None:
        """`on_event` gets the events of watches, in the event loop."""
        self._session = session
        self._fence = fence
        self._on_event = on_event

    def _seen(self, change: Change, path: str) -> None:
        event = event_of(change, path)
        if event is not None:
            self._on_event(event)

    async def _put(self, path: str, data: bytes) -> None:
        """Create a znode below an existing one, or replace its data. The write is fenced. Raises StoreRefused."""
        ops = self._session.ops
        for operation in (ops.set_data(path, data, -1), ops.create(path, data), ops.set_data(path, data, -1)):
            try:
                await self._fence.multi([operation])
                return
            except MultiFailed as failure:
                last: ZkError = failure
            except TooLarge as problem:
                last = problem
                break
        raise StoreRefused(f"{path} cannot be written: {last}")

    async def _delete(self, doomed: Iterable[str]) -> bool:
        """Delete znodes with a fenced write. False if one has children."""
        entries = [Entry([self._session.ops.delete(path)]) for path in doomed]
        return all(outcome is WriteOutcome.OK for outcome in await self._fence.write(entries, settle_delete))

    async def _delete_tree(self, path: str) -> None:
        """Delete a znode and everything below it, children first. A missing znode is not an error (layout 1.2). Raises StoreRefused."""
        for _ in range(_DELETE_ATTEMPTS):
            levels = [[path]]
            while levels[-1]:
                children = await self._session.children_of(levels[-1])
                levels.append([f"{parent}/{name}" for parent, names in zip(levels[-1], children, strict=True) for name in names or ()])
            complete = True
            for level in reversed(levels):
                complete = await self._delete(level)
            if complete:
                return
        raise StoreRefused(f"{path} cannot be deleted: another client keeps creating znodes below it")
