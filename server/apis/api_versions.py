"""ApiVersions (18), versions 0-4, of Kafka 4.4 0-5: the APIs and versions that this broker supports.

The list comes from the table of handlers. It is that of Kafka: the APIs of drafts are served to everybody, but listed only to Klamm's own
brokers and tools, which name themselves; other tools guess Kafka's release from the list (docs/adr/0024). From version 3 on the client
names its software; a name or version that does not match Kafka's pattern gets INVALID_REQUEST and an empty list. The epoch of the finalized
features (the version of `/feature`) is a tagged field, sent if it is known. The dispatcher responds to an unsupported version with
`UNSUPPORTED_BODY`: the layout of version 0, error 35 and only the version range of this API.
"""

from __future__ import annotations

import re
import struct

from klamm.protocol import messages
from klamm.protocol.apis import ADMIN_SOFTWARE, BROKER_SOFTWARE
from klamm.protocol.errors import ErrorCode
from klamm.server.requests.context import Context

_API = messages.APIS[18]
_SOFTWARE = re.compile("[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")

BROKER_SINCE, NO_NODE = 5, -1
"""Since this version a request can say which broker of which cluster it is for."""

LEVEL_0_SINCE = 4
"""Since this version a supported feature may have level 0 as its lowest."""

UNSUPPORTED_BODY = struct.pack(">hihhh", ErrorCode.UNSUPPORTED_VERSION, 1, _API.key, _API.min_version, _API.max_version)


def handle(ctx: Context, request: messages.ApiVersionsRequest) -> messages.ApiVersionsResponse:
    if ctx.api_version >= 3 and not (
        _SOFTWARE.fullmatch(request.client_software_name) and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        return messages.ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    code = _wrong_broker(ctx, request) if ctx.api_version >= BROKER_SINCE else ErrorCode.NONE
    if code is not ErrorCode.NONE:
        return messages.ApiVersionsResponse(error_code=code)
    is_own = ctx.api_version >= 3 and request.client_software_name in (ADMIN_SOFTWARE, BROKER_SOFTWARE)
    row = messages.ApiVersionsResponse.ApiVersion
    features, supports = ctx.services.features.current, messages.ApiVersionsResponse.SupportedFeatureKey
    finalized = messages.ApiVersionsResponse.FinalizedFeatureKey
    return messages.ApiVersionsResponse(
        api_keys=[
            row(api_key=api.key, min_version=api.min_version, max_version=api.max_version)
            for api in ctx.services.offered if is_own or not api.draft
        ],
        supported_features=[
            supports(name=name, min_version=low, max_version=high)
            for name, (low, high) in sorted(ctx.services.features.supported.items())
            if low > 0 or ctx.api_version >= LEVEL_0_SINCE
        ],
        finalized_features_epoch=features.epoch,
        finalized_features=[
            finalized(name=name, max_version_level=level, min_version_level=level) for name, level in sorted(features.finalized.items())
        ],
    )


def _wrong_broker(ctx: Context, request: messages.ApiVersionsRequest) -> ErrorCode:
    """Whether this is the broker that the client wants to connect to (KIP-1242); if not, the client has to bootstrap again."""
    if (request.cluster_id is None) != (request.node_id == NO_NODE):
        return ErrorCode.INVALID_REQUEST
    identity = ctx.services.identity
    is_right = request.cluster_id is None or (request.cluster_id, request.node_id) == (identity.cluster_id, identity.broker_id)
    return ErrorCode.NONE if is_right else ErrorCode.REBOOTSTRAP_REQUIRED


def refuse(request: messages.ApiVersionsRequest, version: int, code: ErrorCode, message: str | None = None) -> messages.ApiVersionsResponse:
    return messages.ApiVersionsResponse(error_code=code)
