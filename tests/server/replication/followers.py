"""A follower with real logs in memory, and a leader whose every response the test writes."""

from __future__ import annotations

import random
from typing import Any

from klamm.broker.log.config import LogConfig
from klamm.broker.log.local_log import LogEnvironment
from klamm.broker.log.log import Log
from klamm.broker.log.memory import MemoryBudget
from klamm.broker.metadata_cache import MetadataCache
from klamm.broker.partition import HostedPartition
from klamm.broker.replica_manager import ReplicaManager
from klamm.broker.replication_quotas import ReplicationQuota
from klamm.configs.releases.inter_broker_protocol import MetadataVersion
from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode
from klamm.protocol.nouns import ZERO_UUID
from klamm.server.ground.background import BackgroundTasks
from klamm.server.local.driven_clock import DrivenClock
from klamm.server.metrics.metrics import NO_METRICS
from klamm.server.replication.fetcher import LeaderFetcher
from klamm.server.replication.followed_logs import FollowerServices
from klamm.server.replication.followers import Followers
from klamm.server.replication.leader_requests import FetcherOptions
from klamm.tests.broker.log.batches import batch
from klamm.tests.broker.update_metadata import broker, update
from klamm.tests.harness.waits import eventually
from klamm.tests.server.scripted import ScriptedBroker

ME, LEADER, EPOCH = 1, 2, 7
T, U = b"t" * 16, b"u" * 16
SESSION = 77
LISR, FETCH = messages.LeaderAndIsrRequest, messages.FetchResponse
BACKOFF_S = 1.0


class MemoryLogs:
    """Logs in memory, made when they are opened. `refused` makes opening fail."""

    on_disk = False

    def __init__(self) -> None:
        self.budget = MemoryBudget()
        self.opened: dict[tuple[str, int], Log] = {}
        self.refused: Exception | None = None

    def get(self, topic: str, partition: int) -> Log | None:
        return self.opened.get((topic, partition))

    async def open(self, topic: str, partition: int, topic_id: bytes, is_new: bool) -> Log:
        if self.refused is not None:
            raise self.refused
        environment = LogEnvironment(self.budget, lambda: 0, random.Random(0).randrange)
        return self.opened.setdefault((topic, partition), Log(topic, partition, topic_id, LogConfig(), environment))

    def delete(self, topic: str, partition: int) -> None:
        self.opened.pop((topic, partition), None)


