"""The ZooKeeper session of one broker: its start and end, its connection, and the one function that every request passes.

If the connection is lost, a request waits and is then repeated. Its error then has `repeated`, because the first attempt may have
succeeded. A request that was in progress at two losses is then sent alone; if the connection is lost each time, the request is the cause,
and it is not repeated. If the session ends first, StoreLost is raised. After the end of a session a new one is opened at once; `generation`
is the number of the session. Watches are one-shot. If the connection is lost, both ZooKeeper and kazoo drop the watches, so they are
reported as Change.MISSED when the same session is connected again. If the session ends, they are dropped.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Protocol

from kazoo.protocol.serialization import Create, Delete, SetData
from kazoo.security import OPEN_ACL_UNSAFE

from klamm.controller.values import StoreLost
from klamm.zk.layout.topics import TopicNodes
from klamm.zk.session.connection import Change, Connect, Connection, Link, Watch
from klamm.zk.session.kazoo_connection import KazooConnection
from klamm.zk.session.nodes import ZkNodes
from klamm.zk.session.reachability import check_address, why_silent
from klamm.zk.session.requests import (
    ClosesConnection,
    ConnectionLost,
    Multi,
    NodeExists,
    SessionExpired,
    ZkError,
)

if TYPE_CHECKING:
    from klamm.seams.steering import Steering

log = logging.getLogger(__name__)

_STOP_LIMIT_S = 0.5
_REOPEN_AFTER_S = 1.0
_EPHEMERAL, _SEQUENCE = 1, 2
LOSSES_BEFORE_ALONE = 2
"""After this number of connections that were lost while a request was in progress, it is sent alone."""
LOSSES_ALONE = 20
"""After this number of losses while it was sent alone, the request is the cause: on a bad network a few are a coincidence."""


class ZkUnavailable(Exception):
    """No ZooKeeper responded in time, or its address or chroot cannot be used. The message is one line."""


class SessionChange(Enum):
    """A change of the session or its connection."""

    SUSPENDED = auto()
    RECONNECTED = auto()
    EXPIRED = auto()
    NEW_SESSION = auto()


WRITES = (Create, SetData, Delete, Multi)
"""Requests that change znodes."""


class WriteHook(Protocol):
    """Called before and after every write of a session, with its number (from 1; a repeated write gets a new number).

    Both methods can raise, to simulate a failure at this point: ConnectionLost for a lost response (the write is repeated), StoreLost for
    the end of the session, any other exception for the end of the writer.
    """

    def before(self, number: int, request: Any) -> None:
        """Called before the write is sent."""

    def after(self, number: int, request: Any) -> None:
        """Called after the response: the write has succeeded or was refused."""


class ZkSession(ZkNodes):
    """A session at `hosts` (`host:port[,host:port…][/chroot]`). Whenever it expires, a new one is opened."""

    def __init__(
        self,
        hosts: str,
        session_timeout_ms: int,
        on_session: Callable[[SessionChange], None] | None = None,
        *,
        connect: Connect = KazooConnection,
        write_hook: WriteHook | None = None,
    ) -> None:
        """`on_session` gets the changes after `start`, in order, in the event loop; it can be set later. `write_hook` is called before and
        after every write.
        """
        servers, slash, chroot = hosts.partition("/")
        super().__init__(servers, "".join(f"/{part}" for part in chroot.split("/") if part) if slash else "")
        self._session_timeout_ms = session_timeout_ms
        self.on_session = on_session
        self.generation = 1
        self.session_id = 0
        self.is_connected = False
        self.writes = self.reads = 0
        self.topic_nodes = TopicNodes()
        """Topics and states that this session has read and written lately."""
        self.write_hook = write_hook
        self.steering: Steering | None = None
        """Holds reads and writes of this session (`steered_requests.py`)."""
        self.writer: Callable[[], tuple[int, int]] = _nobody
        """Who writes: broker id, and the epoch of this broker's controller, -1 if it is not the controller."""
        self.held_requests: set[asyncio.Future[None]] = set()
        """Requests that are held; they end with the session."""
        self._connect = connect
        self._connection: Connection | None = None
        self._started = False
        self._stopped = False
        self.delay_s = 0.0
        """Each request waits this long before it is sent: a slow ZooKeeper, for tests."""
        self._waiters: list[asyncio.Future[None]] = []
        self._alone: set[int] = set()
        """Requests, by id(), that are sent alone because the connection was lost whenever they were sent."""
        self._missed: list[Watch] = []

    async def start(self, connection_timeout_ms: int, *, create_chroot: bool = True) -> None:
        """Connect and create the chroot. Raises ZkUnavailable if this does not succeed in time."""
        try:
            check_address(self.servers)
        except ValueError as problem:
            raise ZkUnavailable(str(problem)) from problem
        self._open()
        try:
            async with asyncio.timeout(connection_timeout_ms / 1000):
                await self.reconnected(self.generation)
                if create_chroot:
                    await self._create_chroot()
        except (TimeoutError, StoreLost):
            await self.stop()
            cause = await why_silent(self.servers)
            raise ZkUnavailable(f"no ZooKeeper responds at {self.servers} within {connection_timeout_ms} ms ({cause})") from None
        except ZkError as problem:
            await self.stop()
            raise ZkUnavailable(f"cannot create {self.chroot} in ZooKeeper at {self.servers}: {problem}") from problem
        self._started = True

    async def stop(self) -> None:
        """End the session, which deletes its ephemeral znodes. Waiting calls raise StoreLost."""
        connection = self._end()
        if connection is not None:
            await connection.close(_STOP_LIMIT_S)

    def sever(self) -> None:
        """Close the connection and do not reconnect. The session and its ephemeral znodes exist until it expires. Waiting calls raise
        StoreLost.
        """
        connection = self._end()
        if connection is not None:
            connection.sever()

    def _end(self) -> Connection | None:
        """Wake all waiting calls. Returns the connection to close; None if there is none or it was returned before."""
        if self._stopped:
            return None
        self._stopped = True
        self.is_connected = False
        self._lose_held_requests()
        self._wake()
        return self._connection

    async def end_severed(self, limit_s: float) -> None:
        """End a severed session before it expires. Raises TimeoutError if no ZooKeeper responds."""
        if self._connection is not None and self.session_id != 0:
            await self._connection.end_severed(limit_s)

    async def expire(self, limit_s: float = 10.0) -> None:
        """Let ZooKeeper end this session now, as it does when it hears nothing for too long. A new one is opened then. Raises TimeoutError
        if no ZooKeeper responds.
        """
        if self._connection is not None and self.session_id != 0:
            await self._connection.end_session(limit_s)

    def cut(self) -> None:
        """Lose the connection and do not get another one until `restore`. ZooKeeper ends the session after its time-out."""
        if self._connection is not None:
            self._connection.cut()

    def restore(self) -> None:
        """The opposite of `cut`."""
        if self._connection is not None:
            self._connection.restore()

    def pause(self) -> None:
        """Send and receive nothing, no heartbeats either, until `resume`: ZooKeeper ends the session after its time-out."""
        if self._connection is not None:
            self._connection.pause()

    def resume(self) -> None:
        """The opposite of `pause`."""
        if self._connection is not None:
            self._connection.resume()

    async def reconnected(self, generation: int) -> None:
        """Wait until the session of this generation is connected. Raises StoreLost if it is over."""
        while True:
            if self._stopped or self.generation != generation:
                raise StoreLost("the ZooKeeper session is over")
            if self.is_connected:
                return
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter

    async def call(self, request: Any) -> Any:
        """Send a request, and repeat it after a lost connection, until there is a response. Raises the error of the response; StoreLost if
        the session ends first; ClosesConnection if it is this request that ZooKeeper closes the connection for.
        """
        generation = self.generation
        losses, repeated = 0, False
        send = self._write if isinstance(request, WRITES) else self._submit_other
        while True:
            try:
                return await send(request)
            except ConnectionLost as lost:
                repeated = True
                losses += lost.was_sent
            except SessionExpired:
                raise StoreLost("the ZooKeeper session expired") from None
            except ZkError as problem:
                problem.repeated = repeated
                raise
            if losses >= LOSSES_BEFORE_ALONE:
                return await self._call_alone(send, request, generation)
            await self.reconnected(generation)

    async def _call_alone(self, send: Callable[[Any], Awaitable[Any]], request: Any, generation: int) -> Any:
        """Go on with a request after which the connection was lost again and again: without others beside it, so that it is known whether
        it is the cause.
        """
        self._alone.add(id(request))
        losses = 0
        try:
            while True:
                await self.reconnected(generation)
                try:
                    return await send(request)
                except ConnectionLost as lost:
                    losses += lost.was_sent
                    if losses >= LOSSES_ALONE:
                        log.error("ZooKeeper closes the connection whenever it gets %r; it is not sent again", request)
                        raise ClosesConnection from None
        except SessionExpired:
            raise StoreLost("the ZooKeeper session expired") from None
        except ZkError as problem:
            problem.repeated = True
            raise
        finally:
            self._alone.discard(id(request))

    def _submit_other(self, request: Any) -> Awaitable[Any]:
        """Send what is not a write: a read, unless it is a sync or only sets watches."""
        self.reads += 1
        if self.steering is not None and self.steering.holds:
            from klamm.zk.session.steered_requests import READS, steered_read, wants_reads

            if wants_reads(self.steering) and isinstance(request, READS):
                return steered_read(self, self.reads, request)
        return self._submit(request)

    def submit_read(self, request: Any) -> Awaitable[Any]:
        """One attempt of a read, which `call` makes."""
        return self._submit(request)

    def _submit(self, request: Any) -> Awaitable[Any]:
        if self.delay_s or self._alone:
            return self._submit_otherwise(request)
        return self._connected_or_last().submit(request)

    async def _submit_otherwise(self, request: Any) -> Any:
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        return await self._connected_or_last().submit(request, alone=id(request) in self._alone)

    async def _write(self, request: Any) -> Any:
        self.writes += 1
        if self.steering is not None and self.steering.holds:
            from klamm.zk.session.steered_requests import steered

            return await steered(self, self.writes, request)
        return await self.attempt(self.writes, request)

    async def attempt(self, number: int, request: Any) -> Any:
        """One attempt of a write, which `call` makes. A multi is one write."""
        hook = self.write_hook
        if hook is None:
            return await self._submit(request)
        hook.before(number, request)
        try:
            response = await self._submit(request)
        except (ConnectionLost, SessionExpired):
            raise
        except ZkError:
            hook.after(number, request)
            raise
        hook.after(number, request)
        return response

    async def _create_chroot(self) -> None:
        path = ""
        for part in self.chroot.split("/")[1:]:
            path += f"/{part}"
            try:
                await self.call(Create(path, None, OPEN_ACL_UNSAFE, 0))
            except NodeExists:
                continue

    def _connected_or_last(self) -> Connection:
        if self._connection is None:
            raise RuntimeError("the ZooKeeper session was not started")
        return self._connection

    def _open(self) -> None:
        if not self._stopped:
            if self._connection is not None:
                self._connection.abandon()
            self._connection = self._connect(self.servers, self._session_timeout_ms, self._linked, self._fired)
            self._connection.open()

    def _linked(self, connection: Connection, link: Link, session_id: int) -> None:
        if connection is not self._connection:
            return
        try:
            self._change(link, session_id)
        finally:
            self._wake()

    def _change(self, link: Link, session_id: int) -> None:
        match link:
            case Link.CONNECTED:
                self.is_connected = True
                self.connections += 1
                same = session_id == self.session_id
                self.session_id = session_id
                missed, self._missed = self._missed, []
                if self._started:
                    self._report(SessionChange.RECONNECTED if same else SessionChange.NEW_SESSION)
                for watch in missed if same else ():
                    watch.callback(Change.MISSED, watch.path)
            case Link.SUSPENDED:
                self.is_connected = False
                self._report(SessionChange.SUSPENDED)
            case Link.EXPIRED | Link.CLOSED:
                self.is_connected = False
                self._missed.clear()
                self._lose_held_requests()
                if self.session_id != 0:
                    self.session_id = 0
                    self.generation += 1
                    self._report(SessionChange.EXPIRED)
                if link is Link.CLOSED:
                    # kazoo's thread has ended with an unexpected exception.
                    asyncio.get_running_loop().call_later(_REOPEN_AFTER_S, self._open)

    def _report(self, change: SessionChange) -> None:
        if self._started and self.on_session is not None:
            self.on_session(change)

    def _fired(self, watch: Watch, change: Change) -> None:
        if change is Change.MISSED:
            self._missed.append(watch)
        else:
            watch.callback(change, watch.path)

    def _lose_held_requests(self) -> None:
        for held in self.held_requests:
            if not held.done():
                held.set_exception(StoreLost("the ZooKeeper session is over"))

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


def _nobody() -> tuple[int, int]:
    return -1, -1
