"""Produce (0), versions 0-11, of Kafka 4 3-13: append records to the logs of partitions that this broker leads.

Each partition has its own result. The checks are in the order of Apache Kafka: permission, known partition, transaction, acks, internal
topics, leader, enough replicas in sync, records; the last two are made by the replica manager and the log. The first records of a
transaction are verified if this broker leads the partition (`server/transactions/verification.py`).

Errors refuse a request as a whole after a look at the first batch of each partition up to the first one of a transaction: a batch with an
impossible length or magic, and transactional records without permission for the transactional id. Of partitions that exist, requests before
version 3 are refused for the length or magic of any batch too, those of versions 3 to 6 for an unknown codec. With acks=0 there is no
response, and an error closes the connection. With acks=-1 the response waits for the ISR, at most for the time-out of the request; with
acks=1 it waits until a log on disk has been written. A request with acks=0 is in progress until then, too: the next request of the
connection that is not a Produce has to see its records.

If the logs are open and the records are cheap to check, everything is appended before `handle` returns. Otherwise (first use of a log,
recompression, long batches, many partitions) a coroutine appends. If the response has to wait when all is appended, it is a
DelayedResponse. A partition that is named twice has one result, that of the last entry. `server/produce/record_appends.py` puts records
into a log. Requests that came together are appended together. Since version 13 topics have ids in place of names.

Source: wire 5.1, 9, 12, 13; `KafkaApis.handleProduceRequest` and `ReplicaManager.appendRecords` of Apache Kafka 3.9.1.
"""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine, Iterable, Sequence
from functools import partial
from typing import Any

from klamm.broker.log.log import AppendResult
from klamm.broker.metadata_responses import INTERNAL_TOPICS, brokers_at
from klamm.broker.partition import HostedPartition
from klamm.protocol import messages
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.nouns import ZERO_UUID
from klamm.protocol.records.batch import Buffer, CorruptRecords, is_of_transaction, size_in_request
from klamm.protocol.records.validation import Refused, refuses_request, version_error
from klamm.seams.pace import SLICE, Pace
from klamm.server.produce.delayed_produce import Appended
from klamm.server.produce.record_appends import RecordAppends, transactional_batch, transactional_producers
from klamm.server.requests.context import CloseConnection, Context
from klamm.server.requests.delayed_response import DelayedResponse
from klamm.server.requests.queued_requests import Run
from klamm.server.security.authorizer import AllowAll, Operation, ResourceType
from klamm.server.transactions.verification import TransactionalRecords, error_for_produce, verify

LEADER_SINCE = 10
ADMIN_CLIENT = "__admin_client"
"""Client id that may write to internal topics."""
NO_OFFSET = -1
SEVERAL_PRODUCERS = "Transactional records contained more than one producer ID"
KNOWS_ABORTABLE_SINCE = 11
ONE_BATCH_SINCE = 3
TOPIC_IDS_SINCE = 13
ADDS_SINCE = 12
"""Since this version, of transactions v2, the leader adds the partition to the transaction."""

_WITHOUT_LOG_START = frozenset((
    ErrorCode.CORRUPT_MESSAGE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.KAFKA_STORAGE_ERROR,
))
"""With these codes the response does not contain the log start offset."""

Response = messages.ProduceResponse
Row = messages.ProduceResponse.PartitionProduceResponse
Topic = messages.ProduceResponse.TopicProduceResponse
_Names = tuple[str, bytes]
"""Name and id of a topic; without the one or the other, as the version has it."""
_NO_LEADER = messages.ProduceResponse.LeaderIdAndEpoch()
Outcome = messages.ProduceResponse | DelayedResponse | None
"""What becomes of a request whose records are all appended or refused."""


