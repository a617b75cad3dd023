"""The lines that say what clients requested and what happened in the cluster."""

from __future__ import annotations

from typing import Any

import pytest

from klamm.control.history import Exchange
from klamm.protocol import messages
from klamm.protocol.apis import APIS, ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.server.apis.handlers import HANDLERS
from klamm.testing.transcript import event_text, fault_text, request_text, subjects, timeline

ID = bytes(range(16))
TOPIC = "t"


def exchange(api: ApiKey, version: int, request: Any, response: Any = None, *, at_ms: int = 1000, client: str | None = "me") -> Exchange:
    made = Exchange(1, at_ms, 1, "127.0.0.1:5", messages.encode_request(api, version, 7, client, messages.encode(request, version))[4:])
    if response is not None:
        made.response = messages.encode_response(api, version, 7, messages.encode(response, version))[4:]
    return made


def metadata(code: int = 0, *, at_ms: int = 1000, name: str = TOPIC, is_answered: bool = True) -> Exchange:
    row = messages.MetadataResponse.MetadataResponseTopic(error_code=code, name=name)
    request = messages.MetadataRequest(topics=[messages.MetadataRequest.MetadataRequestTopic(name=name)])
    return exchange(ApiKey.METADATA, 9, request, messages.MetadataResponse(topics=[row]) if is_answered else None, at_ms=at_ms)


def test_a_request_names_its_topics_with_partitions_its_group_and_its_transaction() -> None:
    kind = messages.FetchRequest
    rows = [kind.FetchPartition(partition=index) for index in range(10)]
    request = kind(topics=[kind.FetchTopic(topic="a", partitions=rows[:2]), kind.FetchTopic(topic="b", partitions=rows)])
    assert subjects(request, 11) == ["a-0,1", "b-0,1,2,3,4,5,6,7,…"]
    by_id = kind(topics=[kind.FetchTopic(topic_id=ID, partitions=rows[:1])])
    assert subjects(by_id, 13, {ID: "named"}.__getitem__) == ["named-0"]
    commit = messages.TxnOffsetCommitRequest
    offsets = commit.TxnOffsetCommitRequestTopic(name="a", partitions=[commit.TxnOffsetCommitRequestPartition(partition_index=3)])
    assert subjects(commit(transactional_id="x", group_id="g", topics=[offsets]), 3) == ["transaction x", "group g", "a-3"]
    assert subjects(messages.FindCoordinatorRequest(key="g"), 2) == ["g"]
    many = messages.MetadataRequest(topics=[messages.MetadataRequest.MetadataRequestTopic(name=f"t{index}") for index in range(9)])
    assert subjects(many, 9) == ["t0", "t1", "t2", "t3", "and 5 more"]
    assert subjects(messages.MetadataRequest(topics=None), 9) == []


@pytest.mark.parametrize("api", [APIS[key] for key in HANDLERS], ids=lambda api: api.name)
def test_an_empty_request_of_every_api_has_a_line(api: Any) -> None:
    request = getattr(messages, f"{api.name}Request")()
    made = exchange(ApiKey(api.key), api.max_version, request)
    assert request_text(made).startswith(f"broker 1  {api.name} v{api.max_version}  me")
    assert request_text(made).endswith("no response")


def test_bytes_that_are_no_message_have_a_line_too() -> None:
    made = metadata()
    made.request = made.request[:-3]
    made.response = b"\x00"
    assert request_text(made) == "broker 1  Metadata v9  me  ?  a response that cannot be decoded"
    assert "(no client id)" in request_text(exchange(ApiKey.METADATA, 9, messages.MetadataRequest(topics=None), client=None))


def test_lines_are_in_the_order_of_time_and_the_first_error_is_marked() -> None:
    event = {"at_ms": 1500, "kind": "broker", "data": {"id": 2, "state": "killed"}, "number": 1}
    requests = [
        metadata(at_ms=1100), metadata(at_ms=1200), metadata(ErrorCode.LEADER_NOT_AVAILABLE, at_ms=1600),
        metadata(ErrorCode.LEADER_NOT_AVAILABLE, at_ms=1700), metadata(at_ms=1800, is_answered=False),
    ]
    assert timeline(requests, [event], 1000) == [
        "     +0.100 s  broker 1  Metadata v9  me  t  ok  (x2)",
        "     +0.500 s  * broker 2: killed",
        ">    +0.600 s  broker 1  Metadata v9  me  t  LEADER_NOT_AVAILABLE  (x2)",
        "     +0.800 s  broker 1  Metadata v9  me  t  no response",
    ]


