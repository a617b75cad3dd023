"""What must be true of a cluster when all faults are over: it is whole, nothing is under way, nothing is left behind."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from klamm.admin import AdminClient, AdminError, ConfigResource, ResourceType, TopicPartition
from klamm.control.client import ControlClient, ControlFailed
from klamm.control.json_object import JsonObject

WHOLE_S = 120.0
LOOK_S = 0.3
THROTTLES = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
OPEN_STATES = ("Ongoing", "PrepareCommit", "PrepareAbort")


def wait_until_whole(
    api: ControlClient, admin: AdminClient, ended: Callable[[], str | None], unclean: bool = False, deleted: Sequence[str] = ()
) -> list[str]:
    """What is still wrong after two minutes; empty as soon as nothing is. `ended` says how the process of the cluster ended. After
    `unclean` elections a log may lack the end of a transaction. `deleted` are topics that were deleted.
    """
    until = time.monotonic() + WHOLE_S
    while True:
        if ended() is not None:
            return [f"{ended()}"]
        try:
            wrong = list(problems(api, admin, unclean, deleted))
        except (ControlFailed, AdminError, KeyError) as failure:
            wrong = [f"the state cannot be read: {failure}"]
        if not wrong or time.monotonic() > until:
            return wrong
        time.sleep(LOOK_S)


def problems(api: ControlClient, admin: AdminClient, unclean: bool = False, deleted: Sequence[str] = ()) -> Iterator[str]:
    """What is wrong now, in sentences. Raises ControlFailed, AdminError, KeyError."""
    states = {row["id"]: row["state"] for row in api.get("brokers")["brokers"]}
    yield from (f"broker {broker} is {state}" for broker, state in states.items() if state != "running")
    topics = [row["name"] for row in api.get("topics")["topics"]]
    for name in topics:
        yield from topic_problems(api.get("topics", name))
    yield from _not_deleted(api, deleted)
    for (topic, partition), move in admin.list_partition_reassignments().items():
        yield f"{topic}-{partition} is still being reassigned to {list(move.replicas)}"
    for each in api.get("transactions")["transactions"]:
        if each["state"] in OPEN_STATES:
            yield f"transaction {each['transactional_id']} is {each['state']}"
    if not unclean:
        yield from _open_in_logs(admin, api, topics)
    yield from _throttles(admin, topics, [broker for broker, state in states.items() if state == "running"])


def topic_problems(shown: JsonObject) -> Iterator[str]:
    """What is wrong with a topic that the control API shows so."""
    for row in shown["partitions"]:
        name, stored = f"{shown['name']}-{row['partition']}", row["zookeeper"]
        if sorted(row["isr"]) != sorted(row["replicas"]):
            yield f"{name} has ISR {row['isr']} of replicas {row['replicas']}"
        if row["leader"] not in row["isr"]:
            yield f"{name} has leader {row['leader']}, its ISR is {row['isr']}"
        if stored["adding"] or stored["removing"]:
            yield f"{name} has adding replicas {stored['adding']} and removing replicas {stored['removing']}"
        hosts = {broker: seen for broker, seen in row["brokers"].items() if "role" in seen and int(broker) in row["replicas"]}
        if len(hosts) != len(row["replicas"]):
            yield f"of the brokers {row['replicas']} only {sorted(hosts)} have a replica of {name}"
        for what in ("log_end_offset", "high_watermark", "leader_epoch"):
            if len({seen.get(what) for seen in hosts.values()}) > 1:
                yield f"replicas of {name} differ in their {what}: { {broker: seen.get(what) for broker, seen in hosts.items()} }"
        leaders = [broker for broker, seen in hosts.items() if seen["role"] == "leader"]
        if leaders != [str(row["leader"])]:
            yield f"brokers {leaders} lead {name}, its leader is {row['leader']}"


def _not_deleted(api: ControlClient, deleted: Sequence[str]) -> Iterator[str]:
    """Topics that ZooKeeper still has: brokers show a topic no more as soon as its deletion begins."""
    for name in deleted:
        try:
            api.get("topics", name)
        except ControlFailed:
            continue
        yield f"topic {name} was deleted and is still in ZooKeeper"


def _open_in_logs(admin: AdminClient, api: ControlClient, topics: Sequence[str]) -> Iterator[str]:
    """Transactions that are open in a log."""
    partitions = [(row["name"], p) for row in api.get("topics")["topics"] for p in range(row["partitions"]) if row["name"] in topics]
    described = admin.describe_producers(partitions)
    for topic, partition in partitions:
        for producer in described[TopicPartition(topic, partition)]:
            if producer.transaction_start_offset is not None:
                yield f"a transaction of producer {producer.producer_id} is open in {topic}-{partition}"


def _throttles(admin: AdminClient, topics: Sequence[str], ids: Sequence[int]) -> Iterator[str]:
    resources = {ConfigResource(ResourceType.TOPIC, name): THROTTLES for name in topics}
    resources |= {ConfigResource(ResourceType.BROKER, str(broker)): RATES for broker in ids}
    for names in (THROTTLES, RATES):
        asked = [resource for resource, wanted in resources.items() if wanted is names]
        described = admin.describe_configs(asked, names=names)
        for resource in asked:
            for name, entry in described[resource].items():
                if entry.value not in (None, "") and entry.source.name.startswith("DYNAMIC"):
                    yield f"{resource.name} still has {name}={entry.value}"
