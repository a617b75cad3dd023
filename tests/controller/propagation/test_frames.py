"""Bodies of the controller's requests, byte for byte, against a second version: the table of controller 13.4 taken field by field.

The second version fills in plain messages and gives them to the codec; the controller joins kept bytes in the newest versions. Both
must give the same bytes on random clusters that hold every oddity: recovering, moving, leaderless and never led partitions, topics
queued for deletion or without an id, failed log directories, more replicas than one byte counts. The order of topics and partitions
within a request is nobody's business, so the second version takes it from the first.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from klamm.controller.cluster import Cluster, Partition, Topic
from klamm.controller.propagation.encoded_topics import EncodedTopics
from klamm.controller.propagation.frames import Encoder
from klamm.controller.values import Assignment, Broker, LeaderAndIsr
from klamm.protocol import messages
from klamm.protocol.nouns import ZERO_UUID, Endpoint

ME, LISTENER = 9, "INTERNAL"

LISR_SINCE = {
    "topic_name": (0, 1), "adding_replicas": (3, 7), "removing_replicas": (3, 7), "is_new": (1, 7), "leader_recovery_state": (6, 7),
}
"""Fields of a LeaderAndIsr state that not all versions have: first and last version."""

UMR_SINCE = {"topic_name": (0, 4), "offline_replicas": (4, 8)}


def make_cluster(rng: random.Random, *, wide: bool) -> Cluster:
    cluster = Cluster(rng.randint(1, 2**31 - 1))
    ids = rng.sample(range(400 if wide else 12), rng.randint(1, 300 if wide else 8))
    cluster.brokers_registered(make_broker(rng, b) for b in ids)
    for b in rng.sample(ids, rng.randint(0, len(ids) // 2)):
        cluster.shutdown_began(b)
    for t in range(rng.randint(1, 6)):
        name = "".join(rng.choices("abcdefghijklmnopqrstuvwxyz._-", k=rng.choice([1, 3, 126, 127, 249])))
        topic = cluster.topic_added(f"{t}{name}"[:249], None if rng.random() < 0.2 else rng.randbytes(16))
        for i in range(rng.choice([1, 2, 5, 130])):
            make_partition(rng, cluster, topic, i, wide)
        if rng.random() < 0.25:
            cluster.deletion_queued(topic.name)
    if rng.random() < 0.5:
        partitions = list(cluster.partitions())
        for b in rng.sample(ids, min(2, len(ids))):
            cluster.offline_replicas_changed(b, set(rng.sample(partitions, rng.randint(1, len(partitions)))))
    return cluster


def make_broker(rng: random.Random, broker_id: int) -> Broker:
    endpoints = [Endpoint(LISTENER, f"host{broker_id}", 9092, rng.randint(0, 3))]
    if rng.random() < 0.5:
        endpoints.insert(rng.randint(0, 1), Endpoint("EXTERNAL", "ä" * rng.randint(1, 70), rng.randint(1, 65535), 1))
    return Broker(broker_id, rng.getrandbits(62), tuple(endpoints), rng.choice([None, "", "rack", "r" * 200]))


def make_partition(rng: random.Random, cluster: Cluster, topic: Topic, index: int, wide: bool) -> None:
    replicas = tuple(rng.sample(range(400 if wide else 14), rng.choice([1, 3, 126, 127, 128, 300] if wide else [1, 2, 3, 5])))
    adding = tuple(rng.sample(replicas, rng.randint(1, len(replicas)))) if rng.random() < 0.2 else ()
    removing = tuple(r for r in replicas if r not in adding and rng.random() < 0.5) if rng.random() < 0.2 else ()
    p = cluster.partition_added(topic, index, Assignment(replicas, adding, removing))
    if rng.random() < 0.15:
        return
    isr = tuple(rng.sample(replicas, rng.randint(1, len(replicas))))
    leader = rng.choice([-1, isr[0], isr[0]])
    recovery = 1 if rng.random() < 0.2 else 0
    if recovery:
        isr = isr[:1]
    state = LeaderAndIsr(leader, rng.randint(0, 2**31 - 1), isr, recovery, rng.randint(0, 2**31 - 1), rng.randint(1, 99))
    cluster.states_changed([p], [state])


def within(version: int, since: dict[str, tuple[int, int]], fields: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in fields.items() if k not in since or since[k][0] <= version <= since[k][1]}


# --- the second version ---


def lisr_state(p: Partition, is_new: bool, version: int) -> Any:
    info = p.info
    assert info is not None
    fields = {
        "topic_name": p.topic.name, "partition_index": p.index, "controller_epoch": info.controller_epoch, "leader": info.leader,
        "leader_epoch": info.leader_epoch, "isr": list(info.isr), "partition_epoch": info.partition_epoch,
        "replicas": list(p.assignment.replicas), "adding_replicas": list(p.assignment.adding),
        "removing_replicas": list(p.assignment.removing), "is_new": is_new, "leader_recovery_state": info.recovery,
    }
    return messages.LeaderAndIsrRequest.LeaderAndIsrPartitionState(**within(version, LISR_SINCE, fields))


def umr_state(cluster: Cluster, p: Partition, version: int) -> Any:
    info = p.info
    assert info is not None
    doomed = p.topic.name in cluster.deletions
    usable = {b for b in cluster.brokers if b not in cluster.shutting_down and p not in cluster.offline_dirs.get(b, ())}
    fields = {
        "topic_name": p.topic.name, "partition_index": p.index, "controller_epoch": info.controller_epoch,
        "leader": -2 if doomed else info.leader, "leader_epoch": 0 if doomed else info.leader_epoch, "isr": list(info.isr),
        "zk_version": 0 if doomed else info.partition_epoch, "replicas": list(p.assignment.replicas),
        "offline_replicas": [r for r in p.assignment.replicas if r not in usable],
    }
    return messages.UpdateMetadataRequest.UpdateMetadataPartitionState(**within(version, UMR_SINCE, fields))


def head(cluster: Cluster, broker: Broker, version: int, broker_epoch_since: int) -> dict[str, Any]:
    fields = {"controller_id": ME, "controller_epoch": cluster.epoch}
    return fields | {"broker_epoch": broker.epoch} if version >= broker_epoch_since else fields


def names_in_order(decoded: Any, grouped: bool) -> list[tuple[str, list[int]]]:
    """Topics and partitions as the request has them."""
    if grouped:
        assert all(t.partition_states for t in decoded.topic_states), "no topic without a partition"
        return [(t.topic_name, [p.partition_index for p in t.partition_states]) for t in decoded.topic_states]
    return [(p.topic_name, [p.partition_index]) for p in decoded.ungrouped_partition_states]


def topic_id(cluster: Cluster, name: str) -> bytes:
    known = cluster.topics[name].id
    return ZERO_UUID if known is None else known


def naive_leader_and_isr(cluster: Cluster, broker: Broker, partitions: dict[Partition, bool], version: int, decoded: Any) -> Any:
    request = messages.LeaderAndIsrRequest
    rows = {p.key: lisr_state(p, is_new, version) for p, is_new in partitions.items() if p.info is not None}
    order = names_in_order(decoded, version >= 2)
    assert sorted((t, i) for t, indexes in order for i in indexes) == sorted(rows), "every partition that has a state, once"
    leaders = sorted({p.info.leader for p in partitions if p.info is not None} & set(cluster.brokers))
    fields = head(cluster, broker, version, 2)
    fields["live_leaders"] = [request.LeaderAndIsrLiveLeader(broker_id=b, host_name=f"host{b}", port=9092) for b in leaders]
    if version < 2:
        fields["ungrouped_partition_states"] = [rows[t, i] for t, indexes in order for i in indexes]  # type: ignore[index]
    else:
        ids = {t: topic_id(cluster, t) if version >= 5 else ZERO_UUID for t, _ in order}
        assert len(ids) == len(order), "each topic once"
        fields["topic_states"] = [
            request.LeaderAndIsrTopicState(topic_name=t, topic_id=ids[t], partition_states=[rows[t, i] for i in indexes])  # type: ignore[index]
            for t, indexes in order
        ]
    return request(**fields)


def naive_live_broker(broker: Broker, version: int) -> Any:
    request = messages.UpdateMetadataRequest
    if version == 0:
        return request.UpdateMetadataBroker(id=broker.id, v0_host=f"host{broker.id}", v0_port=9092)
    endpoints = [
        request.UpdateMetadataEndpoint(
            port=e.port, host=e.host, listener=e.listener if version >= 3 else "", security_protocol=e.security_protocol
        )
        for e in broker.endpoints
    ]
    return request.UpdateMetadataBroker(id=broker.id, endpoints=endpoints, rack=broker.rack if version >= 2 else None)


def naive_update_metadata(cluster: Cluster, broker: Broker, partitions: list[Partition], version: int, decoded: Any) -> Any:
    request = messages.UpdateMetadataRequest
    rows = {p.key: umr_state(cluster, p, version) for p in partitions if p.info is not None}
    order = names_in_order(decoded, version >= 5)
    assert sorted((t, i) for t, indexes in order for i in indexes) == sorted(rows)
    fields = head(cluster, broker, version, 5)
    fields["live_brokers"] = [naive_live_broker(cluster.brokers[b], version) for b in sorted(cluster.brokers)]
    if version < 5:
        fields["ungrouped_partition_states"] = [rows[t, i] for t, indexes in order for i in indexes]  # type: ignore[index]
    else:
        ids = {t: topic_id(cluster, t) if version >= 7 else ZERO_UUID for t, _ in order}
        assert len(ids) == len(order), "each topic once"
        fields["topic_states"] = [
            request.UpdateMetadataTopicState(topic_name=t, topic_id=ids[t], partition_states=[rows[t, i] for i in indexes])  # type: ignore[index]
            for t, indexes in order
        ]
    return request(**fields)


def encoder(version: int) -> Encoder:
    return Encoder(ME, min(version, 7), version, min(version, 4))


def check(name: str, version: int, body: bytes, naive: Any) -> None:
    decoded, end = messages.decode(name, version, body)
    assert end == len(body)
    assert decoded == messages.decode(name, version, messages.encode(naive, version))[0]
    assert bytes(body) == messages.encode(naive, version)


def some_of(rng: random.Random, cluster: Cluster) -> list[Partition]:
    """Some partitions in a random order, sometimes those of one topic torn apart."""
    partitions = list(cluster.partitions())
    chosen = rng.sample(partitions, rng.randint(0, len(partitions)))
    return chosen if rng.random() < 0.5 else sorted(chosen, key=lambda p: p.key)


def clusters(versions: range) -> list[Any]:
    """Parameters of a test: a version, whether the clusters are large, and how many of them. Most are tried by `make test-all` only."""
    few = [(version, wide, 1 if wide else 8) for version in versions for wide in (False, True)]
    many = [(version, wide, 4 if wide else 30) for version in versions for wide in (False, True)]
    return [*few, *(pytest.param(*each, marks=(pytest.mark.slow, pytest.mark.many_seeds)) for each in many)]


@pytest.mark.requirement("R704-4")
@pytest.mark.parametrize("version", range(8))
def test_leader_and_isr_has_the_mark_from_version_6_on(version: int) -> None:
    """The bytes of a partition that recovers are one byte longer there, and what differs from one that does not is that byte."""
    bodies = []
    for recovery in (0, 1):
        cluster = Cluster(7)
        cluster.brokers_registered([Broker(2, 22, (Endpoint(LISTENER, "a", 1, 0),))])
        p = cluster.partition_added(cluster.topic_added("t", b"\x05" * 16), 3, Assignment((2, 1)))
        cluster.states_changed([p], [LeaderAndIsr(2, 4, (2,), recovery, 6, 5)])
        one = encoder(version)
        one.begin()
        bodies.append(bytes(one.leader_and_isr(cluster, cluster.brokers[2], {p: False}, LISTENER)))
    differing = [(a, b) for a, b in zip(*bodies, strict=True) if a != b]
    assert differing == ([(0, 1)] if version >= 6 else [])


@pytest.mark.parametrize(("version", "wide", "count"), clusters(range(8)))
def test_leader_and_isr(version: int, wide: bool, count: int) -> None:
    rng = random.Random(version * 2 + wide)
    for _ in range(count):
        cluster = make_cluster(rng, wide=wide)
        one = encoder(version)
        for new in (0.0, 0.3, 0.0):  # encoded states must serve again, with and without new ones among them
            partitions = {p: rng.random() < new for p in some_of(rng, cluster)}
            broker = rng.choice(list(cluster.brokers.values()))
            one.begin()
            body = one.leader_and_isr(cluster, broker, partitions, LISTENER)
            decoded, _ = messages.decode("LeaderAndIsrRequest", version, body)
            check("LeaderAndIsrRequest", version, body, naive_leader_and_isr(cluster, broker, partitions, version, decoded))
            shake(rng, cluster)


@pytest.mark.parametrize(("version", "wide", "count"), clusters(range(9)))
def test_update_metadata(version: int, wide: bool, count: int) -> None:
    rng = random.Random(100 + version * 2 + wide)
    for _ in range(count):
        cluster = make_cluster(rng, wide=wide)
        one = encoder(version)
        for _ in range(3):
            partitions = some_of(rng, cluster)
            topics, live = one.metadata_topics(cluster, partitions), one.live_brokers(cluster, LISTENER)
            for broker in rng.sample(list(cluster.brokers.values()), min(2, len(cluster.brokers))):
                body = one.update_metadata(cluster, broker, topics, live)
                decoded, _ = messages.decode("UpdateMetadataRequest", version, body)
                check("UpdateMetadataRequest", version, body, naive_update_metadata(cluster, broker, partitions, version, decoded))
            shake(rng, cluster)


def shake(rng: random.Random, cluster: Cluster) -> None:
    """Everything that may change between two requests: states, assignments, brokers, log directories, topic ids, deletions."""
    for p in cluster.partitions():
        if p.info is not None and rng.random() < 0.3:
            isr = tuple(rng.sample(p.assignment.replicas, rng.randint(1, len(p.assignment.replicas))))
            recovery = int(len(isr) == 1 and rng.random() < 0.5)
            cluster.states_changed([p], [p.info._replace(leader=rng.choice((-1, isr[0])), isr=isr, partition_epoch=5, recovery=recovery)])
        if rng.random() < 0.2:
            r = p.assignment.replicas
            cluster.assignment_changed(p, rng.choice([Assignment(r), Assignment(r, r[:1], r[1:]), Assignment((*r, 1000), (1000,))]))
    victim = rng.choice(list(cluster.brokers))
    if rng.random() < 0.3:
        (cluster.shutdown_ended if victim in cluster.shutting_down else cluster.shutdown_began)(victim)
    elif rng.random() < 0.3 and len(cluster.brokers) > 1:
        cluster.brokers_unregistered([victim])
        cluster.offline_replicas_changed(victim, ())
    elif rng.random() < 0.3:
        for b in list(cluster.offline_dirs) or [victim]:
            cluster.offline_replicas_changed(b, [] if b in cluster.offline_dirs else cluster.partitions())
    topic = rng.choice(list(cluster.topics.values()))
    if rng.random() < 0.2 and topic.id is None:
        cluster.topic_added(topic.name, rng.randbytes(16))
    if rng.random() < 0.2:
        cluster.deletion_queued(topic.name)


@pytest.mark.parametrize("version", range(5))
def test_stop_replica(version: int) -> None:
    rng = random.Random(200 + version)
    for _ in range(40):
        cluster = make_cluster(rng, wide=False)
        broker = rng.choice(list(cluster.brokers.values()))
        partitions = {p: (rng.randint(-2, 9), rng.random() < 0.5) for p in some_of(rng, cluster)}
        bodies = encoder(version).stop_replica(cluster, broker, partitions)
        rows: dict[tuple[str, int], Any] = {}
        for body, deleted in bodies:
            request, end = messages.decode("StopReplicaRequest", version, body)
            assert end == len(body)
            assert bytes(messages.encode(request, version)) == bytes(body)
            assert (request.controller_id, request.controller_epoch, request.is_k_raft_controller) == (ME, cluster.epoch, False)
            assert request.broker_epoch == (broker.epoch if version >= 1 else -1)
            if version >= 3:
                assert len({t.topic_name for t in request.topic_states}) == len(request.topic_states)
                found = {
                    (t.topic_name, p.partition_index): (p.leader_epoch, p.delete_partition)
                    for t in request.topic_states
                    for p in t.partition_states
                }
                assert {p.key for p in deleted} == {key for key, (_, delete) in found.items() if delete}
            else:
                flat = [(p.topic_name, p.partition_index) for p in request.ungrouped_partitions]
                grouped = [(t.name, i) for t in request.topics for i in t.partition_indexes]
                found = dict.fromkeys(flat if version == 0 else grouped, (None, request.delete_partitions))
                assert found and not (grouped if version == 0 else flat)
                assert {p.key for p in deleted} == (set(found) if request.delete_partitions else set())
            assert not rows.keys() & found.keys()
            rows |= found
        epochs = version >= 3
        assert rows == {p.key: (epoch if epochs else None, delete) for p, (epoch, delete) in partitions.items()}
        assert len(bodies) == (1 if epochs else len({d for _, d in partitions.values()})), "older versions: one for each flag"


def test_fields_of_the_newest_versions() -> None:
    """One example in full, to be read beside the table."""
    cluster = Cluster(7)
    plain, tls = Endpoint(LISTENER, "a", 1, 0), Endpoint("EXTERNAL", "b", 2, 1)
    cluster.brokers_registered([Broker(1, 11, (plain, tls), "r1"), Broker(2, 22, (plain,)), Broker(0, 33, (plain,))])
    cluster.shutdown_began(2)
    topic = cluster.topic_added("t", b"\x05" * 16)
    p = cluster.partition_added(topic, 3, Assignment((2, 1, 8), (8,), (2,)))
    cluster.states_changed([p], [LeaderAndIsr(2, 4, (2,), 1, 6, 5)])
    one = Encoder(ME, 7, 8, 4)

    lisr, _ = messages.decode("LeaderAndIsrRequest", 7, one.leader_and_isr(cluster, cluster.brokers[1], {p: True}, LISTENER))
    assert (lisr.controller_id, lisr.is_k_raft_controller, lisr.controller_epoch, lisr.broker_epoch, lisr.type) == (ME, False, 7, 11, 0)
    [t] = lisr.topic_states
    assert (t.topic_name, t.topic_id) == ("t", b"\x05" * 16)
    [s] = t.partition_states
    assert (s.partition_index, s.controller_epoch, s.leader, s.leader_epoch, s.isr, s.partition_epoch) == (3, 5, 2, 4, (2,), 6)
    assert (s.replicas, s.adding_replicas, s.removing_replicas, s.is_new, s.leader_recovery_state) == ((2, 1, 8), (8,), (2,), True, 1)
    assert [(x.broker_id, x.host_name, x.port) for x in lisr.live_leaders] == [(2, "a", 1)], "one that leaves is still a live leader"

    body = one.update_metadata(cluster, cluster.brokers[2], one.metadata_topics(cluster, [p]), one.live_brokers(cluster, LISTENER))
    umr, _ = messages.decode("UpdateMetadataRequest", 8, body)
    assert (umr.controller_id, umr.is_k_raft_controller, umr.controller_epoch, umr.broker_epoch, umr.type) == (ME, False, 7, 22, 0)
    assert [(b.id, b.rack, [tuple(e) for e in b.endpoints]) for b in umr.live_brokers] == [
        (0, None, [(1, "a", LISTENER, 0)]),
        (1, "r1", [(1, "a", LISTENER, 0), (2, "b", "EXTERNAL", 1)]),
        (2, None, [(1, "a", LISTENER, 0)]),
    ]
    [[s]] = [t.partition_states for t in umr.topic_states]
    assert (s.partition_index, s.controller_epoch, s.leader, s.leader_epoch, s.isr, s.zk_version) == (3, 5, 2, 4, (2,), 6)
    assert (s.replicas, s.offline_replicas) == ((2, 1, 8), (2, 8))


def test_a_leader_that_is_gone_is_no_live_leader() -> None:
    cluster = Cluster(1)
    cluster.brokers_registered([Broker(1, 11, (Endpoint(LISTENER, "a", 1, 0),))])
    topic = cluster.topic_added("t", b"\x05" * 16)
    for i, leader in enumerate((-1, 5)):
        p = cluster.partition_added(topic, i, Assignment((5, 1)))
        cluster.states_changed([p], [LeaderAndIsr(leader, 0, (5,))])
    body = Encoder(ME, 7, 8, 4).leader_and_isr(cluster, cluster.brokers[1], dict.fromkeys(cluster.partitions(), False), LISTENER)
    assert messages.decode("LeaderAndIsrRequest", 7, body)[0].live_leaders == []


def test_partitions_with_any_indexes_are_encoded_and_kept() -> None:
    cluster = Cluster(1)
    cluster.brokers_registered([Broker(1, 11, (Endpoint(LISTENER, "a", 1, 0),))])
    topic = cluster.topic_added("t", b"\x05" * 16)
    one, state = Encoder(ME, 7, 8, 4), LeaderAndIsr(1, 0, (1,))
    for index in (0, 1, 7, 2**31 - 1, -1, 2):  # dense, sparse, more of each
        cluster.states_changed([cluster.partition_added(topic, index, Assignment((1,)))], [state])
        partitions = list(cluster.partitions())
        for _ in range(2):
            one.begin()
            body = one.leader_and_isr(cluster, cluster.brokers[1], partitions, LISTENER)
            [told] = messages.decode("LeaderAndIsrRequest", 7, body)[0].topic_states
            assert [p.partition_index for p in told.partition_states] == [*topic.partitions]


def test_encoded_topics_go_with_their_topics() -> None:
    cluster, topics = Cluster(1), EncodedTopics()
    for i in range(200):
        topic = cluster.topic_added(f"t-{i}", None)
        partition = cluster.partition_added(topic, 0, Assignment((1,)))
        cluster.states_changed([partition], [LeaderAndIsr(1, 0, (1,))])
        topics.begin()
        assert topics.encoded(topic, [partition]).states[0]
        cluster.topic_removed(topic.name)
    del topic, partition
    assert not len(topics)
