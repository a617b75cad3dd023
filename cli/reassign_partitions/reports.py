"""The texts of the tool. They are those of Kafka's tool, because scripts read them. Pure."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from klamm.cli.reassign_partitions.cluster import BrokerReplicas, Replica, TopicView
from klamm.cli.tools.files import Moves, as_json
from klamm.controller.values import Assignment
from klamm.protocol.nouns import Ints, TopicPartition

VERIFY_REMINDER = "Warning: You must run --verify periodically, until the reassignment completes, to ensure the throttle is removed."
NOTHING_LISTED = "No partition reassignments found."
NOTHING_TO_CANCEL = "None of the specified partition reassignments are active."
CONTROLLER_REMOVES = "The controller removes the inter-broker throttle when the last reassignment ends."
NO_MOVE_TO_CANCEL = "None of the specified partition moves are active."


def ids(values: Iterable[int]) -> str:
    """Broker ids, joined by commas."""
    return ",".join(map(str, values))


def rollback(current: Mapping[TopicPartition, Ints]) -> str:
    """Printed by --execute before it changes anything."""
    return (
        f"Current partition replica assignment\n\n{as_json(current)}\n\n"
        "Save this to use as the --reassignment-json-file option during rollback"
    )


def proposal(current: Mapping[TopicPartition, Ints], proposed: Mapping[TopicPartition, Ints]) -> str:
    """Printed by --generate."""
    return f"Current partition replica assignment\n{as_json(current)}\n\nProposed partition reassignment configuration\n{as_json(proposed)}"


def started(partitions: Collection[TopicPartition]) -> str:
    """Printed by --execute after a success."""
    return f"Successfully started partition reassignment{_s(partitions)} for {_joined(partitions)}"


def throttle_set(rate: int) -> str:
    """Printed for a throttle between brokers, in bytes per second."""
    return f"The inter-broker throttle limit was set to {rate} B/s"


def log_dir_throttle_set(rate: int) -> str:
    """Printed for a throttle between log directories, in bytes per second."""
    return f"The replica-alter-dir throttle limit was set to {rate} B/s"


def throttle_changed(partitions: Collection[TopicPartition]) -> str:
    """Printed by --execute if it only changed a throttle (R179-37)."""
    return f"Successfully changed the throttle of partition reassignment{_s(partitions)} for {_joined(partitions)}"


def log_dir_moves_started(replicas: Collection[Replica]) -> str:
    """Printed for replicas that move to another log directory of their broker."""
    return f"Successfully started log directory move{_s(replicas)} for: {_replicas(replicas)}"


def cancelled(partitions: Collection[TopicPartition]) -> str:
    """Printed by --cancel after a success."""
    return f"Successfully cancelled partition reassignment{_s(partitions)} for: {_joined(partitions)}"


def log_dir_moves_cancelled(replicas: Collection[Replica]) -> str:
    """Printed by --cancel for moves between log directories."""
    return f"Successfully cancelled log directory move{_s(replicas)} for: {_replicas(replicas)}"


def clearing(brokers: Sequence[int], topics: Sequence[str]) -> str:
    """Printed by --verify and --cancel for throttles between brokers: two lines."""
    return (
        f"Clearing broker-level throttles on broker{_s(brokers)} {ids(brokers)}\n"
        f"Clearing topic-level throttles on topic{_s(topics)} {','.join(topics)}"
    )


def clearing_log_dirs(brokers: Sequence[int]) -> str:
    """Printed by --cancel for throttles between log directories."""
    return f"Clearing the replica-alter-dir throttle on broker{_s(brokers)} {ids(brokers)}"


def listed(running: Mapping[TopicPartition, Assignment]) -> str:
    """Printed by --list."""
    if not running:
        return NOTHING_LISTED
    lines = ["Current partition reassignments:"]
    for partition, assignment in sorted(running.items()):
        parts = (("replicas", assignment.replicas), ("adding", assignment.adding), ("removing", assignment.removing))
        lines.append(f"{partition}: " + " ".join(f"{name}: {ids(values)}." for name, values in parts if values))
    return "\n".join(lines)


def as_line(value: Mapping[str, Any]) -> str:
    """A value as one line of JSON, for --json."""
    return json.dumps(value, separators=(",", ":"))


def listed_as_json(running: Mapping[TopicPartition, Assignment]) -> dict[str, Any]:
    """The object that --list prints with --json."""
    return {
        "reassignments": [
            {
                "topic": topic,
                "partition": partition,
                "replicas": list(assignment.replicas),
                "adding": list(assignment.adding),
                "removing": list(assignment.removing),
            }
            for (topic, partition), assignment in sorted(running.items())
        ]
    }


def verified(moves: Moves, topics: Mapping[str, TopicView], running: Mapping[TopicPartition, Assignment]) -> str:
    """Printed by --verify for reassignments."""
    lines = ["Status of partition reassignment:"]
    for partition, move in sorted(moves.items()):
        view = topics.get(partition.topic)
        replicas = () if view is None else view.replicas.get(partition.partition, ())
        if partition in running:
            lines.append(f"Reassignment of partition {partition} is still in progress.")
        elif replicas == move.replicas:
            lines.append(f"Reassignment of partition {partition} is completed.")
        else:
            lines.append(
                f"There is no active reassignment of partition {partition}, but replica set is {ids(replicas)} rather than "
                f"{ids(move.replicas)}."
            )
    return "\n".join(lines)


def log_dir_move(replica: Replica, directory: str, brokers: Mapping[int, BrokerReplicas]) -> tuple[str, bool]:
    """Printed by --verify for a replica that should be in this directory; also whether it is still being moved."""
    partition, broker = replica
    held = brokers.get(broker)
    state = None if held is None else held.replicas.get(partition)
    if state is None:
        if held is not None and held.has_offline_log_dir:
            offline = "There is likely an offline log directory on the broker."
            return f"Partition {partition} is not found in any live log dir on broker {broker}. {offline}", False
        return f"Partition {partition} cannot be found in any live log directory on broker {broker}.", False
    named = _replica(replica)
    if state.future_dir == directory:
        return f"Reassignment of replica {named} is still in progress.", True
    if state.future_dir is not None:
        return f"Partition {partition} on broker {broker} is being moved to log dir {state.future_dir} instead of {directory}.", True
    if state.log_dir == directory:
        return f"Reassignment of replica {named} completed successfully.", False
    return f"Partition {partition} on broker {broker} is not being moved from log dir {state.log_dir} to {directory}.", False


def _s(values: Collection[object]) -> str:
    return "" if len(values) == 1 else "s"


def _joined(partitions: Iterable[TopicPartition]) -> str:
    return ",".join(map(str, sorted(partitions)))


def _replica(replica: Replica) -> str:
    return f"{replica[0]}-{replica[1]}"


def _replicas(replicas: Iterable[Replica]) -> str:
    return ",".join(map(_replica, sorted(replicas)))
