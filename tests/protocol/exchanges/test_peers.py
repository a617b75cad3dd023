"""Who is a broker, and which Fetch requests are those of followers."""

from __future__ import annotations

import pytest

from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.exchanges import peers
from klamm.protocol.exchanges.peers import Peer, is_follower

Request = messages.FetchRequest


@pytest.mark.parametrize("version", [12, 14, 15, 17])
@pytest.mark.parametrize("partitions", [1, 10_000])
@pytest.mark.parametrize("replica_id", [-1, 0, 7])
def test_a_fetch_is_a_followers_if_it_has_a_replica_id_and_a_large_one_is_not_decoded_for_that(
    monkeypatch: pytest.MonkeyPatch, version: int, partitions: int, replica_id: int
) -> None:
    topics = [Request.FetchTopic(topic="t", partitions=[Request.FetchPartition(partition=number) for number in range(partitions)])]
    state = Request.ReplicaState(replica_id=replica_id, replica_epoch=-1 if replica_id < 0 else 9)
    message = Request(topics=topics, **({"replica_state": state} if version >= 15 else {"replica_id": replica_id}))
    payload = messages.encode_request(ApiKey.FETCH, version, 1, "c", messages.encode(message, version))[4:]
    if partitions > 1:
        assert len(payload) > peers.LARGE_BYTES
        monkeypatch.delattr(messages, "decode")
    assert is_follower(payload, version) == (replica_id >= 0)


@pytest.mark.parametrize(
    ("requests", "is_broker"),
    [
        ([("broker-1-fetcher-0", ApiKey.API_VERSIONS)], True),
        ([("broker-2-txn-marker-sender", ApiKey.WRITE_TXN_MARKERS)], True),
        ([("AddPartitionsToTxnManager-1", ApiKey.ADD_PARTITIONS_TO_TXN)], True),
        ([("1", ApiKey.API_VERSIONS), ("1", ApiKey.ALTER_PARTITION)], True),
        ([("1", ApiKey.UPDATE_METADATA)], True),
        ([("1", ApiKey.API_VERSIONS), ("1", ApiKey.FETCH)], False),
        ([("adminclient-1", ApiKey.WRITE_TXN_MARKERS)], False),
        ([("7", ApiKey.WRITE_TXN_MARKERS)], False),
        ([("me", ApiKey.LEADER_AND_ISR)], True),
        ([("broker-1-fetcher-0", ApiKey.FETCH)], False),
        ([("broker-1-fetcher-0", ApiKey.METADATA)], False),
        ([("broker-1-fetcher-0", ApiKey.OFFSET_FOR_LEADER_EPOCH)], True),
        ([(None, ApiKey.METADATA)], False),
    ],
)
def test_a_connection_is_a_brokers_by_what_it_sends_and_until_then_by_its_client_id(
    requests: list[tuple[str | None, ApiKey]], is_broker: bool
) -> None:
    peer = Peer()
    for client_id, key in requests:
        peer.requested(client_id, key)
    assert peer.is_broker == is_broker


def test_a_client_that_keeps_changing_its_id_takes_bounded_memory() -> None:
    peer = Peer()
    for number in range(1000):
        peer.requested(f"c{number}", ApiKey.METADATA)
    assert len(peer._client_ids) == peers.MAX_CLIENT_IDS


def test_who_fetches_as_a_follower_is_a_broker_whatever_it_is_called() -> None:
    peer = Peer()
    peer.requested("me", ApiKey.FETCH, follows=True)
    assert peer.is_broker
    assert peers.is_broker(["me"], [ApiKey.METADATA], software="klamm")
    assert not peers.is_broker(["me"], [ApiKey.METADATA], software="apache-kafka-java")
