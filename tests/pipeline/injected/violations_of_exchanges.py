"""Violations of the rules that see several frames of clients: versions, sessions of Fetch, sequence numbers, leader epochs, offsets of
times. And counterparts. All but those of a guest are changes of the story `clients`."""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any

from klamm.protocol import messages
from klamm.protocol.apis import ApiKey as Api
from klamm.protocol.records.record import Record, encode_batch
from klamm.tests.pipeline.injected.injections import (
    REQUEST_IN,
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
from klamm.tests.pipeline.injected.violations_of_bodies import by, code, has, within
from klamm.tests.pipeline.injected.violations_of_guests import Guest, guest

_VERSION_AT = 6
_SHORT, _LONG = Struct(">h"), Struct(">i")
_PRODUCER_AT, _EPOCH_AT, _SEQUENCE_AT = 43, 51, 53
"""Where a batch has its producer id, producer epoch and base sequence."""


def _changed(
    rule: str, name: str, key: int, direction: int, wanted: Callable[[Any, Row], bool], how: Callable[[Any], Any], *, which: int = 0,
    **more: bool,
) -> None:
    injected(rule, name, story="clients", **more)(lambda world: change(world, key, direction, wanted, how, which=which))


def _encoded(how: Callable[[bytes], bytes]) -> Callable[[Any], bytes]:
    """For FindCoordinator requests of version 2."""
    return lambda body: how(bytes(messages.encode(body.message(), 2)))


# --- K-01 and K-03

_changed("K-01", "a request lacks its last byte", Api.FIND_COORDINATOR, REQUEST_IN, by("rdkafka"), _encoded(lambda b: b[:-1]), edge=True)
_changed("K-01", "a request has nothing", Api.FIND_COORDINATOR, REQUEST_IN, by("rdkafka"), _encoded(lambda b: b""))
_changed("K-03", "a request has a byte over", Api.FIND_COORDINATOR, REQUEST_IN, by("rdkafka"), _encoded(lambda b: b + b"\0"), edge=True)
_changed("K-03", "a request has many bytes over", Api.FIND_COORDINATOR, REQUEST_IN, by("rdkafka"), _encoded(lambda b: b + bytes(40)))
_changed("K-03", "a request has a tagged field that nobody knows", Api.METADATA, REQUEST_IN, by("rdkafka"),
         lambda body: bytes(messages.encode(body.message(), 12))[:-1] + b"\1\x63\1\0", allowed=True)


# --- K-02 and K-12


def in_version(world: TrueRun, key: int, client: str, version: int, *, which: int = 0, is_answered: bool = False) -> Edits:
    """A request says that it is in another version."""
    row = [one for one in world.frames(key, REQUEST_IN) if one["client_id"] == client][which]
    frame = bytearray(row["frame"])
    frame[_VERSION_AT : _VERSION_AT + 2] = _SHORT.pack(version)
    answer = world.answer(row)
    edits = {place(row): {**row, "frame": bytes(frame), "api_version": version}}
    return edits | {place(answer): {**answer, "api_version": version} if is_answered else neutral(answer)}


injected("K-02", "a request is one version above what is advertised", story="clients", edge=True)(
    lambda world: in_version(world, Api.FIND_COORDINATOR, "rdkafka", 7))
injected("K-02", "a request is far above what is advertised", story="clients")(
    lambda world: in_version(world, Api.FIND_COORDINATOR, "rdkafka", 70))
injected("K-02", "a request is in another version that is advertised", story="clients", allowed=True)(
    lambda world: in_version(world, Api.FIND_COORDINATOR, "rdkafka", 1, is_answered=True))
injected("K-12", "a transaction ends as in the second version of transactions", story="clients", edge=True)(
    lambda world: in_version(world, Api.END_TXN, "rdkafka", 5, which=-1))
injected("K-12", "offsets are added as in the second version of transactions", story="clients")(
    lambda world: in_version(world, Api.TXN_OFFSET_COMMIT, "rdkafka", 5, which=-1))
injected("K-12", "a transaction ends as in the first version of transactions", story="clients", allowed=True)(
    lambda world: in_version(world, Api.END_TXN, "rdkafka", 2, which=-1, is_answered=True))

# --- K-08


def _asks(times: int) -> Callable[[TrueRun], Edits]:
    def make(world: TrueRun) -> Edits:
        one = Guest(world)
        like = [row for row in world.frames(Api.METADATA, RESPONSE_OUT) if row["node_id"] == one.node_id][-1]
        asked, told = body_of(world.request(like)).message(), body_of(like).message()
        for number in range(times):
            one.exchange(number, Api.METADATA, like["api_version"], asked, told)
        return one.edits

    return make


injected("K-08", "101 requests for metadata in a second", edge=True)(_asks(101))
injected("K-08", "300 requests for metadata in a second")(_asks(300))
injected("K-08", "100 requests for metadata in a second", allowed=True)(_asks(100))

# --- K-09 and M-04

COMMITTED, ROWS = ("topics", "partitions"), ("topics", "partitions")
for _rule, _name, _epoch, _more in (
    ("K-09", "a commit has the leader epoch after the highest", 2, {"edge": True}),
    ("K-09", "a commit has a leader epoch far above the highest", 99, {}),
    ("K-09", "a commit has the highest leader epoch", 1, {"allowed": True}),
):
    _changed(_rule, _name, Api.OFFSET_COMMIT, REQUEST_IN, by("group-range", has(*COMMITTED)),
             within(*COMMITTED, committed_leader_epoch=_epoch), **_more)


def _told_first(epoch: int) -> Callable[[TrueRun], Edits]:
    """A leader epoch in the first of two Metadata responses of a connection that name the partition."""

    def make(world: TrueRun) -> Edits:
        told = [row for row in world.frames(Api.METADATA, RESPONSE_OUT) if has(*ROWS)(body_of(row), row)]
        for row in told:
            body = body_of(row)
            for later in told:
                same = all(row[name] == later[name] for name in ("node_id", "process", "conn_id")) and row["seq"] < later["seq"]
                if same and body_of(later).topics[0].topic_id == body.topics[0].topic_id:
                    body.topics[0].partitions[0].leader_epoch = epoch
                    return {place(row): with_body(row, body)}
        raise LookupError

    return make


injected("M-04", "a leader epoch falls by one", story="clients", edge=True)(_told_first(1))
injected("M-04", "a leader epoch falls from a high one", story="clients")(_told_first(99))
injected("M-04", "a leader epoch is not told, and told again", story="clients", allowed=True)(_told_first(-1))

# --- M-07

_changed("M-07", "a cluster id has another last letter", Api.METADATA, RESPONSE_OUT, lambda b, r: r["node_id"] == 2,
         lambda b: setattr(b, "cluster_id", b.cluster_id[:-1] + "_"), edge=True)
_changed("M-07", "a cluster id is another one", Api.METADATA, RESPONSE_OUT, lambda b, r: r["node_id"] == 2, setting(cluster_id="other"))
_changed("M-07", "a cluster id is not told", Api.METADATA, RESPONSE_OUT, lambda b, r: r["node_id"] == 2, setting(cluster_id=None),
         allowed=True)

# --- F-02, F-04, F-05, K-10, K-11


def _with_aborted(body: Any, row: Row) -> bool:
    return any(part.aborted_transactions for topic in body.responses for part in topic.partitions)


@injected("F-02", "a consumer is told what was aborted, and had asked for all", story="clients", edge=True)
def _(world: TrueRun) -> Edits:
    row = next(row for row in world.frames(Api.FETCH, RESPONSE_OUT) if row["client_id"] == "rdkafka" and _with_aborted(body_of(row), row))
    asked = world.request(row)
    body = body_of(asked)
    body.isolation_level = 0
    return {place(asked): with_body(asked, body)}


ABORTED = messages.FetchResponse.AbortedTransaction(999, 0)
_changed("F-02", "a follower is told what was aborted", Api.FETCH, RESPONSE_OUT, by("broker-2-fetcher-0", has("responses", "partitions")),
         within("responses", "partitions", aborted_transactions=[ABORTED]))
_changed("F-02", "a consumer is told of one aborted transaction more", Api.FETCH, RESPONSE_OUT, by("rdkafka", _with_aborted),
         within("responses", "partitions", aborted_transactions=lambda some: [*(some or ()), ABORTED]), allowed=True)


def _fetches(world: TrueRun) -> list[Row]:
    """The requests of a follower in its session. The last one is not answered."""
    steps = [row for row in world.frames(Api.FETCH, REQUEST_IN) if row["client_id"].startswith("broker-2")]
    return [row for row in steps if body_of(row).session_epoch > 1]


LAST = -2
"""The place of the last request that is answered. Without the one behind it the follower fetches no more."""


def _session(which: int, *, epoch: int = 0, asked: dict[str, Any] | None = None, **answer: Any) -> Callable[[TrueRun], Edits]:
    """A fetch of the session of a follower, in both journals, has an epoch so much higher, or these values, and those in its answer."""
    values = asked or {"session_epoch": lambda before: before + epoch}

    def make(world: TrueRun) -> Edits:
        request = _fetches(world)[which]
        edits: Edits = {place(copy): neutral(copy) for copy in world.copies(_fetches(world)[-1])} if which == LAST else {}
        for one, changed in ((request, values), (world.answer(request), answer)):
            body = body_of(one)
            setting(**changed)(body)
            edits |= {place(copy): with_body(copy, body) for copy in world.copies(one)}
        return edits

    return make


for _rule, _name, _make, _more in (
    ("F-04", "a fetch is answered with the session after its own", _session(1, session_id=lambda told: told + 1), {"edge": True}),
    ("F-04", "a fetch is answered with no session", _session(1, session_id=0), {"allowed": True}),
    ("F-05", "a broker takes the epoch after the next", _session(LAST, epoch=1), {"edge": True}),
    ("F-05", "a broker refuses the next epoch", _session(LAST, error_code=71, session_id=0, responses=[]), {}),
    ("F-05", "a broker refuses the epoch after the next", _session(LAST, epoch=1, error_code=71, session_id=0, responses=[]),
     {"allowed": True}),
    ("K-10", "a follower leaves out an epoch", _session(LAST, epoch=1, error_code=71, session_id=0, responses=[]), {"edge": True}),
    ("K-10", "a follower goes back to the first epoch", _session(LAST, epoch=-1, error_code=71, session_id=0, responses=[]), {}),
    ("K-10", "a follower begins with another session", _session(LAST, asked={"session_id": 0, "session_epoch": 0}, session_id=4_711),
     {"allowed": True}),
    ("K-11", "a follower goes on after its session was lost", _session(1, error_code=70, session_id=0, responses=[]), {"edge": True}),
    ("K-11", "a follower goes on after its epoch was refused", _session(1, error_code=71, session_id=0, responses=[]), {}),
    ("K-11", "the session of a follower that fetches no more is lost", _session(LAST, error_code=70, session_id=0, responses=[]),
     {"allowed": True}),
):
    injected(_rule, _name, story="clients", **_more)(_make)
_changed("F-04", "a fetch without a session is answered with one", Api.FETCH, RESPONSE_OUT, by("rdkafka", code(0)), setting(session_id=7))


# --- P


def _batch(body: Any) -> Any:
    return body.topic_data[0].partition_data[0]


def _sequence(body: Any) -> int:
    return int(_LONG.unpack_from(_batch(body).records, _SEQUENCE_AT)[0])


def _put(records: Any, at: int, some: bytes) -> bytes:
    return bytes(records[:at]) + some + bytes(records[at + len(some):])


def _numbered(sequence: int, *, which: int, error: int = 0, wanted: Callable[[int], bool] = lambda one: True) -> Callable[[TrueRun], Edits]:
    """A batch has another sequence number, and this error in its answer."""

    def make(world: TrueRun) -> Edits:
        row = [one for one in world.frames(Api.PRODUCE, REQUEST_IN) if wanted(_sequence(body_of(one)))][which]
        body, answer = body_of(row), world.answer(row)
        _batch(body).records = _put(_batch(body).records, _SEQUENCE_AT, _LONG.pack(sequence))
        edits = {place(row): with_body(row, body)}
        return edits | ({place(answer): _refused(answer, error)} if error else {})

    return make


def _refused(answer: Row, error: int) -> Row:
    given = body_of(answer)
    setting(error_code=error, base_offset=-1)(given.responses[0].partition_responses[0])
    return with_body(answer, given)


def _again(how: Callable[[bytes], bytes] = bytes, error: int = 0, offset: int = 0) -> Callable[[TrueRun], Edits]:
    """The last batch of the story is sent once more, on another connection, with other bytes, and gets an error or an offset so much
    higher."""

    def make(world: TrueRun) -> Edits:
        row = world.frames(Api.PRODUCE, REQUEST_IN)[-1]
        body, answer = body_of(row), world.answer(row)
        _batch(body).records = how(bytes(_batch(body).records))
        given = body_of(answer if not error else _refused(answer, error))
        if offset:
            given.responses[0].partition_responses[0].base_offset += offset
        return inserted(world, row, answer["seq"] + 0.1, answer, body, given, conn_id=90_000)

    return make


for _rule, _name, _make, _more in (
    ("P-01", "a producer begins with sequence number 1", _numbered(1, which=-1), {"edge": True}),
    ("P-01", "a producer begins with a high sequence number", _numbered(1_000, which=-1), {}),
    ("P-02", "a producer leaves out a sequence number", _numbered(3, which=-1, error=45, wanted=lambda one: one == 2), {"edge": True}),
    ("P-02", "a producer leaves out many sequence numbers", _numbered(300, which=-1, error=45, wanted=lambda one: one == 2), {}),
    ("P-02", "a producer sends its last batch again", _again(), {"allowed": True}),
    ("P-03", "a batch is sent again with another checksum", _again(lambda data: _put(data, 17, bytes(4))), {"edge": True}),
    ("P-03", "a batch is sent again with other records", _again(lambda data: _put(data, 17, bytes(4))[:-4] + b"abcd"), {}),
    ("P-03", "a batch is sent again as it was", _again(), {"allowed": True}),
    ("P-05", "a batch that is sent again is written behind the first", _again(offset=1), {"edge": True}),
    ("P-05", "a batch that is sent again is out of order", _again(error=45), {}),
    ("P-05", "a batch that is sent again gets the offset of the first", _again(), {"allowed": True}),
    ("P-06", "a batch behind a gap of one is taken", _numbered(3, which=-1, wanted=lambda one: one == 2), {"edge": True}),
    ("P-06", "a batch behind a large gap is taken", _numbered(300, which=-1, wanted=lambda one: one == 2), {}),
    ("P-06", "a batch behind a gap is refused", _numbered(3, which=-1, error=45, wanted=lambda one: one == 2), {"allowed": True}),
):
    injected(_rule, _name, story="clients", **_more)(_make)


def _in_two_epochs(error: int | None) -> Callable[[TrueRun], Edits]:
    """The records of a batch, whose answer has this error or is lost, are sent in the next epoch of their producer too."""

    def make(world: TrueRun) -> Edits:
        sent = [(row, body_of(row)) for row in world.frames(Api.PRODUCE, REQUEST_IN)]

        def epoch(body: Any) -> int:
            return int(_SHORT.unpack_from(_batch(body).records, _EPOCH_AT)[0])

        def log(body: Any, row: Row) -> tuple[Any, ...]:
            return row["node_id"], _batch(body).index, bytes(_batch(body).records[_PRODUCER_AT:_EPOCH_AT])

        for row, body in sent:
            for later, other in sent:
                if log(other, later) == log(body, row) and epoch(other) > epoch(body):
                    records = _put(_batch(body).records, _EPOCH_AT, _SHORT.pack(epoch(other)))
                    _batch(other).records = _put(records, _SEQUENCE_AT, _LONG.pack(_sequence(other)))
                    answer = world.answer(row)
                    given = neutral(answer) if error is None else _refused(answer, error) if error else answer
                    return {place(later): with_body(later, other), place(answer): given}
        raise LookupError

    return make


injected("P-04", "records that may be written are sent in the next epoch", story="clients", edge=True)(_in_two_epochs(7))
injected("P-04", "records without an answer are sent in the next epoch", story="clients")(_in_two_epochs(None))
injected("P-04", "records that are written are sent in the next epoch", story="clients", allowed=True)(_in_two_epochs(0))

# --- O-03, O-05, F-06

LIST, LISTED, FETCH, FETCHED = (
    messages.ListOffsetsRequest, messages.ListOffsetsResponse, messages.FetchRequest, messages.FetchResponse,
)


def _of_time(one: Guest, found: int, offset: int = 4, at_ms: float = 0) -> None:
    """The guest asks for the first record since time 1000."""
    asked = LIST.ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=1_000)
    told: Any = LISTED.ListOffsetsPartitionResponse(partition_index=0, offset=offset, timestamp=found)
    request = LIST(replica_id=-1, isolation_level=0, topics=[LIST.ListOffsetsTopic(name="gone", partitions=[asked])])
    one.exchange(at_ms, Api.LIST_OFFSETS, 5, request, LISTED(topics=[LISTED.ListOffsetsTopicResponse(name="gone", partitions=[told])]))


