"""Which faults a request or an operation of a log meets, and when it meets them no more."""

from __future__ import annotations

import asyncio

from klamm.broker.log.slow_disk import DiskOperation
from klamm.protocol.apis import ApiKey
from klamm.protocol.nouns import TopicPartition
from klamm.server.faults.fault import DiskFilter, Effect, Faults, RequestFilter
from klamm.server.faults.slow_disk import BrokerDisk
from klamm.server.local.driven_clock import DrivenClock

T = TopicPartition("t", 0)
APPEND: tuple[DiskOperation, ...] = ("append",)


async def test_a_request_meets_the_faults_of_its_api_and_those_of_all_apis() -> None:
    faults = Faults()
    of_all = faults.add(RequestFilter(), Effect(delay_ms=1))
    of_fetch = faults.add(RequestFilter(api=ApiKey.FETCH), Effect(delay_ms=1))
    assert faults.of(ApiKey.FETCH) == [of_all, of_fetch]
    assert faults.of(ApiKey.PRODUCE) == [of_all]
    faults.remove(of_all.number)
    assert faults.of(ApiKey.FETCH) == [of_fetch]
    assert faults.of(ApiKey.PRODUCE) == []


async def test_an_operation_that_two_slow_disks_delay_waits_until_both_are_removed() -> None:
    faults, ended = Faults(), list[str]()
    first, second = (faults.add(DiskFilter(broker=1), Effect(slow_disk_ms=1000)) for _ in range(2))
    disk = BrokerDisk(faults, 1, DrivenClock())
    disk.begin(APPEND, T, None, lambda: ended.append("ended"))
    faults.remove(first.number)
    await asyncio.sleep(0)
    assert not ended, "the other disk is slow"
    faults.remove(second.number)
    assert ended == ["ended"]
