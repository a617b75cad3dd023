"""The last requests and responses of a cluster, in memory: bounded in number and bytes, and decoded when somebody asks.

It keeps what brokers received on their listeners, from clients, brokers and controllers, and what they responded. Secrets in them are
masked when they are read (`protocol/security/redaction.py`): an `Exchange` never has one.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from itertools import chain
from struct import Struct as Packed
from typing import Any

from klamm.control.json_object import JsonObject
from klamm.control.refusal import is_number
from klamm.protocol import messages
from klamm.protocol.apis import APIS, ONLY_OF_BROKERS, ApiKey, broker_of, is_broker
from klamm.protocol.errors import ErrorCode, RemoteProtocolError, did_you_mean
from klamm.protocol.nouns import ZERO_UUID, id_text
from klamm.protocol.records.batch import each_header
from klamm.protocol.schema import Struct
from klamm.protocol.security import redaction
from klamm.server.faults import message_parts
from klamm.server.faults.fault import is_like
from klamm.server.journal.broker_journal import public_configs
from klamm.server.net.tap import Cause, ConnectionInfo, ConnectionKind, ConnectionSink, NoSink

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
_NO_LENGTH = b"\0\0\0\0"
"""Stands for the length of a frame: the history keeps only the payload."""
_KEY_AND_VERSION = Packed(">hh").unpack_from
_OF_REPLICAS = frozenset((ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.OFFSET_FOR_LEADER_EPOCH))
_REPLICA_STATE_SINCE = 15
_BATCHED_BY_BROKERS_SINCE = 4


class Exchange:
    """A request and, when there is one, its response. `number` counts all requests of the cluster from 1."""

    __slots__ = (
        "_error", "api_key", "at_ms", "broker", "client_id", "correlation_id", "is_forgotten", "number", "peer", "request", "response",
        "version",
    )  # fmt: skip

    def __init__(self, number: int, at_ms: int, broker: int, peer: str, payload: bytes) -> None:
        """Raises RemoteProtocolError for a payload without a request header."""
        self.number = number
        self.at_ms = at_ms
        self.broker = broker
        self.peer = peer
        header, _ = messages.decode_request_header(payload, messages.FEW_TAGS)
        self.api_key = header.api_key
        self.version = header.api_version
        self.client_id = header.client_id
        self.correlation_id = header.correlation_id
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
        if self.api_key in ONLY_OF_BROKERS or self.client_id == CLIENT_ID:
            return True
        if self.api_key == ApiKey.WRITE_TXN_MARKERS:  # administrators send it too
            return is_broker(self.client_id, ())
        if self.api_key == ApiKey.API_VERSIONS:  # nothing in the message says who sends it
            return broker_of(self.client_id) is not None
        if self.api_key == ApiKey.ADD_PARTITIONS_TO_TXN:
            return self.version >= _BATCHED_BY_BROKERS_SINCE
        if self.api_key not in _OF_REPLICAS:
            return False
        request = self.decoded_request()
        if request is None:
            return False
        in_state = self.api_key == ApiKey.FETCH and self.version >= _REPLICA_STATE_SINCE
        replica_id: int = request.replica_state.replica_id if in_state else request.replica_id
        return replica_id >= 0


class Cursor:
    """Where one direction of a connection stands between frames. Chunks of bytes are read as frames, or skipped without a copy."""

    __slots__ = ("_begun", "_skipped")

    def __init__(self) -> None:
        self._begun = b""
        """The beginning of a frame whose rest has not come."""
        self._skipped = 0
        """Bytes that are left of a frame that is skipped."""

    def read(self, data: bytes) -> list[bytes]:
        """The payloads that end in this chunk. Of one that is larger than LARGEST there is only what came with its beginning."""
        if self._skipped >= len(data):
            self._skipped -= len(data)
            return []
        if self._skipped:
            data, self._skipped = data[self._skipped :], 0
        elif self._begun:
            data, self._begun = self._begun + data, b""
        payloads = []
        at, end = 0, len(data)
        while at + 4 <= end:
            stop = at + 4 + int.from_bytes(data[at : at + 4], "big")
            if stop > end:
                if stop - at <= LARGEST:
                    break
                self._skipped = stop - end
            payloads.append(data[at + 4 : stop])
            at = stop
        if at < end:
            self._begun = data[at:]
        return payloads

    def skip(self, data: bytes) -> int:
        """How many frames end in this chunk, or are begun in it and are skipped."""
        if self._begun:
            data, self._begun = self._begun + data, b""
        at, end, count = self._skipped, len(data), 0
        while at + 4 <= end:
            at += 4 + int.from_bytes(data[at : at + 4], "big")
            count += 1
        if at < end:
            self._begun, self._skipped = data[at:], 0
        else:
            self._skipped = at - end
        return count


class Heard:
    """What was heard of one connection that a listener accepted."""

    __slots__ = ("_history", "guard", "info", "received_at", "sent_at", "waiting")

    def __init__(self, history: History, info: ConnectionInfo) -> None:
        self._history = history
        self.info = info
        self.received_at, self.sent_at = Cursor(), Cursor()
        self.guard = redaction.SaslGuard(info.has_sasl)
        self.waiting: dict[int, deque[Exchange]] = {}
        """Requests without a response, by correlation id."""

    def received(self, data: bytes) -> None:
        self._history.heard(self, True, data)

    def sent(self, data: bytes, cause: Cause | None = None) -> None:
        self._history.heard(self, False, data)

    def authenticated(self, principal: str, mechanism: str) -> None:
        """Its next requests are no tokens. The history does not show principals."""
        self._history.heard(self, None, b"")

    def closed(self, by: str, reason: str | None = None) -> None:
        """What came before is kept."""


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
                connection.guard.authenticated()
            elif is_received:
                self._total += connection.received_at.skip(data)
                connection.waiting.clear()
            else:
                connection.sent_at.skip(data)

    def _read(self) -> None:
        """Read all chunks as exchanges."""
        chunks, self._chunks, self._chunk_bytes = self._chunks, deque(), 0
        for connection, is_received, at_ns, data in chunks:
            if is_received is None:
                connection.guard.authenticated()
            elif is_received:
                for payload in connection.received_at.read(data):
                    self._begin(connection, at_ns // 1_000_000, payload)
            else:
                for payload in connection.sent_at.read(data):
                    self._end(connection, payload)
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

    def _begin(self, connection: Heard, at_ms: int, payload: bytes) -> None:
        self._total += 1
        masked = _masked_request(payload, connection.guard)
        if masked is None:
            return
        try:
            exchange = Exchange(self._total, at_ms, connection.info.broker_id, connection.info.peer, masked)
        except RemoteProtocolError:
            return
        if len(masked) > LARGEST:
            exchange.request = masked[:LARGEST]
        self._kept.append(exchange)
        self._bytes += len(exchange.request)
        connection.waiting.setdefault(exchange.correlation_id, deque()).append(exchange)

    def _end(self, connection: Heard, payload: bytes) -> None:
        if len(payload) < 4:
            return
        number = int.from_bytes(payload[:4], "big", signed=True)
        waiting = connection.waiting.get(number)
        if not waiting:
            return
        exchange = waiting.popleft()
        if not waiting:
            del connection.waiting[number]
        if exchange.api_key in redaction.RESPONSES:
            frame = redaction.masked_response(_NO_LENGTH + payload, exchange.api_key, exchange.version, public_configs())
            payload = frame[len(_NO_LENGTH) :]
        exchange.response = payload if len(payload) <= LARGEST else payload[:LARGEST]
        if not exchange.is_forgotten:
            self._bytes += len(exchange.response)

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


def _masked_request(payload: bytes, guard: redaction.SaslGuard) -> bytes | None:
    """A request with masked secrets; None if it may be a SASL token."""
    key, version = _KEY_AND_VERSION(payload) if len(payload) >= 4 else (-1, -1)
    frame = None
    if guard.may_be_token(key, version):
        frame = guard.kept(_NO_LENGTH + payload)
        if frame is None:
            return None
    if key == ApiKey.SASL_HANDSHAKE:
        guard.handshake()
    if key in redaction.REQUESTS:
        frame = redaction.masked_request(frame or _NO_LENGTH + payload, key, public_configs())
    return payload if frame is None else frame[len(_NO_LENGTH) :]


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
        if name in message_parts.ERRORS and value:
            return int(value)
    for value in node:
        for each in value if isinstance(value, list) else (value,):
            if isinstance(each, messages.Message):
                code = _first_error(each)
                if code:
                    return code
    return 0


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
