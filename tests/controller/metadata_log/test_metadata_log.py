"""The metadata log of a controller: each row of the record table, and that its replay is what is committed (controller 25.1, RREG-18)."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from klamm.controller.events import catalogue as events
from klamm.controller.metadata_log.log import MetadataLog
from klamm.controller.values import (
    ConfigEntity,
    LeaderAndIsr,
)
from klamm.protocol import messages
from klamm.protocol.nouns import Endpoint, TopicPartition
from klamm.protocol.records.metadata_records import MetadataRecord, decode_records
from klamm.tests.controller.metadata_log.metadata_views import ENOUGH, names, plain_view, plain_world, records, replayed
from klamm.tests.controller.stage import Stage, isr_request


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    stage = Stage(registerbroker_enable=True)
    yield stage
    await stage.close()


def log_of(stage: Stage) -> MetadataLog:
    found = stage.term.metadata_log
    assert found is not None
    return found


class Mark:
    """Records that are appended after it was made."""

    def __init__(self, stage: Stage) -> None:
        self._log = log_of(stage)
        self.offset = self._log.high_watermark

    def since(self) -> list[MetadataRecord]:
        return records(self._log, self.offset)


def agrees(stage: Stage) -> bool:
    """Whether the replay of the log is what ZooKeeper holds."""
    assert plain_view(replayed(log_of(stage))) == plain_world(stage.world, set(stage.cluster.shutting_down))
    return True


async def test_without_the_feature_there_is_no_log_and_the_store_is_the_plain_one() -> None:
    stage = Stage()
    await stage.open(1)
    assert stage.term.metadata_log is None
    assert stage.term.store is stage.store
    await stage.close()


async def test_a_log_begins_with_brokers_topics_partitions_and_configs(stage: Stage) -> None:
    stage.world.create_topic("a", {0: (1, 2), 1: (2, 1)}, b"a" * 16)
    stage.world.create_topic("b", {0: (1,)}, b"b" * 16)
    stage.world.states[TopicPartition("a", 0)] = LeaderAndIsr(1, 4, (1,), 1, 7)
    stage.world.configs["a"] = {"retention.ms": "1", "segment.bytes": "2"}
    stage.world.broker_configs["<default>"] = {"log.cleaner.threads": "2"}
    stage.world.broker_configs["1"] = {"leader.replication.throttled.rate": "5"}
    await stage.open(1, 2)
    log = log_of(stage)
    first = names([record for offset, record in decode_records(log.read(0, ENOUGH)) if offset < 11])
    assert first == ["RegisterBroker"] * 2 + ["Topic"] * 2 + ["Partition"] * 3 + ["Config"] * 4
    assert log.start_offset == 0
    assert agrees(stage)
    view = replayed(log)
    assert view.configs == {
        (2, "a"): {"retention.ms": "1", "segment.bytes": "2"}, (4, ""): {"log.cleaner.threads": "2"},
        (4, "1"): {"leader.replication.throttled.rate": "5"},
    }


async def test_topics_that_got_their_id_at_fail_over_are_in_the_log(stage: Stage) -> None:
    stage.world.create_topic("old", {0: (1,)}, None)
    await stage.open(1)
    assert replayed(log_of(stage)).topics[bytes([7] * 16)].name == "old"
    assert agrees(stage)


async def test_each_term_has_a_log_of_its_own(stage: Stage) -> None:
    await stage.open(1)
    await stage.create("t", (1,))
    await stage.fail_over()
    log = log_of(stage)
    assert (log.controller_epoch, log.start_offset) == (stage.cluster.epoch, 0) == (2, 0)
    assert agrees(stage)


async def test_a_created_topic_is_topic_partitions_configs_and_then_changes(stage: Stage) -> None:
    await stage.open(1, 2)
    mark = Mark(stage)
    stage.world.configs["t"] = {"retention.ms": "1"}
    await stage.create("t", (1, 2), (2, 1))
    found = mark.since()
    assert names(found) == ["Topic", "Partition", "Partition", "Config", "PartitionChange", "PartitionChange"]
    partition = messages.PartitionRecord
    assert found[1] == partition(partition_id=0, topic_id=b"t".ljust(16, b"\1"), replicas=(1, 2), directories=[])
    change = messages.PartitionChangeRecord
    assert found[4] == change(partition_id=0, topic_id=b"t".ljust(16, b"\1"), isr=(1, 2), leader=1)
    assert agrees(stage)


async def test_new_partitions_are_partition_records(stage: Stage) -> None:
    await stage.open(1, 2)
    await stage.create("t", (1, 2))
    mark = Mark(stage)
    stage.world.grow_topic("t", {1: (2, 1)})
    await stage.settle()
    assert names(mark.since()) == ["Partition", "PartitionChange"]
    assert agrees(stage)


async def test_a_leader_that_goes_and_comes_is_a_partition_change_without_what_stays(stage: Stage) -> None:
    await stage.open(1, 2)
    await stage.create("t", (1, 2))
    mark = Mark(stage)
    await stage.stop(1)
    change = messages.PartitionChangeRecord
    topic_id = b"t".ljust(16, b"\1")
    assert [record for record in mark.since() if isinstance(record, change)] == [
        change(partition_id=0, topic_id=topic_id, leader=2, isr=(2,)),
    ]
    mark = Mark(stage)
    await stage.stop(2)
    assert [record for record in mark.since() if isinstance(record, change)] == [
        change(partition_id=0, topic_id=topic_id, leader=-1),
    ]
    assert agrees(stage)


async def test_an_isr_change_by_its_leader_names_no_leader(stage: Stage) -> None:
    await stage.open(1, 2)
    await stage.create("t", (1, 2))
    mark = Mark(stage)
    p = stage.partition("t")
    assert p.info is not None
    epoch = stage.cluster.brokers[1].epoch
    request = isr_request(1, epoch, b"t".ljust(16, b"\1"), 0, p.info.leader_epoch, p.info.partition_epoch, [1])
    await stage.controller.alter_partition(request, 2)
    assert mark.since() == [messages.PartitionChangeRecord(partition_id=0, topic_id=b"t".ljust(16, b"\1"), isr=(1,))]
    assert agrees(stage)


@pytest.mark.requirement("R704-17")
async def test_an_unclean_election_sets_the_recovery_mark_and_the_leader_clears_it(stage: Stage) -> None:
    await stage.open(1, 2)
    await stage.create("t", (1, 2))
    await stage.stop(2)
    await stage.stop(1)
    stage.world.configs["t"] = {"unclean.leader.election.enable": "true"}
    mark = Mark(stage)
    await stage.start(2)
    changes = [record for record in mark.since() if isinstance(record, messages.PartitionChangeRecord)]
    assert [(c.leader, c.isr, c.leader_recovery_state) for c in changes] == [(2, (2,), 1)]
    assert agrees(stage)


async def test_a_state_that_somebody_else_wrote_is_a_partition_record(stage: Stage) -> None:
    await stage.open(1, 2)
    await stage.create("t", (1, 2))
    mark = Mark(stage)
    stage.somebody_writes("t", isr=(1,))
    await stage.stop(2)
    found = [record for record in mark.since() if "Partition" in type(record).__name__]
    assert names(found)[0] == "Partition"
    assert agrees(stage)


async def test_a_deleted_topic_takes_its_partitions_and_configs_with_it(stage: Stage) -> None:
    await stage.open(1, 2)
    stage.world.configs["t"] = {"retention.ms": "1"}
    await stage.create("t", (1, 2))
    mark = Mark(stage)
    stage.world.delete_topic("t")
    await stage.settle()
    assert names(mark.since())[-1] == "RemoveTopic"
    view = replayed(log_of(stage))
    assert not view.topics and not view.configs
    assert agrees(stage)


async def test_a_topic_that_was_created_again_has_its_new_id_and_no_old_state(stage: Stage) -> None:
    await stage.open(1, 2)
    await stage.create("t", (1, 2))
    stage.world.delete_topic("t")
    await stage.settle()
    stage.world.create_topic("t", {0: (2, 1)}, b"new".ljust(16, b"\2"))
    await stage.settle()
    assert replayed(log_of(stage)).topics.keys() == {b"new".ljust(16, b"\2")}
    assert agrees(stage)


async def test_a_topic_that_vanished_is_removed(stage: Stage) -> None:
    await stage.open(1)
    await stage.create("t", (1,))
    mark = Mark(stage)
    stage.world.zk.delete_tree("/brokers/topics/t")
    await stage.settle()
    assert mark.since() == [messages.RemoveTopicRecord(topic_id=b"t".ljust(16, b"\1"))]


async def test_a_reassignment_changes_whole_partitions(stage: Stage) -> None:
    await stage.open(1, 2, 3)
    await stage.create("t", (1, 2), (1, 2))
    mark = Mark(stage)
    stage.world.ask_reassignment({TopicPartition("t", 0): (1, 3)})
    await stage.settle()
    whole = [record for record in mark.since() if isinstance(record, messages.PartitionRecord)]
    first = whole[0]
    assert (tuple(first.replicas), tuple(first.adding_replicas), tuple(first.removing_replicas)) == ((1, 3, 2), (3,), (2,))
    assert all(record.partition_id == 0 for record in whole)
    assert agrees(stage)


# brokers


async def test_ephemeral_brokers_come_change_and_go(stage: Stage) -> None:
    await stage.open(1)
    mark = Mark(stage)
    await stage.start(2)
    broker = stage.cluster.brokers[2]
    stage.world.change_broker(broker._replace(endpoints=(Endpoint("PLAINTEXT", "moved", 9, 0),), rack="r"))
    await stage.settle()
    await stage.stop(2)
    register = messages.RegisterBrokerRecord
    found = [record for record in mark.since() if "Broker" in type(record).__name__]
    first = register.BrokerEndpoint(name="PLAINTEXT", host="host2", port=9092, security_protocol=0)
    assert found == [
        register(broker_id=2, broker_epoch=broker.epoch, end_points=[first], rack=None, fenced=False),
        register(broker_id=2, broker_epoch=broker.epoch, end_points=[first._replace(host="moved", port=9)], rack="r", fenced=False),
        messages.UnregisterBrokerRecord(broker_id=2, broker_epoch=broker.epoch),
    ]
    assert agrees(stage)


async def test_a_broker_that_bounced_is_registered_with_its_new_epoch(stage: Stage) -> None:
    await stage.open(1, 2)
    mark = Mark(stage)
    before = stage.cluster.brokers[2].epoch
    stage.world.bounce_broker(2)
    await stage.settle()
    found = [record for record in mark.since() if isinstance(record, messages.RegisterBrokerRecord)]
    assert [record.broker_epoch > before for record in found] == [True]
    assert agrees(stage)


async def test_a_controlled_shutdown_is_a_registration_change_once(stage: Stage) -> None:
    await stage.open(1, 2)
    mark = Mark(stage)
    epoch = stage.cluster.brokers[2].epoch
    for _ in range(2):
        await stage.controller.controlled_shutdown(2, epoch)
    change = messages.BrokerRegistrationChangeRecord
    assert mark.since() == [change(broker_id=2, broker_epoch=epoch, in_controlled_shutdown=1)]
    assert agrees(stage)
    stage.world.change_broker(stage.world.brokers[2]._replace(endpoints=(Endpoint("PLAINTEXT", "moved", 9, 0),)))
    await stage.settle()
    assert agrees(stage), "its new data do not make it forget that it is leaving"
    stage.world.bounce_broker(2)
    await stage.settle()
    assert agrees(stage)


# configs


async def test_a_config_notification_is_one_record_for_each_name_that_changed(stage: Stage) -> None:
    await stage.open(1)
    stage.world.configs["t"] = {"a": "1", "b": "2"}
    await stage.create("t", (1,))
    mark = Mark(stage)
    stage.world.configs["t"] = {"b": "3", "c": "4"}
    stage.world.broker_configs["1"] = {"x": "9"}
    await stage.put(events.ConfigsChanged(ConfigEntity("topics", "t")))
    await stage.put(events.ConfigsChanged(ConfigEntity("brokers", "1")))
    config = messages.ConfigRecord
    assert mark.since() == [
        config(resource_type=2, resource_name="t", name="a", value=None),
        config(resource_type=2, resource_name="t", name="b", value="3"),
        config(resource_type=2, resource_name="t", name="c", value="4"),
        config(resource_type=4, resource_name="1", name="x", value="9"),
    ]
    assert agrees(stage)
