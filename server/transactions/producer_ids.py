"""The producer ids of a broker. It gets blocks of a thousand ids and gives them to producers one by one.

From inter-broker protocol 3.0 on the active controller allocates the blocks (AllocateProducerIds). If there is no id left, a request gets
COORDINATOR_LOAD_IN_PROGRESS, which clients retry, and the broker requests the next block. It also requests the next block when nine tenths
of a block are used, so that clients usually do not wait. Below 3.0 a broker takes blocks from ZooKeeper itself, and requests wait for
that. Ids that are left in a block when the broker stops are never used. Source: controller 14.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.server.ground.background import BackgroundTasks
from klamm.server.ground.identity import BrokerIdentity
from klamm.server.net.controller_requests import ControllerRequests, ControllerUnreachable

log = logging.getLogger(__name__)

PREFETCH_SHARE = 0.9
"""The next block is requested when this share of a block is used."""
RETRY_MS = 50
"""Pause after a failed request for a block."""


class ProducerIds(Protocol):
    """Gives ids to idempotent producers."""

    async def next_id(self) -> int:
        """An id that is unique in the cluster. Raises ApiError if there is none yet."""

    def prepare(self) -> bool:
        """Whether the next request gets an id; if not, a block is requested now."""


class ControllerProducerIds:
    """Gets its blocks from the active controller. `timeout_ms` limits one request, and also the time for which it is retried."""

    def __init__(self, identity: BrokerIdentity, controller: ControllerRequests, background: BackgroundTasks, timeout_ms: int) -> None:
        self._identity = identity
        self._controller = controller
        self._background = background
        self._timeout_s = timeout_ms / 1000
        self._next = self._end = self._prefetch_at = 0
        self._prefetched: tuple[int, int] | None = None
        self._requested = False
        self._not_before_ms = 0

    async def next_id(self) -> int:
        if self._next == self._end:
            if self._prefetched is None:
                self._request_block()
                raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "Producer ID block is full. Waiting for next block")
            first, count = self._prefetched
            self._prefetched = None
            self._next, self._end, self._prefetch_at = first, first + count, first + int(count * PREFETCH_SHARE)
        producer_id = self._next
        self._next += 1
        if producer_id == self._prefetch_at:
            self._request_block()
        return producer_id

    def prepare(self) -> bool:
        if self._next < self._end or self._prefetched is not None:
            return True
        self._request_block()
        return False

    def _request_block(self) -> None:
        if self._requested or self._prefetched is not None or self._controller.clock.now_ms() < self._not_before_ms:
            return
        self._requested = True
        self._background.start(self._fetch_block())

    async def _fetch_block(self) -> None:
        broker_id = self._identity.broker_id
        request = messages.AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=self._identity.broker_epoch)
        try:
            response = await self._controller.send(ApiKey.ALLOCATE_PRODUCER_IDS, 0, request, self._timeout_s, self._timeout_s)
            if response.error_code == ErrorCode.NONE:
                self._prefetched = response.producer_id_start, response.producer_id_len
                return
            log.warning("broker %d: no block of producer ids: the controller returned error %d", broker_id, response.error_code)
        except ControllerUnreachable as error:
            log.warning("broker %d: no block of producer ids: %s", broker_id, error)
        finally:
            self._requested = False
        self._not_before_ms = self._controller.clock.now_ms() + RETRY_MS


class ZooKeeperProducerIds:
    """Takes its blocks from ZooKeeper; `take_block` returns (first id, count)."""

    def __init__(self, take_block: Callable[[], Awaitable[tuple[int, int]]]) -> None:
        self._take_block = take_block
        self._next = self._end = 0

    def prepare(self) -> bool:
        """A request that needs a block waits for it."""
        return True

    async def next_id(self) -> int:
        while self._next == self._end:
            first, count = await self._take_block()
            if self._next == self._end:  # otherwise another request got a block in the meantime, and this one is never used
                self._next, self._end = first, first + count
        producer_id = self._next
        self._next += 1
        return producer_id
