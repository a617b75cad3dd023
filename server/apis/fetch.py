"""Fetch (1), versions 0-17, of Kafka 4 4-18: records for consumers and followers.

The partitions to fetch come from the fetch session, or from the request if it has none (`broker/fetch_sessions.py`). Each partition is read
by `broker/fetch_reads.py`, in the order of the session, until the response is full. The first partition with records gives at least one
batch, even if that exceeds the limits (version 3 and later). The response is sent at once if it has `min_bytes`, if a partition has an
error, a diverging epoch or a closer replica, or if the request does not wait. Otherwise the fetch waits (`server/fetch/delayed_fetch.py`).
Partitions that the metadata cache does not know, or that the client may not read, come last and do not end the wait.

Records on disk are read together in threads; the bytes that are read for all clients are limited. For versions 0-3 records are converted to
the formats that those clients read, in a thread if there are many. Source: wire 5.1, `KafkaApis.handleFetchRequest` of Apache Kafka 3.9.1.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from klamm.broker.fetch_reads import FetchParams, Isolation
from klamm.broker.fetch_sessions import NO_SESSION, FetchContext
from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode
from klamm.protocol.exchanges.peers import REPLICA_STATE_SINCE
from klamm.seams.pace import SLICE
from klamm.server.apis.open_fetch import Body, OpenFetch, now_ms
from klamm.server.fetch.fetch_response import encode
from klamm.server.requests.context import Context

FOLLOWERS_SINCE, CODE_AT_TOP_SINCE = 11, 13
KNOWN_PARAMS = 1000
LONGEST_RACK = 200
FUTURE_LOCAL_REPLICA = -3


def handle(ctx: Context, request: messages.FetchRequest) -> Body | messages.FetchResponse | Coroutine[Any, Any, Any]:
    services = ctx.services
    sessions = services.fetches.sessions
    context = sessions.begin(request, ctx.api_version)
    if context is ErrorCode.UNKNOWN_SERVER_ERROR:
        return refuse(request, ctx.api_version, context)
    if isinstance(context, ErrorCode):
        return encode(ctx.api_version, NO_SESSION, (), error_code=context)
    if _is_long(request):
        return _handle_many(ctx, request, context)
    for _ in context.partitions.update(request, services.metadata.topic_name, SLICE, forget=not context.is_full):
        pass
    context = sessions.complete(context, now_ms(ctx))
    fetch = OpenFetch(ctx, params_of(ctx, request), context)
    if request.isolation_level not in (0, 1) and fetch.may_read_some:
        return refuse(request, ctx.api_version, ErrorCode.UNKNOWN_SERVER_ERROR)
    if len(context.partitions.changed) > SLICE:
        return fetch.respond_in_slices()
    for _ in fetch.read(follow=True):
        pass
    return fetch.respond() if fetch.is_ready else fetch.respond_later()


async def _handle_many(ctx: Context, request: messages.FetchRequest, context: FetchContext) -> Body | messages.FetchResponse:
    """Do what `handle` does for few partitions, in slices."""
    for _ in context.partitions.update(request, ctx.services.metadata.topic_name, SLICE, forget=not context.is_full):
        await asyncio.sleep(0)
    context = ctx.services.fetches.sessions.complete(context, now_ms(ctx))
    fetch = OpenFetch(ctx, params_of(ctx, request), context)
    if request.isolation_level not in (0, 1) and fetch.may_read_some:
        return refuse(request, ctx.api_version, ErrorCode.UNKNOWN_SERVER_ERROR)
    return await fetch.respond_in_slices()


def _is_long(request: messages.FetchRequest) -> bool:
    """Whether the request names enough partitions to be handled in slices."""
    if not request.topics and not request.forgotten_topics_data:
        return False
    count = len(request.topics) + len(request.forgotten_topics_data)
    count += sum([len(topic[2]) for topic in request.topics]) + sum([len(topic[2]) for topic in request.forgotten_topics_data])
    return count > SLICE


def refuse(request: messages.FetchRequest, version: int, code: ErrorCode, message: str | None = None) -> messages.FetchResponse:
    kind = messages.FetchResponse
    topics = []
    if version < CODE_AT_TOP_SINCE:
        for topic in request.topics:
            rows = [kind.PartitionData(part.partition, code, -1, records=None) for part in topic.partitions]
            topics.append(kind.FetchableTopicResponse(topic=topic.topic, partitions=rows))
    return kind(error_code=code, session_id=request.session_id, responses=topics)


def params_of(ctx: Context, request: messages.FetchRequest) -> FetchParams:
    """The parameters that all partitions of a request share. Equal requests usually get the same object.

    A consumer with a quota gets at most what it may fetch in one window, so that it is not throttled for sure. All get little while too
    many responses wait to be sent (`server/listeners/unread_responses.py`).
    """
    throttle, unread = ctx.peer.throttle, ctx.peer.unread
    most = None if throttle is None else throttle.most_fetched()
    if unread is not None and unread.size >= unread.limit and (little := unread.most()) is not None:
        most = little if most is None else min(most, little)
    if most is not None:
        capped = _new_params(ctx, request)
        return capped._replace(max_bytes=min(capped.max_bytes, most), min_bytes=min(capped.min_bytes, most))
    if len(request.rack_id) > LONGEST_RACK:
        return _new_params(ctx, request)
    known = ctx.services.fetches.params
    key = (
        ctx.api_version, request.replica_id, request.replica_state, request.max_wait_ms, request.min_bytes, request.max_bytes,
        request.isolation_level, request.rack_id, ctx.peer.listener,
    )
    params = known.get(key)
    if params is None:
        if len(known) >= KNOWN_PARAMS:
            known.clear()
        params = known[key] = _new_params(ctx, request)
    return params


def _new_params(ctx: Context, request: messages.FetchRequest) -> FetchParams:
    version, fetches = ctx.api_version, ctx.services.fetches
    if version >= REPLICA_STATE_SINCE:
        replica_id, broker_epoch = request.replica_state
    else:
        replica_id, broker_epoch = request.replica_id, -1
    is_follower = replica_id >= 0
    max_bytes = min(request.max_bytes, fetches.max_bytes)
    if is_follower or replica_id == FUTURE_LOCAL_REPLICA:
        isolation = Isolation.LOG_END
    else:
        isolation = Isolation.LAST_STABLE_OFFSET if request.isolation_level else Isolation.HIGH_WATERMARK
    selects = fetches.names_closer_replicas and version >= FOLLOWERS_SINCE and not is_follower
    leader_only = is_follower or (version < FOLLOWERS_SINCE and replica_id != FUTURE_LOCAL_REPLICA)
    return FetchParams(
        version, replica_id, broker_epoch, isolation, is_follower, leader_only, max_bytes, min(request.min_bytes, max_bytes),
        request.max_wait_ms, request.rack_id if selects else "", ctx.peer.listener,
    )
