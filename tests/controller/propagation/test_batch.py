"""Rules of a batch (controller 13.2): what is collected, and in which order it leaves."""

from __future__ import annotations

from typing import Any

import pytest

from klamm.controller.cluster import Cluster, Partition
from klamm.controller.options import ControllerOptions
from klamm.controller.propagation.batch import RequestBatch, RequestSender
from klamm.controller.propagation.frames import Encoder
from klamm.controller.values import Assignment, Broker, LeaderAndIsr
from klamm.protocol import messages
from klamm.protocol.nouns import Endpoint
from klamm.tests.controller.simulated_brokers import SentFrame
from klamm.tests.controller.stage import frame_line


class Wires:
    """Channels that keep what they are given."""

    def __init__(self) -> None:
        self.sent: list[tuple[SentFrame, Any]] = []
        self.ignorable: list[Any] = []

    def add_broker(self, broker_id: int, host: str, port: int) -> None: ...

    def remove_broker(self, broker_id: int) -> None: ...

    def close(self) -> None: ...

    def send(
        self,
        broker_id: int,
        api_key: int,
        version: int,
        body: bytes,
        on_response: Any,
        ignorable: Any = None,
        event: int | None = None,
        batch: int | None = None,
    ) -> None:
        self.sent.append((SentFrame(broker_id, api_key, version, body), on_response))
        self.ignorable.append(ignorable)


class Bench:
    """Brokers 1 to 3; topic `t` with three partitions on [1, 2], led by 1 at epoch 5; the third never had a leader."""

    def __init__(self, lisr_version: int = 7, umr_version: int = 8, stop_replica_version: int = 4) -> None:
        self.cluster = Cluster(8)
        endpoint = Endpoint("PLAINTEXT", "h", 9092, 0)
        self.cluster.brokers_registered(Broker(b, 10 * b, (endpoint,)) for b in (3, 1, 2))
        topic = self.cluster.topic_added("t", b"t" * 16)
        self.partitions: list[Partition] = []
        for i in range(3):
            p = self.cluster.partition_added(topic, i, Assignment((1, 2)))
            if i < 2:
                self.cluster.states_changed([p], [LeaderAndIsr(1, 5, (1, 2), 0, 7, 8)])
            self.partitions.append(p)
        self.wires = Wires()
        self.answers: list[tuple[int, int, Any, frozenset[Partition]]] = []
        options = ControllerOptions(
            leader_and_isr_version=lisr_version, update_metadata_version=umr_version, stop_replica_version=stop_replica_version
        )
        encoder = Encoder(9, lisr_version, umr_version, stop_replica_version)
        self.sender = RequestSender(self.cluster, self.wires, encoder, options, lambda *a: self.answers.append(a))
        self.open()

    def open(self) -> None:
        self.scope = self.sender.batch()
        self.batch: RequestBatch = self.scope.__enter__()

    def end(self) -> None:
        """The block of this batch ends, the next one begins."""
        self.scope.__exit__(None, None, None)
        self.open()

    def send(self) -> list[str]:
        self.end()
        lines = [frame_line(frame) for frame, _ in self.wires.sent]
        self.wires.sent.clear()
        return lines


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_all_leader_and_isr_then_all_update_metadata_then_all_stop_replica(bench: Bench) -> None:
    p, q, _ = bench.partitions
    bench.batch.stop(1, q, delete=False)
    bench.batch.stop(2, p, delete=False)
    bench.batch.update_metadata([3], [q])
    bench.batch.lead([2, 1], p, is_new=False)
    both = "t-0 1 e5 [1, 2] v7 t-1 1 e5 [1, 2] v7"
    assert bench.send() == [
        "LISR 1: t-0 1 e5 [1, 2] v7", "LISR 2: t-0 1 e5 [1, 2] v7",
        f"UMR 1: {both}", f"UMR 2: {both}", f"UMR 3: {both}",
        "SR 1: t-1 e5", "SR 2: t-0 e5",
    ]
    assert bench.send() == [], "sent once"


