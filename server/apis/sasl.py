"""SaslHandshake (17), versions 0-1, and SaslAuthenticate (36), versions 0-2.

Clients of a listener with SASL authenticate before a handler gets their requests (`server/listeners/authenticator.py`). Afterwards, and
where no client authenticates, both get ILLEGAL_SASL_STATE, and the connection goes on as before, also after a handshake of version 1.
Wire 13, compared with 3.9.1.
"""

from __future__ import annotations

from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode
from klamm.server.requests.context import Context

AUTHENTICATED = "SaslAuthenticate request received after successful authentication"


def handshake(ctx: Context, request: messages.SaslHandshakeRequest) -> messages.SaslHandshakeResponse:
    return refuse_handshake(request, ctx.api_version, ErrorCode.ILLEGAL_SASL_STATE)


def refuse_handshake(
    request: messages.SaslHandshakeRequest, version: int, code: ErrorCode, message: str | None = None
) -> messages.SaslHandshakeResponse:
    return messages.SaslHandshakeResponse(error_code=code)


def authenticate(ctx: Context, request: messages.SaslAuthenticateRequest) -> messages.SaslAuthenticateResponse:
    return refuse_authenticate(request, ctx.api_version, ErrorCode.ILLEGAL_SASL_STATE, AUTHENTICATED)


def refuse_authenticate(
    request: messages.SaslAuthenticateRequest, version: int, code: ErrorCode, message: str | None = None
) -> messages.SaslAuthenticateResponse:
    return messages.SaslAuthenticateResponse(error_code=code, error_message=message)
