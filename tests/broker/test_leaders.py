"""What a broker does as a leader: empty partitions that cost nothing, appends, the ISR's changes, who is woken by what."""

from __future__ import annotations

import asyncio
import gc
import random
import tracemalloc
from collections.abc import Sequence
from typing import Any

import pytest

from klamm.broker.leaders import MAX_SHARED_IDLES
from klamm.broker.leadership import IsrProposal
from klamm.broker.log.config import LogConfig
from klamm.broker.log.local_log import LogEnvironment
from klamm.broker.log.log import Log
from klamm.broker.log.manager import LogManager
from klamm.broker.log.memory import MemoryBudget
from klamm.broker.metadata_cache import MetadataCache
from klamm.broker.partition import HostedPartition, Role
from klamm.broker.replica_effects import WentOffline
from klamm.broker.replica_manager import ReplicaManager
from klamm.broker.replica_requests import with_storage_errors
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.nouns import TopicPartition
from klamm.protocol.records.validation import Origin
from klamm.server.local.driven_clock import DrivenClock
from klamm.tests.broker.log.batches import batch
from klamm.tests.broker.log.simulated_storage import SimulatedStorage, empty
from klamm.tests.broker.replica_requests import EPOCH, LISR, ME, A, lisr, state, stop
from klamm.tests.broker.update_metadata import broker, update
from klamm.tests.server.replication.followers import MemoryLogs
from klamm.tests.services import broker_config

LAG = 30_000


class Proposals:
    """Keeps what is proposed."""

    def __init__(self) -> None:
        self.all: list[IsrProposal] = []

    def submit(self, proposal: IsrProposal) -> None:
        self.all.append(proposal)


class Counter:
    """A waiter that counts."""

    def __init__(self) -> None:
        self.calls = 0

    def partition_changed(self, partition: HostedPartition) -> None:
        self.calls += 1


class Rig:
    """Broker 1 with logs in memory; brokers 1, 2, 3 are alive."""

    def __init__(self, min_isr: int = 1) -> None:
        self.clock = DrivenClock()
        config = broker_config(ME, min_insync_replicas=min_isr)
        self.logs = LogManager(config, self.clock, MemoryBudget(), random.Random(0).randrange, self._configs)
        self.replicas = ReplicaManager(ME, MetadataCache(ME), self.logs, self.clock, LAG)
        self.proposals = self.replicas.leaders.isr_updates = Proposals()
        self.replicas.handle_update_metadata(update(brokers=[broker(1), broker(2), broker(3)]), EPOCH)

    @staticmethod
    async def _configs(topics: Sequence[str]) -> list[None]:
        return [None] * len(topics)

    def tell(self, *states: Any) -> list[int]:
        response, effects = self.replicas.handle_leader_and_isr(lisr(*states), 7, EPOCH)
        self.replicas.apply(effects)
        return [row.error_code for topic in response.topics for row in topic.partition_errors]

    def lead(self, leader_epoch: int = 0, index: int = 0, **more: Any) -> HostedPartition:
        fields: dict[str, Any] = {"isr": [1, 2, 3], "replicas": [1, 2, 3], "partition_epoch": leader_epoch} | more
        assert self.tell(state(leader_epoch, index=index, **fields)) == [0]
        replica = self.replicas.get("t", index)
        assert replica is not None
        return replica

    async def append(self, replica: HostedPartition, count: int = 1, acks: int = -1) -> int:
        """Append; the last offset."""
        await self.replicas.open_log(replica)
        return self.replicas.append(replica, batch(count), 9, acks, Origin.CLIENT, 0).last_offset

    def fetch(self, replica: HostedPartition, broker_id: int, offset: int) -> None:
        self.replicas.follower_requested(broker_id)
        self.replicas.follower_fetched(replica, broker_id, -1, offset, 0)


@pytest.fixture
def rig() -> Rig:
    return Rig()


# partitions that are found, and codes where they are not


