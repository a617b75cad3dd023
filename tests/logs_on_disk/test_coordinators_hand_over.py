"""Groups and open transactions in a folder go from Klamm to Apache Kafka and back: offsets, generations, producer ids and epochs go on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from klamm.protocol import messages
from klamm.tests.harness.kafka import request, wait_for
from klamm.tests.harness.members import Members
from klamm.tests.logs_on_disk.hand_over import FolderHandOver

pytestmark = [pytest.mark.slow, pytest.mark.reference]

TOPIC, GROUP, WITHIN_S = "copied", "copier", 60


class Story:
    """What clients do at the broker, of either kind."""

    def __init__(self, members: Members, jars: Path) -> None:
        self.folder = FolderHandOver(members, jars)
        self.bootstrap = f"127.0.0.1:{self.folder.port}"
        self.committed: list[str] = []

    def ask(self, message: Any, version: int, code_of: Callable[[Any], int]) -> Any:
        """Send a request until its response has no error."""

        def look() -> Any:
            try:
                response = request(self.folder.port, message, version)
            except OSError:
                return None
            return response if code_of(response) == 0 else None

        return wait_for(look, f"{type(message).__name__} succeeds", WITHIN_S)

    def producer(self, transactional_id: str) -> Producer:
        producer = Producer({"bootstrap.servers": self.bootstrap, "transactional.id": transactional_id, "log_level": 0})
        producer.init_transactions(WITHIN_S)
        return producer

    def begin(self, producer: Producer, *texts: str, offset: int) -> None:
        """Write records and an offset of the group in a transaction, which stays open."""
        producer.begin_transaction()
        for text in texts:
            producer.produce(TOPIC, text.encode(), partition=0)
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": GROUP, "log_level": 0})
        producer.send_offsets_to_transaction([TopicPartition(TOPIC, 1, offset)], consumer.consumer_group_metadata(), WITHIN_S)
        assert producer.flush(WITHIN_S) == 0
        consumer.close()

    def commit(self, producer: Producer, *texts: str) -> None:
        """Commit; where the broker has been another one meanwhile, librdkafka may want to be called again."""

        def look() -> bool:
            try:
                producer.commit_transaction(WITHIN_S)
            except KafkaException as error:
                if error.args[0].retriable():
                    return False
                raise
            return True

        wait_for(look, "the transaction is committed", 3 * WITHIN_S)
        self.committed += texts

    def identity(self, transactional_id: str) -> tuple[int, int]:
        """Producer id and epoch that the next producer with this transactional id gets."""
        wanted = messages.InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
        response = self.ask(wanted, 4, lambda each: int(each.error_code))
        return response.producer_id, response.producer_epoch

    def offset(self, *, stable: bool = True) -> int:
        """The group's committed offset."""
        rows = messages.OffsetFetchRequest
        topic = rows.OffsetFetchRequestTopics(name=TOPIC, partition_indexes=(1,))
        group = rows.OffsetFetchRequestGroup(group_id=GROUP, topics=[topic])

        def code_of(response: Any) -> int:
            (each,) = response.groups
            return each.error_code or (each.topics[0].partitions[0].error_code if stable else 0)

        response = self.ask(rows(groups=[group], require_stable=stable), 8, code_of)
        return int(response.groups[0].topics[0].partitions[0].committed_offset)

    def read(self) -> list[str]:
        """What a reader of committed records sees, up to the last stable offset."""
        consumer = Consumer(
            {"bootstrap.servers": self.bootstrap, "group.id": "reader", "isolation.level": "read_committed", "log_level": 0,
             "enable.partition.eof": True}
        )
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        texts: list[str] = []
        while (message := consumer.poll(WITHIN_S)) is not None and message.error() is None:
            texts.append((message.value() or b"").decode())
        consumer.close()
        return texts

    def hand_over(self, *, klamm: bool, in_order: bool) -> None:
        self.folder.end(in_order=in_order)
        self.folder.start(klamm=klamm)


@pytest.mark.parametrize("klamm", [True, False], ids=["klamm-kafka-klamm", "kafka-klamm-kafka"])
def test_offsets_and_open_transactions_go_on_at_a_broker_of_the_other_kind(
    members: Callable[..., Members], kafka_jars: Path, klamm: bool
) -> None:
    story = Story(members(), kafka_jars)
    story.folder.start(klamm=klamm)
    story.folder.members.create(TOPIC, [[1], [1]])
    producer = story.producer("copying")
    first, second = story.identity("counted"), story.identity("counted")
    assert second == (first[0], first[1] + 1)
    story.begin(producer, "a", "b", offset=2)
    story.commit(producer, "a", "b")
    assert story.offset() == 2

    for number, in_order in enumerate((True, False), 1):
        klamm = not klamm
        producer = story.producer(f"copying-{number}")
        story.begin(producer, f"open-{number}", offset=2 + number)
        story.hand_over(klamm=klamm, in_order=in_order)
        assert story.offset(stable=False) == 1 + number
        assert story.read() == story.committed
        story.commit(producer, f"open-{number}")
        assert story.offset() == 2 + number
        assert story.read() == story.committed
        assert story.identity("counted") == (first[0], first[1] + 1 + number)

    story.begin(story.producer("copying"), "lost", offset=99)
    story.hand_over(klamm=not klamm, in_order=False)
    other = story.producer("copying")  # it fences the one before, whose transaction is aborted
    assert story.offset() == 4
    story.begin(other, "after", offset=5)
    story.commit(other, "after")
    assert story.read() == story.committed
    assert story.offset() == 5
    assert story.folder.complaints == []
