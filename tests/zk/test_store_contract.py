"""The contract of the controller's store (controller/store.py), in every world that has one."""

from __future__ import annotations

from typing import Any

import pytest

from klamm.controller.events import catalogue as events
from klamm.controller.values import (
    Assignment,
    BrokerRegistration,
    BrokerState,
    ConfigEntity,
    ConfigWrite,
    ControllerEpoch,
    ControllerMoved,
    LeaderAndIsr,
    StateWrite,
    StoredConfig,
    StoredTopic,
    StoreRefused,
    ThrottleRemovals,
    TopicWrite,
    WriteOutcome,
)
from klamm.protocol.nouns import Endpoint, TopicPartition
from klamm.tests.zk.labs import Lab, Seat
from klamm.zk.session.requests import ConnectionLost

NOW_MS = 1_700_000_000_000
TOPIC_ID = bytes(range(16))
STATE = LeaderAndIsr(1, 0, (1, 2), controller_epoch=1)


@pytest.fixture
async def office(lab: Lab) -> Seat:
    """A seat whose store is elected with epoch 1, in a world with topic `t` of three partitions."""
    await lab.create_topic("t", {0: (1, 2), 1: (1, 2), 2: (1, 2)}, TOPIC_ID)
    seat = await lab.seat()
    await seat.store.register_controller(1, NOW_MS)
    await lab.events(seat)
    return seat


def creation(topic: str, index: int, state: LeaderAndIsr = STATE) -> StateWrite:
    return StateWrite(topic, index, state, -1)


# election and fence


async def test_first_controller_has_epoch_one(lab: Lab) -> None:
    seat = await lab.seat()
    assert await seat.store.controller_id() == -1
    assert await seat.store.register_controller(1, NOW_MS) == ControllerEpoch(1, 1)
    assert await seat.store.controller_id() == 1


async def test_only_one_is_elected(lab: Lab) -> None:
    first, second = await lab.seat(), await lab.seat()
    await first.store.register_controller(1, NOW_MS)
    with pytest.raises(ControllerMoved):
        await second.store.register_controller(2, NOW_MS)
    assert await second.store.controller_id() == 1


async def test_epochs_rise_with_every_election(lab: Lab) -> None:
    first, second = await lab.seat(), await lab.seat()
    await first.store.register_controller(1, NOW_MS)
    await first.store.delete_controller()
    assert await second.store.controller_id() == -1
    assert await second.store.register_controller(2, NOW_MS) == ControllerEpoch(2, 2)
    with pytest.raises(ControllerMoved):
        await first.store.delete_controller()
    assert await first.store.controller_id() == 2


async def test_deleting_a_missing_controller_is_fine(lab: Lab) -> None:
    seat = await lab.seat()
    await seat.store.register_controller(1, NOW_MS)
    await seat.store.delete_controller()
    await seat.store.delete_controller()


async def test_office_ends_with_the_process(lab: Lab) -> None:
    first, second = await lab.seat(), await lab.seat()
    await first.store.register_controller(1, NOW_MS)
    await second.store.watch_controller()
    await lab.leave(first)
    assert await lab.events(second) == [events.Reelect()]
    assert await second.store.controller_id() == -1


async def test_writes_need_an_election(lab: Lab, office: Seat) -> None:
    other = await lab.seat()
    with pytest.raises(ControllerMoved):
        await other.store.create_states([creation("t", 0)])
    office.store.reset_fence()
    with pytest.raises(ControllerMoved):
        await office.store.create_states([creation("t", 0)])
    assert await office.store.read_states([TopicPartition("t", 0)]) == [None]


async def test_writes_of_a_former_controller_do_nothing(lab: Lab, office: Seat) -> None:
    await office.store.create_states([creation("t", 0)])
    await lab.ask_deletion("t")
    other = await lab.seat()
    await office.store.delete_controller()
    await other.store.register_controller(2, NOW_MS)
    for attempt in (
        office.store.write_states([StateWrite("t", 0, STATE._replace(leader=2), 0)]),
        office.store.create_states([creation("t", 1)]),
        office.store.write_topics([TopicWrite("t", None, {})]),
        office.store.remove_deletions(["t"]),
        office.store.delete_topics([("t", [0, 1, 2])]),
    ):
        with pytest.raises(ControllerMoved):
            await attempt
    assert await other.store.read_states([TopicPartition("t", 0), TopicPartition("t", 1)]) == [STATE, None]
    assert await other.store.deletions() == ["t"]
    assert (await other.store.read_topics(["t"]))[0] is not None


