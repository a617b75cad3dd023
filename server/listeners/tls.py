"""TLS between a listener and a client connection: the protocol of the socket, and the transport of the connection above it.

The connection sees decrypted bytes only, so journals, taps and quotas are as on PLAINTEXT. It begins when the handshake is over. Until
then a client costs its few bytes, no task and no thread: after HANDSHAKE_S it is closed, and of more than HANDSHAKES the oldest is.

The loop's own TLS is not used, because it shows a connection only after the handshake, does not say why one failed, and keeps the
context of the start, where key stores may change.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Any, cast

from klamm.seams.clock import Clock, Timer

HANDSHAKE_S = 30.0
"""Time for the handshake. Kafka has no limit but `connections.max.idle.ms`."""

HANDSHAKES = 1000
"""Handshakes of a listener that may be in progress. With one more the oldest is closed."""

_READ_BYTES = 256 << 10


class Handshakes:
    """The handshakes of one listener that are in progress. `failed` is called with the peer and the reason of one that fails."""

    def __init__(self, failed: Callable[[str, str], None]) -> None:
        self.failed = failed
        self._open: dict[TlsProtocol, None] = {}

    def __len__(self) -> int:
        return len(self._open)

    def begin(self, one: TlsProtocol) -> None:
        """A client was accepted."""
        if len(self._open) >= HANDSHAKES:
            next(iter(self._open)).refuse(f"more than {HANDSHAKES} TLS handshakes are in progress, and this is the oldest")
        self._open[one] = None

    def end(self, one: TlsProtocol) -> None:
        """The handshake is over, or has failed."""
        self._open.pop(one, None)

    def abort(self) -> None:
        """Cut all at once."""
        for one in list(self._open):
            one.abort()


class TlsTransport(asyncio.Transport):
    """The transport that a connection above TLS writes to."""

    def __init__(self, tls: TlsProtocol, raw: asyncio.Transport) -> None:
        super().__init__()
        self._tls = tls
        self._raw = raw

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """As of the socket; also `peercert`, the certificate of the client in DER, and `cipher`."""
        if name == "peercert":
            return self._tls.session.getpeercert(binary_form=True)
        if name == "cipher":
            return self._tls.session.cipher()
        return self._raw.get_extra_info(name, default)

    def is_closing(self) -> bool:
        return self._raw.is_closing()

    def close(self) -> None:
        self._tls.close()

    def abort(self) -> None:
        self._raw.abort()

    def is_reading(self) -> bool:
        return self._raw.is_reading()

    def pause_reading(self) -> None:
        self._raw.pause_reading()

    def resume_reading(self) -> None:
        self._raw.resume_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._raw.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return self._raw.get_write_buffer_size()

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        self._tls.write(bytes(data))

    def can_write_eof(self) -> bool:
        return False


class TlsProtocol(asyncio.Protocol):
    """The protocol of one accepted socket. `inner` is the connection above it."""

    def __init__(self, context: ssl.SSLContext, inner: asyncio.Protocol, clock: Clock, handshakes: Handshakes) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.session = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._inner = inner
        self._clock = clock
        self._handshakes = handshakes
        self._raw: asyncio.Transport
        self._timer: Timer | None = None
        self._is_shaken = False
        self._is_over = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._raw = cast(asyncio.Transport, transport)
        self._handshakes.begin(self)
        self._timer = self._clock.call_later(HANDSHAKE_S, self.refuse, f"the TLS handshake took longer than {HANDSHAKE_S:g} s")

    def data_received(self, data: bytes) -> None:
        if self._is_over:
            return
        self._incoming.write(data)
        if not self._is_shaken:
            self._shake_hands()
        if self._is_shaken and not self._is_over:
            self._read()

    def eof_received(self) -> bool:
        self._incoming.write_eof()
        return self._stays_open()

    def pause_writing(self) -> None:
        if self._is_shaken:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        if self._is_shaken:
            self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        was_over, self._is_over = self._is_over, True
        if self._is_shaken:
            self._inner.connection_lost(exc)
            return
        self._end_handshake()
        if not was_over:
            self._handshakes.failed(self._peer(), "the client closed the connection during the TLS handshake")

    def write(self, data: bytes) -> None:
        """Encrypt and send."""
        if self._is_over:
            return
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[self.session.write(rest) :]
        except ssl.SSLError as problem:
            self._break(problem)
            return
        self._raw.write(self._outgoing.read())

    def close(self) -> None:
        """Say good-bye, and close after all bytes have been sent."""
        if not self._is_over:
            self._is_over = True
            try:
                self.session.unwrap()
            except ssl.SSLError:  # its own good-bye is not waited for
                pass
            self._flush()
        self._raw.close()

    def _shake_hands(self) -> None:
        try:
            self.session.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
        except ssl.SSLError as problem:
            self._flush()  # the alert
            self.refuse(_reason(problem))
        else:
            self._flush()
            self._end_handshake()
            self._is_shaken = True
            self._inner.connection_made(TlsTransport(self, self._raw))

    def _read(self) -> None:
        """Give the decrypted bytes to the connection."""
        pieces: list[bytes] = []
        try:
            while piece := self.session.read(_READ_BYTES):
                pieces.append(piece)
            is_end = True
        except ssl.SSLWantReadError:
            is_end = False
        except ssl.SSLZeroReturnError:
            is_end = True
        except ssl.SSLError as problem:
            self._deliver(pieces)
            self._break(problem)
            return
        self._flush()  # answers to changes of keys
        self._deliver(pieces)
        if is_end and not self._stays_open():
            self._raw.close()

    def _stays_open(self) -> bool:
        """Whether the connection has requests of a client that sends nothing more."""
        return self._is_shaken and not self._is_over and bool(self._inner.eof_received())

    def _deliver(self, pieces: list[bytes]) -> None:
        if pieces:
            self._inner.data_received(pieces[0] if len(pieces) == 1 else b"".join(pieces))

    def _flush(self) -> None:
        if self._outgoing.pending:
            self._raw.write(self._outgoing.read())

    def _break(self, problem: ssl.SSLError) -> None:
        self._is_over = True
        self._flush()
        self._raw.close()

    def refuse(self, reason: str) -> None:
        """End a handshake."""
        if not self._is_over and not self._is_shaken:
            self._is_over = True
            self._end_handshake()
            self._handshakes.failed(self._peer(), reason)
            self._raw.close()

    def abort(self) -> None:
        """Cut the connection at once."""
        self._is_over = True
        self._end_handshake()
        self._raw.abort()

    def _end_handshake(self) -> None:
        self._handshakes.end(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _peer(self) -> str:
        address = self._raw.get_extra_info("peername") or ("?", 0)
        return f"{address[0].removeprefix('::ffff:')}:{address[1]}"


_PLAIN = {"HTTP_REQUEST": "; the client speaks HTTP", "WRONG_VERSION_NUMBER": "; the client does not speak TLS: is it set to PLAINTEXT?"}


def _reason(problem: ssl.SSLError) -> str:
    """Why a handshake failed, in one line."""
    reason = problem.reason or str(problem)
    if isinstance(problem, ssl.SSLCertVerificationError):
        return f"the TLS handshake failed: {problem.verify_message}"
    return f"the TLS handshake failed: {reason.lower().replace('_', ' ')}{_PLAIN.get(reason, '')}"
