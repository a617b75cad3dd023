"""Types that controller, broker, ZooKeeper layer and server share, and the special numbers of the protocol.

Epochs are int32 and increase by one: the controller epoch with each controller election, the leader epoch of a partition with each leader
or ISR change. A partition epoch is the version of the partition's state znode, a broker epoch the czxid of the broker's znode (int64). A
topic id is a uuid of 16 bytes.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

NO_LEADER = -1
LEADER_DURING_DELETE = -2
"""Instead of a leader in UpdateMetadata: the topic is being deleted."""

NO_EPOCH = -1
EPOCH_DURING_DELETE = -2
"""Instead of a leader epoch in StopReplica: the topic is being deleted, whatever the epoch."""

ZERO_UUID = bytes(16)
"""Instead of a topic id: the topic has none."""

Ints = tuple[int, ...]

_LAST_EPOCH = 2**31 - 1


def next_epoch(epoch: int) -> int:
    """The controller or leader epoch after this one: an int32 that wraps around, as in Kafka."""
    return epoch + 1 if epoch != _LAST_EPOCH else -_LAST_EPOCH - 1


class TopicPartition(NamedTuple):
    """The name of a partition."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class SecurityProtocol(IntEnum):
    """The security protocol of a listener. Messages have the number, configs and znodes have the name."""

    PLAINTEXT = 0
    SSL = 1
    SASL_PLAINTEXT = 2
    SASL_SSL = 3


class Endpoint(NamedTuple):
    """Address of a broker's listener. `security_protocol` is a `SecurityProtocol`, or the number of an unknown one from a message."""

    listener: str
    host: str
    port: int
    security_protocol: int


def id_text(value: bytes) -> str:
    """A topic id as Kafka writes it: 22 characters of base64 for URLs, without padding."""
    from base64 import urlsafe_b64encode

    return urlsafe_b64encode(value).decode().rstrip("=")


def id_of(text: str) -> bytes:
    """The topic id of such a text. Raises ValueError."""
    from base64 import urlsafe_b64decode
    from binascii import Error

    try:
        value = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (Error, ValueError):
        value = b""
    if len(value) != 16:
        raise ValueError(f"{text!r} is not a topic id, 22 characters of base64")
    return value
