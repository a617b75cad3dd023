"""An asyncio interface to kazoo's client: requests in, futures out. The threads share only an inbox.

kazoo runs one thread for the connection. That thread never touches asyncio state. Responses, watch events and state changes go through one
inbox, in the order in which they were received, and one wake-up of the event loop empties it completely. Only a limited number of requests
is passed to kazoo at a time, because it wakes its thread through a socket pair with a small buffer; the others wait here. Requests without
a connection fail at once. The first such failure reports the lost connection, because kazoo reports the state last. If kazoo loses a
request while its session ends, the request fails from here.
"""

from __future__ import annotations

import asyncio
import logging
import select
import socket
import ssl
import struct
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss, KazooException, ZookeeperError
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.protocol.connection import ConnectionDropped, RWServerAvailable
from kazoo.protocol.states import Callback, KazooState, KeeperState

from klamm.zk.session.connection import Change, Link, OnLink, OnWatch, Watch
from klamm.zk.session.reachability import accepts
from klamm.zk.session.requests import BadPath, ConnectionLost, MultiFailed, SessionExpired, TooLarge, error, size_of

log = logging.getLogger("klamm.zk.session.connection")

# kazoo logs every attempt to connect. The session logs what is important.
_kazoo_log = logging.getLogger("klamm.zk.session.connection.kazoo")
_kazoo_log.setLevel(logging.ERROR)

# ZooKeeper closes a connection that sends a larger request (its jute.maxbuffer).
MAX_REQUEST_BYTES = 1_048_575

_WINDOW = 64
_TYPE_AND_STATE_BYTES = 8
"""What a watch event has in front of its path."""
_NOWHERE = 1
"""A port at which nothing listens."""
_END_LIMIT_S = 2.0
# Reconnect without limit, at least once per second.
_RETRY = {"max_tries": -1, "delay": 0.05, "backoff": 2, "max_jitter": 0.2, "max_delay": 1.0}


