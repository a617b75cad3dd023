"""The identity of a broker in its cluster."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class BrokerIdentity:
    """The ids of a broker, and the epoch of its present registration (the czxid of its znode), -1 before the first registration."""

    broker_id: int
    cluster_id: str
    broker_epoch: int = -1