class Leader(ScriptedBroker):
    """Broker 2. `fetched` waits for the next Fetch request, `serve` responds to the last request."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = 0

    async def next(self, api: str = "Fetch") -> Any:
        """The next request, which is of this API."""
        await eventually(lambda: len(self.requests) > self.seen, f"a {api} request")
        _, header, body = self.requests[self.seen]
        self.seen += 1
        assert messages.APIS[header.api_key].name == api
        return body

    @property
    def header(self) -> Any:
        """Of the last request."""
        return self.requests[self.seen - 1][1]

    def serve(self, *partitions: Any, topic: str = "t", topic_id: bytes = T, session_id: int = SESSION, error_code: int = 0) -> None:
        topics = [FETCH.FetchableTopicResponse(topic=topic, topic_id=topic_id, partitions=list(partitions))] if partitions else []
        self.answer(self.seen - 1, error_code, session_id=session_id, responses=topics)

    def reply(self, response: Any) -> None:
        number, header, _ = self.requests[self.seen - 1]
        body = messages.encode(response, header.api_version)
        self.writers[number].write(messages.encode_response(header.api_key, header.api_version, header.correlation_id, body))

    def reply_offsets(self, offset: int, index: int = 0, error_code: int = 0) -> None:
        response = messages.ListOffsetsResponse
        row = response.ListOffsetsPartitionResponse(
            partition_index=index, error_code=error_code, offset=offset, timestamp=-1, leader_epoch=0
        )
        if self.header.api_version == 0:
            row = row._replace(offset=-1, leader_epoch=-1, old_style_offsets=[offset])
        self.reply(response(topics=[response.ListOffsetsTopicResponse("t", [row])]))

    def reply_epochs(self, *rows: tuple[int, int, int, int]) -> None:
        """(index, error code, epoch, end offset) each."""
        response = messages.OffsetForLeaderEpochResponse
        results = [response.EpochEndOffset(partition=i, error_code=c, leader_epoch=e, end_offset=o) for i, c, e, o in rows]
        self.reply(response(topics=[response.OffsetForLeaderTopicResult("t", results)]))


def part(index: int = 0, records: bytes = b"", high_watermark: int = 0, error_code: int = 0, start: int = 0, **more: Any) -> Any:
    """One partition of a Fetch response."""
    if error_code:
        high_watermark = start = -1
    return FETCH.PartitionData(
        partition_index=index, error_code=error_code, high_watermark=high_watermark, log_start_offset=start, records=records, **more
    )


def diverging(epoch: int, end_offset: int, index: int = 0) -> Any:
    return part(index, diverging_epoch=FETCH.EpochEndOffset(epoch=epoch, end_offset=end_offset))


def named(request: Any, by_name: bool = False) -> list[tuple[Any, ...]]:
    """Partitions that a Fetch request names: (topic, index, leader epoch, offset, last epoch, log start offset)."""
    ids = {T: "t", U: "u"}
    return [
        (topic.topic if by_name else ids[topic.topic_id], p.partition, p.current_leader_epoch, p.fetch_offset, p.last_fetched_epoch,
         p.log_start_offset)
        for topic in request.topics
        for p in topic.partitions
    ]


def forgotten(request: Any) -> list[tuple[bytes, int]]:
    return [(topic.topic_id, index) for topic in request.forgotten_topics_data for index in topic.partitions]


class Follower:
    """Broker 1, which follows broker 2. Its clock stands still until the test moves it."""

    def __init__(self, leader: Leader, protocol: str = "3.9", **options: int) -> None:
        self.leader = leader
        self.clock = DrivenClock()
        self.logs = MemoryLogs()
        self.metadata = MetadataCache(ME)
        self.replicas = ReplicaManager(ME, self.metadata, self.logs, self.clock)
        fields = {
            "wait_max_ms": 500, "min_bytes": 1, "partition_max_bytes": 1 << 20, "response_max_bytes": 10 << 20, "backoff_ms": 1000,
            "socket_timeout_ms": 30_000, "request_timeout_ms": 30_000,
        } | options
        self.options = FetcherOptions(broker_id=ME, protocol=MetadataVersion.of(protocol), **fields)
        self.background = BackgroundTasks()
        self.quota = ReplicationQuota(11, 1, self.clock)
        services = FollowerServices(self.options, self.clock, lambda: 41, self.replicas.open_log, self.quota, NO_METRICS.replicated)
        self.followers = Followers(services, self.replicas, self.metadata, "PLAINTEXT", self.background)
        self.replicas.listeners.append(self.followers.apply)
        self.know_leader(leader.port)

    def know_leader(self, port: int) -> None:
        brokers = [broker(ME), broker(LEADER, host="127.0.0.1", port=port)]
        self.replicas.handle_update_metadata(update(brokers=brokers), EPOCH)

    def lead(self, *indexes: int, leader: int = LEADER, epoch: int = 0, topic: str = "t", topic_id: bytes = T) -> list[int]:
        """LeaderAndIsr: this broker leads, these partitions are led (by broker 2). Their codes."""
        states = [
            LISR.LeaderAndIsrPartitionState(
                partition_index=index, leader=leader, leader_epoch=epoch, partition_epoch=epoch, isr=[1, 2], replicas=[1, 2], is_new=True
            )
            for index in indexes or (0,)
        ]
        entry = LISR.LeaderAndIsrTopicState(topic_name=topic, topic_id=topic_id, partition_states=states)
        version = 7 if topic_id != ZERO_UUID else 4
        request = LISR(topic_states=[entry], controller_id=9, controller_epoch=1, broker_epoch=EPOCH)
        response, effects = self.replicas.handle_leader_and_isr(request, version, EPOCH)
        assert response.error_code == ErrorCode.NONE
        self.replicas.apply(effects)
        rows = response.partition_errors or [row for topic in response.topics for row in topic.partition_errors]
        return [row.error_code for row in rows]

    def stop(self, *indexes: int, delete: bool = False) -> None:
        request = messages.StopReplicaRequest
        rows = [request.StopReplicaPartitionState(index, -1, delete) for index in indexes]
        entry = request.StopReplicaTopicState("t", rows)
        _, effects = self.replicas.handle_stop_replica(
            request(topic_states=[entry], controller_id=9, controller_epoch=1, broker_epoch=EPOCH), 4, EPOCH
        )
        self.replicas.apply(effects)

    def hosted(self, index: int = 0, topic: str = "t") -> HostedPartition:
        hosted = self.replicas.get(topic, index)
        assert hosted is not None
        return hosted

    def log(self, index: int = 0) -> Log:
        return self.logs.opened["t", index]

    async def has_log(self, *epochs: int, index: int = 0, high_watermark: int = 0) -> Log:
        """A log with a record of each of these leader epochs, made before the partition is followed."""
        log = await self.logs.open("t", index, T, True)
        for offset, epoch in enumerate(epochs):
            log.append_as_follower(batch(base_offset=offset, leader_epoch=epoch), 0)
        log.set_high_watermark(high_watermark)
        return log

    async def adopt(self, index: int = 0) -> None:
        """The replica manager hosts the partition, with the log that was made."""
        self.lead(index, leader=ME, epoch=8)
        await self.replicas.open_log(self.hosted(index))

    @property
    def fetcher(self) -> LeaderFetcher:
        return self.followers.fetchers[LEADER, 0]

    async def backs_off(self) -> None:
        """Wait until the fetcher waits for a back-off, then let it pass."""
        await eventually(self.waits, "the fetcher waits for a back-off")
        assert self.leader.seen == len(self.leader.requests)
        await self.clock.advance(BACKOFF_S)

    def waits(self) -> bool:
        """Whether the fetcher waits for a back-off."""
        return any(not timer.is_cancelled and timer.due - self.clock.monotonic() <= BACKOFF_S for timer in self.clock._timers)

    async def close(self) -> None:
        await self.followers.close()
        await self.background.close()
        await self.leader.stop()


async def following(protocol: str = "3.9", **options: int) -> tuple[Leader, Follower]:
    """A leader that listens, and a follower that follows nothing yet."""
    leader = Leader()
    await leader.start()
    return leader, Follower(leader, protocol, **options)
