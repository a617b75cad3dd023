"""The columns of the table `fields`: what rules read of bodies, typed. Lists of structures have Kafka's names inside."""

from __future__ import annotations

from klamm.journal.columns import Column

_CODES = "list<struct<partitionIndex int32, errorCode int32>>"
_TOPICS = "list<struct<name string, partitions list<int32>>>"
_GIVEN = "struct<size int32, crc int64, partitions list<struct<topic string, partitions list<int32>>>>"
_OFFSETS = "list<struct<name string, partitions list<struct<partitionIndex int32, committedOffset int64, errorCode int32>>>>"
_ADDED = "list<struct<resultsByPartition list<struct<partitionErrorCode int32>>>>"


def _column(name: str, kind: str, meaning: str) -> Column:
    return Column(name, kind, True, meaning)


FIELDS = (
    Column("has_body", "bool", False, "false where only the header was kept, or the body is too long"),
    _column("names", "list<string>", "the topics, or partitions as `topic-partition`, that a request or response names (rule W-11)"),
    _column("ids", "list<string>", "of a Metadata response: the ids of its topics"),
    _column("is_odd", "bool", "of a Metadata request: a topic has neither name nor id"),
    _column("controller_id", "int32", "LeaderAndIsr, StopReplica, UpdateMetadata"),
    _column("controller_epoch", "int32", "as above"),
    _column("broker_epoch", "int64", "as above"),
    _column("live", "list<int32>", "LiveBrokers of UpdateMetadata, LiveLeaders of LeaderAndIsr, sorted"),
    _column("digest", "string", "MD5 of the body of a request of a controller"),
    _column("refused", "list<struct<topicId string, topicName string, partitionIndex int32, errorCode int16>>",
            "of a LeaderAndIsr response: the partitions with an error"),
    _column("broker_id", "int32", "AlterPartition"),
    _column("altered", "list<struct<topicName string, topicId string, partitions list<struct<partitionIndex int32, leaderEpoch int32, "
            "newIsr list<int32>, newIsrWithEpochs list<struct<brokerId int32>>, leaderRecoveryState int8, partitionEpoch int32>>>>",
            "AlterPartition request"),
    _column("alterations", "list<struct<topicName string, topicId string, partitions list<struct<partitionIndex int32, errorCode int16, "
            "leaderId int32, leaderEpoch int32, isr list<int32>, leaderRecoveryState int8, partitionEpoch int32>>>>",
            "AlterPartition response"),
    _column("advertised", "list<struct<key int32, low int32, high int32>>", "ApiVersions response"),
    _column("features", "list<struct<name string, level int32>>", "ApiVersions response: the finalized features"),
    _column("election_type", "int32", "ElectLeaders request"),
    _column("asks_all", "bool", "ElectLeaders request without a list of partitions"),
    _column("elected", "list<struct<topic string, partitionResult list<struct<partitionId int32, errorCode int32, errorMessage string>>>>",
            "ElectLeaders response"),
    _column("codes", "list<int32>", "error codes of the elements of a response: CreateTopics, DeleteTopics, CreatePartitions, "
            "ElectLeaders, OffsetCommit"),
    _column("is_validated", "bool", "CreateTopics and CreatePartitions request: nothing is to be made"),
    _column("sizes", "list<int32>", "how many partitions each topic of `names` has then: CreatePartitions request, CreateTopics response "
            "since version 5"),
    _column("key_type", "int32", "FindCoordinator request: 0 for a group, 1 for a transactional id"),
    _column("coordinators", "list<struct<nodeId int32, host string, port int32, errorCode int32>>", "FindCoordinator response"),
    _column("group_id", "string", "requests of members of a group, and DeleteOffsets"),
    _column("group_ids", "list<string>", "DeleteGroups request; of a response the groups that were deleted"),
    _column("leaving", "list<struct<memberId string, groupInstanceId string>>",
            "LeaveGroup request; of a response since version 3 the members that have left"),
    _column("session_timeout_ms", "int32", "JoinGroup request"),
    _column("member_id", "string", "requests of members, and the JoinGroup response"),
    _column("instance_id", "string", "requests of members"),
    _column("generation", "int32", "as `member_id`; also a member epoch"),
    _column("protocol_type", "string", "JoinGroup"),
    _column("protocol", "string", "JoinGroup response"),
    _column("leader", "string", "JoinGroup response: member id"),
    _column("members", "list<string>", "JoinGroup response: member ids"),
    _column("assignments", f"list<struct<memberId string, assignment {_GIVEN}>>", "SyncGroup request"),
    _column("assignment", _GIVEN, "SyncGroup response"),
    _column("retention_ms", "int64", "OffsetCommit request"),
    _column("committed", "list<struct<name string, partitions list<struct<partitionIndex int32, committedOffset int64, "
            "committedLeaderEpoch int32>>>>",
            "OffsetCommit and TxnOffsetCommit request"),
    _column("commits", f"list<struct<name string, partitions {_CODES}>>", "OffsetCommit and TxnOffsetCommit response"),
    _column("fetched", _OFFSETS, "OffsetFetch response up to version 7"),
    _column("fetched_groups", f"list<struct<groupId string, errorCode int32, topics {_OFFSETS}>>", "OffsetFetch response since version 8"),
    _column("transactional_id", "string", "requests of transactions, and Produce"),
    _column("producer_id", "int64", "requests of transactions, and the InitProducerId response"),
    _column("producer_epoch", "int32", "as `producer_id`"),
    _column("is_commit", "bool", "EndTxn request"),
    _column("txn_topics", _TOPICS, "AddPartitionsToTxn request up to version 3"),
    _column("transactions", "list<struct<transactionalId string, producerId int64, producerEpoch int32, verifyOnly bool, "
            f"topics {_TOPICS}>>", "AddPartitionsToTxn request since version 4"),
    _column("added", _ADDED, "AddPartitionsToTxn response up to version 3"),
    _column("added_of_ids", f"list<struct<transactionalId string, topicResults {_ADDED}>>", "AddPartitionsToTxn response since version 4"),
    _column("markers", "list<struct<producerId int64, producerEpoch int32, transactionResult bool, coordinatorEpoch int32, "
            "topics list<struct<name string, partitionIndexes list<int32>>>>>", "WriteTxnMarkers request"),
    _column("marked", f"list<struct<producerId int64, topics list<struct<name string, partitions {_CODES}>>>>", "WriteTxnMarkers response"),
    _column("produced", "list<struct<name string, partitionData list<struct<index int32, records struct<head string>>>>>",
            "Produce request with a transactional id"),
    _column("sequences", "list<struct<name string, index int32, producerId int64, producerEpoch int32, baseSequence int32, "
            "records int64, crc int64, content int64>>",
            "Produce request: the first sequence number of each batch with a producer id, its number of records, its checksum, and one of "
            "its size and times, which another producer epoch does not change; without numbers where the header of a batch is not whole"),
    _column("acks", "int32", "Produce request"),
    _column("offsets", "list<struct<name string, partitionResponses list<struct<index int32, errorCode int32, baseOffset int64>>>>",
            "Produce response"),
    _column("times", "list<struct<name string, partitionIndex int32, timestamp int64>>", "ListOffsets request since version 1: what it "
            "asks for by time"),
    _column("latest", "list<string>", "ListOffsets request of a consumer with `read_uncommitted`: the partitions as `topic-partition` "
            "whose end it asks for"),
    _column("listed", "list<struct<name string, partitions list<struct<partitionIndex int32, errorCode int32, offset int64, "
            "timestamp int64>>>>", "ListOffsets response"),
    _column("isolation_level", "int32", "Fetch request with `read_committed`"),
    _column("records", "list<struct<topic string, topicId string, partitions list<struct<partitionIndex int32, errorCode int32, "
            "highWatermark int64, lastStableOffset int64, abortedTransactions list<struct<producerId int64, firstOffset int64>>, "
            "records struct<size int64, head string, batches list<struct<offset int64, producerId int64>>, "
            "markers list<struct<offset int64, producerId int64, isCommit bool>>>>>>>", "Fetch response with records"),
    _column("flaws", "list<struct<rule string, detail string>>", "rules that this body alone breaks, and what is wrong"),
)
"""The columns that the table has beside those of the frame."""
