"""The columns of a journal: the table `frames`, one row for each frame, and the table `events`, one row for everything else.

Both tables of one broker share one counter, `seq`, without gaps: a missing number is a lost row. This file imports nothing, so it may be
used where neither Arrow nor Spark is installed. Types are named as Arrow names them.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag
from typing import NamedTuple

VERSION = 1
"""Of the set of columns. It rises when a column changes its meaning or goes; readers fill columns that an older set lacks with null."""


class Column(NamedTuple):
    """A column of a table."""

    name: str
    type: str
    nullable: bool
    meaning: str


class Direction(IntEnum):
    """Which way a frame went, seen from the broker that journals it."""

    REQUEST_IN = 0
    RESPONSE_OUT = 1
    REQUEST_OUT = 2
    RESPONSE_IN = 3


class Flag(IntFlag):
    """What is special about a frame."""

    NO_RESPONSE = 1
    """A request that gets none: Produce with acks=0."""
    CUT = 2
    """Not all bytes of the frame are there; its first four still say how many there were."""
    MASKED = 4
    """Secrets are overwritten with `*`, byte by byte."""
    RAW_TOKEN = 8
    """No request or response of Kafka: a SASL token after SaslHandshake v0. Its bytes are never written."""
    UNMATCHED = 16
    """A response to no request that is open on its connection."""


WHERE = (
    Column("run_id", "string", False, "one life of a cluster; all its brokers share it"),
    Column("node_id", "int32", False, "the broker that wrote the row"),
    Column("process", "int32", False, "counts the starts of this broker in this run, from 1"),
    Column("seq", "int64", False, "counts the rows of this broker in this run, from 1, frames and events together"),
    Column("ts_ns", "int64", False, "the wall clock, nanoseconds since 1970"),
    Column("mono_ns", "int64", False, "the broker's monotonic clock, nanoseconds; only differences inside one process mean something"),
)

FRAMES = (
    *WHERE,
    Column("conn_id", "int64", False, "counts the connections of this process, from 1"),
    Column("dir", "int8", False, "`Direction`"),
    Column("kind", "string", False, "what the connection is for: accepted, channel, to controller, to leader"),
    Column("listener", "string", True, "name of the listener that accepted the connection"),
    Column("peer", "string", False, "host:port of the other end"),
    Column("peer_id", "int32", True, "broker id of the other end, where this broker opened the connection to a known one"),
    Column("principal", "string", True, "who authenticated on the connection"),
    Column("client_id", "string", True, "of the request; a response has that of its request"),
    Column("client_sw", "string", True, "name/version, as the connection's ApiVersions request gave them"),
    Column("api_key", "int16", True, "null where no request is known for a response, or bytes are no request"),
    Column("api_version", "int16", True, "as api_key"),
    Column("correlation_id", "int32", True, "null where the frame is too short for one"),
    Column("latency_ns", "int64", True, "of a response: since its request was read or written"),
    Column("flags", "int32", False, "`Flag`"),
    Column("cause_seq", "int64", True, "of a response its request; of a controller's request its batch; else null"),
    Column("frame", "binary", False, "the bytes, the length of four bytes included"),
)

EVENTS = (
    *WHERE,
    Column("kind", "string", False, "see `docs/journal.md`"),
    Column("conn_id", "int64", True, "the connection it is about"),
    Column("topic", "string", True, ""),
    Column("topic_id", "string", True, "base64url, as Kafka writes it"),
    Column("partition", "int32", True, ""),
    Column("broker", "int32", True, "the broker it is about"),
    Column("controller_epoch", "int32", True, ""),
    Column("leader_epoch", "int32", True, ""),
    Column("partition_epoch", "int32", True, "the version of the partition's state znode"),
    Column("cause_seq", "int64", True, "the row that it follows from"),
    Column("input", "string", True, "JSON"),
    Column("output", "string", True, "JSON"),
)