class _Handler(SequentialThreadingHandler):
    """kazoo's thread handler without the two callback threads, because our callbacks only fill the inbox. It also waits with one system
    call instead of five. With a TLS context its connections have TLS.
    """

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        super().__init__()
        self.tls = tls
        self.goes = threading.Event()
        """Not set while the connection is paused: its thread neither sends nor receives."""
        self.goes.set()

    def start(self) -> None:
        self._running = True

    def stop(self) -> None:
        self._running = False

    def spawn(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> threading.Thread:
        thread = threading.Thread(target=self._run, args=(func, *args), kwargs=kwargs, name="zookeeper", daemon=True)
        thread.start()
        return thread

    def _run(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        try:
            func(*args, **kwargs)
        except Exception as problem:  # noqa: BLE001 a bad response can cause any exception; the session opens a new connection
            log.error("The connection to ZooKeeper failed with an unexpected exception: %r", problem)

    def create_connection(self, address: tuple[str, int], hostname: str, timeout: float, **_: object) -> socket.socket:
        """Connect to a server. kazoo would make a TLS context of its own, from files."""
        plain = socket.create_connection(address, timeout)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.tls is None:
            return plain
        try:
            return self.tls.wrap_socket(plain, server_hostname=hostname)
        except (OSError, ValueError):
            plain.close()
            raise

    def dispatch_callback(self, callback: Callback) -> None:
        callback.func(*callback.args)

    def select(
        self, readers: Sequence[Any], writers: Sequence[Any], _: Sequence[Any], timeout: float | None = None
    ) -> tuple[list[Any], list[Any], list[Any]]:
        decrypted = [reader for reader in readers if isinstance(reader, ssl.SSLSocket) and reader.pending()]
        if decrypted and self.goes.is_set():
            return decrypted, [], []
        poll = select.poll()
        for reader in readers:
            poll.register(reader, select.POLLIN)
        for writer in writers:
            poll.register(writer, select.POLLOUT)
        self.goes.wait()
        found = poll.poll(None if timeout is None else max(timeout, 0) * 1000)
        if not self.goes.is_set():
            self.goes.wait()
            found = poll.poll(0)
        ready = {number for number, _ in found}
        return [r for r in readers if r.fileno() in ready], [w for w in writers if w.fileno() in ready], []


class _Client(KazooClient):
    """kazoo's client, which also reports the end of its thread, because kazoo's listeners do not always get it. It takes watch events of
    any path. What cannot be encoded or decoded costs the connection, not the thread and with it the session.
    """

    on_closed: Callable[[], None]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        connection = self._connection
        read = connection._read_watch_event
        connection._read_watch_event = lambda buffer, offset: read(_in_utf8(buffer, offset + _TYPE_AND_STATE_BYTES), offset)
        connection._read_socket = _losing_the_connection(connection._read_socket)
        connection._send_request = _losing_the_connection(connection._send_request, self._fail_next)

    def _fail_next(self, problem: Exception) -> None:
        """The request that is to be sent next cannot be encoded: its caller gets the exception."""
        if self._queue:
            self._queue[0][1].set_exception(problem)

    def _session_callback(self, state: str) -> None:
        was_open = self._state != KeeperState.CLOSED
        if state == KeeperState.CONNECTED:
            self._drop_stale_wakeups()
        super()._session_callback(state)
        if state == KeeperState.CLOSED and was_open:
            self.on_closed()

    def _drop_stale_wakeups(self) -> None:
        """Empty the socket pair of the bytes that failed requests left in it. If it is full, waking the thread would block."""
        ours, theirs = self._connection._read_sock, self._connection._write_sock
        with suppress(BlockingIOError):
            while ours.recv(4096, socket.MSG_DONTWAIT):
                pass
        theirs.send(bytes(len(self._queue)))


def _losing_the_connection(step: Callable[..., Any], on_fault: Callable[[Exception], None] = lambda _: None) -> Callable[..., Any]:
    """A step of kazoo's thread that loses the connection for each exception that would end the thread, and gives it to `on_fault`.
    Requests in progress are then repeated.
    """

    def take(*args: Any) -> Any:
        try:
            return step(*args)
        except (KazooException, KazooTimeoutError, RWServerAvailable, OSError):
            raise  # kazoo handles them
        except Exception as problem:
            log.exception("what ZooKeeper sent or is to get cannot be decoded or encoded; the connection is opened again")
            on_fault(problem)
            raise ConnectionDropped(repr(problem)) from problem

    return take


def _in_utf8(event: bytes, offset: int) -> bytes:
    """A watch event whose path, which begins with its size at `offset`, is in UTF-8. ZooKeeper writes a character beyond the basic plane as
    two surrogates of three bytes each (CESU-8), and kazoo's thread would die of them.
    """
    path = event[offset + 4 :]
    try:
        path.decode()
    except UnicodeDecodeError:
        units = path.decode("utf-8", "surrogatepass").encode("utf-16", "surrogatepass")
        path = units.decode("utf-16", "replace").encode()
        return event[:offset] + struct.pack(">i", len(path)) + path
    return event


class _Reply:
    """kazoo calls this with a response, in its own thread, or in ours if it refuses the request."""

    __slots__ = ("_connection", "future")

    def __init__(self, connection: KazooConnection, future: asyncio.Future[Any]) -> None:
        self._connection = connection
        self.future = future

    def set(self, value: Any) -> None:
        self._connection._post(self._connection._replied, self, value)

    def set_exception(self, exception: Exception) -> None:
        self._connection._post(self._connection._replied, self, exception)


class KazooConnection:
    """One kazoo client, from `open` to `close`. Callbacks run in the event loop that opened it."""

    def __init__(
        self,
        hosts: str,
        session_timeout_ms: int,
        on_link: OnLink,
        on_watch: OnWatch,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`on_link` gets the state, and the session id if the state is CONNECTED. `on_watch` gets every watch that fired. `tls` is the
        context of connections, None for plain ones.
        """
        self._handler = _Handler(tls)
        self._is_paused = False
        self._client = _Client(
            hosts, timeout=session_timeout_ms / 1000, handler=self._handler, connection_retry=_RETRY, logger=_kazoo_log
        )
        self._hosts = self._client.hosts
        self._client.add_listener(self._changed)
        self._client.on_closed = lambda: self._post(self._linked, Link.CLOSED, 0)
        self._on_link = on_link
        self._on_watch = on_watch
        self._loop = asyncio.get_running_loop()
        self._inbox: deque[tuple[Callable[[Any, Any], None], Any, Any]] = deque()
        self._awake = False
        self._closing = False
        self._severed = (0, b"")
        self._connected = False
        self._in_flight: set[_Reply] = set()
        self._waiting: deque[tuple[Any, asyncio.Future[Any], bool]] = deque()
        self._window = _WINDOW
        """Number of requests that may be in flight; 1 while one is sent alone."""

    def open(self) -> None:
        """Begin to connect, and reconnect whenever the connection is lost."""
        self._client.start_async()

    async def close(self, limit_s: float) -> None:
        """End the session, over a connection of its own if there is none at present. If no server responds, the session expires later."""
        self._closing = True
        self.resume()
        self._severed = self._client._session_id, self._client._session_passwd
        is_away = bool(self._client._session_id) and not self._connected and not self._is_cut
        done = self._loop.create_future()
        # kazoo's `stop` blocks until the server responds or a timeout is over, so it runs in a thread that nobody joins.
        threading.Thread(target=self._close, args=(done,), name="zookeeper-close", daemon=True).start()
        try:
            await asyncio.wait_for(done, limit_s)
        except TimeoutError:
            log.warning("ZooKeeper did not confirm the end of session 0x%x in time", self._client._session_id or 0)
        self._fail_all(SessionExpired)
        if is_away and any(await asyncio.gather(*(accepts(host, port, limit_s) for host, port in self._hosts))):
            with suppress(TimeoutError):
                await self.end_severed(_END_LIMIT_S)

    def abandon(self) -> None:
        """Release the resources of a connection whose thread has ended."""
        self._closing = True
        self.resume()
        threading.Thread(target=self._close, args=(self._loop.create_future(),), name="zookeeper-close", daemon=True).start()

    def sever(self) -> None:
        """Close the connection as if the process had died: the server keeps the session until it expires."""
        self._closing = True
        self.resume()
        client = self._client
        self._severed = client._session_id, client._session_passwd
        client._stopped.set()  # kazoo's thread ends when it sees the lost connection, and sends nothing to the server
        sock = client._connection._socket
        if sock is not None:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        threading.Thread(target=self._give_back, name="zookeeper-close", daemon=True).start()
        self._fail_all(SessionExpired)

    def _give_back(self) -> None:
        self._client._connection.connection_stopped.wait()
        self._client.close()

    async def end_severed(self, limit_s: float) -> None:
        """End the session after `sever`, unless it has expired. Raises TimeoutError if no server responds."""
        await asyncio.to_thread(self._end_severed, limit_s)

    def pause(self) -> None:
        """Send and receive nothing until `resume`."""
        self._is_paused = True
        self._handler.goes.clear()

    def resume(self) -> None:
        """The opposite of `pause`."""
        self._is_paused = False
        self._handler.goes.set()
        self._loop.call_soon(self._empty_inbox)

    def cut(self) -> None:
        """Lose the connection and do not reconnect until `restore`. The server keeps the session until it expires."""
        self._client.hosts = [("127.0.0.1", _NOWHERE)]
        sock = self._client._connection._socket
        if sock is not None:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    @property
    def _is_cut(self) -> bool:
        return self._client.hosts is not self._hosts

    def restore(self) -> None:
        """Reconnect to the servers again."""
        self._client.hosts = self._hosts

    async def end_session(self, limit_s: float) -> None:
        """End the session from outside. Raises TimeoutError if no server responds.

        Meanwhile this connection is cut: if it connected again before the end, the session would move back to it and not end.
        """
        self._severed = self._client._session_id, self._client._session_passwd
        was_cut = self._is_cut
        self.cut()
        try:
            await asyncio.to_thread(self._end_severed, limit_s)
        finally:
            if not was_cut:
                self.restore()

    def _end_severed(self, limit_s: float) -> None:
        servers = ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self._hosts)
        again = KazooClient(servers, limit_s, self._severed, _Handler(self._handler.tls), logger=_kazoo_log)
        try:
            again.start(limit_s)
        except again.handler.timeout_exception:
            raise TimeoutError(f"no ZooKeeper responds at {servers} within {limit_s:g} s") from None
        finally:
            again.stop()
            again.close()

    def _close(self, done: asyncio.Future[None]) -> None:
        try:
            self._client.stop()
            self._client.close()
        finally:
            self._post(lambda future, _: None if future.done() else future.set_result(None), done, None)

    @property
    def data_watchers(self) -> defaultdict[str, set[Any]]:
        """kazoo's table of watchers by full path. It may only be used in kazoo's thread."""
        table: defaultdict[str, set[Any]] = self._client._data_watchers
        return table

    def submit(self, request: Any, *, alone: bool = False) -> asyncio.Future[Any]:
        """Send a request. The future gets its response or a ZkError. Requests are sent in the order of the calls.

        A request that is sent `alone` waits until all earlier ones have their responses, and later ones wait for its response.
        """
        future = self._loop.create_future()
        try:
            if not self._connected:
                future.set_exception(ConnectionLost())
            elif size_of(request) > MAX_REQUEST_BYTES:
                future.set_exception(TooLarge())
            else:
                self._waiting.append((request, future, alone))
                self._send_waiting()
        except BadPath as problem:
            future.set_exception(problem)
        return future

    def _send_waiting(self) -> None:
        """Send what may be sent now."""
        waiting, in_flight = self._waiting, self._in_flight
        while waiting and self._connected and len(in_flight) < self._window:
            request, future, alone = waiting[0]
            if alone and in_flight:
                return
            self._window = 1 if alone else _WINDOW
            waiting.popleft()
            self._send(request, future)

    def _send(self, request: Any, future: asyncio.Future[Any]) -> None:
        reply = _Reply(self, future)
        self._in_flight.add(reply)
        self._client._call(request, reply)

    def _post(self, action: Callable[[Any, Any], None], first: Any, second: Any) -> None:
        """Put an action into the inbox. Can be called from any thread."""
        self._inbox.append((action, first, second))
        if not self._awake:
            self._awake = True
            try:
                self._loop.call_soon_threadsafe(self._empty_inbox)
            except RuntimeError:
                log.debug("The event loop is closed; dropping events of a ZooKeeper session")

    def _empty_inbox(self) -> None:
        self._awake = False
        if self._is_paused:
            return
        try:
            while self._inbox and not self._is_paused:
                action, first, second = self._inbox.popleft()
                action(first, second)
        finally:
            # If a callback raises, the others must still run.
            if self._inbox and not self._awake:
                self._awake = True
                self._loop.call_soon(self._empty_inbox)

    def _replied(self, reply: _Reply, value: Any) -> None:
        if reply not in self._in_flight:
            return
        self._in_flight.discard(reply)
        if isinstance(value, ConnectionLoss):
            self._linked(Link.SUSPENDED, 0)
        if not reply.future.done():
            if isinstance(value, MultiFailed):
                reply.future.set_exception(value)
            elif isinstance(value, ConnectionLoss):
                reply.future.set_exception(ConnectionLost(was_sent=True))
            elif isinstance(value, Exception):
                code = value.code if isinstance(value, ZookeeperError) else None
                reply.future.set_exception(value if code is None else error(code))
            else:
                reply.future.set_result(value)
        self._send_waiting()

    def report(self, watch: Watch, change: Change) -> None:
        self._post(self._fired, watch, change)

    def _fired(self, watch: Watch, change: Change) -> None:
        if not self._closing:
            self._on_watch(watch, change)

    def _changed(self, state: str) -> None:
        """Called by kazoo, in its thread."""
        if state == KazooState.CONNECTED:
            self._post(self._linked, Link.CONNECTED, self._client._session_id)
        elif state == KazooState.SUSPENDED:
            self._post(self._linked, Link.SUSPENDED, 0)
        elif self._client._state == KeeperState.EXPIRED_SESSION:
            self._post(self._linked, Link.EXPIRED, 0)

    def _linked(self, link: Link, session_id: int) -> None:
        if link is Link.SUSPENDED and not self._connected:
            return
        self._connected = link is Link.CONNECTED
        if link is Link.SUSPENDED:
            # kazoo itself fails the requests that were passed to it, before it reports the state.
            while self._waiting:
                _, future, _ = self._waiting.popleft()
                if not future.done():
                    future.set_exception(ConnectionLost())
        elif link in (Link.EXPIRED, Link.CLOSED):
            self._fail_all(SessionExpired)
        if not self._closing:
            self._on_link(self, link, session_id)

    def _fail_all(self, kind: type[SessionExpired]) -> None:
        futures = [reply.future for reply in self._in_flight] + [future for _, future, _ in self._waiting]
        self._in_flight.clear()
        self._waiting.clear()
        for future in futures:
            if not future.done():
                future.set_exception(kind())
