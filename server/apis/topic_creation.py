"""Creates topics, for CreateTopics and for Metadata requests that name topics which do not exist.

Topics are planned one by one (`controller/decisions/topic_requests.py`), counted against the mutation quota, and written to ZooKeeper
together by this broker, config znode first; the controller finds them there. The caller may then wait until this broker's metadata cache
shows a leader for every partition. For a client that means "created".
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from klamm.configs.topic import validate_topic_configs
from klamm.controller.decisions.topic_requests import (
    Assignments,
    CreationFacts,
    TopicNames,
    TopicNamesNeeded,
    TopicPlan,
    flat_name,
    is_valid_name,
    plan_topic,
)
from klamm.controller.values import StoreLost
from klamm.protocol import messages
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.nouns import NO_LEADER, ZERO_UUID
from klamm.seams.pace import Pace
from klamm.server.apis.mutations import NEVER_STRICT, Mutations
from klamm.server.requests.context import Context
from klamm.server.requests.services import Services
from klamm.zk.layout.key_order import scala_order

log = logging.getLogger(__name__)


TOPIC_ENTRIES = 10
"""Work for one topic, in list entries (for `Pace`)."""


@dataclass(slots=True)
class Creation:
    """The outcome for one topic. The plan is None if the topic was refused; the id is zero if nothing was written."""

    code: ErrorCode
    message: str | None = None
    plan: TopicPlan | None = None
    topic_id: bytes = ZERO_UUID


async def create_topics(
    ctx: Context, topics: Sequence[Any], mutations: Mutations, *, validate_only: bool = False
) -> dict[str, Creation]:
    """Check and write CreatableTopics with different names, as far as the quota of mutations allows; returns the outcome of each name."""
    services = ctx.services
    outcomes = await _plan(services, topics, written=not validate_only)
    has_topic_ids = services.config.inter_broker_protocol_version.has_topic_ids
    if validate_only:
        return outcomes
    writes: list[Creation] = []
    for outcome in outcomes.values():
        if outcome.plan is not None:
            if mutations.refuses(len(outcome.plan.assignments)):
                outcome.code, outcome.message, outcome.plan = ErrorCode.THROTTLING_QUOTA_EXCEEDED, None, None
            else:
                outcome.topic_id = services.new_topic_id() if has_topic_ids else ZERO_UUID
                writes.append(outcome)
    creations = [
        (o.plan.name, None if o.topic_id == ZERO_UUID else o.topic_id, o.plan.assignments, o.plan.configs)
        for o in writes
        if o.plan is not None
    ]
    codes = await services.admin_store.create_topics(creations) if creations else []
    for outcome, code in zip(writes, codes, strict=True):
        if code is not ErrorCode.NONE:
            outcome.code, outcome.message, outcome.plan, outcome.topic_id = code, None, None, ZERO_UUID
    return outcomes


async def auto_create(ctx: Context, names: Iterable[str]) -> dict[str, ErrorCode]:
    """Create topics with the broker's defaults, without waiting; returns the code of each topic for the Metadata response.

    LEADER_NOT_AVAILABLE means that the topic is being created and the client should repeat its request.
    """
    topics = [_default_topic(ctx.services, name) for name in names if is_valid_name(name)]
    try:
        outcomes = await create_topics(ctx, topics, Mutations(ctx, NEVER_STRICT))
    except StoreLost as problem:
        log.warning("cannot create %d topics until a client requests them again: %s", len(topics), problem)
        outcomes = {topic.name: Creation(ErrorCode.NONE) for topic in topics}
    codes: dict[str, ErrorCode] = {}
    for name in names:
        outcome = outcomes.get(name)
        if outcome is None:
            codes[name] = ErrorCode.INVALID_TOPIC_EXCEPTION
        elif outcome.code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            codes[name] = ErrorCode.LEADER_NOT_AVAILABLE
        else:
            codes[name] = outcome.code
    return codes


async def wait_for_leaders(services: Services, partitions: Mapping[str, Iterable[int]], timeout_ms: int) -> set[str]:
    """Wait until all partitions have a leader in the metadata cache at the same time; returns the topics that do not after the time-out.

    With a time-out of zero or less nothing is checked: all topics are returned.
    """
    if timeout_ms <= 0:
        return set(partitions)
    # checked from the end: a topic that was complete once is checked again only after all others
    waiting = list(partitions)

    def leaderless(topic: str) -> bool:
        return any(services.metadata.leader(topic, index) in (None, NO_LEADER) for index in partitions[topic])

    def ready() -> bool:
        while waiting and not leaderless(waiting[-1]):
            waiting.pop()
        if not waiting:
            waiting.extend(filter(leaderless, partitions))
        return not waiting

    await services.purgatory.wait(partitions, ready, timeout_ms)
    return {topic for topic in partitions if leaderless(topic)}


async def _plan(services: Services, topics: Sequence[Any], written: bool) -> dict[str, Creation]:
    """Plan each topic. The names of all topics are read from ZooKeeper only if a topic needs them.

    Names that collide with each other are planned in the order of Apache Kafka, so that the same one is created.
    """
    facts = _facts(services)
    outcomes: dict[str, Creation] = {}
    unsettled: list[Any] = []
    pace = Pace()
    for topic in topics:
        await pace(TOPIC_ENTRIES)
        try:
            outcomes[topic.name] = _outcome(topic, facts, written)
        except TopicNamesNeeded:
            outcomes[topic.name] = Creation(ErrorCode.NONE)
            unsettled.append(topic)
    if unsettled:
        facts.existing = TopicNames(await services.admin_store.topics())
        if len({flat_name(topic.name) for topic in unsettled}) < len(unsettled):
            place = {name: place for place, name in enumerate(scala_order(topic.name for topic in topics))}
            unsettled.sort(key=lambda topic: place[topic.name])
        for topic in unsettled:
            await pace(TOPIC_ENTRIES)
            outcomes[topic.name] = _outcome(topic, facts, written)
    return outcomes


def _outcome(topic: Any, facts: CreationFacts, written: bool) -> Creation:
    try:
        return Creation(ErrorCode.NONE, None, plan_topic(topic, facts, written=written))
    except ApiError as refusal:
        return Creation(refusal.code, refusal.message)


def _facts(services: Services) -> CreationFacts:
    def check_policy(
        name: str, partitions: int | None, factor: int | None, assignments: Assignments | None, configs: dict[str, str]
    ) -> None:
        violation = services.topic_policy(name, partitions, factor, assignments, configs)
        if violation is not None:
            raise ApiError(ErrorCode.POLICY_VIOLATION, violation)

    config = services.config
    return CreationFacts(
        racks=services.metadata.racks(),
        cached=services.metadata.topics,
        existing=None,
        queued_for_deletion=services.controller.queued_for_deletion,
        default_partitions=config.get("num.partitions"),
        default_replication_factor=config.get("default.replication.factor"),
        check_configs=lambda configs: validate_topic_configs(configs, config),
        check_policy=check_policy,
        dice=services.randrange,
    )


def _default_topic(services: Services, name: str) -> Any:
    """The topic that auto-creation makes. The two internal topics have their own counts and configs."""
    config = services.config
    request = messages.CreateTopicsRequest
    if name == "__consumer_offsets":
        counts = config.get("offsets.topic.num.partitions"), config.get("offsets.topic.replication.factor")
        configs = {
            "compression.type": "producer",
            "cleanup.policy": "compact",
            "segment.bytes": config.get("offsets.topic.segment.bytes"),
        }
    elif name == "__transaction_state":
        counts = config.get("transaction.state.log.num.partitions"), config.get("transaction.state.log.replication.factor")
        configs = {
            "compression.type": "uncompressed",
            "cleanup.policy": "compact",
            "min.insync.replicas": config.get("transaction.state.log.min.isr"),
            "segment.bytes": config.get("transaction.state.log.segment.bytes"),
            "unclean.leader.election.enable": "false",
        }
    else:
        counts = -1, -1
        configs = {}
    entries = [request.CreatableTopicConfig(name=key, value=str(value)) for key, value in configs.items()]
    return request.CreatableTopic(name=name, num_partitions=counts[0], replication_factor=counts[1], assignments=[], configs=entries)
