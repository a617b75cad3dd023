"""AlterUserScramCredentials (51), version 0: store and delete SCRAM credentials of users. Only the active controller handles it.

On other brokers every user gets NOT_CONTROLLER. Needs ALTER on the cluster. Each user has one result, and nothing of a user that fails is
written. The checks are in the order of Apache Kafka: names, mechanisms and iterations, credentials that are named twice, credentials to
delete that do not exist, the salted passwords, then the other configs of the user. As in Apache Kafka, an empty salted password fails all
users that passed the checks before it, and a znode that cannot be read fails all users. Other configs of a user, such as its quotas, stay
as they are. Source: `ZkAdminManager.alterUserScramCredentials` of 3.9.1.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence

from klamm.configs.client_quotas import CLIENT_QUOTAS, SCRAM_MECHANISMS, check_quotas
from klamm.controller.values import ControllerMoved, StoreLost
from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode
from klamm.seams.pace import Pace
from klamm.server.apis.describe_user_scram_credentials import EMPTY_NAME, UNEXPECTED
from klamm.server.requests.context import Context
from klamm.server.requests.services import AdminStore
from klamm.server.security.authorizer import Operation, ResourceType
from klamm.server.security.sasl.scram_credentials import MAX_ITERATIONS, MECHANISMS, MIN_ITERATIONS, credential_text
from klamm.zk.layout.json_values import Unreadable
from klamm.zk.layout.paths import may_be_in_path, sanitize
from klamm.zk.session.requests import ZkError

log = logging.getLogger(__name__)

Request = messages.AlterUserScramCredentialsRequest
Result = tuple[ErrorCode, str]

_SUCCESS: Result = ErrorCode.NONE, ""
_UNEXPECTED: Result = ErrorCode.UNKNOWN_SERVER_ERROR, UNEXPECTED
_NO_NAME: Result = ErrorCode.UNACCEPTABLE_CREDENTIAL, EMPTY_NAME
_UNKNOWN_MECHANISM: Result = ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"
_TOO_FEW: Result = ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations"
_TOO_MANY: Result = ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations"
_TWICE: Result = ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request"
_NOT_FOUND: Result = ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"
_MOVED: Result = ErrorCode.STALE_CONTROLLER_EPOCH, "The controller moved to another broker."


async def handle(ctx: Context, request: Request) -> messages.AlterUserScramCredentialsResponse:
    if not ctx.services.controller.is_active:
        return refuse(request, ctx.api_version, ErrorCode.NOT_CONTROLLER)
    if not ctx.authorize(Operation.ALTER, ResourceType.CLUSTER):
        return refuse(request, ctx.api_version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    results = await _refusals(request)
    users = [user for user in _users(request) if user not in results]
    store = ctx.services.admin_store
    try:
        stored = await _stored(store, users)
    except Unreadable as problem:
        log.warning("cannot alter SCRAM credentials: %s", problem)
        return refuse(request, ctx.api_version, ErrorCode.UNKNOWN_SERVER_ERROR)
    results |= dict.fromkeys(_without_credential(request, stored), _NOT_FOUND)
    users = [user for user in users if user not in results]
    try:
        await _change(request, {user: stored[user] for user in users})
    except ValueError as problem:
        log.warning("cannot alter SCRAM credentials: %s", problem)
        results |= dict.fromkeys(users, _UNEXPECTED)
    else:
        results |= {user: await _save(store, user, stored[user]) for user in users}
    return _response((user, *result) for user, result in results.items())


def refuse(request: Request, version: int, code: ErrorCode, message: str | None = None) -> messages.AlterUserScramCredentialsResponse:
    return _response((user, code, message) for user in _users(request))


def _response(results: Iterable[tuple[str, ErrorCode, str | None]]) -> messages.AlterUserScramCredentialsResponse:
    row = messages.AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult
    rows = [row(user=user, error_code=code, error_message=text) for user, code, text in results]
    return messages.AlterUserScramCredentialsResponse(results=rows)


def _users(request: Request) -> list[str]:
    """All users of a request, each once, in the order in which Apache Kafka writes them if they are at most four."""
    return list(dict.fromkeys(user for user, _ in _credentials(request)))


def _credentials(request: Request) -> list[tuple[str, int]]:
    """User and mechanism of each upsertion, then of each deletion."""
    deletions = [(each.name, each.mechanism) for each in request.deletions]
    return [*((each.name, each.mechanism) for each in request.upsertions), *deletions]


async def _refusals(request: Request) -> dict[str, Result]:
    """The users that are refused because of the request alone. The last reason counts; an upsertion counts more than a deletion."""
    pace, results = Pace(), dict[str, Result]()
    for deletion in request.deletions:
        await pace()
        if not deletion.name or deletion.mechanism not in MECHANISMS:
            results[deletion.name] = _UNKNOWN_MECHANISM if deletion.name else _NO_NAME
    for upsertion in request.upsertions:
        await pace()
        refusal = _refusal(upsertion)
        if refusal is not None:
            results[upsertion.name] = refusal
    named: set[tuple[str, int]] = set()
    twice: dict[str, Result] = {}
    for credential in _credentials(request):
        await pace()
        if credential[0] not in results and credential in named:
            twice[credential[0]] = _TWICE
        named.add(credential)
    return results | twice


def _refusal(upsertion: Request.ScramCredentialUpsertion) -> Result | None:
    if not upsertion.name:
        return _NO_NAME
    if upsertion.mechanism not in MECHANISMS:
        return _UNKNOWN_MECHANISM
    if upsertion.iterations > MAX_ITERATIONS:
        return _TOO_MANY
    return _TOO_FEW if upsertion.iterations < MIN_ITERATIONS else None


async def _stored(store: AdminStore, users: Sequence[str]) -> dict[str, dict[str, str]]:
    """The configs of these users, empty without a znode. Raises Unreadable."""
    names = list(map(sanitize, users))
    for name in names:
        if not may_be_in_path(name):
            raise Unreadable(f"{name} cannot be the name of a znode")
    configs = await store.read_configs("users", names)
    return {user: dict(properties or {}) for user, properties in zip(users, configs, strict=True)}


def _without_credential(request: Request, stored: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Those of the users that have not a credential which is to be deleted."""
    return [each.name for each in request.deletions if each.name in stored and MECHANISMS[each.mechanism].name not in stored[each.name]]


async def _change(request: Request, configs: Mapping[str, dict[str, str]]) -> None:
    """Change the credentials in the configs of these users. Raises ValueError."""
    pace = Pace()
    for deletion in request.deletions:
        await pace()
        if deletion.name in configs:
            del configs[deletion.name][MECHANISMS[deletion.mechanism].name]
    for each in request.upsertions:
        await pace()
        if each.name in configs:
            mechanism = MECHANISMS[each.mechanism]
            configs[each.name][mechanism.name] = credential_text(mechanism, each.salt, each.salted_password, each.iterations)


async def _save(store: AdminStore, user: str, properties: Mapping[str, str]) -> Result:
    """Store the configs of a user; returns its result."""
    try:
        check_quotas(properties, CLIENT_QUOTAS, SCRAM_MECHANISMS)
        await store.write_config("users", sanitize(user), properties)
    except ControllerMoved:
        return _MOVED
    except (ValueError, StoreLost, ZkError) as problem:
        log.warning("cannot alter the SCRAM credentials of %s: %s", user, problem)
        return _UNEXPECTED
    return _SUCCESS
