"""The tale of consumer groups: chapters of requests, told to a cluster of three brokers and to a small one.

`answers.txt` is what Apache Kafka 3.9.1 responds; `python -m klamm.tests.groups.group_tale --record` tells the tale to it and writes the
file again, with names of chapters as arguments it writes only those. Every chapter has groups of its own, so that chapters can be told in
any order and at the same time; `opening` is told first, because it is about a cluster whose offsets topic does not exist yet.

Left out is what Apache Kafka never responds to: OffsetFetch without groups, a JoinGroup or SyncGroup that waits while its member sends
another one, the subscription of a consumer that says it has more topics than there are bytes. Two protocols of one name are left out too:
Apache Kafka counts them as two members.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from klamm.tests.groups import coordinators, deleted_topic, expiries, group_views, joins, offsets, static_members
from klamm.tests.groups.telling import GroupGrounds, GroupTale
from klamm.tests.harness.members import Members
from klamm.tests.harness.tree import Tree
from klamm.tests.reference.jars import jars
from klamm.zk.embedded.server import EmbeddedZooKeeper

FILE = Path(__file__).with_name("answers.txt")
Told = Callable[[GroupTale], Awaitable[None]]


class Kind(NamedTuple):
    """A kind of cluster: its number of brokers and their configs."""

    brokers: int
    configs: Mapping[str, object]


_COMMON: dict[str, object] = {
    "auto.create.topics.enable": "false",
    "auto.leader.rebalance.enable": "false",
    "group.min.session.timeout.ms": 200,
    "offsets.topic.num.partitions": 3,
}
KINDS = {
    "three": Kind(3, {**_COMMON, "group.initial.rebalance.delay.ms": 0, "offsets.topic.replication.factor": 2}),
    "deleting": Kind(2, {**_COMMON, "group.initial.rebalance.delay.ms": 0, "offsets.topic.replication.factor": 2}),
    "small": Kind(1, {**_COMMON, "group.initial.rebalance.delay.ms": 1500, "group.max.size": 2, "offsets.topic.replication.factor": 1}),
}
OPENING = "opening"
CHAPTERS: dict[str, tuple[str, Told]] = {
    OPENING: ("three", coordinators.opening),
    "found": ("three", coordinators.found),
    "key types": ("three", coordinators.key_types),
    "elsewhere": ("three", coordinators.elsewhere),
    "group ids": ("three", coordinators.invalid_ids),
    "bytes": ("three", coordinators.bytes_of_requests),
    "versions": ("three", joins.versions),
    "member ids": ("three", joins.member_ids),
    "session time-outs": ("three", joins.session_timeouts),
    "protocols": ("three", joins.protocols_of_joins),
    "votes": ("three", joins.votes),
    "two members": ("three", joins.two_members),
    "rebalances": ("three", joins.rebalances),
    "cooperative": ("three", joins.cooperative),
    "leaving": ("three", joins.leaving),
    "empty groups": ("three", joins.empty_groups),
    "large metadata": ("three", joins.large_metadata),
    "fenced": ("three", static_members.fenced),
    "returning leaders": ("three", static_members.returning_leaders),
    "changed protocols": ("three", static_members.changed_protocols),
    "replaced while waiting": ("three", static_members.replaced_while_waiting),
    "static and dynamic": ("three", static_members.beside_dynamic),
    "sessions": ("three", expiries.sessions),
    "unused ids": ("three", expiries.unused_ids),
    "rebalance time-outs": ("three", expiries.rebalance_timeouts),
    "sync time-outs": ("three", expiries.sync_timeouts),
    "offsets": ("three", offsets.versions),
    "commits of members": ("three", offsets.members_commit),
    "metadata of offsets": ("three", offsets.metadata),
    "partitions": ("three", offsets.partitions),
    "retention": ("three", offsets.retention),
    "leader epochs": ("three", offsets.leader_epochs),
    "fetches": ("three", offsets.fetches),
    "deleted offsets": ("three", offsets.deletes),
    "described": ("three", group_views.described),
    "listed": ("three", group_views.listed),
    "deleted": ("three", group_views.deleted),
    "offsets topic deleted": ("deleting", deleted_topic.deleted),
    "first rebalance": ("small", expiries.first_rebalance),
    "maximum size": ("small", expiries.maximum_size),
}
"""By name: the kind of cluster, and who tells the chapter."""


async def tell(name: str, grounds: GroupGrounds) -> list[str]:
    """Tell one chapter; its lines."""
    tale = GroupTale(grounds)
    try:
        await CHAPTERS[name][1](tale)
    except BaseException as problem:
        problem.add_note(f"chapter {name}, after:\n" + "\n".join(tale.lines[-12:]))
        raise
    finally:
        tale.close()
    return tale.lines


async def open_tale(kind: str, grounds: GroupGrounds) -> list[str]:
    """The first thing to do on a new cluster: the opening, for which nothing is there yet, then topics. Returns the opening's lines."""
    lines = await tell(OPENING, grounds)
    await grounds.prepare()
    return lines if kind == CHAPTERS[OPENING][0] else []


