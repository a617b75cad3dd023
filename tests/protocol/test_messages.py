"""What callers of the codec rely on: classes, defaults, refusals, pieces encoded before, headers, bounds."""

from __future__ import annotations

import copy
import pickle
import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from klamm.protocol import json_form, messages, schema
from klamm.protocol.decoding import MAX_ELEMENTS
from klamm.protocol.errors import ErrorCode, LocalProtocolError, RemoteProtocolError
from klamm.protocol.primitives import MANY_PARTS, join_slices

LISR = messages.LeaderAndIsrRequest
TOPIC_ID = bytes(range(16))


def lisr(partitions: list[Any], **changes: Any) -> Any:
    topic = LISR.LeaderAndIsrTopicState(topic_name="t", topic_id=TOPIC_ID, partition_states=partitions)
    return LISR(controller_id=1, controller_epoch=2, broker_epoch=3, topic_states=[topic])._replace(**changes)


def state(index: int, isr: tuple[int, ...] = (0, 1), **changes: Any) -> Any:
    return LISR.LeaderAndIsrPartitionState(
        partition_index=index,
        controller_epoch=2,
        leader=0,
        leader_epoch=5,
        isr=isr,
        partition_epoch=7,
        replicas=(0, 1, 2),
        **changes,
    )


# Classes


def test_a_message_that_two_threads_use_first_has_one_set_of_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    both = threading.Barrier(2)

    def load(*arguments: Any) -> Any:
        both.wait(10)
        return schema.load(*arguments)

    monkeypatch.setattr(messages, "_types", {})
    monkeypatch.setattr(messages, "schema", SimpleNamespace(load=load))
    with ThreadPoolExecutor(2) as threads:
        first, second = threads.map(messages.message_type, ["CreateTopicsRequest"] * 2)
    assert first is second


def test_fields_of_all_versions_with_kafkas_defaults() -> None:
    assert LISR._fields == (
        "controller_id",
        "is_k_raft_controller",
        "controller_epoch",
        "broker_epoch",
        "type",
        "ungrouped_partition_states",
        "topic_states",
        "live_leaders",
    )
    assert LISR() == (0, False, 0, -1, 0, [], [], [])
    assert messages.MetadataResponse().cluster_id is None
    assert messages.CreateTopicsRequest().timeout_ms == 60000
    assert messages.FetchResponse.PartitionData().diverging_epoch == (-1, -1)
    assert messages.UpdateMetadataRequest.UpdateMetadataBroker._fields == ("id", "v0_host", "v0_port", "endpoints", "rack")


def test_default_arrays_are_not_shared() -> None:
    first = LISR()
    first.topic_states.append(1)  # type: ignore[attr-defined]
    assert LISR().topic_states == []
    assert LISR(topic_states=()).topic_states == []


def test_messages_are_values() -> None:
    one = state(3)
    assert one == state(3) and one != state(4)
    assert one._replace(leader=-1).leader == -1
    assert one._asdict()["isr"] == (0, 1)
    assert repr(messages.UpdateMetadataResponse(5)) == "UpdateMetadataResponse(error_code=5)"
    with pytest.raises(TypeError, match="no leeder"):
        one._replace(leeder=1)
    with pytest.raises(AttributeError):
        one.leader = 1
    with pytest.raises(TypeError):
        LISR(nonsense=1)  # type: ignore[call-arg]


def test_copies_and_pickles() -> None:
    whole = lisr([state(0), state(1)])
    assert pickle.loads(pickle.dumps(whole)) == whole
    clone = copy.deepcopy(whole)
    clone.topic_states[0].partition_states.clear()
    assert whole.topic_states[0].partition_states[0].isr == (0, 1)


def test_decoded_messages_are_of_the_class_that_callers_name() -> None:
    decoded, _ = messages.decode("LeaderAndIsrRequest", 7, messages.encode(lisr([state(0)]), 7))
    assert isinstance(decoded, LISR)
    assert not isinstance(decoded, messages.UpdateMetadataRequest)
    match decoded.topic_states[0]:
        case LISR.LeaderAndIsrTopicState(topic_name=name):
            assert name == "t"
        case _:
            pytest.fail("not matched")