guest("O-03", "the record of a time is a millisecond older", edge=True)(lambda one: _of_time(one, 999))
guest("O-03", "the record of a time is much older")(lambda one: _of_time(one, 1))
guest("O-03", "the record of a time has that time", allowed=True)(lambda one: _of_time(one, 1_000))


def _reads(one: Guest, at_ms: float, *, offset: int = 3, high: int = 9, stable: int = 0) -> None:
    """The guest reads a batch of one record with time 2000."""
    batch = encode_batch([Record(offset, 2_000, None, b"a")])
    row = FETCHED.PartitionData(
        partition_index=0, high_watermark=high, last_stable_offset=stable, log_start_offset=0, aborted_transactions=[], records=batch
    )
    asked = FETCH.FetchTopic(topic="gone", partitions=[FETCH.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1_000)])
    request = FETCH(replica_id=-1, max_wait_ms=0, min_bytes=0, session_epoch=-1, topics=[asked], forgotten_topics_data=[])
    one.exchange(at_ms, Api.FETCH, 11, request, FETCHED(responses=[FETCHED.FetchableTopicResponse(topic="gone", partitions=[row])]))


def _reads_twice(one: Guest, first: dict[str, int], then: dict[str, int]) -> None:
    _reads(one, 0, **first)
    _reads(one, 1, **then)


