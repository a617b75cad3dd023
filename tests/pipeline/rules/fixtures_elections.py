"""Tiny journals of the rules `E`."""

from __future__ import annotations

from typing import Any

from klamm.journal.columns import Direction
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.tests.pipeline.rules.fixtures import Run, bad, good, silent
from klamm.tests.pipeline.rules.fixtures_wire import broker

UPDATE = messages.UpdateMetadataRequest
ID = bytes(range(16))


def controller(run: Run, node: int = 1) -> Any:
    """The journal of a broker that is the controller."""
    journal = broker(run, node)
    journal.event("controller_elected", controller_epoch=1)
    return journal


def elect(journal: Any, *partitions: int, version: int = 2, kind: int = 0, everything: bool = False) -> int:
    """A request for elections in topic `t`; its seq."""
    named = [messages.ElectLeadersRequest.TopicPartitions("t", list(partitions))]
    request = messages.ElectLeadersRequest(election_type=kind, topic_partitions=None if everything else named, timeout_ms=1000)
    return int(journal.request(1, ApiKey.ELECT_LEADERS, version, request))


def elected(journal: Any, asked: int, *results: tuple[int, int, str | None], error: int = 0) -> int:
    """The answer: (partition, code, message) each; its seq."""
    result = messages.ElectLeadersResponse.ReplicaElectionResult
    rows = [messages.ElectLeadersResponse.PartitionResult(*each) for each in results]
    return int(journal.response(1, asked, messages.ElectLeadersResponse(error_code=error, replica_election_results=[result("t", rows)])))


def update(journal: Any, leader: int, leader_epoch: int, *, replicas: tuple[int, ...] = (1, 2)) -> None:
    """UpdateMetadata of t-0, taken by the broker."""
    state = UPDATE.UpdateMetadataPartitionState(
        partition_index=0, controller_epoch=1, leader=leader, leader_epoch=leader_epoch, isr=list(replicas), zk_version=leader_epoch,
        replicas=list(replicas),
    )
    topic = UPDATE.UpdateMetadataTopicState(topic_name="t", topic_id=ID, partition_states=[state])
    endpoint = UPDATE.UpdateMetadataEndpoint(port=9092, host="h", listener="PLAINTEXT", security_protocol=0)
    brokers = [UPDATE.UpdateMetadataBroker(id=each, endpoints=[endpoint]) for each in replicas]
    request = UPDATE(controller_id=1, controller_epoch=1, broker_epoch=1, topic_states=[topic], live_brokers=brokers)
    asked = journal.request(90, ApiKey.UPDATE_METADATA, 8, request, dir=Direction.REQUEST_IN)
    journal.response(90, asked, messages.UpdateMetadataResponse())


def metadata(journal: Any, leader: int, leader_epoch: int) -> int:
    """A client asks for metadata of t; the seq of the answer."""
    topic = messages.MetadataRequest.MetadataRequestTopic
    asked = journal.request(2, ApiKey.METADATA, 12, messages.MetadataRequest(topics=[topic(name="t")]))
    shown = messages.MetadataResponse
    partition = shown.MetadataResponsePartition(
        partition_index=0, leader_id=leader, leader_epoch=leader_epoch, replica_nodes=[1, 2], isr_nodes=[1, 2],
    )
    rows = [shown.MetadataResponseTopic(name="t", topic_id=ID, partitions=[partition])]
    broker_rows = [shown.MetadataResponseBroker(node_id=each, host="h", port=9092) for each in (1, 2)]
    return int(journal.response(2, asked, shown(cluster_id="c", controller_id=1, brokers=broker_rows, topics=rows)))


@good("E-01")
def the_leader_is_told_before_the_answer(run: Run) -> None:
    journal = controller(run)
    update(journal, 2, 4)
    asked = elect(journal, 0)
    update(journal, 1, 5)
    elected(journal, asked, (0, 0, None))
    metadata(journal, 1, 5)


@good("E-01")
def version_0_and_a_leader_that_is_preferred(run: Run) -> None:
    journal = controller(run)
    update(journal, 1, 4)
    asked = elect(journal, 0, version=0)
    elected(journal, asked, (0, 0, None))


@good("E-01")
def version_0_and_a_leader_that_was_told_before_the_journal(run: Run) -> None:
    journal = run.journal()
    asked = elect(journal, 0, version=0)
    elected(journal, asked, (0, 0, None))
    journal.event("broker_stopped", broker=1)


@bad("E-01")
def version_0_and_a_leader_that_is_not_preferred(run: Run) -> int:
    journal = controller(run)
    update(journal, 2, 4)
    return elected(journal, elect(journal, 0, version=0), (0, 0, None))


def listing(journal: Any, *brokers: int) -> None:
    """The controller's blacklist from now on."""
    output = {"keys": ["preferred_leader_blacklist"], "listed": list(brokers)}
    journal.event("config_change", input={"entity_type": "brokers"}, output=output)


@good("E-01")
def the_first_that_can_lead_is_preferred_to_a_listed_one(run: Run) -> None:
    journal = controller(run)
    listing(journal, 1)
    update(journal, 1, 4)
    asked = elect(journal, 0)
    update(journal, 2, 5)
    elected(journal, asked, (0, 0, None))


@bad("E-01")
def a_list_of_the_former_term_says_nothing(run: Run) -> int:
    journal = controller(run)
    listing(journal, 1)
    journal.event("controller_resigned", controller_epoch=1)
    journal.event("controller_elected", controller_epoch=2)
    update(journal, 1, 4)
    asked = elect(journal, 0)
    update(journal, 2, 5)
    return elected(journal, asked, (0, 0, None))


