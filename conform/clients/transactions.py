"""Section 6: transactional producers."""

from __future__ import annotations

from functools import partial
from typing import Any

from klamm.conform.case import Level, expect
from klamm.conform.clients.client_lab import ClientLab, expect_numbers
from klamm.conform.clients.client_section import ClientSection
from klamm.conform.clients.judge import after, expect_between, expect_sequences, refused, with_error
from klamm.conform.sections.transactions import COMMITTED, fetched
from klamm.protocol.records.batch import each_header

SECTION = ClientSection(6, "transactions", "transactional producers")
MUST, SHOULD = Level.MUST, Level.SHOULD
COUNT = 10
KIP = "KIP-98"
RETRIABLE = "Kafka protocol guide, error codes: the error is retriable"
_ADDED_BY_LEADERS = 12


async def _run(lab: ClientLab, may_fail: bool = False, **variables: Any) -> None:
    await lab.create()
    await _again(lab, may_fail, **variables)


async def _again(lab: ClientLab, may_fail: bool = False, **variables: Any) -> None:
    config = {"transactional.id": f"{lab.group}-id", "transaction.timeout.ms": "20000"}
    await lab.client("transaction", config, may_fail, **{"RECORDS": COUNT, **variables})


async def _committed(lab: ClientLab) -> int:
    """How many records a read_committed consumer can read, when no transaction is open."""
    client, offset, count = await lab.lab(), 0, 0
    await client.until(lambda: fetched(client, lab.topic), lambda it: it.last_stable_offset == it.high_watermark)
    while (answer := await client.fetch(lab.topic, offset, isolation_level=COMMITTED)).records:
        aborted = {each.producer_id for each in answer.aborted_transactions or ()}
        for _, header in each_header(answer.records):
            offset = header.next_offset
            count += header.record_count if not header.is_control and header.producer_id not in aborted else 0
    return count


def _adds_partitions(lab: ClientLab) -> bool:
    """Whether the client has to add its partitions to transactions: from Produce 12 on leaders do so (KIP-890)."""
    return any(each.version < _ADDED_BY_LEADERS for each in lab.requests("Produce"))


async def _through(lab: ClientLab, **fault: Any) -> None:
    """A transaction that meets a fault is committed in the end, with each record once and in order."""
    lab.fault(**{"first": 2} | fault)
    await _run(lab)
    await lab.expect_log(COUNT)
    expect_sequences(lab.sent())
    expect(await _committed(lab) == COUNT, "not all records of the transaction are committed")


@SECTION.client(
    MUST, 1, "A partition is added to the transaction before records are sent to it, and the transaction is ended after them.", KIP
)
async def _(lab: ClientLab) -> None:
    await _run(lab)
    order = [each.api for each in lab.requests("InitProducerId", "AddPartitionsToTxn", "Produce", "EndTxn")]
    places = {name: order.index(name) for name in dict.fromkeys(order)}
    added = ["AddPartitionsToTxn"] if _adds_partitions(lab) else []
    expect(list(places) == ["InitProducerId", *added, "Produce", "EndTxn"], f"the order is {', '.join(places)}")
    expect(order[-1] == "EndTxn", "records were sent after EndTxn")
    expect(await _committed(lab) == COUNT, "not all records of the transaction are committed")


@SECTION.client(MUST, 2, "Batches in a transaction are marked as such, and their requests have the transactional id.", KIP)
async def _(lab: ClientLab) -> None:
    await _run(lab)
    for each in lab.sent():
        expect(each.header.is_transactional, "a batch is not marked as transactional")
        expect(each.request.request.transactional_id == f"{lab.group}-id", "Produce does not have the transactional id")


@SECTION.client(MUST, 3, "An aborted transaction is ended as such, and its records stay hidden.", KIP)
async def _(lab: ClientLab) -> None:
    await _run(lab, END="abort")
    expect([each.request.committed for each in lab.requests("EndTxn")] == [False], "EndTxn does not abort")
    expect(await _committed(lab) == 0, "records of the aborted transaction are committed")


@SECTION.client(MUST, 4, "Each transaction adds its partitions again, and sequences go on.", KIP)
async def _(lab: ClientLab) -> None:
    await _run(lab, TRANSACTIONS=3)
    added = len(lab.requests("AddPartitionsToTxn"))
    expect(added >= 3 or not _adds_partitions(lab), f"there are {added} AddPartitionsToTxn")
    expect_sequences(lab.sent())
    await lab.expect_log(3 * COUNT)


