"""CreateDelegationToken (38), versions 0-3, RenewDelegationToken (39) and ExpireDelegationToken (40), versions 0-2, and
DescribeDelegationToken (41), versions 0-3.

All listeners are PLAINTEXT, and there tokens are not allowed: every request gets DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, also if the broker
has a `delegation.token.secret.key`. Wire 12, compared with 3.9.1.
"""

from __future__ import annotations

from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode
from klamm.server.requests.context import Context
from klamm.server.security.authorizer import ANONYMOUS, Principal

NOT_ALLOWED = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
NO_TIME = -1
CLIENT_SINCE = 3
"""The first version whose response names the client beside the owner."""


def create(ctx: Context, request: messages.CreateDelegationTokenRequest) -> messages.CreateDelegationTokenResponse:
    """The response names the owner of the token and, from version 3 on, the client. A client may request a token for another owner."""
    client = owner = ctx.peer.principal
    if request.owner_principal_name:
        if request.owner_principal_type is None:  # Kafka fails while it reads such a request
            return refuse_create(request, ctx.api_version, ErrorCode.UNKNOWN_SERVER_ERROR)
        owner = Principal(request.owner_principal_type, request.owner_principal_name)
    return _refused(ctx.api_version, NOT_ALLOWED, owner, client)


def refuse_create(
    request: messages.CreateDelegationTokenRequest, version: int, code: ErrorCode, message: str | None = None
) -> messages.CreateDelegationTokenResponse:
    return _refused(version, code, ANONYMOUS, ANONYMOUS)


def _refused(version: int, code: ErrorCode, owner: Principal, client: Principal) -> messages.CreateDelegationTokenResponse:
    response = messages.CreateDelegationTokenResponse(
        error_code=code,
        principal_type=owner.type,
        principal_name=owner.name,
        issue_timestamp_ms=NO_TIME,
        expiry_timestamp_ms=NO_TIME,
        max_timestamp_ms=NO_TIME,
    )
    if version < CLIENT_SINCE:
        return response
    return response._replace(token_requester_principal_type=client.type, token_requester_principal_name=client.name)


def renew(ctx: Context, request: messages.RenewDelegationTokenRequest) -> messages.RenewDelegationTokenResponse:
    return refuse_renew(request, ctx.api_version, NOT_ALLOWED)


def refuse_renew(
    request: messages.RenewDelegationTokenRequest, version: int, code: ErrorCode, message: str | None = None
) -> messages.RenewDelegationTokenResponse:
    return messages.RenewDelegationTokenResponse(error_code=code, expiry_timestamp_ms=NO_TIME)


def expire(ctx: Context, request: messages.ExpireDelegationTokenRequest) -> messages.ExpireDelegationTokenResponse:
    return refuse_expire(request, ctx.api_version, NOT_ALLOWED)


def refuse_expire(
    request: messages.ExpireDelegationTokenRequest, version: int, code: ErrorCode, message: str | None = None
) -> messages.ExpireDelegationTokenResponse:
    return messages.ExpireDelegationTokenResponse(error_code=code, expiry_timestamp_ms=NO_TIME)


def describe(ctx: Context, request: messages.DescribeDelegationTokenRequest) -> messages.DescribeDelegationTokenResponse:
    return refuse_describe(request, ctx.api_version, NOT_ALLOWED)


def refuse_describe(
    request: messages.DescribeDelegationTokenRequest, version: int, code: ErrorCode, message: str | None = None
) -> messages.DescribeDelegationTokenResponse:
    return messages.DescribeDelegationTokenResponse(error_code=code)
