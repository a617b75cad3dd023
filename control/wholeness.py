"""Whether a cluster is whole: all brokers are registered and in everybody's metadata, all ISRs are full, coordinators are loaded and have
producer ids, preferred replicas lead, and every broker has processed the last changes of configs and ACLs.

Each broker reports what it shows. Brokers may be in this process or in others, so a report is plain. Replicas that are to be on brokers
which the cluster does not have do not count: no wait would bring them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from itertools import islice

import msgspec

from klamm.broker.metadata_cache import CachedPartition
from klamm.broker.partition import HostedPartition
from klamm.control.refusal import Refused
from klamm.protocol.nouns import TopicPartition
from klamm.server.broker_server import BrokerServer
from klamm.server.local.changed_configs import Announced

WHOLE_S = 30.0
LOOK_S = 0.005
MAX_NAMED = 3
SHARE_OF_LAG = 10
"""A follower lags if it was not caught up for this part of `replica.lag.time.max.ms`."""


class Report(msgspec.Struct, frozen=True):
    """What a broker shows."""

    broker: int
    epoch: int
    controller: int | None
    lacks: list[str]
    """What is not as it should be, at most MAX_NAMED texts."""
    configs: int
    acls: dict[int, int] | None
    """The last notifications that it processed (`Announced`); None without ACLs."""
    registered: dict[int, int] | None = None
    """Only of the active controller: the epochs of the brokers that it knows."""
    displaced: list[TopicPartition] = []
    """Only of the active controller: partitions that another than the preferred replica leads."""


def report_of(broker: BrokerServer, brokers: Collection[int]) -> Report:
    """The report of a broker in this process. `brokers` are the ids of all brokers that run."""
    ids = frozenset(brokers)
    acls = broker.services.acls
    term = broker.controller.term if broker.controller.is_active else None
    return Report(
        broker.id, broker.identity.broker_epoch, broker.metadata.controller_id, list(islice(_lacks(broker, ids), MAX_NAMED)),
        broker.parts.dynamic_configs.executed, None if acls is None else dict(acls.executed),
        None if term is None else {number: each.epoch for number, each in term.cluster.brokers.items()},
        [] if term is None else _displaced(broker, ids - term.cluster.listed),
    )


def _lacks(broker: BrokerServer, ids: frozenset[int]) -> Iterator[str]:
    me = f"broker {broker.id}"
    if not broker.zk.is_connected:
        yield f"{me} is not connected to ZooKeeper"
    if not broker.is_online:
        yield f"{me} is not registered"
    if broker.metadata.brokers.keys() != ids:
        yield f"{me} shows brokers {sorted(broker.metadata.brokers)}"
    if broker.services.groups.partitions.is_loading:
        yield f"{me} loads groups"
    if broker.services.transactions.partitions.is_loading:
        yield f"{me} loads transactions"
    if not broker.services.producer_ids.prepare():
        yield f"{me} waits for producer ids"
    lag_ms = broker.replicas.leaders.max_lag_ms // SHARE_OF_LAG
    oldest_ms = round(broker.clock.monotonic() * 1000) - lag_ms
    for topic in broker.metadata.topics.values():
        for index, state in topic.partitions.items():
            problem = _problem(state, ids) or _hosted_problem(broker, topic.name, state, oldest_ms)
            if problem:
                yield f"{me}: {topic.name}-{index} {problem}"


def _problem(state: CachedPartition, ids: frozenset[int]) -> str | None:
    """What is not whole about a partition in the metadata of a broker."""
    wanted = ids.intersection(state.replicas)
    if not wanted:
        return None
    if state.leader not in wanted:
        return f"has leader {state.leader}"
    return None if wanted.issubset(state.isr) else f"has ISR {list(state.isr)} of replicas {list(state.replicas)}"


def _hosted_problem(broker: BrokerServer, topic: str, state: CachedPartition, oldest_ms: int) -> str | None:
    """What is not whole about the replica of a broker that has to have one."""
    if broker.id not in state.replicas:
        return None
    hosted = broker.replicas.get(topic, state.partition_index)
    if hosted is None or hosted.leader_epoch != state.leader_epoch:
        return "has no replica in the leader epoch of the metadata"
    return None if hosted.leadership is None else _leader_problem(hosted, oldest_ms)


def _leader_problem(hosted: HostedPartition, oldest_ms: int) -> str | None:
    leadership, end_offset = hosted.leadership, hosted.log_end_offset
    assert leadership is not None
    if leadership.recovering:
        return "is recovering"
    if leadership.pending is not None:
        return "changes its ISR"
    for number, follower in leadership.followers.items():
        lags = max(follower.log_end_offset, 0) < end_offset and follower.last_caught_up_ms < oldest_ms
        if number in hosted.isr and lags:
            return f"has records that follower {number} lacks"
    return None


def _displaced(broker: BrokerServer, preferred: Collection[int]) -> list[TopicPartition]:
    return [
        TopicPartition(topic.name, index)
        for topic in broker.metadata.topics.values()
        for index, state in topic.partitions.items()
        if state.leader != state.replicas[0] and state.replicas[0] in preferred and state.replicas[0] in state.isr
    ]


def missing(reports: Mapping[int, Report], brokers: Collection[int], last: Announced) -> list[str]:
    """What the cluster lacks by the reports of its brokers, which all have to report; empty if it is whole, but for its leaders."""
    lacks = [f"broker {number} does not respond" for number in sorted(set(brokers) - reports.keys())]
    active = [each for each in reports.values() if each.registered is not None]
    if len(active) != 1:
        lacks.append("there is no controller" if not active else "there is more than one controller")
    elif active[0].registered != {each.broker: each.epoch for each in reports.values()}:
        lacks.append("the controller does not know the present registration of all brokers")
    for each in reports.values():
        if active and each.controller != active[0].broker:
            lacks.append(f"broker {each.broker} shows controller {each.controller}")
        if not has_processed(each, last):
            lacks.append(f"broker {each.broker} has not processed the last changes of configs and ACLs")
        lacks += each.lacks
    return lacks


def has_processed(report: Report, last: Announced) -> bool:
    """Whether a broker has processed these notifications."""
    acls = last.acls if report.acls is not None else {}
    return report.configs >= last.configs and all((report.acls or {}).get(kind, -1) >= number for kind, number in acls.items())


async def until_whole(
    brokers: Collection[int], last: Announced, look: Callable[[], Awaitable[Mapping[int, Report]]],
    elect: Callable[[int, Sequence[TopicPartition]], Awaitable[None]],
) -> None:
    """Wait until the reports say that the cluster is whole. `elect` lets a controller elect preferred leaders. Raises Refused."""
    lacks: list[str] = []
    try:
        async with asyncio.timeout(WHOLE_S):
            while True:
                reports = await look()
                lacks = missing(reports, brokers, last)
                active = next((each for each in reports.values() if each.registered is not None), None)
                if not lacks and active is not None:
                    if not active.displaced:
                        return
                    lacks = [f"the preferred replica does not lead {active.displaced[0]}"]
                    await elect(active.broker, active.displaced)
                await asyncio.sleep(LOOK_S)
    except TimeoutError:
        more = f"; and {len(lacks) - MAX_NAMED} more" if len(lacks) > MAX_NAMED else ""
        raise Refused(f"the cluster is not whole within {WHOLE_S:g} s: {'; '.join(lacks[:MAX_NAMED])}{more}", 408) from None
