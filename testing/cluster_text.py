"""The state of a cluster, a topic, a group and the controller as text, for people who read why a test failed."""

from __future__ import annotations

from klamm.control.json_object import JsonObject
from klamm.control.verbs.model import Control
from klamm.testing.transcript import Rank, equal_rank, fault_text

MAX_ROWS = 20


async def cluster_text(control: Control, rank: Rank = equal_rank) -> str:
    """Brokers, controller, clock, topics and groups, those with the lowest rank first, faults and holds."""
    lines = [await controller_text(control)]
    brokers = (await control.brokers())["brokers"]
    lines += [_broker_text(each) for each in brokers]
    if any(each["state"] == "running" for each in brokers):
        topics = sorted((await control.topics())["topics"], key=lambda each: (rank(each["name"]), each["name"]))
        lines += _some([f"topic {each['name']}: {each['partitions']} partitions" for each in topics], "topics")
    groups = sorted((await control.groups())["groups"], key=lambda each: (rank(each["group"]), each["group"]))
    lines += _some([_group_text(each) for each in groups], "groups")
    faults = (await control.faults())["faults"]
    lines += _some([f"fault {each['id']}: {fault_text(each)}: {each['hits']} hits" for each in faults], "faults")
    holds = (await control.holds())["holds"]
    lines += _some([f"hold {each['id']} of {each['phase']}: {each['state']}" for each in holds if each["state"] != "released"], "holds")
    return "\n".join(lines)


async def controller_text(control: Control) -> str:
    """The controller, what it is held at, and the clock if it is frozen or was moved."""
    shown = await control.controller()
    text = "no controller" if shown["id"] < 0 else f"controller {shown['id']}, epoch {shown['epoch']}, {shown['queue']} events in its queue"
    held = [f"held at {each['phase']} by hold {each['id']}" for each in shown["held"]]
    clock = await control.clock_state()
    held += ["the clock is frozen"] if clock["frozen"] else []
    held += [f"the clock is {clock['offset_ms'] / 1000:g} s ahead"] if clock["offset_ms"] >= 1 else []
    return "; ".join([text, *held])


def topic_text(shown: JsonObject) -> str:
    """A topic with its partitions: what ZooKeeper has, and which brokers see another leader or ISR; ends of logs and high watermarks."""
    return "\n".join([f"topic {shown['name']}", *_some([f"  {_partition_text(row)}" for row in shown["partitions"]], "partitions")])


def _partition_text(row: JsonObject) -> str:
    moves = "".join(f", {key} {row[key]}" for key in ("adding", "removing") if row[key])
    state = row["zookeeper"]
    text = f"partition {row['partition']}: leader {row['leader']}, isr {row['isr']}, replicas {row['replicas']}{moves}"
    text += f", leader epoch {state['leader_epoch']}" if "leader_epoch" in state else ", no state in ZooKeeper"
    others, logs = [], []
    for broker, seen in row["brokers"].items():
        if seen.get("leader") != row["leader"] or seen.get("isr") != row["isr"]:
            others.append(f"broker {broker} shows " + (f"leader {seen['leader']}, isr {seen['isr']}" if "leader" in seen else "nothing"))
        if "log_end_offset" in seen:
            logs.append(f"broker {broker} {seen['role']} log end {seen['log_end_offset']} high watermark {seen['high_watermark']}")
    return "; ".join([text, *others, *logs])


def group_text(groups: list[JsonObject], name: str) -> str:
    """A group, or that no broker has it."""
    found = next((each for each in groups if each["group"] == name), None)
    return f"no running broker has group {name}" if found is None else _group_text(found)


def _group_text(shown: JsonObject) -> str:
    members = ", ".join(each["member_id"] for each in shown["members"]) or "no members"
    return (
        f"group {shown['group']}: {shown['state']}, generation {shown['generation']}, coordinator {shown['coordinator']}, "
        f"{shown['offsets']} offsets, members: {members}"
    )


def _broker_text(shown: JsonObject) -> str:
    if "host" not in shown:
        return f"broker {shown['id']}: {shown['state']}"
    return f"broker {shown['id']}: {shown['state']}, {shown['host']}:{shown['port']}, epoch {shown['epoch']}, leads {shown['leaders']}"


def _some(lines: list[str], what: str) -> list[str]:
    return lines if len(lines) <= MAX_ROWS else [*lines[:MAX_ROWS], f"and {len(lines) - MAX_ROWS} more {what}"]


