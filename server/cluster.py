"""Several brokers in one process and one event loop, with a ZooKeeper of their own when none is given.

Each broker has its own session, listener and controller, and talks to the others over TCP: to a client this is a cluster like any
other. It is ready when every broker is registered, one of them is controller, and every broker's metadata cache shows all of them
and the topics that were asked for.

It stops as a whole: brokers in descending order of their ids, the controller last, each with a controlled shutdown that does not
wait for what cannot happen any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from klamm.broker.config import BrokerConfig
from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode, RemoteProtocolError
from klamm.server.node import Node, StartFailed
from klamm.server.outgoing import ask
from klamm.zk.embedded import EmbeddedZooKeeper
from klamm.zk.paths import CONTROLLER, broker_path
from klamm.zk.session import ZkSession

CREATE_TOPICS, CREATE_TOPICS_VERSION = 19, 7
LOOK_S = 0.002
START_TIMEOUT_S = 60.0
SESSION_TIMEOUT_MS = 10_000


class SeedTopic(NamedTuple):
    """A topic to create at start, unless it exists."""

    name: str
    partitions: int
    replication_factor: int


class LocalCluster:
    """Brokers 1 to `brokers`. `port` is the first one's, 0 for free ports; `config` holds properties of all of them."""

    def __init__(
        self,
        brokers: int = 3,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        zookeeper: str | EmbeddedZooKeeper | None = None,
        data_dir: Path | None = None,
        config: Mapping[str, str] | None = None,
        topics: Sequence[SeedTopic] = (),
    ) -> None:
        """`zookeeper` is host:port[,…][/chroot], or an embedded one to own; None makes one, which keeps its data in `data_dir`."""
        self.nodes: list[Node] = []
        self._brokers = brokers
        self._host = host
        self._port = port
        self._config = dict(config or {})
        self._topics = topics
        self._embedded: EmbeddedZooKeeper | None = None
        self.zookeeper = ""
        match zookeeper:
            case str():
                self.zookeeper = zookeeper
            case EmbeddedZooKeeper():
                self._embedded = zookeeper
            case None:
                self._embedded = EmbeddedZooKeeper(None if data_dir is None else data_dir / "zookeeper")

    @property
    def cluster_id(self) -> str:
        return self.nodes[0].cluster_id

    @property
    def controller_id(self) -> int:
        """Broker id of the controller, -1 when there is none right now."""
        return next((node.id for node in self.nodes if node.controller.is_active), -1)

    @property
    def addresses(self) -> list[tuple[int, str, int]]:
        """(id, host, port) of each broker's inter-broker listener, by id."""
        return [(node.id, e.host, e.port) for node in self.nodes for e in node.advertised if e.listener == node.inter_broker_listener]

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for _, host, port in self.addresses)

    async def start(self) -> None:
        """Come up and be ready. Raises StartFailed (or EmbeddedZooKeeperError, ConfigError) with everything stopped again."""
        try:
            if self._embedded is not None:
                if not self._embedded.running:
                    await asyncio.to_thread(self._embedded.start)
                self.zookeeper = self._embedded.address
                await self._clear_leftovers()
            self.nodes = [Node(self._broker_config(number), patient=False) for number in range(1, self._brokers + 1)]
            started = await asyncio.gather(*(node.start() for node in self.nodes), return_exceptions=True)
            for failure in started:
                if failure is not None:
                    raise failure
            async with asyncio.timeout(START_TIMEOUT_S):
                await self._shown([])
                await self._create_topics()
        except TimeoutError:
            await self.stop()
            raise StartFailed(f"the cluster was not ready within {START_TIMEOUT_S:g} s") from None
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop every broker in order, then the ZooKeeper that was started. Also after a start that failed."""
        for node in sorted(self.nodes, key=lambda node: (not self._is_controller(node), node.id), reverse=True):
            await node.stop()
        if self._embedded is not None:
            await asyncio.to_thread(self._embedded.stop)

    @staticmethod
    def _is_controller(node: Node) -> bool:
        return node.started and node.controller.is_active

    def _broker_config(self, number: int) -> BrokerConfig:
        port = 0 if self._port == 0 else self._port + number - 1
        host = f"[{self._host}]" if ":" in self._host else self._host
        properties = {"broker.id": str(number), "listeners": f"PLAINTEXT://{host}:{port}", "zookeeper.connect": self.zookeeper}
        return BrokerConfig(properties | self._config)

    async def _clear_leftovers(self) -> None:
        """A ZooKeeper that was killed with its owner still holds that owner's ephemeral nodes, until their sessions expire."""
        session = ZkSession(self.zookeeper, SESSION_TIMEOUT_MS)
        await session.start(SESSION_TIMEOUT_MS)
        try:
            for path in (CONTROLLER, *(broker_path(number) for number in range(1, self._brokers + 1))):
                await session.delete(path)
        finally:
            await session.stop()

    async def _shown(self, topics: Sequence[SeedTopic]) -> None:
        """Wait until there is a controller and every broker's metadata cache shows all brokers and these topics, with leaders."""
        ids = {node.id for node in self.nodes}
        while not all(_shows(node, ids, topics) for node in self.nodes):  # noqa: ASYNC110 no one event says that all caches agree
            await asyncio.sleep(LOOK_S)

    async def _create_topics(self) -> None:
        """As any client would: the controller is asked, and asked again while there is none."""
        topic_type = messages.CreateTopicsRequest.CreatableTopic
        topics = [
            topic_type(name=t.name, num_partitions=t.partitions, replication_factor=t.replication_factor, assignments=[], configs=[])
            for t in self._topics
        ]
        request = messages.CreateTopicsRequest(topics=topics, timeout_ms=int(START_TIMEOUT_S * 1000))
        while topics:
            try:
                _, host, port = next(address for address in self.addresses if address[0] == self.controller_id)
                answer = await ask(host, port, CREATE_TOPICS, CREATE_TOPICS_VERSION, "klamm", request, START_TIMEOUT_S)
            except (StopIteration, OSError, RemoteProtocolError):
                answer = None
            if answer is not None and all(row.error_code != ErrorCode.NOT_CONTROLLER for row in answer.topics):
                break
            await asyncio.sleep(LOOK_S)
        else:
            return
        for row in answer.topics:
            if row.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                reason = row.error_message or ErrorCode(row.error_code).name
                raise StartFailed(f"topic {row.name} cannot be created: {reason}")
        await self._shown(self._topics)


def _shows(node: Node, ids: set[int], topics: Sequence[SeedTopic]) -> bool:
    metadata = node.metadata
    if metadata.controller_id is None or not ids <= metadata.brokers.keys():
        return False
    return all(metadata.contains(t.name) and all(p.leader >= 0 for p in metadata.topics[t.name].partitions.values()) for t in topics)
