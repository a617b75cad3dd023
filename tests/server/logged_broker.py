"""A broker with logs, whose handlers are called without a network."""

from __future__ import annotations

import inspect
from typing import Any

from klamm.benchmarks.data_clusters import record_batch
from klamm.broker.log.log import Log
from klamm.broker.metadata_cache import MetadataCache
from klamm.broker.partition import HostedPartition
from klamm.protocol import messages
from klamm.protocol.nouns import TopicPartition
from klamm.server.apis import produce
from klamm.server.requests.context import Context
from klamm.server.requests.services import Services
from klamm.server.security.authorizer import Authorizer
from klamm.tests.broker import update_metadata
from klamm.tests.services import broker_config, make_context, make_services

GOOD = record_batch(b"value")


class Logged:
    """Broker 1 with real logs in memory: it leads t-0 (alone), t-1 (with broker 2) and t-4; broker 2 leads t-2; t-3 is offline."""

    def __init__(self, authorizer: Authorizer | None = None, **properties: object) -> None:
        metadata = MetadataCache(1)
        leaders = {0: (1, (1,)), 1: (1, (1, 2)), 2: (2, (2, 1)), 3: (1, (1, 2)), 4: (1, (1,))}
        states = [
            update_metadata.partition(p, leader, replicas, replicas, leader_epoch=p + 5) for p, (leader, replicas) in leaders.items()
        ]
        internal = update_metadata.topic("__consumer_offsets", 2, update_metadata.partition(0, 1, (1,), (1,), leader_epoch=5))
        metadata.update(update_metadata.update(update_metadata.topic("t", 1, *states), internal))
        config = broker_config(1, **properties)
        self.services: Services = make_services(metadata=metadata, authorizer=authorizer, config=config)
        lead = messages.LeaderAndIsrRequest
        for topic, topic_id, partitions in (("t", 1, leaders), ("__consumer_offsets", 2, {0: (1, (1,))})):
            rows = [
                lead.LeaderAndIsrPartitionState(
                    partition_index=p, leader=leader, leader_epoch=p + 5, isr=replicas, replicas=replicas, controller_epoch=1, is_new=True
                )
                for p, (leader, replicas) in partitions.items()
            ]
            state = lead.LeaderAndIsrTopicState(topic_name=topic, topic_id=topic_id.to_bytes(16, "big"), partition_states=rows)
            request = lead(controller_id=1, controller_epoch=1, broker_epoch=-1, topic_states=[state])
            handled = self.services.replicas.handle_leader_and_isr(request, 7, 1)
            self.services.replicas.apply(handled.effects)
        self.services.replicas.fail_log_dir([TopicPartition("t", 3)])

    def partition(self, index: int, topic: str = "t") -> HostedPartition:
        found = self.services.replicas.get(topic, index)
        assert found is not None
        return found

    async def log(self, index: int) -> Log:
        return await self.services.replicas.open_log(self.partition(index))

    def begin(self, asked: Any, version: int = 11, client_id: str = "test") -> tuple[Context, Any]:
        """Handle a request as it came over the wire; what the handler returned."""
        ctx = make_context(self.services, 0, version)
        ctx.client_id = client_id
        received = messages.decode("ProduceRequest", version, messages.encode(asked, version))[0]
        return ctx, produce.handle(ctx, received)

    async def rows(self, asked: Any, version: int = 11, client_id: str = "test") -> list[Any]:
        """The rows of the response as a client of this version reads them."""
        return [row for topic in (await self.response(asked, version, client_id)).responses for row in topic.partition_responses]

    async def response(self, asked: Any, version: int = 11, client_id: str = "test") -> Any:
        _, response = self.begin(asked, version, client_id)
        while inspect.isawaitable(response):
            response = await response
        return messages.decode("ProduceResponse", version, messages.encode(response, version))[0]


def asked_for(
    *partitions: tuple[str, int, bytes | None], acks: int = 1, timeout_ms: int = 30_000, transactional_id: str | None = None
) -> Any:
    asked = messages.ProduceRequest
    topics = [
        asked.TopicProduceData(name=name, partition_data=[asked.PartitionProduceData(index=index, records=records)])
        for name, index, records in partitions
    ]
    return asked(acks=acks, timeout_ms=timeout_ms, topic_data=topics, transactional_id=transactional_id)


async def fetched_by_2(logged: Logged, index: int, offset: int) -> None:
    logged.services.replicas.follower_requested(2)
    logged.services.replicas.follower_fetched(logged.partition(index), 2, -1, offset, 0)
