"""Rules of a leader: the high watermark, who joins the ISR and who leaves it, by tables (controller 14)."""

from __future__ import annotations

import asyncio

import pytest

from klamm.broker.leadership import NEVER, IsrProposal, Leadership
from klamm.broker.metadata_cache import MetadataCache
from klamm.broker.partition import HostedPartition
from klamm.broker.replica_manager import ReplicaManager
from klamm.protocol import messages
from klamm.protocol.records.validation import Origin
from klamm.server.local.driven_clock import DrivenClock
from klamm.tests.broker.log.batches import batch
from klamm.tests.broker.update_metadata import broker, update
from klamm.tests.server.replication.followers import MemoryLogs

LAG = 30_000
ALIVE = frozenset({1, 2, 3})


def led(isr: tuple[int, ...] = (1, 2, 3), offsets: dict[int, int] | None = None, *, start: int = 0, now_ms: int = 1000) -> Leadership:
    """Broker 1 leads for replicas 1, 2, 3; followers have fetched up to these offsets at `now_ms`, the leader then having 10 records."""
    partition = HostedPartition("t", 0, b"i" * 16)
    partition.leader, partition.isr, partition.replicas = 1, isr, (1, 2, 3)
    leadership = Leadership(partition, start)
    leadership.begin_epoch(start, now_ms, True)
    for broker_id, offset in (offsets or {}).items():
        leadership.followers[broker_id].fetched(offset, 0, -1, 10, now_ms)
    return leadership


@pytest.mark.parametrize(
    ("isr", "offsets", "later_ms", "expected"),
    [
        ((1, 2, 3), {2: 10, 3: 10}, 0, 10),
        ((1, 2, 3), {2: 7, 3: 10}, 0, 7),
        ((1, 2, 3), {2: 10}, 0, -1),  # 3 has not fetched yet
        ((1, 2), {2: 10, 3: 4}, 0, 10),  # not in the ISR, and never caught up
        ((1, 2), {2: 9, 3: 10}, 0, 9),
        ((1,), {}, 0, 10),
        ((1,), {2: 4}, 0, 10),
    ],
)
def test_high_watermark_is_what_the_isr_has(isr: tuple[int, ...], offsets: dict[int, int], later_ms: int, expected: int) -> None:
    assert led(isr, offsets).high_watermark(10, 1, 1000 + later_ms, LAG, ALIVE) == expected


def test_high_watermark_waits_for_a_caught_up_follower_outside_the_isr() -> None:
    leadership = led((1, 2), {2: 12, 3: 10})
    assert leadership.high_watermark(12, 1, 2000, LAG, ALIVE) == 10
    assert leadership.high_watermark(12, 1, 2000, LAG, {1, 2}) == 12, "a dead one may not join"
    assert leadership.high_watermark(12, 1, 1001 + LAG, LAG, ALIVE) == 12, "it is not caught up any more"


def test_high_watermark_waits_for_the_larger_isr_while_a_change_is_pending() -> None:
    leadership = led((1, 2), {2: 10, 3: 6})
    assert leadership.high_watermark(10, 1, 1000, LAG, ALIVE) == 10
    leadership.pending = leadership.expansion(3, 5, ALIVE)
    assert leadership.pending is not None and leadership.pending.maximal_isr == (1, 2, 3)
    assert leadership.high_watermark(10, 1, 1000, LAG, ALIVE) == 6


def test_high_watermark_does_not_move_below_min_insync_replicas() -> None:
    assert led((1,), {}).high_watermark(10, 2, 1000, LAG, ALIVE) is None
    assert led((1, 2), {2: 10}).high_watermark(10, 2, 1000, LAG, ALIVE) == 10


@pytest.mark.parametrize(
    ("offset", "high_watermark", "start", "alive", "joins"),
    [
        (5, 5, 0, {1, 2, 3}, True),
        (4, 5, 0, {1, 2, 3}, False),
        (5, 5, 6, {1, 2, 3}, False),
        (6, 5, 6, {1, 2, 3}, True),
        (9, 5, 0, {1, 2}, False),
    ],
)
def test_who_joins_the_isr(offset: int, high_watermark: int, start: int, alive: set[int], joins: bool) -> None:
    leadership = led((1, 2), {3: offset}, start=start)
    proposal = leadership.expansion(3, high_watermark, alive)
    assert (proposal is not None) is joins
    if proposal is not None:
        assert (proposal.isr, proposal.recovery) == ((1, 2, 3), 0)


def test_nobody_joins_twice_or_while_a_change_is_pending() -> None:
    leadership = led((1, 2), {2: 9, 3: 9})
    assert leadership.expansion(2, 0, ALIVE) is None
    leadership.pending = leadership.expansion(3, 0, ALIVE)
    assert leadership.pending is not None
    assert leadership.expansion(3, 0, ALIVE) is None
    assert leadership.shrinking(10, 1 << 40, LAG) is None


def test_recovering_leader_proposes_no_growth() -> None:
    leadership = led((1,), {3: 10})
    leadership.recovering = True
    assert leadership.expansion(3, 0, ALIVE) is None


