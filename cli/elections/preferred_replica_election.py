"""`klamm preferred-replica-election`: the tool of KIP-183 (controller 21.3), through brokers or, deprecated, through ZooKeeper.

Through brokers, the tool prints the outcome of each partition after the elections. Through ZooKeeper, it only writes the request to
`/admin/preferred_replica_election`, where the controller reads it. Then it prints exactly what the tool of Kafka 2.2 printed, except for
the warning on stderr.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import click

from klamm.cli.shell.output import say
from klamm.cli.tools.options import admin_config_option, bootstrap_option, zookeeper_option
from klamm.protocol.nouns import TopicPartition

TIMEOUT_MS = 30_000


@click.command(short_help="Make preferred replicas the leaders of their partitions.")
@bootstrap_option()
@zookeeper_option
@click.option(
    "--path-to-json-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help='File with partitions: {"partitions":[{"topic":"orders","partition":0}]}. Default: all partitions.',
)
@admin_config_option()
def command(bootstrap_server: str | None, zookeeper: str | None, path_to_json_file: Path | None, command_config: Path | None) -> None:
    """Make the preferred replica of each partition its leader.

    The preferred replica is the first one in a partition's list of replicas. When a topic is created, preferred replicas are spread over
    the brokers. A broker that restarts is no longer a leader; this command makes it leader again for partitions whose preferred replica it
    is. The preferred replica must be alive and in sync.

    If the dynamic config preferred_leader_blacklist names one of the replicas, the leader is the first replica that is alive, in sync and
    not on that list. If there is none, it is the first replica that is alive and in sync.

    With auto.leader.rebalance.enable=true, which is the default, the controller does this every five minutes, and this command is not
    needed.

    \b
    klamm preferred-replica-election --bootstrap-server localhost:9092
    klamm preferred-replica-election --bootstrap-server localhost:9092 --path-to-json-file partitions.json
    """
    if (bootstrap_server is None) == (zookeeper is None):
        raise click.UsageError("exactly one of --bootstrap-server and --zookeeper is needed")
    if zookeeper is not None and command_config is not None:
        raise click.UsageError("--command-config or --admin.config needs --bootstrap-server; it cannot be used with --zookeeper")
    logging.getLogger().addHandler(logging.NullHandler())  # hides log lines of libraries: the tool reports the same in its own words

    from klamm.cli.tools.files import read_partitions

    partitions = None if path_to_json_file is None else read_partitions(path_to_json_file)
    if zookeeper is not None:
        asyncio.run(_by_zookeeper(zookeeper, partitions))
    elif bootstrap_server is not None:
        asyncio.run(_by_brokers(bootstrap_server, partitions, command_config))


async def _by_brokers(bootstrap_server: str, partitions: list[TopicPartition] | None, command_config: Path | None) -> None:
    """Elect leaders and print the outcome of each partition. Raises ToolFailed if one failed."""
    from klamm.admin import ElectionType
    from klamm.cli.elections.election import Election, Texts, Times, elect

    texts = Texts(
        completed="Successfully completed preferred replica election",
        failed="Error completing preferred replica election for partition",
        names_all=True,
    )
    election, times = Election(ElectionType.PREFERRED, partitions), Times(TIMEOUT_MS, TIMEOUT_MS)
    await elect(bootstrap_server, command_config, "klamm-preferred-replica-election", election, times, texts)


async def _by_zookeeper(hosts: str, partitions: list[TopicPartition] | None) -> None:
    """Write the request to ZooKeeper. Raises ToolFailed if an earlier request is still in progress."""
    from klamm.cli.reassign_partitions.znodes import open_zookeeper, response
    from klamm.cli.tools.failures import ToolFailed
    from klamm.cli.tools.texts import ZOOKEEPER_WARNING, named

    click.echo(ZOOKEEPER_WARNING, err=True)
    zk = await open_zookeeper(hosts)
    try:
        names = await response(zk.admin.topics())
        stored = dict(zip(names, await response(zk.admin.read_topics(names)), strict=True))
        existing = [
            TopicPartition(name, partition) for name, topic in sorted(stored.items()) if topic for partition in sorted(topic.assignments)
        ]
        wanted = existing if partitions is None else [partition for partition in partitions if partition in set(existing)]
        if not await response(zk.request_elections(wanted)):
            under_way = await response(zk.requested_elections())
            raise ToolFailed(f"Preferred replica leader election currently in progress for {named(under_way)}. Aborting operation")
    finally:
        await zk.stop()
    say(f"Created preferred replica election path with {named(wanted)}")
    say(f"Successfully started preferred replica election for partitions Set({named(wanted)})")
    for partition in partitions or ():
        if partition not in wanted:
            say(f"Skipping preferred replica leader election for partition {partition} since it doesn't exist.")