def test_leading_tells_everybody_and_all_are_told_the_same(bench: Bench) -> None:
    p, q, _ = bench.partitions
    bench.batch.lead([2], p, is_new=False)
    bench.batch.update_metadata([1], [q])
    both = "t-0 1 e5 [1, 2] v7 t-1 1 e5 [1, 2] v7"
    assert bench.send() == ["LISR 2: t-0 1 e5 [1, 2] v7", f"UMR 1: {both}", f"UMR 2: {both}", f"UMR 3: {both}"]


def test_telling_some_tells_only_them(bench: Bench) -> None:
    bench.batch.update_metadata([2, -1, 7], bench.partitions[:1])
    assert bench.send() == ["UMR 2: t-0 1 e5 [1, 2] v7"]
    bench.batch.update_metadata([], bench.partitions[:1])
    assert bench.send() == [], "partitions without receivers go nowhere, and do not wait for the next batch"
    bench.batch.update_metadata_everywhere(())
    assert bench.send() == ["UMR 1:", "UMR 2:", "UMR 3:"]


@pytest.mark.parametrize("order", [(True, False), (False, True), (True, True)])
def test_new_sticks(bench: Bench, order: tuple[bool, bool]) -> None:
    for is_new in order:
        bench.batch.lead([1], bench.partitions[0], is_new=is_new)
    assert bench.send()[0] == "LISR 1: t-0 1 e5 [1, 2] v7 new"


def test_new_sticks_for_its_broker_only(bench: Bench) -> None:
    p = bench.partitions[0]
    bench.batch.lead([1], p, is_new=True)
    bench.batch.lead([1, 2], p, is_new=False)
    assert bench.send()[:2] == ["LISR 1: t-0 1 e5 [1, 2] v7 new", "LISR 2: t-0 1 e5 [1, 2] v7"]


def test_many_at_once_are_like_one_after_another(bench: Bench) -> None:
    p, q, _ = bench.partitions
    bench.batch.lead([1], p, is_new=True)
    bench.batch.lead_many({1: [p, q], 2: [q], -1: [p]}, [p, q])
    lines = bench.send()
    assert lines[:2] == ["LISR 1: t-0 1 e5 [1, 2] v7 new t-1 1 e5 [1, 2] v7", "LISR 2: t-1 1 e5 [1, 2] v7"]
    assert lines[2:] == [f"UMR {b}: t-0 1 e5 [1, 2] v7 t-1 1 e5 [1, 2] v7" for b in (1, 2, 3)]
    bench.batch.lead_many({3: [p]}, [p])
    bench.batch.lead_many({3: [p]}, [p])
    bench.batch.lead([3], q, is_new=True)
    assert bench.send()[0] == "LISR 3: t-0 1 e5 [1, 2] v7 t-1 1 e5 [1, 2] v7 new"


def test_one_after_many_at_once_joins_them(bench: Bench) -> None:
    p, q, _ = bench.partitions
    bench.batch.lead_many({1: [p], 2: [p]}, [p])
    bench.batch.lead([1], q, is_new=True)
    assert bench.send()[:2] == ["LISR 1: t-0 1 e5 [1, 2] v7 t-1 1 e5 [1, 2] v7 new", "LISR 2: t-0 1 e5 [1, 2] v7"]


