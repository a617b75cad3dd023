"""MBeans of replicas, partitions, fetches and fetchers (`kafka.cluster`, and a part of `kafka.server`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from klamm.broker.partition import HostedPartition, Role
from klamm.server.mbeans.mbean import Kind, MBean, Read, Sample, one
from klamm.server.mbeans.readings import BrokerReading
from klamm.server.metrics.counting import TopicCounts

_MANAGER = "kafka.server:type=ReplicaManager,name="
_PARTITION = "kafka.cluster:type=Partition,name="
_TOPICS = "kafka.server:type=BrokerTopicMetrics,name="
_SESSIONS = "kafka.server:type=FetchSessionCache,name="
_PURGATORY = "kafka.server:type=DelayedOperationPurgatory,name="
_FETCHERS = "kafka.server:type=ReplicaFetcherManager,name="
_OF_PARTITION = ("topic", "partition")
_EMPTY = "An empty partition has not read the config of its topic: until its first record that of the broker counts."


def _is_under_replicated(replica: HostedPartition) -> bool:
    return replica.role is Role.LEADER and len(replica.isr) < len(replica.replicas)


def _led(is_counted: Callable[[BrokerReading, HostedPartition], bool]) -> Read:
    """Counts partitions that this broker leads."""
    return one(lambda reading: sum(is_counted(reading, replica) for replica in reading.led))


def _of_partitions(value: Callable[[BrokerReading, HostedPartition], float]) -> Read:
    return lambda reading: reading.of_partitions(lambda replica: value(reading, replica))


def _is_under_min_isr(reading: BrokerReading, replica: HostedPartition) -> bool:
    return replica.role is Role.LEADER and len(replica.isr) < reading.min_isr(replica)


def _is_at_min_isr(reading: BrokerReading, replica: HostedPartition) -> bool:
    return replica.role is Role.LEADER and len(replica.isr) == reading.min_isr(replica)


def _topic_metric(name: str, meaning: str, value: Callable[[TopicCounts], int], note: str = "") -> tuple[MBean, MBean]:
    """The MBean of all topics, and that of each topic."""

    def of_topics(reading: BrokerReading) -> Iterator[Sample]:
        data = reading.counts.data
        data.forget({replica.topic for replica in reading.partitions})
        for topic, counts in list(data.topics.items()):
            yield (topic,), value(counts)

    return (
        MBean(_TOPICS + name, Kind.METER, meaning, read=one(lambda reading: value(reading.counts.data.all)), note=note),
        MBean(_TOPICS + name, Kind.METER, f"{meaning}, by topic", ("topic",), of_topics, note),
    )


def _lags(reading: BrokerReading) -> Iterator[Sample]:
    broker_id = reading.services.identity.broker_id
    for (leader, number), fetcher in list(reading.parts.followers.fetchers.items()):
        client_id = f"ReplicaFetcherThread-{number}-{leader}"
        for partition in list(fetcher.session):
            if partition.hosted.leader != broker_id:
                yield (client_id, partition.topic.name, str(partition.index)), max(partition.lag, 0)


def _max_lag(reading: BrokerReading) -> float:
    return max((value for _, value in _lags(reading) if isinstance(value, int)), default=0)


def _fetches(reading: BrokerReading) -> Iterator[Sample]:
    for (client_id, host, port), count in list(reading.counts.requests.fetches.items()):
        yield (client_id, host, str(port)), count


_DELAYED = {"Produce": ("Produce",), "Fetch": ("Fetch",), "DeleteRecords": ("DeleteRecords",), "ElectLeader": ("ElectLeaders",),
            "topic": ("CreateTopics", "DeleteTopics", "CreatePartitions")}
"""Purgatory → the APIs whose requests wait in it."""


def _delayed(reading: BrokerReading) -> Iterator[Sample]:
    for purgatory, apis in _DELAYED.items():
        yield (purgatory,), sum(reading.counts.requests.open[api] for api in apis)


def _waiting(reading: BrokerReading) -> Iterator[Sample]:
    yield ("topic",), len(reading.services.purgatory)


REPLICA_MBEANS: tuple[MBean, ...] = (
    MBean(_MANAGER + "PartitionCount", Kind.GAUGE, "partitions that this broker hosts", read=one(lambda reading: len(reading.partitions))),
    MBean(_MANAGER + "LeaderCount", Kind.GAUGE, "partitions that this broker leads", read=one(lambda reading: len(reading.led))),
    MBean(_MANAGER + "OfflineReplicaCount", Kind.GAUGE, "replicas in log directories that are offline",
          read=one(lambda reading: sum(replica.offline for replica in reading.partitions))),
    MBean(_MANAGER + "UnderReplicatedPartitions", Kind.GAUGE, "partitions led here whose ISR lacks a replica",
          read=_led(lambda _, replica: _is_under_replicated(replica))),
    MBean(_MANAGER + "UnderMinIsrPartitionCount", Kind.GAUGE, "partitions led here whose ISR is smaller than `min.insync.replicas`",
          read=_led(_is_under_min_isr), note=_EMPTY),
    MBean(_MANAGER + "AtMinIsrPartitionCount", Kind.GAUGE, "partitions led here whose ISR is as small as `min.insync.replicas` permits",
          read=_led(_is_at_min_isr), note=_EMPTY),
    MBean(_MANAGER + "IsrShrinksPerSec", Kind.METER, "ISRs that this broker made smaller",
          read=one(lambda r: r.replicas.leaders.isr_shrinks)),
    MBean(_MANAGER + "IsrExpandsPerSec", Kind.METER, "ISRs that this broker made larger",
          read=one(lambda r: r.replicas.leaders.isr_expands)),
    MBean(_MANAGER + "FailedIsrUpdatesPerSec", Kind.METER, "changes of ISRs that the controller refused",
          read=one(lambda r: r.replicas.leaders.failed_isr_updates)),
    MBean(_MANAGER + "ProducerIdCount", Kind.GAUGE, "producer ids that the logs remember",
          read=one(lambda reading: sum(len(log.active_producers()) for log in list(reading.services.logs)))),
    MBean(_PARTITION + "UnderReplicated", Kind.GAUGE, "1 on the leader if the ISR lacks a replica", _OF_PARTITION,
          _of_partitions(lambda _, replica: int(_is_under_replicated(replica)))),
    MBean(_PARTITION + "InSyncReplicasCount", Kind.GAUGE, "size of the ISR, 0 on a follower", _OF_PARTITION,
          _of_partitions(lambda _, replica: len(replica.isr) if replica.is_leader else 0)),
    MBean(_PARTITION + "ReplicasCount", Kind.GAUGE, "number of replicas, 0 on a follower", _OF_PARTITION,
          _of_partitions(lambda _, replica: len(replica.replicas) if replica.is_leader else 0)),
    MBean(_PARTITION + "UnderMinIsr", Kind.GAUGE, "1 on the leader if the ISR is smaller than `min.insync.replicas`", _OF_PARTITION,
          _of_partitions(_is_under_min_isr), _EMPTY),
    MBean(_PARTITION + "AtMinIsr", Kind.GAUGE, "1 on the leader if the ISR is as small as `min.insync.replicas` permits", _OF_PARTITION,
          _of_partitions(_is_at_min_isr), _EMPTY),
    MBean(_PARTITION + "LastStableOffsetLag", Kind.GAUGE, "records between the last stable offset and the high watermark", _OF_PARTITION,
          _of_partitions(lambda _, replica: max(replica.high_watermark - replica.last_stable_offset, 0))),
    *_topic_metric("MessagesInPerSec", "records that producers wrote", lambda counts: counts.messages_in),
    *_topic_metric("BytesInPerSec", "bytes that producers wrote", lambda counts: counts.bytes_in),
    *_topic_metric("BytesOutPerSec", "bytes that consumers read", lambda counts: counts.bytes_out),
    *_topic_metric("BytesRejectedPerSec", "bytes that were refused as too large", lambda counts: counts.bytes_rejected),
    *_topic_metric("TotalProduceRequestsPerSec", "partitions that Produce requests named", lambda counts: counts.produces,
                   "Those are left out for which this broker is not the leader."),
    *_topic_metric("TotalFetchRequestsPerSec", "partitions that Fetch requests read", lambda counts: counts.fetches,
                   "Partitions of a session in which nothing has changed are not read here; Kafka reads all of them each time."),
    *_topic_metric("FailedProduceRequestsPerSec", "partitions of Produce requests that failed unexpectedly",
                   lambda counts: counts.failed_produces),
    *_topic_metric("FailedFetchRequestsPerSec", "partitions of Fetch requests that failed unexpectedly",
                   lambda counts: counts.failed_fetches),
    *_topic_metric("NoKeyCompactedTopicRecordsPerSec", "records without a key for compacted topics", lambda counts: counts.keyless_records,
                   "Of a batch the first record without a key counts."),
    MBean(_TOPICS + "ReplicationBytesInPerSec", Kind.METER, "bytes that came from leaders",
          read=one(lambda r: r.counts.data.replication_bytes_in)),
    MBean(_TOPICS + "ReplicationBytesOutPerSec", Kind.METER, "bytes that followers read",
          read=one(lambda r: r.counts.data.replication_bytes_out)),
    MBean(_SESSIONS + "NumIncrementalFetchSessions", Kind.GAUGE, "fetch sessions", read=one(lambda r: len(r.services.fetches.sessions))),
    MBean(_SESSIONS + "NumIncrementalFetchPartitionsCached", Kind.GAUGE, "partitions in fetch sessions",
          read=one(lambda reading: reading.services.fetches.sessions.partition_count)),
    MBean(_SESSIONS + "IncrementalFetchSessionEvictionsPerSec", Kind.METER, "fetch sessions that were removed for the sake of others",
          read=one(lambda reading: reading.services.fetches.sessions.evictions)),
    MBean(_PURGATORY + "NumDelayedOperations", Kind.GAUGE, "requests that wait", ("delayedOperation",), _delayed,
          "Counts the requests of these APIs that have no response yet; there is nothing for groups and transactions."),
    MBean(_PURGATORY + "PurgatorySize", Kind.GAUGE, "requests by what they wait for", ("delayedOperation",), _waiting,
          "Only the purgatory of topics is counted: a delayed Produce or Fetch hangs on its partitions."),
    MBean("kafka.server:type=FetcherLagMetrics,name=ConsumerLag", Kind.GAUGE, "records that a follower lacks",
          ("clientId", "topic", "partition"), _lags),
    MBean("kafka.server:type=FetcherStats,name=RequestsPerSec", Kind.METER, "responses to fetches of this broker, by leader",
          ("clientId", "brokerHost", "brokerPort"), _fetches),
    MBean(_FETCHERS + "MaxLag", Kind.GAUGE, "the largest lag of a partition that this broker follows", ("clientId",),
          lambda reading: [(("Replica",), _max_lag(reading))]),
)