async def test_leftover_of_an_earlier_life_is_ended(lab: Lab) -> None:
    earlier, seat = await lab.seat(), await lab.seat()
    assert not await seat.store.end_leftover(1)
    await earlier.store.register_controller(1, NOW_MS)
    assert not await seat.store.end_leftover(2)
    assert await seat.store.end_leftover(1)
    assert await seat.store.controller_id() == -1


async def test_leftover_of_a_failed_term_is_ended(lab: Lab) -> None:
    seat = await lab.seat()
    await seat.store.register_controller(1, NOW_MS)
    seat.store.reset_fence()
    assert await seat.store.end_leftover(1)
    assert await seat.store.register_controller(1, NOW_MS) == ControllerEpoch(2, 2)


async def test_no_election_while_the_epoch_cannot_be_read(lab: Lab) -> None:
    first, second = await lab.seat(), await lab.seat()
    await first.store.register_controller(1, NOW_MS)
    await first.store.delete_controller()
    await lab.spoil_epoch()
    with pytest.raises(StoreRefused):
        await second.store.register_controller(2, NOW_MS)
    assert await second.store.controller_id() == -1


async def test_controller_is_watched_once(lab: Lab) -> None:
    seat, other = await lab.seat(), await lab.seat()
    await seat.store.watch_controller()
    await other.store.register_controller(2, NOW_MS)
    assert await lab.events(seat) == [events.ControllerChange()]
    await other.store.delete_controller()
    assert await lab.events(seat) == []
    assert await seat.store.controller_id() == -1
    await other.store.register_controller(2, NOW_MS)
    assert await lab.events(seat) == [events.ControllerChange()]
    assert await seat.store.controller_id() == 2
    await other.store.delete_controller()
    assert await lab.events(seat) == [events.Reelect()]


# brokers


async def test_brokers_come_and_go(lab: Lab) -> None:
    seat = await lab.seat()
    await lab.start_broker(1)
    found = await seat.store.brokers()
    assert list(found) == [1]
    assert found[1].id == 1
    assert found[1].endpoints[0].listener == "PLAINTEXT"
    await lab.start_broker(0)
    await lab.stop_broker(1)
    assert await lab.events(seat) == [events.BrokerChange()]
    assert list(await seat.store.brokers()) == [0]


async def test_a_bounced_broker_has_a_larger_epoch(lab: Lab) -> None:
    seat = await lab.seat()
    await lab.start_broker(1)
    before = (await seat.store.brokers())[1].epoch
    await lab.stop_broker(1)
    await lab.start_broker(1)
    assert (await seat.store.brokers())[1].epoch > before


async def test_changes_of_a_broker_are_told(lab: Lab) -> None:
    seat = await lab.seat()
    await lab.start_broker(0)
    await lab.start_broker(1)
    await seat.store.watch_brokers([0])
    await lab.move_broker(0, 9999)
    await lab.move_broker(1, 9998)
    assert await lab.events(seat) == [events.BrokerModifications(0)]
    broker = await seat.store.broker(0)
    assert broker is not None
    assert broker.endpoints[0].port == 9999
    await lab.move_broker(0, 9997)
    assert await lab.events(seat) == [events.BrokerModifications(0)]
    assert await seat.store.broker(7) is None


# topics


async def test_a_broker_that_cannot_be_read_is_absent_until_its_repair_is_told(lab: Lab) -> None:
    seat = await lab.seat()
    await lab.start_broker(4)
    await lab.start_broker(5)
    await lab.spoil_broker(4)
    assert list(await seat.store.brokers()) == [5]
    assert await seat.store.broker(4) is None
    await lab.move_broker(5, 7)
    await lab.move_broker(4, 7)
    assert await lab.events(seat) == [events.BrokerModifications(4)]
    assert list(await seat.store.brokers()) == [4, 5]


async def test_a_topic_that_cannot_be_read_is_absent_until_its_repair_is_told(lab: Lab) -> None:
    seat = await lab.seat()
    await lab.create_topic("odd", {0: (1, 2)}, TOPIC_ID)
    await lab.create_topic("fine", {0: (1, 2)}, TOPIC_ID)
    await lab.spoil_topic("odd", TOPIC_ID)
    odd, fine = await seat.store.read_topics(["odd", "fine"])
    assert odd is None and fine is not None
    await lab.grow_topic("odd", {0: (3,)})
    assert await lab.events(seat) == [events.PartitionModifications("odd")]
    assert (await seat.store.read_topics(["odd"]))[0] == StoredTopic(TOPIC_ID, {0: Assignment((3,))}, 2)