@pytest.mark.parametrize(
    ("epoch", "code"), [(-1, None), (3, None), (2, ErrorCode.FENCED_LEADER_EPOCH), (4, ErrorCode.UNKNOWN_LEADER_EPOCH)]
)
def test_epoch_of_the_client_is_compared(rig: Rig, epoch: int, code: ErrorCode | None) -> None:
    replica = rig.lead(3)
    if code is None:
        assert rig.replicas.leader("t", 0, epoch) is rig.replicas.replica("t", 0, epoch) is replica
    else:
        for find in (rig.replicas.leader, rig.replicas.replica):
            with pytest.raises(ApiError) as refused:
                find("t", 0, epoch)
            assert refused.value.code is code


def test_codes_of_partitions_that_are_not_led_here(rig: Rig) -> None:
    rig.tell(state(0, 2, isr=[2], replicas=[1, 2]))
    assert rig.replicas.replica("t", 0).role is Role.FOLLOWER
    for topic, expected in (("t", ErrorCode.NOT_LEADER_OR_FOLLOWER), ("x", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)):
        with pytest.raises(ApiError) as refused:
            rig.replicas.leader(topic, 0)
        assert refused.value.code is expected
    rig.replicas.apply(rig.replicas.fail_log_dir([TopicPartition("t", 0)]))
    with pytest.raises(ApiError) as refused:
        rig.replicas.replica("t", 0)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize(("epoch", "code"), [(-1, ErrorCode.NOT_LEADER_OR_FOLLOWER), (0, ErrorCode.UNKNOWN_LEADER_EPOCH)])
def test_follower_that_has_no_replica_is_refused(rig: Rig, epoch: int, code: ErrorCode) -> None:
    replica = rig.lead()
    rig.replicas.check_follower(replica, 2, epoch)
    with pytest.raises(ApiError) as refused:
        rig.replicas.check_follower(replica, 9, epoch)
    assert refused.value.code is code
    with pytest.raises(ApiError):
        rig.replicas.check_follower(replica, ME, epoch)


def test_offline_partition_is_a_storage_error_whatever_epoch_the_client_knows(rig: Rig) -> None:
    rig.lead(3)
    rig.replicas.apply(rig.replicas.fail_log_dir([TopicPartition("t", 0)]))
    for epoch in (-1, 2, 3, 4):
        with pytest.raises(ApiError) as refused:
            rig.replicas.leader("t", 0, epoch)
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR


# appends and the high watermark


async def test_leader_alone_moves_the_high_watermark_by_itself(rig: Rig) -> None:
    replica = rig.lead(isr=[1], replicas=[1])
    last = await rig.append(replica)
    assert (replica.high_watermark, rig.replicas.replication_result(replica, last)) == (1, ErrorCode.NONE)


async def test_records_are_replicated_when_the_isr_has_fetched_them(rig: Rig) -> None:
    replica = rig.lead()
    last = await rig.append(replica, 5)
    results = []
    for broker_id in (2, 3):
        results.append(rig.replicas.replication_result(replica, last))
        rig.fetch(replica, broker_id, 5)
    assert (results, rig.replicas.replication_result(replica, last)) == ([None, None], ErrorCode.NONE)


async def test_too_small_isr_refuses_acks_all_before_and_after_the_append() -> None:
    rig = Rig(min_isr=2)
    replica = rig.lead(isr=[1], replicas=[1, 2, 3])
    with pytest.raises(ApiError) as refused:
        await rig.append(replica)
    assert refused.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
    await rig.append(replica, acks=1)
    assert (replica.log_end_offset, replica.high_watermark) == (1, 0), "it does not move below min.insync.replicas"
    replica = rig.lead(1, isr=[1, 2])
    last = await rig.append(replica)
    rig.fetch(replica, 2, 2)
    assert rig.replicas.replication_result(replica, last) is ErrorCode.NONE
    rig.lead(2, isr=[1])
    assert rig.replicas.replication_result(replica, last) is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


