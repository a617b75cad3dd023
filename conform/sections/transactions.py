"""Section 9: transactions."""

from __future__ import annotations

from typing import Any, NamedTuple

from klamm.conform.case import Section, expect
from klamm.conform.connection import error_name, expect_error
from klamm.conform.lab import NOT_YET, Lab, batch
from klamm.conform.sections.fetch import LATEST, offset_at
from klamm.conform.sections.groups import committed
from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode
from klamm.protocol.records.batch import TRANSACTIONAL

SECTION = Section(9, "transactions", "Transactions")
NONE = ErrorCode.NONE
KIP = "KIP-98"
FENCED = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED)
COMMITTED = 1


class Transactional(NamedTuple):
    """A transactional producer."""

    name: str
    id: int
    epoch: int

    def batch(self, sequence: int, *values: str) -> bytes:
        """A batch in its transaction."""
        return batch(
            *values, producer_id=self.id, producer_epoch=self.epoch, base_sequence=sequence, attributes=TRANSACTIONAL
        )


async def init(lab: Lab, name: str, timeout_ms: int = 60_000, **more: Any) -> Any:
    """The response to InitProducerId; repeated while the coordinator loads, or ends an earlier transaction."""
    fields = {"producer_id": -1, "producer_epoch": -1} | more
    request = messages.InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=timeout_ms, **fields)
    connection, version = await lab.coordinator(name, 1), lab.version("InitProducerId", 5)
    return await lab.until(lambda: connection.ask(request, version), lambda it: it.error_code not in NOT_YET)


async def begun(lab: Lab) -> Transactional:
    """A new transactional producer."""
    name = lab.name("transactions")
    response = await init(lab, name)
    expect_error(response.error_code, NONE, what="InitProducerId")
    return Transactional(name, response.producer_id, response.producer_epoch)


async def add(lab: Lab, one: Transactional, *topics: str) -> list[int]:
    """The error codes of partition 0 of the topics in AddPartitionsToTxn, in their order."""
    row = messages.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
    request = messages.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=one.name, v3_and_below_producer_id=one.id, v3_and_below_producer_epoch=one.epoch,
        v3_and_below_topics=[row(name=topic, partitions=(0,)) for topic in topics],
    )
    connection, version = await lab.coordinator(one.name, 1), lab.version("AddPartitionsToTxn", 3)

    def codes(response: Any) -> dict[str, int]:
        return {each.name: each.results_by_partition[0].partition_error_code for each in response.results_by_topic_v3_and_below}

    response = await lab.until(
        lambda: connection.ask(request, version), lambda it: ErrorCode.CONCURRENT_TRANSACTIONS not in codes(it).values()
    )
    return [codes(response)[topic] for topic in topics]


async def end(lab: Lab, one: Transactional, commit: bool) -> int:
    """The error code of EndTxn."""
    request = messages.EndTxnRequest(transactional_id=one.name, producer_id=one.id, producer_epoch=one.epoch, committed=commit)
    connection, version = await lab.coordinator(one.name, 1), lab.version("EndTxn", 4)
    response = await lab.until(lambda: connection.ask(request, version), lambda it: it.error_code not in NOT_YET)
    code: int = response.error_code
    return code


async def write(lab: Lab, one: Transactional, topic: str, sequence: int, *values: str) -> Any:
    """Produce to partition 0 in a transaction that has the partition."""
    return await lab.produce(topic, one.batch(sequence, *values), transactional_id=one.name, at_most=11)


async def open_transaction(lab: Lab) -> tuple[Transactional, str]:
    """A producer with two records in an open transaction, and their topic."""
    one, topic = await begun(lab), await lab.topic()
    expect_error((await add(lab, one, topic))[0], NONE, what="AddPartitionsToTxn")
    expect_error((await write(lab, one, topic, 0, "a", "b")).error_code, NONE, what="Produce")
    return one, topic


async def fetched(lab: Lab, topic: str) -> Any:
    """What a read_committed fetch of partition 0 has."""
    return await lab.fetch(topic, isolation_level=COMMITTED)


