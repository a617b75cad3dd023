"""Selects the replica from which a consumer should read instead of the leader (KIP-392), like Kafka's `RackAwareReplicaSelector`.

Candidates are the leader and the followers in the ISR that have the consumer's offset, if they are in the consumer's rack. The leader is
selected if it is a candidate or if there is none. Otherwise the follower with the largest log end offset is selected; among equal ones the
one that caught up last.
"""

from __future__ import annotations

from klamm.broker.metadata_cache import MetadataCache
from klamm.broker.partition import HostedPartition

NO_REPLICA = -1
RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


def preferred_replica(replica: HostedPartition, metadata: MetadataCache, rack: str, listener: str, fetch_offset: int) -> int:
    """The broker id of a closer replica than this leader for a consumer in the rack, -1 if there is none."""
    local = metadata.brokers.get(replica.leader)
    if local is not None and listener in local.endpoints and local.rack == rack:
        return NO_REPLICA
    best: tuple[int, int, int] | None = None
    leadership = replica.leadership
    if leadership is None:
        fetched = () if replica.idle is None else replica.idle.fetched
        states = [(broker_id, 0, 0, 0) for broker_id in fetched]
    else:
        followers = leadership.followers.items()
        states = [(broker_id, f.log_end_offset, f.log_start_offset, f.last_caught_up_ms) for broker_id, f in followers]
    for broker_id, end_offset, start_offset, caught_up_ms in states:
        broker = metadata.brokers.get(broker_id)
        if broker is None or broker.rack != rack or listener not in broker.endpoints or broker_id not in replica.isr:
            continue
        if start_offset <= fetch_offset <= end_offset and (best is None or (end_offset, caught_up_ms, broker_id) > best):
            best = end_offset, caught_up_ms, broker_id
    return NO_REPLICA if best is None else best[2]
