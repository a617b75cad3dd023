"""`with` and `async with` of a cluster or a proxy: it runs on an event loop in its own thread, or on the loop of the caller."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import ClassVar, Generic, Protocol, TypeVar

from klamm.server.local.loop_thread import LoopThread


class Runs(Protocol):
    """A cluster or a proxy that has not started yet."""

    async def start(self) -> None:
        """Start it; return when it is ready."""

    async def stop(self) -> None:
        """Stop it."""


C = TypeVar("C", bound=Runs)
Blocking = TypeVar("Blocking")
OnLoop = TypeVar("OnLoop")


class Contexts(ABC, Generic[C, Blocking, OnLoop]):
    """What is ready when the body of `with` begins and stops when it ends. It may run again, but not twice at the same time."""

    subject: ClassVar[str]
    """What it is, for messages and the name of the thread."""

    def __init__(self) -> None:
        self._running: C | None = None
        self._thread: LoopThread | None = None

    @abstractmethod
    def _new(self) -> C:
        """A new one to start."""

    @abstractmethod
    def _blocking(self, running: C, thread: LoopThread) -> Blocking:
        """What `with` gives."""

    @abstractmethod
    def _on_loop(self, running: C) -> OnLoop:
        """What `async with` gives."""

    def __enter__(self) -> Blocking:
        running = self._made()
        thread = self._thread = LoopThread(f"klamm-{self.subject}")
        try:
            thread.call(running.start())
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self._blocking(running, thread)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        running, thread = self._running, self._thread
        if running is None or thread is None:
            raise RuntimeError(f"this {self.subject} is not running")
        try:
            thread.call(running.stop())
        finally:
            thread.close()
            self._running = self._thread = None

    async def __aenter__(self) -> OnLoop:
        running = self._made()
        try:
            await running.start()
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        return self._on_loop(running)

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        running, self._running = self._running, None
        if running is None:
            raise RuntimeError(f"this {self.subject} is not running")
        await running.stop()

    def _made(self) -> C:
        if self._running is not None:
            raise RuntimeError(f"this {self.subject} is already running")
        self._running = self._new()
        return self._running
