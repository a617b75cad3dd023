"""Which bodies are looked at, and by what."""

from __future__ import annotations

from klamm.pipeline.decode import cluster_flaws, group_flaws, record_flaws
from klamm.pipeline.decode.fields import READERS, Reader, Values
from klamm.pipeline.decode.flaws import Finder
from klamm.pipeline.decode.json_codec import Body
from klamm.protocol.apis import ApiKey

FINDERS: dict[tuple[bool, int], Finder] = {
    (True, ApiKey.PRODUCE): record_flaws.produce, (False, ApiKey.PRODUCE): record_flaws.produced,
    (True, ApiKey.FETCH): record_flaws.fetch, (False, ApiKey.FETCH): record_flaws.fetched,
    (False, ApiKey.LIST_OFFSETS): record_flaws.listed,
    (False, ApiKey.INIT_PRODUCER_ID): record_flaws.initialized,
    (False, ApiKey.METADATA): cluster_flaws.metadata,
    (False, ApiKey.DESCRIBE_CLUSTER): cluster_flaws.described_cluster,
    (False, ApiKey.FIND_COORDINATOR): cluster_flaws.coordinator,
    (False, ApiKey.API_VERSIONS): cluster_flaws.versions,
    (True, ApiKey.JOIN_GROUP): group_flaws.join, (False, ApiKey.JOIN_GROUP): group_flaws.joined,
    (True, ApiKey.SYNC_GROUP): group_flaws.sync,
    (True, ApiKey.CONSUMER_GROUP_HEARTBEAT): group_flaws.beat, (False, ApiKey.CONSUMER_GROUP_HEARTBEAT): group_flaws.heartbeat,
    (True, ApiKey.OFFSET_COMMIT): group_flaws.commit, (True, ApiKey.TXN_OFFSET_COMMIT): group_flaws.commit,
    (False, ApiKey.OFFSET_FETCH): group_flaws.committed,
}
"""Whether it is a request, and API key → what finds flaws in its bodies."""


def reader(is_request: bool, key: int) -> Reader | None:
    """What reads the bodies of an API for the table `fields`, and finds their flaws; None if no rule looks at them."""
    read, find = READERS.get((is_request, key)), FINDERS.get((is_request, key))
    if find is None:
        return read

    def read_and_find(version: int, body: Body, text: bytes) -> Values | None:
        values = None if read is None else read(version, body, text)
        flaws = [{"rule": rule, "detail": detail} for rule, detail in find(version, body)]
        return {**(values or {}), "flaws": flaws} if flaws else values

    return read_and_find
