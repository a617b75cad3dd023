"""Tiny journals of the rules `P`: the sequence numbers of a producer at partition t-0."""

from __future__ import annotations

from struct import pack
from typing import Any

from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.records.record import Record, encode_batch
from klamm.tests.pipeline.rules.fixtures import Run, bad, good, silent
from klamm.tests.pipeline.rules.frames.fixtures_bodies import metadata, write

OUT_OF_ORDER, TIMED_OUT, TOO_LARGE, FORGOTTEN = 45, 7, 10, 59

FIRST_BATCH, MOST = encode_batch([Record(0, 1, None, b"a")]), pack(">i", (1 << 31) - 1)


class SequencedProducer:
    """An idempotent producer at a broker."""

    def __init__(self, run: Run, node: int = 1, *, is_given: bool = True) -> None:
        self.journal = run.journal(node)
        if is_given:
            self.init(0)

    def init(self, epoch: int) -> None:
        """InitProducerId gives this epoch."""
        asked = self.journal.request(9, ApiKey.INIT_PRODUCER_ID, 4, messages.InitProducerIdRequest(None, 1_000))
        self.journal.response(9, asked, messages.InitProducerIdResponse(producer_id=7, producer_epoch=epoch))

    def ask(self, sequence: int, *, epoch: int = 0, value: bytes = b"a", time: int = 1, acks: int = -1) -> int:
        """Send a batch of one record; the seq of the request."""
        return self.send(
            encode_batch([Record(0, time, None, value)], producer_id=7, producer_epoch=epoch, base_sequence=sequence), acks=acks
        )

    def send(self, batch: bytes, acks: int = -1) -> int:
        """Send these bytes as a batch; the seq of the request."""
        request = messages.ProduceRequest
        data = [request.TopicProduceData("t", partition_data=[request.PartitionProduceData(0, batch)])]
        return int(self.journal.request(1, ApiKey.PRODUCE, 8, request(None, acks, 1_000, data)))

    def answer(self, asked: int, offset: int = -1, error: int = 0) -> int:
        response = messages.ProduceResponse
        row: Any = response.PartitionProduceResponse(index=0, error_code=error, base_offset=offset)
        return int(self.journal.response(1, asked, response(responses=[response.TopicProduceResponse("t", partition_responses=[row])])))

    def produce(self, sequence: int, offset: int = -1, error: int = 0, **batch: Any) -> tuple[int, int]:
        """The seqs of request and response."""
        asked = self.ask(sequence, **batch)
        return asked, self.answer(asked, offset, error)


@good("P-01")
@good("P-02")
def sequence_numbers_rise(run: Run) -> None:
    producer = SequencedProducer(run)
    producer.produce(0, 4)
    first, second = producer.ask(1), producer.ask(2)
    producer.answer(first, 5)
    producer.answer(second, 6)
    producer.init(1)
    producer.produce(0, 7, epoch=1)


@bad("P-01")
def a_producer_begins_with_another_number(run: Run) -> int:
    return SequencedProducer(run).produce(1, 4)[0]


@silent("P-01")
def a_producer_that_was_there_before_the_journal(run: Run) -> None:
    SequencedProducer(run, is_given=False).produce(4, 4)


@silent("P-01")
def a_producer_that_moves_with_the_leader(run: Run) -> None:
    SequencedProducer(run).produce(0, 4)
    SequencedProducer(run, 2, is_given=False).produce(1, 5)


@silent("P-01")
@silent("P-02")
@silent("P-06")
def a_partition_was_with_a_broker_that_has_no_journal(run: Run) -> None:
    producer = SequencedProducer(run)
    write(run, metadata(1))
    producer.produce(0, 4)
    write(run, metadata(2))
    producer.produce(2, 6)


@good("P-02")
def a_header_has_the_highest_numbers(run: Run) -> None:
    producer = SequencedProducer(run, is_given=False)
    asked = producer.send(FIRST_BATCH[:23] + MOST + FIRST_BATCH[27:43] + pack(">qh", 7, 0) + MOST + FIRST_BATCH[57:])
    producer.answer(asked, error=TOO_LARGE)
    producer.produce(4, 4)


@bad("P-02", also=["P-06"])
def a_number_is_left_out(run: Run) -> int:
    producer = SequencedProducer(run)
    producer.produce(0, 4)
    return producer.produce(2, 5)[0]


@good("P-03")
def a_number_that_was_refused_gets_other_records(run: Run) -> None:
    producer = SequencedProducer(run)
    producer.produce(0, error=TOO_LARGE)
    producer.produce(0, 4, value=b"b")
    producer.produce(0, 4, value=b"b")


@bad("P-03")
def a_number_that_was_written_gets_other_records(run: Run) -> int:
    producer = SequencedProducer(run)
    producer.produce(0, 4)
    return producer.produce(0, 4, value=b"b")[0]


@good("P-03")
def a_number_begins_again_after_an_error(run: Run) -> None:
    """As clients before KIP-360 do when the broker has forgotten the producer."""
    producer = SequencedProducer(run)
    producer.produce(0, 4)
    producer.produce(1, error=FORGOTTEN)
    producer.produce(0, 5, value=b"b")


@good("P-04")
def a_batch_whose_repetition_was_refused_is_sent_in_another_epoch(run: Run) -> None:
    producer = SequencedProducer(run)
    producer.produce(0, error=TIMED_OUT)
    producer.produce(0, error=OUT_OF_ORDER)
    producer.init(1)
    producer.produce(0, 4, epoch=1)


@good("P-04")
def an_epoch_begins_with_other_records(run: Run) -> None:
    producer = SequencedProducer(run)
    producer.produce(0, error=TIMED_OUT)
    producer.init(1)
    producer.produce(0, 4, epoch=1, time=2)


@bad("P-04")
def records_of_an_open_batch_are_sent_in_another_epoch(run: Run) -> int:
    producer = SequencedProducer(run)
    producer.produce(0, error=TIMED_OUT)
    producer.init(1)
    return producer.produce(0, 4, epoch=1)[0]


@good("P-05")
def a_repetition_gets_the_offset_of_the_first(run: Run) -> None:
    producer = SequencedProducer(run)
    producer.produce(0, 4)
    producer.produce(1, 5)
    producer.produce(0, 4)


@bad("P-05")
def a_repetition_is_written_twice(run: Run) -> int:
    producer = SequencedProducer(run)
    producer.produce(0, 4)
    return producer.produce(0, 5)[1]


@bad("P-05")
def a_repetition_is_out_of_order(run: Run) -> int:
    producer = SequencedProducer(run)
    producer.produce(0, 4)
    return producer.produce(0, error=OUT_OF_ORDER)[1]


@silent("P-05")
def a_number_is_written_again_after_an_error(run: Run) -> None:
    """As clients before KIP-360 do."""
    producer = SequencedProducer(run)
    producer.produce(0, 4)
    producer.produce(1, error=FORGOTTEN)
    producer.produce(0, 5)


@good("P-06", also=["P-02"])
def a_batch_behind_a_gap_is_refused(run: Run) -> None:
    producer = SequencedProducer(run)
    producer.produce(0, 4)
    producer.produce(2, error=OUT_OF_ORDER)


@bad("P-06", also=["P-02"])
def a_batch_behind_a_gap_is_taken(run: Run) -> int:
    producer = SequencedProducer(run)
    producer.produce(0, 4)
    return producer.produce(2, 5)[1]
