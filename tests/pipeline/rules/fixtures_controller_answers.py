"""Tiny journals of the rules C-23 to C-25."""

from __future__ import annotations

from typing import Any

from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.tests.pipeline.rules.controllers import Channel, State
from klamm.tests.pipeline.rules.fixtures import Run, bad, good, silent
from klamm.tests.pipeline.rules.fixtures_elections import controller
from klamm.tests.pipeline.rules.fixtures_wire import broker

GROUPS = State(topic="__consumer_offsets", topic_id=bytes(15) + b"\7")
TRANSACTIONS = State(topic="__transaction_state", topic_id=bytes(15) + b"\x08", leader=2)
NOT_AVAILABLE, EXISTS = 15, 36


def led(run: Run) -> Channel:
    """A broker that is the controller and knows the leaders of both topics."""
    channel = Channel(controller(run), 8, controller=1)
    channel.update(GROUPS, TRANSACTIONS)
    return channel


def ask_coordinator(journal: Any, key_type: int = 0, version: int = 4) -> int:
    """FindCoordinator; its seq."""
    keys: dict[str, Any] = {"coordinator_keys": ["g"]} if version >= 4 else {"key": "g"}
    return int(journal.request(1, ApiKey.FIND_COORDINATOR, version, messages.FindCoordinatorRequest(key_type=key_type, **keys)))


def answer_coordinator(journal: Any, asked: int, node: int, *, port: int = 9092, error: int = 0, version: int = 4) -> int:
    """The seq of the response."""
    response = messages.FindCoordinatorResponse
    if version < 4:
        return int(journal.response(1, asked, response(error_code=error, node_id=node, host="h", port=port)))
    row = response.Coordinator(key="g", node_id=node, host="h", port=port, error_code=error, error_message=None)
    return int(journal.response(1, asked, response(coordinators=[row])))


def coordinator(journal: Any, node: int, key_type: int = 0, version: int = 4, **answer: Any) -> int:
    return answer_coordinator(journal, ask_coordinator(journal, key_type, version), node, version=version, **answer)


# --- C-23


@good("C-23")
def leaders_are_named_as_coordinators(run: Run) -> None:
    journal = led(run).journal
    coordinator(journal, 1)
    coordinator(journal, 2, 1)
    coordinator(journal, 1, version=3)
    coordinator(journal, 1, version=0)
    coordinator(journal, -1, error=NOT_AVAILABLE, port=-1)


@good("C-23")
def the_leader_changes_while_somebody_asks(run: Run) -> None:
    channel = led(run)
    before = ask_coordinator(channel.journal)
    channel.update(GROUPS.next(leader=2))
    answer_coordinator(channel.journal, before, 1)
    coordinator(channel.journal, 2)


@bad("C-23")
def a_coordinator_does_not_exist(run: Run) -> int:
    return coordinator(led(run).journal, 7)


@bad("C-23")
def a_coordinator_leads_no_more(run: Run) -> int:
    channel = led(run)
    channel.update(GROUPS.next(leader=2))
    return coordinator(channel.journal, 1, version=0)


@bad("C-23")
def a_coordinator_of_groups_is_named_for_a_transactional_id(run: Run) -> int:
    return coordinator(led(run).journal, 1, 1)


@bad("C-23")
def a_coordinator_has_another_port(run: Run) -> int:
    return coordinator(led(run).journal, 1, port=9093)


@silent("C-23")
def a_recording_of_clients_alone(run: Run) -> None:
    coordinator(broker(run), 7)


# --- C-24


def create(journal: Any, size: int, between: Any = None, error: int = 0, version: int = 7, **request: Any) -> int:
    """CreateTopics of t with this size in the answer; `between` is called before that. The seq of the response."""
    kind, response = messages.CreateTopicsRequest, messages.CreateTopicsResponse
    topics = [kind.CreatableTopic("t", size, 1, [], [])]
    asked = journal.request(1, ApiKey.CREATE_TOPICS, version, kind(topics=topics, timeout_ms=1000, **request))
    if between is not None:
        between()
    row = response.CreatableTopicResult(
        name="t", topic_id=bytes(range(16)), error_code=error, error_message=None, num_partitions=size, replication_factor=1, configs=[],
    )
    return int(journal.response(1, asked, response(topics=[row])))