def written(text: str) -> dict[str, list[str]]:
    """The chapters of a file."""
    chapters: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line.startswith("=== "):
            lines = chapters[line[4:]] = []
        else:
            lines.append(line)
    return chapters


def answers() -> dict[str, list[str]]:
    """What Apache Kafka responds, by chapter."""
    return written(FILE.read_text(encoding="utf-8"))


def write(chapters: Mapping[str, Iterable[str]]) -> None:
    """Write the file."""
    FILE.write_text("".join(f"=== {name}\n" + "".join(f"{line}\n" for line in chapters[name]) for name in CHAPTERS if name in chapters),
                    encoding="utf-8")


def told_to_kafka(zookeeper: str, chroot: str, folder: Path, kafka_jars: Path, names: Iterable[str]) -> dict[str, list[str]]:
    """Tell chapters to new clusters of Apache Kafka."""
    chapters: dict[str, list[str]] = {}
    for kind, (brokers, configs) in KINDS.items():
        chosen = [name for name in names if CHAPTERS[name][0] == kind]
        if not chosen:
            continue
        settings: dict[str, Any] = {name.replace(".", "_"): value for name, value in configs.items()}
        (folder / kind).mkdir()
        members = Members(kafka_jars, Tree(zookeeper, f"{chroot}-{kind}"), folder / kind, lambda _, settings=settings: settings)  # type: ignore[misc]
        try:
            members.kafka(*range(1, brokers + 1))
            grounds = GroupGrounds({broker_id: ("127.0.0.1", broker.port) for broker_id, broker in members.brokers.items()})
            chapters |= asyncio.run(_told(kind, grounds, chosen))
        finally:
            members.close()
            members.tree.close()
    return chapters


async def _told(kind: str, grounds: GroupGrounds, names: Iterable[str]) -> dict[str, list[str]]:
    opening = await open_tale(kind, grounds)
    return {name: opening if name == OPENING else await tell(name, grounds) for name in names}


def main() -> None:
    """Record."""
    parser = argparse.ArgumentParser(description="Tell the tale to Apache Kafka and write its answers")
    parser.add_argument("--record", action="store_true", required=True)
    parser.add_argument("chapters", nargs="*", metavar="CHAPTER", help="only these chapters; the others stay as they are")
    names = parser.parse_args().chapters or list(CHAPTERS)
    zookeeper = EmbeddedZooKeeper()
    try:
        with tempfile.TemporaryDirectory() as folder:
            recorded = told_to_kafka(zookeeper.start(), "/group-tale", Path(folder), jars(), names)
    finally:
        zookeeper.stop()
    write({**(answers() if FILE.exists() else {}), **recorded})
    print(f"{sum(map(len, recorded.values()))} lines in {len(recorded)} chapters")


if __name__ == "__main__":
    main()
