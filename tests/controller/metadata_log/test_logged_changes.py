"""Which records follow from a read or a write, without a controller, and what the bound does to a log (controller 25.1)."""

from __future__ import annotations

from typing import Any

import pytest

from klamm.controller.metadata_log.log import MetadataLog
from klamm.controller.values import (
    Assignment,
    Broker,
    BrokerRegistration,
    BrokerState,
    ConfigEntity,
    ConfigWrite,
    LeaderAndIsr,
    StateWrite,
    StoredConfig,
    StoredTopic,
    TopicWrite,
    WriteOutcome,
)
from klamm.protocol import messages
from klamm.protocol.nouns import Endpoint, TopicPartition
from klamm.protocol.records.metadata_records import MetadataRecord
from klamm.tests.controller.metadata_log.metadata_views import ENOUGH, names, plain_partition, plain_view, records, replayed

# states that a PartitionChange says, and those that it cannot


KEY = TopicPartition("t", 0)
HELD = Assignment((1, 2, 3))


def logged(before: LeaderAndIsr | None, after: LeaderAndIsr, expected: int) -> tuple[list[MetadataRecord], tuple[Any, ...]]:
    """What is appended for one write that took hold, and the partition as the whole log has it then."""
    log = MetadataLog(1)
    log.topics_read(["t"], [StoredTopic(b"t" * 16, {0: HELD})])
    log.states_read([KEY], [before])
    log.began()
    offset = log.high_watermark
    log.states_written([StateWrite("t", 0, after, expected)], [WriteOutcome.OK])
    return records(log, offset), plain_view(replayed(log))["partitions"]["t", 0]


LAST = 2**31 - 1
STATE = LeaderAndIsr(1, 5, (1, 2), 0, 9)


@pytest.mark.parametrize(
    ("before", "after", "expected", "said"),
    [
        (STATE, STATE._replace(leader=2, leader_epoch=6, partition_epoch=10), 9, {"leader": 2}),
        (STATE, STATE._replace(leader_epoch=6, partition_epoch=10), 9, {"leader": 1}),
        (STATE, STATE._replace(leader=-1, leader_epoch=6, partition_epoch=10), 9, {"leader": -1}),
        (STATE, STATE._replace(isr=(1,), partition_epoch=10), 9, {"isr": (1,)}),
        (STATE, STATE._replace(isr=(), partition_epoch=10), 9, {"isr": ()}),
        (STATE, STATE._replace(isr=(2, 1), partition_epoch=10), 9, {"isr": (2, 1)}),
        (STATE, STATE._replace(partition_epoch=10), 9, {}),
        (STATE, STATE._replace(leader=2, leader_epoch=6, isr=(2,), recovery=1, partition_epoch=10), 9,
         {"leader": 2, "isr": (2,), "leader_recovery_state": 1}),
        (STATE._replace(recovery=1), STATE._replace(partition_epoch=10), 9, {"leader_recovery_state": 0}),
        (STATE._replace(leader_epoch=LAST), STATE._replace(leader_epoch=-LAST - 1, partition_epoch=10), 9, {"leader": 1}),
        (None, LeaderAndIsr(1, 0, (1, 2, 3), 0, 0), -1, {"leader": 1, "isr": (1, 2, 3)}),
        (STATE._replace(partition_epoch=LAST), STATE._replace(isr=(1,), partition_epoch=LAST + 1), LAST, {"isr": (1,)}),
    ],
)
def test_a_write_is_a_partition_change_of_what_it_changes(
    before: LeaderAndIsr | None, after: LeaderAndIsr, expected: int, said: dict[str, Any]
) -> None:
    found, partition = logged(before, after, expected)
    assert found == [messages.PartitionChangeRecord(partition_id=0, topic_id=b"t" * 16, **said)]
    assert partition == plain_partition(HELD, after._replace(partition_epoch=expected + 1 if expected < LAST else -LAST - 1))


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (STATE, STATE._replace(leader_epoch=7), 9),
        (STATE, STATE._replace(leader_epoch=4), 9),
        (STATE, STATE._replace(leader=2), 9),
        (STATE, STATE._replace(leader=-2, leader_epoch=6), 9),
        (STATE, STATE._replace(isr=(1,)), 12),
        (None, LeaderAndIsr(1, 3, (1,)), -1),
        (None, LeaderAndIsr(1, 0, (1,)), 4),
    ],
)
def test_a_write_that_a_partition_change_cannot_say_is_a_whole_partition(
    before: LeaderAndIsr | None, after: LeaderAndIsr, expected: int
) -> None:
    found, partition = logged(before, after, expected)
    assert names(found) == ["Partition"]
    assert partition == plain_partition(HELD, after._replace(partition_epoch=expected + 1))


