"""Deprecated access to a cluster through ZooKeeper, `--zookeeper` (R179-28): a znode requests reassignments, and throttles are written into
configs.

The controller does not know about these throttles, so only --verify removes them. Moves between log directories are not possible: only
brokers know their log directories.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection, Iterable, Mapping
from typing import NoReturn, TypeVar

import click

from klamm.cli.reassign_partitions.cluster import LOG_DIR_RATE, BrokerReplicas, Replica, Throttles, TopicView
from klamm.cli.tools.failures import NotReachable, ToolFailed
from klamm.controller.decisions import throttled_replicas as throttles
from klamm.controller.values import Assignment, ControllerMoved, StoredTopic, StoreLost
from klamm.protocol.nouns import Ints, TopicPartition
from klamm.zk.layout.json_values import Unreadable
from klamm.zk.session.reachability import why_silent
from klamm.zk.session.requests import ZkError
from klamm.zk.tools import ToolZk

CONNECT_MS = 10_000
PATIENCE_S = 1.0
"""After this time, a tool without a ZooKeeper session prints why."""
RESPONSE_S = 30.0
T = TypeVar("T")


async def connect(hosts: str) -> ZnodesCluster:
    """The cluster in this ZooKeeper. Raises ToolFailed, ZkUnavailable."""
    return ZnodesCluster(await open_zookeeper(hosts))


async def open_zookeeper(hosts: str) -> ToolZk:
    """A session with a ZooKeeper that has a Kafka cluster. Raises ToolFailed, ZkUnavailable."""
    zk = ToolZk(hosts)
    warning = asyncio.get_running_loop().create_task(_warn(hosts))
    try:
        await zk.start(CONNECT_MS)
    finally:
        warning.cancel()
    try:
        if not await response(zk.is_kafka()):
            raise ToolFailed("there is no cluster in this ZooKeeper: /brokers/topics does not exist (is the chroot missing?)")
    except ToolFailed:
        await zk.stop()
        raise
    return zk


async def _warn(hosts: str) -> None:
    await asyncio.sleep(PATIENCE_S)
    click.echo(f"ZooKeeper is not reachable yet ({await why_silent(hosts)}); trying for up to {CONNECT_MS / 1000:g} s", err=True)


class ZnodesCluster:
    """Implements `Cluster` with reads and writes of znodes."""

    removes_throttles = False

    def __init__(self, zk: ToolZk) -> None:
        self._zk = zk

    async def close(self) -> None:
        await self._zk.stop()

    async def brokers(self) -> dict[int, str | None]:
        return await response(self._zk.admin.broker_racks())

    async def topics(self, names: Collection[str]) -> dict[str, TopicView]:
        return {
            name: TopicView({partition: assignment.replicas for partition, assignment in stored.assignments.items()})
            for name, stored in (await self._read(sorted(names))).items()
        }

    async def reassignments(self) -> dict[TopicPartition, Assignment]:
        """Reassignments that the controller has started, and those that are still requested in the znode."""
        stored = await self._read(sorted(await response(self._zk.admin.topics())))
        running = {
            TopicPartition(name, partition): assignment
            for name, topic in stored.items()
            for partition, assignment in topic.assignments.items()
            if assignment.is_reassigning
        }
        for partition, target in (await response(self._zk.requested_reassignments())).items():
            assignments = stored[partition.topic].assignments if partition.topic in stored else {}
            if partition not in running:
                running[partition] = assignments.get(partition.partition, Assignment(())).reassign_to(target)
        return running

    async def _read(self, names: list[str]) -> dict[str, StoredTopic]:
        topics = await response(self._zk.admin.read_topics(names))
        return {name: topic for name, topic in zip(names, topics, strict=True) if topic is not None}

    async def start(
        self, targets: Mapping[TopicPartition, Ints], throttled: Throttles | None, running: Mapping[TopicPartition, Assignment]
    ) -> dict[TopicPartition, str]:
        """Start all reassignments or none, because one znode requests them. Raises ToolFailed if the znode already exists."""
        if running:
            raise ToolFailed("There is an existing assignment running.")
        if throttled is not None:
            await self.change_throttle(throttled)
        if not await response(self._zk.request_reassignments(targets)):
            raise ToolFailed("There is an existing assignment running.")
        return {}

    async def change_throttle(self, throttled: Throttles) -> None:
        for topic, lists in throttled.replica_lists().items():
            await self._change_config("topics", topic, lists)
        for broker in throttled.brokers:
            await self._change_config("brokers", str(broker), throttles.rates(throttled.rate, throttled.rate))

    async def remove_throttles(self, brokers: Iterable[int], topics: Iterable[str]) -> None:
        for broker in brokers:
            await self._change_config("brokers", str(broker), {**throttles.NO_RATES, LOG_DIR_RATE: None})
        for topic in topics:
            await self._change_config("topics", topic, throttles.NO_REPLICAS)

    async def _change_config(self, kind: str, name: str, changes: Mapping[str, str | None]) -> None:
        """Set properties of an entity, and delete those whose value is None. Nothing is written if nothing changes."""
        properties = await response(self._zk.admin.read_config(kind, name))
        before = {} if properties is None else properties
        after = {key: value for key, value in before.items() if key not in changes}
        after.update({key: value for key, value in changes.items() if value is not None})
        if after != before:
            await response(self._zk.admin.write_config(kind, name, after))

    async def cancel(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, str]:
        _needs_brokers()

    async def throttle_log_dir_moves(self, brokers: Iterable[int], rate: int) -> None:
        _needs_brokers()

    async def remove_log_dir_throttles(self, brokers: Iterable[int]) -> None:
        _needs_brokers()

    async def replicas_of(self, brokers: Collection[int]) -> dict[int, BrokerReplicas]:
        _needs_brokers()

    async def move_log_dirs(self, log_dirs: Mapping[Replica, str]) -> dict[Replica, str | None]:
        _needs_brokers()


async def response(request: Awaitable[T]) -> T:
    """The response of ZooKeeper. Raises ToolFailed if it is an error, and NotReachable if there is no response in time."""
    try:
        async with asyncio.timeout(RESPONSE_S):
            return await request
    except (TimeoutError, StoreLost) as lost:
        raise NotReachable(f"ZooKeeper does not respond any more: {str(lost) or f'nothing for {RESPONSE_S:.0f} s'}") from lost
    except (ControllerMoved, Unreadable, ZkError) as problem:
        raise ToolFailed(f"ZooKeeper: {str(problem) or type(problem).__name__}") from problem


def _needs_brokers() -> NoReturn:
    raise ToolFailed("this needs --bootstrap-server: ZooKeeper does not have this information")
