"""Tiny journals of the rules about several frames of clients: versions, metadata, fetch sessions, leader epochs, offsets."""

from __future__ import annotations

from typing import Any

from klamm.journal.columns import Direction
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.records.record import Record, encode_batch
from klamm.tests.pipeline.rules.fixtures import Run, bad, good, silent
from klamm.tests.pipeline.rules.fixtures_wire import EVERYTHING, METADATA, SHOWN, entry, exchange
from klamm.tests.pipeline.rules.frames import fixtures_bodies as bodies

ID = bodies.ID
MS = 1_000_000


def told_versions(journal: Any, entries: Any = EVERYTHING, conn: int = 1, version: int = 3, **columns: Any) -> int:
    """ApiVersions and its response; the seq of the response."""
    asked = journal.request(conn, ApiKey.API_VERSIONS, version, messages.ApiVersionsRequest("tiny", "1"))
    return int(journal.response(conn, asked, messages.ApiVersionsResponse(api_keys=list(entries), **columns)))


# --- K-01 and K-03


@good("K-01")
@good("K-03")
def a_request_decodes_to_its_end(run: Run) -> None:
    exchange(run.journal())


@bad("K-01", also=["W-05"])
def the_id_of_a_member_is_null(run: Run) -> int:
    journal = run.journal()
    body = b"\0\1g\0\0\0\1\xff\xff"
    return int(journal.request(1, ApiKey.HEARTBEAT, 0, body))


@bad("K-01", also=["W-05"])
def a_request_is_cut_short(run: Run) -> int:
    return int(run.journal().request(1, ApiKey.METADATA, 1, b"\0\0\0\1\0\4t"))


@bad("K-03")
def bytes_follow_a_body(run: Run) -> int:
    journal = run.journal()
    asked = journal.request(1, ApiKey.METADATA, 12, messages.encode(METADATA, 12) + b"abc")
    journal.response(1, asked, SHOWN)
    return int(asked)


# --- K-02


@good("K-02")
def a_client_keeps_to_what_is_advertised(run: Run) -> None:
    journal = run.journal()
    journal.request(2, ApiKey.METADATA, 0, b"\0\0\0\0")
    told_versions(journal, [entry(18, 0, 4), entry(3, 1, 12)])
    exchange(journal)


@bad("K-02", also=["W-02", "W-05"])
def a_client_sends_a_version_that_is_not_advertised(run: Run) -> int:
    journal = run.journal()
    told_versions(journal, [entry(18, 0, 4), entry(3, 1, 11)])
    return exchange(journal)[0]


@bad("K-02", also=["W-02", "W-05"])
def a_client_sends_what_is_not_advertised(run: Run) -> int:
    journal = run.journal()
    told_versions(journal, [entry(18, 0, 4)])
    return exchange(journal)[0]


@silent("K-02")
def a_client_that_does_not_ask_cannot_know(run: Run) -> None:
    exchange(run.journal())


# --- K-08


def storm(run: Run, times: int, client_id: str = "tiny") -> int:
    """Send this many requests for metadata within a second; the seq of the last one."""
    journal = run.journal()
    journal.connection(1, client_id=client_id)
    journal.step_ns = MS
    journal.now_ns += -journal.now_ns % 1_000_000_000
    return [exchange(journal)[0] for _ in range(times)][-1]


@good("K-08")
def a_client_asks_for_metadata_now_and_then(run: Run) -> None:
    storm(run, 100)


@bad("K-08")
def a_client_asks_for_metadata_all_the_time(run: Run) -> int:
    return storm(run, 101)


@bad("K-08")
def a_client_with_the_name_of_a_broker_asks_for_metadata_all_the_time(run: Run) -> int:
    return storm(run, 101, "broker-1-fetcher-0")


# --- K-09 and M-04


def metadata(journal: Any, epoch: int, conn: int = 1, topic_id: bytes = ID) -> int:
    """Metadata of t-0 with this leader epoch; the seq of the response."""
    form = messages.MetadataResponse
    row: Any = form.MetadataResponsePartition(partition_index=0, leader_id=1, leader_epoch=epoch)
    topic = form.MetadataResponseTopic(name="t", topic_id=topic_id, partitions=[row])
    asked = journal.request(conn, ApiKey.METADATA, 12, messages.MetadataRequest(topics=None))
    answer = form(brokers=[form.MetadataResponseBroker(1, "h", 9092)], cluster_id="c", controller_id=1, topics=[topic])
    return int(journal.response(conn, asked, answer))