@pytest.mark.parametrize(
    "outcome", [WriteOutcome.BAD_VERSION, WriteOutcome.NO_NODE, WriteOutcome.NODE_EXISTS, WriteOutcome.FAILED], ids=lambda o: o.name
)
def test_a_write_that_did_not_take_hold_appends_nothing(outcome: WriteOutcome) -> None:
    log = MetadataLog(1)
    log.topics_read(["t"], [StoredTopic(b"t" * 16, {0: HELD})])
    log.began()
    offset = log.high_watermark
    called: list[int] = []
    log.on_append(lambda: called.append(1))
    for writes in ([StateWrite("t", 0, STATE, 3)], [StateWrite("t", 0, STATE, 3)] * 2):
        log.states_written(writes, [outcome] * len(writes))
    log.topics_written([TopicWrite("t", b"t" * 16, {})], [outcome])
    log.configs_written([ConfigWrite(ConfigEntity("topics", "t"), {"a": "1"}, 0)], [outcome])
    log.registrations_written([BrokerRegistration(1, 1, BrokerState.ONLINE, ())], [outcome])
    assert log.high_watermark == offset and not called


def test_what_is_the_same_as_before_appends_nothing() -> None:
    log = MetadataLog(1)
    topic, config = StoredTopic(b"t" * 16, {0: HELD}), {ConfigEntity("topics", "t"): {"a": "1"}}
    broker = Broker(1, 7, (Endpoint("PLAINTEXT", "h", 1, 0),))

    def everything() -> None:
        log.brokers_read({1: broker._replace()})
        log.topics_read(["t"], [StoredTopic(topic.topic_id, {0: Assignment(*HELD)})])
        log.states_read([KEY], [STATE._replace()])
        log.all_configs_read({entity: dict(properties) for entity, properties in config.items()})

    everything()
    log.began()
    offset = log.high_watermark
    assert offset == 4
    everything()
    log.topics_listed(["t"])
    log.broker_read(broker)
    log.broker_read(None)
    log.topics_read(["t"], [None])
    log.configs_read(config, [None])
    assert log.high_watermark == offset


# brokers that register with the controller


@pytest.mark.requirement("RREG-11")
def test_the_states_of_a_registration_are_register_unfence_fence_change_and_unregister_records() -> None:
    log = MetadataLog(1)
    log.began()
    node = BrokerRegistration(5, 3, BrokerState.FENCED, (Endpoint("PLAINTEXT", "h", 9092, 0),), "r")

    def wrote(registration: BrokerRegistration) -> list[MetadataRecord]:
        offset = log.high_watermark
        log.registrations_written([registration], [WriteOutcome.OK])
        return records(log, offset)

    register = messages.RegisterBrokerRecord
    endpoint = register.BrokerEndpoint(name="PLAINTEXT", host="h", port=9092, security_protocol=0)
    fenced = register(broker_id=5, broker_epoch=3, end_points=[endpoint], rack="r", fenced=True)
    assert wrote(node) == [fenced]
    assert wrote(node._replace(state=BrokerState.ONLINE)) == [messages.UnfenceBrokerRecord(id=5, epoch=3)]
    assert wrote(node) == [messages.FenceBrokerRecord(id=5, epoch=3)]
    assert wrote(node._replace(epoch=4)) == [fenced._replace(broker_epoch=4)]
    assert wrote(node._replace(epoch=4, state=BrokerState.ONLINE)) == [messages.UnfenceBrokerRecord(id=5, epoch=4)]
    stopping = messages.BrokerRegistrationChangeRecord(broker_id=5, broker_epoch=4, in_controlled_shutdown=1)
    assert wrote(node._replace(epoch=4, state=BrokerState.STOPPING)) == [stopping]
    assert wrote(node._replace(epoch=5)) == [fenced._replace(broker_epoch=5)], "a stopping broker that registers again is fenced"
    assert wrote(node._replace(epoch=5, state=BrokerState.OFFLINE)) == [messages.UnregisterBrokerRecord(broker_id=5, broker_epoch=5)]
    assert wrote(node._replace(epoch=6)) == [fenced._replace(broker_epoch=6)]
    assert replayed(log).brokers[5].fenced


def test_a_log_begins_with_registrations_in_their_states_without_those_that_are_offline() -> None:
    log = MetadataLog(1)
    log.registrations_read({state: BrokerRegistration(state, 1, state, ()) for state in BrokerState})
    log.began()
    flags = {b: (broker.fenced, broker.in_controlled_shutdown) for b, broker in replayed(log).brokers.items()}
    assert flags == {BrokerState.FENCED: (True, False), BrokerState.ONLINE: (False, False), BrokerState.STOPPING: (False, True)}