def handle(ctx: Context, request: messages.ProduceRequest) -> Outcome | Coroutine[Any, Any, Outcome]:
    if ctx.api_version >= TOPIC_IDS_SINCE:
        request = request._replace(topic_data=[_named(ctx, topic) for topic in request.topic_data])
    topics = request.topic_data
    if len(topics) + sum([len(topic.partition_data) for topic in topics]) > SLICE:
        return _handle_many(ctx, request)
    parts = _parts(topics)
    try:
        _has_transaction(ctx, request, topics)
        _look_at_records(ctx, parts)
        _look_at_producers(ctx, parts)
    except ApiError as refusal:
        return _refused(request, ctx.api_version, refusal)
    if request.transactional_id is not None:
        unverified = _unverified(ctx, request, parts)
        if unverified:
            return _verify_and_append(ctx, request, parts, unverified)
    appends = _appends(ctx, request, parts)
    later = [part for part in parts if not part.append_now(ctx, request, appends)]
    if later:
        return _append_later(ctx, request, parts, later)
    return _acknowledge(ctx, request, parts)


def handle_run(ctx: Context, requests: Sequence[messages.ProduceRequest]) -> Run | None:
    """Requests that differ in their records only: those are appended together, as far as they can be."""
    request = requests[0]
    if type(ctx.services.authorizer) is not AllowAll:
        try:
            for each in requests:
                _has_transaction(ctx, each, each.topic_data)
        except ApiError:
            return None
    topic = request.topic_data[0] if ctx.api_version < TOPIC_IDS_SINCE else _named(ctx, request.topic_data[0])
    name, topic_id, _ = topic
    parts = [Part(name, topic_id, *row) for each in requests for row in each.topic_data[0].partition_data]
    try:
        replica, _ = parts[0].check(ctx, request)
    except ApiError:
        return None
    if request.transactional_id is not None and _unverified(ctx, request, parts):
        return None
    appends = _appends(ctx, request, parts)
    results = appends.append_run(replica, [part.records for part in parts if part.records is not None])
    if not results:
        return None
    for part, result in zip(parts, results):  # noqa: B905 the last ones may be left
        part.succeed(replica, result)
    parts = parts[: len(results)]
    last = parts[-1].appended
    if last is None or last.settle(ctx.services.replicas, request.acks):
        return Run(len(results), () if request.acks == 0 else _responses(ctx, request.acks, parts))
    return Run(len(results), _respond_to_run(ctx, request.acks, _without_records(parts), appends.wait([last], request.timeout_ms)))


async def _respond_to_run(ctx: Context, acks: int, parts: Sequence[Part], replicated: Awaitable[None]) -> list[Response]:
    await replicated
    if acks == 0:
        _check_written(ctx, parts)
        return []
    return _responses(ctx, acks, parts)


def _responses(ctx: Context, acks: int, parts: Sequence[Part]) -> list[Response]:
    """A response for each of these; when the time-out is over some may be replicated that the last one does not wait for."""
    for part in parts:
        if part.appended is not None:
            part.appended.settle(ctx.services.replicas, acks)
    return [response_of(ctx, [part]) for part in parts]


def _appends(ctx: Context, request: messages.ProduceRequest, parts: Iterable[Part] = ()) -> RecordAppends:
    verifications = None
    if request.transactional_id is not None and _is_verified(ctx):
        verifications = {
            part.transaction.replica: part.transaction.verification
            for part in parts if part.transaction is not None and part.transaction.verification is not None
        }
    return RecordAppends(ctx.services.replicas, ctx.services.clock, ctx.api_version, request.acks, verifications=verifications)


def _is_verified(ctx: Context) -> bool:
    """Whether this broker verifies transactions before it appends their first records."""
    enabled: bool = ctx.services.config.get("transaction.partition.verification.enable")
    return enabled or ctx.api_version >= ADDS_SINCE


