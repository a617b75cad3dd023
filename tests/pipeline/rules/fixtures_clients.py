"""Tiny journals of the rules `X`."""

from __future__ import annotations

from typing import Any

from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.tests.pipeline.rules.fixtures import Run, bad, good, silent
from klamm.tests.pipeline.rules.fixtures_elections import controller, create
from klamm.tests.pipeline.rules.fixtures_wire import HEARTBEAT, broker, exchange, later

MS = 1_000_000


def wait(journal: Any, ms: int) -> None:
    """Time passes."""
    journal.now_ns += ms * MS


@good("X-01")
def a_client_looks_for_the_controller(run: Run) -> None:
    journal = broker(run)
    create(journal, 41)
    wait(journal, 100)
    exchange(journal, 2)
    create(journal, 41)


@good("X-01")
def a_second_request_was_under_way(run: Run) -> None:
    journal = broker(run)
    create(journal, 41)
    create(journal, 41)
    wait(journal, 100)
    exchange(journal, 2)
    create(journal, 41)


@bad("X-01")
def a_client_stays_with_the_wrong_broker(run: Run) -> int:
    journal = broker(run)
    create(journal, 41)
    wait(journal, 100)
    return create(journal, 41) - 1


def abort(journal: Any) -> None:
    """`Admin.abortTransaction`."""
    asked = journal.request(1, ApiKey.WRITE_TXN_MARKERS, 1, messages.WriteTxnMarkersRequest())
    journal.response(1, asked, messages.WriteTxnMarkersResponse())


@bad("X-01")
def an_administrator_that_aborts_a_transaction_stays_with_the_wrong_broker(run: Run) -> int:
    journal = broker(run)
    abort(journal)
    create(journal, 41)
    wait(journal, 100)
    return create(journal, 41) - 1


@bad("X-01")
def a_client_whose_id_is_a_number_stays_with_the_wrong_broker(run: Run) -> int:
    journal = broker(run)
    journal.connection(1, client_id="7")
    abort(journal)
    create(journal, 41)
    wait(journal, 100)
    return create(journal, 41) - 1


@bad("X-01")
def a_client_with_nearly_the_id_of_a_broker_stays_with_the_wrong_broker(run: Run) -> int:
    journal = broker(run)
    journal.connection(1, client_id="my-broker-2-fetcher-0")
    create(journal, 41)
    wait(journal, 100)
    return create(journal, 41) - 1


@silent("X-01")
def a_broker_stays_with_the_wrong_broker(run: Run) -> None:
    journal = broker(run)
    journal.connection(1, client_id="2")
    asked = journal.request(1, ApiKey.CONTROLLED_SHUTDOWN, 3, messages.ControlledShutdownRequest(2, 7))
    journal.response(1, asked, messages.ControlledShutdownResponse(error_code=11))
    create(journal, 41)
    wait(journal, 100)
    create(journal, 41)


def throttled(journal: Any, version: int = 4) -> int:
    """An answer that asks for half a second."""
    asked = journal.request(1, ApiKey.HEARTBEAT, version, HEARTBEAT)
    return int(journal.response(1, asked, messages.HeartbeatResponse(throttle_time_ms=500)))


@good("X-02")
def a_client_waits(run: Run) -> None:
    journal = broker(run)
    throttled(journal)
    exchange(journal, 2)
    wait(journal, 600)
    throttled(journal)
    exchange(journal)


@bad("X-02")
def a_client_does_not_wait(run: Run) -> int:
    journal = broker(run)
    throttled(journal)
    wait(journal, 100)
    return exchange(journal)[0]


@silent("X-02")
def an_old_version_is_answered_late(run: Run) -> None:
    journal = broker(run)
    throttled(journal, 1)
    wait(journal, 100)
    exchange(journal)


def refused(journal: Any, times: int) -> int:
    """Heartbeats of an unknown member; the seq of the last answer."""
    answer = 0
    for _ in range(times):
        asked = journal.request(1, ApiKey.HEARTBEAT, 4, HEARTBEAT)
        answer = journal.response(1, asked, messages.HeartbeatResponse(error_code=25))
    return answer


