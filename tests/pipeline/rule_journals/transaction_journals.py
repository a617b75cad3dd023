"""Requests of a transactional producer `tx`, markers, and reads of consumers with `read_committed`, for the fixtures of rules `T`."""

from __future__ import annotations

from typing import Any

from klamm.journal.columns import Direction
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.records.record import ControlType, Record, control_batch, encode_batch
from klamm.tests.pipeline.rules.fixtures import Run
from klamm.tests.pipeline.rules.fixtures_wire import broker

ID = "tx"
P = 7
"""The producer id."""
TRANSACTIONS = "__transaction_state"
TOPIC_ID = bytes(15) + b"\2"
TRANSACTIONAL = 0x10


class TransactionJournal:
    """The journal of a broker that coordinates `tx`, or leads partitions of topic t, or both. Methods return the seq of the response, if
    not otherwise said."""

    def __init__(self, run: Run, node: int = 1) -> None:
        self.node = node
        self.journal = broker(run, node)

    # --- the producer

    def init(self, epoch: int, *, producer: int = P, asks: tuple[int, int] = (-1, -1), error: int = 0, transactional_id: str = ID) -> int:
        """InitProducerId; `asks` are the producer id and epoch of the request."""
        asked = self.ask_init(asks=asks, transactional_id=transactional_id)
        return self.answer_init(asked, epoch, producer=producer, error=error)

    def ask_init(self, *, asks: tuple[int, int] = (-1, -1), transactional_id: str = ID, conn: int = 1) -> int:
        request = messages.InitProducerIdRequest(transactional_id, 60_000, *asks)
        return int(self.journal.request(conn, ApiKey.INIT_PRODUCER_ID, 4, request))

    def answer_init(self, asked: int, epoch: int, *, producer: int = P, error: int = 0, conn: int = 1) -> int:
        given = (-1, -1) if error else (producer, epoch)
        response = messages.InitProducerIdResponse(error_code=error, producer_id=given[0], producer_epoch=given[1])
        return int(self.journal.response(conn, asked, response))

    def add(self, epoch: int, *partitions: int, error: int = 0, producer: int = P) -> int:
        """AddPartitionsToTxn of partitions of t."""
        request, response = messages.AddPartitionsToTxnRequest, messages.AddPartitionsToTxnResponse
        topics = [request.AddPartitionsToTxnTopic("t", list(partitions))]
        asked = self.journal.request(
            1, ApiKey.ADD_PARTITIONS_TO_TXN, 3,
            request(
                v3_and_below_transactional_id=ID, v3_and_below_producer_id=producer, v3_and_below_producer_epoch=epoch,
                v3_and_below_topics=topics,
            ),
        )
        rows = [response.AddPartitionsToTxnPartitionResult(each, error) for each in partitions]
        return int(
            self.journal.response(1, asked, response(results_by_topic_v3_and_below=[response.AddPartitionsToTxnTopicResult("t", rows)]))
        )

    def add_as_broker(self, epoch: int, *partitions: int, error: int = 0, verify_only: bool = False) -> int:
        """AddPartitionsToTxn in the form of brokers, beside another transactional id that adds nothing."""
        request, response = messages.AddPartitionsToTxnRequest, messages.AddPartitionsToTxnResponse
        rows = [
            request.AddPartitionsToTxnTransaction(
                transactional_id=name, producer_id=producer, producer_epoch=epoch, verify_only=is_verified,
                topics=[request.AddPartitionsToTxnTopic("t", list(partitions))],
            )
            for name, producer, is_verified in (("other", 8, True), (ID, P, verify_only))
        ]
        asked = self.journal.request(1, ApiKey.ADD_PARTITIONS_TO_TXN, 5, request(transactions=rows))
        results = []
        for name, code in (("other", 120), (ID, error)):
            codes = [response.AddPartitionsToTxnPartitionResult(each, code) for each in partitions]
            results.append(response.AddPartitionsToTxnResult(name, [response.AddPartitionsToTxnTopicResult("t", codes)]))
        return int(self.journal.response(1, asked, response(results_by_transaction=results)))

    def add_offsets(self, epoch: int, error: int = 0) -> int:
        """AddOffsetsToTxn of group g."""
        asked = self.journal.request(1, ApiKey.ADD_OFFSETS_TO_TXN, 3, messages.AddOffsetsToTxnRequest(ID, P, epoch, "g"))
        return int(self.journal.response(1, asked, messages.AddOffsetsToTxnResponse(error_code=error)))

    def end(self, epoch: int, is_commit: bool = True, error: int | None = 0, *, producer: int = P) -> int:
        """EndTxn; without a response if `error` is None: then the seq of the request."""
        asked = self.ask_end(epoch, is_commit, producer=producer)
        return asked if error is None else self.answer_end(asked, error)

    def ask_end(self, epoch: int, is_commit: bool = True, *, producer: int = P) -> int:
        return int(self.journal.request(1, ApiKey.END_TXN, 3, messages.EndTxnRequest(ID, producer, epoch, is_commit)))

    def answer_end(self, asked: int, error: int = 0) -> int:
        return int(self.journal.response(1, asked, messages.EndTxnResponse(error_code=error)))

    # --- markers

    def marker(
        self, epoch: int, *partitions: int, is_commit: bool = True, coordinator: int = 1, error: int | None = 0, topic: str = "t",
        client_id: str | None = None, producer: int = P, is_sent: bool = False,
    ) -> int:
        """WriteTxnMarkers from the coordinator on that broker, and its response; the seq of the request. This broker gets it, or, with
        `is_sent`, sends it to broker 2."""
        request, response = messages.WriteTxnMarkersRequest, messages.WriteTxnMarkersResponse
        row = request.WritableTxnMarker(
            producer_id=producer, producer_epoch=epoch, transaction_result=is_commit, coordinator_epoch=0,
            topics=[request.WritableTxnMarkerTopic(name=topic, partition_indexes=list(partitions))],
        )
        sender = f"broker-{coordinator}-txn-marker-sender" if client_id is None else client_id
        way: dict[str, Any] = {"dir": Direction.REQUEST_OUT, "peer_id": 2} if is_sent else {}
        asked = int(self.journal.request(50 + coordinator, ApiKey.WRITE_TXN_MARKERS, 1, request(markers=[row]), client_id=sender, **way))
        if error is not None:
            rows = [response.WritableTxnMarkerPartitionResult(each, error) for each in partitions]
            topics = [response.WritableTxnMarkerTopicResult(topic, rows)]
            result = response.WritableTxnMarkerResult(producer, topics)
            self.journal.response(50 + coordinator, asked, response(markers=[result]))
        return asked

    # --- records

    def produce(self, epoch: int, offset: int, *, partition: int = 0, producer: int = P) -> int:
        """Two records of the transaction, which get this offset and the next one."""
        batch = encode_batch(
            [Record(0, 1, None, b"a"), Record(1, 1, None, b"b")], attributes=TRANSACTIONAL, producer_id=producer, producer_epoch=epoch,
        )
        request, response = messages.ProduceRequest, messages.ProduceResponse
        data = [request.TopicProduceData("t", partition_data=[request.PartitionProduceData(partition, batch)])]
        asked = self.journal.request(2, ApiKey.PRODUCE, 8, request(ID, -1, 1_000, data))
        row: Any = response.PartitionProduceResponse(index=partition, error_code=0, base_offset=offset)
        return int(self.journal.response(2, asked, response(responses=[response.TopicProduceResponse("t", partition_responses=[row])])))

    def read(
        self, offset: int, stable: int, aborted: tuple[tuple[int, int], ...] = (), *, partition: int = 0, isolation: int = 1,
        version: int = 11, records: bytes | None = None,
    ) -> int:
        """Fetch whose response begins with a batch at this offset; `stable` is the last stable offset."""
        asked = self.ask_read(isolation=isolation, version=version, partition=partition)
        return self.answer_read(asked, offset, stable, aborted, partition=partition, version=version, records=records)

    def ask_read(self, *, isolation: int = 1, version: int = 11, partition: int = 0) -> int:
        request = messages.FetchRequest
        row = request.FetchPartition(partition=partition, fetch_offset=0, partition_max_bytes=1 << 20)
        topic = request.FetchTopic(topic="t", topic_id=TOPIC_ID, partitions=[row])
        message = request(replica_id=-1, max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, isolation_level=isolation, topics=[topic])
        return int(self.journal.request(3, ApiKey.FETCH, version, message))

    def answer_read(
        self, asked: int, offset: int, stable: int, aborted: tuple[tuple[int, int], ...] = (), *, partition: int = 0, version: int = 11,
        records: bytes | None = None,
    ) -> int:
        response = messages.FetchResponse
        data = encode_batch([Record(offset, 1, None, b"a")], producer_id=P, producer_epoch=0, attributes=TRANSACTIONAL)
        row = response.PartitionData(
            partition_index=partition, error_code=0, high_watermark=100, last_stable_offset=stable, log_start_offset=0,
            aborted_transactions=[response.AbortedTransaction(*each) for each in aborted],
            records=data if records is None else records,
        )
        topic = response.FetchableTopicResponse(topic="t", topic_id=TOPIC_ID, partitions=[row])
        return int(self.journal.response(3, asked, response(responses=[topic])))

    # --- the controller

    def told_to_coordinate(self, leader_epoch: int, *, leader: int = 1, is_new: bool = False) -> int:
        """LeaderAndIsr for a partition of the transaction topic; the seq of the request."""
        kind = messages.LeaderAndIsrRequest
        state = kind.LeaderAndIsrPartitionState(
            partition_index=0, controller_epoch=1, leader=leader, leader_epoch=leader_epoch, isr=[1, 2], partition_epoch=leader_epoch,
            replicas=[1, 2], is_new=is_new,
        )
        topics = [kind.LeaderAndIsrTopicState(topic_name=TRANSACTIONS, topic_id=bytes(15) + b"\1", partition_states=[state])]
        live = [kind.LeaderAndIsrLiveLeader(leader, "h", 9092)]
        request = kind(controller_id=1, controller_epoch=1, broker_epoch=1, topic_states=topics, live_leaders=live)
        asked = int(self.journal.request(90, ApiKey.LEADER_AND_ISR, 7, request))
        row = messages.LeaderAndIsrResponse
        errors = [row.LeaderAndIsrTopicError(topic_id=bytes(15) + b"\1", partition_errors=[row.LeaderAndIsrPartitionError("", 0, 0)])]
        self.journal.response(90, asked, row(topics=errors))
        return asked

    def told(self, leader: int, partition: int = 0, *, topic: str = "t", epoch: int = 0) -> int:
        """UpdateMetadata: a partition has this leader; -2 if the topic is being deleted."""
        kind = messages.UpdateMetadataRequest
        state = kind.UpdateMetadataPartitionState(
            partition_index=partition, controller_epoch=1, leader=leader, leader_epoch=epoch, isr=[1, 2], zk_version=epoch,
            replicas=[1, 2], offline_replicas=[],
        )
        topic_id = TOPIC_ID if topic == "t" else bytes(15) + b"\1"
        topics = [kind.UpdateMetadataTopicState(topic_name=topic, topic_id=topic_id, partition_states=[state])]
        request = kind(controller_id=1, controller_epoch=1, broker_epoch=1, topic_states=topics, live_brokers=[])
        asked = int(self.journal.request(90, ApiKey.UPDATE_METADATA, 8, request))
        return int(self.journal.response(90, asked, messages.UpdateMetadataResponse(error_code=0)))


def batches(*offsets: int) -> bytes:
    """A batch with a record of the transaction at each of these offsets."""
    return b"".join(
        encode_batch([Record(offset, 1, None, b"a")], producer_id=P, producer_epoch=0, attributes=TRANSACTIONAL) for offset in offsets
    )


def marker_batch(offset: int, *, is_commit: bool = True, producer: int = P) -> bytes:
    """A control batch at this offset."""
    return control_batch(ControlType.COMMIT if is_commit else ControlType.ABORT, offset, 0, producer, 0, 0, 1)
