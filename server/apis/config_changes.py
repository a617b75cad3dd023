"""What AlterConfigs and IncrementalAlterConfigs share: permissions, checks of the new configs, and storing them.

A resource is a topic (2), a broker (4) or, for incremental changes, the log levels of a broker (8). Each succeeds or fails alone. The
checks are made in Kafka's order, so that a request with several errors gets the same error:

* for all: the resource is named twice, a key is named twice, a null value;
* for a broker: its id, the values, the permission;
* for a topic: the permission, whether the incremental change fits the stored configs, whether the topic exists, the values;
* for all: the policy, if there is one.

ValidateOnly stops before anything is stored. The stored configs take effect through a notification in ZooKeeper, on this broker as on
the others.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

from klamm.configs.definitions.types import ConfigError, parse_integer
from klamm.configs.dynamic import is_password
from klamm.configs.topic import validate_topic_configs
from klamm.controller.values import ControllerMoved, StoreLost
from klamm.protocol import messages
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.seams.pace import Pace
from klamm.server.listeners.listeners import security_of
from klamm.server.requests.context import Context
from klamm.server.security.authorizer import Operation, ResourceType
from klamm.server.security.sasl.scram_credentials import ScramCredentials
from klamm.zk.layout.json_values import Unreadable
from klamm.zk.layout.paths import DEFAULT_ENTITY, may_be_in_path
from klamm.zk.session.requests import ZkError

log = logging.getLogger(__name__)

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS = 2, 4, 8, 16

Configs = dict[str, str]
Requested = Mapping[str, str | None]
"""Config → value in the request."""
Proposal = Callable[[Configs], Configs]
"""Returns the configs to store, from the stored ones. Raises ApiError; ValueError for an operation that does not exist."""


_OF_TOPIC = "Invalid config value for resource ConfigResource(type=TOPIC, name='{}'): "
_OF_BROKER = "Invalid config value for resource ConfigResource(type=BROKER, name='{}'): "


class ConfigOutcome(NamedTuple):
    """The result of one resource. The message is None on success, or if the code has no text."""

    code: ErrorCode
    message: str | None


class RequestRefused(ApiError):
    """An error of one resource that fails the whole request."""


OK = ConfigOutcome(ErrorCode.NONE, None)


async def alter_each(resources: Sequence[Any], alter: Callable[[Any], Awaitable[None]]) -> list[ConfigOutcome]:
    """Alter each resource with `alter`, which may raise ApiError; returns the outcomes in order.

    Raises RequestRefused after the last resource if `alter` has raised it: the request as a whole has failed then. As in Kafka,
    the other resources have been altered all the same.
    """
    times = Counter((resource.resource_type, resource.resource_name) for resource in resources)
    outcomes = []
    refusal: RequestRefused | None = None
    pace = Pace()
    for resource in resources:
        await pace(1 + len(resource.configs))
        try:
            if times[resource.resource_type, resource.resource_name] > 1:
                raise ApiError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            if len({config.name for config in resource.configs}) < len(resource.configs):
                raise ApiError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
            await alter(resource)
        except RequestRefused as error:
            refusal = refusal or error
        except ApiError as error:
            outcomes.append(ConfigOutcome(error.code, error.message))
        except ControllerMoved:
            outcomes.append(ConfigOutcome(ErrorCode.STALE_CONTROLLER_EPOCH, "There is no active controller, so configs cannot be changed"))
        except (Unreadable, StoreLost, ZkError) as error:
            log.warning("cannot change the configs of resource %d %r: %s", resource.resource_type, resource.resource_name, error)
            outcomes.append(ConfigOutcome(ErrorCode.UNKNOWN_SERVER_ERROR, None))
        else:
            outcomes.append(OK)
    if refusal is not None:
        raise refusal
    return outcomes


async def result_rows(ctx: Context, response: str, resources: Sequence[Any], outcomes: Sequence[ConfigOutcome]) -> list[bytes]:
    """The encoded rows of a response: each resource with its outcome."""
    pace = Pace()
    row_type = getattr(messages, response).AlterConfigsResourceResponse
    encode = messages.struct_encoder(response, "AlterConfigsResourceResponse", ctx.api_version)
    rows = []
    for resource, (code, message) in zip(resources, outcomes, strict=True):
        await pace()
        rows.append(encode(row_type(code, message, resource.resource_type, resource.resource_name)))
    return rows


async def replace_configs(ctx: Context, resource_type: int, name: str, configs: Configs, validate_only: bool) -> None:
    """Replace all configs of one topic or broker. Raises the same errors as `alter_configs`."""
    if resource_type == TOPIC:
        _check_topic(ctx, name)
        await _store_topic(ctx, name, configs, configs, validate_only)
    elif resource_type == BROKER:
        await _store_broker(ctx, name, _entity(ctx, name), configs, dict(configs), validate_only)
    else:
        raise _unsupported(ctx, resource_type, name)


async def alter_configs(ctx: Context, resource_type: int, name: str, requested: Requested, propose: Proposal, validate_only: bool) -> None:
    """Change configs of one topic or broker. Raises ApiError, and ControllerMoved, Unreadable, StoreLost and ZkError from ZooKeeper."""
    match resource_type:
        case 2:
            await _alter_topic(ctx, name, requested, propose, validate_only)
        case 4:
            await _alter_broker(ctx, name, requested, propose, validate_only)
        case _:
            raise _unsupported(ctx, resource_type, name)


def _unsupported(ctx: Context, resource_type: int, name: str) -> ApiError:
    if resource_type != CLIENT_METRICS:
        return ApiError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource_type}")
    if not ctx.authorize(Operation.ALTER_CONFIGS, ResourceType.CLUSTER):
        return RequestRefused(ErrorCode.INVALID_REQUEST, f"Unexpected resource type CLIENT_METRICS for resource {name}")
    return ApiError(ErrorCode.INVALID_REQUEST, "AlterConfigs is only supported for topics and brokers, but resource type is CLIENT_METRICS")


def _check_topic(ctx: Context, topic: str) -> None:
    if not ctx.authorize(Operation.ALTER_CONFIGS, ResourceType.TOPIC, topic):
        raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    if not topic:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")


async def _alter_topic(ctx: Context, topic: str, requested: Requested, propose: Proposal, validate_only: bool) -> None:
    _check_topic(ctx, topic)
    if not may_be_in_path(topic):
        raise ApiError(ErrorCode.INVALID_CONFIG, f"{_OF_TOPIC.format(topic)}it is not a valid topic name")
    # the change is checked before the existence of the topic: configs may be stored without it
    stored = await ctx.services.admin_store.read_config("topics", topic)
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
        log.info("storing configs of topic %s: %s", topic, ", ".join(configs) or "none")
        await ctx.services.admin_store.write_config("topics", topic, configs)


async def _alter_broker(ctx: Context, name: str, requested: Requested, propose: Proposal, validate_only: bool) -> None:
    """Change the configs of this broker; with an empty name, the default configs of all brokers."""
    entity = _entity(ctx, name)
    stored, problems = ctx.services.config.usable(await ctx.services.admin_store.read_config("brokers", entity) or {}, bool(name))
    for problem in problems:
        log.warning("configs of broker %s: %s", entity, problem)
    try:
        configs = propose(stored)
    except (ConfigError, ValueError) as error:
        raise ApiError(ErrorCode.INVALID_REQUEST, str(error)) from error
    await _store_broker(ctx, name, entity, requested, configs, validate_only)


def _entity(ctx: Context, name: str) -> str:
    """The entity of a broker in ZooKeeper. Raises ApiError if it is another broker's."""
    if not name:
        return DEFAULT_ENTITY
    check_is_own_id(ctx, name)
    return str(ctx.services.identity.broker_id)


