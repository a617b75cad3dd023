"""ElectLeaders (43), versions 0-2: elect leaders of some or of all partitions.

Version 0 is ElectPreferredLeaders of KIP-183: it has no election type (it is preferred) and no error code for the whole response. Needs
ALTER on the cluster. A null list means every partition in this broker's metadata cache. A partition named twice is elected and reported
once.

The controller elects. Then the request waits until this broker's metadata cache shows the elected leaders, at most TimeoutMs after
reception. It does not wait for partitions whose election failed or was not needed. If the list is null, the response leaves out partitions
that needed no election. With the config `kip183.legacy.v0`, version 0 reports such partitions as elected, as in KIP-183.
"""

from __future__ import annotations

from klamm.controller.values import Election
from klamm.protocol import messages
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.nouns import TopicPartition
from klamm.seams.pace import SLICE, Pace
from klamm.server.requests.context import Context
from klamm.server.requests.purgatory import Named
from klamm.server.security.authorizer import Operation, ResourceType

_WITHOUT_TEXT = frozenset({ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER, ErrorCode.CLUSTER_AUTHORIZATION_FAILED})

Result = tuple[ErrorCode, str | None]
_ELECTED: Result = ErrorCode.NONE, None


async def handle(ctx: Context, request: messages.ElectLeadersRequest) -> messages.ElectLeadersResponse:
    received = ctx.services.clock.monotonic()
    if not ctx.authorize(Operation.ALTER, ResourceType.CLUSTER):
        return await _not_authorized(ctx, request)
    election = _election(ctx.api_version, request)
    if election is None:
        return refuse(request, ctx.api_version, ErrorCode.UNKNOWN_SERVER_ERROR)
    partitions = await _partitions(ctx, request)
    if not partitions:
        return await _response(ctx, {})
    as_before = ctx.api_version == 0 and ctx.services.config.get("kip183.legacy.v0")
    left_out = request.topic_partitions is None and not as_before
    results = await _elect(ctx, partitions, election, request.timeout_ms, received, left_out)
    if as_before:
        results = {tp: (ErrorCode.NONE, None) if r[0] is ErrorCode.ELECTION_NOT_NEEDED else r for tp, r in results.items()}
    return await _response(ctx, results)


def refuse(
    request: messages.ElectLeadersRequest, version: int, code: ErrorCode, message: str | None = None
) -> messages.ElectLeadersResponse:
    partition_type = messages.ElectLeadersResponse.PartitionResult
    topic_type = messages.ElectLeadersResponse.ReplicaElectionResult
    results = [
        topic_type(
            topic=topic.topic,
            partition_result=[partition_type(partition_id=p, error_code=code, error_message=message) for p in topic.partitions],
        )
        for topic in request.topic_partitions or ()
    ]
    return messages.ElectLeadersResponse(error_code=code if version > 0 else 0, replica_election_results=results)


def _election(version: int, request: messages.ElectLeadersRequest) -> Election | None:
    """The election type; None if the request names another than the two that exist."""
    if version == 0:
        return Election.PREFERRED
    try:
        return Election(request.election_type)
    except ValueError:
        return None


async def _partitions(ctx: Context, request: messages.ElectLeadersRequest) -> list[TopicPartition]:
    """The partitions to elect, each once, grouped by topic."""
    pace = Pace()
    if request.topic_partitions is None:
        everything: list[TopicPartition] = []
        for topic in tuple(ctx.services.metadata.topics.values()):
            await pace(len(topic.partitions))
            everything += [TopicPartition(topic.name, index) for index in topic.partitions]
        return everything
    by_topic: dict[str, dict[TopicPartition, None]] = {}
    for entry in request.topic_partitions:
        named = by_topic.setdefault(entry.topic, {})
        for at in range(0, len(entry.partitions), SLICE):
            some = entry.partitions[at : at + SLICE]
            await pace(len(some))
            named.update((TopicPartition(entry.topic, index), None) for index in some)
    return [tp for named in by_topic.values() for tp in named]


async def _not_authorized(ctx: Context, request: messages.ElectLeadersRequest) -> messages.ElectLeadersResponse:
    """Each partition that the request names is refused once."""
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    named = [] if request.topic_partitions is None else await _partitions(ctx, request)
    response = await _response(ctx, dict.fromkeys(named, (code, None)))
    return response._replace(error_code=code if ctx.api_version > 0 else 0)


async def _elect(
    ctx: Context, partitions: list[TopicPartition], election: Election, timeout_ms: int, received: float, left_out: bool
) -> dict[TopicPartition, Result]:
    """Elect and wait for the metadata cache; results in the requested order. `left_out`: leave out partitions that need no election."""
    try:
        elected = await ctx.services.controller.elect_leaders(partitions, election, ctx.cause)
    except ApiError as error:
        return dict.fromkeys(partitions, (error.code, error.message))
    results: dict[TopicPartition, Result] = {}
    waiting: dict[str, dict[int, int]] = {}
    pace = Pace()
    for tp in partitions:
        await pace()
        code, message, leader = elected[tp]
        if left_out and code is ErrorCode.ELECTION_NOT_NEEDED:
            continue
        results[tp] = _ELECTED if code is ErrorCode.NONE else (code, message)
        if code is ErrorCode.NONE and leader is not None:
            waiting.setdefault(tp.topic, {})[tp.partition] = leader
    if waiting:
        del elected  # the wait may be long
        remaining_ms = timeout_ms - int((ctx.services.clock.monotonic() - received) * 1000)
        await _wait(ctx, waiting, remaining_ms)
    for topic, leaders in waiting.items():
        for index in leaders:
            await pace()
            results[TopicPartition(topic, index)] = ErrorCode.REQUEST_TIMED_OUT, None
    return results


async def _wait(ctx: Context, waiting: dict[str, dict[int, int]], timeout_ms: int) -> None:
    """Remove each leader from `waiting` (topic → partition → leader) when the metadata cache shows it. Returns when all are, or after
    `timeout_ms`.
    """
    metadata = ctx.services.metadata

    def look(named: Named) -> bool:
        for topic, partitions in named.items():
            leaders = waiting.get(topic, {})
            for index in partitions:
                leader = leaders.get(index)
                if leader is not None and metadata.leader(topic, index) == leader:
                    del leaders[index]  # a leader that was shown once counts, also if it changes again
            if not leaders:
                waiting.pop(topic, None)
        return not waiting

    await ctx.services.purgatory.wait_for_partitions({topic: tuple(leaders) for topic, leaders in waiting.items()}, look, timeout_ms)


async def _response(ctx: Context, results: dict[TopicPartition, Result]) -> messages.ElectLeadersResponse:
    pace = Pace()
    partition_type = messages.ElectLeadersResponse.PartitionResult
    encode = messages.struct_encoder("ElectLeadersResponse", "PartitionResult", ctx.api_version)
    topic_type = messages.ElectLeadersResponse.ReplicaElectionResult
    by_topic: dict[str, list[bytes]] = {}
    for tp, (code, message) in results.items():
        await pace()
        text = None if code in _WITHOUT_TEXT else message or code.name
        by_topic.setdefault(tp.topic, []).append(encode(partition_type(tp.partition, code, text)))
    return messages.ElectLeadersResponse(
        replica_election_results=[topic_type(topic=topic, partition_result=rows) for topic, rows in by_topic.items()]
    )
