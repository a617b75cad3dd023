"""The APIs and features of brokers of Apache Kafka 4.0 to 4.4, in KRaft mode, as their ApiVersions lists them.

There is one line for each API: its name, then `release:oldest-newest` for each release that lists other versions than the release before.
The versions of 4.4 are measured at a broker of 4.4.0 with default configs, those of the others are in the message definitions of their
clients, those that are offered on the listeners of brokers. All of them list Produce from 0 on, for librdkafka, and refuse what is older
than 3. Only brokers that are to look like one of these releases import this table.
"""

from __future__ import annotations

from collections.abc import Mapping

from klamm.protocol.apis import APIS, ApiKey, SentBy

RELEASES = ("4.0", "4.1", "4.2", "4.3", "4.4")

_VERSIONS = """
Produce                               4.0:0-12 4.1:0-13
Fetch                                 4.0:4-17 4.1:4-18
ListOffsets                           4.0:1-10 4.2:1-11
Metadata                              4.0:0-13
OffsetCommit                          4.0:2-9 4.2:2-10
OffsetFetch                           4.0:1-9 4.2:1-10
FindCoordinator                       4.0:0-6
JoinGroup                             4.0:0-9
Heartbeat                             4.0:0-4
LeaveGroup                            4.0:0-5
SyncGroup                             4.0:0-5
DescribeGroups                        4.0:0-6
ListGroups                            4.0:0-5
SaslHandshake                         4.0:0-1
ApiVersions                           4.0:0-4 4.4:0-5
CreateTopics                          4.0:2-7
DeleteTopics                          4.0:1-6
DeleteRecords                         4.0:0-2
InitProducerId                        4.0:0-5
OffsetForLeaderEpoch                  4.0:2-4
AddPartitionsToTxn                    4.0:0-5
AddOffsetsToTxn                       4.0:0-4
EndTxn                                4.0:0-5
WriteTxnMarkers                       4.0:1-1 4.2:1-2
TxnOffsetCommit                       4.0:0-5 4.4:0-6
DescribeAcls                          4.0:1-3
CreateAcls                            4.0:1-3
DeleteAcls                            4.0:1-3
DescribeConfigs                       4.0:1-4
AlterConfigs                          4.0:0-2
AlterReplicaLogDirs                   4.0:1-2
DescribeLogDirs                       4.0:1-4 4.3:1-5
SaslAuthenticate                      4.0:0-2
CreatePartitions                      4.0:0-3
CreateDelegationToken                 4.0:1-3
RenewDelegationToken                  4.0:1-2
ExpireDelegationToken                 4.0:1-2
DescribeDelegationToken               4.0:1-3
DeleteGroups                          4.0:0-2 4.4:0-3
ElectLeaders                          4.0:0-2
IncrementalAlterConfigs               4.0:0-1
AlterPartitionReassignments           4.0:0-0 4.1:0-1
ListPartitionReassignments            4.0:0-0
OffsetDelete                          4.0:0-0
DescribeClientQuotas                  4.0:0-1
AlterClientQuotas                     4.0:0-1
DescribeUserScramCredentials          4.0:0-0
AlterUserScramCredentials             4.0:0-0
DescribeQuorum                        4.0:0-2
UpdateFeatures                        4.0:0-2
DescribeCluster                       4.0:0-2
DescribeProducers                     4.0:0-0
UnregisterBroker                      4.0:0-0
DescribeTransactions                  4.0:0-0
ListTransactions                      4.0:0-1 4.1:0-2
ConsumerGroupHeartbeat                4.0:0-1
ConsumerGroupDescribe                 4.0:0-1
ListConfigResources                   4.0:0-0 4.1:0-1
DescribeTopicPartitions               4.0:0-0
ShareGroupHeartbeat                   4.1:1-1
ShareGroupDescribe                    4.1:1-1
ShareFetch                            4.1:1-1 4.2:1-2
ShareAcknowledge                      4.1:1-1 4.2:1-2
AddRaftVoter                          4.0:0-0 4.2:0-1
RemoveRaftVoter                       4.0:0-0
InitializeShareGroupState             4.1:0-0
ReadShareGroupState                   4.1:0-0
WriteShareGroupState                  4.1:0-0 4.2:0-1
DeleteShareGroupState                 4.1:0-0
ReadShareGroupStateSummary            4.1:0-0 4.2:0-1
StreamsGroupHeartbeat                 4.2:0-0 4.4:0-1
StreamsGroupDescribe                  4.2:0-0 4.4:0-1
DescribeShareGroupOffsets             4.1:0-0 4.2:0-1
AlterShareGroupOffsets                4.1:0-0
DeleteShareGroupOffsets               4.1:0-0
StreamsGroupTopologyDescriptionUpdate 4.4:0-0
UnregisterController                  4.4:0-0
"""

OLDEST_PRODUCE = 3
"""The oldest Produce that brokers of Kafka 4 take, though they list older ones."""

METADATA_VERSION = "metadata.version"
TRANSACTION_VERSION = "transaction.version"
METADATA_VERSIONS = {"4.0": 25, "4.1": 27, "4.2": 29, "4.3": 30, "4.4": 33}
"""Release → the newest level of its metadata.version."""

OLDEST_METADATA_VERSION, METADATA_VERSION_OF_3_9 = 7, 21


def versions_in(release: str) -> dict[int, tuple[int, int]]:
    """API key → (oldest, newest) version that a broker of this release lists."""
    keys, order, listed = {api.name: int(api.key) for api in APIS.values()}, RELEASES.index(release), {}
    for line in _VERSIONS.strip().splitlines():
        name, *changes = line.split()
        for since, versions in (each.split(":") for each in changes):
            if RELEASES.index(since) <= order:
                oldest, _, newest = versions.partition("-")
                listed[keys[name]] = int(oldest), int(newest)
    return listed


def between_brokers() -> dict[int, tuple[int, int]]:
    """API key → versions of what brokers of Klamm send each other and those of Kafka 4 do not: it is served and not listed."""
    ours = {SentBy.BROKERS, SentBy.CONTROLLER}
    return {int(api.key): (api.min_version, api.max_version) for api in APIS.values() if api.sent_by in ours and api.key != ApiKey.ENVELOPE}


def supported_features(release: str) -> Mapping[str, tuple[int, int]]:
    """Name → (lowest, highest) level of each feature that a broker supports which stands for this release."""
    return {METADATA_VERSION: (OLDEST_METADATA_VERSION, METADATA_VERSIONS[release]), TRANSACTION_VERSION: (0, 2)}


def first_features(release: str) -> Mapping[str, int]:
    """Name → finalized level of each feature of a new cluster of this release."""
    return {name: highest for name, (_, highest) in supported_features(release).items()}
