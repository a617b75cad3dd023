"""The replica that a consumer should read from, when it is not the leader (KIP-392): what Kafka's `RackAwareReplicaSelector` selects.

Among the leader and the followers of the ISR that have the consumer's offset, those in the consumer's rack are closer. The leader wins
when it is one of them or there is none; otherwise the follower with the largest log end offset, of equal ones that which caught up last.
"""

from __future__ import annotations

from klamm.broker.metadata_cache import MetadataCache
from klamm.broker.partition import HostedPartition

NO_REPLICA = -1
RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


def preferred_replica(replica: HostedPartition, metadata: MetadataCache, rack: str, listener: str, fetch_offset: int) -> int:
    """The broker id of a better replica than this leader for a consumer in the rack, -1 where there is none."""
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
