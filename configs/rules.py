"""Rules that involve several configs of a broker, as in Kafka 3.9.

A rule has the name of a config, a condition on all values, and the text of the error. `check_dynamic` has additional rules for changes at
run time: a thread pool can at most double or halve, a limit must allow at least one connection, and so on.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from klamm.configs.definitions.definition import synonyms
from klamm.configs.definitions.types import ConfigError, Values, parse_integer, split_list, trim
from klamm.configs.releases.inter_broker_protocol import MetadataVersion


class Rule(NamedTuple):
    """A rule is broken if `holds` is false for the values. The error names `key`, or its synonym that is set.

    `response` is the text of Kafka for a request that breaks the rule, for configs that can change at run time.
    """

    key: str
    holds: Callable[[Values], bool]
    wanted: str
    response: str | None = None


def log_dirs(values: Values) -> tuple[str, ...]:
    """The log directories: `log.dirs`, or `log.dir` if it is not set."""
    text = values["log.dirs"] if values["log.dirs"] is not None else values["log.dir"]
    return tuple(filter(None, map(trim, text.split(","))))


def segment_ms(values: Values) -> int:
    """The age at which a new segment begins, from the first of the synonyms that is set."""
    return int(values["log.roll.hours"] * 3_600_000 if values["log.roll.ms"] is None else values["log.roll.ms"])


def segment_jitter_ms(values: Values) -> int:
    """The largest random part that is subtracted from that age."""
    return int(values["log.roll.jitter.hours"] * 3_600_000 if values["log.roll.jitter.ms"] is None else values["log.roll.jitter.ms"])


def retention_ms(values: Values) -> int:
    """How long records are kept; -1 means without limit."""
    if values["log.retention.ms"] is not None:
        kept = values["log.retention.ms"]
    elif values["log.retention.minutes"] is not None:
        kept = values["log.retention.minutes"] * 60_000
    else:
        kept = values["log.retention.hours"] * 3_600_000
    return -1 if kept < 0 else int(kept)


def _id_in_range(values: Values) -> bool:
    if not values["broker.id.generation.enable"]:
        return int(values["broker.id"]) >= 0
    return -1 <= values["broker.id"] <= values["reserved.broker.max.id"]


def _message_format_fits(values: Values) -> bool:
    wanted = MetadataVersion.of(values["log.message.format.version"])
    return wanted.record_version <= MetadataVersion.of(values["inter.broker.protocol.version"]).record_version


def _recovers(values: Values) -> bool:
    return values["kip704.recovery.mode"] == "instant" or MetadataVersion.of(values["inter.broker.protocol.version"]).has_leader_recovery


def _at_least(lower: str, upper: str) -> Rule:
    return Rule(upper, lambda values: values[upper] >= values[lower], f"must be at least {lower}")


def _may_register_with_controller(values: Values) -> bool:
    if values["klamm.broker.registration"] != "controller":
        return True
    return values["registerbroker.enable"] and MetadataVersion.of(values["inter.broker.protocol.version"]).has_topic_ids


RULES = (
    Rule("process.roles", lambda values: not values["process.roles"], "must be empty: this broker runs with ZooKeeper"),
    Rule("zookeeper.metadata.migration.enable", lambda values: not values["zookeeper.metadata.migration.enable"], "must be false here"),
    Rule("controller.listener.names", lambda values: not values["controller.listener.names"], "must be empty with ZooKeeper"),
    Rule("zookeeper.connect", lambda values: bool(values["zookeeper.connect"]), "must name a server"),
    Rule("node.id", lambda values: values["node.id"] == values["broker.id"], "must be the same as broker.id"),
    Rule("broker.id", _id_in_range, "must be from -1 to reserved.broker.max.id, or at least 0 if ids are not generated"),
    Rule("log.dirs", lambda values: bool(log_dirs(values)), "must name a directory"),
    Rule(
        "log.roll.ms",
        lambda values: segment_ms(values) >= 1,
        "must be at least 1",
        "requirement failed: log.roll.ms must be greater than or equal to 1",
    ),
    Rule(
        "log.roll.jitter.ms",
        lambda values: segment_jitter_ms(values) >= 0,
        "must be at least 0",
        "requirement failed: log.roll.jitter.ms must be greater than or equal to 0",
    ),
    Rule(
        "log.retention.ms",
        lambda values: retention_ms(values) != 0,
        "must be -1 or at least 1",
        "requirement failed: log.retention.ms must be unlimited (-1) or, greater than or equal to 1",
    ),
    Rule("log.cleaner.threads", lambda values: values["log.cleaner.threads"] > 0, "must be at least 1", "/ by zero"),
    Rule(
        "log.cleaner.dedupe.buffer.size",
        lambda values: values["log.cleaner.dedupe.buffer.size"] // values["log.cleaner.threads"] > 1 << 20,
        "must be more than 1 MiB for each of the log.cleaner.threads",
        "requirement failed: log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread.",
    ),
    Rule("log.message.format.version", _message_format_fits, "needs a newer inter.broker.protocol.version"),
    Rule(
        "klamm.broker.registration",
        _may_register_with_controller,
        "may be controller only with registerbroker.enable=true and inter.broker.protocol.version 2.8 or later",
    ),
    Rule(
        "kip704.recovery.mode",
        _recovers,
        "may be manual or delay only with inter.broker.protocol.version 3.2 or later: older ones do not mark unclean elections",
    ),
    _at_least("replica.fetch.wait.max.ms", "replica.socket.timeout.ms"),
    _at_least("replica.fetch.wait.max.ms", "replica.lag.time.max.ms"),
    Rule(
        "offsets.commit.required.acks",
        lambda values: -1 <= values["offsets.commit.required.acks"] <= values["offsets.topic.replication.factor"],
        "must be from -1 to offsets.topic.replication.factor",
    ),
    Rule("offsets.topic.compression.codec", lambda values: 0 <= values["offsets.topic.compression.codec"] <= 4, "must be from 0 to 4"),
    Rule(
        "queued.max.request.bytes",
        lambda values: values["queued.max.request.bytes"] <= 0 or values["queued.max.request.bytes"] >= values["socket.request.max.bytes"],
        "must be at least socket.request.max.bytes if it is set",
    ),
    Rule(
        "max.connections.per.ip",
        lambda values: values["max.connections.per.ip"] > 0 or bool(values["max.connections.per.ip.overrides"]),
        "may be 0 only if max.connections.per.ip.overrides is set",
        "requirement failed: max.connections.per.ip can be set to zero only if max.connections.per.ip.overrides property is set.",
    ),
    Rule(
        "connections.max.idle.ms",
        lambda values: (
            values["connections.max.idle.ms"] < 0 or values["connection.failed.authentication.delay.ms"] < values["connections.max.idle.ms"]
        ),
        "must be above connection.failed.authentication.delay.ms",
    ),
    Rule("group.coordinator.rebalance.protocols", lambda v: "classic" in v["group.coordinator.rebalance.protocols"], "must have classic"),
    Rule(
        "group.coordinator.rebalance.protocols",
        lambda values: "consumer" not in values["group.coordinator.rebalance.protocols"],
        "cannot have consumer with ZooKeeper",
    ),
    *(
        rule
        for name in (
            "group.consumer.{}heartbeat.interval.ms",
            "group.consumer.{}session.timeout.ms",
            "group.share.{}heartbeat.interval.ms",
            "group.share.{}session.timeout.ms",
            "group.share.{}record.lock.duration.ms",
        )
        for rule in (
            _at_least(name.format("min."), name.format("max.")),
            _at_least(name.format("min."), name.format("")),
            _at_least(name.format(""), name.format("max.")),
        )
    ),
)


def check(values: Values) -> None:
    """Raises ConfigError if a rule is broken."""
    for key, holds, wanted, response in RULES:
        if not holds(values):
            names = ("log.dirs", "log.dir") if key == "log.dirs" else synonyms(key)
            blamed = next((name for name in names if values[name] is not None), key)
            raise ConfigError(blamed, values[blamed], wanted, response=response)
    connection_overrides(values["max.connections.per.ip.overrides"])
    _early_start_listeners(values)
    if values["klamm.as.version"] is not None or values["klamm.api.versions"] is not None:
        from klamm.configs.definitions.api_versions import check_offered  # few brokers need it

        check_offered(values)


def connection_overrides(text: str) -> dict[str, int]:
    """Host or address → limit, from `max.connections.per.ip.overrides`. Raises ConfigError."""
    key = "max.connections.per.ip.overrides"
    limits: dict[str, int] = {}
    for entry in text.rstrip(",").split(",") if text else ():
        host, colon, number = entry.rpartition(":")
        host, number = trim(host), trim(number)
        try:
            if not colon:
                raise ValueError("no colon")
            limits[host] = parse_integer(number)
        except ValueError as error:
            unparsed = f"Error parsing configuration property '{key}': begin 0, end -1, length {len(trim(entry))}"
            response = f'For input string: "{number}"' if colon else unparsed
            raise ConfigError(key, text, f"{entry!r} is not of the form host:limit", response=response) from error
        if not re.fullmatch(r"[0-9a-zA-Z\-%._:]*", host):
            raise ConfigError(key, text, f"{host!r} is not a host", response=f"{key} contains invalid addresses : {host}")
    return limits


def _early_start_listeners(values: Values) -> None:
    text = values["early.start.listeners"]
    for name in split_list(text or ""):
        if not re.search(rf"(^|,)\s*{re.escape(name)}://", values["listeners"]):
            raise ConfigError("early.start.listeners", text, f"{name} is not among the listeners")


_INVALID_DYNAMIC = "Invalid value org.apache.kafka.common.config.ConfigException: {} for configuration Invalid dynamic configuration"
_POOLS = (
    "num.io.threads",
    "num.network.threads",
    "num.replica.fetchers",
    "num.recovery.threads.per.data.dir",
    "background.threads",
    "log.cleaner.threads",
)
_KNOWN_REPORTERS = frozenset({"org.apache.kafka.common.metrics.JmxReporter"})


def check_dynamic(current: Values, proposed: Values) -> None:
    """Raises ConfigError if a running broker with the `current` values cannot change to the `proposed` values."""
    for name in _POOLS:
        check_limit(name, current[name], proposed[name])
    reporters = "metric.reporters"
    if current[reporters] != proposed[reporters] and not _KNOWN_REPORTERS.issuperset(proposed[reporters]):
        text = f"Validation of dynamic config update of Set({reporters}) failed with class class kafka.server.DynamicMetricsReporters"
        response = _INVALID_DYNAMIC.format(text)
        raise ConfigError(reporters, ",".join(proposed[reporters]), "classes of Java are not supported", response=response)
    if any(current[name] != proposed[name] for name in proposed if name.startswith("log.")):
        check_local_retention(proposed["log.local.retention.ms"], "log.local.retention.ms", retention_ms(proposed), "log.retention.ms")
        local, total = "log.local.retention.bytes", "log.retention.bytes"
        check_local_retention(proposed[local], local, proposed[total], total)


def check_limit(name: str, current: int, proposed: int) -> None:
    """Check that a thread pool at most doubles or halves, and that a limit allows at least one connection. Raises ConfigError."""
    if proposed == current:
        return
    if name not in _POOLS:
        if proposed <= 0:
            raise ConfigError(name, proposed, "must be above 0", response=_INVALID_DYNAMIC.format(f"Invalid {name} {proposed}"))
        return
    reason = None
    if proposed < max(1, current // 2):
        reason = f"value should be at least half the current value {current}" if proposed > 0 else "value should be at least 1"
    elif proposed > current * 2:
        reason = f"value should not be greater than double the current value {current}"
    if reason is not None:
        text = f"Dynamic thread count update validation failed for {name}={proposed}, {reason}"
        raise ConfigError(name, proposed, reason, _INVALID_DYNAMIC.format(text))


def check_local_retention(local: int, key: str, total: int, total_key: str) -> None:
    """Check that the local retention of tiered storage is at most the total retention; -2 means the total. Raises ConfigError."""
    if local != -2 and total != -1 and (local == -1 or local > total):
        raise ConfigError(key, local, f"must be -2 or from 0 to {total_key}, which is {total}")
