"""Replicas in one process share the bytes of batches that are equal; each log stays as if it had its own."""

from __future__ import annotations

from klamm.broker.log.config import LogConfig
from klamm.broker.log.local_log import LogEnvironment
from klamm.broker.log.log import Log
from klamm.broker.log.memory import SHARED_BYTES, MemoryBudget
from klamm.protocol.records.validation import Origin
from klamm.tests.broker.log.batches import batch

FAR = 2**63 - 1
SIZES = (SHARED_BYTES, 20, 30, 40_000, 20, SHARED_BYTES, SHARED_BYTES)


def replicas(budget: MemoryBudget, *partitions: int, **configs: object) -> list[Log]:
    environment = LogEnvironment(budget, lambda: 5_000, lambda bound: 0)
    return [Log("t", partition, bytes(16), LogConfig(**configs), environment) for partition in partitions]  # type: ignore[arg-type]


def lead(log: Log, *sizes: int) -> None:
    for size in sizes:
        log.append_as_leader(batch(size=size), 0, 9, Origin.CLIENT, 5_000)


def read(log: Log) -> bytes:
    data = b""
    while (offset := len(data) and log_end(data)) < log.log_end_offset:
        piece = log.read(offset, 1 << 30, FAR, True)
        assert isinstance(piece, bytes)
        data += piece
    return data


def log_end(data: bytes) -> int:
    position = offset = 0
    while position < len(data):
        offset = int.from_bytes(data[position : position + 8], "big") + 1
        position += 12 + int.from_bytes(data[position + 8 : position + 12], "big")
    return offset


def chunks(log: Log) -> list[bytes]:
    return [chunk for segment in log.segments for chunk in segment.chunks]


def shared(log: Log, other: Log) -> list[int]:
    """Sizes of the chunks that are the same object in both."""
    ids = set(map(id, chunks(other)))
    return [len(chunk) for chunk in chunks(log) if id(chunk) in ids]


def test_a_follower_keeps_the_objects_of_the_leader_and_joins_the_small_ones() -> None:
    leader, follower, third = replicas(MemoryBudget(), 0, 0, 0)
    lead(leader, *SIZES)
    follower.append_as_follower(read(leader), 0)
    third.append_as_follower(memoryview(read(leader)), 0)
    large = [len(batch(size=size)) for size in SIZES if size >= SHARED_BYTES]
    assert shared(follower, leader) == shared(third, leader) == large
    assert len(chunks(follower)) == len(large) + 2
    assert read(follower) == read(third) == read(leader)
    lead(leader, SHARED_BYTES)
    data = leader.read(len(SIZES), 1 << 30, FAR, True)
    assert isinstance(data, bytes)
    follower.append_as_follower(bytearray(data), 0)
    assert chunks(follower)[-1] is chunks(leader)[-1]


def test_batches_that_are_not_equal_are_not_shared() -> None:
    leader, follower, elsewhere = replicas(MemoryBudget(), 0, 0, 1)
    lead(leader, SHARED_BYTES)
    follower.append_as_follower(batch(size=SHARED_BYTES, timestamp=7), 0)
    elsewhere.append_as_follower(bytearray(read(leader)), 0)
    assert not shared(follower, leader) and not shared(elsewhere, leader)
    assert read(follower) == batch(size=SHARED_BYTES, timestamp=7)


def test_a_truncation_and_the_end_of_one_replica_leave_the_others_as_they_are() -> None:
    budget = MemoryBudget()
    leader, follower = replicas(budget, 0, 0)
    lead(leader, *SIZES)
    whole = read(leader)
    follower.append_as_follower(whole, 0)
    leader.truncate_to(1)
    lead(leader, 5_000)
    assert read(follower) == whole
    follower.append_as_follower(batch(size=5_000, base_offset=len(SIZES)), 0)
    leader.close()
    assert read(follower).startswith(whole)
    follower.close()
    assert budget.used == 0 and not budget._replicas


def test_batches_that_a_replica_gets_from_a_temporary_file_are_not_shared_and_equal() -> None:
    budget = MemoryBudget(200_000)
    leader, follower = replicas(budget, 0, 0, segment_bytes=60_000)
    for _ in range(10):
        lead(leader, 20_000)
        data = leader.read(follower.log_end_offset, 1 << 30, FAR, True)
        assert isinstance(data, bytes)
        follower.append_as_follower(data, 0)
        for log in (leader, follower):
            log.set_high_watermark(log.log_end_offset)
    assert leader.segments[0].spill is not None
    assert len(shared(follower, leader)) == len(chunks(follower)) < 10
    budget.close()
