"""A cluster whose brokers are in processes of their own, as the verbs of a cluster for tests need it.

Its owner (`SteeredProcessCluster`) runs on an event loop in a thread of its own. So a verb that returns a value can wait for the
processes, some milliseconds, on any thread, also on that of the caller's event loop. Logs are on disk, so that a broker that is killed
finds them again.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, TypeVar

from klamm.control.bodies import checked_filter
from klamm.control.history import Exchange, History, at_ms_of
from klamm.control.json_object import JsonObject
from klamm.control.processes.process_control import ProcessControl
from klamm.control.processes.shares import FaultShares, HoldShares
from klamm.control.processes.steered_processes import SteeredProcessCluster
from klamm.protocol.nouns import ZERO_UUID
from klamm.seams.steering import HoldState, phase_from_json
from klamm.server.faults.fault import DiskHit, Hit
from klamm.server.local.loop_thread import LoopThread
from klamm.server.phases import phase_named
from klamm.testing.steered_cluster import OfOneCluster, value_of
from klamm.zk.embedded.server import EmbeddedZooKeeper

__tracebackhide__ = True  # pytest leaves out the lines of this module

CHILD = [sys.executable, "-m", "klamm.cli.serving.owned_broker", "warning"]
OPEN_MS = 60_000
"""A request without a response is looked at again for so long."""
ENDS = frozenset(("kill_broker", "stop_broker", "restart_broker", "crash"))
"""Verbs that end a process: what it received is asked for before."""
T = TypeVar("T")


class ProcessFault:
    """A fault of these processes."""

    def __init__(self, share: FaultShares, control: ProcessControl, thread: LoopThread) -> None:
        self.number = share.number
        self._share = share
        self._control = control
        self._thread = thread

    @property
    def hits(self) -> int:
        return int(self.as_json()["hits"])

    @property
    def matches(self) -> int:
        return int(self.as_json()["matches"])

    @property
    def last(self) -> list[Hit | DiskHit]:
        return [_hit(row) for row in self.as_json()["last"]]

    @property
    def is_removed(self) -> bool:
        return self._control.fault_is_spent(self.number) is None

    def as_json(self) -> JsonObject:
        return self._thread.call(self._look())

    async def _look(self) -> JsonObject:
        if not self.is_removed:
            await self._control.fault_share(self.number)
        return self._share.as_json()


def _hit(row: JsonObject) -> Hit | DiskHit:
    values = {name: value for name, value in row.items() if name not in ("at", "disk")} | {"at_ms": at_ms_of(row["at"])}
    return DiskHit(operation=row["disk"], **values) if "disk" in row else Hit(**values)


class ProcessHold:
    """A hold of these processes."""

    def __init__(self, share: HoldShares, control: ProcessControl, thread: LoopThread) -> None:
        self.number = share.number
        self.body = share.body
        self._share = share
        self._control = control
        self._thread = thread

    @property
    def state(self) -> HoldState:
        return self._look(lambda share: share.state)

    @property
    def hits(self) -> int:
        return self._look(lambda share: share.taken)

    @property
    def passed(self) -> int:
        return self._look(lambda share: share.hits - share.taken)

    @property
    def held(self) -> list[tuple[int, Any]]:
        kind = phase_named(self.body.phase)
        rows = self._look(lambda share: list(share.as_json()["held"]))
        return [(row["broker"], phase_from_json(kind, row)) for row in rows]

    def release(self) -> None:
        if self._control.hold_phase(self.number) is not None:
            self._thread.call(self._control.release(self.number))

    def _look(self, what: Callable[[HoldShares], T]) -> T:
        async def look() -> T:
            if self._control.hold_phase(self.number) is not None:
                await self._control.hold_share(self.number)
            return what(self._share)

        return self._thread.call(look())


class _Verbs:
    """The verbs of a `ProcessControl` for another thread: as awaitables, or blocking."""

    def __init__(self, control: ProcessControl, run: Callable[[str, Coroutine[Any, Any, Any]], Any]) -> None:
        self._control = control
        self._run = run

    def __getattr__(self, name: str) -> Callable[..., Any]:
        verb = getattr(self._control, name)

        async def done(*arguments: Any, **named: Any) -> Any:
            return await value_of(verb(*arguments, **named))

        return lambda *arguments, **named: self._run(name, done(*arguments, **named))


class BrokerProcesses(OfOneCluster):
    """The processes of a `SteeredProcessCluster`. `shape` are arguments of that."""

    def __init__(self, *, data_dir: Path | None = None, zookeeper: str | None = None, **shape: Any) -> None:
        self._data_dir = data_dir
        self._zookeeper = zookeeper
        self._shape = shape
        self._temporary: str | None = None
        self._thread: LoopThread
        self._cluster: SteeredProcessCluster
        self._history = History(lambda name: self._topic_ids.get(name, ZERO_UUID))
        self._topic_ids: dict[str, bytes] = {}
        self._looked_ms = 0
        self.control: Any = None
        self.now: Any = None

    async def start(self) -> None:
        """Start the thread of the owner, and the processes. Raises what the cluster raises; then nothing is left."""
        self._thread = LoopThread("klamm-processes")
        folder = self._data_dir
        if folder is None:
            self._temporary = tempfile.mkdtemp(prefix="klamm-")
            folder = Path(self._temporary)
        is_own = self._zookeeper is None and self._data_dir is None
        try:
            await self._elsewhere(self._start(folder, EmbeddedZooKeeper() if is_own else self._zookeeper))
        except BaseException:
            await self.stop()
            raise
        control = self._cluster.control
        self.control = _Verbs(control, self._begin)
        self.now = _Verbs(control, self._call)

    async def _start(self, folder: Path, zookeeper: str | EmbeddedZooKeeper | None) -> None:
        self._cluster = SteeredProcessCluster(CHILD, data_dir=folder, zookeeper=zookeeper, **self._shape)
        await self._cluster.start()

    async def stop(self) -> None:
        try:
            if hasattr(self, "_cluster"):
                await self._elsewhere(self._cluster.stop())
        finally:
            await asyncio.to_thread(self._thread.close)
            if self._temporary is not None:
                await asyncio.to_thread(shutil.rmtree, self._temporary, ignore_errors=True)

    async def _elsewhere(self, work: Coroutine[Any, Any, T]) -> T:
        return await asyncio.wrap_future(self._thread.begin(work))

    async def _begin(self, name: str, work: Coroutine[Any, Any, T]) -> T:
        if name in ENDS:
            await self._elsewhere(self._look())
        return await self._elsewhere(work)

    def _call(self, name: str, work: Coroutine[Any, Any, T]) -> T:
        return self._thread.call(work)

    @property
    def addresses(self) -> list[tuple[int, str, int]]:
        return [(each.broker_id, each.host, each.port) for each in self._cluster.processes if each.runs and each.is_ready]

    @property
    def controller_id(self) -> int:
        return self._thread.call(self._cluster.control.controller_id())

    def fault(self, number: int) -> ProcessFault:
        control = self._cluster.control
        return ProcessFault(self._thread.call(control.fault_share(number)), control, self._thread)

    def hold(self, number: int) -> ProcessHold:
        control = self._cluster.control
        return ProcessHold(self._thread.call(control.hold_share(number)), control, self._thread)

    def exchanges(self, **wanted: Any) -> list[Exchange]:
        known = checked_filter(wanted, range(1, self._cluster.control.cluster.count + 1))
        self._thread.call(self._look())
        return self._thread.call(self._newest(known))

    async def _newest(self, wanted: JsonObject) -> list[Exchange]:
        return list(self._history.newest(clients_only=True, **wanted))

    async def _look(self) -> None:
        """Have the requests that the processes received since the last look, and those that had no response then."""
        begun_ms = time.time_ns() // 1_000_000
        found, topic_ids = await self._cluster.control.exchanges(self._looked_ms)
        self._history.take(found)
        self._topic_ids |= topic_ids
        open_ms = [each.at_ms for each in found if each.response is None and each.at_ms > begun_ms - OPEN_MS]
        self._looked_ms = min([begun_ms - 1, *open_ms])

    def last_request(self) -> int:
        return self._cluster.control.history.number_before(time.time_ns() // 1_000_000)

    def events(self, since: int) -> list[JsonObject]:
        return self._thread.call(self._events(since))

    async def _events(self, since: int) -> list[JsonObject]:
        return self._cluster.control.events.since(since)

    def topic_name(self, topic_id: bytes) -> str | None:
        return next((name for name, each in self._topic_ids.items() if each == topic_id), None)

    async def replicas(self, topic: str, partition: int) -> Mapping[int, JsonObject]:
        return await self._elsewhere(self._cluster.control.replicas(topic, partition))

    async def controllers(self) -> tuple[int, Mapping[int, int | None]]:
        return await self._elsewhere(self._cluster.control.controllers())