def add_partitions(journal: Any, count: int, between: Any = None) -> int:
    """CreatePartitions of t; the seq of the response."""
    kind, response = messages.CreatePartitionsRequest, messages.CreatePartitionsResponse
    topics = [kind.CreatePartitionsTopic("t", count, None)]
    asked = journal.request(1, ApiKey.CREATE_PARTITIONS, 3, kind(topics=topics, timeout_ms=1000, validate_only=False))
    if between is not None:
        between()
    return int(journal.response(1, asked, response(results=[response.CreatePartitionsTopicResult("t", 0, None)])))


@good("C-24")
def a_topic_is_created_when_its_leaders_are_known(run: Run) -> None:
    channel = led(run)
    journal = channel.journal
    create(journal, 2, between=lambda: channel.update(State(), State(partition=1)))
    create(journal, 2, error=EXISTS)
    create(journal, 2, validate_only=True)
    add_partitions(journal, 3, between=lambda: channel.update(State(partition=2)))


@good("C-24")
def an_old_version_does_not_say_how_many_partitions_there_are(run: Run) -> None:
    channel = led(run)
    create(channel.journal, 2, version=4, between=lambda: channel.update(State()))


@bad("C-24")
def a_topic_never_comes(run: Run) -> int:
    return create(led(run).journal, 1)


@bad("C-24")
def a_topic_comes_too_late(run: Run) -> int:
    channel = led(run)
    seq = create(channel.journal, 1)
    channel.update(State())
    return seq


@bad("C-24")
def a_topic_has_no_leader_yet(run: Run) -> int:
    channel = led(run)
    return create(channel.journal, 1, between=lambda: channel.update(State(leader=-1)))


@bad("C-24")
def one_partition_of_a_topic_is_missing(run: Run) -> int:
    channel = led(run)
    return create(channel.journal, 2, between=lambda: channel.update(State()))


@bad("C-24")
def a_new_partition_is_missing(run: Run) -> int:
    channel = led(run)
    channel.update(State(), State(partition=1))
    return add_partitions(channel.journal, 3, between=lambda: channel.update(State(), State(partition=1)))


@silent("C-24")
def nobody_told_this_broker_anything(run: Run) -> None:
    create(controller(run), 1)


# --- C-25


def both_ends(run: Run) -> tuple[Channel, Channel]:
    """The same channel in the journal of controller 9, and in that of broker 1 that receives."""
    return Channel(broker(run, 9), to=1), Channel(broker(run))


@good("C-25")
def both_ends_have_the_same(run: Run) -> None:
    for channel in both_ends(run):
        channel.both(State())
        channel.both(State().next(leader=2))


@good("C-25")
def a_second_connection_has_the_same_correlation_id(run: Run) -> None:
    sender, receiver = both_ends(run)
    for conn, state in enumerate((State(), State().next()), 1):
        for channel in (sender, receiver):
            channel.conn = conn
            channel.update(state, corr=5)


@good("C-25")
def the_end_of_the_controllers_journal_is_lost(run: Run) -> None:
    """It was killed after it had sent the request of a second connection."""
    sender, receiver = both_ends(run)
    for channel in (sender, receiver):
        channel.update(State(), corr=5)
    receiver.conn = 2
    receiver.update(State().next(), corr=5)


@bad("C-25", also=["C-19"])
def a_request_arrives_otherwise(run: Run) -> int:
    sender, receiver = both_ends(run)
    sender.update(State())
    return receiver.update(State(isr=(1,)))


@bad("C-25")
def a_response_arrives_otherwise(run: Run) -> int:
    sender, receiver = both_ends(run)
    sender.update(State())
    return receiver.update(State(), error=77)


@silent("C-25")
def the_controller_keeps_no_journal(run: Run) -> None:
    Channel(broker(run)).update(State())
