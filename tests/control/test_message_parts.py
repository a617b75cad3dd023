"""Parts of messages that a filter names: split, changed, merged."""

from __future__ import annotations

from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode
from klamm.server.faults import message_parts
from klamm.server.faults.message_parts import Wanted

CODE = ErrorCode.LEADER_NOT_AVAILABLE
ID = bytes(range(16))


def metadata() -> messages.MetadataResponse:
    kind = messages.MetadataResponse
    rows = [kind.MetadataResponsePartition(partition_index=index, leader_id=3, replica_nodes=(3,), isr_nodes=(3,)) for index in (0, 1)]
    topics = [kind.MetadataResponseTopic(name=name, topic_id=ID, partitions=rows) for name in ("a", "b")]
    return kind(topics=topics, controller_id=7)


def test_a_row_with_an_error_keeps_its_names_and_nothing_else() -> None:
    changed, is_changed = message_parts.change(metadata(), 12, Wanted({"topic": "b", "partition": 1}), CODE, None)
    assert is_changed and changed.controller_id == 7
    assert changed.topics[0] == metadata().topics[0] and changed.topics[1].partitions[0] == metadata().topics[1].partitions[0]
    row = changed.topics[1].partitions[1]
    assert (row.error_code, row.partition_index, row.leader_id, row.replica_nodes) == (CODE, 1, -1, (3,))
    whole, _ = message_parts.change(metadata(), 12, Wanted({"topic": "a"}), CODE, None)
    assert (whole.topics[0].name, whole.topics[0].topic_id, whole.topics[0].error_code, whole.topics[0].partitions) == ("a", ID, CODE, [])
    same, is_changed = message_parts.change(metadata(), 12, Wanted({"topic": "c"}), CODE, None)
    assert (same, is_changed) == (metadata(), False)


def offsets(*names: str) -> messages.ListOffsetsRequest:
    kind = messages.ListOffsetsRequest
    rows = [kind.ListOffsetsPartition(partition_index=index) for index in (0, 1)]
    return kind(topics=[kind.ListOffsetsTopic(name=name, partitions=rows) for name in names])


def test_a_request_is_split_and_its_responses_are_one_again() -> None:
    matched, rest = message_parts.split(offsets("a", "b"), 7, Wanted({"topic": "b", "partition": 0}))
    assert matched is not None and rest is not None
    assert [(topic.name, [row.partition_index for row in topic.partitions]) for topic in matched.topics] == [("b", [0])]
    assert [(topic.name, [row.partition_index for row in topic.partitions]) for topic in rest.topics] == [("a", [0, 1]), ("b", [1])]
    assert message_parts.split(offsets("a"), 7, Wanted({"topic": "a"})) == (offsets("a"), None)
    assert message_parts.split(offsets("a"), 7, Wanted({"topic": "b"})) == (None, offsets("a"))
    kind = messages.ListOffsetsResponse

    def response(name: str, *indexes: int) -> messages.ListOffsetsResponse:
        rows = [kind.ListOffsetsPartitionResponse(partition_index=index) for index in indexes]
        return kind(throttle_time_ms=len(indexes), topics=[kind.ListOffsetsTopicResponse(name=name, partitions=rows)])

    one = message_parts.merge(response("b", 1), response("b", 0))
    assert one.throttle_time_ms == 1 and [row.partition_index for row in one.topics[0].partitions] == [1, 0]
    assert [topic.name for topic in message_parts.merge(response("a", 0), response("b", 0)).topics] == ["a", "b"]


def test_topics_are_found_by_their_ids() -> None:
    kind = messages.FetchRequest
    request = kind(topics=[kind.FetchTopic(topic_id=ID, partitions=[kind.FetchPartition(partition=0)])])
    assert message_parts.split(request, 13, Wanted({"topic": "t"}, ID)) == (request, None)
    assert message_parts.split(request, 13, Wanted({"topic": "t"})) == (None, request), "a topic without an id is found by no id"


def test_messages_say_what_they_can_name() -> None:
    assert message_parts.names("ProduceRequest", frozenset(("topic", "partition", "transactional_id")))
    assert not message_parts.names("HeartbeatRequest", frozenset(("topic",)))
    assert message_parts.names("OffsetFetchRequest", frozenset(("group", "topic", "partition")))
    assert not message_parts.carries("ListGroupsResponse", frozenset(("group",)))
    assert message_parts.carries("DescribeGroupsResponse", frozenset(("group",)))
