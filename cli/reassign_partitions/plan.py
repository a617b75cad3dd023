"""Checks, proposals and throttles, computed from the file and the state of the cluster. Pure (controller 17, 18)."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from random import Random

from klamm.cli.reassign_partitions.cluster import Replica, Throttles, TopicView
from klamm.cli.tools.failures import ToolFailed
from klamm.cli.tools.files import ANY, Move, Moves
from klamm.controller.decisions.placement import place_replicas
from klamm.controller.decisions.throttled_replicas import move_to, running_move
from klamm.controller.values import Assignment
from klamm.protocol.nouns import Ints, TopicPartition

RUNNING = (
    "Cannot execute because there is an existing partition assignment. Use --additional to override this and create a new partition "
    "assignment in addition to the existing one, or --throttle with the current reassignment to change its throttle."
)


def topics_of(partitions: Iterable[TopicPartition]) -> list[str]:
    """The topics of these partitions, sorted, without duplicates."""
    return sorted({partition.topic for partition in partitions})


def brokers_of(moves: Mapping[TopicPartition, Move]) -> list[int]:
    """All brokers in the target replicas, sorted."""
    return sorted({broker for move in moves.values() for broker in move.replicas})


def current_replicas(partitions: Iterable[TopicPartition], topics: Mapping[str, TopicView]) -> dict[TopicPartition, Ints]:
    """The current replicas of the partitions that exist."""
    return {
        partition: topics[partition.topic].replicas[partition.partition]
        for partition in partitions
        if partition.topic in topics and partition.partition in topics[partition.topic].replicas
    }


def check_moves(moves: Moves, brokers: Iterable[int], topics: Mapping[str, TopicView]) -> None:
    """Raises ToolFailed if a broker, topic or partition of the reassignment does not exist."""
    ids = set(brokers)
    for partition, move in moves.items():
        unknown = next((broker for broker in move.replicas if broker not in ids), None)
        if unknown is not None:
            raise ToolFailed(f"Unknown broker id {unknown} in the replicas of partition {partition}")
        if partition.topic not in topics:
            raise ToolFailed(f"Unknown topic {partition.topic} of partition {partition}")
        if partition.partition not in topics[partition.topic].replicas:
            raise ToolFailed(f"Unknown partition {partition}")


def is_new_throttle_only(moves: Moves, running: Mapping[TopicPartition, Assignment]) -> bool:
    """Whether every partition is already being reassigned to exactly the replicas in the file (R179-37)."""
    return all(partition in running and running[partition].target == move.replicas for partition, move in moves.items())


def throttles_of(
    rate: int,
    targets: Mapping[TopicPartition, Ints],
    current: Mapping[TopicPartition, Ints],
    running: Mapping[TopicPartition, Assignment],
    taken: Container[int],
) -> Throttles:
    """The throttles for `targets`: their moves, and the running reassignments of other partitions. `taken` are the brokers for which the
    cluster accepts a rate.
    """
    moves = {partition: running_move(assignment) for partition, assignment in running.items()}
    for partition, target in targets.items():
        moves[partition] = move_to(running.get(partition, Assignment(current[partition])), target)
    copying = {broker for move in moves.values() for broker in move.sources | move.destinations}
    return Throttles(rate, moves, sorted(broker for broker in copying if broker in taken))


def taking_part(running: Mapping[TopicPartition, Assignment]) -> set[int]:
    """Brokers with replicas of partitions that are being reassigned, including dead ones: a controller with KIP-179 throttles them too."""
    return {broker for assignment in running.values() for broker in assignment.replicas}


def requested_log_dirs(moves: Mapping[TopicPartition, Move]) -> dict[Replica, str]:
    """Replica → log directory, for each replica for which the file names a directory."""
    return {
        (partition, broker): directory
        for partition, move in moves.items()
        for broker, directory in zip(move.replicas, move.log_dirs, strict=True)
        if directory != ANY
    }


def parse_broker_list(text: str) -> list[int]:
    """The broker ids of a comma-separated list, sorted. Raises ToolFailed."""
    ids: list[int] = []
    for word in text.split(","):
        if not word.strip().isdecimal() or not word.strip().isascii() or int(word) > 2**31 - 1:
            raise ToolFailed(f"--broker-list: {word.strip()!r} is not a broker id")
        if int(word) in ids:
            raise ToolFailed(f"--broker-list: Broker list contains duplicate entries: {int(word)}")
        ids.append(int(word))
    return sorted(ids)


def propose(
    names: Sequence[str],
    topics: Mapping[str, TopicView],
    broker_ids: Sequence[int],
    racks: Mapping[int, str | None],
    rack_aware: bool,
    dice: Random,
) -> dict[TopicPartition, Ints]:
    """New replicas on these brokers for all partitions of these topics. The replication factor is that of partition 0. Raises ToolFailed.

    The assignment of each topic starts at a random broker (controller 5.4).
    """
    chosen = _candidates(broker_ids, racks, rack_aware)
    proposed: dict[TopicPartition, Ints] = {}
    for name in sorted(names):
        if name not in topics:
            raise ToolFailed(f"Unknown topic {name}")
        partitions = topics[name].replicas
        factor = len(partitions[min(partitions)])
        if factor > len(chosen):
            raise ToolFailed(f"Topic {name}: Replication factor: {factor} larger than available brokers: {len(chosen)}")
        placed = place_replicas(chosen, len(partitions), factor, dice.randrange(len(chosen)), dice.randrange(len(chosen)))
        for partition, replicas in zip(sorted(partitions), placed.values(), strict=True):
            proposed[TopicPartition(name, partition)] = replicas
    return proposed


def _candidates(broker_ids: Sequence[int], racks: Mapping[int, str | None], rack_aware: bool) -> dict[int, str | None]:
    """Racks of the brokers that may get replicas; all None if racks are not used. Raises ToolFailed."""
    unknown = next((broker for broker in broker_ids if broker not in racks), None)
    if unknown is not None:
        raise ToolFailed(f"--broker-list: Unknown broker id {unknown}")
    chosen = {broker: racks[broker] if rack_aware else None for broker in broker_ids}
    if len({rack is None for rack in chosen.values()}) > 1:
        raise ToolFailed(
            "Not all brokers have rack information. Add --disable-rack-aware in command line to make replica assignment without rack "
            "information."
        )
    return chosen
