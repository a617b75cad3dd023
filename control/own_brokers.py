"""What a part of a cluster is made of: the brokers that run in one process, with their seams.

`LocalCluster` is one, and so is a process with one broker of a cluster (`control/processes/owned_broker.py`).
"""

from __future__ import annotations

from typing import Protocol

from klamm.broker.recovery import Recovery
from klamm.seams.steering import Steering
from klamm.server.broker_server import BrokerServer
from klamm.server.faults.fault import Faults


class OwnBrokers(Protocol):
    """The brokers of this process."""

    @property
    def brokers(self) -> list[BrokerServer]:
        """Those that run, sorted by id."""

    @property
    def awake(self) -> list[BrokerServer]:
        """Those of them that are not paused."""

    @property
    def count(self) -> int:
        """How many brokers the cluster has; their ids are 1 to this number."""

    @property
    def controller_id(self) -> int:
        """Id of the broker in this process that is the controller, -1 if none is."""

    @property
    def addresses(self) -> list[tuple[int, str, int]]:
        """(id, host, port) of the inter-broker listener of each running broker."""

    @property
    def steering(self) -> Steering:
        """Where they can be held."""

    @property
    def faults(self) -> Faults:
        """What their requests meet."""

    @property
    def recovering(self) -> list[Recovery]:
        """The leaders in this process that wait in recovery (KIP-704)."""

    async def release_recovery(self, topic: str | None = None, partition: int | None = None) -> list[Recovery]:
        """Let them go on. Returns the released ones."""
