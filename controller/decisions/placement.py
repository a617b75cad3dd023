"""Where automatic placement puts the replicas of new partitions (controller 5.4). Pure: the dice are arguments.

The brokers form a ring. A partition's first replica stands at `start_index` plus the partition's number; the others follow it
around the ring at a distance that grows by one each time the first replicas have gone once around, so that followers of one
leader spread over all brokers. When every broker has a rack the ring alternates between the racks, and a candidate is passed
over while its rack already holds a replica and another rack holds none (likewise for the broker itself).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.nouns import Ints

Racks = Mapping[int, str | None]


def place_replicas(
    racks: Racks, partitions: int, replication_factor: int, start_index: int, shift: int, first_partition: int = 0
) -> dict[int, Ints]:
    """Replica lists of `partitions` new partitions; the first one has the index `first_partition`.

    `racks` holds every candidate broker; `start_index` and `shift` are in [0, number of brokers). A fixed start means both
    are that start. Raises ApiError: INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR, UNKNOWN_SERVER_ERROR (some brokers lack a rack).
    """
    if partitions <= 0:
        raise ApiError(ErrorCode.INVALID_PARTITIONS, "Number of partitions must be larger than 0.")
    if replication_factor <= 0:
        raise ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, "Replication factor must be larger than 0.")
    if replication_factor > len(racks):
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR, f"Replication factor: {replication_factor} larger than available brokers: {len(racks)}."
        )
    check_racks(racks)
    ids = sorted(racks)
    if racks[ids[0]] is None:
        return _place_without_racks(ids, partitions, replication_factor, start_index, shift, first_partition)
    return _place_with_racks(racks, partitions, replication_factor, start_index, shift, first_partition)


def check_racks(racks: Racks) -> None:
    """Either every broker has a rack or none has; anything else is UNKNOWN_SERVER_ERROR, as in Apache Kafka."""
    if len({rack is None for rack in racks.values()}) > 1:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "some brokers have a rack and some have none")


def growth_start(broker_ids: list[int], first_replica: int) -> int:
    """The fixed start for partitions added to a topic: the first broker, by id, from partition 0's first replica on; else 0."""
    return next((i for i, broker in enumerate(sorted(broker_ids)) if broker >= first_replica), 0)


def alternate_racks(racks: Mapping[int, str | None]) -> list[int]:
    """Brokers in turns over the sorted racks, by id within a rack: racks 0:a 1:a 2:b give 0, 2, 1."""
    members: dict[str, list[int]] = {}
    for broker in sorted(racks):
        members.setdefault(str(racks[broker]), []).append(broker)
    ring: list[int] = []
    for turn in range(max(map(len, members.values()))):
        ring.extend(members[rack][turn] for rack in sorted(members) if turn < len(members[rack]))
    return ring


def _place_without_racks(ids: list[int], partitions: int, replication_factor: int, start: int, shift: int, first: int) -> dict[int, Ints]:
    n = len(ids)

    def replicas(leader: int, distance: int) -> Ints:
        followers = (ids[(leader + 1 + (distance + j) % (n - 1)) % n] for j in range(replication_factor - 1))
        return (ids[leader], *followers)

    return _place_around(n, 1, replicas, range(first, first + partitions), start, shift)


def _place_around(n: int, step: int, replicas: Callable[[int, int], Ints], partitions: range, start: int, shift: int) -> dict[int, Ints]:
    """Go around a ring of `n` brokers. `replicas(place of the leader, distance)` is called once for each pair, distances below n - 1."""
    placed: dict[int, Ints] = {}
    known: dict[tuple[int, int], Ints] = {}
    distances = max(1, n - 1)
    for partition in partitions:
        if partition > 0 and partition % n == 0:
            shift += 1
        key = (partition + start) % n, shift * step % distances
        found = known.get(key)
        if found is None:
            found = known[key] = replicas(*key)
        placed[partition] = found
    return placed


def _place_with_racks(racks: Racks, partitions: int, replication_factor: int, start: int, shift: int, first: int) -> dict[int, Ints]:
    ring = alternate_racks(racks)
    n = len(ring)
    rack_count = len(set(racks.values()))

    def replicas(leader: int, distance: int) -> Ints:
        chosen = [ring[leader]]
        used_racks = {racks[ring[leader]]}
        looked_at = 0
        while len(chosen) < replication_factor:
            broker = ring[(leader + 1 + (distance + looked_at) % (n - 1)) % n]
            looked_at += 1
            if broker in chosen or (racks[broker] in used_racks and len(used_racks) < rack_count):
                continue
            chosen.append(broker)
            used_racks.add(racks[broker])
        return tuple(chosen)

    return _place_around(n, rack_count, replicas, range(first, first + partitions), start, shift)
