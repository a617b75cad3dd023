"""A decoder for requests that repeat one another on a connection: what it gives is equal to what `messages.decode` gives.

Produce requests for one partition, and Fetch requests for one partition, come again and again with other records, or another offset.
The rest of such a request is compared, as bytes, with a request that was decoded before; if it is equal, its decoded parts are used again.
Nothing is known here of what the requests mean. Whatever does not look the same goes to the codec.
"""

from __future__ import annotations

from struct import Struct
from typing import Any

from klamm.protocol import messages
from klamm.protocol.apis import APIS, ApiKey
from klamm.protocol.errors import LocalProtocolError, RemoteProtocolError
from klamm.protocol.messages import RequestHeader
from klamm.protocol.primitives import read_uvarint
from klamm.protocol.shortcuts.templates import WIDTH, template

MAX_SHAPES = 4
"""Shapes of a connection that are remembered: a producer may alternate between partitions."""
MAX_PREFIX = 4096
"""Bytes before the records, or of a whole Fetch request, up to which a shape is remembered."""
PATIENCE = 32
"""Shapes in a row that were never seen again, after which a connection's requests are left to the codec."""

_INT32 = Struct(">i").unpack_from
_OFFSET = Struct(">q").unpack_from
_NO_TAGS = b"\0\0\0"
"""After the records in flexible versions: no tagged fields of partition, topic and request."""


class ProduceShape:
    """A Produce request for one partition, but for its records. `header` is that of the first one; others differ in the correlation id."""

    __slots__ = ("_end", "_is_flexible", "_kind", "_part", "_prefix", "_request", "_topic", "header")

    def __init__(self, header: RequestHeader, request: Any, prefix: bytes, is_flexible: bool) -> None:
        """`prefix` is the request up to the length of the records."""
        self.header, self._is_flexible = header, is_flexible
        self._kind, self._prefix, self._end = prefix[:4], prefix[8:], len(prefix)
        topic = request.topic_data[0]
        part = topic.partition_data[0]
        self._request = type(request), request[:-1]
        self._topic = type(topic), topic[:-1]
        self._part = type(part), part[:-1]

    def decode(self, payload: bytes) -> tuple[int, Any] | None:
        """The correlation id and the request, if only the records are other ones."""
        start = self._end
        if not payload.startswith(self._prefix, 8) or not payload.startswith(self._kind):
            return None
        end = len(payload)
        if self._is_flexible:
            end -= len(_NO_TAGS)
            try:
                length, start = read_uvarint(payload, start)
            except (IndexError, RemoteProtocolError):
                return None
            if length < 1 or start + length - 1 != end or payload[end:] != _NO_TAGS:
                return None
        else:
            start += 4
            if start > end or _INT32(payload, start - 4)[0] != end - start:
                return None
        part, topic, request = self._part, self._topic, self._request
        made = part[0]((*part[1], memoryview(payload)[start:end]))
        made = request[0]((*request[1], [topic[0]((*topic[1], [made]))]))
        return _INT32(payload, 4)[0], made


class FetchShape:
    """A Fetch request for one partition, but for its fetch offset. `header` is that of the first one."""

    __slots__ = ("_after", "_at", "_before", "_kind", "_part", "_request", "_topic", "header")

    def __init__(self, header: RequestHeader, request: Any, payload: bytes, at: int) -> None:
        """The offset is at `at` of the payload."""
        self.header, self._at = header, at
        self._kind, self._before, self._after = payload[:4], payload[8:at], payload[at + WIDTH :]
        topic = request.topics[0]
        part = topic.partitions[0]
        at_topics, at_offset = request._fields.index("topics"), part._fields.index("fetch_offset")
        self._request = type(request), request[:at_topics], request[at_topics + 2 :]
        self._topic = type(topic), topic[:-1]
        self._part = type(part), part[:at_offset], part[at_offset + 1 :]

    def decode(self, payload: bytes) -> tuple[int, Any] | None:
        """The correlation id and the request, if only the offset is another one."""
        at = self._at
        if not payload.startswith(self._before, 8) or payload[at + WIDTH :] != self._after or not payload.startswith(self._kind):
            return None
        part, topic, request = self._part, self._topic, self._request
        made = part[0]((*part[1], _OFFSET(payload, at)[0], *part[2]))
        made = request[0]((*request[1], [topic[0]((*topic[1], [made]))], [], *request[2]))
        return _INT32(payload, 4)[0], made


Shape = ProduceShape | FetchShape


class RepeatedRequests:
    """The shapes of the last requests of one connection."""

    __slots__ = ("_patience", "_shapes")

    def __init__(self) -> None:
        self._shapes: tuple[Shape, ...] = ()
        self._patience = PATIENCE

    def find(self, payload: bytes) -> tuple[Shape, int, Any] | None:
        """The shape of this request, its correlation id, and the request; None if the codec has to decode it."""
        for shape in self._shapes:
            decoded = shape.decode(payload)
            if decoded is not None:
                self._patience = PATIENCE
                return shape, decoded[0], decoded[1]
        return None

    def learn(self, payload: bytes, header: RequestHeader, request: Any) -> None:
        """Remember the shape of a request that the codec has decoded, if it has one."""
        if self._patience and (shape := shape_of(payload, header, request)) is not None:
            self._patience -= 1
            self._shapes = (shape, *self._shapes[: MAX_SHAPES - 1])


def shape_of(payload: bytes, header: RequestHeader, request: Any) -> Shape | None:
    """The shape of requests like this one. None if it has none, or is written in another way than our encoder would."""
    try:
        match header.api_key:
            case ApiKey.PRODUCE:
                return _produce_shape(payload, header, request)
            case ApiKey.FETCH:
                return _fetch_shape(payload, header, request)
            case _:
                return None
    except (LocalProtocolError, ValueError):
        return None


def _encoded(header: RequestHeader, request: Any) -> bytes:
    """A request as our encoder writes it."""
    body = messages.encode(request, header.api_version)
    return messages.encode_request(header.api_key, header.api_version, header.correlation_id, header.client_id, body)[4:]


def _produce_shape(payload: bytes, header: RequestHeader, request: Any) -> ProduceShape | None:
    if len(request.topic_data) != 1 or len(request.topic_data[0].partition_data) != 1:
        return None
    topic = request.topic_data[0]
    empty = topic.partition_data[0]._replace(records=b"")
    data = _encoded(header, request._replace(topic_data=[topic._replace(partition_data=[empty])]))
    is_flexible = APIS[ApiKey.PRODUCE].request_header_version(header.api_version) == 2
    end = len(data) - (1 + len(_NO_TAGS) if is_flexible else 4)
    if end > MAX_PREFIX or payload[:end] != data[:end]:
        return None
    return ProduceShape(header, request, data[:end], is_flexible)


def _fetch_shape(payload: bytes, header: RequestHeader, request: Any) -> FetchShape | None:
    if len(payload) > MAX_PREFIX or request.forgotten_topics_data or len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        return None
    topic = request.topics[0]
    part = topic.partitions[0]

    def encode(offset: int) -> bytes:
        return _encoded(header, request._replace(topics=[topic._replace(partitions=[part._replace(fetch_offset=offset)])]))

    _, (at,) = template(encode, 1)
    if at is None or encode(part.fetch_offset) != payload:
        return None
    return FetchShape(header, request, payload, at)
