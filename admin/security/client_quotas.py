"""Client quotas (KIP-546): described and altered by any broker (keys 48 and 49, since 2.6)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from klamm.admin.calls.arguments import check_bool, check_mapping, check_text
from klamm.admin.calls.deadlines import deadline_ms
from klamm.admin.calls.errors import error_of, response_error
from klamm.admin.calls.results import Result
from klamm.admin.calls.scope import Scope
from klamm.admin.network.io_thread import Call
from klamm.admin.network.session import Session
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.errors import ErrorCode

_KINDS = {"user": "user", "client_id": "client-id", "ip": "ip"}
"""Part of an entity → its type in requests."""
_EXACT, _DEFAULT, _ANY = 0, 1, 2


class QuotaEntity(NamedTuple):
    """Whom quotas are for. A part is a name, or "" for the default of its kind; None means that the entity has no such part."""

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None


def describe_client_quotas(
    components: Mapping[str, str | None], strict: bool, timeout_ms: int
) -> Call[dict[QuotaEntity, dict[str, float]]]:
    """See `AdminClient.describe_client_quotas`."""
    request = messages.DescribeClientQuotasRequest
    rows = []
    for part, name in check_mapping(components, "the components").items():
        if part not in _KINDS:
            raise ValueError(f"a component must be one of {', '.join(_KINDS)}, not {part!r}")
        match = _ANY if name is None else _EXACT if check_text(name, part) else _DEFAULT
        rows.append(request.ComponentData(_KINDS[part], match, name or None))
    only = check_bool(strict, "strict")

    async def run(session: Session, scope: Scope) -> dict[QuotaEntity, dict[str, float]]:
        response, _ = await session.to_any(scope, ApiKey.DESCRIBE_CLIENT_QUOTAS, lambda version: request(rows, only))
        error = error_of(response.error_code, response.error_message)
        if error is not None:
            raise error
        return {_entity(entry.entity): {each.key: each.value for each in entry.values} for entry in response.entries or ()}

    return Call(deadline_ms(timeout_ms), run)


def alter_client_quotas(
    changes: Mapping[QuotaEntity, Mapping[str, float | None]], validate_only: bool, timeout_ms: int
) -> Call[Result[QuotaEntity]]:
    """See `AdminClient.alter_client_quotas`."""
    request = messages.AlterClientQuotasRequest
    wanted = {
        _checked(entity): [_operation(key, value) for key, value in check_mapping(quotas, f"the quotas of {entity}").items()]
        for entity, quotas in check_mapping(changes, "the changes").items()
    }
    entries = [
        request.EntryData(entity=[request.EntityData(kind, name) for kind, name in _parts(entity)], ops=operations)
        for entity, operations in wanted.items()
    ]
    only = check_bool(validate_only, "validate_only")

    async def run(session: Session, scope: Scope) -> Result[QuotaEntity]:
        response, _ = await session.to_any(scope, ApiKey.ALTER_CLIENT_QUOTAS, lambda version: request(entries, only))
        missing = response_error(ErrorCode.UNKNOWN_SERVER_ERROR, "missing in the response")
        errors = {_entity(entry.entity): error_of(entry.error_code, entry.error_message) for entry in response.entries}
        return Result({entity: errors.get(entity, missing) for entity in wanted})

    return Call(deadline_ms(timeout_ms), run)


def _operation(key: object, value: object) -> messages.AlterClientQuotasRequest.OpData:
    if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float))):
        raise TypeError(f"the quota {key} must be a number, or None to remove it, not {value!r}")
    return messages.AlterClientQuotasRequest.OpData(check_text(key, "a quota"), 0.0 if value is None else float(value), value is None)


def _checked(entity: object) -> QuotaEntity:
    if not isinstance(entity, QuotaEntity):
        raise TypeError(f"an entity must be a QuotaEntity, not {entity!r}")
    for part, name in entity._asdict().items():
        if name is not None:
            check_text(name, part)
    if entity == QuotaEntity():
        raise ValueError("an entity needs a user, a client id or an address")
    return entity


def _parts(entity: QuotaEntity) -> Iterable[tuple[str, str | None]]:
    """Types and names as in requests, where None is the default."""
    return [(_KINDS[part], name or None) for part, name in entity._asdict().items() if name is not None]


def _entity(rows: Iterable[Any]) -> QuotaEntity:
    names = {row.entity_type: row.entity_name or "" for row in rows}
    return QuotaEntity(*(names.get(kind) for kind in _KINDS.values()))