_READS: tuple[tuple[str, dict[str, Any], dict[str, Any], dict[str, Any]], ...] = (
    ("what was read is at the high watermark that is told next", {}, {"offset": 2, "high": 3}, {"edge": True}),
    ("what was stable is far above the high watermark that is told next", {"stable": 900}, {"high": 9}, {}),
    ("what was read is just below the high watermark that is told next", {"stable": 4}, {"offset": 2, "high": 4}, {"allowed": True}),
)
for _name, _first, _then, _how in _READS:
    guest("F-06", _name, **_how)(lambda one, first=_first, then=_then: _reads_twice(one, first, then))


def _finds(one: Guest, found: int, offset: int, *, is_still_there: bool = True, stable: int = 9) -> None:
    """The guest has read offset 3 with time 2000 before it asks, and reads it again if it is still there."""
    _reads(one, 0, stable=stable)
    _of_time(one, found, offset, at_ms=1)
    if is_still_there:
        _reads(one, 2, stable=stable)


guest("O-05", "the time of an offset is a millisecond before that of its record", edge=True)(lambda one: _finds(one, 1_999, 3))
guest("O-05", "a later offset is found")(lambda one: _finds(one, 3_000, 8))
guest("O-05", "an earlier offset is found", allowed=True)(lambda one: _finds(one, 1_000, 2))
guest("O-05", "a later offset is found, and the record is not read any more", allowed=True)(
    lambda one: _finds(one, 3_000, 8, is_still_there=False))