def test_unknown_names() -> None:
    for name in ("NoSuchRequest", "lower", "RequestHeaders"):
        with pytest.raises(AttributeError):
            getattr(messages, name)
    with pytest.raises(LocalProtocolError, match="no such message"):
        messages.decode("NoSuchRequest", 0, b"")


@pytest.mark.parametrize("version", [-1, 8])
def test_versions_that_do_not_exist(version: int) -> None:
    with pytest.raises(LocalProtocolError, match="only 0 to 7"):
        messages.decode("LeaderAndIsrRequest", version, bytes(99))
    with pytest.raises(LocalProtocolError, match="only 0 to 7"):
        messages.encode(LISR(), version)


# What we must not send


@pytest.mark.parametrize(
    "bad",
    [
        lisr([state(2**31)]),
        lisr([state(0, isr=(2**31,))]),
        lisr([state(0, isr=(None,))]),  # type: ignore[arg-type]
        lisr([state(0, isr="01")]),  # type: ignore[arg-type]
        lisr([state(0, is_new=None)]),
        lisr([state(0)._replace(replicas=None)]),
        lisr([None]),
        lisr([tuple(state(0))]),
        lisr([messages.UpdateMetadataRequest.UpdateMetadataPartitionState()]),
        lisr([], topic_states=None),
        lisr([], topic_states=[LISR.LeaderAndIsrTopicState(topic_name=None)]),  # type: ignore[arg-type]
        lisr([], topic_states=[LISR.LeaderAndIsrTopicState(topic_name=b"bytes")]),  # type: ignore[arg-type]
        lisr([], topic_states=[LISR.LeaderAndIsrTopicState(topic_name="x" * 32768)]),
        lisr([], topic_states=[LISR.LeaderAndIsrTopicState(topic_name="\ud800")]),
        lisr([], topic_states=[LISR.LeaderAndIsrTopicState(topic_id=bytes(15))]),
        lisr([], topic_states=[LISR.LeaderAndIsrTopicState(topic_id=None)]),  # type: ignore[arg-type]
        lisr([], ungrouped_partition_states=[state(0)]),
        lisr([], controller_id="1"),
        (1, 2, 3),
        None,
    ],
)
def test_what_cannot_be_sent_is_our_error(bad: Any) -> None:
    with pytest.raises(LocalProtocolError):
        messages.encode(bad, 7)


def test_fields_that_a_version_lacks() -> None:
    assert messages.encode(LISR(broker_epoch=3), 1) == messages.encode(LISR(broker_epoch=4), 1)
    with pytest.raises(LocalProtocolError, match="topicStates"):
        messages.encode(lisr([]), 1)
    with pytest.raises(LocalProtocolError, match="isKRaftController"):
        messages.encode(lisr([], is_k_raft_controller=True), 6)


def test_enum_members_and_tuples_are_welcome() -> None:
    plain = messages.UpdateMetadataResponse(error_code=11)
    assert messages.encode(messages.UpdateMetadataResponse(error_code=ErrorCode.STALE_CONTROLLER_EPOCH), 8) == messages.encode(plain, 8)
    as_lists = lisr((state(0)._replace(isr=[0, 1], replicas=[0, 1, 2]),))  # type: ignore[arg-type]
    assert messages.encode(as_lists, 7) == messages.encode(lisr([state(0)]), 7)


@pytest.mark.parametrize("version", range(2, 8))
def test_structures_encoded_before_stand_in_arrays(version: int) -> None:
    encode_state = messages.struct_encoder("LeaderAndIsrRequest", "LeaderAndIsrPartitionState", version)
    states = [state(0), state(1, isr=(1,)), state(2, isr=())]
    mixed = lisr([states[0], encode_state(states[1]), encode_state(states[2])])
    assert messages.encode(mixed, version) == messages.encode(lisr(states), version)
    encode_topic = messages.struct_encoder("LeaderAndIsrRequest", "LeaderAndIsrTopicState", version)
    topic = lisr(states).topic_states[0]
    assert messages.encode(lisr([], topic_states=[encode_topic(topic)]), version) == messages.encode(lisr(states), version)
    with pytest.raises(LocalProtocolError):
        encode_state(state(2**31))
    with pytest.raises(LocalProtocolError):
        encode_state(topic)


def test_a_structure_that_does_not_exist() -> None:
    with pytest.raises(LocalProtocolError, match="no structure"):
        messages.struct_encoder("LeaderAndIsrRequest", "Partition", 7)


