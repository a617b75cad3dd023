"""What AlterConfigs and IncrementalAlterConfigs share: who may change what, what the new configs may be, and storing them.

A resource is a topic (2), a broker (4) or, incrementally, a broker's log levels (8). Each succeeds or fails alone. Requests are
checked in Kafka's order, so that of several faults the same one is named: the resource listed twice, a key twice, a null value; for a
broker then its id and the values, and only after that whether the caller may; for a topic first whether the caller may, then, where
single configs are changed, whether that can be done with what is stored, then whether there is such a topic, and its values; then
the policy, if there is one. Validate only stops before anything is stored.

What is stored takes effect through the notification that goes with it, here as on the other brokers.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

from klamm.configs.dynamic import is_password
from klamm.configs.listeners import check_served
from klamm.configs.topic import validate_topic_configs
from klamm.configs.types import ConfigError, parse_integer
from klamm.controller.values import ControllerMoved, StoreLost
from klamm.protocol import messages
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.pace import Pace
from klamm.server.requests.context import Context
from klamm.server.security.authorizer import Operation, ResourceType
from klamm.zk.layout.json_values import Unreadable
from klamm.zk.layout.paths import DEFAULT_ENTITY, may_be_in_path
from klamm.zk.session.requests import ZkError

log = logging.getLogger(__name__)

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS = 2, 4, 8, 16

Configs = dict[str, str]
Requested = Mapping[str, str | None]
"""The configs that a request names, with its values."""
Proposal = Callable[[Configs], Configs]
"""From what is stored to what is to be stored. Raises ApiError, ValueError for an operation that does not exist."""


_OF_TOPIC = "Invalid config value for resource ConfigResource(type=TOPIC, name='{}'): "


class ConfigOutcome(NamedTuple):
    """One resource's result; the message is None where all is well or the code says it all."""

    code: ErrorCode
    message: str | None


OK = ConfigOutcome(ErrorCode.NONE, None)


async def alter_each(resources: Sequence[Any], alter: Callable[[Any], Awaitable[None]]) -> list[ConfigOutcome]:
    """ConfigOutcome of each resource, in order. `alter` changes one, or raises ApiError."""
    times = Counter((resource.resource_type, resource.resource_name) for resource in resources)
    outcomes = []
    pace = Pace()
    for resource in resources:
        await pace(1 + len(resource.configs))
        try:
            if times[resource.resource_type, resource.resource_name] > 1:
                raise ApiError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            if len({config.name for config in resource.configs}) < len(resource.configs):
                raise ApiError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
            await alter(resource)
        except ApiError as error:
            outcomes.append(ConfigOutcome(error.code, error.message))
        except ControllerMoved:
            outcomes.append(ConfigOutcome(ErrorCode.STALE_CONTROLLER_EPOCH, "There is no active controller, so configs cannot be changed"))
        except (Unreadable, StoreLost, ZkError) as error:
            log.warning("configs of %d %r are not changed: %s", resource.resource_type, resource.resource_name, error)
            outcomes.append(ConfigOutcome(ErrorCode.UNKNOWN_SERVER_ERROR, None))
        else:
            outcomes.append(OK)
    return outcomes


async def result_rows(ctx: Context, response: str, resources: Sequence[Any], outcomes: Sequence[ConfigOutcome]) -> list[bytes]:
    """The encoded rows of a response: each resource and what became of it."""
    pace = Pace()
    row_type = getattr(messages, response).AlterConfigsResourceResponse
    encode = messages.struct_encoder(response, "AlterConfigsResourceResponse", ctx.api_version)
    rows = []
    for resource, (code, message) in zip(resources, outcomes, strict=True):
        await pace()
        rows.append(encode(row_type(code, message, resource.resource_type, resource.resource_name)))
    return rows


async def replace_configs(ctx: Context, resource_type: int, name: str, configs: Configs, validate_only: bool) -> None:
    """Give one topic or broker these configs. Raises as `alter_configs`."""
    if resource_type == TOPIC:
        _check_topic(ctx, name)
        await _store_topic(ctx, name, configs, configs, validate_only)
    else:
        await alter_configs(ctx, resource_type, name, configs, lambda stored: dict(configs), validate_only)


async def alter_configs(ctx: Context, resource_type: int, name: str, requested: Requested, propose: Proposal, validate_only: bool) -> None:
    """Change one topic's or broker's configs. Raises ApiError; ControllerMoved, Unreadable, StoreLost and ZkError from storing."""
    match resource_type:
        case 2:
            await _alter_topic(ctx, name, requested, propose, validate_only)
        case 4:
            await _alter_broker(ctx, name, requested, propose, validate_only)
        case _:
            raise ApiError(ErrorCode.INVALID_REQUEST, _unsupported(resource_type))