async def test_topics_come(lab: Lab) -> None:
    seat = await lab.seat()
    assert await seat.store.topics() == []
    await lab.create_topic("a", {0: (0,)}, None)
    await lab.create_topic("b", {0: (0,)}, TOPIC_ID)
    assert await lab.events(seat) == [events.TopicChange()]
    assert sorted(await seat.store.topics()) == ["a", "b"]


async def test_topics_are_read_in_the_order_asked(lab: Lab) -> None:
    seat = await lab.seat()
    await lab.create_topic("a", {0: (0, 1), 1: (1, 0)}, TOPIC_ID)
    await lab.create_topic("b", {0: (3,)}, None)
    assert await seat.store.read_topics(["b", "missing", "a"]) == [
        StoredTopic(None, {0: Assignment((3,))}, 0),
        None,
        StoredTopic(TOPIC_ID, {0: Assignment((0, 1)), 1: Assignment((1, 0))}, 0),
    ]
    assert await seat.store.read_topics([]) == []


async def test_growth_is_told_once_to_who_read_the_topic(lab: Lab) -> None:
    seat = await lab.seat()
    await lab.create_topic("a", {0: (0,)}, None)
    await lab.create_topic("b", {0: (0,)}, None)
    await seat.store.read_topics(["a"])
    await lab.grow_topic("b", {1: (0,)})
    await lab.grow_topic("a", {1: (0,)})
    await lab.grow_topic("a", {2: (0,)})
    assert await lab.events(seat) == [events.PartitionModifications("a")]


async def test_topics_are_written(lab: Lab, office: Seat) -> None:
    moving = {0: Assignment((3, 1, 2), (3,), (1,)), 1: Assignment((1, 2))}
    assert await office.store.write_topics([TopicWrite("t", TOPIC_ID, moving), TopicWrite("missing", None, {})]) == [
        WriteOutcome.OK,
        WriteOutcome.NO_NODE,
    ]
    assert await office.store.read_topics(["t", "missing"]) == [StoredTopic(TOPIC_ID, moving, 1), None]


async def test_a_topic_is_written_only_in_the_expected_version(lab: Lab, office: Seat) -> None:
    (before,) = await office.store.read_topics(["t"])
    assert before is not None
    await lab.grow_topic("t", {7: (1,)})
    assert await office.store.write_topics([TopicWrite("t", TOPIC_ID, {}, before.version)]) == [WriteOutcome.BAD_VERSION]
    (now,) = await office.store.read_topics(["t"])
    assert now is not None and 7 in now.assignments and now.version == before.version + 1
    assert await office.store.write_topics([TopicWrite("t", TOPIC_ID, {}, now.version)]) == [WriteOutcome.OK]


async def test_own_write_of_a_topic_is_told_too(lab: Lab, office: Seat) -> None:
    await office.store.read_topics(["t"])
    await office.store.write_topics([TopicWrite("t", TOPIC_ID, {})])
    assert await lab.events(office) == [events.PartitionModifications("t")]


# partition states


async def test_created_states_begin_with_partition_epoch_zero(office: Seat) -> None:
    other = LeaderAndIsr(2, 0, (2,), controller_epoch=1)
    assert await office.store.create_states([creation("t", 0), creation("t", 2, other)]) == [WriteOutcome.OK, WriteOutcome.OK]
    keys = [TopicPartition("t", index) for index in (2, 1, 0)]
    assert await office.store.read_states(keys) == [other, None, STATE]


async def test_each_creation_succeeds_or_fails_alone(lab: Lab, office: Seat) -> None:
    await lab.create_topic("u", {0: (1,), 1: (1,)}, None)
    await office.store.create_states([creation("t", 1)])
    wanted = [creation("t", 0), creation("t", 1), creation("missing", 0), creation("u", 1), creation("t", 2), creation("u", 0)]
    assert await office.store.create_states(wanted) == [
        WriteOutcome.OK,
        WriteOutcome.NODE_EXISTS,
        WriteOutcome.NO_NODE,
        WriteOutcome.OK,
        WriteOutcome.OK,
        WriteOutcome.OK,
    ]
    assert await office.store.create_states([creation("u", 1), creation("u", 0)]) == [WriteOutcome.NODE_EXISTS] * 2


