"""Tiny journals of rule W-11."""

from __future__ import annotations

from klamm.journal.columns import Direction
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.records.record import Record, encode_batch
from klamm.tests.pipeline.rules.fixtures import Run, bad, good
from klamm.tests.pipeline.rules.fixtures_wire import broker

ID = bytes(range(16))
BATCH = encode_batch([Record(0, 1, None, b"a")])


def shown(*names: str | None, topic_id: bytes = bytes(16)) -> messages.MetadataResponse:
    """Metadata of these topics."""
    topic = messages.MetadataResponse.MetadataResponseTopic
    return messages.MetadataResponse(cluster_id="c", controller_id=1, topics=[topic(name=name, topic_id=topic_id) for name in names])


def asking(*names: str | None, topic_id: bytes = bytes(16)) -> messages.MetadataRequest:
    """A request for metadata of these topics."""
    topic = messages.MetadataRequest.MetadataRequestTopic
    return messages.MetadataRequest(topics=[topic(name=name, topic_id=topic_id) for name in names])


def deletion(*names: str) -> messages.DeleteTopicsRequest:
    """A request to delete these topics."""
    return messages.DeleteTopicsRequest(topic_names=list(names), timeout_ms=1000)


def deleted(*names: str) -> messages.DeleteTopicsResponse:
    """The answer."""
    return messages.DeleteTopicsResponse(responses=[messages.DeleteTopicsResponse.DeletableTopicResult(name=name) for name in names])


def produce(*partitions: int) -> messages.ProduceRequest:
    """A request to append to partitions of `t`."""
    data = messages.ProduceRequest.PartitionProduceData
    topic = messages.ProduceRequest.TopicProduceData("t", partition_data=[data(partition, BATCH) for partition in partitions])
    return messages.ProduceRequest(acks=1, timeout_ms=1000, topic_data=[topic])


def produced(*partitions: int) -> messages.ProduceResponse:
    """The answer."""
    answer = messages.ProduceResponse.PartitionProduceResponse
    topic = messages.ProduceResponse.TopicProduceResponse("t", partition_responses=[answer(index=partition) for partition in partitions])
    return messages.ProduceResponse(responses=[topic])


def stop(*partitions: int) -> messages.StopReplicaRequest:
    """A request to stop replicas of `t`."""
    state = messages.StopReplicaRequest.StopReplicaPartitionState
    states = [state(partition_index=partition, leader_epoch=1) for partition in partitions]
    topic = messages.StopReplicaRequest.StopReplicaTopicState(topic_name="t", partition_states=states)
    return messages.StopReplicaRequest(controller_id=1, controller_epoch=1, broker_epoch=1, topic_states=[topic])


def stopped(*partitions: int, error: int = 0) -> messages.StopReplicaResponse:
    """The answer."""
    answer = messages.StopReplicaResponse.StopReplicaPartitionError
    return messages.StopReplicaResponse(error, [answer(topic_name="t", partition_index=partition) for partition in partitions])


@good("W-11", also=["M-06"])
def answers_name_what_was_named(run: Run) -> None:
    journal = broker(run)
    journal.event("controller_elected", controller_epoch=1)
    pairs = (
        (ApiKey.METADATA, 12, asking("a", "b"), shown("b", "a")),
        (ApiKey.METADATA, 12, asking("a", "a"), shown("a")),
        (ApiKey.METADATA, 12, asking(), shown()),
        (ApiKey.METADATA, 12, messages.MetadataRequest(topics=None), shown("a")),
        (ApiKey.METADATA, 0, asking(), shown("a")),
        (ApiKey.METADATA, 12, asking(None, topic_id=ID), shown("a", topic_id=ID)),
        (ApiKey.METADATA, 12, asking(None, topic_id=ID), shown(None, topic_id=ID)),
        (ApiKey.METADATA, 12, asking("b", topic_id=ID), shown("a", topic_id=ID)),
        (ApiKey.DELETE_TOPICS, 5, deletion("a", "b"), deleted("a", "b")),
        (ApiKey.PRODUCE, 9, produce(0, 1), produced(1, 0)),
    )
    for key, version, request, response in pairs:
        journal.response(1, journal.request(1, key, version, request), response)
    for answer in (stopped(0, 1), stopped(error=11)):
        asked = journal.request(2, ApiKey.STOP_REPLICA, 4, stop(0, 1), dir=Direction.REQUEST_OUT, peer_id=2)
        journal.response(2, asked, answer, peer_id=2)


