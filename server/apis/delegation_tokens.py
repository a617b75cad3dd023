"""CreateDelegationToken (38), versions 0-3, RenewDelegationToken (39) and ExpireDelegationToken (40), versions 0-2, and
DescribeDelegationToken (41), versions 0-3.

Tokens are for clients that have authenticated, and not with a token: others get DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, on a PLAINTEXT
listener everybody. A broker without `delegation.token.secret.key` responds with DELEGATION_TOKEN_AUTH_DISABLED. A token for another owner
needs CREATE_TOKENS on that user; to see the tokens of others needs DESCRIBE on the token or DESCRIBE_TOKENS on its owner. Any broker
handles these requests, as in ZooKeeper mode. Wire 12, compared with 3.9.1 (`tests/security/token_tale.recorded`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm.protocol import messages
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.server.requests.context import Context
from klamm.server.security.authorizer import ANONYMOUS, Operation, Principal, ResourceType

if TYPE_CHECKING:
    from klamm.protocol.security.delegation_tokens import TokenInformation
    from klamm.server.security.delegation_tokens import DelegationTokens, Token

NOT_ALLOWED = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
DISABLED = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
NO_TIME = -1
CLIENT_SINCE = 3
"""The first version whose response names the client beside the owner."""


def _is_allowed(ctx: Context) -> bool:
    """Whether the client may send requests about tokens at all."""
    peer = ctx.peer
    protocols = {listener.name: listener.security_protocol for listener in ctx.services.config.listeners}
    protocol = protocols.get(peer.listener, "PLAINTEXT")
    return not (peer.is_by_token or protocol == "PLAINTEXT" or (protocol == "SSL" and peer.principal == ANONYMOUS))


async def create(ctx: Context, request: messages.CreateDelegationTokenRequest) -> messages.CreateDelegationTokenResponse:
    """The response names the owner of the token and, from version 3 on, the client. A client may request a token for another owner."""
    client = owner = ctx.peer.principal
    if request.owner_principal_name:
        if request.owner_principal_type is None:  # Kafka fails while it reads such a request
            return refuse_create(request, ctx.api_version, ErrorCode.UNKNOWN_SERVER_ERROR)
        owner = Principal(request.owner_principal_type, request.owner_principal_name)
    code = ErrorCode.NONE
    if not _is_allowed(ctx):
        code = NOT_ALLOWED
    elif owner != client and not ctx.authorize(Operation.CREATE_TOKENS, ResourceType.USER, str(owner)):
        code = ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    elif any(renewer.principal_type != "User" for renewer in request.renewers):
        code = ErrorCode.INVALID_PRINCIPAL_TYPE
    if code or ctx.services.tokens is None:
        return _refused(ctx.api_version, code or DISABLED, owner, client)
    renewers = [str(Principal(renewer.principal_type, renewer.principal_name)) for renewer in request.renewers]
    token = await ctx.services.tokens.create(str(owner), str(client), renewers, request.max_lifetime_ms)
    return _refused(ctx.api_version, ErrorCode.NONE, owner, client)._replace(
        issue_timestamp_ms=token.information.issued_ms,
        expiry_timestamp_ms=token.information.expires_ms,
        max_timestamp_ms=token.information.max_ms,
        token_id=token.information.id,
        hmac=token.hmac,
    )


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


def _tokens(ctx: Context) -> DelegationTokens:
    """The tokens, for a client that may ask about them. Raises ApiError."""
    if not _is_allowed(ctx):
        raise ApiError(NOT_ALLOWED)
    if ctx.services.tokens is None:
        raise ApiError(DISABLED)
    return ctx.services.tokens


async def renew(ctx: Context, request: messages.RenewDelegationTokenRequest) -> messages.RenewDelegationTokenResponse:
    try:
        end_ms = await _tokens(ctx).renew(str(ctx.peer.principal), bytes(request.hmac), request.renew_period_ms)
    except ApiError as error:
        return refuse_renew(request, ctx.api_version, error.code)
    return messages.RenewDelegationTokenResponse(error_code=ErrorCode.NONE, expiry_timestamp_ms=end_ms)


def refuse_renew(
    request: messages.RenewDelegationTokenRequest, version: int, code: ErrorCode, message: str | None = None
) -> messages.RenewDelegationTokenResponse:
    return messages.RenewDelegationTokenResponse(error_code=code, expiry_timestamp_ms=NO_TIME)


async def expire(ctx: Context, request: messages.ExpireDelegationTokenRequest) -> messages.ExpireDelegationTokenResponse:
    try:
        end_ms = await _tokens(ctx).expire(str(ctx.peer.principal), bytes(request.hmac), request.expiry_time_period_ms)
    except ApiError as error:
        return refuse_expire(request, ctx.api_version, error.code)
    return messages.ExpireDelegationTokenResponse(error_code=ErrorCode.NONE, expiry_timestamp_ms=end_ms)


def refuse_expire(
    request: messages.ExpireDelegationTokenRequest, version: int, code: ErrorCode, message: str | None = None
) -> messages.ExpireDelegationTokenResponse:
    return messages.ExpireDelegationTokenResponse(error_code=code, expiry_timestamp_ms=NO_TIME)


def describe(ctx: Context, request: messages.DescribeDelegationTokenRequest) -> messages.DescribeDelegationTokenResponse:
    """Tokens that the client may see: of the owners, if the request names some; an empty list of owners selects none."""
    try:
        tokens = _tokens(ctx)
    except ApiError as error:
        return refuse_describe(request, ctx.api_version, error.code)
    owners = None if request.owners is None else [str(Principal(owner.principal_type, owner.principal_name)) for owner in request.owners]
    selected = [token for token in tokens if _is_selected(ctx, token.information, owners)]
    rows = [_row(token, ctx.api_version) for token in selected]
    return messages.DescribeDelegationTokenResponse(error_code=ErrorCode.NONE, tokens=rows)


def _is_selected(ctx: Context, token: TokenInformation, owners: list[str] | None) -> bool:
    if owners is not None and not any(map(token.concerns, owners)):
        return False
    return (
        token.concerns(str(ctx.peer.principal))
        or ctx.authorize(Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.id)
        or ctx.authorize(Operation.DESCRIBE_TOKENS, ResourceType.USER, token.owner)
    )


def _row(token: Token, version: int) -> messages.DescribeDelegationTokenResponse.DescribedDelegationToken:
    kind, information = messages.DescribeDelegationTokenResponse, token.information
    owner_type, _, owner_name = information.owner.partition(":")
    row = kind.DescribedDelegationToken(
        principal_type=owner_type,
        principal_name=owner_name,
        issue_timestamp=information.issued_ms,
        expiry_timestamp=information.expires_ms,
        max_timestamp=information.max_ms,
        token_id=information.id,
        hmac=token.hmac,
        renewers=[kind.DescribedDelegationTokenRenewer(*renewer.split(":", 1)) for renewer in information.renewers],
    )
    if version < CLIENT_SINCE:
        return row
    requester_type, _, requester_name = information.requester.partition(":")
    return row._replace(token_requester_principal_type=requester_type, token_requester_principal_name=requester_name)


def refuse_describe(
    request: messages.DescribeDelegationTokenRequest, version: int, code: ErrorCode, message: str | None = None
) -> messages.DescribeDelegationTokenResponse:
    return messages.DescribeDelegationTokenResponse(error_code=code)
