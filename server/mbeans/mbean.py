"""One MBean of Kafka: its name, what it says, and how Klamm computes it. The table of all is `server/mbeans/table.py`.

The name in Prometheus follows from the MBean's, by the rules that most people give the JMX exporter for Kafka:

* domain, type and name, joined by underscores, in lower case; what is not a letter or a digit becomes an underscore;
* a meter is a counter: `PerSec` goes from the end of its name, and `_total` comes;
* a histogram or a timer is a histogram (`_bucket`, `_sum`, `_count`), a gauge is a gauge;
* further keys of the MBean's name are labels, with underscores for hyphens;
* a gauge whose value is a text is 1, and the text is the label `value`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from typing import TYPE_CHECKING

from klamm.seams.value_class import dataclass
from klamm.server.metrics.distribution import Distribution

if TYPE_CHECKING:
    from klamm.server.mbeans.readings import BrokerReading

Value = float | str | Distribution
Sample = tuple[tuple[str, ...], Value]
"""The values of the keys in their order, and that of the metric."""
Read = Callable[["BrokerReading"], Iterable[Sample]]

_OTHER = re.compile(r"[^a-z0-9_]")


class Kind(Enum):
    """What an MBean is in Kafka's metrics library."""

    GAUGE = "gauge"
    METER = "meter"
    HISTOGRAM = "histogram"
    TIMER = "timer"
    SELECTOR = "client metrics"
    """Attributes of Kafka's own clients, servers and quotas, many to an MBean."""


@dataclass(frozen=True, slots=True)
class MBean:
    """One row of the table. `name` is the object name up to `keys`, the names of its further keys.

    `attribute` is set where one MBean has several metrics. `note`, if there is one, says in what the metric is not
    Kafka's. Where `read` is None Klamm has no such metric, and `note` says why.
    """

    name: str
    kind: Kind
    meaning: str
    keys: tuple[str, ...] = ()
    read: Read | None = None
    note: str = ""
    attribute: str = ""

    @property
    def object_name(self) -> str:
        """Its name with all keys, without their values."""
        return ",".join((self.name, *self.keys))

    @property
    def metric(self) -> str:
        """The name in Prometheus, without the suffix of a sample."""
        return prometheus_name(self.name, self.kind, self.attribute)

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of its labels."""
        return tuple(key.replace("-", "_") for key in self.keys)


def prometheus_name(name: str, kind: Kind, attribute: str = "") -> str:
    """The metric's name by the rules above."""
    domain, _, properties = name.partition(":")
    values = [pair.partition("=")[2] for pair in properties.split(",")]
    if kind is Kind.METER:
        values[-1] = values[-1].removesuffix("PerSec")
    if attribute:
        values.append(attribute)
    return _OTHER.sub("_", "_".join((domain, *values)).lower())


def one(value: Callable[[BrokerReading], Value]) -> Read:
    """Reads a metric that has one value."""

    def read(reading: BrokerReading) -> Iterator[Sample]:
        yield (), value(reading)

    return read
