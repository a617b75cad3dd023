"""`klamm describe`: a cluster on one screen."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from klamm.cli.shell.logs import printable
from klamm.cli.shell.output import counted, say
from klamm.cli.tools.commands import fail_together, json_option, print_table, with_client

if TYPE_CHECKING:
    from klamm.admin import AsyncAdminClient, TopicDescription

CLIENT_ID = "klamm-describe"
BROKERS = ("BROKER", "HOST", "PORT", "RACK", "CONTROLLER", "LEADS", "REPLICAS", "OUT-OF-SYNC")
PARTITIONS = ("TOPIC", "PARTITION", "LEADER", "LEADER-EPOCH", "REPLICAS", "ISR")
SHOWN = 20
"""How many partitions out of sync are printed without --json."""


@click.command(short_help="Show a cluster on one screen.")
@with_client(CLIENT_ID)
@json_option
async def command(client: AsyncAdminClient, as_json: bool) -> None:
    """Show a cluster on one screen: brokers with their racks, the controller, topics, partitions that are out of sync or have no leader,
    and the number of groups.

    A broker that has replicas and is not alive is listed without its address. If the groups of a broker are not known, the rest is printed,
    and the exit code is 1.

    \b
    klamm describe --bootstrap-server localhost:9092
    """
    cluster = await client.describe_cluster()
    topics = await client.describe_topics()
    groups = await client.list_groups()
    brokers = _brokers(cluster, topics.found)
    unwell = _out_of_sync(topics.found)
    leaderless = [row for row in unwell if row[2] is None]
    internal = sum(topic.is_internal for topic in topics.found.values())
    partitions = sum(len(topic.partitions) for topic in topics.found.values())
    controller = None if cluster.controller is None else cluster.controller.id
    if as_json:
        said = {
            "cluster_id": cluster.cluster_id,
            "controller_id": controller,
            "brokers": _objects(BROKERS, brokers),
            "topics": len(topics.found),
            "internal_topics": internal,
            "partitions": partitions,
            "without_leader": len(leaderless),
            "out_of_sync": _objects(PARTITIONS, unwell),
            "groups": len(groups.found),
        }
        say(json.dumps(said))
    else:
        say(printable(f"cluster {cluster.cluster_id}, controller {'unknown' if controller is None else controller}"))
        say("")
        print_table(BROKERS, [(*row[:4], "yes" if row[4] else None, *row[5:]) for row in brokers])
        say("")
        health = f"{len(unwell)} out of sync, {len(leaderless)} without a leader" if unwell else "all in sync"
        say(f"{counted(len(topics.found), 'topic')} ({internal} internal), {counted(partitions, 'partition')}: {health}")
        say(counted(len(groups.found), "group"))
        if unwell:
            say("")
            print_table(PARTITIONS, [(*row[:4], *(",".join(map(str, ids)) or None for ids in row[4:])) for row in unwell[:SHOWN]])
        if len(unwell) > SHOWN:
            say(f"and {len(unwell) - SHOWN} more: klamm topics describe --out-of-sync")
    failures = [f"{topic}: {error}" for topic, error in topics.errors.items()]
    fail_together([*failures, *(f"groups of broker {broker}: {error}" for broker, error in groups.errors.items())])


def _brokers(cluster: Any, topics: dict[str, TopicDescription]) -> list[tuple[Any, ...]]:
    """A row for each broker that is alive or has a replica."""
    rows: dict[int, list[Any]] = {each.id: [*each[:4], each == cluster.controller, 0, 0, 0] for each in cluster.brokers}
    for topic in topics.values():
        for partition in topic.partitions:
            for replica in partition.replicas:
                row = rows.setdefault(replica, [replica, None, None, None, False, 0, 0, 0])
                row[5] += partition.leader == replica
                row[6] += 1
                row[7] += replica not in partition.isr
    return [tuple(rows[broker]) for broker in sorted(rows)]


def _out_of_sync(topics: dict[str, TopicDescription]) -> list[tuple[Any, ...]]:
    return [
        (topic.name, each.partition, each.leader, each.leader_epoch, each.replicas, each.isr)
        for topic in topics.values()
        for each in topic.partitions
        if each.leader is None or not set(each.replicas) <= set(each.isr)
    ]


def _objects(head: tuple[str, ...], rows: list[tuple[Any, ...]]) -> list[dict[str, Any]]:
    names = [title.lower().replace("-", "_") for title in head]
    return [dict(zip(names, row, strict=True)) for row in rows]