async def ended(lab: Lab, commit: bool) -> tuple[Transactional, str]:
    """A transaction that has ended, markers included."""
    one, topic = await open_transaction(lab)
    expect_error(await end(lab, one, commit), NONE, what="EndTxn")
    await lab.until(lambda: fetched(lab, topic), lambda it: it.last_stable_offset == 3)
    return one, topic


@SECTION.must(1, "A new transactional id has epoch 0, and the next InitProducerId the same producer id with the next epoch.", KIP)
async def epochs(lab: Lab) -> None:
    one = await begun(lab)
    expect(one.id >= 0 and one.epoch == 0, f"producer id {one.id}, epoch {one.epoch}")
    again = await init(lab, one.name)
    expect((again.producer_id, again.producer_epoch) == (one.id, 1), f"producer id {again.producer_id}, epoch {again.producer_epoch}")


@SECTION.must(2, "A producer of an older epoch is fenced.", KIP)
async def fenced(lab: Lab) -> None:
    one, topic = await begun(lab), await lab.topic()
    await init(lab, one.name)
    expect_error((await add(lab, one, topic))[0], *FENCED)


@SECTION.must(3, "A transaction timeout above transaction.max.timeout.ms is INVALID_TRANSACTION_TIMEOUT.", KIP)
async def long_timeout(lab: Lab) -> None:
    response = await init(lab, lab.name("transactions"), 2**31 - 1)
    expect_error(response.error_code, ErrorCode.INVALID_TRANSACTION_TIMEOUT)


@SECTION.must(4, "A transaction timeout of 0 is INVALID_TRANSACTION_TIMEOUT.", KIP)
async def no_timeout(lab: Lab) -> None:
    response = await init(lab, lab.name("transactions"), 0)
    expect_error(response.error_code, ErrorCode.INVALID_TRANSACTION_TIMEOUT)


@SECTION.must(5, "An empty transactional id is INVALID_REQUEST.", KIP)
async def empty_id(lab: Lab) -> None:
    await begun(lab)
    request = messages.InitProducerIdRequest(transactional_id="", transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1)
    response = await lab.ask(request, 5)
    expect_error(response.error_code, ErrorCode.INVALID_REQUEST)


@SECTION.must(6, "Records of an open transaction are hidden from read_committed, and the last stable offset is before them.", KIP)
async def hidden(lab: Lab) -> None:
    _, topic = await open_transaction(lab)
    answer = await fetched(lab, topic)
    expect(answer.last_stable_offset == 0, f"last stable offset {answer.last_stable_offset}")
    expect(not answer.records, "read_committed has records")


@SECTION.must(7, "Records of an open transaction are visible to read_uncommitted.", KIP)
async def uncommitted(lab: Lab) -> None:
    _, topic = await open_transaction(lab)
    expect((await lab.fetch(topic)).records, "no records")


@SECTION.must(8, "A committed transaction is visible, and its marker has an offset.", KIP)
async def commits(lab: Lab) -> None:
    _, topic = await ended(lab, True)
    answer = await fetched(lab, topic)
    expect(answer.high_watermark == 3, f"high watermark {answer.high_watermark}")
    expect(answer.records and not answer.aborted_transactions, "no records, or an aborted transaction")


@SECTION.must(9, "An aborted transaction is in the list of a read_committed fetch, with its first offset.", KIP)
async def aborts(lab: Lab) -> None:
    one, topic = await ended(lab, False)
    found = [(each.producer_id, each.first_offset) for each in (await fetched(lab, topic)).aborted_transactions or []]
    expect(found == [(one.id, 0)], f"aborted transactions {found}")


@SECTION.must(10, "An aborted transaction is not in the list of a read_uncommitted fetch.", KIP)
async def no_list(lab: Lab) -> None:
    _, topic = await ended(lab, False)
    expect(not (await lab.fetch(topic)).aborted_transactions, "it is")


