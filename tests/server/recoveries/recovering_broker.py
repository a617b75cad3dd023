"""A broker that coordinates transactions, and whose leaders recover after unclean elections. The test is its controller and its clock."""

from __future__ import annotations

from klamm.protocol.nouns import TopicPartition
from klamm.protocol.records.batch import TRANSACTIONAL, each_header
from klamm.protocol.records.validation import Origin
from klamm.server.groups.group_coordinator import OFFSETS_TOPIC
from klamm.server.transactions.transaction_coordinator import TRANSACTION_TOPIC
from klamm.tests.broker.log.batches import batch, record
from klamm.tests.server.recoveries.recovering import Recoveries
from klamm.tests.server.transactions.transaction_broker import OWN, TransactionBroker

TRANSACTIONS = TopicPartition(TRANSACTION_TOPIC, 0)


class RecoveringBroker(TransactionBroker):
    """Its leaders recover."""

    def __init__(self, **given: object) -> None:
        super().__init__(**given)  # type: ignore[arg-type]
        self.recoveries = Recoveries(self, work=self.parts.recovery)
        self.epoch = 1

    async def produce(
        self, producer: int = 0, epoch: int = 0, sequence: int = 0, partition: TopicPartition = OWN, value: bytes = b""
    ) -> None:
        """A record of a transaction, in the log of a partition that this broker leads. Raises ApiError."""
        replica = self.recoveries.replica(partition)
        await self.replicas.open_log(replica)
        data = batch(producer=producer, epoch=epoch, sequence=sequence, attributes=TRANSACTIONAL, records=[record(0, value)])
        self.replicas.append(replica, data, 11, 1, Origin.CLIENT, self.clock.now_ms())

    async def elect(self, partition: TopicPartition = OWN) -> None:
        """Broker 1 is elected uncleanly."""
        self.epoch += 2
        self.lead(partition.partition, topic=partition.topic, epoch=self.epoch, recovery=1)
        await self.settle()

    def lose_marker(self, partition: TopicPartition = OWN) -> None:
        """The log loses its last batch, a marker, as that of a follower that had not fetched it."""
        log = self.recoveries.replica(partition).log
        assert log is not None
        assert log.truncate_to(log.log_end_offset - 1) is None

    def open(self, partition: TopicPartition = OWN) -> list[int]:
        """The producers with transactions that are open in the log."""
        log = self.recoveries.replica(partition).log
        return [] if log is None else [each.producer_id for each in log.open_transactions()]

    def data(self, index: int = 0, topic: str = OFFSETS_TOPIC) -> bytes:
        log = self.recoveries.replica(TopicPartition(topic, index)).log
        offset, data = 0, b""
        while log is not None and offset < log.log_end_offset:
            read = log.read(offset, 1 << 20, log.log_end_offset, True)
            assert isinstance(read, bytes)
            data += read
            offset = [header for _, header in each_header(data)][-1].next_offset
        return data

    @property
    def is_recovered(self) -> bool:
        return len(self.recoveries.proposals) == 1
