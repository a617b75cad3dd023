"""DescribeClientQuotas (48), versions 0-1: the stored quotas of users, clients, clients of users and addresses that match a filter.

Any broker responds, with what is in ZooKeeper. Needs DESCRIBE_CONFIGS on the cluster. A filter has at most one component for each type of
entity: an exact name, the default entity, or any name. A component for addresses goes with no other one. Entities that have a type without
a component match unless the filter is strict. Without components, a strict filter matches nothing. An unknown type of entity gets
UNSUPPORTED_VERSION. An unknown type of match, an exact match without a name and a stored quota that is not a number get
UNKNOWN_SERVER_ERROR. Source: `ZkAdminManager.describeClientQuotas` of Apache Kafka 3.9.1.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Literal, NamedTuple

from klamm.configs.client_quotas import CLIENT_QUOTAS, IP_QUOTAS
from klamm.configs.definitions.types import ConfigType, parse_double
from klamm.protocol import messages
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.seams.pace import Pace
from klamm.server.requests.context import Context
from klamm.server.requests.services import AdminStore
from klamm.server.security.authorizer import Operation, ResourceType
from klamm.zk.layout.json_values import Unreadable
from klamm.zk.layout.paths import DEFAULT_ENTITY, desanitize, may_be_in_path, sanitize

USER, CLIENT_ID, IP = "user", "client-id", "ip"
EXACT, DEFAULT, ANY = 0, 1, 2

Names = dict[str, str | None]
"""Type of entity → name, None for the default entity."""


class Match(NamedTuple):
    """A component of a filter. `name` is None for the default entity; it does not count for any name."""

    is_any: bool
    name: str | None = None

    def accepts(self, name: str | None) -> bool:
        return self.is_any or name == self.name


class Filter(NamedTuple):
    """A valid filter: a match for each type of entity that has a component."""

    matches: Mapping[str, Match]
    strict: bool

    def accepts(self, names: Names) -> bool:
        """Whether an entity matches."""
        if any(type_ not in names or not match.accepts(names[type_]) for type_, match in self.matches.items()):
            return False
        return not self.strict or all(type_ in self.matches for type_ in names)

    def reads(self, *types: str) -> Literal["all"] | list[str | None]:
        """Which entities of exactly these types are read: all, or those with the names of one entity, a name for each type; empty for none.

        More are read than can match, as in Apache Kafka: a znode that cannot be read fails a request that would not show it.
        """
        if (IP in types) != (IP in self.matches) and self.matches:
            return []
        others = {USER, CLIENT_ID} - {*types} if IP not in types else set()
        if all(self._is_exact(type_) for type_ in types) and all(self._excludes(type_) for type_ in others):
            return [self.matches[type_].name for type_ in types]
        none = any(self._excludes(type_) for type_ in types) or any(self._is_exact(type_) for type_ in others)
        return [] if none else "all"

    def _is_exact(self, type_: str) -> bool:
        return type_ in self.matches and not self.matches[type_].is_any

    def _excludes(self, type_: str) -> bool:
        return self.strict and type_ not in self.matches


async def handle(ctx: Context, request: messages.DescribeClientQuotasRequest) -> messages.DescribeClientQuotasResponse:
    if not ctx.authorize(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER):
        return refuse(request, ctx.api_version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    try:
        entries = await _entries(ctx.services.admin_store, _filter(request))
    except ApiError as error:
        return refuse(request, ctx.api_version, error.code, error.message)
    except Unreadable:
        return refuse(request, ctx.api_version, ErrorCode.UNKNOWN_SERVER_ERROR)
    return messages.DescribeClientQuotasResponse(error_code=ErrorCode.NONE, error_message="", entries=entries)


def refuse(
    request: messages.DescribeClientQuotasRequest, version: int, code: ErrorCode, message: str | None = None
) -> messages.DescribeClientQuotasResponse:
    return messages.DescribeClientQuotasResponse(error_code=code, error_message=message, entries=None)


def _filter(request: messages.DescribeClientQuotasRequest) -> Filter:
    """The filter of a request. Raises ApiError."""
    components = [(component.entity_type, _match(component)) for component in request.components]
    matches: dict[str, Match] = {}
    for type_, match in components:
        if type_ in matches:
            name = "client" if type_ == CLIENT_ID else type_
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Duplicate {name} filter component entity type")
        if type_ == "":
            raise ApiError(ErrorCode.INVALID_REQUEST, "Unexpected empty filter component entity type")
        if type_ not in (USER, CLIENT_ID, IP):
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"Custom entity type '{type_}' not supported")
        matches[type_] = match
    if IP in matches and len(matches) > 1:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            "Invalid entity filter component combination, IP filter component should not be used with user or clientId filter component.",
        )
    return Filter(matches, request.strict)


def _match(component: messages.DescribeClientQuotasRequest.ComponentData) -> Match:
    if component.match_type == ANY:
        return Match(is_any=True)
    if component.match_type == DEFAULT:
        return Match(is_any=False)
    if component.match_type != EXACT or component.match is None:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR)
    return Match(is_any=False, name=component.match)


async def _entries(store: AdminStore, wanted: Filter) -> list[messages.DescribeClientQuotasResponse.EntryData]:
    """The entities that match, with their quotas. Raises ApiError, Unreadable."""
    entries: list[messages.DescribeClientQuotasResponse.EntryData] = []
    for kind, types, list_names, quotas in (
        ("users", (USER,), store.config_names, CLIENT_QUOTAS),
        ("clients", (CLIENT_ID,), store.config_names, CLIENT_QUOTAS),
        ("users", (USER, CLIENT_ID), lambda _: store.user_client_names(), CLIENT_QUOTAS),
        ("ips", (IP,), store.config_names, IP_QUOTAS),
    ):
        entries += await _of_types(store, wanted, kind, types, list_names, quotas)
    return entries


async def _of_types(
    store: AdminStore,
    wanted: Filter,
    kind: str,
    types: tuple[str, ...],
    list_names: Callable[[str], Awaitable[list[str]]],
    quotas: Mapping[str, ConfigType],
) -> list[messages.DescribeClientQuotasResponse.EntryData]:
    reads = wanted.reads(*types)
    if not reads:
        return []
    names = await list_names(kind) if reads == "all" else ["/clients/".join(map(znode_name, reads))]
    if reads != "all" and not may_be_in_path(names[0]):
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR)
    entries = []
    pace = Pace()
    for name, properties in zip(names, await store.read_configs(kind, names), strict=True):
        await pace()
        entity: Names = dict(zip(types, map(entity_name, name.split("/clients/")), strict=True))
        found = {key: text for key, text in (properties or {}).items() if key in quotas}
        if found and wanted.accepts(entity):
            entries.append(_entry(entity, found))
    return entries


def _entry(entity: Names, quotas: Mapping[str, str]) -> messages.DescribeClientQuotasResponse.EntryData:
    response = messages.DescribeClientQuotasResponse
    try:
        values = [response.ValueData(key=key, value=parse_double(text)) for key, text in quotas.items()]
    except ValueError:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR) from None
    rows = [response.EntityData(entity_type=type_, entity_name=name) for type_, name in entity.items()]
    return response.EntryData(entity=rows, values=values)


def znode_name(name: str | None) -> str:
    """The znode name of an entity, None for the default entity."""
    return DEFAULT_ENTITY if name is None else sanitize(name)


def entity_name(znode: str) -> str | None:
    """The opposite of `znode_name`."""
    return None if znode == DEFAULT_ENTITY else desanitize(znode)