@SECTION.must(11, "The latest offset for read_committed is the last stable offset.", KIP)
async def stable_offset(lab: Lab) -> None:
    _, topic = await open_transaction(lab)
    part = messages.ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=LATEST)
    rows = [messages.ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[part])]
    request = messages.ListOffsetsRequest(replica_id=-1, isolation_level=COMMITTED, topics=rows)
    response = await (await lab.leader(topic)).ask(request, lab.version("ListOffsets", 9, 2))
    expect(response.topics[0].partitions[0].offset == 0, f"offset {response.topics[0].partitions[0].offset}")
    latest = await offset_at(lab, topic, LATEST)
    expect(latest.offset == 2, f"read_uncommitted: offset {latest.offset}")


@SECTION.must(12, "EndTxn without a transaction is INVALID_TXN_STATE.", KIP)
async def nothing_to_end(lab: Lab) -> None:
    expect_error(await end(lab, await begun(lab), True), ErrorCode.INVALID_TXN_STATE)


@SECTION.must(13, "EndTxn may be repeated with the same outcome, and with another one is INVALID_TXN_STATE.", KIP)
async def ends_twice(lab: Lab) -> None:
    one, _ = await ended(lab, True)
    expect_error(await end(lab, one, True), NONE)
    expect_error(await end(lab, one, False), ErrorCode.INVALID_TXN_STATE)


@SECTION.must(14, "AddPartitionsToTxn of an unknown topic is UNKNOWN_TOPIC_OR_PARTITION, and adds none of the others.", KIP)
async def unknown_topic(lab: Lab) -> None:
    one, topic = await begun(lab), await lab.topic()
    codes = await add(lab, one, topic, lab.name())
    expect(codes == [ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION], f"{[error_name(each) for each in codes]}")


@SECTION.must(15, "Another producer id is INVALID_PRODUCER_ID_MAPPING.", KIP)
async def other_id(lab: Lab) -> None:
    one, topic = await begun(lab), await lab.topic()
    expect_error((await add(lab, one._replace(id=one.id + 1000), topic))[0], ErrorCode.INVALID_PRODUCER_ID_MAPPING)


@SECTION.must(16, "InitProducerId aborts the open transaction of the producer before.", KIP)
async def aborted_by_init(lab: Lab) -> None:
    one, topic = await open_transaction(lab)
    expect_error((await init(lab, one.name)).error_code, NONE)
    answer = await lab.until(lambda: fetched(lab, topic), lambda it: it.last_stable_offset == 3)
    expect([each.first_offset for each in answer.aborted_transactions or []] == [0], "it was not aborted")


@SECTION.must(17, "A batch of a producer that was fenced is refused.", KIP)
async def fenced_batch(lab: Lab) -> None:
    one, topic = await open_transaction(lab)
    expect_error((await init(lab, one.name)).error_code, NONE)
    await lab.until(lambda: fetched(lab, topic), lambda it: it.last_stable_offset == 3)
    answer = await write(lab, one, topic, 2, "c")
    expect_error(answer.error_code, *FENCED, ErrorCode.INVALID_TXN_STATE)


@SECTION.must(18, "A transactional batch for a partition that is not in the transaction is refused.", "KIP-890")
async def not_added(lab: Lab) -> str:
    lab.version("AddPartitionsToTxn", at_least=4)  # by which leaders ask the coordinator
    one, topic = await begun(lab), await lab.topic()
    answer = await write(lab, one, topic, 0, "a")
    expect(answer.error_code != NONE, "it was accepted")
    return error_name(answer.error_code)


async def _offsets_in_transaction(lab: Lab) -> tuple[Transactional, str, str]:
    """A transaction with a committed offset 7 of a group."""
    one, topic, group = await begun(lab), await lab.topic(), lab.group()
    await lab.coordinator(group)
    request = messages.AddOffsetsToTxnRequest(transactional_id=one.name, producer_id=one.id, producer_epoch=one.epoch, group_id=group)
    connection = await lab.coordinator(one.name, 1)
    version = lab.version("AddOffsetsToTxn")
    await lab.until_error(lambda: connection.ask(request, version), lambda response: response)
    part = messages.TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(
        partition_index=0, committed_offset=7, committed_leader_epoch=-1, committed_metadata=""
    )
    rows = [messages.TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name=topic, partitions=[part])]
    offsets = messages.TxnOffsetCommitRequest(
        transactional_id=one.name, group_id=group, producer_id=one.id, producer_epoch=one.epoch, generation_id=-1, topics=rows
    )
    coordinator, version = await lab.coordinator(group), lab.version("TxnOffsetCommit", 4)
    await lab.until_error(lambda: coordinator.ask(offsets, version), lambda it: it.topics[0].partitions[0])
    return one, topic, group