def _unverified(ctx: Context, request: messages.ProduceRequest, parts: Iterable[Part]) -> list[Part]:
    """Parts with records of a transaction that is not open in their log."""
    if not _is_verified(ctx):
        return []
    found = []
    for part in parts:
        try:
            replica, records = part.check(ctx, request, to_verify=True)
        except ApiError:
            continue  # the append will fail in the same way
        if version_error(records, ctx.api_version) is not None:
            continue
        header = transactional_batch(records)
        if header is not None:
            part.transaction = TransactionalRecords(replica, header.producer_id, header.producer_epoch, header.base_sequence)
            if not part.transaction.is_open(adds=ctx.api_version >= ADDS_SINCE):
                found.append(part)
    return found


async def _verify_and_append(
    ctx: Context, request: messages.ProduceRequest, parts: Sequence[Part], unverified: Sequence[Part]
) -> Outcome:
    """Append what the coordinator of the transaction confirms, and all that needs no verification."""
    records = [part.transaction for part in unverified if part.transaction is not None]
    if len({each.producer_id for each in records}) > 1:
        return _refused(request, ctx.api_version, ApiError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, SEVERAL_PRODUCERS))
    services, adds = ctx.services, ctx.api_version >= ADDS_SINCE
    errors = await verify(
        services.replicas, services.verifier, services.clock, request.transactional_id or "", records,
        knows_abortable=ctx.api_version >= KNOWS_ABORTABLE_SINCE, adds=adds,
    )
    for part in unverified:
        error = None if part.transaction is None else errors.get(part.transaction.replica)
        part.failure = None if error is None else error_for_produce(error, adds=adds)
    return await _append_later(ctx, request, parts, parts)


def refuse(request: messages.ProduceRequest, version: int, code: ErrorCode, message: str | None = None) -> Response | None:
    partitions = (((topic.name, topic.topic_id), part.index) for topic in request.topic_data for part in topic.partition_data)
    return _refusal(request.acks, partitions, code, message)


def _refuse_appended(
    acks: int, parts: Iterable[Part], request: None, version: int, code: ErrorCode, message: str | None = None
) -> Response | None:
    """Do the same as `refuse` for a request whose records are appended; it is not needed any more."""
    return _refusal(acks, (((part.topic, part.topic_id), part.index) for part in parts), code, message)


def _refusal(acks: int, partitions: Iterable[tuple[_Names, int]], code: ErrorCode, message: str | None) -> Response | None:
    named: dict[_Names, dict[int, None]] = {}
    for topic, index in partitions:
        named.setdefault(topic, {})[index] = None
    topics = [
        Topic(
            *names,
            partition_responses=[Row(index=index, error_code=code, base_offset=NO_OFFSET, error_message=message) for index in indexes],
        )
        for names, indexes in named.items()
    ]
    return None if acks == 0 else Response(responses=topics)


