"""Tiny journals of the rules about single bodies: one exchange each, in a form that is right and in forms that are wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.records.record import Record, encode_batch
from klamm.tests.pipeline.rules.fixtures import Flagged, Run, bad, good
from klamm.tests.pipeline.rules.fixtures_wire import EVERYTHING, entry

ID = bytes(range(16))
BATCH = encode_batch([Record(0, 1, None, b"a")])


class Exchange(NamedTuple):
    """A request and its response; `is_request`: it is the request that the rule looks at."""

    key: ApiKey
    version: int
    request: Any
    response: Any
    is_request: bool = False


def write(run: Run, exchange: Exchange) -> int:
    """Journal an exchange; the seq of the frame that the rule looks at."""
    journal = run.journal()
    asked = journal.request(1, exchange.key, exchange.version, exchange.request)
    answered = journal.response(1, asked, exchange.response)
    return int(asked if exchange.is_request else answered)


def produce(*batches: bytes, version: int = 8) -> Exchange:
    """Produce to partitions 0, 1, …; what is produced is acknowledged."""
    request, response = messages.ProduceRequest, messages.ProduceResponse
    parts = [request.PartitionProduceData(number, batch) for number, batch in enumerate(batches)]
    data = [request.TopicProduceData("t", partition_data=parts)]
    rows: list[Any] = [response.PartitionProduceResponse(index=number, base_offset=7) for number in range(len(batches))]
    answer = response(responses=[response.TopicProduceResponse("t", partition_responses=rows)])
    return Exchange(ApiKey.PRODUCE, version, request(None, 1, 1_000, data), answer, is_request=True)


def produced(offset: int, error: int = 0) -> Exchange:
    """Produce that is answered so."""
    response = messages.ProduceResponse
    row: Any = response.PartitionProduceResponse(index=0, base_offset=offset, error_code=error)
    topic = response.TopicProduceResponse("t", partition_responses=[row])
    return produce(BATCH)._replace(response=response(responses=[topic]), is_request=False)


def fetch(*rows: tuple[int, int], version: int = 12, topic_id: bytes = ID) -> Exchange:
    """Fetch of partitions from offsets."""
    request = messages.FetchRequest
    asked = [request.FetchPartition(partition=partition, fetch_offset=offset) for partition, offset in rows]
    topic = request.FetchTopic(topic="t", topic_id=topic_id, partitions=asked)
    return Exchange(ApiKey.FETCH, version, request(topics=[topic]), messages.FetchResponse(), is_request=True)


def fetched(high: int, stable: int, start: int = 0, offset: int | None = None) -> Exchange:
    """Fetch that is answered with these offsets, and a batch at `offset`."""
    response = messages.FetchResponse
    records = b"" if offset is None else offset.to_bytes(8, "big", signed=True) + BATCH[8:]
    row = response.PartitionData(
        partition_index=0, high_watermark=high, last_stable_offset=stable, log_start_offset=start, records=records
    )
    topic = response.FetchableTopicResponse(topic="t", topic_id=ID, partitions=[row])
    return fetch((0, 0))._replace(response=response(responses=[topic]), is_request=False)


def listed(**row: Any) -> Exchange:
    """ListOffsets that is answered so."""
    request, response = messages.ListOffsetsRequest, messages.ListOffsetsResponse
    asked = request(-1, 0, [request.ListOffsetsTopic("t", [request.ListOffsetsPartition(partition_index=0, timestamp=-1)])])
    told: Any = response.ListOffsetsPartitionResponse(partition_index=0, **row)
    return Exchange(ApiKey.LIST_OFFSETS, 5, asked, response(topics=[response.ListOffsetsTopicResponse("t", [told])]))


def metadata(
    *leaders: int, error: int = 0, code: int = 0, brokers: Any = ((1, "h", 9092), (2, "h", 9093)), topic_id: bytes = ID,
    numbers: tuple[int, ...] | None = None, others: Sequence[tuple[str, bytes]] = (),
) -> Exchange:
    """Metadata of a topic whose partitions have these leaders, and of others, with their ids, without partitions."""
    form = messages.MetadataResponse
    rows: list[Any] = [
        form.MetadataResponsePartition(error_code=code, partition_index=number, leader_id=leader, leader_epoch=0)
        for number, leader in zip(numbers or range(len(leaders)), leaders, strict=True)
    ]
    topics = [form.MetadataResponseTopic(error_code=error, name="t", topic_id=topic_id, partitions=rows)]
    topics += [form.MetadataResponseTopic(name=name, topic_id=each) for name, each in others]
    asked = messages.MetadataRequest(topics=[messages.MetadataRequest.MetadataRequestTopic(name=topic.name) for topic in topics])
    listed = [form.MetadataResponseBroker(*each) for each in brokers]
    return Exchange(ApiKey.METADATA, 12, asked, form(brokers=listed, cluster_id="c", controller_id=1, topics=topics))


def described(*brokers: tuple[int, str, int]) -> Exchange:
    """DescribeCluster that names these brokers."""
    form = messages.DescribeClusterResponse
    rows = [form.DescribeClusterBroker(*each) for each in brokers]
    return Exchange(ApiKey.DESCRIBE_CLUSTER, 0, messages.DescribeClusterRequest(), form(cluster_id="c", brokers=rows))


def coordinator(**row: Any) -> Exchange:
    """FindCoordinator that is answered so."""
    return Exchange(ApiKey.FIND_COORDINATOR, 3, messages.FindCoordinatorRequest("g"), messages.FindCoordinatorResponse(**row))


def versions(*entries: Any, **columns: Any) -> Exchange:
    """ApiVersions that is answered so."""
    response = messages.ApiVersionsResponse(api_keys=list(entries), **columns)
    return Exchange(ApiKey.API_VERSIONS, 3, messages.ApiVersionsRequest("tiny", "1"), response)


def features(level: int) -> Exchange:
    """ApiVersions with a feature that is finalized at this level; 1 and 2 are supported."""
    form = messages.ApiVersionsResponse
    return versions(
        *EVERYTHING, supported_features=[form.SupportedFeatureKey("f", 1, 2)], finalized_features=[form.FinalizedFeatureKey("f", level, 1)],
    )


def join(metadata: bytes, protocol_type: str = "consumer") -> Exchange:
    """JoinGroup with this subscription."""
    request = messages.JoinGroupRequest
    protocol = request.JoinGroupRequestProtocol("range", metadata)
    asked = request("g", 6_000, 6_000, "m", None, protocol_type, [protocol])
    return joined()._replace(request=asked, is_request=True)


def joined(*members: str, **columns: Any) -> Exchange:
    """JoinGroup that is answered so."""
    form = messages.JoinGroupResponse
    told: dict[str, Any] = {"generation_id": 1, "protocol_type": "consumer", "protocol_name": "range", "leader": "m", "member_id": "m"}
    told |= columns
    rows = [form.JoinGroupResponseMember(each, None, b"\0\0\0\0\0\0\xff\xff\xff\xff") for each in members]
    request = messages.JoinGroupRequest
    protocol = request.JoinGroupRequestProtocol("range", b"\0\0\0\0\0\0\xff\xff\xff\xff")
    asked = request("g", 6_000, 6_000, "m", None, "consumer", [protocol])
    return Exchange(ApiKey.JOIN_GROUP, 7, asked, form(members=rows, **told))


def sync(assignment: bytes) -> Exchange:
    """SyncGroup of a leader with this assignment."""
    form = messages.SyncGroupRequest
    asked = form("g", 1, "m", None, "consumer", "range", [form.SyncGroupRequestAssignment("m", assignment)])
    answer = messages.SyncGroupResponse(error_code=27)
    return Exchange(ApiKey.SYNC_GROUP, 5, asked, answer, is_request=True)


def heartbeat(*partitions: int, error: int = 0, interval_ms: int = 5_000) -> Exchange:
    """ConsumerGroupHeartbeat that is answered so."""
    form = messages.ConsumerGroupHeartbeatResponse
    assignment = form.Assignment([form.TopicPartitions(ID, list(partitions))]) if partitions else None
    answer = form(error_code=error, member_id="m", member_epoch=1, heartbeat_interval_ms=interval_ms, assignment=assignment)
    return joining(0)._replace(response=answer, is_request=False)


def joining(epoch: int, **columns: Any) -> Exchange:
    """ConsumerGroupHeartbeat with this epoch and these columns; a whole one if there are none."""
    asked: dict[str, Any] = {"rebalance_timeout_ms": 1_000, "subscribed_topic_names": ["t"], "topic_partitions": []}
    request = messages.ConsumerGroupHeartbeatRequest("g", "m", epoch, **(asked | columns))
    answer = messages.ConsumerGroupHeartbeatResponse(member_id="m", member_epoch=1, heartbeat_interval_ms=5_000)
    return Exchange(ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, request, answer, is_request=True)


def commit(offset: int, leader_epoch: int = -1) -> Exchange:
    """OffsetCommit of this offset, which is refused."""
    form, answer = messages.OffsetCommitRequest, messages.OffsetCommitResponse
    row: Any = form.OffsetCommitRequestPartition(0, offset, leader_epoch, committed_metadata="")
    asked = form(group_id="g", topics=[form.OffsetCommitRequestTopic("t", partitions=[row])])
    told = answer.OffsetCommitResponseTopic("t", partitions=[answer.OffsetCommitResponsePartition(0, 16)])
    return Exchange(ApiKey.OFFSET_COMMIT, 8, asked, answer(topics=[told]), is_request=True)


def committed(offset: int, leader_epoch: int = -1, error: int = 0) -> Exchange:
    """OffsetFetch that is answered so."""
    form, asked = messages.OffsetFetchResponse, messages.OffsetFetchRequest
    row: Any = form.OffsetFetchResponsePartition(0, offset, leader_epoch, "", error)
    request = asked(group_id="g", topics=[asked.OffsetFetchRequestTopic("t", [0])])
    return Exchange(ApiKey.OFFSET_FETCH, 7, request, form(topics=[form.OffsetFetchResponseTopic("t", [row])]))


def initialized(producer_id: int, epoch: int, error: int = 0) -> Exchange:
    """InitProducerId that is answered so."""
    answer = messages.InitProducerIdResponse(error_code=error, producer_id=producer_id, producer_epoch=epoch)
    return Exchange(ApiKey.INIT_PRODUCER_ID, 4, messages.InitProducerIdRequest(None, 1_000), answer)


SUBSCRIPTION = b"\0\x03\0\0\0\1\0\1t\xff\xff\xff\xff\0\0\0\0\0\0\0\x07\0\1r"
"""Version 3: topic t, no user data, nothing owned, generation 7, rack r."""

GOOD: dict[str, list[Exchange]] = {
    "K-04": [produce(BATCH, BATCH), produce(b"", version=2)],
    "K-05": [fetch((0, 0), (1, 4)), fetch((0, 0), version=13), fetch((0, 0), topic_id=bytes(16))],
    "K-06": [join(SUBSCRIPTION), join(b"\xff", "connect"), sync(b"\0\1\0\0\0\0\0\0\0\0")],
    "K-07": [commit(0, 3), commit(4)],
    "F-01": [fetched(4, 3, 2), fetched(0, 0), fetched(4, 5), fetched(4, 4, 5)],
    "F-03": [fetched(4, 4, offset=3), fetched(4, 4, offset=4)],
    "O-01": [produced(0), produced(-1, 6), produced(-1, 45), produced(3, 7), produced(3, 20), produced(3, 6)],
    "O-02": [listed(offset=4, timestamp=-1, leader_epoch=0), listed(offset=-1, timestamp=-1), listed(error_code=6)],
    "O-04": [committed(4, 0), committed(-1)],
    "M-01": [metadata(1, 2)],
    "M-02": [metadata(1), metadata(-1, code=5), metadata(1, code=9)],
    "M-03": [metadata(1, 1, numbers=(1, 0)), metadata()],
    "M-05": [metadata(1), described((1, "h", 9092))],
    "M-06": [metadata(1), metadata(error=3, topic_id=bytes(16)), metadata(1, topic_id=bytes(16))],
    "M-08": [coordinator(node_id=1, host="h", port=9092), coordinator(node_id=-1, host="", port=-1, error_code=15)],
    "V-01": [versions(*EVERYTHING)],
    "V-02": [versions(*EVERYTHING), versions(entry(18, 0, 4), entry(1, 0, 11))],
    "V-03": [features(2)],
    "G-08": [joined("m", "n"), joined(leader="n"), joined(leader=""), joined(error_code=25, generation_id=-1, leader="", member_id="")],
    "G-09": [heartbeat(0, 1), heartbeat(error=25, interval_ms=0)],
    "K-13": [joining(0), joining(1, subscribed_topic_names=None, rebalance_timeout_ms=-1, topic_partitions=None)],
    "T-07": [initialized(4, 0), initialized(-1, -1, 51)],
}

BAD: dict[str, list[Exchange]] = {
    "K-04": [produce(b""), produce(BATCH[:16] + b"\1" + BATCH[17:]), produce(BATCH + BATCH)],
    "K-05": [fetch((0, -1)), fetch((0, 0), (0, 4)), fetch((0, 0), version=13, topic_id=bytes(16))],
    "K-06": [join(SUBSCRIPTION[:-4]), join(b"\0\1\0"), sync(b"\0\1\0\0\0\0\0\0\0\x09")],
    "K-07": [commit(-1), commit(4, -2)],
    "F-01": [fetched(-1, 0), fetched(4, -1)],
    "F-03": [fetched(4, 4, offset=-1)],
    "O-01": [produced(-1), produced(3, 45)],
    "O-02": [listed(offset=-2, timestamp=-1), listed(offset=4, timestamp=-1, error_code=6), listed(offset=4, leader_epoch=-2)],
    "O-04": [committed(-2), committed(-1, 0), committed(4, 0, 3)],
    "M-01": [metadata(1, 3)],
    "M-02": [metadata(-1), metadata(1, code=5)],
    "M-03": [metadata(1, 1, numbers=(0, 2)), metadata(1, 1, numbers=(1, 1))],
    "M-05": [metadata(1, brokers=((1, "h", 0),)), metadata(1, brokers=((1, "h", 1), (1, "i", 1))), described((1, "", 9092))],
    "M-06": [metadata(1, error=3), metadata(1, topic_id=bytes(16), others=[("u", ID)])],
    "M-08": [coordinator(node_id=1, host="", port=9092), coordinator(node_id=1, host="h", port=9092, error_code=15)],
    "V-01": [versions(entry(18, 0, 4), entry(18, 0, 4)), versions(entry(18, 0, 4), entry(3, 4, 3)), versions(entry(3, 0, 4))],
    "V-02": [versions(entry(18, 0, 4), entry(1, 0, 13)), versions(entry(18, 0, 4), entry(11, 0, 1), entry(14, 0, 1))],
    "V-03": [features(3)],
    "G-08": [joined("m", "n", leader="n"), joined("m", "m"), joined(generation_id=0), joined("m", error_code=25)],
    "K-13": [
        joining(0, subscribed_topic_names=None), joining(0, rebalance_timeout_ms=-1), joining(0, topic_partitions=None),
        joining(0, topic_partitions=[messages.ConsumerGroupHeartbeatRequest.TopicPartitions(ID, [0])]),
    ],
    "G-09": [heartbeat(0, 0), heartbeat(0, error=25), heartbeat(interval_ms=0)],
    "T-07": [initialized(-1, -1), initialized(4, 0, 51)],
}


def _fixture(name: str, exchange: Exchange, is_bad: bool) -> Callable[[Run], Flagged]:
    def fixture(run: Run) -> Flagged:
        place = write(run, exchange)
        return place if is_bad else None

    fixture.__name__ = name
    return fixture


for _rule, _exchanges in GOOD.items():
    for _number, _exchange in enumerate(_exchanges, 1):
        good(_rule)(_fixture(f"body_{_number}", _exchange, is_bad=False))
for _rule, _exchanges in BAD.items():
    for _number, _exchange in enumerate(_exchanges, 1):
        bad(_rule)(_fixture(f"body_{_number}", _exchange, is_bad=True))
