"""Markers reach the leaders of their partitions, and each partition gets one code, whatever becomes of its leader."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from klamm.broker.transactions.requests import SendMarkers
from klamm.protocol.apis import ApiKey
from klamm.protocol.errors import ErrorCode as E
from klamm.protocol.nouns import TopicPartition
from klamm.server.transactions.marker_sender import MarkerSender, Results
from klamm.tests.harness.waits import eventually
from klamm.tests.server.transactions.transaction_broker import (
    FIRST,
    NO_LEADER,
    OWN,
    SECOND,
    THIRD,
    UNKNOWN,
    Marker,
    TransactionBroker,
    answer,
    requested,
)

TIMEOUT_S = 30


class Reports:
    """What was reported: the codes of all partitions, each of which is reported once for each marker."""

    def __init__(self, sender: MarkerSender) -> None:
        self.sender = sender
        self.codes: dict[tuple[int, TopicPartition], E] = {}
        self.count = 0

    def send(self, markers: SendMarkers) -> None:
        self.sender.send(markers, self.report)

    def report(self, markers: SendMarkers, results: Results) -> None:
        self.count += 1
        for partition, code in results.items():
            assert (markers.producer_id, partition) not in self.codes, "a partition has two codes"
            self.codes[markers.producer_id, partition] = code

    def of(self, producer_id: int = 0) -> dict[TopicPartition, E]:
        return {partition: code for (producer, partition), code in self.codes.items() if producer == producer_id}

    async def have(self, count: int) -> None:
        await eventually(lambda: len(self.codes) == count, f"{count} partitions have a code")


@pytest.fixture
async def broker() -> AsyncIterator[TransactionBroker]:
    broker = TransactionBroker()
    await broker.start()
    yield broker
    await broker.close()


@pytest.fixture
def reports(broker: TransactionBroker) -> Reports:
    return Reports(broker.coordinator.sender)


# --- which leader gets what


async def test_each_leader_gets_one_request_and_the_own_log_its_marker(broker: TransactionBroker, reports: Reports) -> None:
    two, three = broker.others[2], broker.others[3]
    reports.send(broker.marker(FIRST, OWN, THIRD, SECOND, producer_id=7, epoch=3, is_commit=False))
    await two.received(1)
    await three.received(1)
    await reports.have(1)
    sent = Marker(7, 3, 5, False)
    assert requested(two, 0) == [(sent, [FIRST, SECOND])]
    assert requested(three, 0) == [(sent, [THIRD])]
    assert two.requests[0][1].api_key == ApiKey.WRITE_TXN_MARKERS
    assert two.requests[0][1].client_id == "broker-1-txn-marker-sender"
    assert broker.written() == [sent]
    assert [record.timestamp for record in broker.records(OWN.partition, OWN.topic)] == [broker.clock.now_ms()]
    assert reports.of(7) == {OWN: E.NONE}
    answer(two, 0, {7: {FIRST: 0, SECOND: 0}})
    answer(three, 0, {7: {THIRD: 0}})
    await reports.have(4)
    assert set(reports.of(7).values()) == {E.NONE}


async def test_a_partition_that_does_not_exist_needs_no_marker(broker: TransactionBroker, reports: Reports) -> None:
    reports.send(broker.marker(UNKNOWN))
    assert reports.of() == {UNKNOWN: E.NONE}


async def test_partitions_without_a_live_leader_have_none_available(broker: TransactionBroker, reports: Reports) -> None:
    broker.publish({}, live=(1, 3))
    reports.send(broker.marker(NO_LEADER, FIRST, UNKNOWN, THIRD))
    assert reports.of() == {NO_LEADER: E.LEADER_NOT_AVAILABLE, FIRST: E.LEADER_NOT_AVAILABLE, UNKNOWN: E.NONE}
    assert reports.count == 1
    await broker.others[3].received(1)
    assert requested(broker.others[3], 0)[0][1] == [THIRD]


async def test_a_leader_without_the_listener_of_brokers_is_not_available(broker: TransactionBroker, reports: Reports) -> None:
    broker.publish({}, listener="OUTSIDE")
    reports.send(broker.marker(FIRST, OWN))
    assert reports.of() == {FIRST: E.LEADER_NOT_AVAILABLE}
    await reports.have(2)
    assert reports.of()[OWN] is E.NONE


async def test_markers_go_to_the_endpoint_of_the_listener_of_brokers() -> None:
    broker = TransactionBroker(
        listeners="INSIDE://127.0.0.1:1", listener_security_protocol_map="INSIDE:PLAINTEXT", inter_broker_listener_name="INSIDE"
    )
    await broker.start()
    broker.publish({}, listener="INSIDE")
    Reports(broker.coordinator.sender).send(broker.marker(FIRST))
    await broker.others[2].received(1)
    await broker.close()


async def test_a_partition_that_this_broker_leads_by_metadata_only_is_unknown(broker: TransactionBroker, reports: Reports) -> None:
    broker.publish({FIRST: 1})
    reports.send(broker.marker(FIRST))
    await reports.have(1)
    assert reports.of() == {FIRST: E.UNKNOWN_TOPIC_OR_PARTITION}


async def test_a_marker_of_an_older_epoch_is_refused_by_the_own_log(broker: TransactionBroker, reports: Reports) -> None:
    reports.send(broker.marker(OWN, epoch=4))
    await reports.have(1)
    older = Reports(broker.coordinator.sender)
    older.send(broker.marker(OWN, epoch=3))
    await older.have(1)
    assert older.of() == {OWN: E.INVALID_PRODUCER_EPOCH}
    fenced = Reports(broker.coordinator.sender)
    fenced.send(broker.marker(OWN, epoch=4)._replace(coordinator_epoch=4))
    await fenced.have(1)
    assert fenced.of() == {OWN: E.TRANSACTION_COORDINATOR_FENCED}
    assert broker.written() == [Marker(0, 4, 5, True)]


@pytest.mark.parametrize(("protocol", "version"), [("2.7-IV2", 0), ("2.8-IV0", 1), ("3.9-IV0", 1)])
async def test_the_version_is_that_of_the_inter_broker_protocol(protocol: str, version: int) -> None:
    broker = TransactionBroker(inter_broker_protocol_version=protocol)
    await broker.start()
    Reports(broker.coordinator.sender).send(broker.marker(FIRST))
    await broker.others[2].received(1)
    assert broker.others[2].requests[0][1].api_version == version
    await broker.close()


# --- what the leader says


@pytest.mark.parametrize(
    "code",
    [E.NOT_LEADER_OR_FOLLOWER, E.INVALID_PRODUCER_EPOCH, E.TRANSACTION_COORDINATOR_FENCED, E.UNSUPPORTED_FOR_MESSAGE_FORMAT],
)
async def test_codes_are_reported_as_the_leader_gives_them(broker: TransactionBroker, reports: Reports, code: E) -> None:
    reports.send(broker.marker(FIRST, SECOND))
    await broker.others[2].received(1)
    answer(broker.others[2], 0, {0: {FIRST: 0, SECOND: code}})
    await reports.have(2)
    assert reports.of() == {FIRST: E.NONE, SECOND: code}


async def test_a_partition_that_the_leader_leaves_out_has_an_unknown_error(broker: TransactionBroker, reports: Reports) -> None:
    reports.send(broker.marker(FIRST, SECOND))
    await broker.others[2].received(1)
    answer(broker.others[2], 0, {0: {FIRST: 0}, 1: {SECOND: 0}})
    await reports.have(2)
    assert reports.of() == {FIRST: E.NONE, SECOND: E.UNKNOWN_SERVER_ERROR}


async def test_a_code_of_a_later_broker_is_an_unknown_error_and_the_next_markers_are_sent(
    broker: TransactionBroker, reports: Reports
) -> None:
    two = broker.others[2]
    reports.send(broker.marker(FIRST))
    await two.received(1)
    reports.send(broker.marker(SECOND, producer_id=1))
    answer(two, 0, {0: {FIRST: 999}})
    await two.received(2)
    assert reports.of() == {FIRST: E.UNKNOWN_SERVER_ERROR}
    answer(two, 1, {1: {SECOND: 0}})
    await reports.have(2)
    assert reports.of(1) == {SECOND: E.NONE}


# --- the leader is gone


async def test_a_leader_whose_port_is_closed_is_a_network_error(broker: TransactionBroker, reports: Reports) -> None:
    await broker.others[2].stop()
    reports.send(broker.marker(FIRST, THIRD))
    await reports.have(1)
    assert reports.of() == {FIRST: E.NETWORK_EXCEPTION}
    await broker.others[3].received(1)


async def test_a_connection_that_closes_before_the_response_is_a_network_error_and_the_next_markers_get_a_new_one(
    broker: TransactionBroker, reports: Reports
) -> None:
    two = broker.others[2]
    reports.send(broker.marker(FIRST, SECOND))
    await two.received(1)
    two.writers[0].close()
    await reports.have(2)
    assert reports.of() == {FIRST: E.NETWORK_EXCEPTION, SECOND: E.NETWORK_EXCEPTION}
    reports.send(broker.marker(FIRST, producer_id=1))
    await two.received(2)
    assert two.connections == 2
    answer(two, 1, {1: {FIRST: 0}})
    await reports.have(3)
    assert reports.of(1) == {FIRST: E.NONE}


async def test_a_leader_that_does_not_respond_in_time_is_a_network_error(broker: TransactionBroker, reports: Reports) -> None:
    two = broker.others[2]
    reports.send(broker.marker(FIRST))
    await two.received(1)
    await broker.advance(TIMEOUT_S - 0.001)
    assert reports.codes == {}
    await broker.advance(0.001)
    await reports.have(1)
    assert reports.of() == {FIRST: E.NETWORK_EXCEPTION}


async def test_a_leader_that_has_moved_to_another_address_is_found_there(broker: TransactionBroker, reports: Reports) -> None:
    reports.send(broker.marker(FIRST))
    await broker.others[2].received(1)
    answer(broker.others[2], 0, {0: {FIRST: 0}})
    await reports.have(1)
    broker.others[2], broker.others[3] = broker.others[3], broker.others[2]
    broker.publish({})
    reports.send(broker.marker(SECOND))
    await broker.others[2].received(1)
    assert requested(broker.others[2], 0)[0][1] == [SECOND]


# --- markers that wait for others


async def test_markers_wait_for_the_request_in_flight_and_go_together_in_the_next(broker: TransactionBroker, reports: Reports) -> None:
    two = broker.others[2]
    reports.send(broker.marker(FIRST))
    await two.received(1)
    reports.send(broker.marker(FIRST, producer_id=1, is_commit=False))
    reports.send(broker.marker(SECOND, producer_id=2, epoch=6))
    assert reports.sender.waiting == 2
    reports.send(broker.marker(THIRD, producer_id=3))
    await broker.others[3].received(1)
    await two.received(1)
    answer(two, 0, {0: {FIRST: 0}})
    await two.received(2)
    assert requested(two, 1) == [(Marker(1, 0, 5, False), [FIRST]), (Marker(2, 6, 5, True), [SECOND])]
    assert reports.sender.waiting == 0
    answer(two, 1, {2: {SECOND: E.NOT_ENOUGH_REPLICAS}, 1: {FIRST: 0}})
    await reports.have(3)
    assert (reports.of(1), reports.of(2)) == ({FIRST: E.NONE}, {SECOND: E.NOT_ENOUGH_REPLICAS})
    assert two.connections == 1


async def test_markers_that_wait_are_sent_after_the_one_in_flight_was_lost(broker: TransactionBroker, reports: Reports) -> None:
    two = broker.others[2]
    reports.send(broker.marker(FIRST))
    await two.received(1)
    reports.send(broker.marker(SECOND, producer_id=1))
    two.writers[0].close()
    await two.received(2)
    assert requested(two, 1) == [(Marker(1, 0, 5, True), [SECOND])]
    assert reports.of() == {FIRST: E.NETWORK_EXCEPTION}


async def test_a_marker_that_is_sent_again_by_its_report_is_in_the_next_request(broker: TransactionBroker, reports: Reports) -> None:
    two = broker.others[2]

    def again(markers: SendMarkers, results: Results) -> None:
        reports.sender.send(markers, reports.report)

    reports.sender.send(broker.marker(FIRST), again)
    await two.received(1)
    answer(two, 0, {0: {FIRST: E.NOT_LEADER_OR_FOLLOWER}})
    await two.received(2)
    answer(two, 1, {0: {FIRST: 0}})
    await reports.have(1)
    assert reports.of() == {FIRST: E.NONE}
