"""A fetcher: it fetches the partitions that this broker follows on one leader broker, and keeps their logs equal to the leader's.

It has one task, one connection and one request in flight. The leader delays the response to a Fetch request until it has new data, at most
for `replica.fetch.wait.max.ms`. So a fetcher with idle partitions sends two small requests a second, independent of their number.

`server/replication/followed_logs.py` applies the responses, and prepares partitions before their first fetch.

A request that fails as a whole ends the session, and all partitions wait for the back-off. When the last partition is removed, the fetcher
lets the leader forget it, which ends the session there. Then it is idle, and its owner closes it. Source: controller 14 and 15, wire 5;
`AbstractFetcherThread` and `ReplicaFetcherThread` of 3.9.1.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from klamm.broker.follower_session import FollowerSession, Standing
from klamm.broker.partition import HostedPartition
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.errors import ErrorCode, RemoteProtocolError, received_code
from klamm.protocol.nouns import NO_EPOCH
from klamm.server.replication.followed_logs import FollowedLogs, FollowerServices
from klamm.server.replication.leader_connection import LeaderConnection
from klamm.server.replication.leader_requests import SLICE, fetch_request, last_epoch

log = logging.getLogger(__name__)

_LARGE_RESPONSE = 4 * SLICE
"""A response with more partitions than this is decoded in a thread."""


class LeaderFetcher:
    """Fetches from one leader broker. `session` has the partitions; code that changes it calls `wake` afterwards."""

    def __init__(
        self, leader: int, services: FollowerServices, connection: LeaderConnection, on_idle: Callable[[LeaderFetcher], None]
    ) -> None:
        """`on_idle` is called when there are no partitions left to fetch or to forget."""
        self.leader = leader
        self._on_idle = on_idle
        self.session: FollowerSession[HostedPartition] = FollowerSession()
        self._services = services
        self._options = services.options
        self._clock = services.clock
        self._connection = connection
        self._logs = FollowedLogs(leader, services, connection, self.session)
        self._is_failing = False
        """Whether the last fetch failed: then this was logged, and is not again before one succeeds."""
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = asyncio.get_running_loop().create_task(self._run())

    # --- from the owner

    def follow(self, hosted: HostedPartition, topic_id: bytes, leader_epoch: int) -> None:
        """Fetch this partition from the end of its log. If it is fetched already, it starts again, with this leader epoch."""
        offset, standing = 0, Standing.READY
        if hosted.log is not None:
            offset = hosted.log.next_offset
            if not self._options.protocol.has_truncation_on_fetch or last_epoch(hosted) == NO_EPOCH:
                standing = Standing.TRUNCATING
        self.stop(hosted.topic, hosted.index)
        partition = self.session.add(hosted.topic, topic_id, hosted.index, hosted, leader_epoch, offset, standing)
        if standing is Standing.TRUNCATING:
            self._logs.truncating[partition] = None

    def stop(self, topic: str, index: int) -> bool:
        """Stop fetching a partition; returns whether it was fetched. A response in flight is not applied to it."""
        partition = self.session.get(topic, index)
        if partition is None:
            return False
        self._logs.drop(partition)
        return True

    def wake(self) -> None:
        """Continue, because partitions were added, or the last one was removed."""
        self._news.set()

    @property
    def is_throttled(self) -> bool:
        """Whether some partitions are not fetched at the moment because the quota is exceeded."""
        return bool(self._logs.throttle.left_out)

    async def close(self) -> None:
        """Stop fetching. If a response is being applied, the rest of it is dropped."""
        task, self._task = self._task, None  # an ended task refers to its last frame, and so to this object
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        self._connection.close()

    # --- the loop

    async def _run(self) -> None:
        while True:
            try:
                self._logs.end_delays()
                if self._logs.truncating:
                    await self._logs.compare()
                await self._fetch()
            except (OSError, RemoteProtocolError) as error:
                if self.session.count:
                    level = logging.DEBUG if self._is_failing else logging.WARNING
                    log.log(level, "cannot fetch from broker %d: %s", self.leader, str(error) or "no response in time")
                    self._is_failing = True
                await self._back_off()
            except Exception:
                log.exception("unexpected exception in the fetcher from broker %d", self.leader)
                await self._back_off()

    async def _back_off(self) -> None:
        """Wait for the back-off, with all partitions, unless the controller sends a new partition in the meantime."""
        self._connection.close()
        self.session.fail()
        if self.session.count:
            await self._wait(self._options.backoff_ms / 1000)

    async def _wait(self, seconds: float | None) -> None:
        """Wait until `wake` is called, or for this number of seconds; with None without limit."""
        self._news.clear()
        timer = None if seconds is None else self._clock.call_later(seconds, self._news.set)
        try:
            await self._news.wait()
        finally:
            if timer is not None:
                timer.cancel()

    async def _fetch(self) -> None:
        throttle = self._logs.throttle
        if throttle.quota.is_active or throttle.left_out:
            throttle.look()
        content = self.session.build()
        if content is None:
            if not self.session.count:
                self._on_idle(self)
            if not self._logs.truncating:
                await self._wait(self._logs.until_next_delay_ends())
            return
        version, body = await fetch_request(self._options, content, self._services.broker_epoch())
        payload, offset = await self._connection.exchange(ApiKey.FETCH, version, body)
        if content.size > _LARGE_RESPONSE:
            response, _ = await asyncio.to_thread(messages.decode, "FetchResponse", version, payload, offset)
        else:
            response, _ = messages.decode("FetchResponse", version, payload, offset)
        count = sum(len(topic.partitions) for topic in response.responses)
        if not self.session.take(response.error_code, response.session_id, count):
            self._session_ended(response.error_code)
            if response.error_code not in (ErrorCode.NONE, ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH):
                await self._wait(self._options.backoff_ms / 1000)
            return
        self._is_failing = False
        await self._logs.apply(response, version)

    def _session_ended(self, code: int) -> None:
        reason = "its response does not have the requested partitions" if code == ErrorCode.NONE else received_code(code).name
        log.info("the fetch session with broker %d ended: %s", self.leader, reason)
