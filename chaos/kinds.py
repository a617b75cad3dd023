"""The kinds of steps: what each does, how long it lasts, and what it takes away meanwhile.

A step that takes a broker away is never begun while another one has: of three replicas two stay, so what the clients were told holds.
Parameters that depend on the state of the cluster are drawn as roles and ranks ("the leader of partition 2", "the third broker that
runs") and resolved when the step begins, so that a schedule means the same in every run.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from klamm.protocol.errors import did_you_mean
from klamm.seams.value_class import dataclass

RECORDS, COPIED = "records", "copies"
"""The topics that producers and transactions write to."""
PARTITIONS = 6
"""Of the topic that producers write to."""
COPIES = 3
"""Partitions of the topic that transactions write to."""
Parameters = dict[str, Any]

CRASH_PHASES = (
    "ZooKeeperWrite", "IsrsAltered", "LeadersElected", "FailoverReplicasStarted", "ReassignmentEpochRaised", "ReassignmentCaughtUp",
    "ReassignmentLeaderMoved", "GroupAssignmentStored", "OffsetsAppended", "TransactionPartitionsAdded", "TransactionEndPrepared",
    "TransactionMarkersWritten",
)
LOSSY_APIS = (
    "Produce", "Fetch", "OffsetCommit", "JoinGroup", "SyncGroup", "Heartbeat", "AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit",
    "EndTxn", "WriteTxnMarkers", "InitProducerId", "FindCoordinator", "Metadata", "AlterPartition", "LeaderAndIsr", "UpdateMetadata",
    "StopReplica", "OffsetForLeaderEpoch", "ControlledShutdown",
)
TOPIC_CONFIGS: dict[str, tuple[str, ...]] = {
    "segment.bytes": ("262144", "524288", "1048576"),
    "segment.ms": ("500", "3000", "604800000"),
    "index.interval.bytes": ("512", "4096"),
    "compression.type": ("producer", "gzip", "lz4", "zstd", "uncompressed"),
    "message.timestamp.type": ("CreateTime", "LogAppendTime"),
    "flush.messages": ("1", "100", "9223372036854775807"),
}
BROKER_CONFIGS: dict[str, tuple[str, ...]] = {
    "num.replica.fetchers": ("1", "2", "3"),
    "num.io.threads": ("4", "8"),
    "log.cleaner.threads": ("1", "2"),
    "unclean.leader.election.enable": ("false",),
}


@dataclass(frozen=True, slots=True)
class Shape:
    """What a schedule may rely on: the number of brokers, and whether their disks can be filled."""

    brokers: int
    small_disks: bool


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of step. `lasts_ms` is the range of times until it is undone; None if nothing is to be undone."""

    name: str
    summary: str
    lasts_ms: tuple[int, int] | None
    takes_broker: bool
    draw: Callable[[random.Random, Shape], Parameters]
    needs_disks: bool = False
    is_asked_for: bool = False
    """Whether it occurs only where `--only` names it: it takes long, or takes more than one broker away."""
    min_brokers: int = 3


def _role(chance: random.Random, shape: Shape) -> str:
    """A broker by its role or its rank among those that run."""
    draw = chance.random()
    if draw < 0.25:
        return "controller"
    if draw < 0.5:
        return f"leader {chance.randrange(PARTITIONS)}"
    if draw < 0.65:
        return chance.choice(("coordinator of readers", "coordinator of copiers"))
    return f"broker {chance.randrange(shape.brokers)}"


def _kill(chance: random.Random, shape: Shape) -> Parameters:
    return {"broker": _role(chance, shape), "expire": chance.random() < 0.5}


def _broker(chance: random.Random, shape: Shape) -> Parameters:
    return {"broker": _role(chance, shape)}


def _cut(chance: random.Random, shape: Shape) -> Parameters:
    return {"broker": _role(chance, shape), "peers": chance.choice(("one", "all")), "rank": chance.randrange(shape.brokers)}


def _disk(chance: random.Random, shape: Shape) -> Parameters:
    return {"broker": _role(chance, shape), "ends": chance.choice(("killed", "stopped"))}


def _crash(chance: random.Random, _shape: Shape) -> Parameters:
    return {"phase": chance.choice(CRASH_PHASES), "nth": chance.randint(1, 4)}


def _controller(chance: random.Random, shape: Shape) -> Parameters:
    return {"to": None if chance.random() < 0.5 else f"broker {chance.randrange(shape.brokers)}"}


def _reassign(chance: random.Random, shape: Shape) -> Parameters:
    topic = chance.choice(("records", "records", "copies", "__consumer_offsets", "__transaction_state"))
    partitions = sorted(chance.sample(range(COPIES), chance.randint(1, COPIES)))
    ids = range(1, shape.brokers + 1)
    throttle = chance.choice((None, None, 200_000, 2_000_000))
    return {"topic": topic, "targets": {str(p): chance.sample(ids, 3) for p in partitions}, "throttle": throttle}


