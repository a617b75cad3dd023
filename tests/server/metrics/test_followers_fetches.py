"""Which Fetch requests count as those of followers."""

from __future__ import annotations

import pytest

from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.server.metrics import request_counts

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
        assert len(payload) > request_counts.LARGE_BYTES
        monkeypatch.delattr(messages, "decode")
    request = request_counts._request(payload, 0)
    assert request is not None and request.names == ("Fetch", "FetchConsumer" if replica_id < 0 else "FetchFollower")
