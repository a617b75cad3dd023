"""Metadata, DescribeCluster, FindCoordinator and ApiVersions: rules M-01 to M-03, M-05, M-06, M-08, V-01 to V-03."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from klamm.pipeline.decode.fields import NO_ID
from klamm.pipeline.decode.flaws import Flaw, repeated
from klamm.pipeline.decode.json_codec import Body
from klamm.protocol.apis import ApiKey

_PORTS = range(1, 1 << 16)
_LEADERLESS = (5, 72)
"""LEADER_NOT_AVAILABLE and LISTENER_NOT_FOUND: a partition has no leader that the client could reach."""

TOGETHER: tuple[tuple[tuple[int, int], tuple[int, int]], ...] = (
    ((ApiKey.FETCH, 13), (ApiKey.METADATA, 10)),
    ((ApiKey.PRODUCE, 13), (ApiKey.METADATA, 10)),
    ((ApiKey.OFFSET_COMMIT, 10), (ApiKey.METADATA, 10)),
    ((ApiKey.OFFSET_FETCH, 10), (ApiKey.METADATA, 10)),
    ((ApiKey.FETCH, 12), (ApiKey.OFFSET_FOR_LEADER_EPOCH, 3)),
    ((ApiKey.JOIN_GROUP, 0), (ApiKey.SYNC_GROUP, 0)),
    ((ApiKey.JOIN_GROUP, 0), (ApiKey.HEARTBEAT, 0)),
    ((ApiKey.JOIN_GROUP, 0), (ApiKey.LEAVE_GROUP, 0)),
    ((ApiKey.JOIN_GROUP, 0), (ApiKey.FIND_COORDINATOR, 0)),
    ((ApiKey.JOIN_GROUP, 5), (ApiKey.SYNC_GROUP, 3)),
    ((ApiKey.JOIN_GROUP, 5), (ApiKey.HEARTBEAT, 3)),
    ((ApiKey.OFFSET_COMMIT, 0), (ApiKey.OFFSET_FETCH, 0)),
    ((ApiKey.OFFSET_COMMIT, 0), (ApiKey.FIND_COORDINATOR, 0)),
    ((ApiKey.ADD_PARTITIONS_TO_TXN, 0), (ApiKey.INIT_PRODUCER_ID, 0)),
    ((ApiKey.ADD_PARTITIONS_TO_TXN, 0), (ApiKey.END_TXN, 0)),
    ((ApiKey.ADD_PARTITIONS_TO_TXN, 0), (ApiKey.FIND_COORDINATOR, 1)),
    ((ApiKey.ADD_PARTITIONS_TO_TXN, 0), (ApiKey.PRODUCE, 3)),
    ((ApiKey.END_TXN, 0), (ApiKey.ADD_PARTITIONS_TO_TXN, 0)),
    ((ApiKey.END_TXN, 5), (ApiKey.PRODUCE, 12)),
    ((ApiKey.TXN_OFFSET_COMMIT, 0), (ApiKey.ADD_OFFSETS_TO_TXN, 0)),
    ((ApiKey.SASL_AUTHENTICATE, 0), (ApiKey.SASL_HANDSHAKE, 1)),
    ((ApiKey.CONSUMER_GROUP_HEARTBEAT, 0), (ApiKey.OFFSET_COMMIT, 9)),
)
"""API and version → another API and its version without which a client cannot use the first. All releases of Apache Kafka in the tables
obey it (`protocol/releases.py`)."""


def metadata(version: int, body: Body) -> Iterator[Flaw]:
    """M-01 to M-03, M-05, M-06."""
    yield from _brokers(body)
    live = {row["nodeId"] for row in body.get("brokers") or ()}
    # Before inter-broker protocol 2.8 no topic has an id.
    has_ids = any(topic.get("topicId") not in (None, NO_ID) for topic in body.get("topics") or ())
    for topic in body.get("topics") or ():
        name, rows = topic.get("name") or topic.get("topicId"), topic.get("partitions") or ()
        if topic["errorCode"]:
            if rows:
                yield "M-06", f"{name} has {len(rows)} partitions with error <error {topic['errorCode']}>"
            continue
        if has_ids and topic["topicId"] == NO_ID:
            yield "M-06", f"{name} has no id"
        yield from _partitions(name, rows, live)


def _partitions(name: Any, rows: Sequence[Any], live: set[int]) -> Iterator[Flaw]:
    """M-01 to M-03."""
    if sorted(row["partitionIndex"] for row in rows) != list(range(len(rows))):
        there = {row["partitionIndex"] for row in rows}
        absent = next((each for each in range(len(rows)) if each not in there), None)
        yield "M-03", f"{name} has {len(rows)} partitions, and none is number {absent}"
    for row in rows:
        leader, code = row["leaderId"], row["errorCode"]
        if leader >= 0 and leader not in live:
            yield "M-01", f"{name}-{row['partitionIndex']} has leader {leader}, which is not among the brokers {sorted(live)}"
        if (code == 0 and leader < 0) or (code in _LEADERLESS and leader >= 0) or row.get("leaderEpoch", -1) < -1:
            yield "M-02", f"{name}-{row['partitionIndex']} has leader {leader}, epoch {row.get('leaderEpoch', -1)} and error <error {code}>"


def _brokers(body: Body) -> Iterator[Flaw]:
    """M-05."""
    rows = body.get("brokers") or ()
    ids = "nodeId" if rows and "nodeId" in rows[0] else "brokerId"
    for row in rows:
        if not row["host"] or row["port"] not in _PORTS or row[ids] < 0:
            yield "M-05", f"broker {row[ids]} is at {row['host']}:{row['port']}"
    for one in repeated(row[ids] for row in rows):
        yield "M-05", f"broker {one} is named twice"


def described_cluster(version: int, body: Body) -> Iterator[Flaw]:
    """M-05."""
    return _brokers(body)


def coordinator(version: int, body: Body) -> Iterator[Flaw]:
    """M-08."""
    for row in (body,) if "nodeId" in body else body.get("coordinators") or ():
        is_there = row["nodeId"] >= 0 and bool(row["host"]) and row["port"] in _PORTS
        if is_there == (row["errorCode"] != 0):
            yield "M-08", f"coordinator {row['nodeId']} at {row['host']}:{row['port']} with error <error {row['errorCode']}>"


def versions(version: int, body: Body) -> Iterator[Flaw]:
    """V-01 to V-03."""
    if body["errorCode"]:
        return
    rows = body.get("apiKeys") or ()
    ranges = {row["apiKey"]: (row["minVersion"], row["maxVersion"]) for row in rows}
    for key in repeated(row["apiKey"] for row in rows):
        yield "V-01", f"advertises <api {key}> twice"
    for key, (low, high) in ranges.items():
        if not 0 <= low <= high:
            yield "V-01", f"advertises <api {key}> from version {low} to {high}"
    if ApiKey.API_VERSIONS not in ranges:
        yield "V-01", "does not advertise ApiVersions"
    for (key, since), (other, least) in TOGETHER:
        if ranges.get(key, (0, -1))[1] >= since and ranges.get(other, (0, -1))[1] < least:
            yield "V-02", f"advertises <api {key}> {since} without <api {other}> {least}"
    yield from _features(body)


def _features(body: Body) -> Iterator[Flaw]:
    supported = {row["name"]: (row["minVersion"], row["maxVersion"]) for row in body.get("supportedFeatures") or ()}
    for row in body.get("finalizedFeatures") or ():
        # Version 3 leaves out supported features whose lowest version is 0.
        low, high = supported.get(row["name"], (row["minVersionLevel"], row["maxVersionLevel"]))
        if not (row["minVersionLevel"] <= row["maxVersionLevel"] and low <= row["maxVersionLevel"] <= high):
            levels = f"from {row['minVersionLevel']} to {row['maxVersionLevel']}"
            yield "V-03", f"feature {row['name']} is finalized {levels}, and versions {low} to {high} are supported"