def commit(journal: Any, leader_epoch: int) -> int:
    """OffsetCommit with this leader epoch; the seq of the request."""
    one = bodies.commit(4, leader_epoch)
    asked = journal.request(2, one.key, one.version, one.request)
    journal.response(2, asked, one.response)
    return int(asked)


def read_batch(
    journal: Any, offset: int, *, epoch: int = 3, time: int = 1_000, high: int = 100, stable: int = -2, start: int = 0, count: int = 1,
    conn: int = 7,
) -> int:
    """A consumer reads a batch of t-0, or of one more, whose records have this time; the seq of the response."""
    request, form = messages.FetchRequest, messages.FetchResponse
    topic = request.FetchTopic("t", ID, [request.FetchPartition(partition=0, fetch_offset=offset)])
    asked = journal.request(conn, ApiKey.FETCH, 11, request(session_epoch=-1, topics=[topic]))
    records = encode_batch([Record(offset + each, time, None, b"a") for each in range(count)], leader_epoch=epoch)
    row = form.PartitionData(
        partition_index=0, high_watermark=high, last_stable_offset=high if stable == -2 else stable, log_start_offset=start, records=records
    )
    return int(journal.response(conn, asked, form(responses=[form.FetchableTopicResponse("t", ID, [row])])))


@good("K-09")
def an_offset_is_committed_with_the_epoch_of_its_records(run: Run) -> None:
    journal = run.journal()
    read_batch(journal, 3)
    commit(journal, 3)
    read_batch(journal, 4)


@good("K-09")
def what_metadata_says_after_a_commit_is_old(run: Run) -> None:
    journal = run.journal()
    metadata(journal, 3)
    read_batch(journal, 3, epoch=4)
    commit(journal, 4)
    metadata(journal, 3)


@silent("K-09")
def records_behind_a_commit_are_of_another_leader(run: Run) -> None:
    journal = run.journal()
    metadata(journal, 4)
    commit(journal, 4)
    metadata(journal, 3, conn=3)
    read_batch(journal, 4)


@good("K-09")
def an_offset_is_committed_with_the_epoch_of_the_batch_that_was_read_before_it(run: Run) -> None:
    journal = run.journal()
    read_batch(journal, 3, epoch=5)
    commit(journal, 5)


@silent("K-09")
def a_batch_is_read_after_the_commit_of_an_offset_behind_it(run: Run) -> None:
    journal = run.journal()
    commit(journal, 4)
    read_batch(journal, 3, epoch=5)


@silent("K-09")
def a_topic_is_made_again_and_its_leader_epochs_begin_again(run: Run) -> None:
    journal = run.journal()
    read_batch(journal, 3, epoch=5)
    delete_topic(journal)
    commit(journal, 0)


@bad("K-09")
def an_offset_is_committed_with_an_older_epoch_than_the_batch_that_was_read_before_it(run: Run) -> int:
    journal = run.journal()
    read_batch(journal, 3, epoch=5)
    return commit(journal, 0)


@bad("K-09")
def an_offset_is_committed_with_the_epoch_of_something_else(run: Run) -> int:
    journal = run.journal()
    seq = commit(journal, 4)
    read_batch(journal, 4)
    return seq


@good("M-04")
def leader_epochs_rise_on_each_connection(run: Run) -> None:
    journal = run.journal()
    metadata(journal, 3)
    metadata(journal, 2, conn=2)
    metadata(journal, 3)
    metadata(journal, 0, topic_id=ID[::-1])
    metadata(journal, 4)


@bad("M-04")
def a_leader_epoch_falls(run: Run) -> int:
    journal = run.journal()
    metadata(journal, 3)
    return metadata(journal, 2)


# --- M-07


@good("M-07")
def brokers_name_one_cluster(run: Run) -> None:
    metadata(run.journal(), 3)
    metadata(run.journal(2), 3)