@pytest.mark.parametrize("versions", [(7, 8, 4), (5, 6, 2)])
def test_what_cannot_be_encoded_is_left_out_and_others_are_told(versions: tuple[int, int, int], caplog: pytest.LogCaptureFixture) -> None:
    """A leader, a replica, an index beyond int32; a broker with such a port."""
    bench = Bench(*versions)
    cluster, batch = bench.cluster, bench.batch
    p, q, r = bench.partitions
    cluster.brokers_registered([Broker(4, 40, (Endpoint("PLAINTEXT", "h", 2**31, 0),))])
    cluster.states_changed([q], [LeaderAndIsr(1, 2**31, (1, 2), 0, 7, 8)])
    cluster.states_changed([r], [LeaderAndIsr(4, 5, (1, 2), 0, 7, 8)])
    odd = cluster.partition_added(p.topic, 2**31, Assignment((1, 2)))
    cluster.states_changed([odd], [LeaderAndIsr(1, 5, (1, 2), 0, 7, 8)])
    for each in (p, q, r, odd):
        batch.lead([1], each, is_new=each is p)
        batch.stop(2, each, delete=False)
    batch.lead_many({2: [p, q, r, odd]}, [p, q, r, odd])
    bench.end()
    told = [(f.broker, f.api_key, sorted(frame_partitions(f))) for f, _ in bench.wires.sent]
    assert told[:2] == [(1, 4, [0, 2]), (2, 4, [0, 2])]
    assert told[2:6] == [(b, 6, [0, 2]) for b in (1, 2, 3, 4)]
    assert [(b, api) for b, api, _ in told[6:]] == [(2, 5)] and 2**31 not in told[6][2]
    (umr,) = [f.request for f, _ in bench.wires.sent if (f.broker, f.api_key) == (1, 6)]
    assert [b.id for b in umr.live_brokers] == [1, 2, 3]
    said = " ".join(record.getMessage() for record in caplog.records)
    assert all(f"{name} is left out of requests" in said for name in ("t-1", f"t-{2**31}", "broker 4")) and "t-0 is" not in said


def frame_partitions(frame: SentFrame) -> list[int]:
    """Indexes in a request about one topic."""
    request = frame.request
    if hasattr(request, "topics") and not request.topic_states:
        return [index for t in request.topics for index in t.partition_indexes]
    return [p.partition_index for t in request.topic_states for p in t.partition_states]


@pytest.mark.parametrize("order", [(True, False), (False, True)])
def test_delete_sticks(bench: Bench, order: tuple[bool, bool]) -> None:
    for delete in order:
        bench.batch.stop(1, bench.partitions[0], delete=delete)
    assert bench.send() == ["SR 1: t-0 e5 delete"]


def test_the_epoch_of_a_stop_is_that_of_its_moment(bench: Bench) -> None:
    """The request leaves after the shrink, but carries the leader epoch from before it."""
    p = bench.partitions[0]
    bench.batch.stop(1, p, delete=False)
    bench.cluster.states_changed([p], [LeaderAndIsr(2, 6, (2,), 0, 8, 8)])
    bench.batch.lead([2], p, is_new=False)
    lines = bench.send()
    assert lines[0] == "LISR 2: t-0 2 e6 [2] v8"
    assert lines[-1] == "SR 1: t-0 e5"


def test_the_epochs_of_stops(bench: Bench) -> None:
    for p in bench.partitions:
        bench.batch.stop(2, p, delete=False)
    assert bench.send() == ["SR 2: t-0 e5 t-1 e5 t-2 e-1"]
    bench.cluster.deletion_queued("t")
    for p in bench.partitions:
        bench.batch.stop(2, p, delete=False)
    assert bench.send() == ["SR 2: t-0 e-2 t-1 e-2 t-2 e-2"]


def test_partitions_without_leadership_are_left_out(bench: Bench) -> None:
    p = bench.partitions[2]
    bench.batch.update_metadata_everywhere([p])
    assert bench.send() == ["UMR 1:", "UMR 2:", "UMR 3:"], "their brokers still get one"


def test_partitions_in_deletion(bench: Bench) -> None:
    bench.cluster.deletion_queued("t")
    bench.batch.lead([1], bench.partitions[0], is_new=False)
    assert bench.send()[:2] == ["LISR 1: t-0 1 e5 [1, 2] v7", "UMR 1: t-0 -2 e0 [1, 2] v0"], "the isr is kept"


def test_who_is_not_registered_is_sent_nothing(bench: Bench) -> None:
    p = bench.partitions[0]
    bench.batch.lead([-1, 7], p, is_new=False)
    bench.batch.stop(-1, p, delete=False)
    bench.batch.stop(7, p, delete=False)
    assert [line.split(":")[0] for line in bench.send()] == ["UMR 1", "UMR 2", "UMR 3"]


def test_shutting_down_is_still_told(bench: Bench) -> None:
    bench.cluster.shutdown_began(1)
    bench.batch.lead([1], bench.partitions[0], is_new=False)
    bench.batch.stop(1, bench.partitions[1], delete=False)
    assert [line.split(" t-")[0] for line in bench.send()] == ["LISR 1:", "UMR 1:", "UMR 2:", "UMR 3:", "SR 1:"]