async def _store_broker(ctx: Context, name: str, entity: str, requested: Requested, configs: Configs, validate_only: bool) -> None:
    passwords = ctx.services.config.passwords
    try:
        for listener in ctx.services.config.validate_dynamic(configs, bool(name)):
            security_of(listener, ScramCredentials(), ctx.services.clock)
    except ConfigError as error:
        raise ApiError(ErrorCode.INVALID_REQUEST, error.response) from error
    except ValueError as error:
        raise ApiError(ErrorCode.INVALID_REQUEST, str(error)) from error
    check_may_alter_cluster(ctx)
    _check_policy(ctx, BROKER, name, requested)
    if validate_only:
        return
    for key in filter(is_password, configs):
        if passwords is None:
            raise ApiError(ErrorCode.INVALID_CONFIG, f"{_OF_BROKER.format(name)}Password encoder secret not configured")
        configs[key] = passwords.encode(configs[key])
    log.info("storing configs of broker %s: %s", entity, ", ".join(configs) or "none")
    await ctx.services.admin_store.write_config("brokers", entity, configs)


def _check_policy(ctx: Context, resource_type: int, name: str, requested: Requested) -> None:
    """Raises ApiError if the policy for configs refuses the request."""
    try:
        violation = ctx.services.alter_config_policy(resource_type, name, requested)
    except Exception as error:  # the user's code: log its fault with a traceback, and fail only this resource
        log.exception("the policy for configs raised an exception")
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR) from error
    if violation is not None:
        raise ApiError(ErrorCode.POLICY_VIOLATION, violation)


def check_may_alter_cluster(ctx: Context) -> None:
    """Raises ApiError if the client may not change configs of brokers."""
    if not ctx.authorize(Operation.ALTER_CONFIGS, ResourceType.CLUSTER):
        raise ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


def check_is_own_id(ctx: Context, name: str, what: str = "Node", other: str = ", but ") -> None:
    """Raises ApiError if the name is not the id of this broker. The text is Kafka's for this request."""
    own_id = ctx.services.identity.broker_id
    if _number(name, what) != own_id:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {own_id}{other}received {name}")


def check_is_own_logger(ctx: Context, name: str) -> None:
    """Like `check_is_own_id`, for log levels. As in Kafka, the text contains the id of this broker twice instead of the requested one."""
    own_id = ctx.services.identity.broker_id
    if _number(name, "Node") != own_id:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Unexpected node id. Expected {own_id}, but received {own_id}")


def _number(name: str, what: str) -> int:
    try:
        return parse_integer(name)
    except ValueError:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{what} id must be an integer, but it is: {name}") from None