def name_cluster(run: Run, node: int, cluster: str, port: int = 9092) -> tuple[int, int]:
    """Metadata of a broker that lists a broker at this port; the place of the response."""
    form, journal = messages.MetadataResponse, run.journal(node)
    asked = journal.request(1, ApiKey.METADATA, 12, METADATA)
    broker = form.MetadataResponseBroker(1, "h", port)
    return node, int(journal.response(1, asked, form(cluster_id=cluster, brokers=[broker], controller_id=1)))


@bad("M-07")
def two_brokers_name_two_clusters(run: Run) -> tuple[int, int]:
    name_cluster(run, 1, "a")
    place = name_cluster(run, 2, "b")
    name_cluster(run, 1, "a")
    return place


@good("M-07")
def a_capture_has_two_clusters(run: Run) -> None:
    name_cluster(run, 1, "a")
    name_cluster(run, 2, "b", port=9093)
    name_cluster(run, 1, "a")


@good("M-07")
def a_cluster_is_made_again_at_the_same_address(run: Run) -> None:
    name_cluster(run, 1, "a")
    name_cluster(run, 1, "b")


# --- F-06 and O-05


@good("F-06")
def what_was_read_is_below_the_high_watermark(run: Run) -> None:
    journal = run.journal()
    read_batch(journal, 3, high=4)
    read_batch(journal, 4, high=6, stable=5)
    read_batch(journal, 5, high=6, stable=7)  # the high watermark was read first
    read_batch(journal, 6, high=7)


@bad("F-06")
def what_was_read_is_at_the_high_watermark(run: Run) -> int:
    journal = run.journal()
    read_batch(journal, 3, high=3)
    return read_batch(journal, 2, high=3)


@bad("F-06")
def what_was_stable_is_above_the_high_watermark(run: Run) -> int:
    journal = run.journal()
    read_batch(journal, 2, high=3, stable=9)
    return read_batch(journal, 2, high=8)


@silent("F-06")
def what_was_read_is_gone_with_an_unclean_election(run: Run) -> None:
    journal = run.journal()
    metadata(journal, 3)
    read_batch(journal, 3, high=4)
    metadata(journal, 4, conn=3)
    read_batch(journal, 2, high=3)


@good("O-05")
def the_offset_of_a_time_is_in_the_first_batch_that_has_it(run: Run) -> None:
    journal = run.journal()
    for _ in range(2):
        read_batch(journal, 3, time=1_000)
        read_batch(journal, 4, time=2_000, count=2)
        list_offsets(journal, 1_000, 3, 1_000)
        list_offsets(journal, 1_001, 4, 2_000)
        list_offsets(journal, 2_001, -1)


@good("O-05")
def a_batch_that_should_be_found_is_there_only_later(run: Run) -> None:
    journal = run.journal()
    read_batch(journal, 4, time=2_000)
    list_offsets(journal, 1_000, 9, 3_000)  # it was deleted before
    read_batch(journal, 3, time=1_000)


@good("O-05")
def a_batch_of_an_open_transaction_is_not_found(run: Run) -> None:
    """Followers and `read_uncommitted` consumers read it, and one of `read_committed` asks."""
    journal = run.journal()
    for _ in range(2):
        read_batch(journal, 3, time=2_000, stable=3)
        list_offsets(journal, 1_000, -1)


@bad("O-05")
def the_time_of_an_offset_is_not_that_of_its_record(run: Run) -> int:
    journal = run.journal()
    read_batch(journal, 3, time=2_000)
    return list_offsets(journal, 1_000, 3, 1_999)


@bad("O-05")
def a_batch_with_the_time_is_not_found(run: Run) -> int:
    journal = run.journal()
    read_batch(journal, 3, time=2_000)
    seq = list_offsets(journal, 1_000, 4, 2_000)
    read_batch(journal, 3, time=2_000)
    return seq


# --- fetch sessions


