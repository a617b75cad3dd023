"""The parts of a broker that have metrics."""

from __future__ import annotations

from klamm.server.lifecycle.broker_parts import BrokerParts
from klamm.server.lifecycle.foundation import Foundation
from klamm.server.mbeans.readings import MetricSources

STARTING, RUNNING = 1, 3


def sources_of(base: Foundation, parts: BrokerParts) -> MetricSources:
    """Those of a broker. It has counters, as it has an endpoint."""
    counts, disks = base.metrics.counts, parts.disks
    if counts is None:
        raise ValueError("this broker counts nothing")
    return MetricSources(
        parts.services, parts.controller, parts.channels, parts.followers, base.zk, counts,
        lambda: () if disks is None else disks.states(),
        lambda: RUNNING if base.registration.is_online else STARTING,
    )