@SECTION.must(19, "Offsets of a transaction are visible after the commit, and not before.", KIP)
async def offsets(lab: Lab) -> None:
    one, topic, group = await _offsets_in_transaction(lab)
    before = (await committed(lab, group, topic)).topics[0].partitions[0].committed_offset
    expect(before == -1, f"offset {before} before the commit")
    expect_error(await end(lab, one, True), NONE)
    await lab.until(lambda: committed(lab, group, topic), lambda it: it.topics[0].partitions[0].committed_offset == 7)


@SECTION.must(20, "OffsetFetch that requires stable offsets is UNSTABLE_OFFSET_COMMIT during a transaction.", "KIP-447")
async def unstable(lab: Lab) -> None:
    lab.version("OffsetFetch", 7, 7)
    one, topic, group = await _offsets_in_transaction(lab)
    part = (await committed(lab, group, topic, require_stable=True)).topics[0].partitions[0]
    expect_error(part.error_code, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    expect_error(await end(lab, one, False), NONE)


@SECTION.must(21, "Offsets of an aborted transaction are dropped.", KIP)
async def dropped_offsets(lab: Lab) -> None:
    one, topic, group = await _offsets_in_transaction(lab)
    expect_error(await end(lab, one, False), NONE)
    offset = (await committed(lab, group, topic)).topics[0].partitions[0].committed_offset
    expect(offset == -1, f"offset {offset}")


async def _described(lab: Lab, name: str) -> Any:
    request = messages.DescribeTransactionsRequest(transactional_ids=[name])
    response = await (await lab.coordinator(name, 1)).ask(request, lab.version("DescribeTransactions"))
    return response.transaction_states[0]


@SECTION.must(22, "DescribeTransactions shows the state and the partitions of an open transaction.", "KIP-664")
async def describes(lab: Lab) -> None:
    one, topic = await open_transaction(lab)
    found = await _described(lab, one.name)
    expect(found.transaction_state == "Ongoing" and found.producer_id == one.id, f"state {found.transaction_state}")
    expect([each.topic for each in found.topics] == [topic], "other topics")


@SECTION.must(23, "DescribeTransactions of an unknown id is TRANSACTIONAL_ID_NOT_FOUND.", "KIP-664")
async def describes_unknown(lab: Lab) -> None:
    await begun(lab)
    found = await _described(lab, lab.name("transactions"))
    expect_error(found.error_code, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)


@SECTION.must(24, "ListTransactions has the transaction, and by state only those in that state.", "KIP-664")
async def lists(lab: Lab) -> None:
    one, _ = await open_transaction(lab)
    connection, version = await lab.coordinator(one.name, 1), lab.version("ListTransactions")
    found = (await connection.ask(messages.ListTransactionsRequest(), version)).transaction_states
    expect(one.name in {each.transactional_id for each in found}, "it is not listed")
    request = messages.ListTransactionsRequest(state_filters=["Empty"])
    found = (await connection.ask(request, version)).transaction_states
    expect(one.name not in {each.transactional_id for each in found}, "an ongoing one is listed as empty")


@SECTION.must(25, "DescribeProducers shows the producer and where its transaction begins.", "KIP-664")
async def producers(lab: Lab) -> None:
    one, topic = await open_transaction(lab)
    rows = [messages.DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=(0,))]
    request = messages.DescribeProducersRequest(topics=rows)
    response = await (await lab.leader(topic)).ask(request, lab.version("DescribeProducers"))
    part = response.topics[0].partitions[0]
    found = [(each.producer_id, each.last_sequence, each.current_txn_start_offset) for each in part.active_producers]
    expect(found == [(one.id, 1, 0)], f"producers {found}")