class FetchingClient:
    """A client that fetches; methods return the seqs of request and response."""

    def __init__(self, run: Run, conn: int = 1) -> None:
        self.journal = run.journal()
        self.conn = conn

    def ask(self, session: int, epoch: int, isolation: int = 0) -> int:
        request = messages.FetchRequest
        topic = request.FetchTopic("t", ID, [request.FetchPartition(partition=0)])
        message = request(session_id=session, session_epoch=epoch, isolation_level=isolation, topics=[topic])
        return int(self.journal.request(self.conn, ApiKey.FETCH, 11, message))

    def fetch(self, session: int, epoch: int, told: int | None = None, error: int = 0) -> tuple[int, int]:
        asked = self.ask(session, epoch)
        answer = messages.FetchResponse(error_code=error, session_id=session if told is None else told)
        return asked, int(self.journal.response(self.conn, asked, answer))


@good("F-04")
@good("F-05")
@good("K-10")
def a_session_goes_on(run: Run) -> None:
    session = FetchingClient(run)
    session.fetch(0, 0, told=7)
    session.fetch(7, 1)
    session.fetch(7, 2)
    session.fetch(0, -1)
    session.fetch(7, 0, told=8)
    session.fetch(8, 1, told=0)


@bad("F-04")
def a_session_is_answered_with_another_one(run: Run) -> int:
    session = FetchingClient(run)
    session.fetch(0, 0, told=7)
    return session.fetch(7, 1, told=9)[1]


@bad("F-04")
def a_fetch_without_a_session_gets_one(run: Run) -> int:
    return FetchingClient(run).fetch(0, -1, told=7)[1]


@bad("F-05", also=["K-10"])
def a_broker_takes_an_epoch_that_is_not_the_next(run: Run) -> int:
    session = FetchingClient(run)
    session.fetch(0, 0, told=7)
    return session.fetch(7, 2)[1]


@bad("F-05")
def a_broker_refuses_the_next_epoch(run: Run) -> int:
    session = FetchingClient(run)
    session.fetch(0, 0, told=7)
    return session.fetch(7, 1, told=0, error=71)[1]


@bad("K-10")
def a_client_leaves_out_an_epoch(run: Run) -> int:
    session = FetchingClient(run)
    session.fetch(0, 0, told=7)
    session.fetch(7, 1)
    return session.fetch(7, 3, told=0, error=71)[0]


@silent("F-05")
@silent("K-10")
def an_epoch_is_missing_where_rows_are(run: Run) -> None:
    session = FetchingClient(run)
    session.fetch(0, 0, told=7)
    session.fetch(7, 1)
    session.journal.skip()
    session.fetch(7, 3)


@bad("K-10")
def a_client_repeats_an_epoch(run: Run) -> int:
    session = FetchingClient(run)
    session.fetch(0, 0, told=7)
    session.fetch(7, 1)
    return session.fetch(7, 1, told=0, error=71)[0]


@good("K-11")
def a_client_fetches_all_after_its_session_was_lost(run: Run) -> None:
    session = FetchingClient(run)
    session.fetch(7, 4, told=0, error=70)
    session.fetch(7, 0, told=8)


@bad("K-11")
def a_client_goes_on_with_a_session_that_was_lost(run: Run) -> int:
    session = FetchingClient(run)
    session.fetch(7, 4, told=0, error=70)
    return session.fetch(7, 5, told=0, error=70)[0]


def aborted(run: Run, isolation: int) -> int:
    """A read with an aborted transaction in its response; the seq of that."""
    session = FetchingClient(run)
    asked = session.ask(0, -1, isolation)
    form = messages.FetchResponse
    row = form.PartitionData(
        partition_index=0, high_watermark=4, last_stable_offset=4, log_start_offset=0,
        aborted_transactions=[form.AbortedTransaction(7, 0)],
    )
    return int(session.journal.response(1, asked, form(responses=[form.FetchableTopicResponse("t", ID, [row])])))


@good("F-02")
def who_reads_committed_records_is_told_what_was_aborted(run: Run) -> None:
    aborted(run, 1)


@bad("F-02")
def who_reads_all_records_is_told_what_was_aborted(run: Run) -> int:
    return aborted(run, 0)


# --- K-14, K-15, G-10


