"""Words about transactions. Each request is sent again while the coordinator loads, moves or has something under way, but for `once`.

    tx-init orders                            the transactional id comes first
    tx-add orders pid=0 epoch=0 t-0 t-1       then what the producer says of itself
    tx-end orders pid=0 epoch=0 commit
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode
from klamm.tests.stories.both.answers import code, grouped
from klamm.tests.stories.both.commands import Look, action, view
from klamm.tests.stories.both.data_line import NO_ANSWER_S, Line, asked, by_topic, shown
from klamm.tests.stories.both.stage import Stage

ENOUGH_S = 10.0
PAUSE_S = 0.02
NOT_NOW = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.UNSTABLE_OFFSET_COMMIT,
}
TRANSACTION, GROUP = 1, 0


async def _send(
    stage: Stage, line: Line, message: Callable[[int], Any], codes: Callable[[Any], list[int]], text: Callable[[Any], str]
) -> str:
    """The outcome in each version of a line: the text of a response without codes of `NOT_NOW`, or of the last one."""
    outcomes = []
    for version in line.versions:
        end = time.monotonic() + (0 if "once" in line.rest else ENOUGH_S)
        answered = await asked(stage, message(version), version, line.to, NO_ANSWER_S)
        while not isinstance(answered, str) and NOT_NOW & set(codes(answered)) and time.monotonic() < end:
            await asyncio.sleep(PAUSE_S)
            answered = await asked(stage, message(version), version, line.to, NO_ANSWER_S)
        outcomes.append((version, answered if isinstance(answered, str) else text(answered)))
    return grouped(outcomes)


def _line(words: list[str], api: str) -> tuple[Line, str]:
    """The line after its first word, which is a transactional id; `null` and `empty` are what they say."""
    named = {"empty": ""}.get(words[0], words[0])
    return Line(words[1:], api), named


def _partitions(line: Line, *others: str) -> list[tuple[str, int, str, dict[str, str]]]:
    line.rest = [word for word in line.rest if word not in ("once", *others)]
    return line.partitions()


def _code(answered: Any) -> list[int]:
    return [answered.error_code]


def _producer(line: Line) -> dict[str, Any]:
    return {"producer_id": line.number("pid", -1), "producer_epoch": line.number("epoch", -1)}


@action("tx-coordinator")
async def coordinator(stage: Stage, words: list[str]) -> str:
    """tx-coordinator ID ... [groups]: FindCoordinator until there is one for each; `groups`: these are ids of groups."""
    line = Line([word for word in words if word != "groups"], "FindCoordinator")
    keys = line.rest
    kind = GROUP if "groups" in words else TRANSACTION
    return await _send(
        stage, line, lambda _: messages.FindCoordinatorRequest(key_type=kind, coordinator_keys=keys),
        lambda answered: [each.error_code for each in answered.coordinators],
        lambda answered: "\n".join(f"{each.key} {code(each.error_code)} {each.node_id}" for each in answered.coordinators),
    )


@action("tx-init")
async def tx_init(stage: Stage, words: list[str]) -> str:
    """tx-init ID [pid=N] [epoch=N] [timeout=ms] [once] [vN|v0-5] [to N]: InitProducerId."""
    line, transactional_id = _line(words, "InitProducerId")

    def message(version: int) -> Any:
        fields = _producer(line) if version >= 3 else {}
        timeout_ms = line.number("timeout", 60_000)
        return messages.InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms, **fields)

    def text(answered: Any) -> str:
        return code(answered.error_code) + shown([("id", answered.producer_id), ("epoch", answered.producer_epoch)])

    return await _send(stage, line, message, _code, text)


@action("tx-add")
async def tx_add(stage: Stage, words: list[str]) -> str:
    """tx-add ID [pid=N] [epoch=N] orders-0 ... [verify] [once] [vN|v0-5] [to N]: AddPartitionsToTxn; `verify` asks only."""
    line, transactional_id = _line(words, "AddPartitionsToTxn")
    kind = messages.AddPartitionsToTxnRequest
    is_once, is_verify = "once" in line.rest, "verify" in line.rest
    rows = by_topic([(topic, index) for topic, index, _, _ in _partitions(line, "verify")])
    line.rest = ["once"] if is_once else []
    topics = [kind.AddPartitionsToTxnTopic(name=topic, partitions=given) for topic, given in rows.items()]

    def message(version: int) -> Any:
        producer = _producer(line)
        if version >= 4:
            transaction = kind.AddPartitionsToTxnTransaction(
                transactional_id=transactional_id, verify_only=is_verify, topics=topics, **producer
            )
            return kind(transactions=[transaction])
        return kind(
            v3_and_below_transactional_id=transactional_id, v3_and_below_producer_id=producer["producer_id"],
            v3_and_below_producer_epoch=producer["producer_epoch"], v3_and_below_topics=topics,
        )

    def found(answered: Any) -> list[Any]:
        topics = [*answered.results_by_topic_v3_and_below, *(t for each in answered.results_by_transaction for t in each.topic_results)]
        return [(topic.name, each) for topic in topics for each in topic.results_by_partition]

    def text(answered: Any) -> str:
        lines = sorted(f"{topic}-{each.partition_index} {code(each.partition_error_code)}" for topic, each in found(answered))
        top = [] if not answered.error_code else [f"all {code(answered.error_code)}"]
        return "\n".join([*top, *lines]) or "no partitions"

    return await _send(stage, line, message, lambda answered: [each.partition_error_code for _, each in found(answered)], text)


@action("tx-offsets")
async def tx_offsets(stage: Stage, words: list[str]) -> str:
    """tx-offsets ID [pid=N] [epoch=N] group=g [once] [vN|v0-4] [to N]: AddOffsetsToTxn."""
    line, transactional_id = _line(words, "AddOffsetsToTxn")

    def message(version: int) -> Any:
        group_id = line.settings.get("group", "")
        return messages.AddOffsetsToTxnRequest(transactional_id=transactional_id, group_id=group_id, **_producer(line))

    return await _send(stage, line, message, _code, lambda answered: code(answered.error_code))


@action("tx-commit")
async def tx_commit(stage: Stage, words: list[str]) -> str:
    """tx-commit ID [pid=N] [epoch=N] group=g [generation=N] [member=m] orders-0@5 ... [once] [vN|v0-4] [to N]: TxnOffsetCommit."""
    line, transactional_id = _line(words, "TxnOffsetCommit")
    kind = messages.TxnOffsetCommitRequest
    is_once = "once" in line.rest
    rows = [
        (topic, kind.TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=int(at), committed_metadata=""))
        for topic, index, at, _ in _partitions(line)
    ]
    line.rest = ["once"] if is_once else []
    topics = [kind.TxnOffsetCommitRequestTopic(name=topic, partitions=given) for topic, given in by_topic(rows).items()]

    def message(version: int) -> Any:
        fields: Any = {"generation_id": line.number("generation", -1), "member_id": line.settings.get("member", "")} if version >= 3 else {}
        group_id = line.settings.get("group", "")
        return kind(transactional_id=transactional_id, group_id=group_id, topics=topics, **_producer(line), **fields)

    def found(answered: Any) -> list[Any]:
        return [(topic.name, each) for topic in answered.topics for each in topic.partitions]

    def text(answered: Any) -> str:
        return "\n".join(sorted(f"{topic}-{each.partition_index} {code(each.error_code)}" for topic, each in found(answered)))

    return await _send(stage, line, message, lambda answered: [each.error_code for _, each in found(answered)], text)


@action("tx-end")
async def tx_end(stage: Stage, words: list[str]) -> str:
    """tx-end ID [pid=N] [epoch=N] commit|abort [once] [vN|v0-4] [to N]: EndTxn."""
    line, transactional_id = _line(words, "EndTxn")
    is_commit = "commit" in line.rest

    def message(version: int) -> Any:
        return messages.EndTxnRequest(transactional_id=transactional_id, committed=is_commit, **_producer(line))

    return await _send(stage, line, message, _code, lambda answered: code(answered.error_code))


@action("tx-markers")
async def tx_markers(stage: Stage, words: list[str]) -> str:
    """tx-markers commit|abort pid=N epoch=N [ce=N] orders-0 ... [vN|v0-1] [to N]: WriteTxnMarkers with one marker."""
    line = Line(words[1:], "WriteTxnMarkers")
    kind = messages.WriteTxnMarkersRequest
    rows = by_topic([(topic, index) for topic, index, _, _ in line.partitions()])
    topics = [kind.WritableTxnMarkerTopic(name=topic, partition_indexes=given) for topic, given in rows.items()]
    marker = kind.WritableTxnMarker(
        transaction_result=words[0] == "commit", topics=topics, coordinator_epoch=line.number("ce", 0), **_producer(line)
    )

    def text(answered: Any) -> str:
        lines = [
            f"{each.producer_id} {topic.name}-{row.partition_index} {code(row.error_code)}"
            for each in answered.markers for topic in each.topics for row in topic.partitions
        ]
        return "\n".join(sorted(lines)) or "no partitions"

    return await _send(stage, line, lambda _: kind(markers=[marker]), lambda _: [], text)


@action("tx-describe")
async def tx_describe(stage: Stage, words: list[str]) -> str:
    """tx-describe ID ... [to N]: DescribeTransactions; whether a transaction has a start is shown, not when it was."""
    line = Line(words, "DescribeTransactions")
    ids = [{"empty": ""}.get(word, word) for word in line.rest]

    def text(answered: Any) -> str:
        lines = []
        for each in answered.transaction_states:
            partitions = sorted(f"{topic.topic}-{index}" for topic in each.topics for index in topic.partitions)
            start = "no start" if each.transaction_start_time_ms == -1 else "a start"
            described = f" {each.transaction_state} {each.producer_id}/{each.producer_epoch} timeout {each.transaction_timeout_ms}, {start}"
            name = f"{each.transactional_id or 'empty'} {code(each.error_code)}"
            lines.append(" ".join([name + described * (not each.error_code), *partitions]))
        return "\n".join(sorted(lines))

    return await _send(
        stage, line, lambda _: messages.DescribeTransactionsRequest(transactional_ids=ids),
        lambda answered: [each.error_code for each in answered.transaction_states], text,
    )


@view("tx-described")
def tx_described(stage: Stage, words: list[str]) -> Look:
    """tx-described ID ...: as `tx-describe`, looked at until it shows what it should."""
    return Look(lambda: tx_describe(stage, words))


@action("tx-list")
async def tx_list(stage: Stage, words: list[str]) -> str:
    """tx-list [states=Ongoing,Empty] [pids=0,1] [longer=ms] [vN|v0-1] [to N]: ListTransactions."""
    line = Line(words, "ListTransactions")
    states = [each for each in line.settings.get("states", "").split(",") if each]
    pids = [int(each) for each in line.settings.get("pids", "").split(",") if each]

    def message(version: int) -> Any:
        fields = {"duration_filter": line.number("longer", -1)} if version >= 1 else {}
        return messages.ListTransactionsRequest(state_filters=states, producer_id_filters=pids, **fields)

    def text(answered: Any) -> str:
        top = code(answered.error_code) + "".join(f", unknown state {each}" for each in sorted(answered.unknown_state_filters))
        found = sorted(f"  {each.transactional_id} {each.producer_id} {each.transaction_state}" for each in answered.transaction_states)
        return "\n".join([top, *found])

    return await _send(stage, line, message, _code, text)