# Arrays longer than one byte can say, and replica lists longer than anyone has


@pytest.mark.parametrize("count", [126, 127, 128, 300])
@pytest.mark.parametrize("version", [2, 7])
def test_long_arrays(count: int, version: int) -> None:
    message = lisr([state(i, isr=tuple(range(count if i == 1 else 2))) for i in range(count)])
    message = message._replace(topic_states=[message.topic_states[0]._replace(topic_id=bytes(16), topic_name="n" * count)])
    data = messages.encode(message, version)
    assert messages.decode("LeaderAndIsrRequest", version, data) == (message, len(data))


@pytest.mark.parametrize("extra", [-1, 0, 1, MANY_PARTS])
def test_a_message_of_many_parts_is_joined_in_slices(extra: int) -> None:
    names = [f"group-{i}" for i in range((MANY_PARTS + extra) // 2)]
    data = messages.encode(messages.DescribeGroupsRequest(groups=names), 0)
    assert data == len(names).to_bytes(4, "big") + b"".join(len(name).to_bytes(2, "big") + name.encode() for name in names)


@pytest.mark.parametrize("count", [0, 1, MANY_PARTS, 2 * MANY_PARTS + 1])
def test_slices_keep_the_order_and_nothing_is_left(count: int) -> None:
    parts = [number.to_bytes(3, "big") for number in range(count)]
    whole = b"".join(parts)
    assert join_slices(parts) == whole
    assert parts == []


def test_runs_of_equal_and_of_different_shape_are_the_same_states() -> None:
    """The quick way through a run and the loop must agree; a tag in one element, or one other length, takes the loop."""
    even = lisr([state(i, isr=(2, 1)) for i in range(50)])
    data = messages.encode(even, 7)
    assert messages.decode("LeaderAndIsrRequest", 7, data)[0] == even
    for at in (0, 25, 49):
        states = list(even.topic_states[0].partition_states)
        states[at] = state(at, isr=(2,))
        uneven = lisr(states)
        assert messages.decode("LeaderAndIsrRequest", 7, messages.encode(uneven, 7))[0] == uneven
        tagged = messages.struct_encoder("LeaderAndIsrRequest", "LeaderAndIsrPartitionState", 7)(state(at, isr=(2, 1)))[:-1]
        states[at] = tagged + b"\x01\x05\x02hi"
        assert messages.decode("LeaderAndIsrRequest", 7, messages.encode(lisr(states), 7))[0] == even


def test_every_cut_of_a_run_is_refused() -> None:
    data = messages.encode(lisr([state(i) for i in range(6)]), 7)
    for end in range(len(data)):
        with pytest.raises(RemoteProtocolError, match="LeaderAndIsrRequest 7"):
            messages.decode("LeaderAndIsrRequest", 7, data[:end])


# Counts that a peer only claims


@pytest.mark.parametrize(
    ("name", "version", "data"),
    [
        ("LeaderAndIsrRequest", 7, bytes(18) + b"\xff\xff\xff\xff\x07" + bytes(60)),
        ("LeaderAndIsrRequest", 2, bytes(16) + b"\x7f\xff\xff\xff" + bytes(60)),
        ("MetadataRequest", 1, b"\x7f\xff\xff\xff" + bytes(60)),
        ("MetadataRequest", 12, b"\xff\xff\xff\xff\x07" + bytes(60)),
        ("LeaderAndIsrResponse", 5, b"\x00\x00\xff\xff\xff\xff\x07" + bytes(60)),
        ("ListTransactionsRequest", 0, b"\x01\xff\xff\xff\xff\x07" + bytes(60)),
        ("ElectLeadersRequest", 0, b"\x00\x00\x00\x01\x00\x01t\x7f\xff\xff\xff" + bytes(60)),
        ("SaslAuthenticateRequest", 2, b"\xff\xff\xff\xff\x07" + bytes(60)),
    ],
)
def test_claims_cost_nothing(name: str, version: int, data: bytes) -> None:
    messages.message_type(name).decoder(version)
    tracemalloc.start()
    try:
        with pytest.raises(RemoteProtocolError):
            messages.decode(name, version, data)
        assert tracemalloc.get_traced_memory()[1] < 20_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("topics", [1, 3])
def test_a_message_of_more_elements_than_anybody_needs_is_refused(topics: int) -> None:
    def elections(partitions: int) -> bytes:
        return topics.to_bytes(4, "big") + topics * (b"\x00\x01t" + partitions.to_bytes(4, "big") + bytes(4 * partitions)) + bytes(4)

    most = MAX_ELEMENTS // topics - 1
    message, _ = messages.decode("ElectLeadersRequest", 0, elections(most))
    assert sum(len(topic.partitions) for topic in message.topic_partitions) == topics * most
    with pytest.raises(RemoteProtocolError, match="a message of more than 2000000 elements"):
        messages.decode("ElectLeadersRequest", 0, elections(most + 1 + topics))


def test_lengths_below_minus_one_are_null() -> None:
    assert messages.decode("MetadataRequest", 1, b"\xff\xff\xff\xfe")[0].topics is None
    assert messages.decode("MetadataRequest", 9, b"\xff\xff\xff\xff\x0f\x00\x00\x00\x00")[0].topics is None
    with pytest.raises(RemoteProtocolError, match="topics is null"):
        messages.decode("MetadataRequest", 0, b"\xff\xff\xff\xfe")


def test_bad_utf8_is_replaced() -> None:
    decoded, _ = messages.decode("MetadataRequest", 0, b"\x00\x00\x00\x01\x00\x03a\xffb")
    assert decoded.topics[0].name == "a\ufffdb"


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_may_be_read(kind: type) -> None:
    data = messages.encode(lisr([state(0)]), 7)
    assert messages.decode("LeaderAndIsrRequest", 7, kind(b"head" + data), 4) == (lisr([state(0)]), 4 + len(data))


# Headers


@pytest.mark.parametrize(
    ("key", "version", "client_id", "wanted"),
    [
        (7, 0, "ignored", "0007000000000005"),
        (7, 1, "ab", "000700010000000500026162"),
        (7, 3, "ab", "00070003000000050002616200"),
        (18, 3, None, "0012000300000005ffff00"),
        (3, 1, "", "00030001000000050000"),
        (1790, 0, "ab", "06fe00000000000500026162"),
        (100, 0, "ab", "00640000000000050002616200"),
    ],
)
def test_request_headers(key: int, version: int, client_id: str | None, wanted: str) -> None:
    frame = messages.encode_request(key, version, 5, client_id, b"body")
    assert frame == (len(wanted) // 2 + 4).to_bytes(4, "big") + bytes.fromhex(wanted) + b"body"
    header, offset = messages.decode_request_header(frame[4:])
    assert header == (key, version, 5, "" if wanted == "0007000000000005" else client_id)
    assert frame[4 + offset :] == b"body"


def test_a_request_header_without_client_id_may_be_a_whole_request() -> None:
    assert messages.decode_request_header(bytes.fromhex("0007000000000005")) == ((7, 0, 5, ""), 8)
    for body in (b"\x01", b"\x00\x00\x00\x01", b"\x7f\xff"):
        assert messages.decode_request_header(bytes.fromhex("0007000000000005") + body) == ((7, 0, 5, ""), 8)


def test_tags_in_a_request_header_are_skipped() -> None:
    payload = bytes.fromhex("00030009000000050001610205026869070001")
    assert messages.decode_request_header(payload) == ((3, 9, 5, "a"), 18)


def test_a_tagged_field_that_is_longer_than_the_frame_of_a_response_is_refused() -> None:
    assert messages.decode_response_header(messages.ApiKey.METADATA, 12, b"\0\0\0\1\1\7\2xy") == (1, 9)
    with pytest.raises(RemoteProtocolError, match="a tagged field is longer than its frame"):
        messages.decode_response_header(messages.ApiKey.METADATA, 12, b"\0\0\0\1\1\7\2x")


def test_a_tag_that_only_other_versions_have_is_refused_and_an_unknown_one_skipped() -> None:
    """As Apache Kafka's decoders do: `type` of UpdateMetadata came with version 8, the replica's state of Fetch with 15."""
    for name, request, version, tag in (
        ("UpdateMetadataRequest", messages.UpdateMetadataRequest(), 7, 0), ("FetchRequest", messages.FetchRequest(), 12, 1),
    ):
        body = messages.encode(request, version)
        assert body[-1] == 0
        with pytest.raises(RemoteProtocolError, match=f"the tagged field {tag} is not of this version"):
            messages.decode(name, version, body[:-1] + bytes([1, tag, 1, 0]), 0)
        decoded, end = messages.decode(name, version, body[:-1] + bytes([1, 99, 1, 0]), 0)
        assert (decoded, end) == (request, len(body) + 3)


@pytest.mark.parametrize(
    "payload",
    [
        "",
        "0003",
        "00030001000000",
        "0003000100000005",
        "000300010000000500",
        "0003000100000005000261",
        "00030009000000050000",
        "0003000900000005000001",
        "00030009000000050000010502",
        "0034000000000005ffff",
        "ffff000000000005ffff",
    ],
)
def test_headers_that_are_no_headers(payload: str) -> None:
    with pytest.raises(RemoteProtocolError):
        messages.decode_request_header(bytes.fromhex(payload))


def test_headers_agree_with_their_definition() -> None:
    for key, version in ((7, 0), (3, 8), (3, 9)):
        frame = messages.encode_request(key, version, 77, "client", b"")
        header_version = messages.APIS[key].request_header_version(version)
        decoded, end = messages.decode("RequestHeader", header_version, frame, 4)
        assert tuple(decoded) == messages.decode_request_header(frame[4:])[0]
        assert end == len(frame)
        assert messages.encode(decoded, header_version) == frame[4:]
    for version in (8, 9):
        frame = messages.encode_response(3, version, 77, b"")
        assert messages.decode("ResponseHeader", messages.APIS[3].response_header_version(version), frame, 4) == ((77,), len(frame))


@pytest.mark.parametrize(("key", "version", "wanted"), [(18, 3, "00000005"), (18, 0, "00000005"), (3, 8, "00000005"), (3, 9, "0000000500")])
def test_response_headers(key: int, version: int, wanted: str) -> None:
    frame = messages.encode_response(key, version, 5, b"body")
    assert frame == (len(wanted) // 2 + 4).to_bytes(4, "big") + bytes.fromhex(wanted) + b"body"
    assert messages.decode_response_header(key, version, frame[4:]) == (5, len(wanted) // 2)
    for end in range(len(wanted) // 2):
        with pytest.raises(RemoteProtocolError):
            messages.decode_response_header(key, version, frame[4 : 4 + end])


# JSON


def test_json_is_strict() -> None:
    good = {"errorCode": 3}
    assert json_form.from_json("UpdateMetadataResponse", 8, good) == messages.UpdateMetadataResponse(3)
    with pytest.raises(LocalProtocolError, match="needs errorCode"):
        json_form.from_json("UpdateMetadataResponse", 8, {})
    with pytest.raises(LocalProtocolError, match="has no errorcode"):
        json_form.from_json("UpdateMetadataResponse", 8, good | {"errorcode": 3})


def test_decoded_records_are_a_view_of_the_payload() -> None:
    produce = messages.ProduceRequest
    records = b"r" * 1_000_000
    part = produce.PartitionProduceData(index=0, records=records)
    request = produce(acks=1, topic_data=[produce.TopicProduceData(name="t", partition_data=[part])])
    payload = messages.encode(request, 9)
    messages.decode("ProduceRequest", 9, payload)  # the first time makes the decoder
    tracemalloc.start()
    try:
        decoded, _ = messages.decode("ProduceRequest", 9, payload)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()
    view = decoded.topic_data[0].partition_data[0].records
    assert isinstance(view, memoryview)
    assert view.readonly and view.obj is payload
    assert decoded == request
    assert messages.encode(decoded, 9) == payload
    assert pickle.loads(pickle.dumps(decoded)) == copy.copy(decoded) == request


def test_a_tagged_field_that_is_known_ends_where_it_ends_and_not_where_its_size_says() -> None:
    request = messages.FetchRequest(max_wait_ms=1, min_bytes=1, topics=[], cluster_id="c")
    data = messages.encode(request, 12)
    assert data.endswith(b"\x01\x00\x02\x02c")
    wrong = data[:-3] + b"\xff\xff\xff\xff\x0f\x02c"
    assert messages.decode("FetchRequest", 12, wrong) == (request, len(wrong))
