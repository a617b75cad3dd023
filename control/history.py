"""The last requests and responses of a cluster, in memory: bounded in number and bytes, and decoded when somebody asks.

It keeps what brokers received on their listeners, from clients, brokers and controllers, and what they responded. Secrets in them are
masked when they are read (`protocol/exchanges/exchanges.py`): an `Exchange` never has one.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from itertools import chain
from typing import Any

from klamm.configs.tables.public_configs import public_configs
from klamm.control.json_object import JsonObject
from klamm.control.refusal import is_number
from klamm.protocol import messages
from klamm.protocol.apis import APIS, ApiKey
from klamm.protocol.errors import RemoteProtocolError, did_you_mean
from klamm.protocol.exchanges.connections import Cause, ConnectionInfo, ConnectionKind, ConnectionSink, NoSink
from klamm.protocol.exchanges.error_codes import error_name, first_error
from klamm.protocol.exchanges.exchanges import Exchanges, ExchangeSink, decode_request, decode_response
from klamm.protocol.exchanges.peers import Peer, is_follower
from klamm.protocol.nouns import ZERO_UUID, id_text
from klamm.protocol.records.batch import each_header
from klamm.protocol.schema import Struct
from klamm.server.faults import message_parts
from klamm.server.faults.fault import is_like

MAX_REQUESTS = 20_000
MAX_BYTES = 64 << 20
MAX_ERRORS = 2_000
MAX_ERROR_BYTES = 4 << 20
"""Bounds of the requests with an error that are kept when they are too old for the others."""
LARGEST = 1 << 20
"""Of a larger frame only the head of the request is kept."""
ANY_ERROR = "any"
"""As a filter: requests whose response has an error."""
CLIENT_ID = "klamm-control"
"""Requests of the control API itself have this client id. They are not requests of clients."""


class Exchange:
    """A request and, when there is one, its response. `number` counts all requests of the cluster from 1."""

    __slots__ = (
        "_error", "api_key", "at_ms", "broker", "client_id", "correlation_id", "is_forgotten", "number", "peer", "request", "response",
        "sender", "version",
    )

    def __init__(self, number: int, at_ms: int, broker: int, peer: str, payload: bytes, sender: Peer | None = None) -> None:
        """`peer` is host:port of the client, and `sender` what its connection says about it. Raises RemoteProtocolError for a payload
        without a request header.
        """
        self.number = number
        self.at_ms = at_ms
        self.broker = broker
        self.peer = peer
        header, _ = messages.decode_request_header(payload, messages.FEW_TAGS)
        self.api_key = header.api_key
        self.version = header.api_version
        self.client_id = header.client_id
        self.correlation_id = header.correlation_id
        self.sender = Peer() if sender is None else sender
        self.sender.requested(
            self.client_id, self.api_key, follows=self.api_key == ApiKey.FETCH and is_follower(payload, self.version)
        )
        self.request = payload
        self.response: bytes | None = None
        self.is_forgotten = False
        self._error: str | None = ""
        """What `error` found; "" before there was a response to look at."""

    @property
    def api(self) -> str:
        api = APIS.get(self.api_key)
        return f"API {self.api_key}" if api is None else api.name

    @property
    def size(self) -> int:
        return len(self.request) + (0 if self.response is None else len(self.response))

    def decoded_request(self) -> Any | None:
        """The request as a message; None if it cannot be decoded or was not kept."""
        try:
            return decode_request(self.request)
        except Exception:  # noqa: BLE001 the bytes of a client may be anything
            return None

    def decoded_response(self) -> Any | None:
        """The response as a message; None without one."""
        if self.response is None:
            return None
        try:
            return decode_response(self.api_key, self.version, self.response)[0]
        except Exception:  # noqa: BLE001 a fault may have changed its bytes
            return None

    @property
    def error(self) -> str | None:
        """The name of the first error in the response, None without one. It is looked for once."""
        if self.response is None:
            return None
        if self._error == "":
            self._error = error_of(self.decoded_response())
        return self._error

    @property
    def is_of_broker(self) -> bool:
        """Whether it came from a broker, a controller or the control API."""
        return self.client_id == CLIENT_ID or self.sender.is_broker


class Heard(ExchangeSink):
    """What was heard of one connection that a listener accepted: gets its bytes at once, and its requests and responses when the history is
    read.
    """

    __slots__ = ("_history", "at_ms", "exchanges", "info", "sender")

    def __init__(self, history: History, info: ConnectionInfo) -> None:
        self._history = history
        self.info = info
        self.at_ms = 0
        """When the bytes that are read came."""
        self.sender = Peer()
        self.exchanges = Exchanges(
            self, has_sasl=info.has_sasl, public=public_configs(), request_keep=_keep_largest, response_keep=_keep_largest
        )

    def received(self, data: bytes) -> None:
        self._history.heard(self, True, data)

    def sent(self, data: bytes, cause: Cause | None = None) -> None:
        self._history.heard(self, False, data)

    def authenticated(self, principal: str, mechanism: str) -> None:
        """Its next requests are no tokens. The history does not show principals."""
        self._history.heard(self, None, b"")

    def closed(self, by: str, reason: str | None = None) -> None:
        """What came before is kept."""

    def request(
        self, frame: bytes, size: int, kind: int, correlation_id: int, has_response: bool, is_masked: bool, cause: object
    ) -> Exchange | None:
        return self._history.begin(self, frame[4 : 4 + LARGEST])

    def response(self, state: Exchange | None, frame: bytes, size: int, special: int) -> None:
        if state is not None:
            self._history.end(state, frame[4 : 4 + LARGEST])

    def token(self, size: int, is_request: bool) -> None:
        """A token is not shown."""
        self._history.passed(is_request)

    def stray(self, data: bytes, is_request: bool) -> None:
        """What is no exchange is not shown."""
        self._history.passed(is_request)


def _keep_largest(head: bytes) -> int:
    return LARGEST


class History:
    """The last exchanges: a tap of bytes (`server/net/tap.py`) of all brokers.

    While nobody asks, chunks of bytes are kept as they are; this costs a request next to nothing. They are read as requests and responses
    when somebody asks, and skipped when they are too old.
    """

    def __init__(self, topic_id: Callable[[str], bytes] | None = None) -> None:
        """`topic_id` gives the id of a topic, zero if there is none."""
        self.topic_id = topic_id
        self.on_chunk: Callable[[], None] | None = None
        """Called when something was received or sent."""
        self._total = 0
        self._kept: deque[Exchange] = deque()
        self._bytes = 0
        self._errors: deque[Exchange] = deque()
        """Older ones, with errors."""
        self._error_bytes = 0
        self._chunks: deque[tuple[Heard, bool | None, int, bytes]] = deque()
        self._chunk_bytes = 0

    @property
    def total(self) -> int:
        """Requests since the start."""
        self._read()
        return self._total

    def take(self, exchanges: Iterable[Exchange]) -> None:
        """Have these exchanges of another history too; one with a number that is here replaces it."""
        taken = {exchange.number: exchange for exchange in exchanges}
        kept = {exchange.number: exchange for exchange in self._kept} | taken
        self._errors = deque(exchange for exchange in self._errors if exchange.number not in taken)
        self._error_bytes = sum(exchange.size for exchange in self._errors)
        self._kept = deque(kept[number] for number in sorted(kept))
        self._bytes = sum(exchange.size for exchange in self._kept)
        self._bound()

    def connection(self, info: ConnectionInfo) -> ConnectionSink:
        """The sink of a new connection."""
        return Heard(self, info) if info.kind is ConnectionKind.ACCEPTED else NoSink()

    def heard(self, connection: Heard, is_received: bool | None, data: bytes) -> None:
        """Bytes were received or sent. None: the client has authenticated."""
        self._chunks.append((connection, is_received, time.time_ns(), data))
        self._chunk_bytes += len(data)
        if self._chunk_bytes > MAX_BYTES:
            self._skip()
        if self.on_chunk is not None:
            self.on_chunk()

    def _skip(self) -> None:
        """Forget the oldest chunks, and with them all exchanges before. Errors in chunks that nobody has read are not found."""
        older = list(self._kept)
        self._kept.clear()
        self._bytes = 0
        for exchange in older[-MAX_ERRORS:]:
            self._keep_error(exchange)
        while self._chunk_bytes > MAX_BYTES * 3 // 4:
            connection, is_received, _, data = self._chunks.popleft()
            self._chunk_bytes -= len(data)
            if is_received is None:
                connection.exchanges.guard.authenticated()
            elif is_received:
                self._total += connection.exchanges.requests.count(data)
                connection.exchanges.waiting.clear()
            else:
                for _ in range(min(connection.exchanges.responses.count(data), len(connection.exchanges.waiting))):
                    connection.exchanges.waiting.popleft()

    def _read(self) -> None:
        """Read all chunks as exchanges."""
        chunks, self._chunks, self._chunk_bytes = self._chunks, deque(), 0
        for connection, is_received, at_ns, data in chunks:
            connection.at_ms = at_ns // 1_000_000
            if is_received is None:
                connection.exchanges.guard.authenticated()
            elif is_received:
                connection.exchanges.received(data)
            else:
                connection.exchanges.sent(data)
        self._bound()

    def _bound(self) -> None:
        while len(self._kept) > MAX_REQUESTS or self._bytes > MAX_BYTES:
            oldest = self._kept.popleft()
            self._bytes -= oldest.size
            oldest.is_forgotten = True
            self._keep_error(oldest)

    def _keep_error(self, oldest: Exchange) -> None:
        """Keep a request that is forgotten among the others if its response has an error: successes do not push it out."""
        if oldest.error is None:
            return
        self._errors.append(oldest)
        self._error_bytes += oldest.size
        while len(self._errors) > MAX_ERRORS or self._error_bytes > MAX_ERROR_BYTES:
            self._error_bytes -= self._errors.popleft().size

    def passed(self, is_request: bool) -> None:
        """Something is not kept; a request counts all the same."""
        self._total += is_request

    def begin(self, connection: Heard, payload: bytes) -> Exchange | None:
        """Keep a request; None if its header cannot be read."""
        self._total += 1
        info = connection.info
        try:
            exchange = Exchange(self._total, connection.at_ms, info.broker_id, info.peer, payload, connection.sender)
        except RemoteProtocolError:
            return None
        self._kept.append(exchange)
        self._bytes += len(payload)
        return exchange

    def end(self, exchange: Exchange, payload: bytes) -> None:
        """Keep the response to this request."""
        exchange.response = payload
        if not exchange.is_forgotten:
            self._bytes += len(payload)

    def newest(
        self,
        *,
        api: str | None = None,
        client_id: str | None = None,
        broker: int | None = None,
        topic: str | None = None,
        group: str | None = None,
        error: str | None = None,
        clients_only: bool = False,
        after: int = 0,
        since_ms: int = 0,
    ) -> Iterator[Exchange]:
        """Exchanges that match, newest first. `after`: only those with a higher number; `since_ms`: none received before. `error` is the
        name of an error or ANY_ERROR. Behind the others come older ones with errors.
        """
        key = None if api is None else api_named(api)
        self._read()
        for exchange in chain(reversed(self._kept), reversed(self._errors)):
            if exchange.number <= after or exchange.at_ms < since_ms:
                return
            if key is not None and exchange.api_key != key:
                continue
            if client_id is not None and not is_like(exchange.client_id or "", client_id):
                continue
            if broker is not None and exchange.broker != broker:
                continue
            if clients_only and exchange.is_of_broker:
                continue
            if topic is not None and not self._is_about(exchange, {"topic": topic}):
                continue
            if group is not None and not self._is_about(exchange, {"group": group}):
                continue
            if error is not None and (exchange.error is None if error == ANY_ERROR else exchange.error != error):
                continue
            yield exchange

    def _is_about(self, exchange: Exchange, values: JsonObject) -> bool:
        topic_id = ZERO_UUID if self.topic_id is None or "topic" not in values else self.topic_id(values["topic"])
        if exchange.api_key == ApiKey.FIND_COORDINATOR and "group" in values:
            values = {"coordinator_key": values["group"]}
        wanted = message_parts.Wanted(values, topic_id)
        request = exchange.decoded_request()
        if request is not None and message_parts.split(request, exchange.version, wanted)[0] is not None:
            return True
        response = exchange.decoded_response()
        return response is not None and message_parts.split(response, exchange.version, wanted)[0] is not None


def api_named(name: str) -> int:
    """The key of an API, given by its name or its number. Raises ValueError with a suggestion."""
    if is_number(name):
        if int(name) not in APIS:
            raise ValueError(f"there is no API with key {name}")
        return int(name)
    for key, api in APIS.items():
        if api.name == name:
            return key
    raise ValueError(f"there is no API {name!r}{did_you_mean(name, (api.name for api in APIS.values()))}")


def as_json(exchange: Exchange) -> JsonObject:
    """An exchange as the control API shows it."""
    request, response = exchange.decoded_request(), exchange.decoded_response()
    return {
        "number": exchange.number,
        "at": time_text(exchange.at_ms),
        "broker": exchange.broker,
        "client_id": exchange.client_id,
        "peer": exchange.peer,
        "api": exchange.api,
        "version": exchange.version,
        "correlation_id": exchange.correlation_id,
        "request": None if request is None else message_json(request, exchange.version),
        "response": None if response is None else message_json(response, exchange.version),
        "error": error_of(response),
    }


def time_text(ms: int) -> str:
    """Milliseconds since 1970 as `2026-11-25T22:05:11.123Z`."""
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{ms % 1000:03}Z"


def at_ms_of(text: str) -> int:
    """The time that `time_text` wrote, in ms since 1970."""
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def error_of(response: Any | None) -> str | None:
    """The name of the first error in a response, None if it has none."""
    code = 0 if response is None else first_error(response)
    return error_name(code) if code else None


def message_json(message: Any, version: int) -> JsonObject:
    """A message as JSON: the fields of its version, named as in Python. Bytes are hexadecimal, records only counted."""
    return _struct_json(message, message._type.schema.root, version)


def _struct_json(node: Any, struct: Struct, version: int) -> JsonObject:
    shown: JsonObject = {}
    for field in struct.fields:
        if version not in field.versions:
            continue
        value = getattr(node, field.attribute)
        if field.type == "records":
            shown[field.attribute] = _records_json(value)
        elif field.struct is not None and field.is_array:
            inner = field.struct
            shown[field.attribute] = None if value is None else [_struct_json(each, inner, version) for each in value]
        elif field.struct is not None:
            shown[field.attribute] = None if value is None else _struct_json(value, field.struct, version)
        elif field.is_array:
            shown[field.attribute] = None if value is None else [_plain(each, field.type) for each in value]
        else:
            shown[field.attribute] = _plain(value, field.type)
    return shown


def _plain(value: Any, kind: str) -> Any:
    if value is None or kind in ("string", "bool") or isinstance(value, (str, int, float)):
        return value
    if kind == "uuid":
        return id_text(value)
    return bytes(value).hex()


def _records_json(records: Any) -> Any:
    if records is None:
        return None
    data = bytes(records)
    try:
        count = sum(header.record_count for _, header in each_header(data))
    except Exception:  # noqa: BLE001 records of a client may be anything
        return {"bytes": len(data)}
    return {"bytes": len(data), "records": count}
