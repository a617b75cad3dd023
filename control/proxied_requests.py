"""Faults on requests that pass through a proxy (`klamm proxy`): the same as those of brokers, with the broker's work done upstream.

What a request meets is decided and done by `server/requests/fault_handlers.py`. Where a broker would call its handler, the request is sent
to the broker behind the proxy, and the bytes of its response come back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from klamm.control.history import History
from klamm.protocol import messages
from klamm.protocol.apis import APIS, ApiKey
from klamm.protocol.errors import LocalProtocolError, RemoteProtocolError
from klamm.protocol.exchanges.connections import ConnectionInfo, ConnectionSink
from klamm.protocol.exchanges.exchanges import decode_request
from klamm.protocol.nouns import ZERO_UUID
from klamm.proxy.addresses import highest_versions
from klamm.proxy.passage import Closed, Passage
from klamm.seams.clock import SYSTEM_CLOCK, Clock
from klamm.server.faults.fault import BrokerFaults, Fault, Faults, RequestFilter
from klamm.server.requests.context import ClosedOnPurpose
from klamm.server.requests.fault_handlers import Real, handle_faulty

if TYPE_CHECKING:
    from klamm.server.requests.fault_handlers import RefuseRequest

_DECODED = {int(key): api.last_version for key, api in APIS.items() if key != ApiKey.API_VERSIONS}


class Topic(NamedTuple):
    """A topic of the cluster behind the proxy."""

    topic_id: bytes


class KnownTopics:
    """The topics that the cluster had when the last fault about one was added."""

    def __init__(self) -> None:
        self.topics: dict[str, Topic] = {}
        self._names: dict[bytes, str] = {}

    def learn(self, ids: Mapping[str, bytes]) -> None:
        """These are the topics."""
        self.topics = {name: Topic(topic_id) for name, topic_id in ids.items()}
        self._names = {topic_id: name for name, topic_id in ids.items()}

    def topic_id(self, name: str) -> bytes:
        """The id of a topic, zero if it is not known."""
        return self.topics[name].topic_id if name in self.topics else ZERO_UUID

    def topic_name(self, topic_id: bytes, /) -> str | None:
        """The name of the topic with this id, if it is known."""
        return self._names.get(topic_id)


class NoFetches:
    """A proxy does not remember which partitions a fetch session has."""

    sessions: Mapping[int, Any] = {}


class Around:
    """What is known beside a request."""

    def __init__(self) -> None:
        self.clock: Clock = SYSTEM_CLOCK
        self.metadata = KnownTopics()
        self.fetches = NoFetches()


class ProxiedPeer:
    """The client of a request. `on_lost` is called when it goes while a fault lets its request hang."""

    principal = "unknown"
    is_open = True

    def __init__(self, passage: Passage) -> None:
        self.connection = passage.info.id
        self._passage = passage
        self._watch: asyncio.Task[None] | None = None

    @property
    def on_lost(self) -> Any:
        return None

    @on_lost.setter
    def on_lost(self, call: Callable[[], object] | None) -> None:
        if self._watch is not None:
            self._watch.cancel()
        self._watch = None if call is None else asyncio.ensure_future(self._lost(call))

    async def _lost(self, call: Callable[[], object]) -> None:
        try:
            await self._passage.gone()
        except OSError:
            pass
        call()


class ProxiedRequest(NamedTuple):
    """A request as the faults see it. `message` is None if it cannot be decoded here."""

    api_key: ApiKey
    api_version: int
    client_id: str | None
    correlation_id: int
    peer: ProxiedPeer
    services: Around
    passage: Passage
    frame: bytes
    message: Any

    async def sent(self, message: Any) -> bytes | None:
        """Have the broker do a request, this one or a part of it. Returns the frame of its response."""
        frame = self.frame
        if message is not self.message:
            body = messages.encode(message, self.api_version)
            frame = messages.encode_request(self.api_key, self.api_version, self.correlation_id, self.client_id, body)
        return await self.passage.forward(frame)

    def encoded(self, correlation_id: int, response: Any) -> bytes:
        """The frame of a response."""
        if isinstance(response, bytes):
            return response[:4] + (correlation_id & 0xFFFFFFFF).to_bytes(4, "big") + response[8:]
        body = messages.encode(response, self.api_version)
        return messages.encode_response(self.api_key, self.api_version, correlation_id, body)


class _OfHeads(BrokerFaults):
    """The faults that need nothing of a request but its head."""

    def of(self, api: ApiKey) -> list[Fault]:
        return [each for each in super().of(api) if isinstance(each.filter, RequestFilter) and not each.filter.parts and not _reads(each)]


def _reads(fault: Fault) -> bool:
    return any(each is not None for each in (fault.effect.error, fault.effect.throttle_time_ms, fault.effect.values))


class ProxiedRequests:
    """Faults on what passes through a proxy, and its history (`proxy.passage.Steering`)."""

    def __init__(self) -> None:
        self.faults = Faults()
        self.around = Around()
        self.history = History(self.around.metadata.topic_id)

    @property
    def is_on(self) -> bool:
        """Whether there are faults."""
        return len(self.faults) > 0

    @property
    def highest_versions(self) -> Mapping[int, int]:
        """Those that can be decoded here: in later ones a fault would not find what it is about."""
        return highest_versions() | _DECODED

    def seen(self, info: ConnectionInfo) -> ConnectionSink:
        """The history of a new connection."""
        return self.history.connection(info)

    def respond(self, passage: Passage, frame: bytes) -> Awaitable[bytes | None] | None:
        """What gives the response to a request that a fault hits; None for others."""
        try:
            header, _ = messages.decode_request_header(frame[4:], messages.FEW_TAGS)
            key = ApiKey(header.api_key)
        except (RemoteProtocolError, ValueError):
            return None
        if not self.faults.of(key):
            return None
        try:
            message = decode_request(frame[4:])
        except (RemoteProtocolError, LocalProtocolError):
            message = None
        peer, around = ProxiedPeer(passage), self.around
        asked = ProxiedRequest(
            key, header.api_version, header.client_id, header.correlation_id, peer, around, passage, frame, message
        )
        view = (BrokerFaults if message is not None else _OfHeads)(self.faults, passage.info.broker_id)
        passed = object()
        """Stands for the response if no fault hits the request."""
        is_struck = False

        def handle(asked: ProxiedRequest, message: Any) -> Any:
            return asked.sent(message) if is_struck else passed

        work = handle_faulty(view, Real(handle, _refuse_of(key), ProxiedRequest.encoded), asked, message)
        if work is passed:
            return None
        is_struck = True
        return _response_of(asked, work)


async def _response_of(asked: ProxiedRequest, work: Awaitable[Any]) -> bytes | None:
    """The frame that faults leave of a response. Raises Closed."""
    try:
        response = await work
    except ClosedOnPurpose as closed:
        raise Closed(closed.last) from None
    return response if response is None or isinstance(response, bytes) else asked.encoded(asked.correlation_id, response)


def _refuse_of(key: ApiKey) -> RefuseRequest:
    """What makes the response of an API that failed as a whole."""
    from klamm.server.apis.handlers import HANDLERS

    return HANDLERS[key].refuse if key in HANDLERS else _cannot_refuse


def _cannot_refuse(request: Any, version: int, code: Any, message: str | None = None) -> None:
    """There is no such response."""
