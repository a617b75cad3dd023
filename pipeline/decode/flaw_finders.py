"""Which bodies are looked at, and by what."""

from __future__ import annotations

from functools import cache

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


OF_PARTS = {(True, ApiKey.PRODUCE), (False, ApiKey.FETCH)}
"""Whose finders say only what holds of a body of which the journal kept the first bytes."""


@cache
def part_reader(is_request: bool, key: int) -> Reader:
    """What reads bodies of which the journal kept the first bytes: a body that ends too early is none."""
    read = reader(is_request, key) if (is_request, key) in OF_PARTS else READERS.get((is_request, key))

    def read_part(version: int, body: Body, text: bytes) -> Values | None:
        try:
            return None if read is None else read(version, body, text)
        except KeyError:
            return {"has_body": False}

    return read_part


def reader(is_request: bool, key: int) -> Reader | None:
    """What reads the whole bodies of an API for the table `fields`, and finds their flaws; None if no rule looks at them."""
    read, find = READERS.get((is_request, key)), FINDERS.get((is_request, key))
    if find is None:
        return read

    def read_and_find(version: int, body: Body, text: bytes) -> Values | None:
        values = None if read is None else read(version, body, text)
        flaws = [{"rule": rule, "detail": detail} for rule, detail in find(version, body)]
        return {**(values or {}), "flaws": flaws} if flaws else values

    return read_and_find
