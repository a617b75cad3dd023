"""The APIs that brokers of Apache Kafka 1.0 to 3.9 list in ApiVersions, in ZooKeeper mode. Those of 4.0 to 4.4 have a table of their own.

There is one line for each API: its name, then `release:version` for each release that has another newest version than the release before.
The first is the release that lists the API first. No release dropped an API or an old version of one: the oldest version is 0 everywhere.
Measured at one broker of each release with default configs; `tests/versions/test_kafka_releases.py` compares it with such brokers. Only
brokers that are to look like an older release import this table.
"""

from __future__ import annotations

from klamm.configs.releases import kafka4_releases
from klamm.protocol.apis import APIS

_RELEASES = "1.0 1.1 2.0 2.1 2.2 2.3 2.4 2.5 2.6 2.7 2.8 3.0 3.1 3.2 3.3 3.4 3.5 3.6 3.7 3.8 3.9"
WITH_ZOOKEEPER = tuple(_RELEASES.split())
RELEASES = (*WITH_ZOOKEEPER, *kafka4_releases.RELEASES)

_NEWEST = """
Produce                       1.0:5 2.0:6 2.1:7 2.4:8 2.8:9 3.7:10 3.8:11
Fetch                         1.0:6 1.1:7 2.0:8 2.1:10 2.3:11 2.7:12 3.1:13 3.5:15 3.7:16 3.9:17
ListOffsets                   1.0:2 2.0:3 2.1:4 2.2:5 2.8:6 3.0:7 3.5:8 3.9:9
Metadata                      1.0:5 2.0:6 2.1:7 2.3:8 2.4:9 2.8:11 3.1:12
LeaderAndIsr                  1.0:1 2.2:2 2.4:4 2.8:5 3.2:6 3.4:7
StopReplica                   1.0:0 2.2:1 2.4:2 2.6:3 3.4:4
UpdateMetadata                1.0:4 2.2:5 2.4:6 2.8:7 3.4:8
ControlledShutdown            1.0:1 2.2:2 2.4:3
OffsetCommit                  1.0:3 2.0:4 2.1:6 2.3:7 2.4:8 3.7:9
OffsetFetch                   1.0:3 2.0:4 2.1:5 2.4:6 2.5:7 3.0:8 3.7:9
FindCoordinator               1.0:1 2.0:2 2.4:3 3.0:4 3.8:5 3.9:6
JoinGroup                     1.0:2 2.0:3 2.2:4 2.3:5 2.4:6 2.5:7 3.2:9
Heartbeat                     1.0:1 2.0:2 2.3:3 2.4:4
LeaveGroup                    1.0:1 2.0:2 2.4:4 3.2:5
SyncGroup                     1.0:1 2.0:2 2.3:3 2.4:4 2.5:5
DescribeGroups                1.0:1 2.0:2 2.3:3 2.4:5
ListGroups                    1.0:1 2.0:2 2.4:3 2.6:4 3.8:5
SaslHandshake                 1.0:1
ApiVersions                   1.0:1 2.0:2 2.4:3 3.9:4
CreateTopics                  1.0:2 2.0:3 2.4:5 2.7:6 2.8:7
DeleteTopics                  1.0:1 2.0:2 2.1:3 2.4:4 2.7:5 2.8:6
DeleteRecords                 1.0:0 2.0:1 2.6:2
InitProducerId                1.0:0 2.0:1 2.4:2 2.5:3 2.7:4 3.8:5
OffsetForLeaderEpoch          1.0:0 2.0:1 2.1:2 2.3:3 2.8:4
AddPartitionsToTxn            1.0:0 2.0:1 2.7:2 2.8:3 3.6:4 3.8:5
AddOffsetsToTxn               1.0:0 2.0:1 2.7:2 2.8:3 3.8:4
EndTxn                        1.0:0 2.0:1 2.7:2 2.8:3 3.8:4
WriteTxnMarkers               1.0:0 2.8:1
TxnOffsetCommit               1.0:0 2.0:1 2.1:2 2.5:3 3.8:4
DescribeAcls                  1.0:0 2.0:1 2.5:2 3.3:3
CreateAcls                    1.0:0 2.0:1 2.5:2 3.3:3
DeleteAcls                    1.0:0 2.0:1 2.5:2 3.3:3
DescribeConfigs               1.0:0 1.1:1 2.0:2 2.6:3 2.8:4
AlterConfigs                  1.0:0 2.0:1 2.8:2
AlterReplicaLogDirs           1.0:0 2.0:1 2.8:2
DescribeLogDirs               1.0:0 2.0:1 2.6:2 3.2:3 3.3:4
SaslAuthenticate              1.0:0 2.2:1 2.5:2
CreatePartitions              1.0:0 2.0:1 2.5:2 2.7:3
CreateDelegationToken         1.1:0 2.0:1 2.4:2 3.3:3
RenewDelegationToken          1.1:0 2.0:1 2.5:2
ExpireDelegationToken         1.1:0 2.0:1 2.5:2
DescribeDelegationToken       1.1:0 2.0:1 2.5:2 3.3:3
DeleteGroups                  1.1:0 2.0:1 2.4:2
ElectLeaders                  2.2:0 2.4:2
IncrementalAlterConfigs       2.3:0 2.4:1
AlterPartitionReassignments   2.4:0
ListPartitionReassignments    2.4:0
OffsetDelete                  2.4:0
DescribeClientQuotas          2.6:0 2.8:1
AlterClientQuotas             2.6:0 2.8:1
DescribeUserScramCredentials  2.7:0
AlterUserScramCredentials     2.7:0
AlterPartition                2.7:0 3.2:1 3.3:2 3.5:3
UpdateFeatures                2.7:0 3.3:1
Envelope                      3.4:0
DescribeCluster               2.8:0 3.7:1
DescribeProducers             2.8:0
DescribeTransactions          3.0:0
ListTransactions              3.0:0 3.8:1
AllocateProducerIds           3.0:0
ConsumerGroupHeartbeat        3.7:0
ConsumerGroupDescribe         3.8:0
"""


def release_of(text: str) -> str | None:
    """The release of a version: `2.8` of `2.8` and of `2.8.1`. None if it is not from 1.0 to 4.4."""
    parts = text.split(".")
    release = ".".join(parts[:2])
    return release if release in RELEASES and len(parts) <= 3 and all(part.isdecimal() for part in parts) else None


def is_kafka_4(release: str) -> bool:
    """Whether this is a release in KRaft mode."""
    return release in kafka4_releases.RELEASES


def steps() -> dict[int, list[tuple[str, int]]]:
    """API key → (release, its newest version) for each release with another newest version than the release before."""
    keys = {api.name: int(api.key) for api in APIS.values()}
    rows = (line.split() for line in _NEWEST.strip().splitlines())
    return {keys[name]: [(since, int(newest)) for since, newest in (each.split(":") for each in changes)] for name, *changes in rows}


def versions_in(release: str) -> dict[int, tuple[int, int]]:
    """API key → (oldest, newest) version that a broker of this release lists. Raises ValueError for an unknown release."""
    order = RELEASES.index(release)
    if is_kafka_4(release):
        return kafka4_releases.versions_in(release)
    listed = {}
    for key, changes in steps().items():
        for since, newest in changes:
            if RELEASES.index(since) <= order:
                listed[key] = (0, newest)
    return listed