def _unsupported(resource_type: int) -> str:
    if resource_type == CLIENT_METRICS:
        return "AlterConfigs is only supported for topics and brokers, but resource type is CLIENT_METRICS"
    return f"Unknown resource type {resource_type}"


def _check_topic(ctx: Context, topic: str) -> None:
    if not ctx.authorize(Operation.ALTER_CONFIGS, ResourceType.TOPIC, topic):
        raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Not authorized to alter the topic's configs")
    if not topic:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")


async def _alter_topic(ctx: Context, topic: str, requested: Requested, propose: Proposal, validate_only: bool) -> None:
    _check_topic(ctx, topic)
    if not may_be_in_path(topic):
        raise ApiError(ErrorCode.INVALID_CONFIG, f"{_OF_TOPIC.format(topic)}it is no name of a topic")
    # the change is judged before the topic is looked for; what is stored for a topic that does not exist changes no verdict
    stored = await ctx.services.admin_store.read_config("topics", topic) if ctx.services.metadata.contains(topic) else None
    try:
        configs = propose(stored or {})
    except ValueError:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR) from None
    await _store_topic(ctx, topic, requested, configs, validate_only)


async def _store_topic(ctx: Context, topic: str, requested: Requested, configs: Configs, validate_only: bool) -> None:
    if not ctx.services.metadata.contains(topic):
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{topic}' does not exist.")
    if not await ctx.services.admin_store.topic_exists(topic):
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{topic}' does not exist.")
    try:
        validate_topic_configs(configs, ctx.services.config)
    except ApiError as error:
        if isinstance(error.__cause__, ConfigError):
            raise ApiError(error.code, f"{_OF_TOPIC.format(topic)}{error.message}") from error
        raise
    _check_policy(ctx, TOPIC, topic, requested)
    if not validate_only:
        log.info("configs of topic %s become %s", topic, ", ".join(configs) or "none")
        await ctx.services.admin_store.write_config("topics", topic, configs)


async def _alter_broker(ctx: Context, name: str, requested: Requested, propose: Proposal, validate_only: bool) -> None:
    """An empty name is the default entity of all brokers."""
    per_broker = bool(name)
    if per_broker:
        check_is_own_id(ctx, name)
    entity = str(ctx.services.identity.broker_id) if per_broker else DEFAULT_ENTITY
    passwords = ctx.services.config.passwords
    stored, problems = ctx.services.config.usable(await ctx.services.admin_store.read_config("brokers", entity) or {}, per_broker)
    for problem in problems:
        log.warning("configs of broker %s: %s", entity, problem)
    try:
        configs = propose(stored)
        check_served(ctx.services.config.validate_dynamic(configs, per_broker))
    except (ConfigError, ValueError) as error:
        raise ApiError(ErrorCode.INVALID_REQUEST, str(error)) from error
    check_may_alter_cluster(ctx)
    _check_policy(ctx, BROKER, name, requested)
    if validate_only:
        return
    for key in filter(is_password, configs):
        if passwords is None:
            raise ApiError(ErrorCode.INVALID_CONFIG, f"{key} is a password; without password.encoder.secret it cannot be stored")
        configs[key] = passwords.encode(configs[key])
    log.info("configs of broker %s become %s", entity, ", ".join(configs) or "none")
    await ctx.services.admin_store.write_config("brokers", entity, configs)


def _check_policy(ctx: Context, resource_type: int, name: str, requested: Requested) -> None:
    """Raises ApiError when the policy for configs refuses what was requested."""
    try:
        violation = ctx.services.alter_config_policy(resource_type, name, requested)
    except Exception as error:  # somebody else's code: its fault is loud, and only this resource's
        log.exception("the policy for configs raised an exception")
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR) from error
    if violation is not None:
        raise ApiError(ErrorCode.POLICY_VIOLATION, violation)


def check_may_alter_cluster(ctx: Context) -> None:
    """Raises ApiError when the caller may not change configs of brokers."""
    if not ctx.authorize(Operation.ALTER_CONFIGS, ResourceType.CLUSTER):
        raise ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Not authorized to alter configs of brokers")


def check_is_own_id(ctx: Context, name: str, what: str = "Node", other: str = ", but ") -> None:
    """Raises ApiError when the name is not the id of this broker, in the words that Kafka has for the request."""
    own_id = ctx.services.identity.broker_id
    if _number(name, what) != own_id:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {own_id}{other}received {name}")


def check_is_own_logger(ctx: Context, name: str) -> None:
    """`check_is_own_id` for a change of log levels. As Kafka's, the text names this broker twice, and the one requested not at all."""
    own_id = ctx.services.identity.broker_id
    if _number(name, "Node") != own_id:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Unexpected node id. Expected {own_id}, but received {own_id}")


def _number(name: str, what: str) -> int:
    try:
        return parse_integer(name)
    except ValueError:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{what} id must be an integer, but it is: {name}") from None