def test_a_batch_whose_block_raises_is_dropped_and_the_next_one_is_empty(bench: Bench) -> None:
    p, sender = bench.partitions[0], RequestSender(bench.cluster, bench.wires, Encoder(9, 7, 8, 4), ControllerOptions(), lambda *_: None)
    with pytest.raises(ZeroDivisionError), sender.batch() as batch:
        batch.lead([1], p, is_new=True)
        batch.update_metadata_everywhere([p])
        batch.stop(1, p, delete=True)
        raise ZeroDivisionError
    assert bench.wires.sent == []
    with sender.batch() as batch:
        batch.stop(1, p, delete=False)
    assert [frame_line(frame) for frame, _ in bench.wires.sent] == ["SR 1: t-0 e5"]


def test_batches_do_not_nest(bench: Bench) -> None:
    bench.batch.lead([1], bench.partitions[0], is_new=True)
    with pytest.raises(RuntimeError, match="nest"), bench.sender.batch():
        raise AssertionError("a second batch was opened")
    assert bench.send()[0] == "LISR 1: t-0 1 e5 [1, 2] v7 new", "the outer one is still there"


@pytest.mark.parametrize(("version", "watched"), [(4, [True]), (2, [False, True]), (0, [False, True])])
def test_answers_that_matter(version: int, watched: list[bool]) -> None:
    """Below version 3 one request for each flag, and only the one that deletes has its answer looked at."""
    bench = Bench(stop_replica_version=version)
    p, q, _ = bench.partitions
    bench.sender.event = 7
    bench.batch.lead([1], p, is_new=False)
    bench.batch.update_metadata([2], ())
    bench.batch.stop(1, p, delete=False)
    bench.batch.stop(1, q, delete=True)
    bench.end()
    frames = [(f.api_key, f.version, on_response is not None) for f, on_response in bench.wires.sent]
    assert frames == [(4, 7, True), *[(6, 8, True)] * 3, *[(5, version, w) for w in watched]]
    for frame, on_response in bench.wires.sent:
        if on_response is not None:
            on_response(frame.api_key * 100)
    none, deleted = frozenset[Partition](), frozenset({q})
    assert bench.answers == [(1, 7, 400, none), (1, 7, 600, none), (2, 7, 600, none), (3, 7, 600, none), (1, 7, 500, deleted)]


def test_answers_that_tell_nothing(bench: Bench) -> None:
    """A clean answer need not be looked at, unless it may be the news that a log directory is back."""
    response = messages.LeaderAndIsrResponse

    def answer(top: int, *errors: int) -> bytes:
        rows = [response.LeaderAndIsrPartitionError(partition_index=i, error_code=e) for i, e in enumerate(errors)]
        topics = [response.LeaderAndIsrTopicError(topic_id=b"t" * 16, partition_errors=rows)] if rows else []
        return b"head" + messages.encode(response(error_code=top, topics=topics), 7)

    p = bench.partitions[0]
    bench.batch.lead([1], p, is_new=False)
    bench.batch.stop(1, p, delete=True)
    bench.end()
    for (frame, _), ignorable in zip(bench.wires.sent, bench.wires.ignorable, strict=True):
        if frame.api_key != 4:
            assert ignorable is None
            continue
        assert [ignorable(answer(*codes), 4) for codes in ((0,), (0, 0, 0), (0, 0, 56), (0, 56, 0), (11,), (0, -1))] == [
            True, True, False, False, False, False
        ]
        bench.cluster.offline_replicas_changed(2, {p})
        assert ignorable(answer(0, 0), 4)
        bench.cluster.offline_replicas_changed(1, {p})
        assert not ignorable(answer(0, 0), 4)


def test_versions_are_those_of_the_options() -> None:
    bench = Bench(stop_replica_version=3)
    bench.batch.stop(1, bench.partitions[0], delete=True)
    bench.end()
    [(frame, _)] = bench.wires.sent
    assert frame.version == 3
    assert messages.encode(frame.request, 3) == frame.body