async def test_min_insync_replicas_above_the_number_of_replicas_counts_as_that_number() -> None:
    rig = Rig(min_isr=3)
    replica = rig.lead(isr=[1], replicas=[1])
    assert rig.replicas.replication_result(replica, await rig.append(replica)) is ErrorCode.NONE


async def test_waiting_append_ends_when_the_leader_changes_or_the_partition_goes(rig: Rig) -> None:
    replica = rig.lead()
    waiter = Counter()
    replica.watch(waiter)
    last = await rig.append(replica)
    assert (waiter.calls, rig.replicas.replication_result(replica, last)) == (1, None)
    rig.tell(state(1, 2, replicas=[1, 2, 3]))
    assert (waiter.calls, rig.replicas.replication_result(replica, last)) == (2, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    _, effects = rig.replicas.handle_stop_replica(stop((0, -2, True)), 4, EPOCH)
    rig.replicas.apply(effects)
    assert (waiter.calls, rig.replicas.replication_result(replica, last)) == (3, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert rig.logs.get("t", 0) is None, "the log went with it"
    replica.unwatch(waiter)
    replica.changed()
    assert waiter.calls == 3


async def test_new_leader_epoch_begins_at_the_end_of_the_log(rig: Rig) -> None:
    replica = rig.lead(2)
    await rig.append(replica, 4)
    rig.lead(5)
    assert replica.log is not None and replica.leadership is not None
    assert [replica.log.end_offset_for(epoch) for epoch in (2, 5)] == [(2, 4), (5, 4)]
    assert replica.leadership.epoch_start_offset == 4


async def test_new_leader_epoch_begins_behind_what_is_appended_and_not_written_yet(rig: Rig) -> None:
    replica, storage = rig.lead(2), SimulatedStorage()
    environment = LogEnvironment(MemoryBudget(), lambda: 0, lambda bound: 0)
    log = Log("t", 0, bytes(16), LogConfig(), environment, storage, empty())
    rig.replicas.states.attach(replica, log)
    await rig.append(replica, 4)
    assert (log.log_end_offset, log.next_offset) == (0, 4)
    rig.lead(5)
    assert replica.leadership is not None
    assert (replica.leadership.epoch_start_offset, log.epochs.entries) == (4, ((2, 0), (5, 4)))


async def test_high_watermark_does_not_go_back_when_a_new_epoch_knows_less_of_followers(rig: Rig) -> None:
    replica = rig.lead()
    await rig.append(replica, 5)
    for broker_id in (2, 3):
        rig.fetch(replica, broker_id, 5)
    rig.tell(state(1, 2, replicas=[1, 2, 3], partition_epoch=1))
    rig.lead(2)
    await rig.append(replica, 1)
    assert replica.high_watermark == 5
    rig.fetch(replica, 2, 3)
    rig.fetch(replica, 3, 3)
    assert replica.high_watermark == 5


async def test_log_that_a_leader_opens_knows_the_leader_epoch_before_the_first_append(rig: Rig) -> None:
    replica = rig.lead(3)
    log = await rig.replicas.open_log(replica)
    assert log.end_offset_for(3) == (3, 0)
    assert log.end_offset_for(4) == (-1, -1)


async def test_acks_of_all_count_who_is_to_join_the_isr() -> None:
    rig = Rig(min_isr=2)
    replica = rig.lead(isr=[1, 2])
    last = await rig.append(replica)
    rig.fetch(replica, 2, 1)
    rig.lead(1, isr=[1])
    assert rig.replicas.replication_result(replica, last) is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    rig.fetch(replica, 2, 1)
    assert (replica.isr, replica.maximal_isr) == ((1,), (1, 2))
    assert rig.replicas.replication_result(replica, last) is ErrorCode.NONE


# the ISR


async def test_follower_joins_at_the_high_watermark(rig: Rig) -> None:
    replica = rig.lead(isr=[1, 2])
    await rig.append(replica, 5)
    rig.fetch(replica, 2, 5)
    rig.fetch(replica, 3, 4)
    assert rig.proposals.all == []
    rig.fetch(replica, 3, 5)
    assert [proposal.isr for proposal in rig.proposals.all] == [(1, 2, 3)]
    rig.fetch(replica, 3, 5)
    assert len(rig.proposals.all) == 1, "one change at a time"


async def test_follower_of_an_empty_partition_joins_at_its_first_fetch(rig: Rig) -> None:
    replica = rig.lead(isr=[1, 2])
    rig.fetch(replica, 3, 0)
    assert [proposal.isr for proposal in rig.proposals.all] == [(1, 2, 3)]


async def test_followers_that_never_fetch_an_empty_partition_leave_after_the_lag(rig: Rig) -> None:
    replica, other = rig.lead(), rig.lead(index=1)
    for broker_id in (2, 3):
        rig.fetch(other, broker_id, 0)
    rig.fetch(replica, 3, 0)
    await rig.clock.advance(LAG / 1000)
    rig.replicas.leaders.check_followers()
    assert rig.proposals.all == []
    await rig.clock.advance(0.002)
    rig.replicas.leaders.check_followers()
    assert [(p.partition.index, p.isr) for p in rig.proposals.all] == [(0, (1, 3))]
    assert other.leadership is None, "a partition whose followers have fetched stays as small as it was"


async def test_followers_that_fetched_an_empty_partition_need_not_do_so_again_in_a_new_epoch_of_its_leader(rig: Rig) -> None:
    replica = rig.lead()
    for broker_id in (2, 3):
        rig.fetch(replica, broker_id, 0)
    rig.lead(1)
    await rig.clock.advance(LAG / 1000 + 0.002)
    rig.replicas.leaders.check_followers()
    assert rig.proposals.all == []


async def test_followers_of_an_empty_partition_have_their_whole_time_again_in_a_new_epoch(rig: Rig) -> None:
    replica = rig.lead()
    rig.fetch(replica, 2, 0)
    await rig.clock.advance(20)
    rig.lead(1)
    await rig.clock.advance(20)
    rig.replicas.leaders.check_followers()
    assert rig.proposals.all == []
    await rig.clock.advance(10.002)
    rig.replicas.leaders.check_followers()
    assert [proposal.isr for proposal in rig.proposals.all] == [(1, 2)]


async def test_follower_that_is_new_in_the_isr_of_an_empty_partition_has_to_fetch_it(rig: Rig) -> None:
    replica = rig.lead(isr=[1, 2, 4], replicas=[1, 2, 3, 4])
    for broker_id in (2, 4):
        rig.fetch(replica, broker_id, 0)
    rig.lead(1, isr=[1, 2, 3], replicas=[1, 2, 3, 4])
    await rig.clock.advance(LAG / 1000 + 0.002)
    rig.replicas.leaders.check_followers()
    assert [proposal.isr for proposal in rig.proposals.all] == [(1, 2)]


async def test_followers_that_fetched_an_empty_partition_are_in_sync_when_its_first_record_comes(rig: Rig) -> None:
    replica = rig.lead()
    for broker_id in (2, 3):
        rig.fetch(replica, broker_id, 0)
    await rig.clock.advance(25)
    for broker_id in (2, 3):
        rig.replicas.follower_requested(broker_id)
    await rig.clock.advance(4)
    await rig.append(replica)
    await rig.clock.advance(2)
    rig.replicas.leaders.check_followers()
    assert rig.proposals.all == []


async def test_partition_that_another_broker_leads_now_is_not_checked_for_followers_that_fall_behind(rig: Rig) -> None:
    replica = rig.lead()
    await rig.append(replica)
    rig.tell(state(1, 2, replicas=[1, 2, 3], partition_epoch=1))
    await rig.clock.advance(2 * LAG / 1000)
    rig.replicas.leaders.check_followers()
    assert rig.proposals.all == []


async def test_followers_that_have_everything_stay_however_long_nothing_is_written(rig: Rig) -> None:
    replica = rig.lead()
    await rig.append(replica, 5)
    for broker_id in (2, 3):
        rig.fetch(replica, broker_id, 5)
    await rig.clock.advance(3600)
    rig.replicas.leaders.check_followers()
    rig.replicas.follower_requested(2)  # its session names the partition no more
    await rig.append(replica, 1)
    rig.replicas.leaders.check_followers()
    assert [proposal.isr for proposal in rig.proposals.all] == [(1, 2)], "3 sent its last request an hour ago"


async def test_confirmed_change_moves_the_high_watermark_and_wakes(rig: Rig) -> None:
    replica = rig.lead()
    last = await rig.append(replica, 5)
    rig.fetch(replica, 2, 5)
    await rig.clock.advance(LAG / 1000 + 0.002)
    rig.fetch(replica, 2, 5)
    rig.replicas.leaders.check_followers()
    (proposal,) = rig.proposals.all
    assert rig.replicas.replication_result(replica, last) is None
    waiter = Counter()
    replica.watch(waiter)
    rig.replicas.leaders.isr_altered(proposal, 0, 1, (1, 2), 0)
    assert (waiter.calls, replica.high_watermark, rig.replicas.replication_result(replica, last)) == (1, 5, ErrorCode.NONE)


async def test_refused_change_lets_the_high_watermark_move_again(rig: Rig) -> None:
    """Broker 3 leaves in the instant in which it was to join: nobody else would look, since the other follower has everything."""
    replica = rig.lead(isr=[1, 2])
    last = await rig.append(replica)
    counter = Counter()
    replica.watch(counter)
    rig.fetch(replica, 3, 0)
    (proposal,) = rig.proposals.all
    assert proposal.isr == (1, 2, 3)
    rig.fetch(replica, 2, last + 1)
    rig.replicas.handle_update_metadata(update(brokers=[broker(1), broker(2)]), EPOCH)
    assert replica.high_watermark == 0, "it waits for broker 3 too"
    calls = counter.calls
    assert not rig.replicas.leaders.isr_refused(proposal, ErrorCode.INELIGIBLE_REPLICA)
    assert replica.high_watermark == last + 1
    assert counter.calls == calls + 1, "who waits for acknowledgements looks again"


@pytest.mark.parametrize(("leader_epoch", "partition_epoch"), [(1, 9), (0, -1)])
async def test_result_for_another_epoch_does_not_count(rig: Rig, leader_epoch: int, partition_epoch: int) -> None:
    replica = rig.lead(isr=[1, 2])
    rig.fetch(replica, 3, 0)
    (proposal,) = rig.proposals.all
    rig.replicas.leaders.isr_altered(proposal, leader_epoch, partition_epoch, (1, 2, 3), 0)
    assert (replica.isr, replica.maximal_isr) == ((1, 2), (1, 2, 3)), "pending until a LeaderAndIsr comes"


async def test_result_that_comes_twice_counts_once(rig: Rig) -> None:
    replica = rig.lead(isr=[1, 2])
    rig.fetch(replica, 3, 0)
    (proposal,) = rig.proposals.all
    rig.replicas.leaders.isr_altered(proposal, 0, 1, (1, 2, 3), 0)
    rig.replicas.leaders.isr_altered(proposal, 0, 2, (1, 2), 0)
    assert (replica.isr, replica.partition_epoch) == ((1, 2, 3), 1)


async def test_recovering_leader_takes_no_records_and_asks_once_until_the_controller_says_that_it_has_recovered(rig: Rig) -> None:
    rig.replicas.states.recover = lambda replica: None
    replica = rig.lead(isr=[1], leader_recovery_state=1)
    await rig.replicas.open_log(replica)
    with pytest.raises(ApiError) as refused:
        rig.replicas.append(replica, batch(), 9, 1, Origin.CLIENT, 0)
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    for _ in range(2):
        rig.replicas.leaders.recovered(replica, 0)
    (proposal,) = rig.proposals.all
    rig.replicas.leaders.isr_altered(proposal, 0, 1, (1,), 1)
    assert replica.is_recovering


@pytest.mark.requirement("R704-10", "R704-15")
async def test_recovering_leader_lets_nobody_join_until_it_is_confirmed(rig: Rig) -> None:
    rig.replicas.states.recover = lambda replica: None
    replica = rig.lead(isr=[1], leader_recovery_state=1, adding_replicas=[3])
    assert replica.is_recovering
    for find in (rig.replicas.leader, rig.replicas.replica):
        with pytest.raises(ApiError) as refused:
            find("t", 0)
        assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    rig.fetch(replica, 3, 0)
    assert rig.proposals.all == []
    rig.replicas.leaders.recovered(replica, 7)
    assert rig.proposals.all == [], "another leader epoch"
    rig.replicas.leaders.recovered(replica, 0)
    (proposal,) = rig.proposals.all
    assert (proposal.isr, proposal.recovery) == ((1,), 0)
    assert rig.replicas.leaders.isr_refused(proposal, ErrorCode.INELIGIBLE_REPLICA), "sent again: without it nobody is served"
    rig.replicas.leaders.isr_altered(proposal, 0, 1, (1,), 0)
    assert not replica.is_recovering and rig.replicas.leader("t", 0) is replica
    rig.fetch(replica, 3, 0)
    assert [proposal.isr for proposal in rig.proposals.all] == [(1,), (1, 3)]


# logs on disk that cannot be made


class FailingLogs:
    """Logs on disk whose directory has no room; keeps what is deleted."""

    on_disk = True

    def __init__(self) -> None:
        self.deleted: list[tuple[str, int]] = []

    def get(self, topic: str, partition: int) -> Log | None:
        return None

    async def open(self, topic: str, partition: int, topic_id: bytes, is_new: bool) -> Log:
        raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "no room")

    def delete(self, topic: str, partition: int) -> None:
        self.deleted.append((topic, partition))


@pytest.mark.parametrize("version", [4, 7])
async def test_partition_whose_log_cannot_be_made_is_offline_and_the_response_says_so(version: int) -> None:
    replicas = ReplicaManager(ME, MetadataCache(ME), FailingLogs())
    request = lisr(state(0, isr=[1], replicas=[1]), topic_id=A)
    response, effects = replicas.handle_leader_and_isr(request, version, EPOCH)
    seen: list[Any] = []
    replicas.listeners.append(seen.append)
    making = replicas.apply(effects)
    assert making is not None
    failed = await making
    assert failed == {("t", 0)} and seen[-1] == [WentOffline("t", [0])]
    response = with_storage_errors(request, version, response, failed)
    rows = response.partition_errors if version < 5 else response.topics[0].partition_errors
    assert [row.error_code for row in rows] == [ErrorCode.KAFKA_STORAGE_ERROR]
    with pytest.raises(ApiError) as refused:
        replicas.leader("t", 0)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_deletion_of_a_replica_that_is_not_hosted_removes_what_is_left_on_disk() -> None:
    logs = FailingLogs()
    replicas = ReplicaManager(ME, MetadataCache(ME), logs)
    response, _ = replicas.handle_stop_replica(stop((0, -1, True), (1, -1, False)), 4, EPOCH)
    assert [row.error_code for row in response.partition_errors] == [0, 0]
    assert logs.deleted == [("t", 0)]


class GatedLogs(MemoryLogs):
    """Logs that are opened when the test says so, perhaps with an error."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()

    async def open(self, topic: str, partition: int, topic_id: bytes, is_new: bool) -> Log:
        await self.gate.wait()
        return await super().open(topic, partition, topic_id, is_new)


@pytest.mark.parametrize(
    ("what", "code"), [("deleted", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), ("offline", ErrorCode.KAFKA_STORAGE_ERROR)]
)
async def test_log_of_a_partition_that_is_gone_when_it_was_opened_is_not_served(what: str, code: ErrorCode) -> None:
    logs = GatedLogs()
    replicas = ReplicaManager(ME, MetadataCache(ME), logs)
    replicas.apply(replicas.handle_leader_and_isr(lisr(state(0, isr=[1], replicas=[1])), 7, EPOCH).effects)
    replica = replicas.get("t", 0)
    assert replica is not None
    opening = asyncio.ensure_future(replicas.open_log(replica))
    await asyncio.sleep(0)
    if what == "deleted":
        replicas.apply(replicas.handle_stop_replica(stop((0, -2, True)), 4, EPOCH).effects)
    else:
        replicas.apply(replicas.fail_log_dir([TopicPartition("t", 0)]))
    logs.gate.set()
    with pytest.raises(ApiError) as refused:
        await opening
    assert refused.value.code is code
    assert replica.log is None


@pytest.mark.parametrize("what", ["configs cannot be read", "deleted meanwhile"])
async def test_log_that_cannot_be_made_for_another_reason_takes_no_partition_offline(what: str) -> None:
    logs = GatedLogs()
    logs.on_disk = True
    replicas = ReplicaManager(ME, MetadataCache(ME), logs)
    logs.refused = ApiError(ErrorCode.REQUEST_TIMED_OUT if what == "configs cannot be read" else ErrorCode.KAFKA_STORAGE_ERROR)
    seen: list[Any] = []
    making = replicas.apply(replicas.handle_leader_and_isr(lisr(state(0, isr=[1], replicas=[1])), 7, EPOCH).effects)
    assert making is not None
    task = asyncio.ensure_future(making)
    await asyncio.sleep(0)
    if what == "deleted meanwhile":
        replicas.handle_stop_replica(stop((0, -2, True)), 4, EPOCH)
    replicas.listeners.append(seen.append)
    logs.gate.set()
    assert await task == set()
    assert seen == []


async def test_directory_that_fails_takes_the_logs_of_its_partitions_along_and_tells_of_each_once(rig: Rig) -> None:
    replica = rig.lead()
    await rig.append(replica)
    assert rig.replicas.fail_log_dir([TopicPartition("t", 0)]) == [WentOffline("t", [0])]
    assert replica.log is None
    assert rig.replicas.fail_log_dir([TopicPartition("t", 0)]) == []


# memory


def test_what_was_shared_by_partitions_of_the_past_is_forgotten(rig: Rig) -> None:
    for number in range(MAX_SHARED_IDLES + 50):
        rig.clock.jump(0.001)
        rig.fetch(rig.lead(index=number), 2, 0)
    assert len(rig.replicas.leaders._idles) <= MAX_SHARED_IDLES + 1


@pytest.mark.parametrize("leader", [1, 2])
def test_an_empty_partition_costs_less_than_250_bytes_here(leader: int) -> None:
    rig = Rig()
    topics = [
        LISR.LeaderAndIsrTopicState(
            f"topic-{number}", bytes(15) + bytes([number]),
            [
                LISR.LeaderAndIsrPartitionState(
                    partition_index=index, controller_epoch=1, leader=leader, isr=(1, 2, 3), replicas=(1, 2, 3), is_new=True
                )
                for index in range(100)
            ],
        )
        for number in range(100)
    ]
    request = LISR(controller_id=9, controller_epoch=1, broker_epoch=EPOCH, topic_states=topics)
    gc.collect()
    tracemalloc.start()
    _, effects = rig.replicas.handle_leader_and_isr(request, 7, EPOCH)
    rig.replicas.apply(effects)
    del effects
    for topic in topics if leader == ME else []:
        for index in range(100):
            replica = rig.replicas.get(topic.topic_name, index)
            assert replica is not None
            rig.fetch(replica, 2, 0)
            rig.fetch(replica, 3, 0)
    gc.collect()
    size = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert len(rig.replicas) == 10_000
    assert size / 10_000 < 250
