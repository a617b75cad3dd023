"""AlterPartitionReassignments (45) and ListPartitionReassignments (46): what a client gets, with a controller of the test's."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from klamm.controller.events.causes import Cause
from klamm.controller.values import Assignment
from klamm.protocol import messages
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.nouns import Ints, TopicPartition
from klamm.server.security.authorizer import Operation, ResourceType
from klamm.tests.services import DenyAll, InactiveController, make_services, respond

ASKED, LISTED = messages.AlterPartitionReassignmentsRequest, messages.ListPartitionReassignmentsRequest
A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
Outcome = tuple[ErrorCode, str | None]


class Moving(InactiveController):
    """Remembers what it was asked, and has an outcome for every partition."""

    def __init__(self, error: ApiError | None = None) -> None:
        super().__init__()
        self.asked: dict[TopicPartition, Ints | None] = {}
        self.error = error

    async def alter_reassignments(self, targets: dict[TopicPartition, Ints | None], cause: Cause) -> dict[TopicPartition, Outcome]:
        self.asked = targets
        if self.error is not None:
            raise self.error
        refused = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "nothing to cancel"
        return {tp: refused if target is None else (ErrorCode.NONE, None) for tp, target in targets.items()}

    async def list_reassignments(self, partitions: Iterable[TopicPartition] | None, cause: Cause) -> dict[TopicPartition, Assignment]:
        return {A0: Assignment((3, 1), (3,), (1,)), A1: Assignment((1,)), B0: Assignment((2, 4), (4,))}


def request(*rows: tuple[TopicPartition, list[int] | None]) -> messages.AlterPartitionReassignmentsRequest:
    """Each row in a topic element of its own."""
    topics = [
        ASKED.ReassignableTopic(name=tp.topic, partitions=[ASKED.ReassignablePartition(partition_index=tp.partition, replicas=replicas)])
        for tp, replicas in rows
    ]
    return ASKED(timeout_ms=0, topics=topics)


async def alter(
    controller: InactiveController, asked: messages.AlterPartitionReassignmentsRequest, denied: bool = False
) -> tuple[ErrorCode, str | None, dict[TopicPartition, Outcome]]:
    services = make_services(controller=controller, authorizer=DenyAll() if denied else None)
    sent = await respond(services, asked, 0)
    rows = {TopicPartition(t.name, p.partition_index): (p.error_code, p.error_message) for t in sent.responses for p in t.partitions}
    return sent.error_code, sent.error_message, rows


async def test_each_partition_has_its_own_outcome_and_the_message_at_the_top_is_empty() -> None:
    controller = Moving()
    code, message, rows = await alter(controller, request((A0, [3, 1]), (B0, None)))
    assert (code, message) == (0, "")
    assert rows == {A0: (0, None), B0: (ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "nothing to cancel")}
    assert controller.asked == {A0: (3, 1), B0: None}


async def test_of_a_partition_named_twice_the_last_entry_counts() -> None:
    controller = Moving()
    _, _, rows = await alter(controller, request((A0, None), (A1, [1]), (A0, [2])))
    assert controller.asked == {A0: (2,), A1: (1,)} and rows == {A0: (0, None), A1: (0, None)}


async def test_without_the_right_to_alter_the_cluster_everything_is_refused() -> None:
    controller = Moving()
    code, message, rows = await alter(controller, request((A0, [3]), (B0, None)), denied=True)
    assert code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED and message and not controller.asked
    assert rows == dict.fromkeys((A0, B0), (code, message))


async def test_alter_on_the_cluster_is_needed_to_reassign_and_describe_to_list() -> None:
    for message, operation in (request((A0, [3])), Operation.ALTER), (LISTED(timeout_ms=1000, topics=None), Operation.DESCRIBE):
        authorizer = DenyAll()
        answer = await respond(make_services(controller=Moving(), authorizer=authorizer), message, 0)
        assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert [(checked, resource.type) for checked, resource in authorizer.checked] == [(operation, ResourceType.CLUSTER)]


async def test_who_may_not_list_gets_the_named_partitions_back_without_replicas() -> None:
    named = LISTED(timeout_ms=1000, topics=[LISTED.ListPartitionReassignmentsTopics(name="a", partition_indexes=[1, 0])])
    sent = await respond(make_services(controller=Moving(), authorizer=DenyAll()), named, 0)
    rows = [(t.name, p.partition_index, *p.replicas, *p.adding_replicas, *p.removing_replicas) for t in sent.topics for p in t.partitions]
    assert rows == [("a", 1), ("a", 0)]
    sent = await respond(make_services(controller=InactiveController()), named, 0)
    assert sent.error_code == ErrorCode.NOT_CONTROLLER and not sent.topics


@pytest.mark.parametrize("controller", [InactiveController(), Moving(ApiError(ErrorCode.NOT_CONTROLLER))], ids=["inactive", "moved"])
async def test_who_is_not_the_controller_names_no_partition(controller: InactiveController) -> None:
    code, message, rows = await alter(controller, request((A0, [3])))
    assert code == ErrorCode.NOT_CONTROLLER and message and rows == {}


async def test_a_request_without_partitions() -> None:
    assert await alter(Moving(), request()) == (0, "", {})


async def test_the_list_has_topics_together_with_replicas_added_and_removed() -> None:
    services = make_services(controller=Moving())
    sent = await respond(services, LISTED(timeout_ms=0, topics=None), 0)
    rows = [
        (t.name, p.partition_index, tuple(p.replicas), tuple(p.adding_replicas), tuple(p.removing_replicas))
        for t in sent.topics
        for p in t.partitions
    ]
    assert rows == [("a", 0, (3, 1), (3,), (1,)), ("a", 1, (1,), (), ()), ("b", 0, (2, 4), (4,), ())] and len(sent.topics) == 2
