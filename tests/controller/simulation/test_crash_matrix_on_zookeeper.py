"""The crash matrix on a real ZooKeeper: the same scenarios, processes with real sessions.

The simulated matrix tries all faults at all writes. Here each fault strikes once in each scenario, at writes from the first to the last.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from klamm.controller.events.catalogue import WatchEvent
from klamm.controller.values import StoreLost
from klamm.tests.controller.reassignment.reassignment_scenarios import REASSIGNMENTS
from klamm.tests.controller.simulated import Crashed, FaultyStore, SimulatedWorld
from klamm.tests.controller.simulation.crash_matrix import SCENARIOS, CrashRun, Fault, Row, Scenario, keep, row, spread, through
from klamm.tests.controller.simulation.simulation import Process
from klamm.tests.controller.throttles.throttle_scenarios import THROTTLED
from klamm.tests.harness.names import unique_name
from klamm.tests.harness.waits import eventually
from klamm.tests.zk.simulated_zookeeper import SimulatedZooKeeper, Znode
from klamm.zk.session.session import SessionChange, ZkSession
from klamm.zk.store.store import ZkStore

SESSION_MS = 10_000
TOO_LONG_HERE = frozenset({"broker death, several multis"})
"""Its thousand znodes are read one by one after each run; "topic creation, several multis" breaks off between multis too."""
ALL = [scenario for scenario in (*SCENARIOS, *REASSIGNMENTS, *THROTTLED) if scenario.name not in TOO_LONG_HERE]
FAULTS = (Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.LOST_ANSWER, Fault.EXPIRED_BEFORE)


class _Nodes(dict[str, Znode]):
    """Nodes of a real tree, read anew each time."""

    def __init__(self, client: KazooClient) -> None:
        super().__init__()
        self._client = client

    def __missing__(self, path: str) -> Znode:
        try:
            data, stat = self._client.get(path)
        except NoNodeError:
            raise KeyError(path) from None
        node = Znode(data, stat.czxid, stat.ephemeralOwner or 0)
        node.version = stat.version
        return node


class KazooTree(SimulatedZooKeeper):
    """A real tree in the place of a simulated one. Whatever is placed in it is seen by watches."""

    def __init__(self, client: KazooClient) -> None:
        super().__init__()
        self.nodes = _Nodes(client)
        self._client = client

    def get(self, path: str) -> Znode | None:
        try:
            return self.nodes[path]
        except KeyError:
            return None

    def children(self, path: str) -> list[str]:
        try:
            return sorted(self._client.get_children(path))
        except NoNodeError:
            return []

    def create(self, path: str, data: bytes | None, owner: int = 0) -> None:
        self._client.create(path, data, makepath=True)

    def set(self, path: str, data: bytes | None) -> None:
        self._client.set(path, data)

    def delete_tree(self, path: str) -> None:
        self._client.delete(path, recursive=True)

    def place(self, path: str, data: bytes | None, version: int | None = None, czxid: int | None = None) -> None:
        if self.get(path) is None:
            self.create(path, data)
        else:
            self.set(path, data)

    def take_away(self, path: str) -> None:
        if self.get(path) is not None:
            self.delete_tree(path)


class RealStore(ZkStore):
    """The store of one process on a real session."""

    def __init__(self, session: ZkSession, on_event: Callable[[WatchEvent], None], run: RealRun) -> None:
        super().__init__(session, on_event)
        self.zk_session = session
        self._run = run
        self.crash: Callable[[], None] = lambda: None
        self.on_session: Callable[[SessionChange], None] = lambda change: None

    def disconnect(self) -> None:
        self.zk_session.sever()
        self._run.endings.append(asyncio.ensure_future(self.zk_session.end_severed(10)))

    def expire(self) -> None:
        self._run.endings.append(asyncio.ensure_future(self._run.end_session(self.zk_session)))

    def lose_connection(self) -> None:
        """The answer alone is lost."""

    def die(self) -> None:
        self.crash()
        raise Crashed


class RealRun(CrashRun):
    """One run of a scenario on a real ZooKeeper, below a chroot of its own."""

    def __init__(self, hosts: str, fault: Fault | None, at: int) -> None:
        super().__init__(fault, at)
        self.hosts = hosts
        self.pause_s = 0.001
        self.sees_writes = False
        self.repeats_exactly = False  # what is written together depends on which event comes first
        self.endings: list[asyncio.Future[None]] = []
        self._sessions: list[ZkSession] = []
        self._stores: dict[ZkSession, RealStore] = {}

    async def open(self) -> None:
        for _ in range(3):
            session = ZkSession(self.hosts, SESSION_MS, lambda change, at=len(self._sessions): self._changed(at, change))  # type: ignore[misc]
            await session.start(SESSION_MS)
            self._sessions.append(session)
        self._client = KazooClient(self.hosts, timeout=SESSION_MS / 1000)
        await asyncio.to_thread(self._client.start)
        self.world = SimulatedWorld(KazooTree(self._client))

    def _changed(self, at: int, change: SessionChange) -> None:
        store = self._stores.get(self._sessions[at])
        if store is not None:
            store.on_session(change)

    def store(self, on_event: Callable[[WatchEvent], None]) -> FaultyStore:
        session = self._sessions[len(self._stores)]
        self._stores[session] = store = RealStore(session, on_event, self)
        return store

    async def end_session(self, session: ZkSession) -> None:
        """End a session from outside, as ZooKeeper does when it hears nothing for too long."""
        connection: Any = session._connection
        servers = self.hosts.partition("/")[0]
        thief = KazooClient(servers, client_id=(connection._client._session_id, connection._client._session_passwd), timeout=10)
        generation = session.generation
        await asyncio.to_thread(thief.start)
        await asyncio.to_thread(thief.stop)
        thief.close()
        await eventually(lambda: session.generation != generation and session.is_connected, "a new session is connected", within_s=60)

    async def quieten(self) -> None:
        """Until no controller has anything to do, and every session has heard of everything that has happened."""
        async with asyncio.timeout(100):
            quiet = 0
            while quiet < 5:
                while self.endings:
                    await self.endings.pop()
                living = [p for p in self.processes if not p.crashed]
                try:
                    for process in living:
                        await process.store.zk_session.exists("/")
                except StoreLost:
                    continue
                before = self._busy(living)
                for _ in range(10):
                    await asyncio.sleep(0)
                quiet = quiet + 1 if before == self._busy(living) and not before[0] and not self.endings else 0

    def _busy(self, living: list[Process]) -> tuple[bool, int, int]:
        works = any(p.callers or p.controller.current is not None or len(p.controller.queue) > 0 for p in living)
        return works or (bool(living) and self.active is None), len(self.world.journal), sum(s.writes for s in self._sessions)

    def _check_history(self) -> None:
        """Nobody saw every version of every state."""

    def _check_frames(self) -> None:
        """Nobody saw the writes between the frames."""

    async def end(self) -> None:
        await super().end()
        for session in self._sessions:
            await session.stop()
        await asyncio.gather(*self.endings, return_exceptions=True)
        await asyncio.to_thread(self._client.stop)
        self._client.close()


@pytest.mark.slow
@pytest.mark.many_seeds
@pytest.mark.parametrize("scenario", ALL, ids=lambda scenario: scenario.name)
async def test_after_a_fault_at_any_write_a_cluster_on_zookeeper_comes_to_rest_as_it_should(
    scenario: Scenario, matrix: list[Row], zookeeper: str
) -> None:
    async def once(scenario: Scenario, fault: Fault | None, at: int) -> int:
        run = RealRun(f"{zookeeper}/{unique_name('matrix')}", fault, at)
        await run.open()
        return await through(run, scenario)

    keep(matrix, await row(scenario, once, spread(FAULTS)))
