"""`klamm serve`: a whole cluster at once, in this process, with a ZooKeeper of its own when none is named.

The embedded ZooKeeper is started first, in a thread; the rooms that a broker needs are imported while its JVM comes up. stdout gets
exactly what scripts need, once everything is ready; all else goes to stderr.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING

import click

from klamm.cli.lifetime import StopSignals, live
from klamm.cli.logs import log_level_option, log_to_stderr
from klamm.cli.parameters import KEY_VALUE, TOPIC, SeededTopic

if TYPE_CHECKING:
    from klamm.server.cluster import LocalCluster

OWN_PROPERTIES = frozenset({"advertised.listeners", "broker.id", "listeners", "node.id", "zookeeper.connect"})
EVERY_ADDRESS = frozenset({"", "0.0.0.0", "::"})


@click.command(short_help="Run a cluster: brokers in one process and a ZooKeeper.")
@click.option("--brokers", type=click.IntRange(1, 100), default=3, show_default=True, help="How many brokers; their ids are 1, 2, 3, …")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on and to advertise.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=9092,
    show_default=True,
    help="The first broker's port, the others follow it; 0 takes free ports.",
)
@click.option(
    "--zookeeper", metavar="HOST:PORT[,…][/CHROOT]", help="Use this ZooKeeper. Without it an embedded one is started, which needs Java."
)
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False),
    help="Keep the data here, so that topics survive a restart. Without it they lie in a temporary folder that goes at exit.",
)
@click.option("--config", "configs", multiple=True, type=KEY_VALUE, help="A property for all brokers; may be given again and again.")
@click.option("--topic", "topics", multiple=True, type=TOPIC, help="Create this topic unless it exists; may be given again and again.")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON instead of the addresses.")
@log_level_option
def command(
    brokers: int,
    host: str,
    port: int,
    zookeeper: str | None,
    data_dir: Path | None,
    configs: tuple[tuple[str, str], ...],
    topics: tuple[SeededTopic, ...],
    as_json: bool,
    log_level: str,
) -> None:
    """Run a cluster: some brokers in one process, and a real ZooKeeper.

    When every broker is registered, the controller is elected, and every broker knows all brokers and topics, the addresses are printed on
    stdout, one a line, or with --json one line with bootstrap_servers, brokers, controller_id, cluster_id and zookeeper.

    SIGINT (Ctrl-C) or SIGTERM shuts down in order within two seconds and exits with 0; a second one exits at once.

    \b
    klamm serve
    klamm serve --port 0 --json --topic orders:6:3
    klamm serve --data-dir ./data --config auto.leader.rebalance.enable=false
    """
    log_to_stderr(log_level)
    _check(brokers, host, port, dict(configs))
    signals = StopSignals()
    embedded = None if zookeeper is not None else EarlyZooKeeper(data_dir)

    from klamm.server.cluster import LocalCluster, SeedTopic
    from klamm.server.run import run

    cluster = LocalCluster(
        brokers,
        host=host,
        port=port,
        zookeeper=embedded.zookeeper if embedded is not None else zookeeper,
        config=dict(configs),
        topics=[SeedTopic(*topic) for topic in topics],
    )
    run(lambda: live(Served(cluster, embedded), signals, lambda: click.echo(_as_json(cluster) if as_json else _as_lines(cluster))))


def _check(brokers: int, host: str, port: int, config: Mapping[str, str]) -> None:
    """What no option can say by itself."""
    if port + brokers - 1 > 65535:
        raise click.BadParameter(f"{port} leaves no ports for {brokers} brokers", param_hint="--port")
    if host in EVERY_ADDRESS:
        raise click.BadParameter("clients are told this address; name one that they can reach", param_hint=f"--host {host}")
    for name in OWN_PROPERTIES & config.keys():
        raise click.BadParameter("differs from broker to broker and is settled by the other options", param_hint=f"--config {name}")


class EarlyZooKeeper:
    """The embedded ZooKeeper, starting in a thread from the moment this is made."""

    def __init__(self, data_dir: Path | None) -> None:
        from klamm.zk.embedded import EmbeddedZooKeeper

        self.zookeeper = EmbeddedZooKeeper(None if data_dir is None else data_dir / "zookeeper")
        self.started: Future[None] = Future()
        threading.Thread(target=self._start, name="embedded-zookeeper", daemon=True).start()

    def _start(self) -> None:
        try:
            self.zookeeper.start()
        except BaseException as failure:  # noqa: BLE001 - whoever waits for `started` gets it
            self.started.set_exception(failure)
        else:
            self.started.set_result(None)


class Served:
    """The cluster, after its ZooKeeper is there."""

    def __init__(self, cluster: LocalCluster, embedded: EarlyZooKeeper | None) -> None:
        self._cluster = cluster
        self._embedded = embedded

    async def start(self) -> None:
        """Come up; returns when ready."""
        if self._embedded is not None:
            await asyncio.wrap_future(self._embedded.started)
        await self._cluster.start()

    async def stop(self) -> None:
        """Brokers first, then the ZooKeeper."""
        await self._cluster.stop()


def _as_lines(cluster: LocalCluster) -> str:
    return cluster.bootstrap_servers.replace(",", "\n")


def _as_json(cluster: LocalCluster) -> str:
    return json.dumps(
        {
            "bootstrap_servers": cluster.bootstrap_servers,
            "brokers": [{"id": number, "host": host, "port": port} for number, host, port in cluster.addresses],
            "controller_id": cluster.controller_id,
            "cluster_id": cluster.cluster_id,
            "zookeeper": cluster.zookeeper,
        }
    )