def _topic_config(chance: random.Random, _shape: Shape) -> Parameters:
    name = chance.choice(sorted(TOPIC_CONFIGS))
    return {"topic": chance.choice(("records", "copies")), "name": name, "value": chance.choice(TOPIC_CONFIGS[name])}


def _broker_config(chance: random.Random, shape: Shape) -> Parameters:
    name = chance.choice(sorted(BROKER_CONFIGS))
    return {"broker": _role(chance, shape), "name": name, "value": chance.choice(BROKER_CONFIGS[name])}


def _topic(chance: random.Random, _shape: Shape) -> Parameters:
    return {"partitions": chance.randint(1, 4), "number": chance.randrange(1 << 20)}


def _group(chance: random.Random, _shape: Shape) -> Parameters:
    return {"group": chance.choice(("readers", "copiers"))}


def _nothing(_chance: random.Random, _shape: Shape) -> Parameters:
    return {}


def _scene(chance: random.Random, shape: Shape) -> Parameters:
    return {"rank": chance.randrange(shape.brokers), "number": chance.randrange(1 << 20)}


def _number(chance: random.Random, _shape: Shape) -> Parameters:
    return {"number": chance.randrange(1 << 20)}


def _slow_link(chance: random.Random, shape: Shape) -> Parameters:
    return {"broker": _role(chance, shape), "rank": chance.randrange(shape.brokers), "ms": chance.choice((20, 100, 500))}


def _slow_zookeeper(chance: random.Random, shape: Shape) -> Parameters:
    return {"broker": _role(chance, shape), "ms": chance.choice((10, 50, 300))}


def _lossy(chance: random.Random, _shape: Shape) -> Parameters:
    """No response is lost without its connection: TCP does not do that, and pipelined requests rely on it."""
    return {
        "api": chance.choice(LOSSY_APIS), "close": chance.choice(("before", "amid", "after")),
        "probability": chance.choice((0.05, 0.2, 0.5)), "seed": chance.randrange(1 << 16),
    }


_TABLE = (
    Kind("kill", "a broker ends as kill -9 does and is started again", (300, 5000), True, _kill),
    Kind("stop", "a broker stops with a controlled shutdown and is started again", (300, 4000), True, _broker),
    Kind("pause", "a broker serves nobody for a while", (300, 6000), True, _broker),
    Kind("cut-link", "requests between a broker and one or all others do not arrive", (500, 6000), True, _cut),
    Kind("cut-zookeeper", "a broker loses its connection to ZooKeeper for a while", (500, 6000), True, _broker),
    Kind("expire", "the ZooKeeper session of a broker expires", None, True, _broker),
    Kind("disk-full", "one of the two disks of a broker is full for a while; then the broker starts again", (500, 4000), True, _disk, True),
    Kind("crash", "the broker that reaches a phase is killed there and is started again", (2000, 5000), True, _crash),
    Kind(
        "unclean-cut",
        "after an unclean election of a topic of its own the replicas that are left are cut off from each other; the leader dies",
        (0, 0),
        True,
        _scene,
        is_asked_for=True,
    ),
    Kind(
        "expire-offset",
        "a committed offset of a group of its own expires while a transaction holds another one",
        None,
        False,
        _number,
        is_asked_for=True,
    ),
    Kind("controller", "another broker becomes controller", None, False, _controller),
    Kind("elect", "preferred leaders are elected", None, False, _nothing),
    Kind("reassign", "partitions move to other replicas, some with a throttle", None, False, _reassign),
    Kind("cancel", "all reassignments are cancelled", None, False, _nothing),
    Kind("topic-config", "a config of a topic changes", None, False, _topic_config),
    Kind("broker-config", "a config of a broker changes", None, False, _broker_config),
    Kind("topic", "a topic is created and, later, deleted", (500, 4000), False, _topic),
    Kind("rebalance", "a group rebalances", None, False, _group),
    Kind("expire-members", "the sessions of all members of a group time out", None, False, _group),
    Kind("member", "one more member joins a group and, later, leaves", (1000, 6000), False, _group),
    Kind("slow-link", "requests between two brokers arrive late", (500, 4000), False, _slow_link),
    Kind("slow-zookeeper", "requests of a broker to ZooKeeper wait", (500, 4000), False, _slow_zookeeper),
    Kind("lossy", "connections close before, amid or after a response of an API", (500, 4000), False, _lossy),
)
KINDS = {kind.name: kind for kind in _TABLE}


def kind_named(name: str) -> Kind:
    """A kind by its name. Raises ValueError with a suggestion."""
    if name in KINDS:
        return KINDS[name]
    similar = did_you_mean(name.replace("_", "-"), KINDS, quote="'")
    raise ValueError(f"{name!r} is not a kind of step" + (similar or f"; there are {', '.join(KINDS)}"))
