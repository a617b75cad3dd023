"""Transactions move between coordinators of Klamm and of Apache Kafka: each goes on with the records and the markers of the other.

Brokers 1 and 2 are Klamm's, broker 3 is a real one; each leads one partition of `orders`. The transaction topic has one partition, and a
reassignment that changes the order of its replicas and a preferred election make any of the three the coordinator.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode as E
from klamm.tests.harness.batches import records_of, texts_of
from klamm.tests.harness.kafka import request, wait_for
from klamm.tests.harness.members import Members
from klamm.tests.mixed.conftest import members, new_members
from klamm.tests.transactions.mixed_coordinators import KAFKA, KLAMM, OTHER_KLAMM, MixedCoordinators, is_clean

__all__ = ["members", "new_members"]

pytestmark = [pytest.mark.slow, pytest.mark.reference]

TOPIC = "__transaction_state"
CONFIGS = {"cleanup.policy": "compact", "compression.type": "uncompressed", "unclean.leader.election.enable": "false"}
SETTINGS: dict[str, Any] = {
    "transaction_state_log_num_partitions": 1,
    "transaction_state_log_replication_factor": 3,
    "transaction_state_log_min_isr": 2,
    "auto_leader_rebalance_enable": "false",
    "transaction_abort_timed_out_transaction_cleanup_interval_ms": 500,
}
NOT_NOW = {E.COORDINATOR_LOAD_IN_PROGRESS, E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR, E.CONCURRENT_TRANSACTIONS, E.NOT_ENOUGH_REPLICAS}


class TransactionCoordinators(MixedCoordinators):
    """Who coordinates all transactional ids, and requests to that broker and to leaders."""

    def __init__(self, members: Members) -> None:
        super().__init__(members, TOPIC, CONFIGS, NOT_NOW)
        members.create("orders", [[KLAMM, KAFKA, OTHER_KLAMM], [OTHER_KLAMM, KLAMM, KAFKA], [KAFKA, OTHER_KLAMM, KLAMM]])
        self.sequences: dict[int, int] = {}

    def move(self, to: int) -> None:
        """Make a broker the coordinator, and wait until it has loaded the transactional ids."""
        super().move(to)
        self.described()

    def described(self) -> Any:
        """The transactional id as its coordinator describes it."""
        answer = self.ask(
            "DescribeTransactions", 0, {"transactionalIds": ["tx"]}, lambda each: each.transaction_states[0].error_code
        ).transaction_states[0]
        partitions = sorted((topic.topic, index) for topic in answer.topics for index in topic.partitions)
        return answer.transaction_state, answer.producer_id, answer.producer_epoch, answer.transaction_start_time_ms, partitions

    def init(self, timeout_ms: int = 60_000) -> tuple[int, int]:
        answer = self.ask("InitProducerId", 4, {"transactionalId": "tx", "transactionTimeoutMs": timeout_ms})
        assert answer.error_code == 0, answer
        self.sequences.clear()
        return answer.producer_id, answer.producer_epoch

    def add(self, producer: tuple[int, int], *partitions: int) -> int:
        value = {
            "v3AndBelowTransactionalId": "tx", "v3AndBelowProducerId": producer[0], "v3AndBelowProducerEpoch": producer[1],
            "v3AndBelowTopics": [{"name": "orders", "partitions": list(partitions)}],
        }
        return _code_of_add(self.ask("AddPartitionsToTxn", 3, value, _code_of_add))

    def end(self, producer: tuple[int, int], committed: bool) -> int:
        value = {"transactionalId": "tx", "producerId": producer[0], "producerEpoch": producer[1], "committed": committed}
        return int(self.ask("EndTxn", 3, value).error_code)

    def produce(self, producer: tuple[int, int], partition: int, text: str) -> int:
        """Produce one record of the transaction to the leader of a partition, which verifies it. It has the present time: a marker long
        after it would begin a new segment."""
        kind = messages.ProduceRequest
        batch = f"pid={producer[0]}/{producer[1]}/{self.sequences.get(partition, 0)},tx({text}@now)"
        data = kind.PartitionProduceData(index=partition, records=records_of([batch]))
        topic = kind.TopicProduceData(name="orders", partition_data=[data])
        message = kind(transactional_id="tx", acks=-1, timeout_ms=10_000, topic_data=[topic])

        def look() -> Any:
            answer = request(self.members.brokers[self.members.state("orders", partition).leader].port, message, 10)
            code = answer.responses[0].partition_responses[0].error_code
            assert code not in NOT_NOW, answer
            return answer

        answer = wait_for(look, "produced")
        self.sequences[partition] = self.sequences.get(partition, 0) + 1
        return int(answer.responses[0].partition_responses[0].error_code)

    def read(self, partition: int, expected: int) -> list[str]:
        """What is in a partition, markers too, once the last stable offset is the end."""
        kind = messages.FetchRequest

        def look() -> list[str]:
            row = kind.FetchPartition(partition=partition, fetch_offset=0, partition_max_bytes=1 << 20)
            topic = kind.FetchTopic(topic="orders", partitions=[row])
            message = kind(max_wait_ms=0, min_bytes=0, max_bytes=1 << 24, isolation_level=1, topics=[topic], rack_id="")
            answer = request(self.members.brokers[self.members.state("orders", partition).leader].port, message, 11)
            found = answer.responses[0].partitions[0]
            assert found.error_code == 0 and found.last_stable_offset == found.high_watermark == expected, found
            return [text.partition(" ")[2] for text in texts_of(bytes(found.records))]

        return wait_for(look, f"{expected} records and markers in orders-{partition}")


def _code_of_add(answer: Any) -> int:
    return int(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)


@pytest.fixture
def coordinators(new_members: Callable[..., Members]) -> TransactionCoordinators:
    return TransactionCoordinators(new_members(lambda _: SETTINGS))


def test_transactions_go_on_with_coordinators_of_both_kinds_and_markers_reach_leaders_of_both(
    coordinators: TransactionCoordinators
) -> None:
    producer = coordinators.init()
    for ends, to in enumerate((KAFKA, KLAMM, KAFKA, OTHER_KLAMM), 1):
        assert coordinators.add(producer, 0, 1) == E.NONE
        assert [coordinators.produce(producer, partition, f"before-{to}") for partition in (0, 1)] == [E.NONE, E.NONE]
        before = coordinators.described()
        coordinators.move(to)
        assert coordinators.described() == before, f"moved to {to}"
        assert coordinators.produce(producer, 2, f"outside-{to}") == E.INVALID_TXN_STATE
        coordinators.sequences[2] -= 1
        assert coordinators.add(producer, 2) == E.NONE
        assert [coordinators.produce(producer, partition, f"after-{to}") for partition in (0, 1, 2)] == [E.NONE] * 3
        assert coordinators.end(producer, to != KLAMM) == E.NONE
        assert coordinators.end(producer, to != KLAMM) == E.NONE, "it may be repeated"
        assert coordinators.end(producer, to == KLAMM) == E.INVALID_TXN_STATE
        markers = [text for text in coordinators.read(0, 3 * ends) if "control" in text]
        assert len(markers) == ends and ("commit" if to != KLAMM else "abort") in markers[-1]
        assert len([text for text in coordinators.read(2, 2 * ends) if "control" in text]) == ends
    is_clean(coordinators.members)


def test_epochs_and_fences_move_with_the_transactional_id(coordinators: TransactionCoordinators) -> None:
    producer = coordinators.init()
    for to in (KAFKA, KLAMM, KAFKA, OTHER_KLAMM):
        assert coordinators.add(producer, 0) == E.NONE
        coordinators.move(to)
        following = coordinators.init()
        assert following == (producer[0], producer[1] + 2), f"moved to {to}: the open transaction took an epoch"
        assert coordinators.end(producer, True) == E.PRODUCER_FENCED
        producer = following
    is_clean(coordinators.members)


def test_a_transaction_that_one_kind_began_is_aborted_by_the_other_after_its_timeout(coordinators: TransactionCoordinators) -> None:
    for number, to in enumerate((KAFKA, KLAMM), 1):
        producer = coordinators.init(timeout_ms=8_000)
        assert coordinators.add(producer, 0) == E.NONE
        assert coordinators.produce(producer, 0, "open") == E.NONE
        coordinators.move(to)
        assert "abort" in coordinators.read(0, 2 * number)[-1]
        wait_for(lambda: coordinators.described()[0] == "CompleteAbort", "aborted")
        assert coordinators.described()[2] == producer[1] + 1
    is_clean(coordinators.members)
