"""From one reading of a broker to the text that Prometheus gets. Only this file knows prometheus_client.

Values are read on the event loop, in slices; the text is made in a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, choose_encoder, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from klamm.seams.pace import Pace
from klamm.server.mbeans.mbean import Kind, MBean
from klamm.server.mbeans.readings import BrokerReading, MetricSources
from klamm.server.mbeans.table import SHOWN
from klamm.server.metrics.distribution import Distribution

_TYPES = {Kind.GAUGE: "gauge", Kind.METER: "counter", Kind.HISTOGRAM: "histogram", Kind.TIMER: "histogram", Kind.SELECTOR: "gauge"}


class Text(NamedTuple):
    """A response body and its type."""

    body: bytes
    content_type: str


class Families(Collector):
    """Metrics that are read already."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = list(metrics)

    def collect(self) -> Iterator[Metric]:
        return iter(self._metrics)


async def read(parts: MetricSources, table: Iterable[MBean] = SHOWN) -> Families:
    """What the rows of the table say now."""
    reading, families, pace = BrokerReading(parts), dict[str, Metric](), Pace()
    for bean in table:
        if bean.read is None:
            continue
        await pace()
        family = families.get(bean.metric)
        if family is None:
            kind = "counter" if bean.metric.endswith("_total") else _TYPES[bean.kind]
            family = families[bean.metric] = Metric(bean.metric.removesuffix("_total"), _help(bean), kind)
        for values, value in bean.read(reading):
            await pace()
            labels = dict(zip(bean.labels, values, strict=True))
            match value:
                case Distribution():
                    for bound, count in value.cumulative():
                        family.add_sample(f"{bean.metric}_bucket", labels | {"le": bound}, count)
                    family.add_sample(f"{bean.metric}_count", labels, value.count)
                    family.add_sample(f"{bean.metric}_sum", labels, value.sum)
                case str():
                    family.add_sample(bean.metric, labels | {"value": value}, 1)
                case _:
                    family.add_sample(f"{bean.metric}_total" if bean.kind is Kind.METER else bean.metric, labels, value)
    return Families(families.values())


def _help(bean: MBean) -> str:
    return f"{bean.name}{f' {bean.attribute}' if bean.attribute else ''}: {bean.meaning}"


def _render(families: Families, accept: str) -> Text:
    try:
        encode, content_type = choose_encoder(accept)
    except ValueError:  # a version that is no number
        encode, content_type = generate_latest, CONTENT_TYPE_PLAIN_0_0_4
    return Text(encode(families), content_type)


async def text(parts: MetricSources, accept: str = "") -> Text:
    """The metrics of a broker in the format that a scraper accepts."""
    families = await read(parts)
    return await asyncio.to_thread(_render, families, accept)
