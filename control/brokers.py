"""What `Control` needs of a cluster: its running brokers, its seams, and the steps that end, start and move something.

`LocalCluster` has all of it, and so has a process with one broker of a cluster (`control/processes/owned_broker.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from klamm.broker.recovery import Recovery
from klamm.seams.steering import Steering
from klamm.server.broker_server import BrokerServer
from klamm.server.faults.fault import Faults


class Brokers(Protocol):
    """The brokers that a `Control` steers. The steps are those of `LocalCluster`, with the same errors."""

    @property
    def brokers(self) -> list[BrokerServer]:
        """Those that run in this process, sorted by id."""

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

    async def stop_broker(self, broker_id: int, *, lose_log: bool = False) -> None:
        """Stop a broker in order."""

    async def kill_broker(self, broker_id: int, *, expire: bool = False, lose_log: bool = False) -> None:
        """End a broker at once."""

    async def crash_broker(self, broker_id: int, *, expire: bool = False) -> None:
        """End a broker at once, also while another step is under way."""

    async def start_broker(self, broker_id: int) -> None:
        """Start a broker again."""

    async def add_broker(self, config: Mapping[str, str] | None = None) -> int:
        """Start one more broker. Returns its id."""

    def stand(self, broker_id: int) -> None:
        """Let a broker stand still."""

    def go_on(self, broker_id: int) -> None:
        """End that."""

    @property
    def recovering(self) -> list[Recovery]:
        """The leaders in this process that wait in recovery (KIP-704)."""

    async def release_recovery(self, topic: str | None = None, partition: int | None = None) -> list[Recovery]:
        """Let them go on. Returns the released ones."""

    async def move_controller(self, to: int | None = None) -> int:
        """Make a broker the controller. Returns its id."""
