"""Producers and consumers of partition 0 of topic t, whose leader is broker 1, for the fixtures of rules `L`."""

from __future__ import annotations

from typing import Any

from klamm.journal.columns import Flag
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.records.record import Record, encode_batch
from klamm.tests.pipeline.rule_journals.transaction_journals import TOPIC_ID, TransactionJournal
from klamm.tests.pipeline.rules.controllers import Channel, State
from klamm.tests.pipeline.rules.fixtures import Run


class LogJournal:
    """The journal of broker 1. Methods return the seq of the response, if not otherwise said."""

    def __init__(self, run: Run, leader: int = 1) -> None:
        self._controller = TransactionJournal(run)
        self.journal = self._controller.journal
        self.told(leader)

    def told(self, leader: int = 1, epoch: int = 0) -> None:
        """UpdateMetadata: the partition has this leader; -2 if the topic is being deleted."""
        self._controller.told(leader, epoch=epoch)

    def told_in_part(self, epoch: int) -> None:
        """LeaderAndIsr of another leader epoch; the journal kept only its beginning."""
        channel = Channel(self.journal, 90, controller=1)
        asked = channel.lead(State(leader_epoch=epoch, topic_id=TOPIC_ID), error=None)
        self.cut(60)
        self.journal.response(90, asked, messages.LeaderAndIsrResponse())

    def produce(self, offset: int, *, conn: int = 1, error: int = 0, **asked: Any) -> int:
        """A batch of one record, which gets this offset."""
        return self.answer(self.ask(conn=conn, **asked), offset, conn=conn, error=error)

    def ask(self, *, conn: int = 1, producer: int = -1, epoch: int = 0, sequence: int = -1, acks: int = 1, magic: int = 2) -> int:
        """The request; its seq."""
        batch = encode_batch([Record(0, 1, None, b"a")], producer_id=producer, producer_epoch=epoch, base_sequence=sequence)
        if magic < 2:
            batch = batch[:16] + bytes((magic,)) + batch[17:]
        request = messages.ProduceRequest
        data = [request.TopicProduceData("t", partition_data=[request.PartitionProduceData(0, batch)])]
        return int(self.journal.request(conn, ApiKey.PRODUCE, 8, request(None, acks, 1_000, data)))

    def answer(self, asked: int, offset: int, *, conn: int = 1, error: int = 0) -> int:
        response = messages.ProduceResponse
        row: Any = response.PartitionProduceResponse(index=0, error_code=error, base_offset=-1 if error else offset)
        return int(self.journal.response(conn, asked, response(responses=[response.TopicProduceResponse("t", partition_responses=[row])])))

    def cut(self, keep: int) -> None:
        """The journal keeps so many bytes of the last frame."""
        self.journal.cut(keep, flags=int(Flag.CUT))

    def fetch(self, high_watermark: int, *, conn: int = 2, version: int = 12) -> int:
        """Fetch with a record, whose response has this high watermark."""
        return self.answer_fetch(self.ask_fetch(conn=conn, version=version), high_watermark, conn=conn)

    def ask_fetch(self, *, conn: int = 2, version: int = 12) -> int:
        """The request; its seq."""
        request = messages.FetchRequest
        row = request.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        topic = request.FetchTopic(topic="t", topic_id=TOPIC_ID, partitions=[row])
        return int(self.journal.request(conn, ApiKey.FETCH, version, request(max_wait_ms=0, min_bytes=1, topics=[topic])))

    def answer_fetch(self, asked: int, high_watermark: int, *, conn: int = 2) -> int:
        response = messages.FetchResponse
        row = response.PartitionData(
            partition_index=0, high_watermark=high_watermark, last_stable_offset=high_watermark, log_start_offset=0,
            records=encode_batch([Record(0, 1, None, b"a")]),
        )
        topic = response.FetchableTopicResponse(topic="t", topic_id=TOPIC_ID, partitions=[row])
        return int(self.journal.response(conn, asked, response(responses=[topic])))

    def list_end(self, offset: int, *, timestamp: int = -1, isolation: int = 0, replica: int = -1, conn: int = 3) -> int:
        """ListOffsets that is answered with this offset."""
        request, response = messages.ListOffsetsRequest, messages.ListOffsetsResponse
        row = request.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        asked = self.journal.request(conn, ApiKey.LIST_OFFSETS, 5, request(replica, isolation, [request.ListOffsetsTopic("t", [row])]))
        told = response.ListOffsetsPartitionResponse(partition_index=0, offset=offset)
        return int(self.journal.response(conn, asked, response(topics=[response.ListOffsetsTopicResponse("t", [told])])))

    def move_logs(self) -> None:
        """AlterReplicaLogDirs for no partition."""
        asked = self.journal.request(4, ApiKey.ALTER_REPLICA_LOG_DIRS, 2, messages.AlterReplicaLogDirsRequest())
        self.journal.response(4, asked, messages.AlterReplicaLogDirsResponse())