def beat(run: Run, epoch: int, told: int, error: int = 0, member: str = "m") -> tuple[int, int]:
    """ConsumerGroupHeartbeat with this epoch and what is told; the seqs of request and response."""
    one, journal = bodies.joining(epoch), run.journal()
    answer = messages.ConsumerGroupHeartbeatResponse
    asked = journal.request(1, one.key, 0, one.request._replace(member_id=member))
    answered = answer(error_code=error, member_id="m", member_epoch=told, heartbeat_interval_ms=0 if error else 5_000)
    return int(asked), int(journal.response(1, asked, answered))


@good("K-14")
@good("K-15")
@good("G-10")
def a_member_joins_is_fenced_joins_again_and_leaves(run: Run) -> None:
    beat(run, 0, 1, member="")
    beat(run, 1, 1)
    beat(run, 1, 3)
    beat(run, 3, 3)
    beat(run, 3, 0, error=110)
    beat(run, 0, 4)
    beat(run, 4, 4)
    beat(run, -1, -1)


@bad("K-14")
def the_epoch_of_a_member_falls(run: Run) -> int:
    beat(run, 0, 2)
    beat(run, 2, 3)
    beat(run, 3, 3)
    return beat(run, 2, 3)[0]


@bad("K-14")
def the_epoch_of_a_member_is_one_that_nobody_told(run: Run) -> int:
    beat(run, 0, 2)
    return beat(run, 3, 3)[0]


@bad("K-15")
def a_member_that_was_fenced_goes_on(run: Run) -> int:
    beat(run, 0, 2)
    beat(run, 2, 0, error=110)
    return beat(run, 2, 0, error=25)[0]


@bad("G-10")
def a_member_gets_an_epoch_below_its_own(run: Run) -> int:
    beat(run, 0, 2)
    return beat(run, 2, 1)[1]


@bad("G-10")
def a_member_joins_with_epoch_0(run: Run) -> int:
    return beat(run, 0, 0)[1]


# --- K-12


def end(journal: Any, version: int) -> int:
    """EndTxn in a version; the seq of the request. Version 5 has the body of version 4."""
    body = messages.encode(messages.EndTxnRequest("x", 7, 0, True), 4)
    frame = bytearray(messages.encode_request(ApiKey.END_TXN, 4, 9, "tiny", body))
    frame[6:8] = version.to_bytes(2, "big")
    return int(journal.request(1, ApiKey.END_TXN, version, b"", corr=9, frame=bytes(frame)))


def with_level(journal: Any, level: int) -> None:
    form = messages.ApiVersionsResponse
    entries = [each if each.api_key not in (ApiKey.END_TXN, ApiKey.PRODUCE) else each._replace(max_version=12) for each in EVERYTHING]
    finalized = [form.FinalizedFeatureKey("transaction.version", level, level)] if level else []
    told_versions(
        journal, entries, supported_features=[form.SupportedFeatureKey("transaction.version", 0, 2)], finalized_features=finalized
    )


@good("K-12")
def a_client_uses_the_second_version_of_transactions_where_it_is_on(run: Run) -> None:
    journal = run.journal()
    with_level(journal, 2)
    end(journal, 5)


@bad("K-12")
def a_client_uses_the_second_version_of_transactions_where_it_is_off(run: Run) -> int:
    journal = run.journal()
    with_level(journal, 1)
    return end(journal, 5)


# --- O-03 and L-04


def delete_topic(journal: Any) -> None:
    """DeleteTopics of t."""
    asked = journal.request(1, ApiKey.DELETE_TOPICS, 3, messages.DeleteTopicsRequest(topic_names=["t"]))
    answer = messages.DeleteTopicsResponse
    journal.response(1, asked, answer(responses=[answer.DeletableTopicResult(name="t")]))


def list_offsets(journal: Any, timestamp: int, offset: int, found: int = -1) -> int:
    """ListOffsets of t-0; the seq of the response."""
    request, response = messages.ListOffsetsRequest, messages.ListOffsetsResponse
    row = request.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    asked = journal.request(3, ApiKey.LIST_OFFSETS, 5, request(-1, 0, [request.ListOffsetsTopic("t", [row])]))
    told: Any = response.ListOffsetsPartitionResponse(partition_index=0, offset=offset, timestamp=found)
    return int(journal.response(3, asked, response(topics=[response.ListOffsetsTopicResponse("t", [told])])))