THROUGH: tuple[tuple[int, str, dict[str, Any]], ...] = (
    (5, "CONCURRENT_TRANSACTIONS of AddPartitionsToTxn", {"api": "AddPartitionsToTxn", "error": "CONCURRENT_TRANSACTIONS"}),
    (6, "CONCURRENT_TRANSACTIONS of InitProducerId", {"api": "InitProducerId", "error": "CONCURRENT_TRANSACTIONS"}),
    (7, "NOT_COORDINATOR of AddPartitionsToTxn", {"api": "AddPartitionsToTxn", "error": "NOT_COORDINATOR", "first": 1}),
    (8, "COORDINATOR_LOAD_IN_PROGRESS of AddPartitionsToTxn", {"api": "AddPartitionsToTxn", "error": "COORDINATOR_LOAD_IN_PROGRESS"}),
    (9, "NOT_COORDINATOR of EndTxn", {"api": "EndTxn", "error": "NOT_COORDINATOR", "first": 1}),
    (10, "COORDINATOR_NOT_AVAILABLE of EndTxn", {"api": "EndTxn", "error": "COORDINATOR_NOT_AVAILABLE", "first": 1}),
    (
        11,
        "a response of EndTxn that was lost with its connection",
        {"api": "EndTxn", "close": "before", "direction": "response", "first": 1},
    ),
    (12, "COORDINATOR_NOT_AVAILABLE of FindCoordinator", {"api": "FindCoordinator", "error": "COORDINATOR_NOT_AVAILABLE"}),
    (13, "NOT_COORDINATOR of InitProducerId", {"api": "InitProducerId", "error": "NOT_COORDINATOR", "first": 1}),
    (14, "NOT_LEADER_OR_FOLLOWER of Produce", {"api": "Produce", "error": "NOT_LEADER_OR_FOLLOWER"}),
    (
        15,
        "a response of AddPartitionsToTxn that was lost with its connection",
        {"api": "AddPartitionsToTxn", "close": "before", "direction": "response", "first": 1},
    ),
    (
        16,
        "a response of Produce that was lost with its connection",
        {"api": "Produce", "close": "before", "direction": "response", "first": 1},
    ),
    (
        17,
        "UNKNOWN_TOPIC_OR_PARTITION of AddPartitionsToTxn",
        {"api": "AddPartitionsToTxn", "error": "UNKNOWN_TOPIC_OR_PARTITION", "first": 1},
    ),
)
for index, what, effect in THROUGH:
    SECTION.client(MUST, index, f"A transaction is committed, each record once and in order, through {what}.", RETRIABLE)(
        partial(_through, **effect)
    )


async def _fenced(lab: ClientLab, **fault: Any) -> None:
    """A fenced producer fails, and neither sends records nor ends a transaction with this epoch any more."""
    lab.fault(**fault)
    await _run(lab, may_fail=True)
    failed = refused(lab.requests(fault["api"]), fault["error"])
    begun = [each.response for each in lab.requests("InitProducerId") if each.number < failed.number and each.response is not None]
    fenced = {(each.producer_id, each.producer_epoch) for each in begun}
    expect(not any(each.request.committed for each in after(lab.requests("EndTxn"), failed)), "the fenced producer commits")
    late = [each for each in lab.sent() if each.request.number > failed.number and each.producer in fenced]
    expect(not late, "the fenced producer sends records")


for index, (api, error) in enumerate(
    (("AddPartitionsToTxn", "INVALID_PRODUCER_EPOCH"), ("EndTxn", "PRODUCER_FENCED"), ("AddPartitionsToTxn", "PRODUCER_FENCED")), 18
):
    SECTION.client(MUST, index, f"A producer that gets {error} of {api} neither commits nor sends records.", "KIP-98, KIP-360, KIP-588")(
        partial(_fenced, api=api, error=error)
    )


@SECTION.client(MUST, 21, "A producer whose transaction timed out does not commit it.", "KIP-588")
async def _(lab: ClientLab) -> None:
    await lab.create()
    config = {"transactional.id": f"{lab.group}-id", "transaction.timeout.ms": "20000"}
    program = await lab.begin_client("transaction", config, RECORDS=COUNT)
    end = lab.fault(api="EndTxn", drop=True)
    await lab.met(end, program)
    await lab.cluster.expire_transaction(f"{lab.group}-id")
    end.remove()
    await lab.finish(program, may_fail=True)
    expect(await _committed(lab) == 0, "records of the transaction that timed out are committed")


@SECTION.client(MUST, 22, "A second producer with the same transactional id takes the next epoch, and its own records are committed.", KIP)
async def _(lab: ClientLab) -> None:
    await _run(lab)
    await _again(lab)
    epochs = [
        each.response.producer_epoch
        for each in lab.requests("InitProducerId")
        if each.response is not None and not each.response.error_code
    ]
    used = [each.header.producer_epoch for each in lab.sent()]
    expect(sorted(set(used)) == sorted(set(epochs)), f"batches have epochs {sorted(set(used))}, InitProducerId gave {epochs}")
    expect(await _committed(lab) == 2 * COUNT, "not all records are committed")


@SECTION.client(MUST, 23, "A transaction goes on with the new coordinator when the broker of the old one dies.", KIP)
async def _(lab: ClientLab) -> None:
    await lab.create()
    config = {"transactional.id": f"{lab.group}-id", "transaction.timeout.ms": "20000"}
    program = await lab.begin_client("transaction", config, RECORDS=60, PAUSE_MS=25)
    await lab.consumed(program, 5)
    await lab.cluster.kill_broker(lab.requests("AddPartitionsToTxn")[-1].broker)
    await lab.finish(program)
    expect_numbers([each.value for each in await lab.log()], 60, "the log")
    expect(await _committed(lab) == 60, "not all records of the transaction are committed")


@SECTION.client(
    SHOULD, 24, "After NOT_COORDINATOR of EndTxn a producer looks for its coordinator before it sends EndTxn again.", "Kafka protocol guide"
)
async def _(lab: ClientLab) -> None:
    lab.fault(api="EndTxn", error="NOT_COORDINATOR", first=1)
    await _run(lab)
    expect_between(lab.requests(), "EndTxn", "FindCoordinator", "EndTxn", "NOT_COORDINATOR")
    expect(with_error(lab.requests("EndTxn"), "NOT_COORDINATOR"), "EndTxn was not refused")
