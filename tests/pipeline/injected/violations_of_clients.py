"""Injections for the rules about groups and transactions, into the story `clients`, and their counterparts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from klamm.protocol import messages
from klamm.protocol.apis import ApiKey as Api
from klamm.tests.pipeline.injected.injections import (
    REQUEST_IN,
    REQUEST_OUT,
    RESPONSE_OUT,
    Edits,
    Row,
    TrueRun,
    body_of,
    change,
    injected,
    inserted,
    neutral,
    place,
    with_body,
)
from klamm.tests.pipeline.injected.single_changes import setting

COOPERATIVE, RANGE, STATIC = "group-cooperative-sticky", "group-range", "group-static"


def simple(
    rule: str, name: str, key: int, direction: int, wanted: Callable[[Any, Row], bool], how: Callable[[Any], Any], **more: Any
) -> None:
    """An injection that changes one frame."""
    which = more.pop("which", 0)
    injected(rule, name, story="clients", **more)(lambda world: change(world, key, direction, wanted, how, which=which))


def of(group: str, generation: int | None = None) -> Callable[[Any, Row], bool]:
    """A response without error to a member of this group; of this generation, if the response names one."""

    def is_wanted(body: Any, row: Row) -> bool:
        return row["client_id"] == group and body.error_code == 0 and generation in (None, getattr(body, "generation_id", None))

    return is_wanted


# --- G: groups


def _is_follower(body: Any) -> bool:
    return bool(body.leader != body.member_id)


simple("G-01", "a follower is told another leader", Api.JOIN_GROUP, RESPONSE_OUT,
       lambda b, r: of(RANGE, 2)(b, r) and _is_follower(b), lambda b: setattr(b, "leader", b.member_id), edge=True)
simple("G-01", "a follower is told another protocol", Api.JOIN_GROUP, RESPONSE_OUT,
       lambda b, r: of(RANGE, 2)(b, r) and _is_follower(b), setting(protocol_name="roundrobin"))
simple("G-01", "a member gets another id when it joins", Api.JOIN_GROUP, RESPONSE_OUT,
       lambda b, r: r["client_id"] == RANGE and b.error_code == 79, setting(member_id="another"), allowed=True)
simple("G-02", "the generation of a group leaves one out", Api.JOIN_GROUP, RESPONSE_OUT, of(COOPERATIVE, 4),
       setting(generation_id=5), edge=True)
simple("G-02", "the generation of a group goes back", Api.JOIN_GROUP, RESPONSE_OUT, of(COOPERATIVE, 4), setting(generation_id=2))


@injected("G-02", "nobody joins a generation of a group without members, and a new member the next one", story="clients", allowed=True)
def _(world: TrueRun) -> Edits:
    last = [row for row in world.frames(Api.LEAVE_GROUP, RESPONSE_OUT) if row["client_id"] == RANGE][-1]
    asked = next(row for row in world.frames(Api.JOIN_GROUP, REQUEST_IN) if row["client_id"] == RANGE and body_of(row).member_id)
    request, answer = body_of(asked), body_of(world.answer(asked))
    request.member_id = answer.member_id = answer.leader = answer.members[0].member_id = "another"
    answer.generation_id = 5  # that of the last join is 3
    return inserted(world, asked, last["seq"] + 0.1, last, request, answer, conn_id=90_000)


def _assigned(how: Callable[[bytes], bytes]) -> Callable[[Any], None]:
    def apply(body: Any) -> None:
        body.assignment = how(body.assignment)

    return apply


def last_partition(assignment: bytes, partition: int) -> bytes:
    """An assignment of one topic, without data of the user, whose last partition is this one."""
    return assignment[:-8] + partition.to_bytes(4, "big") + assignment[-4:]


def _is_shared(body: Any, row: Row) -> bool:
    """Of the generation of two members: both get two partitions."""
    return bool(of(RANGE)(body, row) and len(body.assignment) == 25)


simple("G-03", "one partition of an assignment is another one", Api.SYNC_GROUP, RESPONSE_OUT, _is_shared,
       _assigned(lambda a: last_partition(a, 9)), edge=True)
simple("G-03", "a member gets nothing", Api.SYNC_GROUP, RESPONSE_OUT, _is_shared, _assigned(lambda a: b""))


@injected("G-03", "the leader sends another assignment, and the member gets that", story="clients", allowed=True)
def _(world: TrueRun) -> Edits:
    return _of_the_second_member(world, lambda assignment, first: assignment[:-4] + (1).to_bytes(4, "big") + b"x")


def _of_the_second_member(world: TrueRun, how: Callable[[bytes, bytes], bytes]) -> Edits:
    """What the leader of two sends for the second member, and what that one gets."""
    for row in world.frames(Api.SYNC_GROUP, REQUEST_IN):
        body = body_of(row)
        if row["client_id"] == RANGE and len(body.assignments) == 2:
            first, second = sorted(body.assignments, key=lambda each: bool(each.member_id != body.member_id))
            second.assignment = how(second.assignment, first.assignment)
            for other in world.frames(Api.SYNC_GROUP, RESPONSE_OUT):
                if body_of(world.request(other)).member_id == second.member_id:
                    given = body_of(other)
                    given.assignment = second.assignment
                    return {place(row): with_body(row, body), place(other): with_body(other, given)}
    raise LookupError


@injected("X-05", "the leader gives one partition to two members", story="clients", edge=True)
def _(world: TrueRun) -> Edits:
    return _of_the_second_member(world, lambda assignment, first: last_partition(assignment, int.from_bytes(first[-8:-4], "big")))


@injected("X-05", "the leader gives both members the same partitions", story="clients")
def _(world: TrueRun) -> Edits:
    return _of_the_second_member(world, lambda assignment, first: first)


@injected("X-05", "the leader leaves a partition to nobody", story="clients", allowed=True)
def _(world: TrueRun) -> Edits:
    return _of_the_second_member(world, lambda assignment, first: last_partition(assignment, 9))


def _commit(generation: int, error: int, group: str = COOPERATIVE) -> Callable[[TrueRun], Edits]:
    """The first commit of the last generation of a group with another generation, and this error."""

    def make(world: TrueRun) -> Edits:
        row = [r for r in world.frames(Api.OFFSET_COMMIT, REQUEST_IN) if r["client_id"] == group][-1]
        asked, answer = body_of(row), world.answer(row)
        asked.generation_id_or_member_epoch += generation
        given = body_of(answer)
        for topic in given.topics:
            for partition in topic.partitions:
                partition.error_code = error
        return {place(row): with_body(row, asked), place(answer): with_body(answer, given)}

    return make


injected("G-04", "a commit of the generation before succeeds", story="clients", edge=True)(_commit(-1, 0))
injected("G-04", "a commit of a generation to come succeeds", story="clients")(_commit(7, 0))
injected("G-04", "a commit of the generation before is refused", story="clients", allowed=True)(_commit(-1, 22, STATIC))


def _is_fetched(body: Any, row: Row) -> bool:
    return bool(row["client_id"] == STATIC and body.groups and body.groups[0].topics[0].partitions[0].committed_offset == 1)


def _fetched(offset: int) -> Callable[[Any], None]:
    def apply(body: Any) -> None:
        body.groups[0].topics[0].partitions[0].committed_offset = offset

    return apply


simple("G-05", "an offset is one higher than the commit", Api.OFFSET_FETCH, RESPONSE_OUT, _is_fetched, _fetched(2), edge=True)
simple("G-05", "a committed offset is gone", Api.OFFSET_FETCH, RESPONSE_OUT, _is_fetched, _fetched(-1))
simple("G-05", "an offset of an aborted transaction counts", Api.OFFSET_FETCH, RESPONSE_OUT,
       lambda b, r: "copiers" in str([g.group_id for g in b.groups]) and b.groups[0].topics[0].partitions[0].committed_offset == 1,
       _fetched(2), which=-1)


@injected("G-05", "the offset of a commit is returned whose answer is not out yet", story="clients", allowed=True)
def _(world: TrueRun) -> Edits:
    """Of the last commit of the static member, which nobody fetches: a fetch of it is added between."""
    fetch = [r for r in world.frames(Api.OFFSET_FETCH, RESPONSE_OUT) if _is_fetched(body_of(r), r)][-1]
    commit = [r for r in world.frames(Api.OFFSET_COMMIT, REQUEST_IN) if r["client_id"] == STATIC][-1]
    asked, given = world.request(fetch), body_of(fetch)
    for partition in given.groups[0].topics[0].partitions:
        partition.committed_offset = 2
    other = {"conn_id": 90_000}
    first, second = commit["seq"] + 0.1, commit["seq"] + 0.2
    node = commit["node_id"]
    return {
        (node, first): {**asked, **other, "seq": first, "ts_ns": commit["ts_ns"], "mono_ns": commit["mono_ns"]},
        (node, second): {
            **with_body(fetch, given), **other, "seq": second, "cause_seq": first, "ts_ns": commit["ts_ns"], "mono_ns": commit["mono_ns"],
        },
    }


def _is_unknown(body: Any, row: Row) -> bool:
    return bool(row["client_id"] == "test" and body.error_code == 25)


simple("G-06", "a heartbeat of an unknown member succeeds", Api.HEARTBEAT, RESPONSE_OUT, _is_unknown,
       setting(error_code=0), which=1, edge=True)


@injected("G-06", "a member is fenced, and its next heartbeat succeeds", story="clients")
def _(world: TrueRun) -> Edits:
    return change(world, Api.HEARTBEAT, RESPONSE_OUT, _is_unknown, setting(error_code=82)) | change(
        world, Api.HEARTBEAT, RESPONSE_OUT, _is_unknown, setting(error_code=0), which=1)


simple("G-06", "a heartbeat succeeds before the member is unknown", Api.HEARTBEAT, RESPONSE_OUT, _is_unknown,
       setting(error_code=0), allowed=True)


# --- T: transactions


def _marker(result: bool, producer: int | None = None) -> Callable[[Any, Row], bool]:
    def is_wanted(body: Any, row: Row) -> bool:
        one = body.markers[0]
        return bool(one.transaction_result == result and one.topics[0].name == "accounts" and producer in (None, one.producer_id))

    return is_wanted


MARKERS = Api.WRITE_TXN_MARKERS
FENCED_ID = 1000
"""A producer id that gets three epochs. The leader of the partition that is read is not its coordinator, so that all markers are in its
journal."""

simple("T-01", "an abort marker has the epoch after the next one", MARKERS, REQUEST_OUT,
       lambda b, r: b.markers[0].producer_epoch == 1 and not b.markers[0].transaction_result,
       lambda b: setattr(b.markers[0], "producer_epoch", 2), edge=True)
simple("T-01", "a commit marker ends a transaction that is aborted with the next epoch", MARKERS, REQUEST_OUT,
       lambda b, r: b.markers[0].producer_epoch == 1 and not b.markers[0].transaction_result,
       lambda b: setattr(b.markers[0], "transaction_result", True))
simple("T-01", "a marker is for one partition more", MARKERS, REQUEST_OUT, _marker(True),
       lambda b: setattr(b.markers[0].topics[0], "partition_indexes", [*b.markers[0].topics[0].partition_indexes, 7]))


def _is_of_producer(producer: int, epoch: int) -> Callable[[Any, Row], bool]:
    return lambda body, row: bool((body.markers[0].producer_id, body.markers[0].producer_epoch) == (producer, epoch))


simple("T-01", "an abort marker has the epoch after one that is given later", MARKERS, REQUEST_OUT, _is_of_producer(FENCED_ID, 1),
       lambda b: setattr(b.markers[0], "producer_epoch", 3), edge=True)


@injected("T-01", "a producer does not end its transaction, which is aborted with the next epoch", story="clients", allowed=True)
def _(world: TrueRun) -> Edits:
    ends = [row for row in world.frames(Api.END_TXN, REQUEST_IN) if body_of(row).producer_id == FENCED_ID]
    asked = next(row for row in ends if body_of(row).producer_epoch == 2)
    return {place(row): neutral(row) for row in (asked, world.answer(asked))} | change(
        world, MARKERS, REQUEST_OUT, _is_of_producer(FENCED_ID, 2),
        lambda b: setting(producer_epoch=3, transaction_result=False)(b.markers[0]),
    )


def _lost_marker(whole: bool) -> Callable[[TrueRun], Edits]:
    """The request with a marker and its answer are in no journal, or one partition is not in the request and its answer."""

    def make(world: TrueRun) -> Edits:
        asked = next(row for row in world.frames(MARKERS, REQUEST_OUT) if _marker(False, 0)(body_of(row), row))
        answer = world.answer(asked)
        if whole:
            return {place(row): neutral(row) for one in (asked, answer) for row in world.copies(one)}
        body, given = body_of(asked), body_of(answer)
        topic, written = body.markers[0].topics[0], given.markers[0].topics[0]
        topic.partition_indexes = topic.partition_indexes[:1]
        written.partitions = written.partitions[:1]
        return {place(row): with_body(row, new) for one, new in ((asked, body), (answer, given)) for row in world.copies(one)}

    return make


injected("T-02", "an abort marker leaves one partition out", story="clients", edge=True)(_lost_marker(whole=False))
injected("T-02", "an abort marker is not sent", story="clients")(_lost_marker(whole=True))


@injected("T-02", "an abort marker is refused, and nobody repeats it", story="clients")
def _(world: TrueRun) -> Edits:
    return change(
        world, MARKERS, RESPONSE_OUT, lambda b, r: _marker(False, 0)(body_of(world.request(r)), r),
        lambda b: setattr(b.markers[0].topics[0].partitions[0], "error_code", 6),
    )


def _lost_commit(which: int) -> Callable[[TrueRun], Edits]:
    """Of the transactions that one producer committed with one epoch, the marker of the first or the last one is in no journal."""

    def make(world: TrueRun) -> Edits:
        asked = [row for row in world.frames(MARKERS, REQUEST_OUT) if _marker(True, 0)(body_of(row), row)][which]
        return {place(row): neutral(row) for one in (asked, world.answer(asked)) for row in world.copies(one)}

    return make


injected("T-02", "one commit marker is not sent, and the last transaction of the epoch is committed too", story="clients")(_lost_commit(0))
injected("T-02", "the last commit marker of an id that is not used again is not sent", story="clients", allowed=True)(_lost_commit(-1))

INIT = Api.INIT_PRODUCER_ID


def _is_of(transactional_id: str, world: TrueRun) -> Callable[[Any, Row], bool]:
    return lambda body, row: bool(body.error_code == 0 and body_of(world.request(row)).transactional_id == transactional_id)


def _given(how: Callable[[Any], None], which: int, transactional_id: str = "late") -> Callable[[TrueRun], Edits]:
    """What InitProducerId gives to the producers of a transactional id."""
    return lambda world: change(world, INIT, RESPONSE_OUT, _is_of(transactional_id, world), how, which=which)


injected("T-03", "the second producer gets the epoch of the first", story="clients", edge=True)(_given(setting(producer_epoch=0), 1))
injected("T-03", "the second producer gets a lower epoch", story="clients")(_given(setting(producer_epoch=-1), 1))
injected("T-03", "the second producer gets the epoch of the abort", story="clients", allowed=True)(_given(setting(producer_epoch=1), 1))


@injected("T-04", "a fenced producer ends its transaction", story="clients", edge=True)
def _(world: TrueRun) -> Edits:
    return change(world, Api.END_TXN, RESPONSE_OUT, lambda b, r: b.error_code != 0, setting(error_code=0))


@injected("T-04", "a producer that was replaced adds partitions", story="clients")
def _(world: TrueRun) -> Edits:
    return change(
        world, Api.ADD_PARTITIONS_TO_TXN, REQUEST_IN, lambda b, r: b.v3_and_below_producer_epoch == 2,
        lambda b: setattr(b, "v3_and_below_producer_epoch", 1), which=-1,
    )


@injected("T-04", "a producer adds a partition while the next one waits for its epoch", story="clients", allowed=True)
def _(world: TrueRun) -> Edits:
    given = next(
        row for row in world.frames(INIT, RESPONSE_OUT) if (body_of(row).producer_id, body_of(row).producer_epoch) == (FENCED_ID, 2))
    asked = next(row for row in world.frames(Api.ADD_PARTITIONS_TO_TXN, REQUEST_IN) if row["api_version"] < 4
                 and body_of(row).v3_and_below_producer_id == FENCED_ID)
    return inserted(world, asked, given["seq"] - 0.9, given, conn_id=90_000)


def _reads(world: TrueRun) -> list[tuple[Row, Any]]:
    """Answers of Fetch with records to the consumer that reads what is committed."""
    found = []
    for row in world.frames(Api.FETCH, RESPONSE_OUT):
        if row["cause_seq"] is not None and body_of(world.request(row)).isolation_level == 1:
            body = body_of(row)
            if any(partition.records for topic in body.responses for partition in topic.partitions):
                found.append((row, body))
    return found


def _read(wanted: Callable[[Any], bool], how: Callable[[Any], None]) -> Callable[[TrueRun], Edits]:
    """The first partition with records for which it holds, changed."""

    def make(world: TrueRun) -> Edits:
        for row, body in _reads(world):
            for topic in body.responses:
                for partition in topic.partitions:
                    if partition.records and wanted(partition):
                        how(partition)
                        return {place(each): with_body(each, body) for each in world.copies(row)}
        raise LookupError

    return make


def _first_offset(partition: Any) -> int:
    return int.from_bytes(partition.records[:8], "big")


injected("T-05", "the last stable offset is the one of the first record", story="clients", edge=True)(
    _read(lambda p: True, lambda p: setattr(p, "last_stable_offset", _first_offset(p))))


@injected("T-05", "no answer names an aborted transaction", story="clients")
def _(world: TrueRun) -> Edits:
    edits: Edits = {}
    for row, body in _reads(world):
        named = [each for topic in body.responses for each in topic.partitions if each.aborted_transactions]
        for each in named:
            each.aborted_transactions = []
        if named:
            edits |= {place(one): with_body(one, body) for one in world.copies(row)}
    assert edits
    return edits


injected("T-05", "the last stable offset is one after the first record", story="clients", allowed=True)(
    _read(lambda p: True, lambda p: setattr(p, "last_stable_offset", _first_offset(p) + 1)))


def _read_again(is_committed: bool, names: Callable[[Any], bool]) -> Callable[[TrueRun], Edits]:
    """A consumer reads again what another one has read, when the marker is written, and is told of an aborted transaction or not."""

    def make(world: TrueRun) -> Edits:
        for row, body in _reads(world):
            partitions = [each for topic in body.responses for each in topic.partitions if each.records]
            if _producer_id(partitions[0]) == FENCED_ID and bool(partitions[0].aborted_transactions) != is_committed:
                marker = next(r for r in world.frames(MARKERS, RESPONSE_OUT) if r["node_id"] == row["node_id"] and r["seq"] > row["seq"])
                for each in partitions:
                    form = messages.FetchResponse.AbortedTransaction
                    each.aborted_transactions = [form(_producer_id(each), _first_offset(each))] if names(each) else []
                first, second = marker["seq"] + 0.1, marker["seq"] + 0.2
                like = {"conn_id": 90_000, "ts_ns": marker["ts_ns"], "mono_ns": marker["mono_ns"]}
                return {
                    (row["node_id"], first): {**world.request(row), **like, "seq": first},
                    (row["node_id"], second): {**with_body(row, body), **like, "seq": second, "cause_seq": first},
                }
        raise LookupError

    return make


def _producer_id(partition: Any) -> int:
    return int.from_bytes(partition.records[43:51], "big")


injected("T-05", "a committed transaction is named as aborted", story="clients")(_read_again(True, lambda p: p.partition_index == 0))
injected("T-05", "one aborted transaction is not named as such", story="clients")(_read_again(False, lambda p: p.partition_index == 0))
injected("T-05", "a committed transaction is read again", story="clients", allowed=True)(_read_again(True, lambda p: False))
injected("T-05", "an aborted transaction is read again and named", story="clients", allowed=True)(_read_again(False, lambda p: True))