async def test_a_write_raises_the_partition_epoch_by_one(office: Seat) -> None:
    await office.store.create_states([creation("t", 0)])
    for epoch in range(3):
        state = LeaderAndIsr(-1, epoch + 1, (2,), 1, controller_epoch=1)
        assert await office.store.write_states([StateWrite("t", 0, state, epoch)]) == [WriteOutcome.OK]
        assert await office.store.read_states([TopicPartition("t", 0)]) == [state._replace(partition_epoch=epoch + 1)]


async def test_each_write_succeeds_or_fails_alone(lab: Lab, office: Seat) -> None:
    await office.store.create_states([creation("t", 0), creation("t", 1), creation("t", 2)])
    await lab.overwrite_state(TopicPartition("t", 1), STATE._replace(leader=2))
    new = STATE._replace(leader_epoch=1)
    writes = [
        StateWrite("t", 7, new, 0),
        StateWrite("t", 0, new, 0),
        StateWrite("t", 1, new, 0),
        StateWrite("t", 2, new, 0),
        StateWrite("missing", 0, new, 0),
    ]
    assert await office.store.write_states(writes) == [
        WriteOutcome.NO_NODE,
        WriteOutcome.OK,
        WriteOutcome.BAD_VERSION,
        WriteOutcome.OK,
        WriteOutcome.NO_NODE,
    ]
    states = await office.store.read_states([TopicPartition("t", index) for index in range(3)])
    assert states == [
        new._replace(partition_epoch=1),
        STATE._replace(leader=2, partition_epoch=1),
        new._replace(partition_epoch=1),
    ]


async def test_nothing_asked_is_nothing_done(office: Seat) -> None:
    assert await office.store.read_states([]) == []
    assert await office.store.write_states([]) == []
    assert await office.store.create_states([]) == []
    assert await office.store.write_topics([]) == []
    await office.store.delete_topics([])
    await office.store.remove_deletions([])


