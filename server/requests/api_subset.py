"""Handlers of a broker that offers fewer APIs or versions than Klamm has (`klamm.as.version`, `klamm.api.versions`).

A request out of the offered range closes the connection, as on a broker that does not have the version. Only ApiVersions responds, in the
layout of version 0; since Kafka 2.4 the response has the range of this API (KIP-511), before that it is empty. Where `klamm.api.versions`
makes a range smaller, requests of brokers are served in the full range, so that the brokers of a cluster still work together.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from klamm.configs.definitions.api_versions import AS_VERSION, OfferedApis
from klamm.configs.releases.kafka_releases import RELEASES, release_of
from klamm.protocol.apis import APIS, Api, ApiKey, SentBy
from klamm.protocol.errors import ErrorCode
from klamm.protocol.exchanges.peers import replica_id_of
from klamm.server.requests.context import CloseConnection, Context

if TYPE_CHECKING:
    from klamm.configs.broker_config import BrokerConfig
    from klamm.server.requests.dispatch import Handler

EPOCH_REQUEST_HAS_REPLICA_ID = 3
ADD_PARTITIONS_TO_TXN_OF_BROKERS = 4
NO_VERSION = (0, -1)

def narrowed(handlers: Mapping[int, Handler], offered: OfferedApis, config: BrokerConfig) -> dict[int, Handler]:
    """The handlers of the broker's APIs, with the versions that they may have."""
    rows = {int(row.key): row for row in offered.apis}
    made = {}
    for key, handler in handlers.items():
        if key not in offered.full:
            continue
        row, full = rows.get(key), offered.full[key]
        versions = NO_VERSION if row is None else (max(row.min_version, full[0]), row.max_version)
        if APIS[key].sent_by is SentBy.BOTH and not APIS[key].cluster_action and versions != full:
            made[key] = handler._replace(handle=partial(_handle_shared, handler, versions, config), versions=full)
        elif row is not None and key == ApiKey.API_VERSIONS:
            made[key] = handler._replace(versions=versions, unsupported_version=unsupported_body(row, config))
        else:
            made[key] = handler._replace(versions=versions)
    return made


def _handle_shared(handler: Handler, versions: tuple[int, int], config: BrokerConfig, ctx: Context, request: Any) -> Any:
    """The response of the handler if clients may use the version, or if a broker sent the request."""
    oldest, newest = versions
    if oldest <= ctx.api_version <= newest or is_from_broker(ctx.api_key, ctx.api_version, request, config):
        return handler.handle(ctx, request)
    raise CloseConnection(f"version {ctx.api_version} of {APIS[ctx.api_key].name} is not offered")


def unsupported_body(row: Api, config: BrokerConfig) -> bytes:
    """The body of the response to an unsupported version of ApiVersions, in version 0."""
    text = config.get(AS_VERSION)
    release = None if text is None else release_of(text)
    if release is not None and RELEASES.index(release) < RELEASES.index("2.4"):
        return struct.pack(">hi", ErrorCode.UNSUPPORTED_VERSION, 0)
    return struct.pack(">hihhh", ErrorCode.UNSUPPORTED_VERSION, 1, row.key, row.min_version, row.max_version)


def is_from_broker(api_key: int, version: int, request: Any, config: BrokerConfig) -> bool:
    """Whether a request of an API that clients use too comes from a broker: a follower, or a leader that verifies a transaction."""
    if api_key == ApiKey.FETCH:
        return replica_id_of(version, request) >= 0
    if api_key == ApiKey.LIST_OFFSETS:
        return bool(request.replica_id >= 0)
    if api_key == ApiKey.OFFSET_FOR_LEADER_EPOCH:
        if version >= EPOCH_REQUEST_HAS_REPLICA_ID:
            return bool(request.replica_id >= 0)
        return version == config.inter_broker_protocol_version.offset_for_leader_epoch_version
    return api_key == ApiKey.ADD_PARTITIONS_TO_TXN and version >= ADD_PARTITIONS_TO_TXN_OF_BROKERS
