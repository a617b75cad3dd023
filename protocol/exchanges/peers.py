"""Who the client of a connection is: a broker (or controller), or a client; and which requests are those of followers.

What a connection is decides, not what it calls itself. It is that of a broker if a request on it is one that only brokers send, or that of
a follower, or if its software is that of Klamm's brokers. Until then a client id that brokers have counts, as long as all requests on it
are such as brokers send too: who requests metadata with such an id, or fetches as a consumer, is a client. A client may imitate
single requests of brokers, as `Admin.abortTransaction` does with WriteTxnMarkers: it stays a client.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from klamm.protocol import messages
from klamm.protocol.apis import APIS, BROKER_SOFTWARE, ONLY_OF_BROKERS, ApiKey, SentBy
from klamm.protocol.errors import RemoteProtocolError

BROKER_NAMES = r"broker-[0-9]+-.*|AddPartitionsToTxnManager-[0-9]+"
"""A regular expression: the client ids that brokers have. Controllers, and brokers that send requests to the controller, have the broker's
id, and a client may have a number too."""

UNNAMED = frozenset(key for key, api in APIS.items() if api.sent_by is SentBy.BOTH) | {
    ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE,
}
"""Keys of the APIs that brokers and clients have in common, which identify neither."""

REPLICA_STATE_SINCE = 15
"""Version of Fetch since which the replica id is a tagged field."""
MAX_CLIENT_IDS = 16
"""Of a connection that keeps changing its client id, this many are remembered."""
LARGE_BYTES = 64 << 10
"""A larger Fetch request is not decoded on the event loop to find its replica id."""

_OF_A_BROKER = re.compile(r"([0-9]+)|broker-([0-9]+)-.*|AddPartitionsToTxnManager-([0-9]+)")
_REPLICA_STATE = b"\1\1\x0d"
"""One tagged field, number 1, with 13 bytes: replica id, broker epoch, and that no fields follow."""


def is_broker(client_ids: Iterable[str | None], keys: Collection[int], *, follows: bool = False, software: str | None = None) -> bool:
    """Whether a connection with these client ids and requests of these APIs is that of a broker. `follows`: some request is that of a
    follower; `software` is the name in its ApiVersions request. Rules and report decide by this too.
    """
    if follows or software == BROKER_SOFTWARE or not ONLY_OF_BROKERS.isdisjoint(keys):
        return True
    is_named = any(re.fullmatch(BROKER_NAMES, each or "") is not None for each in client_ids)
    return is_named and ApiKey.FETCH not in keys and UNNAMED.issuperset(keys)


def broker_of(client_id: str | None) -> int | None:
    """The broker that uses this client id for requests to others, as controller, as follower, or as leader that verifies a transaction;
    None if it is not of a broker.
    """
    match = _OF_A_BROKER.fullmatch(client_id or "")
    return None if match is None else int(next(each for each in match.groups() if each is not None))


class Peer:
    """The client of one connection, by its client ids and the APIs of its requests."""

    __slots__ = ("_client_ids", "_follows", "_keys")

    def __init__(self) -> None:
        self._client_ids: set[str | None] = set()
        self._keys: set[int] = set()
        self._follows = False

    def requested(self, client_id: str | None, key: int, *, follows: bool = False) -> None:
        """It sent a request of this API; `follows`: as a follower."""
        self._follows = self._follows or follows
        if len(self._client_ids) < MAX_CLIENT_IDS:
            self._client_ids.add(client_id)
        self._keys.add(key)

    @property
    def is_broker(self) -> bool:
        """Whether it is a broker, as far as it has said."""
        return is_broker(self._client_ids, self._keys, follows=self._follows)


def replica_id_of(version: int, request: messages.FetchRequest) -> int:
    """The replica id in a Fetch request; -1 if it is not a follower's."""
    replica_id: int = request.replica_state.replica_id if version >= REPLICA_STATE_SINCE else request.replica_id
    return replica_id


def is_follower(payload: bytes, version: int) -> bool:
    """Whether the payload of a Fetch request is that of a follower. A large one is not decoded: only its last bytes are looked at, which
    have the replica id if it was encoded as Kafka does it.
    """
    if version >= REPLICA_STATE_SINCE and len(payload) > LARGE_BYTES:
        return payload[-16:-13] == _REPLICA_STATE and payload[-13] < 0x80
    try:
        _, offset = messages.decode_request_header(payload, messages.FEW_TAGS)
        if offset < 0:
            return False
        if version < REPLICA_STATE_SINCE:
            return int.from_bytes(payload[offset : offset + 4], "big", signed=True) >= 0
        return replica_id_of(version, messages.decode("FetchRequest", version, payload, offset)[0]) >= 0
    except RemoteProtocolError:
        return False


def other_protocol(head: bytes) -> str | None:
    """The protocol that begins with these bytes if it is a well-known one that is not Kafka's: `TLS`, `HTTP`. As lengths these bytes
    are hundreds of megabytes, above what brokers accept.
    """
    if head[:2] in (b"\x14\x03", b"\x15\x03", b"\x16\x03", b"\x17\x03"):
        return "TLS"
    return "HTTP" if head[:4] in (b"GET ", b"POST", b"HEAD", b"PUT ", b"OPTI", b"HTTP", b"CONN", b"PRI ") else None
