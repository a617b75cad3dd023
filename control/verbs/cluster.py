"""The cluster that a `Control` steers: the steps that end, start and move its brokers, and the requests that they received."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from klamm.control.history import Exchange
from klamm.control.json_object import JsonObject


class Cluster(Protocol):
    """Brokers 1 to `count`. Steps have the errors of `LocalCluster`, or raise Refused."""

    @property
    def count(self) -> int:
        """How many brokers there are, those that do not run included."""

    @property
    def keeps_logs(self) -> bool:
        """Whether a broker that starts again finds its records."""

    @property
    def pids(self) -> dict[int, int]:
        """The processes of brokers that have their own."""

    def state_of(self, number: int) -> str:
        """`running`, `paused`, `starting` or `down`."""

    async def stop_broker(self, broker_id: int, *, lose_log: bool = False) -> None:
        """Stop a broker in order, also a paused one."""

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

    async def move_controller(self, to: int | None = None) -> int:
        """Make a broker the controller. Returns its id."""


class Requests(Protocol):
    """What the brokers of a cluster received and responded."""

    @property
    def total(self) -> int:
        """How many there were since the start."""

    async def requests(self, **query: Any) -> JsonObject:
        """The last requests that match, as the API shows them (`BrokerControl.requests`), and their number."""

    async def exchanges(self, **wanted: Any) -> list[Exchange]:
        """Requests of clients that match, newest first (`History.newest`). Raises Refused."""

    def last(self) -> int:
        """A number that no request has passed yet."""

    def topic_name(self, topic_id: bytes) -> str | None:
        """The name of the topic with this id."""
