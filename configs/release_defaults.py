"""Defaults of configs that were others in older releases of Apache Kafka, for a broker with `klamm.as.version`.

Only configs that Klamm uses, and whose default a client can notice, are here. Each has the releases from which a default was valid.
Measured with DescribeConfigs at a broker of each release. Where a release does not have the config, the value is what it did: it did not
limit a Fetch response, did not verify partitions of transactions, and forgot producers after `transactional.id.expiration.ms`.
"""

from __future__ import annotations

from typing import Any

from klamm.configs.releases.inter_broker_protocol import LATEST_PRODUCTION, MetadataVersion
from klamm.configs.releases.kafka_releases import RELEASES, is_kafka_4

_NO_LIMIT = (1 << 31) - 1

DEFAULTS: dict[str, tuple[tuple[str, Any], ...]] = {
    "fetch.max.bytes": (("1.0", _NO_LIMIT), ("2.5", 57_671_680)),
    "group.max.session.timeout.ms": (("1.0", 300_000), ("2.3", 1_800_000)),
    "log.message.timestamp.after.max.ms": (("1.0", (1 << 63) - 1), ("4.0", 3_600_000)),
    "message.max.bytes": (("1.0", 1_000_012), ("2.5", 1_048_588)),
    "offsets.retention.minutes": (("1.0", 1440), ("2.0", 10_080)),
    "producer.id.expiration.ms": (("1.0", 604_800_000), ("3.4", 86_400_000)),
    "replica.lag.time.max.ms": (("1.0", 10_000), ("2.5", 30_000)),
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": (("1.0", 60_000), ("2.5", 10_000)),
    "transaction.partition.verification.enable": (("1.0", False), ("3.6", True)),
    "zookeeper.session.timeout.ms": (("1.0", 6_000), ("2.5", 18_000)),
}
"""Config → (release, its default) for each release that changed it."""

_MESSAGE_FORMAT_FIXED_SINCE = MetadataVersion.of("3.0-IV1")


def defaults_of(release: str) -> dict[str, Any]:
    """The typed defaults of this release, of those configs that have another default in some release."""
    order = RELEASES.index(release)
    defaults = {
        name: next(value for since, value in reversed(steps) if RELEASES.index(since) <= order) for name, steps in DEFAULTS.items()
    }
    protocol = LATEST_PRODUCTION if is_kafka_4(release) else MetadataVersion.of(release)
    return defaults | {
        "inter.broker.protocol.version": str(protocol),
        "log.message.format.version": str(min(protocol, _MESSAGE_FORMAT_FIXED_SINCE)),
        "kip179.enable": False,
        "kip183.legacy.v0": order < RELEASES.index("2.4"),
    }
