"""What AlterConfigs and IncrementalAlterConfigs share: who may change what, what the new configs may be, and storing them.

A resource is a topic (2), a broker (4) or, incrementally, a broker's log levels (8). Each succeeds or fails alone. Requests are
checked in Kafka's order, so that of several faults the same one is named: the resource listed twice, a key twice, a null value; for a
broker then its id and the values, and only after that whether the caller may; for a topic first whether the caller may, then
whether there is such a topic, and its values. Validate only stops before anything is stored.

What is stored takes effect through the notification that goes with it, here as on the other brokers.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from klamm.broker.config_dynamic import is_password, usable
from klamm.broker.config_topic import validate_topic_configs
from klamm.broker.config_types import ConfigError, parse_integer
from klamm.controller.values import ControllerMoved, StoreLost
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.server.context import Context, Operation, ResourceType
from klamm.zk.layout import Unreadable
from klamm.zk.paths import DEFAULT_ENTITY, topic_path
from klamm.zk.requests import ZkError

log = logging.getLogger(__name__)

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS = 2, 4, 8, 16

Configs = dict[str, str]
Proposal = Callable[[Configs], Configs]
"""From what is stored to what is to be stored. Raises ApiError, ValueError for an operation that does not exist."""


class Outcome(NamedTuple):
    """One resource's result; the message is None where all is well or the code says it all."""

    code: ErrorCode
    message: str | None


OK = Outcome(ErrorCode.NONE, None)


async def alter_each(resources: Sequence[Any], alter: Callable[[Any], Awaitable[None]]) -> list[Outcome]:
    """Outcome of each resource, in order. `alter` changes one, or raises ApiError."""
    times = Counter((resource.resource_type, resource.resource_name) for resource in resources)
    outcomes = []
    for resource in resources:
        try:
            if times[resource.resource_type, resource.resource_name] > 1:
                raise ApiError(ErrorCode.INVALID_REQUEST, "The resource is there more than once")
            if len({config.name for config in resource.configs}) < len(resource.configs):
                raise ApiError(ErrorCode.INVALID_REQUEST, "A config key is there more than once")
            await alter(resource)
        except ApiError as error:
            outcomes.append(Outcome(error.code, error.message))
        except ControllerMoved:
            outcomes.append(Outcome(ErrorCode.STALE_CONTROLLER_EPOCH, "There is no controller that could hear of the change"))
        except (Unreadable, StoreLost, ZkError) as error:
            log.warning("configs of %d %r are not changed: %s", resource.resource_type, resource.resource_name, error)
            outcomes.append(Outcome(ErrorCode.UNKNOWN_SERVER_ERROR, None))
        else:
            outcomes.append(OK)
    return outcomes


async def alter_configs(ctx: Context, resource_type: int, name: str, propose: Proposal, validate_only: bool) -> None:
    """Change one topic's or broker's configs. Raises ApiError; ControllerMoved, Unreadable, StoreLost and ZkError from storing."""
    match resource_type:
        case 2:
            await _alter_topic(ctx, name, propose, validate_only)
        case 4:
            await _alter_broker(ctx, name, propose, validate_only)
        case _:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Configs of resource type {resource_type} cannot be changed here")


async def _alter_topic(ctx: Context, topic: str, propose: Proposal, validate_only: bool) -> None:
    if not ctx.authorize(Operation.ALTER_CONFIGS, ResourceType.TOPIC, topic):
        raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Not authorized to alter the topic's configs")
    if not topic:
        raise ApiError(ErrorCode.INVALID_REQUEST, "There are no default configs of topics")
    if not ctx.node.metadata.contains(topic):
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic {topic}")
    stored = await ctx.node.admin_zk.read_config("topics", topic) or {}
    if await ctx.node.zk.exists(topic_path(topic)) is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic {topic} any more")
    try:
        configs = propose(stored)
    except ValueError:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR) from None
    validate_topic_configs(configs, ctx.node.config)
    if not validate_only:
        log.info("configs of topic %s become %s", topic, ", ".join(configs) or "none")
        await ctx.node.admin_zk.write_config("topics", topic, configs)


async def _alter_broker(ctx: Context, name: str, propose: Proposal, validate_only: bool) -> None:
    """An empty name is the default entity of all brokers."""
    per_broker = bool(name)
    if per_broker:
        check_is_own_id(ctx, name)
    entity = str(ctx.node.id) if per_broker else DEFAULT_ENTITY
    stored, problems = usable(await ctx.node.admin_zk.read_config("brokers", entity) or {}, per_broker)
    for problem in problems:
        log.warning("configs of broker %s: %s", entity, problem)
    try:
        configs = propose(stored)
        ctx.node.config.validate_dynamic(configs, per_broker)
    except (ConfigError, ValueError) as error:
        raise ApiError(ErrorCode.INVALID_REQUEST, str(error)) from error
    check_may_alter_cluster(ctx)
    if validate_only:
        return
    for key in filter(is_password, configs):
        raise ApiError(ErrorCode.INVALID_CONFIG, f"{key} is a password, and passwords cannot be encrypted here")
    log.info("configs of broker %s become %s", entity, ", ".join(configs) or "none")
    await ctx.node.admin_zk.write_config("brokers", entity, configs)


def check_may_alter_cluster(ctx: Context) -> None:
    """Raises ApiError when the caller may not change configs of brokers."""
    if not ctx.authorize(Operation.ALTER_CONFIGS, ResourceType.CLUSTER):
        raise ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Not authorized to alter configs of brokers")


def check_is_own_id(ctx: Context, name: str) -> None:
    """Raises ApiError when the name is not the id of the broker that answers."""
    try:
        broker_id = parse_integer(name)
    except ValueError:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"A broker id is a number, not {name!r}") from None
    if broker_id != ctx.node.id:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"This is broker {ctx.node.id}, not {broker_id}; ask the broker itself")
