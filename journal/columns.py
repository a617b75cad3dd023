"""The columns of a journal: the table `frames`, one row for each frame, and the table `events`, one row for everything else.

Both tables of a broker share one counter, `seq`, without gaps: a missing number is a lost row. This file only imports the standard library,
so it can be used without Arrow and Spark. Types have Arrow's names.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag
from typing import NamedTuple

VERSION = 1
"""Version of the set of columns. It increases if a column is removed or gets another meaning. Readers fill columns that an older version
does not have with null.
"""


class Column(NamedTuple):
    """A column of a table."""

    name: str
    type: str
    nullable: bool
    meaning: str


class Direction(IntEnum):
    """Direction of a frame, from the point of view of the broker that journals it."""

    REQUEST_IN = 0
    RESPONSE_OUT = 1
    REQUEST_OUT = 2
    RESPONSE_IN = 3


class Flag(IntFlag):
    """Properties of a frame."""

    NO_RESPONSE = 1
    """A request without a response: Produce with acks=0."""
    CUT = 2
    """Not all bytes of the frame were written. Its first four bytes still have the original length."""
    MASKED = 4
    """Secrets are overwritten with `*`, byte by byte."""
    RAW_TOKEN = 8
    """Not a request or response of Kafka, but a SASL token after SaslHandshake v0. Its bytes are never written."""
    UNMATCHED = 16
    """A response that does not belong to an open request of its connection."""


WHERE = (
    Column("run_id", "string", False, "id of one run of a cluster, the same for all its brokers"),
    Column("node_id", "int32", False, "the broker that wrote the row"),
    Column("process", "int32", False, "number of starts of this broker in this run, from 1"),
    Column("seq", "int64", False, "number of the row of this broker in this run, from 1, for frames and events together"),
    Column("ts_ns", "int64", False, "wall clock, nanoseconds since 1970"),
    Column("mono_ns", "int64", False, "monotonic clock of the broker, nanoseconds; only differences within one process have a meaning"),
)

FRAMES = (
    *WHERE,
    Column("conn_id", "int64", False, "number of the connection in this process, from 1"),
    Column("dir", "int8", False, "`Direction`"),
    Column("kind", "string", False, "type of the connection: accepted, channel, to controller, to leader, to broker"),
    Column("listener", "string", True, "name of the listener that accepted the connection"),
    Column("peer", "string", False, "host:port of the other end"),
    Column("peer_id", "int32", True, "broker id of the other end, if this broker opened the connection to a known broker"),
    Column("principal", "string", True, "principal that authenticated on the connection"),
    Column("client_id", "string", True, "client id of the request; a response has that of its request"),
    Column("client_sw", "string", True, "client software name/version, from the ApiVersions request of the connection"),
    Column("api_key", "int16", True, "null if the request of a response is not known, or the bytes are not a request"),
    Column("api_version", "int16", True, "null like api_key"),
    Column("correlation_id", "int32", True, "null if the frame is too short"),
    Column("latency_ns", "int64", True, "for a response: time since its request was read or written"),
    Column("flags", "int32", False, "`Flag`"),
    Column(
        "cause_seq",
        "int64",
        True,
        "for a response the row of its request, for a request of the controller the row of its batch, otherwise null",
    ),
    Column("frame", "binary", False, "the bytes, including the length of four bytes"),
)

EVENTS = (
    *WHERE,
    Column("kind", "string", False, "see `docs/journal.md`"),
    Column("conn_id", "int64", True, "the connection that the event is about"),
    Column("topic", "string", True, ""),
    Column("topic_id", "string", True, "base64url, as Kafka writes it"),
    Column("partition", "int32", True, ""),
    Column("broker", "int32", True, "the broker that the event is about"),
    Column("controller_epoch", "int32", True, ""),
    Column("leader_epoch", "int32", True, ""),
    Column("partition_epoch", "int32", True, "version of the partition's state znode"),
    Column("cause_seq", "int64", True, "the row that caused this one"),
    Column("input", "string", True, "JSON"),
    Column("output", "string", True, "JSON"),
)