class Part:
    """One partition of a request. `row` is its result; `appended` are the records in the log, which may still wait for replicas.

    `transaction` is there for records of a transaction, `failure` if they could not be verified.
    """

    __slots__ = ("appended", "failure", "index", "records", "row", "topic", "topic_id", "transaction")

    def __init__(self, topic: str, topic_id: bytes, index: int, records: Buffer | None) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.records = records
        self.row: Row | None = None
        self.appended: Appended | None = None
        self.transaction: TransactionalRecords | None = None
        self.failure: ApiError | None = None

    @property
    def is_good(self) -> bool:
        """Whether the records are where the acks of the request want them."""
        return self.appended is not None and self.appended.code is ErrorCode.NONE

    def append_now(self, ctx: Context, request: messages.ProduceRequest, appends: RecordAppends) -> bool:
        """Append the records, or store the error. Returns False, and does nothing, if that may take long."""
        replica = None
        try:
            replica, records = self.check(ctx, request)
            result = appends.append(replica, records)
        except Refused as refusal:
            self._refuse(replica, refusal)
        except ApiError as error:
            self.fail(replica, error)
        else:
            if result is None:
                return False
            self.succeed(replica, result)
        return True

    async def append_later(self, ctx: Context, request: messages.ProduceRequest, appends: RecordAppends) -> None:
        """Do the same as `append_now`, also if it takes long."""
        replica = None
        try:
            replica, records = self.check(ctx, request)
            self.succeed(replica, await appends.append_later(replica, records))
        except Refused as refusal:
            self._refuse(replica, refusal)
        except ApiError as error:
            self.fail(replica, error)

    def check(self, ctx: Context, request: messages.ProduceRequest, *, to_verify: bool = False) -> tuple[HostedPartition, Buffer]:
        """The partition, which this broker leads, and the records. Raises ApiError for all errors that do not come from the records.

        With `to_verify` only for those that are found before a transaction is verified.
        """
        if not self.topic and ctx.api_version >= TOPIC_IDS_SINCE:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID)
        if not ctx.authorize(Operation.WRITE, ResourceType.TOPIC, self.topic):
            raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        if ctx.services.metadata.partition(self.topic, self.index) is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if self.records is None:
            raise ApiError(ErrorCode.INVALID_REQUEST)
        try:
            if not to_verify:
                self._refuse_before_append(ctx, request)
            replica = ctx.services.replicas.leader(self.topic, self.index)
            if ctx.api_version >= TOPIC_IDS_SINCE and replica.topic_id not in (self.topic_id, ZERO_UUID):
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID)  # the topic was created again
            return replica, self.records
        except ApiError as error:
            code = version_error(self.records, ctx.api_version)
            raise error if code is None else ApiError(code) from None

    def _refuse_before_append(self, ctx: Context, request: messages.ProduceRequest) -> None:
        """Raise ApiError if the records may not be appended; an error of `version_error` takes precedence over these errors."""
        if self.failure is not None:
            raise self.failure
        if request.acks not in (-1, 0, 1):
            raise ApiError(ErrorCode.INVALID_REQUIRED_ACKS)
        if self.topic in INTERNAL_TOPICS and ctx.client_id != ADMIN_CLIENT:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION)

    def succeed(self, replica: HostedPartition, result: AppendResult) -> None:
        base_offset, _, time_ms, start, _ = result
        self.row = Row(self.index, ErrorCode.NONE, base_offset, time_ms, start, current_leader=_NO_LEADER)
        self.appended = Appended(replica, result.last_offset)

    def _refuse(self, replica: HostedPartition | None, refusal: Refused) -> None:
        """Store the result of records that the log refused because of their content."""
        error = Response.BatchIndexAndErrorMessage
        self.row = Row(
            index=self.index, error_code=refusal.code, base_offset=NO_OFFSET, error_message=refusal.message,
            log_start_offset=replica.log_start_offset if replica is not None and refusal.names_log_start else NO_OFFSET,
            record_errors=[error(batch_index=index, batch_index_error_message=text) for index, text in refusal.record_errors],
        )

    def fail(self, replica: HostedPartition | None, error: ApiError) -> None:
        """Store the result of records that were not appended. With `replica` the response may contain its log start offset."""
        start = NO_OFFSET if replica is None or error.code in _WITHOUT_LOG_START else replica.log_start_offset
        text = self.failure.message if error is self.failure and self.failure is not None else None
        self.row = Row(index=self.index, error_code=error.code, base_offset=NO_OFFSET, log_start_offset=start, error_message=text)


def _named(ctx: Context, topic: messages.ProduceRequest.TopicProduceData) -> messages.ProduceRequest.TopicProduceData:
    """A topic that has an id only, with its name; without if there is no such topic."""
    return topic._replace(name=ctx.services.metadata.topic_name(topic.topic_id) or "")


def _parts(topics: Iterable[messages.ProduceRequest.TopicProduceData]) -> list[Part]:
    """A part for each partition; of one that is named twice the last entry counts."""
    parts = [Part(name, topic_id, index, records) for name, topic_id, rows in topics for index, records in rows]
    return parts if len(parts) < 2 else list({(part.topic or part.topic_id, part.index): part for part in parts}.values())


