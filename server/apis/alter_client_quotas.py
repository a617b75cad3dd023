"""AlterClientQuotas (49), versions 0-1: set and remove quotas of users, clients, clients of users, and addresses.

Any broker writes them to ZooKeeper, on condition that there is a controller. Needs ALTER_CONFIGS on the cluster. Each entity succeeds or
fails alone, and nothing of a failed one is written. Entities are taken one after the other; one that is named twice has one result, that of
the last entry. Other configs of a user, such as its SCRAM credentials, stay as they are. To remove what is not there is no error.

The checks are in the order of Apache Kafka: names of the entity, combination, whether an address resolves, keys and values in their order,
then what is stored besides (UNKNOWN_SERVER_ERROR, and only if something is to be written). ValidateOnly stops before anything is stored.
All brokers apply what is stored through a notification. Source: `ZkAdminManager.alterClientQuotas` of Apache Kafka 3.9.1.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from klamm.configs.client_quotas import CLIENT_QUOTAS, IP_QUOTAS, SCRAM_MECHANISMS, check_quotas, quota_text
from klamm.configs.definitions.types import ConfigType
from klamm.controller.values import ControllerMoved, StoreLost
from klamm.protocol import messages
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.seams.pace import Pace
from klamm.server.apis.describe_client_quotas import CLIENT_ID, IP, USER, Names, znode_name
from klamm.server.requests.context import Context
from klamm.server.security.authorizer import Operation, ResourceType
from klamm.zk.layout.json_values import Unreadable
from klamm.zk.layout.paths import DEFAULT_ENTITY, may_be_in_path
from klamm.zk.session.requests import ZkError

log = logging.getLogger(__name__)

Result = tuple[ErrorCode, str | None]


class StoredQuotas(NamedTuple):
    """Where the quotas of an entity are stored, which ones it has, and which other configs."""

    kind: str
    name: str
    quotas: Mapping[str, ConfigType]
    others: tuple[str, ...] = ()


async def handle(ctx: Context, request: messages.AlterClientQuotasRequest) -> messages.AlterClientQuotasResponse:
    if not ctx.authorize(Operation.ALTER_CONFIGS, ResourceType.CLUSTER):
        return refuse(request, ctx.api_version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.")
    results: dict[frozenset[tuple[str, str | None]], tuple[Names, Result]] = {}
    pace = Pace()
    for entry in request.entries:
        await pace(1 + len(entry.ops))
        entity = _entity(entry)
        results[frozenset(entity.items())] = entity, await _result(ctx, entity, entry.ops, request.validate_only)
    return messages.AlterClientQuotasResponse(entries=[_row(entity, *result) for entity, result in results.values()])


def refuse(
    request: messages.AlterClientQuotasRequest, version: int, code: ErrorCode, message: str | None = None
) -> messages.AlterClientQuotasResponse:
    kind = messages.AlterClientQuotasResponse
    entries = [
        kind.EntryData(code, message, [kind.EntityData(row.entity_type, row.entity_name) for row in entry.entity])
        for entry in request.entries
    ]
    return kind(entries=entries)


def _entity(entry: messages.AlterClientQuotasRequest.EntryData) -> Names:
    """The entity of an entry: of a type that comes twice the last name. The client is before its user, as in Apache Kafka."""
    rows = sorted(entry.entity, key=lambda row: row.entity_type != CLIENT_ID)
    return {row.entity_type: row.entity_name for row in rows}


def _row(entity: Names, code: ErrorCode, message: str | None) -> messages.AlterClientQuotasResponse.EntryData:
    response = messages.AlterClientQuotasResponse
    rows = [response.EntityData(entity_type=type_, entity_name=name) for type_, name in entity.items()]
    return response.EntryData(error_code=code, error_message=message, entity=rows)


async def _result(ctx: Context, entity: Names, ops: Sequence[messages.AlterClientQuotasRequest.OpData], validate_only: bool) -> Result:
    """Alter one entity; returns its result."""
    try:
        await _alter(ctx, entity, ops, validate_only)
    except ApiError as error:
        return error.code, error.message
    except ControllerMoved:
        return ErrorCode.STALE_CONTROLLER_EPOCH, "There is no active controller, so configs cannot be changed"
    except (Unreadable, StoreLost, ZkError) as error:
        log.warning("cannot change the quotas of %s: %s", entity, error)
        return ErrorCode.UNKNOWN_SERVER_ERROR, None
    return ErrorCode.NONE, None


async def _alter(ctx: Context, entity: Names, ops: Sequence[messages.AlterClientQuotasRequest.OpData], validate_only: bool) -> None:
    place = _place(entity)
    if place.kind == "ips" and place.name != DEFAULT_ENTITY and not await _resolves(place.name):
        raise _invalid(f"{place.name} is not a valid IP or resolvable host.")
    if not may_be_in_path(place.name):
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR)
    store = ctx.services.admin_store
    properties = dict(await store.read_config(place.kind, place.name) or {})
    for op in ops:
        if op.remove:
            properties.pop(op.key, None)
        else:
            properties[op.key] = _text(place, op.key, op.value)
    if validate_only:
        return
    try:
        check_quotas(properties, place.quotas, place.others)
    except ValueError as problem:
        log.warning("cannot change the quotas of %s: %s", entity, problem)
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR) from None
    await store.write_config(place.kind, place.name, properties)


def _place(entity: Names) -> StoredQuotas:
    """Raises ApiError for an entity that cannot have quotas."""
    if not entity:
        raise _invalid("Invalid empty client quota entity")
    for type_, name in entity.items():
        if type_ not in (USER, CLIENT_ID, IP):
            raise _invalid(f"Unhandled client quota entity type: {type_}")
        if name == "":
            raise _invalid(f"Empty {type_} not supported")
    if IP in entity and len(entity) > 1:
        raise _invalid("Invalid quota entity combination, IP entity should not be used with user/client ID entity.")
    if IP in entity:
        return StoredQuotas("ips", znode_name(entity[IP]), IP_QUOTAS)
    if USER not in entity:
        return StoredQuotas("clients", znode_name(entity[CLIENT_ID]), CLIENT_QUOTAS)
    user = znode_name(entity[USER])
    if CLIENT_ID in entity:
        return StoredQuotas("users", f"{user}/clients/{znode_name(entity[CLIENT_ID])}", CLIENT_QUOTAS)
    return StoredQuotas("users", user, CLIENT_QUOTAS, () if user == DEFAULT_ENTITY else SCRAM_MECHANISMS)


def _text(place: StoredQuotas, key: str, value: float) -> str:
    """The text to store for the value of a quota. Raises ApiError."""
    type_ = place.quotas.get(key)
    if type_ is None and place.kind == "users" and key in SCRAM_MECHANISMS:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR)  # a config of users that is not a number
    if type_ is None:
        raise _invalid(f"Invalid configuration key {key}")
    try:
        return quota_text(value, type_)
    except ValueError:
        raise _invalid(f"Configuration {key} must be a {type_.name} value") from None


async def _resolves(host: str) -> bool:
    """Whether this is an address or the name of a host."""
    try:
        await asyncio.get_running_loop().getaddrinfo(host, None)
    except (OSError, UnicodeError):
        return False
    return True


def _invalid(text: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, text)