@good("X-03")
def errors_now_and_then(run: Run) -> None:
    journal = broker(run)
    journal.step_ns = 20 * MS
    refused(journal, 60)


@silent("X-03")
def a_coordinator_gets_errors_without_a_pause(run: Run) -> None:
    journal = broker(run)
    journal.connection(1, client_id="broker-2-txn-marker-sender")
    journal.step_ns = MS
    journal.now_ns += -journal.now_ns % 1_000_000_000
    form = messages.WriteTxnMarkersResponse
    refused_partition = form.WritableTxnMarkerTopicResult("t", [form.WritableTxnMarkerPartitionResult(0, 6)])
    for _ in range(120):
        asked = journal.request(1, ApiKey.WRITE_TXN_MARKERS, 1, messages.WriteTxnMarkersRequest())
        journal.response(1, asked, form(markers=[form.WritableTxnMarkerResult(7, [refused_partition])]))


@bad("X-03")
def a_client_with_the_name_of_a_broker_gets_errors_without_a_pause(run: Run) -> int:
    journal = broker(run)
    journal.connection(1, client_id="broker-2-txn-marker-sender")
    journal.step_ns = MS
    journal.now_ns += -journal.now_ns % 1_000_000_000
    return refused(journal, 120)


@bad("X-03")
def errors_of_an_administrator_without_a_pause(run: Run) -> int:
    journal = broker(run)
    abort(journal)
    journal.step_ns = MS
    journal.now_ns += -journal.now_ns % 1_000_000_000
    return refused(journal, 120)


@bad("X-03")
def errors_without_a_pause(run: Run) -> int:
    journal = broker(run)
    journal.step_ns = MS
    journal.now_ns += -journal.now_ns % 1_000_000_000
    return refused(journal, 120)


def offsets(journal: Any, code: int, partition: int = 0) -> int:
    """ListOffsets, answered with this code; the seq of the answer."""
    request, response = messages.ListOffsetsRequest, messages.ListOffsetsResponse
    asked = journal.request(1, ApiKey.LIST_OFFSETS, 7, request(
        replica_id=-1, topics=[request.ListOffsetsTopic("t", [request.ListOffsetsPartition(partition_index=partition, timestamp=-1)])],
    ))
    row = response.ListOffsetsPartitionResponse(partition_index=partition, error_code=code)
    return int(journal.response(1, asked, response(topics=[response.ListOffsetsTopicResponse("t", [row])])))


@good("X-04")
def a_client_asks_for_metadata_after_an_error(run: Run) -> None:
    journal = broker(run)
    offsets(journal, 6)
    wait(journal, 100)
    exchange(journal, 2)
    later(journal, 20)
    offsets(journal, 0)
    offsets(journal, 6)


@bad("X-04")
def a_client_goes_on_with_old_metadata(run: Run) -> int:
    journal = controller(run)
    failed = offsets(journal, 6)
    later(journal, 20)
    offsets(journal, 0)
    return failed


@silent("X-04")
def a_response_names_the_new_leader(run: Run) -> None:
    journal = broker(run)
    request, response = messages.FetchRequest, messages.FetchResponse
    topic = request.FetchTopic(topic_id=bytes(15) + b"t", partitions=[request.FetchPartition(partition=0, fetch_offset=0)])
    asked = journal.request(1, ApiKey.FETCH, 16, request(session_epoch=-1, topics=[topic]))
    row = response.PartitionData(
        error_code=6, high_watermark=-1, current_leader=response.LeaderIdAndEpoch(2, 5), records=b"",
    )
    journal.response(1, asked, response(responses=[response.FetchableTopicResponse(topic_id=bytes(15) + b"t", partitions=[row])]))
    later(journal, 20)
    offsets(journal, 0)


@silent("X-04")
def a_follower_waits_for_the_controller(run: Run) -> None:
    journal = broker(run)
    journal.connection(1, client_id="broker-2-fetcher-0")
    offsets(journal, 6)
    later(journal, 20)
    offsets(journal, 0)
