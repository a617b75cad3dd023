"""AlterInterbrokerThrottledRates and AlterInterbrokerThrottledReplicas: checks and plan (KIP-179; controller 22.3, 22.4).

Both replace what such a request has set before. With U = what the removal znode names ∪ what is requested, the steps are: the znode names
U; the throttles of U − requested go; the requested ones are set; the znode names what is requested. Between any two steps the znode names
everything that may still have a throttle of this API. Without `remove_throttle` the first step is left out and the last one deletes the
znode: what was requested stays until somebody removes it. Throttles that a person has set elsewhere are not touched.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator

from klamm.controller.cluster import Cluster
from klamm.controller.decisions import throttled_replicas as throttles
from klamm.controller.decisions.throttled_replicas import NO_RATES, NO_REPLICAS, broker_entity, topic_entity
from klamm.controller.decisions.topic_requests import is_valid_name
from klamm.controller.events import catalogue as events
from klamm.controller.throttle_steps import ChangeConfig, RecordBrokers, RecordTopics, Step
from klamm.controller.values import BrokerState, Result
from klamm.protocol.errors import ErrorCode
from klamm.protocol.nouns import Ints, TopicPartition
from klamm.seams.pace import Pace

log = logging.getLogger("klamm.controller.throttles.throttled_replicas")

MAX_PAIRS = 100_000
"""A topic with more throttled replicas does not fit into its config znode."""

NO_SUCH_PARTITION = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist."


async def check_rates(cluster: Cluster, request: events.AlterInterbrokerThrottledRates) -> dict[int, Result]:
    """Brokers of a request that are refused, and why."""
    pace = Pace()
    refused: dict[int, Result] = {}
    brokers = _Brokers(cluster)
    for broker_id, rates in request.rates.items():
        await pace()
        unknown = brokers.check((broker_id,))
        if unknown is not None:
            refused[broker_id] = unknown
        elif min(rates) <= 0:
            refused[broker_id] = throttles.NO_RATE
    return refused


def plan_rates(
    request: events.AlterInterbrokerThrottledRates, refused: Collection[int], named: Collection[int] | None
) -> Iterator[Step]:
    """The steps for the brokers that are not refused; `named` are those in the removal znode, None without one."""
    accepted = {b: rates for b, rates in sorted(request.rates.items()) if b not in refused}
    if request.rates and not accepted:
        return
    slow = sum(min(rates) < throttles.SLOW for rates in accepted.values())
    if slow:
        log.warning("%d brokers are throttled to less than %d bytes per second", slow, throttles.SLOW)
    others = sorted(set(named if named is not None else ()) - set(accepted))
    if request.remove_throttle:
        yield RecordBrokers(tuple(sorted({*others, *accepted})))
    yield from (ChangeConfig(broker_entity(b), NO_RATES) for b in others)
    yield from (ChangeConfig(broker_entity(b), throttles.rates(*rates)) for b, rates in accepted.items())
    if request.remove_throttle:
        yield RecordBrokers(tuple(accepted))
    elif named is not None:
        yield RecordBrokers(())


async def check_replicas(cluster: Cluster, request: events.AlterInterbrokerThrottledReplicas) -> dict[TopicPartition, Result]:
    """Partitions of a request that are refused, and why."""
    pace = Pace()
    refused: dict[TopicPartition, Result] = {}
    count: dict[str, int] = {}
    known = _Brokers(cluster)
    for key, lists in request.replicas.items():
        await pace()
        partition = cluster.partition(key)
        if partition is None or partition.topic.queued:
            refused[key] = NO_SUCH_PARTITION
            continue
        for brokers in lists:
            why = None if brokers is None else _check_brokers(known, brokers)
            if why is not None:
                refused[key] = why
                break
        else:
            most = max(len(cluster.registered if brokers is None else brokers) for brokers in lists)
            count[key.topic] = count.get(key.topic, 0) + most
    too_many = {topic for topic, pairs in count.items() if pairs > MAX_PAIRS}
    for key in request.replicas if too_many else ():
        if key.topic in too_many and key not in refused:
            refused[key] = ErrorCode.INVALID_REQUEST, f"More than {MAX_PAIRS} throttled replicas do not fit into the config of a topic."
    return refused


def _check_brokers(known: _Brokers, brokers: Ints) -> Result | None:
    if len(set(brokers)) != len(brokers):
        return ErrorCode.INVALID_REQUEST, "A broker is named twice."
    return known.check(brokers)


class _Brokers:
    """Brokers that may be throttled: those that are registered, and those that have replicas of a partition that is being reassigned. One
    of these that is dead is throttled as it comes back (controller 17).
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._moving: set[int] | None = None

    def check(self, broker_ids: Ints) -> Result | None:
        """The error for the first one that may not, None where all may."""
        unknown = set(broker_ids) - self._cluster.registered
        if not unknown:
            return None
        if self._moving is None:
            self._moving = {broker_id for p in self._cluster.reassigning for broker_id in p.assignment.replicas}
        first = min(unknown - self._moving, default=None)
        return None if first is None else (ErrorCode.BROKER_NOT_AVAILABLE, self._why(first))

    def _why(self, broker_id: int) -> str:
        registration = self._cluster.registrations.get(broker_id)
        if registration is None or registration.state is BrokerState.OFFLINE:
            return f"Broker {broker_id} is not registered."
        return f"Broker {broker_id} is registered, but it is {registration.state.name}."


async def plan_replicas(
    cluster: Cluster, request: events.AlterInterbrokerThrottledReplicas, refused: Collection[TopicPartition], named: Collection[str] | None
) -> list[Step]:
    """The steps for the partitions that are not refused; `named` are the topics in the removal znode, None without one."""
    pace = Pace()
    everywhere = tuple(sorted(cluster.registered))
    moves: dict[str, dict[int, throttles.Move]] = {}
    for key, (leaders, followers) in request.replicas.items():
        await pace()
        if key not in refused:
            lists = (everywhere if brokers is None else brokers for brokers in (leaders, followers))
            moves.setdefault(key.topic, {})[key.partition] = throttles.Move(*map(frozenset, lists))
    if request.replicas and not moves:
        return []
    others = sorted(set(filter(is_valid_name, named if named is not None else ())) - set(moves))
    steps: list[Step] = [RecordTopics(tuple(sorted({*others, *moves})))] if request.remove_throttle else []
    steps += [ChangeConfig(topic_entity(topic), NO_REPLICAS) for topic in others]
    for topic in sorted(moves):
        await pace(sum(len(move.sources) + len(move.destinations) for move in moves[topic].values()))
        steps.append(ChangeConfig(topic_entity(topic), throttles.replica_lists(moves[topic])))
    if request.remove_throttle:
        steps.append(RecordTopics(tuple(sorted(moves))))
    elif named is not None:
        steps.append(RecordTopics(()))
    return steps
