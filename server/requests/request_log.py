"""The request log: one line for each request at level DEBUG, with the client, the request, the errors in the response and the duration.

Every response is decoded again for the line. While the log is on, no response is cached, so that every request is logged. At other
levels it costs one check of the level for each request without a cached response.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable

from klamm.protocol import messages
from klamm.protocol.errors import RemoteProtocolError

log = logging.getLogger(__name__)

MAX_CLIENT_ID_LENGTH = 100
SHOWN_CODES = 3


class RequestLine:
    """A request that is being handled; its duration counts from the construction of this object. `monotonic` returns seconds."""

    def __init__(self, host: str, listener: str, payload: bytes, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._began = monotonic()
        try:
            header = messages.decode_request_header(payload, messages.FEW_TAGS)[0]
        except RemoteProtocolError:
            self._api_key = self._version = -1
            self._what = f"request of {len(payload)} bytes from {host} on {listener}"
            return
        self._api_key, self._version = header.api_key, header.api_version
        name = messages.APIS[header.api_key].name
        self._what = f"{name} v{header.api_version} from client {shown(header.client_id)} at {host} on {listener}"

    def responded(self, frame: bytes | None) -> None:
        """Log the request with its response."""
        self._write("no response" if frame is None else self._codes(frame))

    def closed(self, reason: Exception) -> None:
        """Log that the connection is closed instead of a response."""
        self._write(f"connection closed, {reason}")

    def _write(self, outcome: str) -> None:
        log.debug("%s: %s, %.3f ms", self._what, outcome, (self._monotonic() - self._began) * 1000)

    def _codes(self, frame: bytes) -> str:
        """The error codes in a response, each with its count if there are several."""
        from klamm.protocol.exchanges.error_codes import error_counts, error_name  # few brokers log their requests
        from klamm.protocol.exchanges.exchanges import decode_response

        try:
            response, version = decode_response(self._api_key, self._version, frame[4:])
        except RemoteProtocolError as problem:
            return f"a response that cannot be decoded ({problem})"
        counted = Counter({code: count for code, count in error_counts(response, version).items() if code})
        if not counted:
            return "NONE"
        texts = [error_name(code) + (f" ×{count}" if count > 1 else "") for code, count in counted.most_common(SHOWN_CODES)]
        return ", ".join(texts) + (", …" if len(counted) > SHOWN_CODES else "")


def shown(client_id: str | None) -> str:
    """A client id for a log line: quoted, and shortened if it is long."""
    if client_id is None:
        return "without an id"
    return repr(client_id if len(client_id) <= MAX_CLIENT_ID_LENGTH else f"{client_id[:MAX_CLIENT_ID_LENGTH]}…")
