"""The tables of silver and gold as data.

A table has a name, columns, and a sentence that says what a row is. Types have Arrow's names; `ddl` makes a
schema of Spark from them. `docs/pipeline_tables.md` shows these tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from klamm.journal.columns import EVENTS, FRAMES, Column, Direction
from klamm.pipeline.lake.column_types import spark_type
from klamm.pipeline.lake.field_columns import FIELDS


class Table(NamedTuple):
    """A table of the lake: its layer (bronze, silver, gold), its name, its columns, and what a row is."""

    layer: str
    name: str
    columns: tuple[Column, ...]
    meaning: str
    frequent: tuple[int, ...] = ()
    """Keys of APIs whose rows have row groups of their own, because they are nearly all rows of a long journal."""

    @property
    def path(self) -> str:
        """Below the lake: `silver/messages`."""
        return f"{self.layer}/{self.name}"

    @property
    def names(self) -> tuple[str, ...]:
        """Of the columns, in order."""
        return tuple(column.name for column in self.columns)

    @property
    def judged(self) -> tuple[Column, ...]:
        """The columns without those for people."""
        return tuple(column for column in self.columns if self.layer != "silver" or column.name not in FOR_PEOPLE)


def ddl(columns: Sequence[Column]) -> str:
    """The columns as the text of a Spark schema."""
    return ", ".join(f"{column.name} {spark_type(column.type)}" for column in columns)


def _some(names: str) -> tuple[Column, ...]:
    by_name = {column.name: column for column in FRAMES}
    return tuple(by_name[name] for name in names.split())


NAMED = {
    "ts_ns": Column("ts", "timestamp", False, "`ts_ns` as a time, in microseconds"),
    "dir": Column("direction", "string", True, "`dir` in words: request in, response out, request out, response in"),
    "api_key": Column("api", "string", True, "the name of the API; null where the key is unknown"),
}
"""Column → the column for people that follows it where `_with_names` adds it."""

FOR_PEOPLE = frozenset(column.name for column in NAMED.values())
"""Columns that are made from others when a file of silver is written. No rule reads them."""


def _with_names(columns: Sequence[Column], *named: str) -> tuple[Column, ...]:
    return tuple(each for column in columns for each in ((column, NAMED[column.name]) if column.name in named else (column,)))


def direction_words(direction: Direction) -> str:
    """`request in`, `response out`, `request out`, `response in`."""
    return direction.name.lower().replace("_", " ")


HEADER = tuple(column for column in FRAMES if column.name != "frame")
"""Columns that the journal fills without decoding a frame."""

SIZES = (
    Column("frame_bytes", "int32", False, "how many bytes of the frame the journal has, the length of four bytes included"),
    Column("length_prefix", "int32", True, "the frame's first four bytes: how many bytes followed on the wire"),
)

_PLACE = (
    *_some("run_id node_id process seq ts_ns conn_id dir kind peer_id api_key api_version"),
    Column("request_seq", "int64", True, "of a response that of its request; null for a request"),
    *_some("cause_seq flags"),
)
"""The first columns of all rows that are made from a frame."""

MESSAGES = Table("silver", "messages", (
    *_with_names(HEADER, "ts_ns", "dir", "api_key"),
    *SIZES,
    Column("body_json", "string", True, "JSON: the message, fields named as Kafka's JSON names them; null where only the header was kept. "
           "`records` are their size and first 61 bytes, and, if batches of transactions are among them, offset and producer id of each "
           "batch of records (`batches`) and each marker (`markers`); subscriptions and assignments of a group's members are their size, a "
           "checksum and, of consumers, topics and partitions"),
    Column("bytes_left", "int32", True, "bytes behind the body, which Kafka ignores in a request; null for a frame that was cut"),
    Column("err", "string", True, "what is wrong with a frame that decodes: its body is too long and left out, or, in a sample of what "
           "brokers sent, it has other bytes when it is encoded again"),
    Column("error_code", "int16", True, "of a response, the error code at its top; null where it has none"),
    Column("errors", "int32", True, "of a response, how many error codes other than 0 it holds; of one that was cut (`flags` 2), at least"),
    Column("throttle_ms", "int32", True, "of a response, its throttle time; null where it has none"),
    Column("session_id", "int32", True, "of Fetch, the id of the fetch session"),
    Column("session_epoch", "int32", True, "of a Fetch request, the epoch in its fetch session"),
    Column("replica_id", "int32", True, "of a Fetch request, the broker that fetches; null or -1 for a consumer"),
), "a frame that decodes")

FREQUENT = (0, 1)
"""Produce and Fetch."""

FIELD_TABLE = Table("silver", "fields", (
    *_some("run_id node_id process seq ts_ns conn_id dir listener peer_id client_id api_key api_version correlation_id cause_seq flags"),
    Column("error_code", "int16", True, "of a response, the error code at its top"),
    Column("errors", "int32", True, "of a response, how many error codes other than 0 it holds; of one that was cut (`flags` 2), at least"),
    *FIELDS,
), "what rules read of a body: a frame of the APIs named below; of Fetch only what matters to `read_committed`, of ApiVersions only the "
   "first of equal responses", frequent=FREQUENT)

QUARANTINE = Table("silver", "quarantine", (
    *_with_names(HEADER, "ts_ns", "dir", "api_key"),
    *SIZES,
    Column("reason", "string", False, "one of the reasons at the end of the page"),
    Column("detail", "string", True, "what the decoder said"),
    Column("bytes_left", "int32", True, "bytes behind the body"),
    Column("frame", "binary", False, "as journaled"),
), "a frame that does not decode")

PARTITION_STATE = Table("silver", "partition_state", (
    *_PLACE,
    Column("controller_id", "int32", True, "as the frame says"),
    Column("controller_epoch", "int32", True, "of the frame; Metadata has none"),
    Column("broker_epoch", "int64", True, "of the receiver, as the controller knew it"),
    Column("topic", "string", True, ""),
    Column("topic_id", "string", True, "base64url; null where the version has none"),
    Column("partition", "int32", False, ""),
    Column("leader", "int32", True, "-1: none; -2: the topic is being deleted"),
    Column("leader_epoch", "int32", True, ""),
    Column("isr", "list<int32>", True, ""),
    Column("replicas", "list<int32>", True, ""),
    Column("offline", "list<int32>", True, ""),
    Column("adding", "list<int32>", True, ""),
    Column("removing", "list<int32>", True, ""),
    Column("partition_epoch", "int32", True, "the version of the partition's state znode"),
    Column("recovery", "int32", True, "1: after an unclean election"),
    Column("is_new", "bool", True, "LeaderAndIsr"),
    Column("deleting", "bool", True, "StopReplica: the replica is deleted, not only stopped"),
    Column("error_code", "int16", True, "Metadata: of the partition"),
), "a partition in a LeaderAndIsr, UpdateMetadata or StopReplica request or a Metadata response")

BROKER_STATE = Table("silver", "broker_state", (
    *_PLACE,
    Column("controller_id", "int32", True, "as the frame says"),
    Column("controller_epoch", "int32", True, "of UpdateMetadata"),
    Column("broker_id", "int32", False, ""),
    Column("epoch", "int64", True, "of the receiver, in UpdateMetadata; no version says that of the broker listed"),
    Column("host", "string", True, "of the first endpoint"),
    Column("port", "int32", True, "of the first endpoint"),
    Column("endpoints", "string", True, "JSON: all endpoints; Metadata and UpdateMetadata 0 have none"),
    Column("rack", "string", True, ""),
    Column("source", "string", False, "UpdateMetadata or Metadata"),
    Column("cluster_id", "string", True, "as Metadata says"),
), "a broker listed in an UpdateMetadata request or a Metadata response")

API_ERRORS = Table("silver", "api_errors", (
    *_with_names(_PLACE, "dir", "api_key"),
    *_some("client_id client_sw"),
    Column("path", "string", False, "of the field, `topics[].partitions[].errorCode`"),
    Column("error_code", "int16", False, "never 0"),
    Column("count", "int32", False, "how often in this response; in one that was cut (`flags` 2), at least"),
), "an error code in a response")

EVENT_TABLE = Table("silver", "events", _with_names(EVENTS, "ts_ns"), "an event, as journaled")

DECISIONS = Table("silver", "decisions", (
    *EVENTS[:6],
    *(column for column in EVENTS if column.name in ("controller_epoch", "cause_seq")),
    Column("rule", "string", False, "name of the pure function"),
    Column("partition_count", "int32", False, "how many partitions have this situation"),
    Column("partitions", "string", True, "JSON: [[topic, partition], …]"),
    Column("input", "string", False, "JSON: rule, situation and partitions"),
    Column("output", "string", True, "JSON: what the function returned"),
), "a decision about partitions in one and the same situation")

REASSIGN = Table("silver", "reassign", (
    *EVENTS[:6],
    *(column for column in EVENTS
      if column.name in ("kind", "topic", "topic_id", "partition", "broker", "controller_epoch", "leader_epoch", "cause_seq")),
    Column("phase", "string", True, "U, A1, A2, B1 to B9"),
    Column("step", "int64", True, "which execution: a phase out of order belongs to a later step"),
    Column("request", "string", True, "of a throttle: the request that asked for it"),
    Column("replicas", "list<int32>", True, "of an assignment"),
    Column("adding", "list<int32>", True, "of an assignment"),
    Column("removing", "list<int32>", True, "of an assignment"),
    Column("input", "string", True, "JSON, as journaled"),
    Column("output", "string", True, "JSON, as journaled"),
), "a phase of a reassignment, a change of an assignment, a step of a throttle")

WINDOW = Column(
    "window_ts_ns", "int64", True, "the beginning of the window that the row is about, in a run of more than one; null for its first"
)

LATENCY = Table("gold", "latency", (
    *_some("run_id node_id dir api_key"),
    Column("api", "string", True, ""),
    Column("count", "int64", False, "responses"),
    Column("p50_ns", "int64", False, ""),
    Column("p99_ns", "int64", False, ""),
    Column("p999_ns", "int64", False, ""),
    Column("max_ns", "int64", False, ""),
    WINDOW,
), "latencies of an API's responses at a broker: sent (1) or received (3)")

API_MATRIX = Table("gold", "api_matrix", (
    *_some("run_id node_id client_sw client_id api_key"),
    Column("api", "string", True, "null where the key is unknown"),
    *_some("api_version"),
    Column("requests", "int64", False, ""),
    Column("responses", "int64", False, ""),
    Column("errors", "int64", False, "responses with an error code other than 0"),
    Column("outside", "int64", False, "requests whose version the broker did not advertise"),
    Column("quarantined", "int64", False, "requests and responses that do not decode"),
    WINDOW,
), "what a client used of an API in one version, at one broker")

LEADER_TIMELINE = Table("gold", "leader_timeline", (
    *_some("run_id"),
    Column("topic", "string", False, ""),
    Column("topic_id", "string", True, ""),
    Column("partition", "int32", False, ""),
    Column("leader", "int32", False, ""),
    Column("leader_epoch", "int32", False, ""),
    Column("controller_epoch", "int32", True, "of the frame that said it first"),
    Column("node_id", "int32", False, "the broker whose journal has that frame"),
    Column("seq", "int64", False, "that frame"),
    Column("from_ts_ns", "int64", False, ""),
    Column("to_ts_ns", "int64", True, "when the next one was first said, or that the topic is being deleted; null for the last one of a "
           "topic that is there"),
), "a leader of a partition in one leader epoch, as the first LeaderAndIsr or UpdateMetadata request said it")

REASSIGN_SPANS = Table("gold", "reassign_spans", (
    *_some("run_id node_id"),
    Column("topic", "string", False, ""),
    Column("partition", "int32", False, ""),
    Column("step", "int64", True, "which execution"),
    Column("phase", "string", False, "U, A1, A2, B1 to B9"),
    *_some("seq"),
    Column("from_ts_ns", "int64", False, "when the phase before it, or else the controller's event, was done"),
    Column("to_ts_ns", "int64", False, "when the phase was done"),
    Column("throttle", "bool", False, "a throttle of the topic was set when the phase was done"),
), "a phase of the reassignment of a partition")

CLIENT_SCORECARD = Table("gold", "client_scorecard", (
    *_some("run_id client_sw client_id"),
    Column("connections", "int64", False, ""),
    Column("requests", "int64", False, ""),
    Column("responses", "int64", False, ""),
    Column("no_response", "int64", False, "requests that get none: Produce with acks=0"),
    Column("errors", "int64", False, "responses with an error code other than 0"),
    Column("surplus", "int64", False, "requests with bytes behind the body"),
    Column("quarantined", "int64", False, "requests that do not decode"),
    Column("apis", "int64", False, "different APIs used"),
    Column("p50_ns", "int64", True, "latency of the responses"),
    Column("p99_ns", "int64", True, "latency of the responses"),
    Column("first_ts_ns", "int64", False, ""),
    Column("last_ts_ns", "int64", False, ""),
    WINDOW,
), "a client: what it did on the connections that brokers accepted")

GROUP_GENERATIONS = Table("gold", "group_generations", (
    *_some("run_id node_id process"),
    Column("group_id", "string", False, ""),
    Column("generation", "int32", False, ""),
    Column("protocol_type", "string", True, "consumer, connect, …"),
    Column("protocol", "string", True, "the assignor that the coordinator chose"),
    Column("leader", "string", True, "member id"),
    Column("members", "int32", False, "that the leader was told of, or else that got a JoinGroup response"),
    Column("synced", "int32", False, "member ids that got their assignment: a static member that comes back has another one"),
    Column("partitions", "int32", True, "that the leader of a consumer group assigned; null where no assignment is known"),
    Column("seq", "int64", False, "the first JoinGroup response with this generation"),
    Column("from_ts_ns", "int64", False, "the first JoinGroup request that this generation answers: a rebalance had begun by then"),
    Column("joined_ts_ns", "int64", False, "the first JoinGroup response"),
    Column("stable_ts_ns", "int64", True, "the first member got its assignment; null if none did"),
    Column("to_ts_ns", "int64", True, "when the next generation had its members, or the group none: its last member left, or its session "
           "expired, or the group was deleted; null if the journal shows none of it"),
), "a generation of a group with members, as its coordinator told it in JoinGroup responses; brokers whose journal lacks rows are left out")

OFFSET_COMMITS = Table("gold", "offset_commits", (
    *_some("run_id node_id seq ts_ns client_id"),
    Column("group_id", "string", True, ""),
    Column("member_id", "string", True, "empty for who is no member"),
    Column("generation", "int32", True, "-1 for who is no member; null in version 0, which writes to ZooKeeper"),
    Column("topic", "string", True, ""),
    Column("partition", "int32", True, ""),
    Column("committed_offset", "int64", True, ""),
    Column("error_code", "int16", True, "null without a response"),
), "a partition in an OffsetCommit request; brokers whose journal lacks rows are left out")

TRANSACTIONS = Table("gold", "transactions", (
    *_some("run_id node_id process"),
    Column("transactional_id", "string", False, ""),
    Column("producer_id", "int64", False, ""),
    Column("producer_epoch", "int32", False, ""),
    Column("partitions", "string", False, "that AddPartitionsToTxn added: `t-0, t-1`"),
    Column("groups", "int64", False, "AddOffsetsToTxn requests that succeeded"),
    Column("outcome", "string", True, "commit or abort, as EndTxn said; fenced: aborted with the next epoch, because another producer came "
           "or the transaction was open for too long; null if the journal does not show how it ended"),
    Column("seq", "int64", False, "the first request that added something"),
    Column("end_seq", "int64", True, "the EndTxn request that succeeded"),
    Column("from_ts_ns", "int64", False, "the time of the first request that added something"),
    Column("end_ts_ns", "int64", True, "the response to EndTxn: the outcome was in the log by then, the markers were not"),
), "a transaction, as one coordinator told it; brokers whose journal lacks rows are left out, and with them the run if they coordinate")

VERDICTS = Table("gold", "verdicts", (
    *_some("run_id"),
    Column("rule", "string", False, "see `spec/conformance.md`"),
    Column("severity", "string", False, "error or warn"),
    Column("node_id", "int32", True, ""),
    Column("conn_id", "int64", True, ""),
    Column("seq", "int64", True, "the row that broke the rule"),
    Column("detail", "string", True, ""),
    Column("evidence", "list<struct<node_id int32, seq int64>>", True, "the rows that prove it: broker and seq of each"),
), "a violation of a rule")

RULE_STATS = Table("gold", "rule_stats", (
    *_some("run_id"),
    Column("rule", "string", False, ""),
    Column("checked", "int64", False, "how often the rule had something to judge; 0: not exercised"),
    Column("violated", "int64", False, ""),
    Column("lacks", "string", False, "what the journals do not show and the rule needs: it is not applicable; else empty"),
    WINDOW,
), "how often a rule was checked in a run")

BRONZE = (
    Table("bronze", "frames", (*FRAMES, Column("segment", "string", False, "name of the journal's file")), "a frame, as journaled"),
    Table("bronze", "events", (*EVENTS, Column("segment", "string", False, "name of the journal's file")), "an event, as journaled"),
)
SILVER = (MESSAGES, FIELD_TABLE, QUARANTINE, PARTITION_STATE, BROKER_STATE, API_ERRORS, EVENT_TABLE, DECISIONS, REASSIGN)
GOLD = (
    LATENCY, API_MATRIX, LEADER_TIMELINE, REASSIGN_SPANS, CLIENT_SCORECARD, GROUP_GENERATIONS, OFFSET_COMMITS, TRANSACTIONS, VERDICTS,
    RULE_STATS,
)

HEADERS = "headers"

HEADERS_VIEW = """
SELECT {names}, frame_bytes, length_prefix, bytes_left, err, error_code, errors, throttle_ms, CAST(NULL AS STRING) AS reason,
    session_id, session_epoch, replica_id
FROM messages
UNION ALL
SELECT {names}, frame_bytes, length_prefix, bytes_left, detail, CAST(NULL AS SMALLINT), CAST(NULL AS INT), CAST(NULL AS INT), reason,
    CAST(NULL AS INT), CAST(NULL AS INT), CAST(NULL AS INT)
FROM quarantine
"""
