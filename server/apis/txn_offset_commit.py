"""TxnOffsetCommit (28), versions 0-4, of Kafka 4 0-6: the offsets of a group, as part of a transaction.

They count once the transaction is committed. The group's partition of the offsets topic must be in the transaction (AddOffsetsToTxn): the
group coordinator, its leader, verifies that as for Produce; before version 4 the code for it is INVALID_TXN_STATE in place of
TRANSACTION_ABORTABLE. Since version 5, of transactions v2, it adds the partition.
From version 3 on the consumer's generation and member id are checked. Needs WRITE on the transactional id, READ on
the group and on the topics. Before version 2 a coordinator that loads is COORDINATOR_NOT_AVAILABLE, since these clients fail otherwise.
Source: wire 5 and 13, `KafkaApis.handleTxnOffsetCommitRequest` and `GroupCoordinator.handleTxnCommitOffsets` of Apache Kafka 3.9.1.
"""

from __future__ import annotations

from collections.abc import Iterable

from klamm.broker.groups.groups import COMMIT_ERRORS
from klamm.broker.groups.requests import Commit
from klamm.broker.groups.requests import OffsetCommit as Offset
from klamm.protocol import messages
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.nouns import TopicPartition
from klamm.seams.pace import build
from klamm.server.apis.offset_requests import topic_codes, usable_partitions, with_ids, with_names, with_short_metadata
from klamm.server.groups.group_coordinator import OFFSETS_TOPIC
from klamm.server.produce.record_appends import Verified
from klamm.server.requests.context import Context
from klamm.server.security.authorizer import Operation, ResourceType
from klamm.server.transactions.verification import TransactionalRecords, verify

KNOWS_ABORTABLE_SINCE = 4
KNOWS_LOADING_SINCE = 2
NO_SEQUENCE = -1
TOPIC_IDS_SINCE = 6
ADDS_SINCE = 5


async def handle(ctx: Context, request: messages.TxnOffsetCommitRequest) -> messages.TxnOffsetCommitResponse:
    if not ctx.authorize(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
        return refuse(request, ctx.api_version, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not ctx.authorize(Operation.READ, ResourceType.GROUP, request.group_id):
        return refuse(request, ctx.api_version, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    now_ms = ctx.services.clock.now_ms()
    usable, refused = await usable_partitions(ctx, request.topics)
    offsets = {
        key: Offset(part.committed_offset, part.committed_leader_epoch, part.committed_metadata or "", now_ms)
        for key, part in usable.items()
    }
    codes: dict[TopicPartition, ErrorCode] = {}
    if offsets:
        code = await _commit(ctx, request, offsets, codes)
        if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and ctx.api_version < KNOWS_LOADING_SINCE:
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        codes |= {key: code for key in offsets if key not in codes or code is not ErrorCode.NONE}
    topics = await build(len(codes), topic_codes, refused, codes)
    return await build(sum(map(len, topics.values())), _response, topics.items())


async def handle_ids(ctx: Context, request: messages.TxnOffsetCommitRequest) -> messages.TxnOffsetCommitResponse:
    """The same for topics with ids in place of names; UNKNOWN_TOPIC_ID for those that there are not."""
    if ctx.api_version < TOPIC_IDS_SINCE:
        return await handle(ctx, request)
    named, unknown = await with_names(ctx, request.topics)
    response = await handle(ctx, request._replace(topics=named))
    refused = refuse(request._replace(topics=unknown), ctx.api_version, ErrorCode.UNKNOWN_TOPIC_ID)
    return response._replace(topics=[*refused.topics, *await with_ids(ctx, named, response.topics)])


def refuse(
    request: messages.TxnOffsetCommitRequest, version: int, code: ErrorCode, message: str | None = None
) -> messages.TxnOffsetCommitResponse:
    response = _response((topic.name, [(part.partition_index, code) for part in topic.partitions]) for topic in request.topics)
    topics = zip(response.topics, request.topics, strict=True)
    return response._replace(topics=[topic._replace(topic_id=asked.topic_id) for topic, asked in topics])


async def _commit(
    ctx: Context, request: messages.TxnOffsetCommitRequest, offsets: dict[TopicPartition, Offset], codes: dict[TopicPartition, ErrorCode]
) -> ErrorCode:
    """Commit offsets; the code of all of them. Those with too much metadata get theirs in `codes` and are left out."""
    groups = ctx.services.groups
    try:
        verified = await _verify(ctx, request, groups.make_group(request.group_id))
    except ApiError as error:
        return COMMIT_ERRORS.get(error.code, error.code)
    short = with_short_metadata(ctx, offsets)
    codes |= {key: ErrorCode.OFFSET_METADATA_TOO_LARGE for key in offsets if key not in short}
    commit = Commit(
        None, request.group_id, request.generation_id, request.member_id, request.group_instance_id, short, request.producer_id,
        request.producer_epoch, verified,
    )
    try:
        return await groups.commit(commit)
    except ApiError as error:
        return error.code


async def _verify(ctx: Context, request: messages.TxnOffsetCommitRequest, index: int) -> Verified | None:
    """How the transaction was verified, None if this broker does not do that. Raises ApiError if the offsets must not be committed."""
    services, adds = ctx.services, ctx.api_version >= ADDS_SINCE
    if not adds and not services.config.get("transaction.partition.verification.enable"):
        return None
    replica = services.replicas.leader(OFFSETS_TOPIC, index)
    records = TransactionalRecords(replica, request.producer_id, request.producer_epoch, NO_SEQUENCE)
    errors = await verify(
        services.replicas, services.verifier, services.clock, request.transactional_id, [records],
        knows_abortable=ctx.api_version >= KNOWS_ABORTABLE_SINCE, adds=adds,
    )
    if replica in errors:
        error = errors[replica]
        # of a coordinator that cannot be reached, in words that clients of every version know
        raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS) if error.code is ErrorCode.NETWORK_EXCEPTION else error
    return Verified(records.verification)


def _response(topics: Iterable[tuple[str, Iterable[tuple[int, ErrorCode]]]]) -> messages.TxnOffsetCommitResponse:
    response = messages.TxnOffsetCommitResponse
    return response(
        topics=[
            response.TxnOffsetCommitResponseTopic(name, partitions=[response.TxnOffsetCommitResponsePartition(*row) for row in rows])
            for name, rows in topics
        ]
    )
