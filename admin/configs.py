"""Configs of topics and brokers (keys 32 and 44).

Only the broker itself knows its configs and loggers, so these requests go to that broker. All others go to any broker, in one request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from klamm.admin.calls.arguments import check_bool, check_broker, check_iterable, check_mapping, check_timeout
from klamm.admin.calls.errors import AdminError, error_of, response_error
from klamm.admin.calls.results import Described, Result
from klamm.admin.calls.scope import Scope
from klamm.admin.calls.values import AlterOperation, Changes, ConfigChange, ConfigEntry, ConfigResource, ConfigSource, ResourceType
from klamm.admin.network.io_thread import Call
from klamm.admin.network.session import Outcomes, Session
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.compiler import Message
from klamm.protocol.errors import ErrorCode

T = TypeVar("T")
Entries = dict[str, ConfigEntry]


def describe_configs(
    resources: Iterable[ConfigResource], names: Iterable[str] | None, include_synonyms: bool, include_documentation: bool, timeout_ms: int
) -> Call[Described[ConfigResource, Entries]]:
    """See `AdminClient.describe_configs`."""
    wanted = list(dict.fromkeys(_resource(value) for value in check_iterable(resources, "resources")))
    keys = None if names is None else [_name(name) for name in check_iterable(names, "names")]
    synonyms = check_bool(include_synonyms, "include_synonyms")
    documentation = check_bool(include_documentation, "include_documentation")

    def make(group: list[ConfigResource]) -> Message:
        request = messages.DescribeConfigsRequest
        return request(
            resources=[
                request.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys) for kind, name in group
            ],
            include_synonyms=synonyms,
            include_documentation=documentation,
        )

    def read(response: messages.DescribeConfigsResponse, version: int) -> dict[ConfigResource, Entries | AdminError]:
        return {
            ConfigResource(ResourceType(one.resource_type), one.resource_name): error_of(one.error_code, one.error_message)
            or {entry.name: _entry(entry, one.resource_type, version) for entry in one.configs}
            for one in response.results
        }

    async def run(session: Session, scope: Scope) -> Described[ConfigResource, Entries]:
        results = await _by_broker(session, scope, ApiKey.DESCRIBE_CONFIGS, wanted, make, read)
        descriptions = {key: result for key, result in results.items() if not isinstance(result, AdminError)}
        return Described(descriptions, {key: result for key, result in results.items() if isinstance(result, AdminError)})

    return Call(check_timeout(timeout_ms), run)


def incremental_alter_configs(
    changes: Mapping[ConfigResource, Changes], validate_only: bool, timeout_ms: int
) -> Call[Result[ConfigResource]]:
    """See `AdminClient.incremental_alter_configs`."""
    wanted = {
        _resource(resource): [_change(each) for each in _each_change(some, f"the changes of {resource}")]
        for resource, some in check_mapping(changes, "the changes").items()
    }
    only = check_bool(validate_only, "validate_only")

    def make(group: list[ConfigResource]) -> Message:
        request = messages.IncrementalAlterConfigsRequest
        return request(
            resources=[
                request.AlterConfigsResource(
                    resource_type=resource.type,
                    resource_name=resource.name,
                    configs=[
                        request.AlterableConfig(name=each.name, config_operation=each.operation, value=each.value)
                        for each in wanted[resource]
                    ],
                )
                for resource in group
            ],
            validate_only=only,
        )

    def read(response: messages.IncrementalAlterConfigsResponse, _version: int) -> dict[ConfigResource, AdminError | None]:
        return {
            ConfigResource(ResourceType(one.resource_type), one.resource_name): error_of(one.error_code, one.error_message)
            for one in response.responses
        }

    async def run(session: Session, scope: Scope) -> Result[ConfigResource]:
        outcomes: Outcomes[ConfigResource] = {}
        outcomes |= await _by_broker(session, scope, ApiKey.INCREMENTAL_ALTER_CONFIGS, wanted, make, read)
        return Result(outcomes)

    return Call(check_timeout(timeout_ms), run)


async def _by_broker(
    session: Session,
    scope: Scope,
    key: ApiKey,
    resources: Iterable[ConfigResource],
    make: Callable[[list[ConfigResource]], Message],
    read: Callable[[Any, int], dict[ConfigResource, T]],
) -> dict[ConfigResource, T | AdminError]:
    """The result of `read` for each resource, in their order. If a whole request failed, each of its resources has the error."""
    groups: dict[int | None, list[ConfigResource]] = {}
    for resource in resources:
        groups.setdefault(_broker(resource), []).append(resource)

    async def one(broker: int | None) -> dict[ConfigResource, T]:
        group = groups[broker]
        if broker is None:
            response, version = await session.to_any(scope, key, lambda version: make(group))
        else:
            response, version = await session.to_broker(scope, broker, key, lambda version: make(group))
        return read(response, version)

    results = await session.gather({broker: one(broker) for broker in groups})
    missing = response_error(ErrorCode.UNKNOWN_SERVER_ERROR, "missing in the response")
    outcomes: dict[ConfigResource, T | AdminError] = {}
    for resource in resources:
        result = results[_broker(resource)]
        outcomes[resource] = result if isinstance(result, AdminError) else result.get(resource, missing)
    return outcomes


def _broker(resource: ConfigResource) -> int | None:
    """The broker that must get the request; None for topics and for the dynamic default of all brokers."""
    return int(resource.name) if resource.type is not ResourceType.TOPIC and resource.name else None


def _resource(value: object) -> ConfigResource:
    if not isinstance(value, (tuple, list)) or len(value) != 2 or not isinstance(value[1], str):
        raise TypeError(f"a resource must be a ConfigResource, not {value!r}")
    try:
        kind = ResourceType(value[0])
    except ValueError:
        raise ValueError(f"a resource's type must be a ResourceType, not {value[0]!r}") from None
    resource = ConfigResource(kind, value[1])
    if kind is ResourceType.TOPIC:
        if not resource.name:
            raise ValueError("a topic resource has no name")
    elif resource.name:
        if not resource.name.isdecimal():
            raise ValueError(f"a broker resource's name must be a broker id or empty, not {resource.name!r}")
        check_broker(int(resource.name))
    elif kind is ResourceType.BROKER_LOGGER:
        raise ValueError("a broker logger resource needs a broker id as its name")
    return resource


def _name(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a config's name must be a str, not {value!r}")
    if not value:
        raise ValueError("a config's name is empty")
    return value


def _each_change(changes: Changes, what: str) -> Iterable[object]:
    """The changes as single values. A mapping has values to set, and None to delete."""
    if not isinstance(changes, Mapping):
        return check_iterable(changes, what)
    return [
        ConfigChange(name, value, AlterOperation.DELETE if value is None else AlterOperation.SET) for name, value in changes.items()
    ]


def _change(value: object) -> ConfigChange:
    if not isinstance(value, ConfigChange):
        raise TypeError(f"a change must be a ConfigChange, or all of them a mapping of names to values, not {value!r}")
    _name(value.name)
    if value.value is not None and not isinstance(value.value, str):
        raise TypeError(f"the value of {value.name} must be a str or None, not {value.value!r}")
    if (value.value is None) != (value.operation is AlterOperation.DELETE):
        what = "DELETE takes no value" if value.value is not None else f"{AlterOperation(value.operation).name} needs a value"
        raise ValueError(f'{value.name}: {what}; to delete it: ConfigChange("{value.name}", operation=AlterOperation.DELETE)')
    return value._replace(operation=AlterOperation(value.operation))


def _entry(entry: messages.DescribeConfigsResponse.DescribeConfigsResourceResult, resource_type: int, version: int) -> ConfigEntry:
    """An entry of a response. Version 0 only says whether the value is the default; otherwise the source depends on the resource type."""
    if version > 0:
        source = _source(entry.config_source)
    elif entry.is_default:
        source = ConfigSource.DEFAULT
    else:
        source = ConfigSource.DYNAMIC_TOPIC if resource_type == ResourceType.TOPIC else ConfigSource.STATIC_BROKER
    synonyms = tuple((synonym.name, synonym.value, _source(synonym.source)) for synonym in entry.synonyms or ())
    return ConfigEntry(entry.name, entry.value, source, entry.read_only, entry.is_sensitive, synonyms, entry.documentation)


def _source(number: int) -> ConfigSource:
    """The source; UNKNOWN for a number of a later version of Kafka."""
    try:
        return ConfigSource(number)
    except ValueError:
        return ConfigSource.UNKNOWN
