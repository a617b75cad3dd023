"""Reads the state of a cluster from its ZooKeeper, for a simulation. Nothing is written there."""

from __future__ import annotations

from klamm.configs.definitions.blacklist import listed_brokers
from klamm.configs.definitions.types import ConfigError
from klamm.controller.values import DEFAULT_BROKER, Assignment, ConfigEntity, LeaderAndIsr
from klamm.pipeline.simulation.snapshot import BadSource, Snapshot
from klamm.protocol.nouns import TopicPartition
from klamm.zk.layout import paths
from klamm.zk.session.session import ZkSession
from klamm.zk.store.store import ZkStore

SESSION_TIMEOUT_MS = 30_000
CONNECT_MS = 10_000


async def read_zookeeper(hosts: str) -> Snapshot:
    """The cluster at `host:port[,…][/chroot]`. Raises ZkUnavailable, and BadSource where no broker has ever been."""
    session = ZkSession(hosts, SESSION_TIMEOUT_MS)
    await session.start(CONNECT_MS, create_chroot=False)
    try:
        if await session.exists(paths.TOPICS) is None:
            raise BadSource(f"{hosts}: there is no {paths.TOPICS}: no broker has used this ZooKeeper with this path")
        return await _read(ZkStore(session, lambda _: None))
    finally:
        await session.stop()


async def _read(store: ZkStore) -> Snapshot:
    names = await store.topics()
    stored = await store.read_topics(names)
    assignments: dict[TopicPartition, Assignment] = {}
    for name, topic in zip(names, stored, strict=True):
        if topic is not None:
            assignments.update((TopicPartition(name, index), assignment) for index, assignment in topic.assignments.items())
    states: list[LeaderAndIsr | None] = await store.read_states(list(assignments))
    partitions = {key: (assignment, state) for (key, assignment), state in zip(assignments.items(), states, strict=True)}
    brokers = await store.brokers()
    configs = await store.read_configs([DEFAULT_BROKER, *(ConfigEntity("topics", name) for name in names)])
    properties = [{} if config is None else config.properties for config in configs]
    try:
        listed = listed_brokers(properties[0])
    except ConfigError:  # the controller ignores such a value too
        listed = frozenset()
    unclean = properties[0].get("unclean.leader.election.enable", "false").strip().lower() == "true"
    return Snapshot(
        partitions, frozenset(brokers), {b.id: b.rack for b in brokers.values()}, listed, unclean,
        {name: config for name, config in zip(names, properties[1:], strict=True) if config}, frozenset(await store.deletions()),
    )
