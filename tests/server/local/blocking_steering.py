"""Holds of phases by their classes, for tests without an event loop: the `Steering` of a cluster that runs in a thread of its own."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from klamm.control.verbs.steered_cluster import SteeredCluster
from klamm.seams.blocking import Blocking
from klamm.seams.steering import Action, Hold
from klamm.server.broker_server import BrokerServer
from klamm.server.local.loop_thread import LoopThread


class BlockingHold(Blocking, of=Hold):
    """A `Hold`, for threads without an event loop."""

    def __init__(self, hold: Hold[Any], thread: LoopThread) -> None:
        self._inner, self._thread = hold, thread

    @property
    def hits(self) -> int:
        """How many phases matched."""
        return self._inner.hits

    @property
    def broker_ids(self) -> list[int]:
        """The brokers that are held, in the order in which they were reached."""
        return [held.broker_id for held in self._inner.held_phases]

    def _result_of(self, call: Callable[[], Any]) -> Any:
        return _result(call, self._thread)


class Steered:
    """A cluster of brokers in this process, with what only tests of brokers need."""

    def __init__(self, cluster: Any) -> None:
        """`cluster` is a `BlockingCluster`."""
        self._cluster: SteeredCluster = cluster._inner._cluster
        self._thread: LoopThread = cluster._thread

    @property
    def brokers(self) -> list[BrokerServer]:
        """Those that run."""
        return self._cluster.brokers

    def hold(
        self, *kinds: type[Any], where: Mapping[str, object] | None = None, count: int | None = None, action: Action | None = None
    ) -> Any:
        """A hold of phases of these kinds, a `BlockingHold`: see `Steering.hold`."""
        return BlockingHold(
            _result(lambda: self._cluster.steering.hold(*kinds, where=where, count=count, action=action), self._thread), self._thread
        )

    def release(self) -> None:
        """End all holds."""
        _result(self._cluster.steering.release, self._thread)

    def crash_broker(self, broker_id: int) -> None:
        """End a broker like `kill -9`, also while another step is under way."""
        _result(lambda: self._cluster.crash_broker(broker_id), self._thread)


def _result(call: Callable[[], Any], thread: LoopThread) -> Any:
    async def work() -> Any:
        made = call()
        return await made if inspect.isawaitable(made) else made

    return thread.call(work()) if thread.runs else call()