@good("E-01")
def a_controller_whose_term_began_before_the_journal_may_know_a_list(run: Run) -> None:
    journal = run.journal()
    update(journal, 1, 4)
    asked = elect(journal, 0)
    update(journal, 2, 5)
    elected(journal, asked, (0, 0, None))


@bad("E-01")
def nobody_tells_of_the_leader(run: Run) -> int:
    journal = controller(run)
    update(journal, 2, 4)
    return elected(journal, elect(journal, 0), (0, 0, None))


@bad("E-01")
def the_leader_is_told_again_in_the_same_leader_epoch(run: Run) -> int:
    journal = controller(run)
    update(journal, 1, 4)
    asked = elect(journal, 0)
    update(journal, 1, 4)
    return elected(journal, asked, (0, 0, None))


@bad("E-01")
def another_replica_became_the_leader(run: Run) -> int:
    journal = controller(run)
    update(journal, 1, 4)
    asked = elect(journal, 0)
    update(journal, 2, 5)
    return elected(journal, asked, (0, 0, None))


@bad("E-01", also=["C-16"])
def metadata_shows_the_leader_before(run: Run) -> int:
    journal = controller(run)
    update(journal, 2, 4)
    asked = elect(journal, 0)
    update(journal, 1, 5)
    answer = elected(journal, asked, (0, 0, None))
    metadata(journal, 2, 4)
    return answer


@silent("E-01")
def no_election_was_needed(run: Run) -> None:
    journal = controller(run)
    elected(journal, elect(journal, 0), (0, 84, "not needed"))


@good("E-02")
def messages_stand_beside_errors(run: Run) -> None:
    journal = controller(run)
    elected(journal, elect(journal, 0, 1, 2), (0, 84, "not needed"), (1, 7, None), (2, 83, "none of them"))
    elected(journal, elect(journal, 0, kind=7), (0, -1, None), error=-1)


@bad("E-02")
def a_message_beside_no_error(run: Run) -> int:
    journal = controller(run)
    asked = elect(journal, 0)
    update(journal, 1, 5)
    return elected(journal, asked, (0, 0, ""))


@bad("E-02")
def an_error_without_a_message(run: Run) -> int:
    journal = controller(run)
    return elected(journal, elect(journal, 0), (0, 83, None))


@bad("E-02")
def a_partition_that_needs_no_election_has_no_message(run: Run) -> int:
    journal = controller(run)
    return elected(journal, elect(journal, 0), (0, 84, None))


@good("E-03")
def duplicates_collapse(run: Run) -> None:
    journal = controller(run)
    elected(journal, elect(journal, 0, 0), (0, 84, "not needed"))
    elected(journal, elect(journal, 0, version=0, everything=True), (0, 84, "not needed"))
    elected(journal, elect(journal, everything=True), (0, 83, "none of them"))


@good("E-03")
def an_unknown_election_type_is_answered_as_it_was_asked(run: Run) -> None:
    journal = controller(run)
    elected(journal, elect(journal, 0, 0, kind=2), (0, -1, None), (0, -1, None), error=-1)


@bad("E-03")
def a_partition_is_answered_twice(run: Run) -> int:
    journal = controller(run)
    return elected(journal, elect(journal, 0, 0), (0, 84, "not needed"), (0, 84, "not needed"))


@bad("E-03")
def what_needs_no_election_is_listed(run: Run) -> int:
    journal = controller(run)
    return elected(journal, elect(journal, everything=True), (0, 84, "not needed"))


# --- E-04


def create(journal: Any, code: int) -> int:
    """CreateTopics, answered with this code; the seq of the answer."""
    request = messages.CreateTopicsRequest(topics=[messages.CreateTopicsRequest.CreatableTopic(name="t")], timeout_ms=1000)
    asked = journal.request(1, ApiKey.CREATE_TOPICS, 4, request)
    result = messages.CreateTopicsResponse.CreatableTopicResult(name="t", error_code=code)
    return int(journal.response(1, asked, messages.CreateTopicsResponse(topics=[result])))


@good("E-04")
def others_are_refused(run: Run) -> None:
    journal = broker(run)
    create(journal, 41)
    create(journal, 29)
    elected(journal, elect(journal, 0), (0, 41, None), error=0)
    elected(journal, elect(journal, 0), (0, 31, None), error=31)
    asked = journal.request(1, ApiKey.ELECT_LEADERS, 2, messages.ElectLeadersRequest(topic_partitions=[]))
    journal.response(1, asked, messages.ElectLeadersResponse())
    shutdown = journal.request(3, ApiKey.CONTROLLED_SHUTDOWN, 3, messages.ControlledShutdownRequest(2, 7))
    journal.response(3, shutdown, messages.ControlledShutdownResponse(error_code=11))
    journal.event("controller_elected", controller_epoch=1)
    create(journal, 0)
    journal.event("controller_resigned", controller_epoch=1)
    create(journal, 41)


@good("E-04")
def it_is_elected_meanwhile(run: Run) -> None:
    journal = broker(run)
    create(journal, 41)
    request = messages.DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000)
    asked = journal.request(1, ApiKey.DELETE_TOPICS, 5, request)
    journal.event("controller_elected", controller_epoch=1)
    result = messages.DeleteTopicsResponse.DeletableTopicResult(name="t")
    journal.response(1, asked, messages.DeleteTopicsResponse(responses=[result]))


@bad("E-04")
def another_broker_than_the_controller_creates(run: Run) -> list[int]:
    journal = broker(run)
    first = create(journal, 0)
    journal.event("controller_elected", controller_epoch=1)
    journal.event("controller_resigned", controller_epoch=1)
    asked = journal.request(3, ApiKey.CONTROLLED_SHUTDOWN, 3, messages.ControlledShutdownRequest(2, 7))
    return [first, journal.response(3, asked, messages.ControlledShutdownResponse())]