async def test_long_lists(lab: Lab, office: Seat) -> None:
    """Longer than a multi, with bad entries here and there: outcomes stay in order."""
    count = 2500
    await lab.create_topic("long", dict.fromkeys(range(count), (1, 2)), None)
    assert await office.store.create_states([creation("long", index) for index in range(0, count, 2)]) == [WriteOutcome.OK] * (count // 2)
    outcomes = await office.store.create_states([creation("long", index) for index in range(count)])
    assert outcomes == [WriteOutcome.OK if index % 2 else WriteOutcome.NODE_EXISTS for index in range(count)]
    new = STATE._replace(leader_epoch=1)
    outcomes = await office.store.write_states([StateWrite("long", index, new, 3 if index % 700 == 5 else 0) for index in range(count)])
    assert outcomes == [WriteOutcome.BAD_VERSION if index % 700 == 5 else WriteOutcome.OK for index in range(count)]
    states = await office.store.read_states([TopicPartition("long", index) for index in range(count)])
    assert states == [STATE if index % 700 == 5 else new._replace(partition_epoch=1) for index in range(count)]
    await office.store.delete_topics([("long", range(count))])
    assert await office.store.read_topics(["long"]) == [None]


# admin nodes


async def test_deletion_requests(lab: Lab, office: Seat) -> None:
    assert await office.store.deletions() == []
    await lab.ask_deletion("t")
    assert await lab.events(office) == [events.TopicDeletion()]
    await lab.ask_deletion("unknown")
    assert sorted(await office.store.deletions()) == ["t", "unknown"]
    await office.store.remove_deletions(["unknown", "never-asked"])
    assert await office.store.deletions() == ["t"]


async def test_deleted_topics_leave_nothing(lab: Lab, office: Seat) -> None:
    await lab.create_topic("u", {0: (1,)}, None)
    await lab.set_config("t", {"retention.ms": "1"})
    await lab.ask_deletion("t")
    await lab.ask_deletion("u")
    # Partition 2 of `t` never got a state, `u` has no config: both are fine.
    await office.store.create_states([creation("t", 0), creation("t", 1), creation("u", 0)])
    await office.store.delete_topics([("t", [0, 1, 2]), ("u", [0]), ("missing", [0])])
    assert await office.store.topics() == []
    assert await office.store.deletions() == []
    assert await office.store.topic_configs(["t", "u"]) == [{}, {}]
    assert await office.store.read_states([TopicPartition("t", 0), TopicPartition("u", 0)]) == [None, None]


async def test_preferred_election_node(lab: Lab, office: Seat) -> None:
    partitions = [TopicPartition("t", 1), TopicPartition("t", 0)]
    assert await office.store.preferred_election() is None
    await lab.ask_preferred(partitions)
    assert await lab.events(office) == [events.PreferredReplicaElection()]
    assert await office.store.preferred_election() == partitions
    await office.store.delete_preferred_election()
    assert await office.store.preferred_election() is None
    await lab.ask_preferred([])
    assert await office.store.preferred_election() == []
    await office.store.delete_preferred_election()
    await office.store.delete_preferred_election()


# notifications, configs, producer ids


async def test_isr_change_notifications(lab: Lab, office: Seat) -> None:
    assert await office.store.isr_notifications() == ([], [])
    a, b, c = (TopicPartition("t", index) for index in range(3))
    await lab.notify_isr_change([a, b])
    assert await lab.events(office) == [events.IsrChangeNotification()]
    await lab.notify_isr_change([b, c])
    names, partitions = await office.store.isr_notifications()
    assert len(names) == 2
    assert partitions == [a, b, c]
    await office.store.delete_isr_notifications(names[:1])
    assert await office.store.isr_notifications() == (names[1:], [b, c])
    await office.store.delete_isr_notifications(names)
    assert await office.store.isr_notifications() == ([], [])


async def test_log_dir_notifications(lab: Lab, office: Seat) -> None:
    assert await office.store.log_dir_notifications() == ([], [])
    await lab.notify_log_dir(0)
    assert await lab.events(office) == [events.LogDirEventNotification()]
    names, broker_ids = await office.store.log_dir_notifications()
    assert len(names) == 1
    assert broker_ids == [0]
    await office.store.delete_log_dir_notifications(names)
    assert await office.store.log_dir_notifications() == ([], [])


async def test_topic_configs(lab: Lab, office: Seat) -> None:
    await lab.set_config("t", {"retention.ms": "1", "unclean.leader.election.enable": "true"})
    await lab.spoil_config("spoilt")
    assert await office.store.topic_configs(["missing", "spoilt", "t"]) == [
        {},
        None,
        {"retention.ms": "1", "unclean.leader.election.enable": "true"},
    ]


async def test_producer_ids_are_given_out_once(lab: Lab) -> None:
    first, second = await lab.seat(), await lab.seat()
    assert await first.store.allocate_producer_ids(0) == (0, 1000)
    assert await second.store.allocate_producer_ids(1) == (1000, 1000)
    assert await first.store.allocate_producer_ids(0) == (2000, 1000)


# configs with their notifications


def config(entity: ConfigEntity, expected: int, **properties: str) -> ConfigWrite:
    return ConfigWrite(entity, {name.replace("_", "."): value for name, value in properties.items()}, expected)


T, BROKER_1, DEFAULT = ConfigEntity("topics", "t"), ConfigEntity("brokers", "1"), ConfigEntity("brokers", "<default>")


async def test_configs_are_written_with_a_notification_each(lab: Lab, office: Seat) -> None:
    assert await office.store.read_configs([T, BROKER_1]) == [StoredConfig({}, -1)] * 2
    writes = [config(T, -1, retention_ms="7"), config(BROKER_1, -1, x="1"), config(DEFAULT, -1)]
    assert await office.store.write_configs(writes) == [WriteOutcome.OK] * 3
    assert await office.store.read_configs([DEFAULT, T, BROKER_1]) == [
        StoredConfig({}, 0), StoredConfig({"retention.ms": "7"}, 0), StoredConfig({"x": "1"}, 0),
    ]
    assert await office.store.write_configs([config(T, 0)]) == [WriteOutcome.OK]
    assert await office.store.read_configs([T]) == [StoredConfig({}, 1)]
    announced = [b'{"version":2,"entity_path":"%b"}' % str(entity).encode() for entity in (T, BROKER_1, DEFAULT, T)]
    assert await lab.contents("/config/changes") == announced
    assert await lab.read("/config/topics/t") == (b'{"version":1,"config":{}}', 1)


async def test_each_config_is_written_or_refused_alone_and_only_what_is_written_is_announced(lab: Lab, office: Seat) -> None:
    await office.store.write_configs([config(T, -1), config(BROKER_1, -1)])
    writes = [config(T, -1, a="1"), config(BROKER_1, 3, a="1"), config(DEFAULT, 0, a="1"), config(ConfigEntity("topics", "u"), -1, a="1")]
    outcomes = [WriteOutcome.NODE_EXISTS, WriteOutcome.BAD_VERSION, WriteOutcome.NO_NODE, WriteOutcome.OK]
    assert await office.store.write_configs(writes) == outcomes
    assert await office.store.read_configs([T, BROKER_1]) == [StoredConfig({}, 0)] * 2
    assert len(await lab.contents("/config/changes")) == 3


async def test_all_configs_are_those_of_topics_and_brokers_that_have_properties(lab: Lab, office: Seat) -> None:
    assert await office.store.all_configs() == {}
    user = ConfigEntity("users", "u")
    await office.store.write_configs(
        [config(T, -1, retention_ms="7"), config(BROKER_1, -1, x="1"), config(DEFAULT, -1, y="2"), config(ConfigEntity("topics", "u"), -1)]
    )
    await lab.put(f"/config/{user}", {"version": 1, "config": {"z": "3"}})
    assert await office.store.all_configs() == {T: {"retention.ms": "7"}, BROKER_1: {"x": "1"}, DEFAULT: {"y": "2"}}
    await lab.spoil_config("other")
    assert (await office.store.all_configs()).keys() == {T, BROKER_1, DEFAULT}


async def test_a_config_that_cannot_be_read_has_no_version(lab: Lab, office: Seat) -> None:
    await lab.spoil_config("t")
    assert await office.store.read_configs([T, BROKER_1]) == [None, StoredConfig({}, -1)]


async def test_nobody_but_the_controller_writes_configs_throttle_removals_and_registrations(lab: Lab, office: Seat) -> None:
    other = await lab.seat()
    for attempt in (
        other.store.write_configs([config(T, -1)]),
        other.store.write_throttled_replicas_removal(["t"]),
        other.store.delete_throttled_rates_removal(),
        other.store.write_registrations([BrokerRegistration(1, 1, BrokerState.FENCED, ())]),
    ):
        with pytest.raises(ControllerMoved):
            await attempt
    assert [await lab.read(path) for path in ("/config/topics/t", "/admin/throttled_replicas_removal", "/cluster/brokers/1")] == [None] * 3
    assert await lab.contents("/config/changes") == []


# throttle removals


async def test_throttle_removals_are_sorted_lists_that_come_and_go(lab: Lab, office: Seat) -> None:
    store = office.store
    assert await store.throttled_replicas_removal() is None
    assert await store.throttled_rates_removal() is None
    await store.write_throttled_replicas_removal(["foo", "bar", "foo"])
    await store.write_throttled_rates_removal([3, 0, 1, 3])
    assert await lab.read("/admin/throttled_replicas_removal") == (b'{"version":1,"topics":["bar","foo"]}', 0)
    assert await lab.read("/admin/throttled_rates_removal") == (b'{"version":1,"brokers":[0,1,3]}', 0)
    await store.write_throttled_replicas_removal(["u"])
    await store.write_throttled_rates_removal([])
    assert await store.throttled_replicas_removal() == ["u"]
    assert await store.throttled_rates_removal() == []
    await store.delete_throttled_replicas_removal()
    await store.delete_throttled_rates_removal()
    await store.delete_throttled_rates_removal()
    assert await store.throttled_replicas_removal() is None
    assert await store.throttled_rates_removal() is None


async def test_throttle_removals_under_their_other_names_are_read_and_deleted_too(lab: Lab, office: Seat) -> None:
    store = office.store
    await store.write_throttled_replicas_removal(["b"])
    await lab.put("/admin/remove_throttled_replicas", {"version": 1, "topics": ["c", "b", "a"]})
    await lab.put("/admin/remove_throttled_rates", {"version": 1, "brokers": [2, 1]})
    assert await store.throttled_replicas_removal() == ["a", "b", "c"]
    assert await store.throttled_rates_removal() == [1, 2]
    assert await store.throttle_removals() == ThrottleRemovals(["a", "b", "c"], [1, 2], False)
    await store.write_throttled_rates_removal([2])
    assert await lab.read("/admin/remove_throttled_rates") is None
    await store.write_reassignments({TopicPartition("t", 0): (1,)})
    assert await store.throttle_removals() == ThrottleRemovals(["a", "b", "c"], [2], True)
    await store.write_throttled_replicas_removal(["c"])
    assert await lab.read("/admin/remove_throttled_replicas") is None
    await store.write_reassignments({})
    await lab.put("/admin/remove_throttled_rates", {"version": 1, "brokers": [1]})
    assert await store.throttle_removals() == ThrottleRemovals(["c"], [1, 2], False)
    await store.delete_throttled_replicas_removal()
    await store.delete_throttled_rates_removal()
    assert await store.throttled_replicas_removal() is None
    assert await store.throttled_rates_removal() is None


@pytest.mark.parametrize("content", [b"", b"{", {"version": 1}, {"topics": [1], "brokers": ["1"]}, {"topics": "t", "brokers": 1}])
async def test_a_throttle_removal_that_cannot_be_read_is_an_empty_one(lab: Lab, office: Seat, content: Any) -> None:
    await lab.put("/admin/throttled_replicas_removal", content)
    await lab.put("/admin/throttled_rates_removal", content)
    assert await office.store.throttled_replicas_removal() == []
    assert await office.store.throttled_rates_removal() == []


# registrations

REGISTERED = BrokerRegistration(
    5, 3, BrokerState.OFFLINE, (Endpoint("INTERNAL", "k0", 9033, 0), Endpoint("EXTERNAL", "b0", 9092, 3)), "0", 7203
)


async def test_the_session_of_a_controller_is_shown_for_as_long_as_it_lasts(lab: Lab) -> None:
    first, second = await lab.seat(), await lab.seat()
    assert not await second.store.shows_session(1) and await second.store.controller_epoch() == 0
    await first.store.register_controller(1, NOW_MS, shows_session=True)
    assert await second.store.controller_epoch() == 1
    assert await second.store.shows_session(1) and not await second.store.shows_session(2)
    await first.store.delete_controller()
    assert await second.store.shows_session(1), "it was moved, and its session lasts"
    await second.store.register_controller(2, NOW_MS)
    await second.store.delete_controller()
    assert not await second.store.shows_session(2)
    await first.store.register_controller(1, NOW_MS, shows_session=True)
    await first.store.delete_controller()
    await second.store.register_controller(1, NOW_MS, shows_session=True)
    await lab.leave(first)
    assert await second.store.shows_session(1), "it is shown by the session of its later life"


async def test_registrations_have_the_shape_of_the_draft(lab: Lab, office: Seat) -> None:
    assert await office.store.registrations() == {}
    bare = BrokerRegistration(6, 1, BrokerState.FENCED, ())
    assert await office.store.write_registrations([REGISTERED, bare]) == [WriteOutcome.OK] * 2
    assert await lab.read("/cluster/brokers/5") == (
        b'{"version":1,"epoch":3,"state":"OFFLINE","settings":{"listener_security_protocol_map":'
        b'{"INTERNAL":"PLAINTEXT","EXTERNAL":"SASL_SSL"},"endpoints":["INTERNAL://k0:9033","EXTERNAL://b0:9092"],"rack":"0","jmx_port":7203}}',
        0,
    )
    assert await lab.read("/cluster/brokers/6") == (
        b'{"version":1,"epoch":1,"state":"FENCED","settings":{"listener_security_protocol_map":{},"endpoints":[],"jmx_port":-1}}', 0
    )
    assert await office.store.registrations() == {5: REGISTERED, 6: bare}


async def test_a_registration_is_replaced(lab: Lab, office: Seat) -> None:
    await office.store.write_registrations([REGISTERED])
    changed = [REGISTERED._replace(epoch=4, state=BrokerState.ONLINE, is_silent=True), REGISTERED._replace(id=7, secret_sha256="5e")]
    assert await office.store.write_registrations(changed) == [WriteOutcome.OK] * 2
    assert await office.store.registrations() == {5: changed[0], 7: changed[1]}
    stored = await lab.read("/cluster/brokers/5")
    assert stored is not None and stored[0] is not None and stored[0].endswith(b',"jmx_port":7203},"silent":true}')
    stored = await lab.read("/cluster/brokers/7")
    assert stored is not None and stored[0] is not None and stored[0].endswith(b',"jmx_port":7203},"secret_sha256":"5e"}')


SETTINGS: dict[str, Any] = {"endpoints": [], "listener_security_protocol_map": {}}


@pytest.mark.requirement("RREG-4")
@pytest.mark.parametrize(
    ("content", "epoch"),
    [
        (b"", 1), ({"version": 1}, 1), ([], 1), ({"epoch": "9", "state": "ONLINE", "settings": SETTINGS}, 1),
        ({"epoch": 7, "state": "AWAY", "settings": SETTINGS}, 7), ({"epoch": 7, "state": "ONLINE"}, 7),
        ({"epoch": -1, "state": "ONLINE", "settings": SETTINGS}, 1), ({"epoch": 2**63, "state": "ONLINE", "settings": SETTINGS}, 1),
    ],
)
async def test_a_registration_that_cannot_be_read_is_offline_and_its_epoch_does_not_begin_anew(
    lab: Lab, office: Seat, content: Any, epoch: int
) -> None:
    await office.store.write_registrations([REGISTERED])
    await lab.put("/cluster/brokers/8", content)
    await lab.put("/cluster/brokers/nobody", b"")
    assert await office.store.registrations() == {5: REGISTERED, 8: BrokerRegistration(8, epoch, BrokerState.OFFLINE, ())}


@pytest.mark.requirement("RREG-4")
async def test_the_epoch_of_a_spoilt_registration_is_no_less_than_any_it_had(office: Seat) -> None:
    for epoch in (1, 2, 3, -1):
        await office.store.write_registrations([REGISTERED._replace(epoch=epoch)])
    assert (await office.store.registrations())[5].epoch >= 3


async def test_the_epoch_of_a_registration_is_as_long_as_on_the_wire(office: Seat) -> None:
    late = REGISTERED._replace(epoch=2**31)
    await office.store.write_registrations([late])
    assert await office.store.registrations() == {5: late}


# watches on states


async def test_a_watched_state_reports_its_next_change(lab: Lab, office: Seat) -> None:
    await office.store.create_states([creation("t", 0), creation("t", 1)])
    keys = [TopicPartition("t", index) for index in range(3)]
    assert await office.store.watch_states(keys) == [STATE, STATE, None]
    await lab.events(office)
    await lab.overwrite_state(keys[1], STATE._replace(isr=(1,)))
    await lab.overwrite_state(keys[1], STATE._replace(isr=(1, 2)))
    assert await lab.events(office) == [events.PartitionReassignmentIsrChange("t", 1)]
    await office.store.write_states([StateWrite("t", 0, STATE._replace(leader_epoch=1), 0)])
    assert await lab.events(office) == [events.PartitionReassignmentIsrChange("t", 0)], "own writes too"
    await office.store.read_states(keys)
    await lab.overwrite_state(keys[0], STATE)
    assert await lab.events(office) == [], "a plain read arms nothing"


# answers that are lost


class LosesAnswers:
    """Every write takes hold, and the first answer to each is lost."""

    def __init__(self) -> None:
        self._lost: set[int] = set()

    def before(self, number: int, request: Any) -> None: ...

    def after(self, number: int, request: Any) -> None:
        if id(request) not in self._lost:
            self._lost.add(id(request))
            raise ConnectionLost


async def test_whatever_is_written_counts_once_when_its_answer_is_lost(lab: Lab, office: Seat) -> None:
    store = office.store
    await lab.put("/admin/remove_throttled_rates", {"version": 1, "brokers": [2, 1]})
    await lab.ask_deletion("t")
    office.session.write_hook = LosesAnswers()
    assert await store.create_states([creation("t", 0), creation("t", 1)]) == [WriteOutcome.OK] * 2
    assert await store.write_states([StateWrite("t", 0, STATE._replace(leader=2), 0)]) == [WriteOutcome.OK]
    assert await store.write_configs([config(T, -1, a="1"), config(BROKER_1, -1)]) == [WriteOutcome.OK] * 2
    assert await store.write_configs([config(T, 0, a="2")]) == [WriteOutcome.OK]
    assert len(await lab.contents("/config/changes")) == 3
    assert await store.write_registrations([REGISTERED]) == [WriteOutcome.OK]
    await store.write_throttled_rates_removal([4])
    await store.delete_throttled_rates_removal()
    assert await store.throttled_rates_removal() is None
    await store.remove_deletions(["t"])
    assert await store.deletions() == []
    await store.delete_topics([("t", [0, 1])])
    assert await store.topics() == []
