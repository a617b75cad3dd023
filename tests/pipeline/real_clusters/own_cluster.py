"""A cluster of Klamm that lives through what the rules judge, with its journal on.

Creations, elections clean and unclean, shrinks, growths, reassignments with and without throttle, deaths of brokers, moves of the
controller, deletions, configs, the blacklist, requests that nobody offers, consumers in groups, transactions, sequence numbers, a broker
with SASL. Each step waits for its effect. What the brokers decided and sent is in the lake afterwards. Some clients come through a proxy,
which has a lake of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from struct import Struct
from typing import Any

import pytest

from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.server.broker_server import BrokerServer
from klamm.server.local.arguments import SeedTopic
from klamm.server.local.cluster import LocalCluster
from klamm.testing.proxies.library import Proxy
from klamm.tests.harness import requests
from klamm.tests.harness.client import Client, ConnectionClosed
from klamm.tests.harness.waits import eventually
from klamm.tests.pipeline.real_clusters.group_session import live_in_groups
from klamm.tests.pipeline.real_clusters.sequence_session import live_authenticated, live_with_sequences
from klamm.tests.pipeline.real_clusters.transaction_session import live_with_transactions
from klamm.tests.server.brokers import node, request

CONFIG = {
    "auto.leader.rebalance.enable": "true",
    "leader.imbalance.check.interval.seconds": "1",
    "replica.lag.time.max.ms": "2000",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "2",
    "group.initial.rebalance.delay.ms": "0",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}
MOVED_S = 60.0
USER, PASSWORD = "eve", "secret"
_HEADER = Struct(">hhih4s")
_CODE = Struct(">h")


async def live_through_much(zookeeper: str, lake: Path, run: str, proxy_lake: Path) -> None:
    """The whole story. The journals are sealed when it returns."""
    config = {**CONFIG, "klamm.journal.dir": str(lake), "klamm.journal.run": run}
    cluster = LocalCluster(4, zookeeper=zookeeper, config=config, topics=[SeedTopic("t", 4, 3)])
    await cluster.start()
    try:
        story = OwnStory(cluster)
        await story.topics()
        await story.strangers()
        async with Proxy(story.bootstrap, journal=proxy_lake, run=run) as proxy:
            story.bootstrap = proxy.bootstrap_servers
            await story.groups()
            await story.transactions()
            await story.sequences()
        await story.deaths()
        await story.unclean()
        await story.moves()
        await story.blacklist()
        await cluster.move_controller()
        await story.metadata()
        await story.deletion()
        await story.authenticated(zookeeper, config)  # last: no replica may be placed on its broker, which leaves
    finally:
        await cluster.stop()


class OwnStory:
    """Its chapters."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self.bootstrap = ",".join(f"{broker.advertised[0].host}:{broker.advertised[0].port}" for broker in cluster.brokers)
        """Where clients in groups and with transactions begin."""

    @property
    def controller(self) -> BrokerServer:
        return next(broker for broker in self.cluster.brokers if broker.id == self.cluster.controller_id)

    async def ask(self, key: int, version: int, message: Any) -> Any:
        """A request to the controller, which may just be moving."""
        await eventually(lambda: self.cluster.controller_id in [b.id for b in self.cluster.brokers], "there is a controller")
        return await request(self.controller, key, version, message)

    def partitions(self, topic: str) -> list[Any]:
        """As the controller remembers them; none without one."""
        if self.cluster.controller_id < 0 or (term := self.controller.controller.term) is None:
            return []
        return [p for p in term.cluster.partitions() if p.topic.name == topic]

    def state(self, topic: str, partition: int = 0) -> Any:
        """As the controller remembers it; None without one."""
        return next((p.info for p in self.partitions(topic) if p.index == partition), None)

    async def leads(self, broker: int, topic: str, isr: set[int] | None = None, partition: int = 0) -> None:
        """Wait until this broker leads, with this ISR where one is given."""

        def look() -> bool:
            state = self.state(topic, partition)
            return state is not None and state.leader == broker and (isr is None or set(state.isr) == isr)

        await eventually(look, f"broker {broker} leads {topic}-{partition} with ISR {isr}", within_s=MOVED_S)

    async def topics(self) -> None:
        """Topics of several shapes are created and grow; every broker shows them."""
        for name, assignment in (("u", [[3, 4]]), ("m", [[1, 2]] * 3), ("d", [[1, 2, 3], [2, 3, 4]])):
            made = await self.ask(ApiKey.CREATE_TOPICS, 7, requests.create_topic(name, assignment))
            assert [row.error_code for row in made.topics] == [0]
        await self.ask(ApiKey.CREATE_PARTITIONS, 3, requests.create_partitions("d", 3, [[4, 1, 2]]))
        await self.metadata()

    async def strangers(self) -> None:
        """Clients that speak a future version, an unknown API, a protocol of groups that is not on, and ask a broker that is not the
        controller."""
        other = next(broker for broker in self.cluster.brokers if broker.id != self.cluster.controller_id)
        client = Client(other.advertised[0].host, other.advertised[0].port)
        response = await client.frame(_HEADER.pack(ApiKey.API_VERSIONS, 99, 1, 4, b"test") + bytes(1))
        assert response[4:6] == _CODE.pack(ErrorCode.UNSUPPORTED_VERSION)
        with pytest.raises(ConnectionClosed):
            await client.frame(_HEADER.pack(999, 0, 2, 4, b"test"))
        await client.close()
        for _ in range(2):
            refused = await request(other, ApiKey.CREATE_TOPICS, 7, requests.create_topic("no", [[1]]))
            assert [row.error_code for row in refused.topics] == [ErrorCode.NOT_CONTROLLER]
            await request(other, ApiKey.METADATA, 12, requests.metadata(None))
        await request(other, ApiKey.ELECT_LEADERS, 2, requests.elect_leaders(None))
        beat = messages.ConsumerGroupHeartbeatRequest("new", rebalance_timeout_ms=60_000, subscribed_topic_names=["t"], topic_partitions=[])
        refused = await request(other, ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, beat)
        assert refused.error_code == ErrorCode.UNSUPPORTED_VERSION

    async def authenticated(self, zookeeper: str, config: Mapping[str, str]) -> None:
        """A broker with a listener for SASL joins, serves a client that authenticates, and leaves."""
        jaas = f'org.apache.kafka.common.security.plain.PlainLoginModule required "user_{USER}"="{PASSWORD}";'
        settings: dict[str, Any] = {name.replace(".", "_"): value for name, value in config.items()} | {
            "listeners": "PLAINTEXT://127.0.0.1:0,SASL://127.0.0.1:0",
            "listener_security_protocol_map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT",
            "sasl_enabled_mechanisms": "PLAIN", "listener_name_sasl_plain_sasl_jaas_config": jaas,
        }
        broker = node(zookeeper, 5, **settings)
        await broker.start()
        try:
            await eventually(lambda: 5 in broker.metadata.brokers, "broker 5 knows itself")
            port = next(listener.port for listener in broker.listeners if listener.name == "SASL")
            await live_authenticated("127.0.0.1", port, USER, PASSWORD)
        finally:
            await broker.close()

    async def groups(self) -> None:
        """Consumers live in groups; somebody who is not a member sends heartbeats."""
        await asyncio.to_thread(live_in_groups, self.bootstrap, "t", 4)
        for broker in self.cluster.brokers:
            for _ in range(2):
                beat = messages.HeartbeatRequest(group_id="group-range", generation_id=1, member_id="gone")
                response = await request(broker, ApiKey.HEARTBEAT, 3, beat)
                assert response.error_code in (ErrorCode.NOT_COORDINATOR, ErrorCode.UNKNOWN_MEMBER_ID)

    async def transactions(self) -> None:
        """Producers with transactions of each outcome, in a topic of their own."""
        brokers = [broker.id for broker in self.cluster.brokers]
        made = await self.ask(ApiKey.CREATE_TOPICS, 7, requests.create_topic("accounts", [[brokers[p % len(brokers)]] for p in range(4)]))
        assert [row.error_code for row in made.topics] == [0]
        await asyncio.to_thread(live_with_transactions, self.bootstrap, "accounts", 4)

    async def sequences(self) -> None:
        """A producer with sequence numbers, at the leader of a topic of its own."""
        made = await self.ask(ApiKey.CREATE_TOPICS, 7, requests.create_topic("numbers", [[1, 2]]))
        assert [row.error_code for row in made.topics] == [0]
        await self.leads(1, "numbers", {1, 2})
        host, port = self.bootstrap.split(",")[0].rsplit(":", 1)
        known = await Client(host, int(port)).ask(requests.metadata(["numbers"]), 12)
        leader = next(broker for broker in known.brokers if broker.node_id == known.topics[0].partitions[0].leader_id)
        await live_with_sequences(leader.host, leader.port, "numbers")

    async def metadata(self) -> None:
        """Metadata in old and new versions from every broker."""
        for broker in self.cluster.brokers:
            for version in (4, 9, 12):
                await request(broker, ApiKey.METADATA, version, requests.metadata(None))

    async def deaths(self) -> None:
        """A broker dies and comes back, another one stops in order and comes back, preferred leaders are elected."""
        victim = next(b for b in (2, 3, 1) if b != self.cluster.controller_id)
        await self.cluster.kill_broker(victim, expire=True)
        await self.metadata()
        await self.cluster.start_broker(victim)
        stopped = next(b for b in (1, 4) if b != self.cluster.controller_id)
        await self.cluster.stop_broker(stopped)
        await self.cluster.start_broker(stopped)

        def whole() -> bool:
            return all((state := self.state("t", p)) is not None and len(state.isr) == 3 for p in range(4))

        await eventually(whole, "all replicas of t are in sync", within_s=MOVED_S)
        await self.ask(ApiKey.ELECT_LEADERS, 2, requests.elect_leaders(None))
        await self.ask(ApiKey.ELECT_LEADERS, 0, requests.elect_leaders([("t", 0)], version=0))
        await self.metadata()

    async def unclean(self) -> None:
        """Both replicas of `u` die one after the other, and the wrong one comes back."""
        if self.cluster.controller_id in (3, 4):
            await self.cluster.move_controller(1)
        await self.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, requests.set_configs(2, "u", {"unclean.leader.election.enable": "true"}))
        await self.leads(3, "u", {3, 4})
        await self.cluster.kill_broker(4, expire=True)
        await self.leads(3, "u", {3})
        await self.cluster.kill_broker(3, expire=True)
        await self.leads(-1, "u")
        await self.cluster.start_broker(4)
        await self.leads(4, "u")
        await self.cluster.start_broker(3)
        await self.leads(4, "u", {3, 4})

    async def moves(self) -> None:
        """Reassignments: one of Kafka's, one that is cancelled, and one with a throttle."""
        await self._reassign({0: (3, 4), 1: (2, 1)})
        await self._moved({0: (3, 4), 1: (2, 1)})
        row = messages.ReassignPartitionsRequest
        moves = [row.Partition(partition_id=2, brokers=(4, 3)), row.Partition(partition_id=0, brokers=(1, 2))]
        topic = row.Topic(name="m", partitions=moves)
        answer = await self.ask(
            ApiKey.REASSIGN_PARTITIONS, 0,
            row(topics=[topic], timeout=30_000, validate_only=False, throttle=50_000_000, remove_throttle=True),
        )
        assert {p.error_code for t in answer.topics for p in t.partitions} == {0}
        await self._moved({2: (4, 3), 0: (1, 2)})
        await self._reassign({1: (2, 3)})
        await self._reassign({1: None})
        await self.metadata()

    async def _reassign(self, targets: dict[int, Sequence[int] | None]) -> None:
        row = messages.AlterPartitionReassignmentsRequest
        rows = [row.ReassignablePartition(partition_index=p, replicas=replicas) for p, replicas in targets.items()]
        await self.ask(
            ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, row(timeout_ms=30_000, topics=[row.ReassignableTopic(name="m", partitions=rows)])
        )

    async def _moved(self, targets: dict[int, Sequence[int]]) -> None:
        def look() -> bool:
            term = self.controller.controller.term if self.cluster.controller_id > 0 else None
            if term is None or term.cluster.reassigning:
                return False
            now = {p.index: p.assignment for p in term.cluster.partitions() if p.topic.name == "m"}
            return all(now[p].replicas == tuple(replicas) and not now[p].adding for p, replicas in targets.items())

        await eventually(look, f"the partitions of m are at {targets}", within_s=MOVED_S)

    async def blacklist(self) -> None:
        """Broker 1 is listed. It and broker 2 are bounced; the rebalance gives broker 2 its partition back, and broker 1 nothing."""
        if self.cluster.controller_id != 4:
            await self.cluster.move_controller(4)
        await self.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, requests.set_configs(4, "", {"preferred_leader_blacklist": "1"}))
        for bounced in (1, 2):
            await self.cluster.stop_broker(bounced)
            await self.cluster.start_broker(bounced)
        preferred = {p.assignment.replicas[0]: p.index for p in self.partitions("t")}
        await self.leads(2, "t", partition=preferred[2])
        assert self.state("t", preferred[1]).leader != 1
        await self.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, requests.set_configs(4, "", {"preferred_leader_blacklist": None}))
        await self.leads(1, "t", partition=preferred[1])

    async def deletion(self) -> None:
        """A topic is deleted and created again."""
        await self.ask(ApiKey.DELETE_TOPICS, 6, requests.delete_topics("d"))

        def gone() -> bool:
            term = self.controller.controller.term
            return term is not None and all(p.topic.name != "d" for p in term.cluster.partitions())

        await eventually(gone, "the topic is deleted", within_s=MOVED_S)
        made = await self.ask(ApiKey.CREATE_TOPICS, 7, requests.create_topic("d", [[2, 1]]))
        assert [row.error_code for row in made.topics] == [0]
        await self.metadata()