@pytest.mark.parametrize(
    ("offsets", "later_ms", "expected"),
    [
        ({}, LAG, None),
        ({}, LAG + 1, (1,)),  # in the ISR they have so long for their first fetch
        ({2: 10}, LAG + 1, (1, 2)),
        ({2: 10, 3: 10}, 1 << 40, None),  # who has everything is never behind
        ({2: 9, 3: 10}, LAG, None),
        ({2: 9, 3: 10}, LAG + 1, (1, 3)),
    ],
)
def test_who_leaves_the_isr(offsets: dict[int, int], later_ms: int, expected: tuple[int, ...] | None) -> None:
    proposal = led(offsets=offsets).shrinking(10, 1000 + later_ms, LAG)
    assert (None if proposal is None else proposal.isr) == expected
    if proposal is not None:
        assert proposal.maximal_isr == (1, 2, 3), "until it is confirmed the high watermark waits for all"


def test_follower_that_reaches_the_end_of_its_last_fetch_was_caught_up_then() -> None:
    leadership = led()
    follower = leadership.followers[2]
    follower.fetched(5, 0, -1, 10, 2000)
    assert follower.last_caught_up_ms == 1000
    follower.fetched(10, 0, -1, 15, 3000)
    assert follower.last_caught_up_ms == 2000
    follower.fetched(15, 0, -1, 15, 4000)
    assert follower.last_caught_up_ms == 4000


def test_follower_that_had_everything_before_an_append_was_caught_up_until_its_last_request() -> None:
    leadership = led(offsets={2: 10, 3: 4})
    leadership.end_offset_moved(10, {})
    leadership.end_offset_moved(11, {2: 50_000, 3: 50_000})
    assert leadership.followers[2].is_caught_up(11, 50_000 + LAG, LAG)
    assert not leadership.followers[3].is_caught_up(11, 50_000, LAG)


def test_new_epoch_of_the_same_leader_keeps_offsets_and_forgets_the_lag() -> None:
    leadership = led(offsets={2: 9, 3: 9})
    leadership.partition.isr = (1, 2)
    leadership.begin_epoch(10, 90_000, False)
    two, three = leadership.followers[2], leadership.followers[3]
    assert (two.log_end_offset, two.last_caught_up_ms) == (9, 90_000)
    assert (three.log_end_offset, three.last_caught_up_ms) == (9, NEVER)
    leadership.begin_epoch(10, 90_000, True)
    assert leadership.followers[2].log_end_offset == -1


def test_low_watermark_is_the_lowest_start_of_the_live() -> None:
    leadership = led(offsets={2: 9, 3: 9})
    leadership.followers[2].log_start_offset = 3
    leadership.followers[3].log_start_offset = -1
    assert leadership.low_watermark({1, 2}) == 0  # the leader itself has no log yet
    assert leadership.low_watermark(ALIVE) == -1


def test_partition_is_settled_when_all_have_everything_and_are_in_the_isr() -> None:
    assert led(offsets={2: 10, 3: 10}).is_settled(10)
    assert not led(offsets={2: 9, 3: 10}).is_settled(10)
    assert not led((1, 2), {2: 10, 3: 10}).is_settled(10)
    leadership = led(offsets={2: 10, 3: 10})
    leadership.pending = IsrProposal(leadership.partition, (1, 2), (1, 2, 3))
    assert not leadership.is_settled(10)
    leadership = led(offsets={2: 10, 3: 10})
    leadership.recovering = True
    assert not leadership.is_settled(10)


def test_a_high_watermark_waits_no_more_for_a_caught_up_follower_that_is_not_alive_any_more() -> None:
    """A broker in controlled shutdown has left the ISR, and still fetches for a moment from the new leader."""
    clock = DrivenClock()
    replicas = ReplicaManager(1, MetadataCache(1), MemoryLogs(), clock)
    replicas.handle_update_metadata(update(brokers=[broker(1), broker(2), broker(3)]), 7)
    state = messages.LeaderAndIsrRequest.LeaderAndIsrPartitionState
    states = [state(partition_index=0, leader=1, leader_epoch=0, isr=[1, 2], replicas=[1, 2, 3], is_new=True)]
    topic = messages.LeaderAndIsrRequest.LeaderAndIsrTopicState(topic_name="t", topic_id=b"t" * 16, partition_states=states)
    replicas.handle_leader_and_isr(messages.LeaderAndIsrRequest(topic_states=[topic], controller_epoch=1, broker_epoch=7), 7, 7)
    replica = replicas.get("t", 0)
    assert replica is not None
    asyncio.run(replicas.open_log(replica))
    replicas.leaders.follower_fetched(replica, 3, -1, 0, 0)  # all there is
    replicas.leaders.append(replica, batch(4), 9, 1, Origin.CLIENT, 0)
    replicas.leaders.follower_fetched(replica, 2, -1, 4, 0)
    assert replica.high_watermark == 0
    replicas.handle_update_metadata(update(brokers=[broker(1), broker(2)]), 7)
    assert replica.high_watermark == 4