def test_usual_errors_and_those_of_older_clients_are_marked_only_if_there_are_no_others() -> None:
    usual, other = ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER
    requests = [metadata(usual, at_ms=1100), metadata(other, at_ms=1200, name="older"), metadata(other, at_ms=1300)]
    requests[1].peer = "127.0.0.1:2"

    def marked(count: int, older: set[str]) -> list[str]:
        return [line.split("me  ")[1] for line in timeline(requests[:count], (), 1000, older=older) if line.startswith(">")]

    assert marked(3, {"127.0.0.1:2"}) == ["t  NOT_LEADER_OR_FOLLOWER"]
    assert marked(3, set()) == ["older  NOT_LEADER_OR_FOLLOWER"]
    assert marked(2, {"127.0.0.1:2"}) == ["older  NOT_LEADER_OR_FOLLOWER"]
    assert marked(1, set()) == ["t  COORDINATOR_NOT_AVAILABLE"]


def test_of_many_lines_the_first_the_last_and_the_first_error_are_shown() -> None:
    requests = [metadata(ErrorCode.LEADER_NOT_AVAILABLE if n == 50 else 0, at_ms=1000 + n, name=f"t{n}") for n in range(100)]
    lines = timeline(requests, (), 1000, limit=20)
    assert len(lines) == 22
    assert [line.split("me  ")[1] for line in lines if "me  " in line] == [
        *(f"t{n}  ok" for n in range(5)), "t50  LEADER_NOT_AVAILABLE", *(f"t{n}  ok" for n in range(85, 100)),
    ]
    assert lines[5] == "  … 80 lines …"


@pytest.mark.parametrize(
    ("kind", "data", "text"),
    [
        ("crashed", {"broker": 2, "phase": "ZooKeeperWrite"}, "broker 2 is killed at ZooKeeperWrite"),
        ("crashed", {"broker": 2, "hold": 5}, "broker 2 is killed at hold 5"),
        ("clock", {"advanced_ms": 1500, "fired": 3}, "the clock is advanced by 1.5 s; 3 timers fire"),
        ("clock", {"frozen": True}, "the clock is frozen"),
        ("zookeeper", {"broker": 1, "cut": True}, "broker 1 is cut off from ZooKeeper"),
        ("zookeeper", {"broker": 1, "delay_ms": 5}, "requests of broker 1 to ZooKeeper wait for 5 ms"),
        ("expired", {"broker": 1}, "the ZooKeeper session of broker 1 is expired"),
        ("change", {"change": "TopicRemoved", "topic": "t"}, "topic t is gone"),
        ("change", {"change": "TermEnded", "controller_id": 1, "controller_epoch": 2}, "broker 1 is not controller any more"),
        ("change", {"change": "ReassignmentsEnded", "partitions": [{"topic": "t", "partition": 1}]}, "reassignment ends: t-1"),
        (
            "change",
            {"change": "StatesChanged", "more": 3, "partitions": [{"topic": "t", "partition": number} for number in reversed(range(6))]},
            "t-0: no state; t-1: no state; t-2: no state; t-3: no state; and 5 more",
        ),
        ("request", {"number": 5}, None),
        ("topic", {"created": "t"}, None),
    ],
)
def test_each_event_is_a_sentence(kind: str, data: dict[str, Any], text: str | None) -> None:
    assert event_text({"kind": kind, "data": data}) == text


def test_a_fault_says_what_it_is_about_what_it_does_and_how_often() -> None:
    shown = {
        "filter": {"api": "Produce", "direction": "request"}, "effect": {"drop": True, "delay_ms": 5},
        "first": 2, "after": 1, "probability": 0.5,
    }
    assert fault_text(shown) == "api=Produce, drop delay_ms=5, first=2 after=1 probability=0.5"
    assert fault_text({"filter": {}, "effect": {"error": "X"}, "first": None, "after": 0, "probability": 1.0}) == "every request, error=X"