guest("O-05", "a later offset is found, and the record is not stable", allowed=True)(lambda one: _finds(one, 3_000, 8, stable=3))

# --- Groups of KIP-848: G-09, G-10, K-13, K-14, K-15

BEAT, BEATEN = messages.ConsumerGroupHeartbeatRequest, messages.ConsumerGroupHeartbeatResponse
WHOLE: dict[str, Any] = {"rebalance_timeout_ms": 1_000, "subscribed_topic_names": ["t"], "topic_partitions": []}


def _beat(one: Guest, at_ms: float, epoch: int, told: int, asked: dict[str, Any] | None = None, **answer: Any) -> None:
    """The guest sends a heartbeat with this epoch, and is told another one."""
    interval_ms = 0 if answer.get("error_code") else 5_000
    values: dict[str, Any] = {"member_id": "m", "member_epoch": told, "heartbeat_interval_ms": interval_ms} | answer
    one.exchange(at_ms, Api.CONSUMER_GROUP_HEARTBEAT, 0, BEAT("g", "m", epoch, **(WHOLE | (asked or {}))), BEATEN(**values))


def _beats(*steps: tuple[int, int, int]) -> Callable[[Guest], None]:
    """Heartbeats: the epoch, and the epoch and error that are told."""

    def visit(one: Guest) -> None:
        for number, (epoch, told, error) in enumerate(steps):
            _beat(one, number, epoch, told, error_code=error)

    return visit


