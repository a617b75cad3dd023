"""Fetch requests for one partition and without a session, which follow one another on a connection and differ in their offset only.

Everything but correlation id and fetch offset is compared, as bytes, with the last such request of the connection. When it is the same,
nothing is decoded: the partition is read, and the response is joined from pieces that are encoded already. Whatever is not as expected (an
error, records in files, too few bytes) is left to the handler, which sees the whole request; then nothing has happened here.
Permissions are not checked: this is for brokers that allow all.
"""

from __future__ import annotations

from struct import Struct

from klamm.broker.fetch_reads import FetchParams, Isolation, PartitionRead, read_partition
from klamm.broker.fetch_sessions import FINAL_EPOCH, NO_SESSION, TOPIC_IDS_SINCE, FetchPartition, FetchPartitions, FetchTopic
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.errors import RemoteProtocolError
from klamm.protocol.nouns import NO_EPOCH
from klamm.server.apis import fetch
from klamm.server.fetch.fetch_response import FLEXIBLE_SINCE, before_records, encode
from klamm.server.requests.context import Context
from klamm.server.requests.peer import Peer
from klamm.server.requests.queued_requests import NOTHING_FOLLOWS, Following
from klamm.server.security.authorizer import AllowAll
from klamm.server.services import Services

OLDEST_VERSION = 10
"""Older ones are told about compression that they do not know."""
MAX_BYTES = 256 << 10
"""Longer requests are decoded in a thread."""
MAX_LENGTHS = 64

_OFFSET = Struct(">q")
_MARK = b"\x5a\xa5" * 4
_INT32 = Struct(">i").pack


class KnownFetch:
    """One request, without its offset, and the pieces of its responses. It is valid for one generation of the metadata cache."""

    __slots__ = ("after", "at", "before", "generation", "head", "length", "params", "partition", "response_head", "tail", "version")

    def __init__(self, payload: bytes, at: int, params: FetchParams, partition: FetchPartition, generation: int) -> None:
        self.head, self.before, self.after = payload[:4], payload[8:at], payload[at + 8 :]
        self.at, self.length = at, len(payload)
        self.version, self.params, self.partition, self.generation = params.version, params, partition, generation
        read = PartitionRead(0, 0, 0, 0)
        frame = messages.join_response(ApiKey.FETCH, params.version, 0, encode(params.version, NO_SESSION, [(partition, read)]))
        row = before_records(params.version, partition.index, read, 0)
        self.tail = b"\0\0\0" if params.version >= FLEXIBLE_SINCE else b""
        self.response_head = frame[8 : len(frame) - len(row) - len(self.tail)]


class Requests:
    """The last request of a connection that may be repeated, and lengths of requests that are not like it."""

    __slots__ = ("known", "others")

    def __init__(self) -> None:
        self.known: KnownFetch | None = None
        self.others: set[int] = set()


class RepeatedFetch:
    """Handles the Fetch requests that it can."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._replicas = services.replicas
        self._metadata = services.metadata
        self._fetched = services.metrics.fetched
        self._is_open = type(services.authorizer) is AllowAll

    def __call__(self, peer: Peer, payload: bytes, following: Following = NOTHING_FOLLOWS) -> bytes | None:
        """The response, None when the handler has to do it."""
        requests: Requests | None = peer.repeated_fetch
        if requests is None:
            requests = peer.repeated_fetch = Requests()
        known, length = requests.known, len(payload)
        if (
            known is None
            or length != known.length
            or payload[8 : known.at] != known.before
            or payload[known.at + 8 :] != known.after
            or payload[:4] != known.head
            or known.generation != self._metadata.generation
        ):
            if length in requests.others:
                return None
            known = requests.known = self._find(peer, payload)
            if known is None:
                if len(requests.others) >= MAX_LENGTHS:
                    requests.others.clear()
                requests.others.add(length)
                return None
        partition, params = known.partition, known.params
        (partition.fetch_offset,) = _OFFSET.unpack_from(payload, known.at)
        read = read_partition(self._replicas, params, partition, params.max_bytes, True, False)
        records = read.records
        if read.error_code or type(records) is not bytes or (read.size < params.min_bytes and params.max_wait_ms > 0):
            return None
        self._fetched(False, ((partition, read),))
        row = before_records(known.version, partition.index, read, read.size)
        size = 4 + len(known.response_head) + len(row) + read.size + len(known.tail)
        return b"".join((_INT32(size), payload[4:8], known.response_head, row, records, known.tail))

    def _find(self, peer: Peer, payload: bytes) -> KnownFetch | None:
        """What is common to this request and those like it, None where there may be none."""
        if not self._is_open or not 8 < len(payload) <= MAX_BYTES:
            return None
        version = int.from_bytes(payload[2:4], "big")
        if not OLDEST_VERSION <= version <= messages.APIS[ApiKey.FETCH].max_version:
            return None
        try:
            _, start = messages.decode_request_header(payload)
            request, end = messages.decode("FetchRequest", version, payload, start)
        except RemoteProtocolError:
            return None
        if end != len(payload) or request.session_id != NO_SESSION or request.session_epoch != FINAL_EPOCH or request.isolation_level:
            return None
        if len(request.topics) != 1 or len(request.topics[0].partitions) != 1 or request.forgotten_topics_data:
            return None
        topic, wanted = request.topics[0], request.topics[0].partitions[0]
        params = fetch.params_of(Context(self._services, peer, ApiKey.FETCH, version), request)
        if params.replica_id != -1 or params.rack or params.isolation is not Isolation.HIGH_WATERMARK:
            return None
        name = topic.topic if version < TOPIC_IDS_SINCE else self._metadata.topic_name(topic.topic_id)
        if name is None or wanted.last_fetched_epoch != NO_EPOCH or self._metadata.partition(name, wanted.partition) is None:
            return None
        marked = request._replace(topics=[topic._replace(partitions=[wanted._replace(fetch_offset=int.from_bytes(_MARK, "big"))])])
        body = messages.encode(marked, version)
        at = body.find(_MARK)
        if body.count(_MARK) != 1 or body[:at] + payload[start + at : start + at + 8] + body[at + 8 :] != payload[start:]:
            return None
        partition = FetchPartition(FetchTopic(FetchPartitions(version >= TOPIC_IDS_SINCE), name, topic.topic_id), wanted)
        return KnownFetch(payload, start + at, params, partition, self._metadata.generation)
