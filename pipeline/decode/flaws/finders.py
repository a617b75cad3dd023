"""Which bodies are looked at, and by what."""

from __future__ import annotations

from klamm.pipeline.decode.fields import READERS, Reader, Values
from klamm.pipeline.decode.flaws import cluster, groups, records
from klamm.pipeline.decode.flaws.finding import Finder
from klamm.pipeline.decode.json_codec import Body
from klamm.protocol.apis import ApiKey

FINDERS: dict[tuple[bool, int], Finder] = {
    (True, ApiKey.PRODUCE): records.produce, (False, ApiKey.PRODUCE): records.produced,
    (True, ApiKey.FETCH): records.fetch, (False, ApiKey.FETCH): records.fetched,
    (False, ApiKey.LIST_OFFSETS): records.listed,
    (False, ApiKey.INIT_PRODUCER_ID): records.initialized,
    (False, ApiKey.METADATA): cluster.metadata,
    (False, ApiKey.DESCRIBE_CLUSTER): cluster.described_cluster,
    (False, ApiKey.FIND_COORDINATOR): cluster.coordinator,
    (False, ApiKey.API_VERSIONS): cluster.versions,
    (True, ApiKey.JOIN_GROUP): groups.join, (False, ApiKey.JOIN_GROUP): groups.joined,
    (True, ApiKey.SYNC_GROUP): groups.sync,
    (False, ApiKey.CONSUMER_GROUP_HEARTBEAT): groups.heartbeat,
    (True, ApiKey.OFFSET_COMMIT): groups.commit, (True, ApiKey.TXN_OFFSET_COMMIT): groups.commit,
    (False, ApiKey.OFFSET_FETCH): groups.committed,
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
