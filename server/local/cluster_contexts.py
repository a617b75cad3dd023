"""`with` and `async with` of a local cluster: it runs on an event loop in its own thread, or on the loop of the caller."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import ClassVar, Generic, Protocol, TypeVar

from klamm.server.local.loop_thread import LoopThread


class Runs(Protocol):
    """A cluster that has not started yet."""

    async def start(self) -> None:
        """Start it; return when it is ready."""

    async def stop(self) -> None:
        """Stop it."""


C = TypeVar("C", bound=Runs)
Blocking = TypeVar("Blocking")
OnLoop = TypeVar("OnLoop")


class ClusterContexts(ABC, Generic[C, Blocking, OnLoop]):
    """A cluster that is ready when the body of `with` begins and stops when it ends. It may run again, but not twice at the same time."""

    thread_name: ClassVar[str]

    def __init__(self) -> None:
        self._running: C | None = None
        self._thread: LoopThread | None = None

    @abstractmethod
    def _new(self) -> C:
        """A new cluster to start."""

    @abstractmethod
    def _blocking(self, cluster: C, thread: LoopThread) -> Blocking:
        """What `with` gives."""

    @abstractmethod
    def _on_loop(self, cluster: C) -> OnLoop:
        """What `async with` gives."""

    def __enter__(self) -> Blocking:
        cluster = self._made()
        thread = self._thread = LoopThread(self.thread_name)
        try:
            thread.call(cluster.start())
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self._blocking(cluster, thread)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        cluster, thread = self._running, self._thread
        if cluster is None or thread is None:
            raise RuntimeError("this cluster is not running")
        try:
            thread.call(cluster.stop())
        finally:
            thread.close()
            self._running = self._thread = None

    async def __aenter__(self) -> OnLoop:
        cluster = self._made()
        try:
            await cluster.start()
        except BaseException:
            self._running = None
            raise
        return self._on_loop(cluster)

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        cluster, self._running = self._running, None
        if cluster is None:
            raise RuntimeError("this cluster is not running")
        await cluster.stop()

    def _made(self) -> C:
        if self._running is not None:
            raise RuntimeError("this cluster is already running")
        self._running = self._new()
        return self._running
