"""The last requests and responses of a cluster, in memory: bounded in number and bytes, and decoded when somebody asks.

A `History` is a tap (`server/net/tap.py`) of all brokers. It keeps what brokers received on their listeners, from clients, brokers and
controllers, and what they responded.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

from klamm.protocol import messages
from klamm.protocol.apis import APIS, ApiKey
from klamm.protocol.errors import ErrorCode, RemoteProtocolError
from klamm.protocol.nouns import ZERO_UUID
from klamm.protocol.records.batch import each_header
from klamm.protocol.schema import Struct
from klamm.server.faults import parts
from klamm.server.faults.fault import is_like
from klamm.server.net.tap import ConnectionKind, Direction, Frame

MAX_REQUESTS = 20_000
MAX_BYTES = 64 << 20
LARGEST = 1 << 20
"""Of a larger frame only the head of the request is kept."""
CLIENT_ID = "klamm-control"
"""Requests of the control API itself have this client id. They are not requests of clients."""
_INTER_BROKER = frozenset(
    (
        ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA, ApiKey.CONTROLLED_SHUTDOWN, ApiKey.WRITE_TXN_MARKERS,
        ApiKey.ALTER_PARTITION, ApiKey.ALLOCATE_PRODUCER_IDS, ApiKey.REGISTER_BROKER, ApiKey.METADATA_FETCH,
    )
)  # fmt: skip
_REPLICA_STATE_SINCE = 15


class Exchange:
    """A request and, when there is one, its response. `number` counts all requests of the cluster from 1."""

    __slots__ = ("api_key", "at_ms", "broker", "client_id", "correlation_id", "number", "peer", "request", "response", "version")

    def __init__(self, number: int, at_ms: int, broker: int, peer: str, payload: bytes) -> None:
        """Raises RemoteProtocolError for a payload without a request header."""
        self.number = number
        self.at_ms = at_ms
        self.broker = broker
        self.peer = peer
        header, _ = messages.decode_request_header(payload)
        self.api_key = header.api_key
        self.version = header.api_version
        self.client_id = header.client_id
        self.correlation_id = header.correlation_id
        self.request = payload
        self.response: bytes | None = None

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
            _, offset = messages.decode_request_header(self.request)
            return messages.decode(f"{self.api}Request", self.version, self.request, offset)[0]
        except Exception:  # noqa: BLE001 the bytes of a client may be anything
            return None

    def decoded_response(self) -> Any | None:
        """The response as a message; None without one."""
        if self.response is None:
            return None
        for version in (self.version, 0):  # the response to an unsupported version of ApiVersions has version 0
            try:
                _, offset = messages.decode_response_header(self.api_key, version, self.response)
                return messages.decode(f"{self.api}Response", version, self.response, offset)[0]
            except Exception:  # noqa: BLE001, S112 a fault may have changed its bytes
                continue
        return None

    @property
    def is_of_broker(self) -> bool:
        """Whether it came from a broker, a controller or the control API."""
        if self.api_key in _INTER_BROKER or self.client_id == CLIENT_ID:
            return True
        if self.api_key != ApiKey.FETCH:
            return False
        request = self.decoded_request()
        if request is None:
            return False
        replica_id: int = request.replica_state.replica_id if self.version >= _REPLICA_STATE_SINCE else request.replica_id
        return replica_id >= 0


class History:
    """The last exchanges. `frame` is called for each frame of each broker."""

    def __init__(self, topic_id: Callable[[str], bytes] | None = None) -> None:
        """`topic_id` gives the id of a topic, zero if there is none."""
        self.total = 0
        self.topic_id = topic_id
        self.on_exchange: Callable[[Exchange], None] | None = None
        """Called when the response is there."""
        self._kept: deque[Exchange] = deque()
        self._bytes = 0
        self._pending: dict[tuple[int, str, int], deque[Exchange]] = {}
        self._offset_ms = time.time() * 1000 - time.monotonic() * 1000

    def frame(self, frame: Frame) -> None:
        """A frame was received or sent."""
        connection = frame.connection
        if connection.kind is not ConnectionKind.ACCEPTED:
            return
        payload = frame.payload
        if frame.direction is Direction.RECEIVED:
            try:
                exchange = Exchange(self.total + 1, time.time_ns() // 1_000_000, connection.broker_id, connection.peer, payload)
            except RemoteProtocolError:
                return
            self.total += 1
            if len(payload) > LARGEST:
                exchange.request = payload[:LARGEST]
            self._kept.append(exchange)
            self._bytes += len(exchange.request)
            self._pending.setdefault((connection.broker_id, connection.id, exchange.correlation_id), deque()).append(exchange)
            self._trim()
        elif len(payload) >= 4:
            key = (connection.broker_id, connection.id, int.from_bytes(payload[:4], "big", signed=True))
            waiting = self._pending.get(key)
            if waiting:
                exchange = waiting.popleft()
                if not waiting:
                    del self._pending[key]
                exchange.response = payload if len(payload) <= LARGEST else payload[:LARGEST]
                self._bytes += len(exchange.response)
                if self.on_exchange is not None:
                    self.on_exchange(exchange)

    def _trim(self) -> None:
        while len(self._kept) > MAX_REQUESTS or self._bytes > MAX_BYTES:
            self._bytes -= self._kept.popleft().size
        if len(self._pending) > MAX_REQUESTS:  # requests whose connections were closed
            oldest = self._kept[0].number
            self._pending = {key: waiting for key, waiting in self._pending.items() if waiting[-1].number >= oldest}

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
    ) -> Iterator[Exchange]:
        """Exchanges that match, newest first. `after`: only those with a higher number."""
        key = None if api is None else api_named(api)
        for exchange in reversed(self._kept):
            if exchange.number <= after:
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
            if error is not None and error_of(exchange.decoded_response()) != error:
                continue
            yield exchange

    def _is_about(self, exchange: Exchange, values: dict[str, Any]) -> bool:
        topic_id = ZERO_UUID if self.topic_id is None or "topic" not in values else self.topic_id(values["topic"])
        wanted = parts.Wanted(values, topic_id)
        request = exchange.decoded_request()
        if request is not None and parts.split(request, exchange.version, wanted)[0] is not None:
            return True
        response = exchange.decoded_response()
        return response is not None and parts.split(response, exchange.version, wanted)[0] is not None


def api_named(name: str) -> int:
    """The key of an API, given by its name or its number. Raises ValueError with a suggestion."""
    if name.lstrip("-").isdigit():
        if int(name) not in APIS:
            raise ValueError(f"there is no API with key {name}")
        return int(name)
    for key, api in APIS.items():
        if api.name == name:
            return key
    from difflib import get_close_matches

    close = get_close_matches(name.lower(), [api.name.lower() for api in APIS.values()], 1)
    names = {api.name.lower(): api.name for api in APIS.values()}
    raise ValueError(f"there is no API {name!r}" + (f"; did you mean {names[close[0]]}?" if close else ""))


def as_json(exchange: Exchange) -> dict[str, Any]:
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


def error_of(response: Any | None) -> str | None:
    """The name of the first error in a response, None if it has none."""
    if response is None:
        return None
    code = _first_error(response)
    if not code:
        return None
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)


def _first_error(node: Any) -> int:
    for name, value in zip(node._fields, node, strict=True):
        if name in parts.ERRORS and value:
            return int(value)
    for value in node:
        for each in value if isinstance(value, list) else (value,):
            if isinstance(each, messages.Message):
                code = _first_error(each)
                if code:
                    return code
    return 0


def message_json(message: Any, version: int) -> dict[str, Any]:
    """A message as JSON: the fields of its version, named as in Python; ids and bytes as hexadecimal text, records by number and size."""
    return _struct_json(message, message._type.schema.root, version)


def _struct_json(node: Any, struct: Struct, version: int) -> dict[str, Any]:
    shown: dict[str, Any] = {}
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
        from base64 import urlsafe_b64encode

        return urlsafe_b64encode(value).decode().rstrip("=")
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
