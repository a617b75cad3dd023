"""DescribeUserScramCredentials (50), version 0: the SCRAM mechanisms of users and their iterations, from ZooKeeper.

Any broker responds. Needs DESCRIBE on the cluster. Without users, or with an empty list, all users with a credential are described; one
unreadable znode, or a znode name that cannot be decoded, then fails the whole request with UNKNOWN_SERVER_ERROR. A user that the request
names has its own result: RESOURCE_NOT_FOUND without a credential and for the empty name, DUPLICATE_RESOURCE if it is named twice,
UNKNOWN_SERVER_ERROR if its znode or a credential cannot be read. Source: `ZkAdminManager.describeUserScramCredentials` of 3.9.1.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence

from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode
from klamm.seams.pace import Pace
from klamm.server.requests.context import Context
from klamm.server.requests.services import AdminStore
from klamm.server.security.authorizer import Operation, ResourceType
from klamm.server.security.sasl.scram_credentials import MECHANISMS, iterations_of
from klamm.zk.layout.json_values import Unreadable
from klamm.zk.layout.paths import desanitize, may_be_in_path, sanitize

log = logging.getLogger(__name__)

Response = messages.DescribeUserScramCredentialsResponse
UNEXPECTED = "The server experienced an unexpected error when processing the request."
EMPTY_NAME = "Username must not be empty"


async def handle(ctx: Context, request: messages.DescribeUserScramCredentialsRequest) -> Response:
    if not ctx.authorize(Operation.DESCRIBE, ResourceType.CLUSTER):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        refused = Response.DescribeUserScramCredentialsResult(user="", error_code=code, error_message=None)
        count = 1 if request.users is None else len(request.users)  # Apache Kafka does not respond to no list of users
        return Response(error_code=code, error_message=None, results=[refused] * count)
    store = ctx.services.admin_store
    try:
        rows = await _named(store, [user.name for user in request.users]) if request.users else await _all(store)
    except Unreadable as problem:
        log.warning("cannot describe the SCRAM credentials of all users: %s", problem)
        return refuse(request, ctx.api_version, ErrorCode.UNKNOWN_SERVER_ERROR, UNEXPECTED)
    return Response(error_message="", results=rows)


def refuse(request: messages.DescribeUserScramCredentialsRequest, version: int, code: ErrorCode, message: str | None = None) -> Response:
    return Response(error_code=code, error_message=message)


async def _all(store: AdminStore) -> list[Response.DescribeUserScramCredentialsResult]:
    """Rows of all users that have a credential. Raises Unreadable."""
    pace, rows = Pace(), []
    names = await store.config_names("users")
    for name, properties in zip(names, await store.read_configs("users", names), strict=True):
        await pace()
        user = desanitize(name)
        if properties and _has_credential(properties):
            rows.append(_described(user, properties))
    return rows


async def _named(store: AdminStore, users: Sequence[str]) -> list[Response.DescribeUserScramCredentialsResult]:
    """A row for each of these users."""
    pace, rows, wanted = Pace(), [], []
    for user, count in Counter(users).items():
        await pace()
        if not user:
            rows.append(_failed(user, ErrorCode.RESOURCE_NOT_FOUND, EMPTY_NAME))
        elif count > 1:
            text = f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
            rows.append(_failed(user, ErrorCode.DUPLICATE_RESOURCE, text))
        elif not may_be_in_path(sanitize(user)):
            rows.append(_failed(user, ErrorCode.UNKNOWN_SERVER_ERROR, UNEXPECTED))
        else:
            wanted.append(user)
    for user, properties in zip(wanted, await _read(store, wanted), strict=True):
        await pace()
        if properties is None:
            rows.append(_failed(user, ErrorCode.UNKNOWN_SERVER_ERROR, UNEXPECTED))
        elif _has_credential(properties):
            rows.append(_described(user, properties))
        else:
            text = f"Attempt to describe a user credential that does not exist: {user}"
            rows.append(_failed(user, ErrorCode.RESOURCE_NOT_FOUND, text))
    return rows


async def _read(store: AdminStore, users: Sequence[str]) -> list[Mapping[str, str] | None]:
    """The configs of users, empty without a znode, None for a znode that cannot be read."""
    names = list(map(sanitize, users))
    try:
        return [properties or {} for properties in await store.read_configs("users", names)]
    except Unreadable:
        return [await _read_one(store, name) for name in names]


async def _read_one(store: AdminStore, name: str) -> Mapping[str, str] | None:
    try:
        return await store.read_config("users", name) or {}
    except Unreadable as problem:
        log.warning("cannot describe the SCRAM credentials of %s: %s", name, problem)
        return None


def _has_credential(properties: Mapping[str, str]) -> bool:
    return any(mechanism.name in properties for mechanism in MECHANISMS.values())


def _described(user: str, properties: Mapping[str, str]) -> Response.DescribeUserScramCredentialsResult:
    try:
        infos = [
            Response.CredentialInfo(mechanism=number, iterations=iterations_of(properties[mechanism.name]))
            for number, mechanism in MECHANISMS.items()
            if mechanism.name in properties
        ]
    except ValueError as problem:
        log.warning("cannot describe the SCRAM credentials of %s: %s", user, problem)
        return _failed(user, ErrorCode.UNKNOWN_SERVER_ERROR, UNEXPECTED)
    return Response.DescribeUserScramCredentialsResult(user=user, error_message="", credential_infos=infos)


def _failed(user: str, code: ErrorCode, text: str) -> Response.DescribeUserScramCredentialsResult:
    return Response.DescribeUserScramCredentialsResult(user=user, error_code=code, error_message=text)
