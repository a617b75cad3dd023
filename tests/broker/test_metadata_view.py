"""The metadata log: the rules of the record table, one after the other, what a view refuses, and what a broker takes of it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from klamm.broker.metadata_view import MetadataView, ViewedBroker
from klamm.protocol import messages
from klamm.protocol.errors import RemoteProtocolError
from klamm.protocol.nouns import Endpoint
from klamm.protocol.records.metadata_records import MetadataRecord, encode_records, encode_value, encode_values
from klamm.tests.broker.whole_view import ViewedPartition, WholeView

ID, OTHER = b"i" * 16, b"o" * 16
REGISTER = messages.RegisterBrokerRecord(
    broker_id=1,
    broker_epoch=7,
    rack=None,
    end_points=[messages.RegisterBrokerRecord.BrokerEndpoint(name="L", host="h", port=65535, security_protocol=3)],
)
TOPIC = messages.TopicRecord(name="t", topic_id=ID)
PARTITION = messages.PartitionRecord(partition_id=0, topic_id=ID, replicas=(1, 2, 3), directories=[])


def change(**fields: object) -> messages.PartitionChangeRecord:
    return messages.PartitionChangeRecord(partition_id=0, topic_id=ID, **fields)  # type: ignore[arg-type]


def config(name: str, value: str | None, kind: int = 2, resource: str = "t") -> messages.ConfigRecord:
    return messages.ConfigRecord(resource_type=kind, resource_name=resource, name=name, value=value)


def view_of(*records: MetadataRecord) -> WholeView:
    view = WholeView()
    take(view, records)
    return view


def take(view: MetadataView, records: Sequence[MetadataRecord], epoch: int = 3) -> list[MetadataRecord]:
    """Apply records as the next batch; those about brokers."""
    told: list[MetadataRecord] = []
    view.apply(encode_records(records, view.next_offset, epoch, 0), epoch, told.append)
    return told


def test_a_new_view_knows_nothing_and_becomes_one_of_the_first_log_that_it_sees() -> None:
    view = MetadataView()
    assert (view.controller_epoch, view.next_offset) == (-1, 0)
    take(view, [TOPIC])
    assert (view.controller_epoch, view.next_offset) == (3, 1)


def test_a_broker_takes_of_the_log_what_is_about_brokers_and_passes_over_the_rest() -> None:
    view = MetadataView()
    rest: list[MetadataRecord] = [TOPIC, PARTITION, change(leader=1), config("a", "1"), messages.RemoveTopicRecord(topic_id=ID)]
    assert take(view, [*rest, REGISTER, *rest]) == [REGISTER]
    assert (set(view.brokers), view.next_offset) == ({1}, 11)


def test_a_broker_is_registered_unfenced_fenced_leaving_and_gone() -> None:
    view = MetadataView()
    take(view, [REGISTER])
    broker = ViewedBroker(1, 7, (Endpoint("L", "h", 65535, 3),), None, fenced=True, in_controlled_shutdown=False)
    assert view.brokers == {1: broker}
    take(view, [messages.UnfenceBrokerRecord(id=1, epoch=7)])
    assert view.brokers == {1: broker._replace(fenced=False)}
    take(view, [messages.FenceBrokerRecord(id=1, epoch=7)])
    assert view.brokers == {1: broker}
    registration_change = messages.BrokerRegistrationChangeRecord
    take(view, [registration_change(broker_id=1, broker_epoch=7, fenced=-1, in_controlled_shutdown=1)])
    assert view.brokers == {1: broker._replace(fenced=False, in_controlled_shutdown=True)}
    take(view, [registration_change(broker_id=1, broker_epoch=7, fenced=1)])
    assert view.brokers == {1: broker._replace(in_controlled_shutdown=True)}
    take(view, [REGISTER._replace(broker_epoch=8, fenced=False)])
    assert view.brokers == {1: broker._replace(epoch=8, fenced=False)}, "a registration replaces everything"
    take(view, [messages.UnregisterBrokerRecord(broker_id=1, broker_epoch=8)])
    assert view.brokers == {}


def test_records_about_brokers_are_told_in_their_order_when_they_are_applied() -> None:
    view = MetadataView()
    states: list[tuple[str, bool]] = []
    unfence = messages.UnfenceBrokerRecord(id=1, epoch=7)
    data = encode_records([TOPIC, REGISTER, PARTITION, unfence, config("a", "1")], 0, 3, 0)
    view.apply(data, 3, lambda record: states.append((type(record).__name__, view.brokers[1].fenced)))
    assert states == [("RegisterBrokerRecord", True), ("UnfenceBrokerRecord", False)]


def test_a_partition_is_replaced_by_its_record_and_changed_by_a_change() -> None:
    view = view_of(TOPIC, PARTITION)
    partitions = view.topics[ID].partitions
    none = ViewedPartition((1, 2, 3), (), (), (), -1, -1, -1, 0)
    assert partitions == {0: none}
    take(view, [change(leader=1, isr=(1, 2, 3))])
    assert partitions == {0: none._replace(leader=1, isr=(1, 2, 3), leader_epoch=0, partition_epoch=0)}
    take(view, [change(isr=(1,)), change()])
    assert partitions == {0: none._replace(leader=1, isr=(1,), leader_epoch=0, partition_epoch=2)}
    take(view, [change(leader=1)])
    assert partitions[0].leader_epoch == 1, "a leader that is named has a new epoch though it is the same"
    take(view, [change(leader=-1, leader_recovery_state=1)])
    assert partitions[0][4:] == (-1, 2, 4, 1)
    take(view, [change(leader_recovery_state=0)])
    assert partitions[0][4:] == (-1, 2, 5, 0)
    whole = PARTITION._replace(adding_replicas=(3,), removing_replicas=(2,), isr=(1,), leader=1, leader_epoch=9, partition_epoch=8,
                               leader_recovery_state=1)
    take(view, [whole])
    assert partitions == {0: ViewedPartition((1, 2, 3), (3,), (2,), (1,), 1, 9, 8, 1)}


def test_epochs_go_round_after_the_last_one() -> None:
    last = 2**31 - 1
    view = view_of(TOPIC, PARTITION._replace(leader_epoch=last, partition_epoch=last), change(leader=1))
    assert view.topics[ID].partitions[0][5:7] == (-last - 1, -last - 1)


@pytest.mark.parametrize("again", [0, 1])
def test_equal_changes_of_different_partitions_do_not_mix(again: int) -> None:
    view = view_of(TOPIC, *[PARTITION._replace(partition_id=p, replicas=(p, 9)) for p in range(4)])
    for _ in range(again + 1):
        take(view, [change()._replace(partition_id=p, isr=(9,), leader=9) for p in range(4)])
    assert {p: found.replicas for p, found in view.topics[ID].partitions.items()} == {p: (p, 9) for p in range(4)}
    assert {found.partition_epoch for found in view.topics[ID].partitions.values()} == {again}


def test_a_removed_topic_takes_its_partitions_and_its_configs_and_no_others() -> None:
    view = view_of(
        TOPIC, TOPIC._replace(name="u", topic_id=OTHER), PARTITION,
        config("a", "1"), config("a", "2", resource="u"), config("a", "3", 4, "t"),
        messages.RemoveTopicRecord(topic_id=ID),
    )
    assert view.topics.keys() == {OTHER}
    assert view.configs == {(2, "u"): {"a": "2"}, (4, "t"): {"a": "3"}}


def test_configs_are_set_name_by_name_and_deleted_by_null() -> None:
    view = view_of(config("a", "1"), config("b", ""), config("a", "2"), config("x", "1", 4, ""))
    assert view.configs == {(2, "t"): {"a": "2", "b": ""}, (4, ""): {"x": "1"}}
    take(view, [config("b", None), config("x", None, 4, "")])
    assert view.configs == {(2, "t"): {"a": "2"}}
    take(view, [config("never", None)])
    assert view.configs == {(2, "t"): {"a": "2"}}


def test_a_snapshot_over_what_is_known_changes_nothing() -> None:
    records: list[MetadataRecord] = [REGISTER, TOPIC, PARTITION, config("a", "1")]
    view = view_of(*records)
    before = dict(view.brokers), dict(view.topics[ID].partitions), {resource: dict(values) for resource, values in view.configs.items()}
    take(view, records)
    assert (view.brokers, view.topics[ID].partitions, view.configs) == before


def test_a_restart_forgets_everything() -> None:
    view = view_of(REGISTER, TOPIC, PARTITION, config("a", "1"))
    view.restart(4, 100)
    assert (view.controller_epoch, view.next_offset, view.brokers, view.topics, view.configs) == (4, 100, {}, {}, {})
    take(view, [TOPIC], epoch=4)
    assert view.next_offset == 101


def test_a_batch_that_begins_before_the_next_offset_is_applied_from_there() -> None:
    view = view_of(TOPIC, PARTITION, change(leader=1))
    data = encode_records([PARTITION, change(leader=1), change(leader=2)], 1, 3, 0)
    view.apply(data, 3)
    assert view.topics[ID].partitions[0][4:7] == (2, 1, 1)
    view.apply(data, 3)
    assert view.next_offset == 4


def test_a_gap_is_refused() -> None:
    view = view_of(TOPIC)
    with pytest.raises(RemoteProtocolError, match="offset 1 is missing"):
        view.apply(encode_records([PARTITION], 2, 3, 0), 3)
    assert view.next_offset == 1


@pytest.mark.parametrize(("in_batch", "of_log"), [(4, 4), (4, 3), (3, 4), (2, 2)])
def test_records_of_another_controller_epoch_are_refused(in_batch: int, of_log: int) -> None:
    view = view_of(TOPIC)
    with pytest.raises(RemoteProtocolError, match="controller epoch"):
        view.apply(encode_records([PARTITION], 1, in_batch, 0), of_log)
    assert view.next_offset == 1


@pytest.mark.parametrize(
    "record",
    [
        PARTITION._replace(topic_id=OTHER),
        change()._replace(topic_id=OTHER),
        change()._replace(partition_id=1),
        messages.RemoveTopicRecord(topic_id=OTHER),
        TOPIC._replace(name="another name"),
        messages.UnfenceBrokerRecord(id=2, epoch=7),
        messages.UnfenceBrokerRecord(id=1, epoch=6),
        messages.FenceBrokerRecord(id=1, epoch=8),
        messages.UnregisterBrokerRecord(broker_id=1, broker_epoch=8),
        messages.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=8, in_controlled_shutdown=1),
    ],
    ids=lambda record: type(record).__name__,
)
def test_a_record_that_does_not_fit_is_refused_and_what_is_before_it_stands(record: MetadataRecord) -> None:
    view = view_of(REGISTER, TOPIC, PARTITION)
    with pytest.raises(RemoteProtocolError, match="offset 4 does not fit"):
        take(view, [change(leader=1), record])
    assert view.next_offset == 4
    assert view.topics[ID].partitions[0].leader == 1


@pytest.mark.parametrize("record", [PARTITION, change(leader=1, isr=(1, 2)), TOPIC, REGISTER], ids=lambda record: type(record).__name__)
def test_a_value_that_is_cut_or_has_more_behind_it_is_refused(record: MetadataRecord) -> None:
    value = encode_value(record)
    for wrong in (*(value[:end] for end in range(len(value))), value + b"\0"):
        view = view_of(TOPIC, PARTITION, REGISTER)
        with pytest.raises(RemoteProtocolError):
            view.apply(encode_values([wrong], 3, 3, 0), 3)
        assert view.next_offset == 3


def test_bytes_that_are_no_whole_batches_are_refused() -> None:
    data = encode_records([TOPIC], 0, 3, 0)
    for wrong in (data[:-1], data + data[:5], b"x" * 70):
        with pytest.raises(RemoteProtocolError):
            MetadataView().apply(wrong, 3)
    MetadataView().apply(b"", 3)
