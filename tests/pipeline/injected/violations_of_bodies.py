"""Violations of the rules about single bodies, and counterparts: a table of changes of one field of one frame in the stories."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from klamm.protocol import messages
from klamm.protocol.apis import ApiKey as Api
from klamm.tests.pipeline.injected.injections import REQUEST_IN, RESPONSE_OUT, Row, change, injected
from klamm.tests.pipeline.injected.single_changes import always, setting

NO_ID = bytes(16)
VIOLATION, EDGE, ALLOWED = range(3)

Wanted = Callable[[Any, Row], bool]
How = Callable[[Any], Any]


def within(*path: str, **values: Any) -> How:
    """Set attributes of the first thing at the end of a path of lists."""

    def apply(body: Any) -> None:
        for name in path:
            body = getattr(body, name)[0]
        setting(**values)(body)

    return apply


def doubled(*path: str, **values: Any) -> How:
    """Name the first thing of a list twice; the second time with these values."""

    def apply(body: Any) -> None:
        for name in path[:-1]:
            body = getattr(body, name)[0]
        rows = getattr(body, path[-1])
        again = type(rows[0])(rows[0].message())
        setting(**values)(again)
        rows.append(again)

    return apply


def has(*path: str) -> Wanted:
    """The lists of a path are not empty."""

    def is_wanted(body: Any, row: Row) -> bool:
        for name in path:
            if not getattr(body, name):
                return False
            body = getattr(body, name)[0]
        return True

    return is_wanted


def by(client: str, wanted: Wanted = always) -> Wanted:
    """A frame of a connection of this client."""
    return lambda body, row: row["client_id"] == client and wanted(body, row)


def code(error: int, wanted: Wanted = always) -> Wanted:
    """A response with this error code."""
    return lambda body, row: body.error_code == error and wanted(body, row)


def bytes_at(place: int, some: bytes) -> Callable[[bytes], bytes]:
    return lambda data: bytes(data[:place]) + some + bytes(data[place + len(some):])


def advertised(key: int, **values: Any) -> How:
    """Change what ApiVersions says of an API."""

    def apply(body: Any) -> None:
        setting(**values)(next(row for row in body.api_keys if row.api_key == key))

    return apply


def without(key: int) -> How:
    """Leave an API out of ApiVersions."""

    def apply(body: Any) -> None:
        body.api_keys = [row for row in body.api_keys if row.api_key != key]

    return apply


def _finalized(level: int) -> How:
    form = messages.ApiVersionsResponse
    return setting(
        supported_features=[form.SupportedFeatureKey("f", 1, 2)], finalized_features=[form.FinalizedFeatureKey("f", level, 1)]
    )


BATCH = ("topic_data", "partition_data")
ANSWERED = ("responses", "partition_responses")
FETCHES, FETCHED = ("topics", "partitions"), ("responses", "partitions")
ROWS = ("topics", "partitions")
GROUPS = ("groups", "topics", "partitions")


def _with_records(body: Any, row: Row) -> bool:
    return any(part.records for topic in body.responses for part in topic.partitions)


def _records(how: Callable[[bytes], bytes]) -> How:
    """Change the records of the first partition that has some."""

    def apply(body: Any) -> None:
        part = next(part for topic in body.responses for part in topic.partitions if part.records)
        part.records = how(part.records)

    return apply


def _without_error(body: Any, row: Row) -> bool:
    return has(*FETCHED)(body, row) and body.responses[0].partitions[0].error_code == 0


def _has_offset(body: Any, row: Row) -> bool:
    return has(*GROUPS)(body, row) and body.groups[0].topics[0].partitions[0].committed_offset >= 0


def _has_none(body: Any, row: Row) -> bool:
    return has(*GROUPS)(body, row) and body.groups[0].topics[0].partitions[0].committed_offset < 0


def _is_leader(body: Any, row: Row) -> bool:
    return len(body.members) > 1


CHANGES: tuple[tuple[str, int, str, int, int, Wanted, How], ...] = (
    ("K-04", EDGE, "a batch has magic 1", Api.PRODUCE, REQUEST_IN, always, within(*BATCH, records=bytes_at(16, b"\1"))),
    ("K-04", VIOLATION, "a batch is there twice", Api.PRODUCE, REQUEST_IN, always, within(*BATCH, records=lambda data: bytes(data) * 2)),
    ("K-04", ALLOWED, "a batch has other attributes", Api.PRODUCE, REQUEST_IN, always, within(*BATCH, records=bytes_at(22, b"\x28"))),
    ("K-05", EDGE, "a consumer fetches from offset -1", Api.FETCH, REQUEST_IN, by("rdkafka", has(*FETCHES)),
     within(*FETCHES, fetch_offset=-1)),
    ("K-05", VIOLATION, "a consumer fetches a topic whose id is zero", Api.FETCH, REQUEST_IN, by("rdkafka", has(*FETCHES)),
     within("topics", topic_id=NO_ID)),
    ("K-05", ALLOWED, "a consumer fetches far behind the end", Api.FETCH, REQUEST_IN, by("rdkafka", has(*FETCHES)),
     within(*FETCHES, fetch_offset=1 << 40)),
    ("K-06", EDGE, "a subscription lacks its last byte", Api.JOIN_GROUP, REQUEST_IN, by("group-range"),
     within("protocols", metadata=lambda data: bytes(data[:-1]))),
    ("K-06", VIOLATION, "a subscription is three bytes", Api.JOIN_GROUP, REQUEST_IN, by("group-range"),
     within("protocols", metadata=b"\0\1\0")),
    ("K-06", ALLOWED, "another kind of members has no subscription", Api.JOIN_GROUP, REQUEST_IN, by("group-static"),
     lambda body: (setting(protocol_type="connect")(body), within("protocols", metadata=b"\xff")(body))[0]),
    ("K-07", EDGE, "a consumer commits offset -1", Api.OFFSET_COMMIT, REQUEST_IN, by("group-static", has(*ROWS)),
     within(*ROWS, committed_offset=-1)),
    ("K-07", VIOLATION, "a consumer commits with leader epoch -2", Api.OFFSET_COMMIT, REQUEST_IN, by("group-range", has(*ROWS)),
     within(*ROWS, committed_leader_epoch=-2)),
    ("K-07", ALLOWED, "a consumer commits without a leader epoch", Api.OFFSET_COMMIT, REQUEST_IN, by("group-range", has(*ROWS)),
     within(*ROWS, committed_leader_epoch=-1)),
    ("F-01", EDGE, "a consumer is told no high watermark", Api.FETCH, RESPONSE_OUT, _without_error, within(*FETCHED, high_watermark=-1)),
    ("F-01", VIOLATION, "a consumer is told no log start offset", Api.FETCH, RESPONSE_OUT,
     _without_error, within(*FETCHED, log_start_offset=-1)),
    ("F-03", EDGE, "a consumer gets a batch at offset -1", Api.FETCH, RESPONSE_OUT, by("rdkafka", _with_records),
     _records(bytes_at(0, b"\xff" * 8))),
    ("F-03", VIOLATION, "a consumer gets a batch that ends before it begins", Api.FETCH, RESPONSE_OUT, by("rdkafka", _with_records),
     _records(bytes_at(23, b"\xff" * 4))),
    ("O-01", EDGE, "what was produced has no base offset", Api.PRODUCE, RESPONSE_OUT, always, within(*ANSWERED, base_offset=-1)),
    ("O-01", VIOLATION, "what was refused has a base offset", Api.PRODUCE, RESPONSE_OUT, always, within(*ANSWERED, error_code=10)),
    ("O-01", ALLOWED, "what was produced is not with all replicas in time", Api.PRODUCE, RESPONSE_OUT, always,
     within(*ANSWERED, error_code=7)),
    ("O-02", EDGE, "an offset is -2", Api.LIST_OFFSETS, RESPONSE_OUT, always, within(*ROWS, offset=-2)),
    ("O-02", VIOLATION, "an offset comes with an error", Api.LIST_OFFSETS, RESPONSE_OUT, always, within(*ROWS, error_code=6)),
    ("O-02", ALLOWED, "an offset comes without a leader epoch", Api.LIST_OFFSETS, RESPONSE_OUT, always, within(*ROWS, leader_epoch=-1)),
    ("O-04", EDGE, "an offset that is not there has a leader epoch", Api.OFFSET_FETCH, RESPONSE_OUT, _has_none,
     within(*GROUPS, committed_leader_epoch=0)),
    ("O-04", VIOLATION, "a committed offset comes with an error", Api.OFFSET_FETCH, RESPONSE_OUT, _has_offset,
     within(*GROUPS, error_code=3)),
    ("O-04", ALLOWED, "a committed offset comes without a leader epoch", Api.OFFSET_FETCH, RESPONSE_OUT, _has_offset,
     within(*GROUPS, committed_leader_epoch=-1)),
    ("M-01", EDGE, "a leader is the broker after the last", Api.METADATA, RESPONSE_OUT, has(*ROWS), within(*ROWS, leader_id=3)),
    ("M-01", VIOLATION, "the brokers are others than the leaders", Api.METADATA, RESPONSE_OUT, has(*ROWS),
     lambda body: [setting(node_id=90 + number)(row) for number, row in enumerate(body.brokers)] and None),
    ("M-02", EDGE, "a partition without an error has no leader", Api.METADATA, RESPONSE_OUT, has(*ROWS), within(*ROWS, leader_id=-1)),
    ("M-02", VIOLATION, "a partition without a leader has one", Api.METADATA, RESPONSE_OUT, has(*ROWS), within(*ROWS, error_code=5)),
    ("M-02", ALLOWED, "a partition has a leader and too few replicas", Api.METADATA, RESPONSE_OUT, has(*ROWS),
     within(*ROWS, error_code=9)),
    ("M-03", EDGE, "the partitions of a topic are not numbered to the end", Api.METADATA, RESPONSE_OUT, has(*ROWS),
     within(*ROWS, partition_index=lambda index: index + 99)),
    ("M-03", VIOLATION, "a partition is there twice", Api.METADATA, RESPONSE_OUT, has(*ROWS), doubled(*ROWS)),
    ("M-03", ALLOWED, "the partitions of a topic are in another order", Api.METADATA, RESPONSE_OUT, has(*ROWS),
     lambda body: body.topics[0].partitions.reverse()),
    ("M-05", EDGE, "a broker is at port 0", Api.METADATA, RESPONSE_OUT, has("brokers"), within("brokers", port=0)),
    ("M-05", VIOLATION, "a broker is there twice", Api.METADATA, RESPONSE_OUT, has("brokers"), doubled("brokers", port=1)),
    ("M-05", ALLOWED, "the brokers are in another order", Api.METADATA, RESPONSE_OUT, has("brokers"), lambda body: body.brokers.reverse()),
    ("M-06", EDGE, "a topic with an error has partitions", Api.METADATA, RESPONSE_OUT, has(*ROWS), within("topics", error_code=3)),
    ("M-06", VIOLATION, "one topic of two has no id", Api.METADATA, RESPONSE_OUT, has(*ROWS),
     doubled("topics", name="no id", topic_id=NO_ID, partitions=[])),
    ("M-06", ALLOWED, "a topic with an error has none", Api.METADATA, RESPONSE_OUT, has(*ROWS),
     within("topics", error_code=29, partitions=[])),
    ("M-08", EDGE, "a coordinator is at port 0", Api.FIND_COORDINATOR, RESPONSE_OUT, code(0), setting(port=0)),
    ("M-08", VIOLATION, "a coordinator comes with an error", Api.FIND_COORDINATOR, RESPONSE_OUT, code(0), setting(error_code=15)),
    ("M-08", ALLOWED, "there is no coordinator", Api.FIND_COORDINATOR, RESPONSE_OUT, code(0),
     setting(error_code=15, node_id=-1, host="", port=-1)),
    ("V-01", EDGE, "the lowest version is one above the highest", Api.API_VERSIONS, RESPONSE_OUT, code(0),
     advertised(Api.DESCRIBE_ACLS, min_version=4)),
    ("V-01", VIOLATION, "ApiVersions is not advertised", Api.API_VERSIONS, RESPONSE_OUT, code(0), without(Api.API_VERSIONS)),
    ("V-01", ALLOWED, "an API is not advertised", Api.API_VERSIONS, RESPONSE_OUT, code(0), without(Api.DESCRIBE_ACLS)),
    ("V-02", EDGE, "groups end one version before they can be static", Api.API_VERSIONS, RESPONSE_OUT, code(0),
     advertised(Api.LEAVE_GROUP, max_version=-1, min_version=-1)),
    ("V-02", VIOLATION, "transactions can begin, and not end", Api.API_VERSIONS, RESPONSE_OUT, code(0), without(Api.END_TXN)),
    ("V-02", ALLOWED, "delegation tokens end one version earlier", Api.API_VERSIONS, RESPONSE_OUT, code(0),
     advertised(Api.CREATE_DELEGATION_TOKEN, max_version=2)),
    ("V-03", EDGE, "a feature is finalized one above what is supported", Api.API_VERSIONS, RESPONSE_OUT, code(0), _finalized(3)),
    ("V-03", VIOLATION, "a feature is finalized far above what is supported", Api.API_VERSIONS, RESPONSE_OUT, code(0), _finalized(30)),
    ("V-03", ALLOWED, "a feature is finalized as far as it is supported", Api.API_VERSIONS, RESPONSE_OUT, code(0), _finalized(2)),
    ("G-08", EDGE, "a group begins with generation 0", Api.JOIN_GROUP, RESPONSE_OUT, by("group-static", code(0)), setting(generation_id=0)),
    ("G-08", VIOLATION, "a member is named twice", Api.JOIN_GROUP, RESPONSE_OUT, _is_leader,
     lambda body: setattr(body.members[1], "member_id", body.members[0].member_id)),
    ("G-08", ALLOWED, "a member is refused", Api.JOIN_GROUP, RESPONSE_OUT, code(79), setting(member_id="another")),
    ("T-07", EDGE, "a producer gets epoch -1", Api.INIT_PRODUCER_ID, RESPONSE_OUT, code(0), setting(producer_epoch=-1)),
    ("T-07", VIOLATION, "a producer gets an id with an error", Api.INIT_PRODUCER_ID, RESPONSE_OUT, code(0), setting(error_code=51)),
    ("T-07", ALLOWED, "a producer gets an error", Api.INIT_PRODUCER_ID, RESPONSE_OUT, code(0),
     setting(error_code=51, producer_id=-1, producer_epoch=-1)),
)
"""Rule, what it is, name, API, direction, which frame, and how it is changed."""


def _register(rule: str, kind: int, name: str, key: int, direction: int, wanted: Wanted, how: How) -> None:
    injected(rule, name, edge=kind == EDGE, allowed=kind == ALLOWED, story="clients")(
        lambda world: change(world, key, direction, wanted, how)
    )


for _change in CHANGES:
    _register(*_change)