@good("O-03")
def the_record_of_a_time_is_not_older(run: Run) -> None:
    journal = run.journal()
    list_offsets(journal, 1_000, 4, 1_000)
    list_offsets(journal, 1_000, -1)


@bad("O-03")
def the_record_of_a_time_is_older(run: Run) -> int:
    return list_offsets(run.journal(), 1_000, 4, 999)


def produced(journal: Any, offset: int, acks: int = -1) -> None:
    """A batch of one record that gets this offset."""
    request, response = messages.ProduceRequest, messages.ProduceResponse
    data = [request.TopicProduceData("t", partition_data=[request.PartitionProduceData(0, encode_batch([Record(0, 1, None, b"a")]))])]
    asked = journal.request(1, ApiKey.PRODUCE, 8, request(None, acks, 1_000, data))
    row: Any = response.PartitionProduceResponse(index=0, base_offset=offset)
    journal.response(1, asked, response(responses=[response.TopicProduceResponse("t", partition_responses=[row])]))


@good("L-04")
def a_partition_ends_behind_what_was_acknowledged(run: Run) -> None:
    journal = run.journal()
    produced(journal, 4)
    list_offsets(journal, -1, 5)
    produced(journal, 7, acks=1)
    list_offsets(journal, -1, 5)


@bad("L-04")
def what_was_acknowledged_is_gone(run: Run) -> int:
    journal = run.journal()
    produced(journal, 4)
    return list_offsets(journal, -1, 4)


@silent("L-04")
def a_topic_that_is_deleted_begins_again(run: Run) -> None:
    journal = run.journal()
    produced(journal, 4)
    delete_topic(journal)
    list_offsets(journal, -1, 0)


@silent("L-04")
def a_topic_that_is_deleted_by_its_id_begins_again(run: Run) -> None:
    journal = run.journal()
    produced(journal, 4)
    request, answer = messages.DeleteTopicsRequest, messages.DeleteTopicsResponse
    asked = journal.request(1, ApiKey.DELETE_TOPICS, 6, request(topics=[request.DeleteTopicState(None, bodies.ID)]))
    journal.response(1, asked, answer(responses=[answer.DeletableTopicResult(name="t", topic_id=bodies.ID)]))
    list_offsets(journal, -1, 0)


@silent("L-04")
def a_partition_that_another_broker_led_meanwhile_may_end_before(run: Run) -> None:
    journal = run.journal()
    bodies.write(run, bodies.metadata(1))
    produced(journal, 4)
    bodies.write(run, bodies.metadata(2))
    bodies.write(run, bodies.metadata(1))
    list_offsets(journal, -1, 4)


# --- W-13


def between(run: Run, arrives: bool, goes_on: bool = True) -> tuple[int, int]:
    """Broker 1 allocates producer ids at broker 2, twice; what the second journal has of the second request. The place of that."""
    first, second = run.journal(1), run.journal(2)
    request, response = messages.AllocateProducerIdsRequest(1, 9), messages.AllocateProducerIdsResponse()
    for corr in (1, 2):
        asked = first.request(
            1, ApiKey.ALLOCATE_PRODUCER_IDS, 0, request, corr=corr, client_id="1", dir=Direction.REQUEST_OUT, peer_id=2
        )
        first.response(1, asked, response)
        if corr == 1 or arrives:
            got = second.request(1, ApiKey.ALLOCATE_PRODUCER_IDS, 0, request, corr=corr, client_id="1")
            second.response(1, got, response)
        elif goes_on:
            exchange(second, 2)
    return 1, int(asked)


@good("W-13")
def what_a_broker_sent_is_in_the_journal_of_the_other(run: Run) -> None:
    between(run, arrives=True)


@good("W-13")
def what_a_killed_broker_got_last_is_not_judged(run: Run) -> None:
    between(run, arrives=False, goes_on=False)


@bad("W-13")
def what_a_broker_sent_is_missing_at_the_other(run: Run) -> tuple[int, int]:
    return between(run, arrives=False)
