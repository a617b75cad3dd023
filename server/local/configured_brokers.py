"""What local clusters have in common, whether their brokers share a process or not: the properties of each broker, and the ZooKeeper.

A broker that starts again takes its former ports. A cluster that is given no ZooKeeper starts an embedded one, and stops it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypedDict

from klamm.configs.broker_config import BrokerConfig
from klamm.configs.definitions.types import ConfigError
from klamm.server.configs.properties_log import log_properties
from klamm.server.local.arguments import (
    Advertised,
    SeedTopic,
    check_broker_configs,
    listener_properties,
    log_directory,
    metrics_endpoint,
    with_internal_topics,
    with_own_log_directories,
)
from klamm.server.local.own_zookeeper import Users, reach_zookeeper, wait_for_end
from klamm.zk.embedded.server import EmbeddedZooKeeper


class Shape(TypedDict, total=False):
    """The arguments of all local clusters besides the number of brokers."""

    host: str
    port: int
    """The port of the first broker, 0 (the default) for any free ports."""
    advertised: Advertised | None
    """Clients find the brokers there, and brokers have listeners of their own; `port` is then not 0."""
    metrics_port: int | None
    """The port of the first broker's metrics, 0 for free ones, None for no metrics."""
    zookeeper: str | EmbeddedZooKeeper | None
    """host:port[,…][/chroot], or an embedded ZooKeeper that the cluster starts and stops. With None it makes one, in `data_dir`."""
    data_dir: Path | None
    """Each broker has its log directory there. Without it logs are in memory."""
    config: Mapping[str, str] | None
    """The properties of all brokers."""
    broker_configs: Mapping[int, Mapping[str, str]] | None
    """Properties of single brokers, by their ids, which come before those of all."""
    topics: Sequence[SeedTopic]
    users: Users | None
    """They are stored with these configs before the brokers start."""
    client: Mapping[str, str] | None
    """What clients need besides `bootstrap_servers`, with the names of librdkafka."""


class ConfiguredBrokers:
    """Brokers 1 to `count`."""

    def __init__(
        self,
        brokers: int,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        advertised: Advertised | None = None,
        metrics_port: int | None = None,
        zookeeper: str | EmbeddedZooKeeper | None = None,
        data_dir: Path | None = None,
        config: Mapping[str, str] | None = None,
        broker_configs: Mapping[int, Mapping[str, str]] | None = None,
        topics: Sequence[SeedTopic] = (),
        users: Users | None = None,
        client: Mapping[str, str] | None = None,
    ) -> None:
        """The arguments are those of `Shape`."""
        self._count = brokers
        self._host = f"[{host}]" if ":" in host else host
        self._port = port
        self._advertised = advertised
        self._metrics_port = metrics_port
        self._data_dir = data_dir
        self._config = with_internal_topics(config, brokers)
        self._broker_configs = {number: dict(own) for number, own in (broker_configs or {}).items()}
        self._topics = topics
        self._users = users
        self._kept_ports: dict[int, tuple[int, int | None]] = {}
        """The ports of a broker for clients and for metrics, which it takes again."""
        self.client = dict(client or {})
        """What clients need besides `bootstrap_servers`, with the names of librdkafka."""
        self.cluster_id = ""
        self.zookeeper = ""
        self._embedded: EmbeddedZooKeeper | None = None
        match zookeeper:
            case str():
                self.zookeeper = zookeeper
            case EmbeddedZooKeeper():
                self._embedded = zookeeper
            case None:
                self._embedded = EmbeddedZooKeeper(None if data_dir is None else data_dir / "zookeeper")

    @property
    def count(self) -> int:
        """How many brokers the cluster has, those that do not run included; their ids are 1 to this number."""
        return self._count

    @property
    def addresses(self) -> list[tuple[int, str, int]]:
        """(id, host, port) of the inter-broker listener of each running broker, sorted by id."""
        raise NotImplementedError

    @property
    def bootstrap_servers(self) -> str:
        """host:port of every running broker, separated by commas."""
        return ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for _, host, port in self.addresses)

    def config_of(self, broker_id: int) -> BrokerConfig:
        """The configs of a broker. Raises ConfigError."""
        return BrokerConfig(self._properties(broker_id))

    def _properties(self, broker_id: int) -> dict[str, str]:
        first = 0 if self._port == 0 else self._port + broker_id - 1
        port, metrics_port = self._kept_ports.get(broker_id, (first, None))
        port = port if self._advertised is None else first
        protocol = self._config.get("security.inter.broker.protocol", "PLAINTEXT")
        properties = {"broker.id": str(broker_id), "zookeeper.connect": self.zookeeper}
        properties |= listener_properties(protocol, self._host, port, broker_id, self._advertised)
        properties |= log_directory(self._data_dir, broker_id) | metrics_endpoint(self._metrics_port, broker_id)
        if metrics_port is not None:
            properties["klamm.metrics.port"] = str(metrics_port)
        config = self._config | self._broker_configs.get(broker_id, {})
        return properties | with_own_log_directories(config, broker_id, self._count)

    def _add_next(self, config: Mapping[str, str] | None) -> int:
        """Have one more broker, with the next id and these properties besides those of all. Returns its id. Raises ValueError."""
        number = self._count + 1
        check_broker_configs({number: config or {}}, number)
        self._broker_configs[number] = dict(config or {})
        self._count = number
        try:
            self.config_of(number)
        except ConfigError as error:
            self._remove_last()
            raise ValueError(str(error)) from None
        return number

    def _remove_last(self) -> None:
        """The broker that was added cannot start: the cluster is as before, and the next one has its id."""
        del self._broker_configs[self._count]
        self._count -= 1

    async def _reach_zookeeper(self) -> BrokerConfig:
        """Start the embedded ZooKeeper, if there is one, and wait for it. Returns the configs of the first broker, which the log has now.

        Raises EmbeddedZooKeeperError, ConfigError, StartFailed.
        """
        if self._embedded is not None:
            if not self._embedded.running:
                await _in_thread(self._embedded.start)
            self.zookeeper = self._embedded.address
        config = self.config_of(1)
        log_properties(config, "")
        await reach_zookeeper(self.zookeeper, config, range(1, self._count + 1) if self._embedded is not None else (), self._users)
        return config

    async def _stop_zookeeper(self) -> None:
        if self._embedded is not None:
            await asyncio.to_thread(self._embedded.stop)

    async def failure(self) -> None:
        """Wait until the embedded ZooKeeper ends by itself, then raise EmbeddedZooKeeperError with the reason."""
        await wait_for_end(self._embedded)


async def _in_thread(work: Callable[[], object]) -> None:
    """Run work in a thread that cannot be cancelled. A cancelled caller waits for its end, so that the work can be undone."""
    running = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait({running})
        raise
