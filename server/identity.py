"""Who this broker is in its cluster."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class BrokerIdentity:
    """Ids that stay, and the epoch of the present registration (the czxid of the broker's znode), -1 before the first one."""

    broker_id: int
    cluster_id: str
    broker_epoch: int = -1
