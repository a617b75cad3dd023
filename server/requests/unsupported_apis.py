"""APIs of Apache Kafka that Klamm does not support yet, and their line in the log: one for each API and client.

A request for such an API closes the connection, like a request for any API that a broker does not expose. Most clients send it again; that
is not logged again.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from klamm.protocol import messages
from klamm.protocol.errors import RemoteProtocolError
from klamm.server.requests.request_log import shown

log = logging.getLogger(__name__)

MAX_CLIENTS = 1000
"""Remember this many pairs of API and client. All later clients count as one."""

NOT_OFFERED: Mapping[str, str] = {
    "Envelope": "forwarded requests",
}
"""API name → the feature that it belongs to, for the log."""


class NotOffered(RemoteProtocolError):
    """A request for an API that this broker does not offer. It has been logged already."""


class NotOfferedLog:
    """Logs requests for APIs that this broker does not offer, once for each API and client."""

    def __init__(self) -> None:
        self._written: set[tuple[int, str | None]] = set()

    def write(self, api_key: int, client_id: str | None, host: str) -> None:
        """Write one line, unless there was one for this API and client."""
        client = client_id if len(self._written) < MAX_CLIENTS else None
        if (api_key, client) in self._written or (api_key, client_id) in self._written:
            return
        self._written.add((api_key, client))
        name = messages.APIS[api_key].name
        purpose = f" ({NOT_OFFERED[name]})" if name in NOT_OFFERED else ""
        log.warning("client %s at %s sent %s%s, which Klamm does not support yet", shown(client_id), host, name, purpose)
