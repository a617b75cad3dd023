"""APIs of Kafka 4 that Klamm lists and refuses: share groups, streams groups, and what changes KRaft's quorum.

The responses are those of 4.4.0 while the features `share.version`, `streams.version` and `kraft.version` are 0. Broker registrations end
with their ZooKeeper session: a broker that is not registered cannot be unregistered, and one that is needs its session no less.
"""

from __future__ import annotations

from typing import Any

from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode
from klamm.server.requests.context import Context

NO_KRAFT = "Cluster doesn't support changes of voters because the kraft.version feature is 0"
WITH_TEXT = frozenset(("AlterShareGroupOffsets", "DeleteShareGroupOffsets"))


def handle(ctx: Context, request: Any) -> Any:
    """UNSUPPORTED_VERSION, as a broker without the feature."""
    text = "The version of API is not supported." if _name(request) in WITH_TEXT else None
    return refuse(request, ctx.api_version, ErrorCode.UNSUPPORTED_VERSION, text)


def change_voters(ctx: Context, request: Any) -> Any:
    wanted, cluster_id = request.cluster_id, ctx.services.identity.cluster_id
    if wanted is not None and wanted != cluster_id:
        text = f'The given id "{wanted}" doesn\'t match the cluster id "{cluster_id}"'
        return refuse(request, ctx.api_version, ErrorCode.INCONSISTENT_CLUSTER_ID, text)
    return refuse(request, ctx.api_version, ErrorCode.UNSUPPORTED_VERSION, NO_KRAFT)


def unregister(ctx: Context, request: Any) -> Any:
    if _name(request) == "UnregisterController":
        text = f"Controller ID {request.controller_id} is not currently registered."
        return refuse(request, ctx.api_version, ErrorCode.CONTROLLER_ID_NOT_REGISTERED, text)
    if ctx.services.metadata.is_alive(request.broker_id):
        return refuse(request, ctx.api_version, ErrorCode.UNSUPPORTED_VERSION, "a live broker registers in ZooKeeper")
    text = f"Broker ID {request.broker_id} is not currently registered"
    return refuse(request, ctx.api_version, ErrorCode.BROKER_ID_NOT_REGISTERED, text)


def refuse(request: Any, version: int, code: ErrorCode, message: str | None = None) -> Any:
    """The response with this error: at its top, for each group that the request names, or nowhere if it has results only."""
    kind: Any = getattr(messages, f"{_name(request)}Response")
    if "error_code" in kind._fields:
        response = kind(error_code=code)
        return response._replace(error_message=message) if "error_message" in kind._fields else response
    if "groups" not in kind._fields:
        return kind(results=[])
    ids = request.group_ids if "group_ids" in request._fields else [group.group_id for group in request.groups]
    row = kind.DescribedGroup if "DescribedGroup" in kind._type.rows else kind.DescribeShareGroupOffsetsResponseGroup
    return kind(groups=[row(error_code=code, group_id=group_id) for group_id in ids])


def _name(request: Any) -> str:
    name: str = request._type.name
    return name.removesuffix("Request")
