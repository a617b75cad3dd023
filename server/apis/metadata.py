"""Metadata (3), versions 0-12, of Kafka 4 0-13: brokers, controller and topics with their partitions, from this broker's metadata cache.

In version 0 an empty list means all topics. In later versions null means all topics, and an empty list means none. A request names topics;
from version 12 on it can have topic ids instead: if a request has one id, its names are ignored. An unknown id gets UNKNOWN_TOPIC_ID and a
null name; an unknown name gets UNKNOWN_TOPIC_OR_PARTITION, or INVALID_TOPIC_EXCEPTION if the name is not valid. A topic that is named
twice has one result. Ids or null names before version 12 get INVALID_REQUEST for the whole request; from version 12 on a topic without name
and id gets UNKNOWN_SERVER_ERROR, if the request has no ids.

A topic that the client may not describe gets TOPIC_AUTHORIZATION_FAILED (with a null name if the request has its id). It is left out if
all topics were requested. Authorized operations are included on request: of the cluster in versions 8-10, of topics from 8 on.

Unknown topics are created if auto.create.topics.enable is true and the request allows it (from version 4 on it may forbid it): see
`server/apis/topic_creation.py`. Such a topic gets LEADER_NOT_AVAILABLE; the next response shows it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Sequence
from typing import NamedTuple

from klamm.broker import metadata_responses
from klamm.broker.metadata_responses import OPERATIONS_OMITTED, missing_topic_bytes
from klamm.controller.decisions.topic_requests import is_valid_name
from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode
from klamm.protocol.nouns import ZERO_UUID
from klamm.seams.pace import SLICE, Pace
from klamm.server.apis.topic_creation import auto_create
from klamm.server.requests.context import Context
from klamm.server.security.authorizer import AllowAll, Operation, ResourceType

IDS_SINCE = 12
MANY_AT_ONCE = 200
"""Topics of a long list that are looked up in one slice."""


def handle(
    ctx: Context, request: messages.MetadataRequest
) -> messages.MetadataResponse | bytes | Awaitable[messages.MetadataResponse | bytes]:
    topics = request.topics
    if topics is None or (ctx.api_version == 0 and not topics):
        return _all_topics(ctx, request)
    if len(topics) > SLICE:
        return _many_topics(ctx, request, topics)
    if ctx.api_version < IDS_SINCE:
        if any(topic.name is None or topic.topic_id != ZERO_UUID for topic in topics):
            return refuse(request, ctx.api_version, ErrorCode.INVALID_REQUEST)
        ids: dict[bytes, None] = {}
    else:
        ids = dict.fromkeys(topic.topic_id for topic in topics if topic.topic_id != ZERO_UUID)
    if ids:
        encoded, names = _by_id(ctx, ids)
        return _named(ctx, request, encoded, _rows(ctx, request, names, by_id=True))
    named = dict.fromkeys(topic.name for topic in topics if topic.name is not None)
    if any(topic.name is None for topic in topics):
        return refuse(request, ctx.api_version, ErrorCode.UNKNOWN_SERVER_ERROR)
    return _named(ctx, request, [], _rows(ctx, request, list(named), by_id=False))


def refuse(request: messages.MetadataRequest, version: int, code: ErrorCode, message: str | None = None) -> messages.MetadataResponse:
    topic_type = messages.MetadataResponse.MetadataResponseTopic
    topics = [topic_type(error_code=code, name=topic.name or "", topic_id=topic.topic_id) for topic in request.topics or ()]
    return messages.MetadataResponse(topics=topics, error_code=code)


async def _many_topics(
    ctx: Context, request: messages.MetadataRequest, topics: Sequence[messages.MetadataRequest.MetadataRequestTopic]
) -> messages.MetadataResponse | bytes:
    """Do what `handle` does for few topics, in slices."""
    pace = Pace()
    ids: dict[bytes, None] = {}
    names: dict[str, None] = {}
    invalid: ErrorCode | None = None
    for topic in topics:
        await pace()
        if ctx.api_version < IDS_SINCE and (topic.name is None or topic.topic_id != ZERO_UUID):
            invalid = ErrorCode.INVALID_REQUEST
        elif topic.topic_id != ZERO_UUID:
            ids[topic.topic_id] = None
        elif topic.name is None:
            invalid = ErrorCode.UNKNOWN_SERVER_ERROR
        else:
            names[topic.name] = None
    if invalid is ErrorCode.INVALID_REQUEST or (invalid is not None and not ids):
        return await asyncio.to_thread(refuse, request, ctx.api_version, invalid)
    encoded: list[bytes] = []
    rows = _Rows([], [], [], [])
    count = 0
    requested_ids, requested_names = list(ids), list(names)
    for at in range(0, len(requested_ids or requested_names), MANY_AT_ONCE):
        await pace(SLICE)
        part = requested_names[at : at + MANY_AT_ONCE]
        if ids:
            unknown, part = _by_id(ctx, requested_ids[at : at + MANY_AT_ONCE])
            encoded.append(b"".join(unknown))
            count += len(unknown)
        some = _rows(ctx, request, part, by_id=bool(ids))
        rows.missing.extend(some.missing)
        for joined, each in ((rows.known, some.known), (rows.unknown, some.unknown), (rows.refused, some.refused)):
            joined.append(b"".join(each))  # two million pieces would stop the loop
            count += len(each)
    response = _named(ctx, request, encoded, rows, count)
    return response if isinstance(response, bytes) else await response


def _all_topics(ctx: Context, request: messages.MetadataRequest) -> bytes:
    services, version, listener = ctx.services, ctx.api_version, ctx.peer.listener
    metadata = services.metadata
    if type(services.authorizer) is AllowAll and not request.include_topic_authorized_operations:
        if not request.include_cluster_authorized_operations:
            return metadata_responses.all_topics_body(metadata, version, listener, services.identity.cluster_id)
        described: Iterable[str] = metadata.topics
    else:
        described = [name for name in metadata.topics if ctx.authorize(Operation.DESCRIBE, ResourceType.TOPIC, name, logs=False)]
    known = _known(ctx, request, described)
    return _body(ctx, request, known, len(known))


def _by_id(ctx: Context, ids: Iterable[bytes]) -> tuple[list[bytes], list[str]]:
    """(encoded rows of unknown ids, names of the topics with known ids)."""
    unknown: list[bytes] = []
    names: list[str] = []
    for topic_id in ids:
        name = ctx.services.metadata.topic_name(topic_id)
        if name is None:
            unknown.append(missing_topic_bytes(ctx.api_version, ErrorCode.UNKNOWN_TOPIC_ID, None, topic_id))
        else:
            names.append(name)
    return unknown, names


class _Rows(NamedTuple):
    """Requested topics: encoded rows of those that exist and of those that do not, names to create, encoded rows of refused ones."""

    known: list[bytes]
    unknown: list[bytes]
    missing: list[str]
    refused: list[bytes]


def _rows(ctx: Context, request: messages.MetadataRequest, names: list[str], by_id: bool) -> _Rows:
    services, version = ctx.services, ctx.api_version
    metadata = services.metadata
    described = [name for name in names if ctx.authorize(Operation.DESCRIBE, ResourceType.TOPIC, name)]
    refused: list[bytes] = []
    missing = [name for name in described if name not in metadata.topics]
    create = bool(missing) and request.allow_auto_topic_creation and services.config.get("auto.create.topics.enable")
    if create and not ctx.authorize(Operation.CREATE, ResourceType.CLUSTER, logs=False):
        creatable = [name for name in missing if ctx.authorize(Operation.CREATE, ResourceType.TOPIC, name)]
        denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        refused += [missing_topic_bytes(version, denied, name) for name in missing if name not in creatable]
        missing = creatable
    if len(described) < len(names):
        refused += _undescribed(ctx, [name for name in names if name not in described], by_id)
    known = _known(ctx, request, described)
    if create:
        return _Rows(known, [], missing, refused)
    codes = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION
    unknown = [
        missing_topic_bytes(version, codes[not is_valid_name(name)], name, metadata.topic_id(name), _operations(ctx, request, name))
        for name in missing
    ]
    return _Rows(known, unknown, [], refused)


def _named(
    ctx: Context, request: messages.MetadataRequest, encoded: list[bytes], rows: _Rows, count: int | None = None
) -> bytes | Awaitable[bytes]:
    """The body of the response: the rows in `encoded`, then those in `rows`. Creates the missing topics first.

    `count` is how many rows they are, if several are joined.
    """
    if count is None:
        count = len(encoded) + len(rows.known) + len(rows.unknown) + len(rows.refused)
    if rows.missing:
        return _created(ctx, request, encoded + rows.known, rows.missing, rows.refused, count)
    return _body(ctx, request, encoded + rows.known + rows.unknown + rows.refused, count)


async def _created(
    ctx: Context, request: messages.MetadataRequest, encoded: list[bytes], missing: list[str], refused: list[bytes], count: int
) -> bytes:
    created = await auto_create(ctx, missing)
    encoded += [
        missing_topic_bytes(ctx.api_version, code, name, operations=_operations(ctx, request, name)) for name, code in created.items()
    ]
    return _body(ctx, request, encoded + refused, count + len(created))


def _known(ctx: Context, request: messages.MetadataRequest, names: Iterable[str]) -> list[bytes]:
    """Encoded rows of those topics that exist."""
    metadata, version, listener = ctx.services.metadata, ctx.api_version, ctx.peer.listener
    topics = metadata.topics
    return [
        metadata_responses.topic_bytes(metadata, topics[name], version, listener, _operations(ctx, request, name))
        for name in names
        if name in topics
    ]


def _undescribed(ctx: Context, names: Iterable[str], by_id: bool) -> list[bytes]:
    """Encoded rows of topics that the client may not see. A topic id is not a secret; whether a name exists is one."""
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if by_id:
        return [missing_topic_bytes(ctx.api_version, code, None, ctx.services.metadata.topic_id(name)) for name in names]
    return [missing_topic_bytes(ctx.api_version, code, name, undisclosed=True) for name in names]


def _operations(ctx: Context, request: messages.MetadataRequest, name: str) -> int:
    return ctx.authorized_operations(ResourceType.TOPIC, name) if request.include_topic_authorized_operations else OPERATIONS_OMITTED


def _body(ctx: Context, request: messages.MetadataRequest, topics: Sequence[bytes], count: int) -> bytes:
    operations = OPERATIONS_OMITTED
    if request.include_cluster_authorized_operations:
        allowed = ctx.authorize(Operation.DESCRIBE, ResourceType.CLUSTER)
        operations = ctx.authorized_operations(ResourceType.CLUSTER) if allowed else 0
    cluster_id = ctx.services.identity.cluster_id
    return metadata_responses.metadata_body(
        ctx.services.metadata, ctx.api_version, ctx.peer.listener, cluster_id, topics, operations, count
    )
