"""What requests and connections tell the metrics, in one frozen value. Without an endpoint all of it does nothing.

A broker with `klamm.metrics.port` gets the value of `server/metrics/counting.py`, which is imported only then. Most metrics need no
counting: they are read from the state of the broker when somebody scrapes (`server/mbeans/table.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from klamm.configs.broker_config import BrokerConfig
from klamm.seams.clock import Clock
from klamm.seams.value_class import dataclass

if TYPE_CHECKING:
    from klamm.server.metrics.counting import Counts

PORT, HOST = "klamm.metrics.port", "klamm.metrics.host"


def _nobody_counts(*_: Any) -> None:
    """Of a broker without an endpoint."""


@dataclass(frozen=True, slots=True)
class Metrics:
    """Where a broker counts while it runs."""

    fetched: Callable[[bool, Sequence[Any]], None] = _nobody_counts
    """(whether by a follower, rows of partition and result): called once for the response to each Fetch request."""
    replicated: Callable[[int], None] = _nobody_counts
    """(bytes): called once for each response of a leader that this broker follows."""
    queued: Callable[[int, float], None] | None = None
    """(broker id, seconds in the queue): called when the controller sends a request to a broker."""
    counts: Counts | None = None
    """The counters, for those who show them; None where nobody does."""


NO_METRICS = Metrics()


def has_endpoint(config: BrokerConfig) -> bool:
    """Whether the configs ask for an endpoint."""
    return config.get(PORT) is not None


def metrics_of(config: BrokerConfig, clock: Clock) -> Metrics:
    """The value of a broker with these configs."""
    if not has_endpoint(config):
        return NO_METRICS
    from klamm.server.metrics.counting import Counts

    counts = Counts.at_zero(clock)
    return Metrics(counts.data.fetched, counts.data.replicated, counts.controller.sent, counts)