def _is_transactional(records: Buffer) -> bool:
    """Whether the first batch is part of a transaction. Raises CorruptRecords or ApiError if its length or magic is impossible."""
    size = size_in_request(records)
    return size is not None and size <= len(records) and is_of_transaction(records)


def _has_transaction(ctx: Context, request: messages.ProduceRequest, topics: Iterable[messages.ProduceRequest.TopicProduceData]) -> bool:
    """Whether a partition of these topics begins with records of a transaction; what comes behind it is not looked at.

    Raises ApiError, which refuses the whole request.
    """
    transactional_id = request.transactional_id
    for topic in topics:
        for part in topic.partition_data:
            try:
                if part.records is None or not _is_transactional(part.records):
                    continue
            except CorruptRecords as error:
                raise ApiError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None
            if transactional_id is None or not ctx.authorize(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
                raise ApiError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
            return True
    return False


def _look_at_records(ctx: Context, parts: Iterable[Part]) -> None:
    """What requests are refused for as a whole. Raises ApiError."""
    for part in parts:
        error = None if part.records is None else refuses_request(part.records, ctx.api_version)
        if error is None or not ctx.authorize(Operation.WRITE, ResourceType.TOPIC, part.topic):
            continue
        if ctx.services.metadata.partition(part.topic, part.index) is not None:
            raise error


def _look_at_producers(ctx: Context, parts: Iterable[Part]) -> None:
    """Refuse a request of a version with many batches in a partition if they are of transactions of several producers. Raises ApiError."""
    if ctx.api_version >= ONE_BATCH_SINCE:
        return
    producers: set[tuple[int, int]] = set()
    for part in parts:
        if part.records is None or ctx.services.metadata.partition(part.topic, part.index) is None:
            continue
        if ctx.authorize(Operation.WRITE, ResourceType.TOPIC, part.topic):
            producers |= transactional_producers(part.records)
    if len(producers) > 1:
        raise ApiError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, SEVERAL_PRODUCERS)


def _refused(request: messages.ProduceRequest, version: int, refusal: ApiError) -> Response:
    response = refuse(request, version, refusal.code, refusal.message)
    if response is None:
        raise CloseConnection(f"a Produce request with acks=0 failed: {refusal}")
    return response


async def _handle_many(ctx: Context, request: messages.ProduceRequest) -> Outcome:
    """Do what `handle` does for few partitions, in slices."""
    pace = Pace()
    found: dict[tuple[str | bytes, int], Part] = {}
    has_transaction = False
    for topic in request.topic_data:
        entries = topic.partition_data
        for first in range(0, max(len(entries), 1), SLICE):
            slice_of_topic = topic._replace(partition_data=entries[first : first + SLICE])
            await pace(len(slice_of_topic.partition_data) + 1)
            try:
                has_transaction = has_transaction or _has_transaction(ctx, request, [slice_of_topic])
            except ApiError as refusal:
                return _refused(request, ctx.api_version, refusal)
            found |= {(part.topic or part.topic_id, part.index): part for part in _parts([slice_of_topic])}
    parts = list(found.values())
    try:
        for part in parts:
            await pace()
            _look_at_records(ctx, [part])
        _look_at_producers(ctx, parts)
    except ApiError as refusal:
        return _refused(request, ctx.api_version, refusal)
    unverified = [] if request.transactional_id is None else _unverified(ctx, request, parts)
    if unverified:
        return await _verify_and_append(ctx, request, parts, unverified)
    return await _append_later(ctx, request, parts, parts)


async def _append_later(ctx: Context, request: messages.ProduceRequest, parts: Sequence[Part], later: Sequence[Part]) -> Outcome:
    pace, appends = Pace(), _appends(ctx, request, parts)
    for part in later:
        await pace()
        await part.append_later(ctx, request, appends)
    return _acknowledge(ctx, request, parts)