@pytest.mark.requirement("RREG-14")
def test_an_ephemeral_broker_hides_the_registration_of_its_id_until_it_goes() -> None:
    log = MetadataLog(1)
    node = BrokerRegistration(5, 3, BrokerState.ONLINE, (Endpoint("PLAINTEXT", "by-request", 1, 0),))
    log.registrations_read({5: node})
    log.began()
    offset = log.high_watermark
    log.brokers_read({5: Broker(5, 700, (Endpoint("PLAINTEXT", "ephemeral", 1, 0),))})
    log.registrations_written([node._replace(state=BrokerState.FENCED)], [WriteOutcome.OK])
    assert names(records(log, offset)) == ["RegisterBroker"]
    assert replayed(log).brokers[5].epoch == 700
    log.brokers_read({})
    assert names(records(log, offset)) == ["RegisterBroker", "UnregisterBroker", "RegisterBroker"]
    view = replayed(log)
    assert (view.brokers[5].epoch, view.brokers[5].fenced) == (3, True)


# what has no place in a record


def test_endpoints_with_ports_beyond_16_bits_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    log = MetadataLog(1)
    ports = (-1, 0, 65535, 65536)
    log.brokers_read({1: Broker(1, 7, tuple(Endpoint(f"L{port}", "h", port, 0) for port in ports))})
    log.began()
    assert [endpoint.port for endpoint in replayed(log).brokers[1].endpoints] == [0, 65535]


def test_what_cannot_be_written_is_left_out_and_said(caplog: pytest.LogCaptureFixture) -> None:
    log = MetadataLog(1)
    log.began()
    log.brokers_read({1: Broker(1, 7, (), "r"), 2: Broker(2, 8, (), "\ud800")})
    log.configs_written(
        [ConfigWrite(ConfigEntity("topics", "t"), {"long": "x" * 40_000, "half": "\ud800", "good": "1"}, 0)], [WriteOutcome.OK]
    )
    log.brokers_read({1: Broker(1, 9, (), "\ud800"), 2: Broker(2, 8, (), "\ud800")})
    view = replayed(log)
    assert not view.brokers
    assert view.configs == {(2, "t"): {"good": "1"}}
    assert len([line for line in caplog.messages if "left out of the metadata log" in line]) == 4


# the bound


def test_a_log_that_outgrows_its_bound_begins_anew_with_a_snapshot_of_everything() -> None:
    log = MetadataLog(1, max_bytes=20_000)
    log.brokers_read({1: Broker(1, 7, (Endpoint("PLAINTEXT", "h", 1, 0),))})
    log.topics_read(["t"], [StoredTopic(b"t" * 16, {0: HELD})])
    log.states_read([KEY], [STATE])
    log.began()
    state, starts, sizes = STATE, [0], []
    for _ in range(1000):
        state = state._replace(leader_epoch=state.leader_epoch + 1, partition_epoch=state.partition_epoch + 1)
        before = plain_view(replayed(log))
        log.states_written([StateWrite("t", 0, state, state.partition_epoch - 1)], [WriteOutcome.OK])
        sizes.append(log.size)
        if log.start_offset not in starts:
            starts.append(log.start_offset)
            assert names(records(log))[:3] == ["RegisterBroker", "Topic", "Partition"]
            with pytest.raises(ValueError, match="is not in the log"):
                log.read(log.start_offset - 1, 1)
        assert plain_view(replayed(log)) != before
    assert len(starts) > 3
    assert max(sizes) < 21_000


def test_who_follows_the_log_is_not_disturbed_by_snapshots() -> None:
    log = MetadataLog(1, max_bytes=10_000)
    log.topics_read(["t"], [StoredTopic(b"t" * 16, {0: HELD, 1: HELD})])
    log.configs_read([ConfigEntity("topics", "t")], [StoredConfig({"a": "1"}, 0)])
    log.began()
    view = replayed(log)
    for epoch in range(200):
        log.states_written([StateWrite("t", 0, LeaderAndIsr(1, epoch, (1,), 0, epoch), epoch - 1)], [WriteOutcome.OK])
        assert view.next_offset >= log.start_offset
        view.apply(log.read(view.next_offset, ENOUGH), 1)
        assert plain_view(view) == plain_view(replayed(log))
    assert log.start_offset > 0


def test_a_snapshot_larger_than_the_bound_is_not_taken_at_every_change() -> None:
    log = MetadataLog(1, max_bytes=1)
    log.topics_read(["t"], [StoredTopic(b"t" * 16, dict.fromkeys(range(1000), HELD))])
    log.began()
    starts = set()
    for epoch in range(2000):
        log.states_written([StateWrite("t", 0, LeaderAndIsr(1, epoch, (1,), 0, epoch), epoch - 1)], [WriteOutcome.OK])
        starts.add(log.start_offset)
    assert 1 < len(starts) < 10
