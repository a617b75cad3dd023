"""The nouns that controller, broker, ZooKeeper layer and server share, with the protocol's special numbers.

Epochs are int32 and rise by one: the controller epoch with each controller, the leader epoch of a partition with each leader or ISR
change. A partition epoch is the version of the partition's state znode, a broker epoch the czxid of the broker's znode (int64).
A topic id is a uuid of 16 bytes.
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
    """The controller or leader epoch after this one: an int32 that wraps around, as Kafka's do."""
    return epoch + 1 if epoch != _LAST_EPOCH else -_LAST_EPOCH - 1


class TopicPartition(NamedTuple):
    """A partition's name."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class SecurityProtocol(IntEnum):
    """How a listener is secured. The wire has the number, configs and znodes have the name."""

    PLAINTEXT = 0
    SSL = 1
    SASL_PLAINTEXT = 2
    SASL_SSL = 3


class Endpoint(NamedTuple):
    """Where a broker listens. `security_protocol` is a `SecurityProtocol`, or a number of a later one that came over the wire."""

    listener: str
    host: str
    port: int
    security_protocol: int