def _assigned(*partitions: int) -> Any:
    return BEATEN.Assignment([BEATEN.TopicPartitions(bytes(range(16)), list(partitions))])


FENCED = 110
guest("G-09", "a member gets a partition twice", edge=True)(lambda one: _beat(one, 0, 0, 1, assignment=_assigned(0, 0)))
guest("G-09", "a member is to send no heartbeats")(lambda one: _beat(one, 0, 0, 1, heartbeat_interval_ms=0))
guest("G-09", "a member gets two partitions", allowed=True)(lambda one: _beat(one, 0, 0, 1, assignment=_assigned(0, 1)))
guest("G-10", "a member gets an epoch one below its own", edge=True)(_beats((0, 3, 0), (3, 2, 0)))
guest("G-10", "a member joins and gets epoch 0")(_beats((0, 0, 0)))
guest("G-10", "a member gets a higher epoch, and leaves", allowed=True)(_beats((0, 3, 0), (3, 9, 0), (-1, -1, 0)))
guest("K-13", "a member joins without a rebalance timeout", edge=True)(lambda one: _beat(one, 0, 0, 1, {"rebalance_timeout_ms": -1}))
guest("K-13", "a member joins without topics")(lambda one: _beat(one, 0, 0, 1, {"subscribed_topic_names": None}))
guest("K-13", "a member goes on without topics", allowed=True)(lambda one: _beat(one, 0, 1, 1, {"subscribed_topic_names": None}))
guest("K-14", "the epoch of a member falls by one", edge=True)(_beats((0, 3, 0), (3, 3, 0), (2, 3, 0)))
guest("K-14", "the epoch of a member is far above what it was told")(_beats((0, 3, 0), (300, 300, 0)))
guest("K-14", "a member repeats its epoch, and joins again", allowed=True)(_beats((0, 3, 0), (3, 3, 0), (3, 3, 0), (0, 4, 0)))
guest("K-15", "a member goes on after it was fenced", edge=True)(_beats((0, 3, 0), (3, 0, FENCED), (3, 0, FENCED)))
guest("K-15", "a member goes on after nobody knew it")(_beats((0, 3, 0), (3, 0, 25), (3, 0, 25)))
guest("K-15", "a member joins again after it was fenced", allowed=True)(_beats((0, 3, 0), (3, 0, FENCED), (0, 4, 0)))

# --- W-13


def _missing(length: int | None) -> Callable[[TrueRun], Edits]:
    """A fetch of a follower, and its answer, are not in the journal of the leader; or it has so many bytes more there."""

    def make(world: TrueRun) -> Edits:
        asked = _fetches(world)[2]
        if length is None:
            return {place(row): neutral(row) for row in (asked, world.answer(asked))}
        body = bytes(messages.encode(body_of(asked).message(), asked["api_version"]))
        return {place(asked): with_body(asked, body + bytes(length))}

    return make


injected("W-13", "a request is one byte longer where it arrives", story="clients", edge=True)(_missing(1))
injected("W-13", "a request does not arrive", story="clients")(_missing(None))