@good("W-11")
def the_last_name_of_a_request_that_was_cut_is_unknown(run: Run) -> None:
    journal = broker(run)
    seq = journal.request(2, ApiKey.STOP_REPLICA, 4, stop(0, 1), dir=Direction.REQUEST_OUT, peer_id=2)
    journal.cut(52)
    journal.response(2, seq, stopped(0, 1), peer_id=2)


@good("W-11")
def a_request_is_cut_anywhere(run: Run) -> None:
    journal = broker(run)
    whole = len(messages.encode(stop(0, 1), 4))
    for keep in range(30, 30 + whole):
        seq = journal.request(2, ApiKey.STOP_REPLICA, 4, stop(0, 1), dir=Direction.REQUEST_OUT, peer_id=2)
        journal.cut(keep)
        journal.response(2, seq, stopped(0, 1), peer_id=2)


@good("W-11")
def ids_that_a_version_does_not_take_are_answered_without_names(run: Run) -> None:
    journal = broker(run)
    asked, answer = messages.MetadataRequest.MetadataRequestTopic, messages.MetadataResponse.MetadataResponseTopic
    ids = (ID, ID[::-1])
    request = messages.MetadataRequest(topics=[asked(name=None, topic_id=one) for one in ids])
    seq = journal.request(1, ApiKey.METADATA, 10, request)
    refused = [answer(error_code=42, name="", topic_id=one) for one in ids]
    journal.response(1, seq, messages.MetadataResponse(cluster_id=None, controller_id=-1, topics=refused))


@bad("W-11", also=["M-06"])
def answers_name_too_little_and_too_much(run: Run) -> list[int]:
    journal = broker(run)
    journal.event("controller_elected", controller_epoch=1)
    pairs = (
        (ApiKey.METADATA, 12, asking("a", "b"), shown("a")),
        (ApiKey.METADATA, 12, asking("a"), shown("a", "b")),
        (ApiKey.METADATA, 12, asking(None, topic_id=ID), shown("a", topic_id=bytes(16))),
        (ApiKey.DELETE_TOPICS, 5, deletion("a", "b"), deleted("a")),
        (ApiKey.PRODUCE, 9, produce(0, 1), produced(0)),
        (ApiKey.PRODUCE, 9, produce(0), produced(0, 1)),
        (ApiKey.PRODUCE, 9, produce(0, 1), produced(0, 1, 1)),
        (ApiKey.METADATA, 12, asking("a", "b"), shown("a", "b", "a")),
    )
    return [journal.response(1, journal.request(1, key, version, request), response) for key, version, request, response in pairs]


@bad("W-11")
def a_broker_does_not_answer_for_a_replica(run: Run) -> int:
    journal = broker(run)
    asked = journal.request(2, ApiKey.STOP_REPLICA, 4, stop(0, 1), dir=Direction.REQUEST_OUT, peer_id=2)
    return int(journal.response(2, asked, stopped(0), peer_id=2))


def _elected(run: Run, *named: int, answered: tuple[int, ...], everything: bool = False) -> int:
    """ElectLeaders for these partitions of `t`, answered for those; the answer's seq."""
    journal = broker(run)
    journal.event("controller_elected", controller_epoch=1)
    form, result = messages.ElectLeadersRequest, messages.ElectLeadersResponse
    topics = None if everything else [form.TopicPartitions("t", list(named))]
    asked = journal.request(1, ApiKey.ELECT_LEADERS, 2, form(election_type=0, topic_partitions=topics, timeout_ms=1000))
    rows = [result.PartitionResult(partition, 83, "none of them") for partition in answered]
    return int(journal.response(1, asked, result(replica_election_results=[result.ReplicaElectionResult("t", rows)])))


@good("W-11")
def elections_are_answered_for_all_that_are_named(run: Run) -> None:
    _elected(run, 0, 1, 0, answered=(1, 0))


@good("W-11", also=["C-11", "M-06"])
def elections_of_all_partitions_name_those_that_needed_one(run: Run) -> None:
    answers_name_what_was_named(run)
    _elected(run, answered=(3,), everything=True)


@bad("W-11")
def an_election_is_not_answered(run: Run) -> int:
    return _elected(run, 0, 1, answered=(0,))


@bad("W-11")
def an_election_is_answered_that_nobody_named(run: Run) -> int:
    return _elected(run, 0, answered=(0, 1))