def _acknowledge(ctx: Context, request: messages.ProduceRequest, parts: Sequence[Part]) -> Outcome:
    """The response after all records are appended or refused; it is delayed if it must wait for acknowledgements."""
    if request.acks == 0:
        failed = next((part.row for part in parts if part.row is not None and part.row.error_code), None)
        if failed is not None:
            raise CloseConnection(f"records with acks=0 got {ErrorCode(failed.error_code).name}")
    appended = [part.appended for part in parts if part.appended is not None]
    waiting = [one for one in appended if not one.settle(ctx.services.replicas, request.acks)]
    if waiting:
        wait = _appends(ctx, request).wait(waiting, request.timeout_ms)
        return DelayedResponse(
            _acknowledge_later(ctx, request.acks, _without_records(parts), wait), partial(_refuse_appended, request.acks, parts)
        )
    return None if request.acks == 0 else response_of(ctx, parts)


def _without_records(parts: Sequence[Part]) -> Sequence[Part]:
    """The records are in the logs; the bytes of the request are let go while its response waits."""
    for part in parts:
        part.records = None
    return parts


async def _acknowledge_later(ctx: Context, acks: int, parts: Sequence[Part], acknowledged: Awaitable[None]) -> Response | None:
    await acknowledged
    if acks == 0:
        _check_written(ctx, parts)
        return None
    return response_of(ctx, parts)


def _check_written(ctx: Context, parts: Iterable[Part]) -> None:
    """Close the connection if records with acks=0 did not get into a file."""
    for one in [part.appended for part in parts if part.appended is not None]:
        if one.settle(ctx.services.replicas, 0) and one.code is ErrorCode.KAFKA_STORAGE_ERROR:
            raise CloseConnection("records with acks=0 got KAFKA_STORAGE_ERROR")


def response_of(ctx: Context, parts: Sequence[Part]) -> Response:
    if len(parts) == 1 and (row := parts[0].row) is not None and parts[0].is_good:
        return Response([Topic(parts[0].topic, parts[0].topic_id, [row])])
    topics: dict[_Names, list[Row]] = {}
    leaders: set[int] = set()
    for part in parts:
        row = part.row
        if row is None:
            raise AssertionError("a partition without a result")
        if part.appended is not None and part.appended.code is not ErrorCode.NONE:
            code = part.appended.code
            row = row._replace(error_code=ErrorCode.REQUEST_TIMED_OUT if code is None else code)
        if row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER and ctx.api_version >= LEADER_SINCE:
            row = row._replace(current_leader=_current_leader(ctx, part.topic, part.index))
            leaders.add(row.current_leader.leader_id)
        topics.setdefault((part.topic, part.topic_id), []).append(row)
    responses = [Topic(*names, rows) for names, rows in topics.items()]
    return Response(responses=responses, node_endpoints=_endpoints(ctx, leaders) if leaders else [])


def _current_leader(ctx: Context, topic: str, index: int) -> messages.ProduceResponse.LeaderIdAndEpoch:
    """The leader according to this broker's replica; without a replica, according to the metadata cache."""
    leader = messages.ProduceResponse.LeaderIdAndEpoch
    replica = ctx.services.replicas.get(topic, index)
    if replica is not None and not replica.offline:
        return leader(leader_id=replica.leader, leader_epoch=replica.leader_epoch)
    known = ctx.services.metadata.partition(topic, index)
    return leader() if known is None else leader(leader_id=known.leader, leader_epoch=known.leader_epoch)


def _endpoints(ctx: Context, leaders: set[int]) -> list[messages.ProduceResponse.NodeEndpoint]:
    """Host, port and rack of these leaders on the listener of the request."""
    row = messages.ProduceResponse.NodeEndpoint
    return [
        row(node_id=broker_id, host=endpoint.host, port=endpoint.port, rack=rack)
        for broker_id, endpoint, rack in brokers_at(ctx.services.metadata, ctx.peer.listener)
        if broker_id in leaders
    ]
