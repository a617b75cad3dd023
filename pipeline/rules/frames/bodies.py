"""Rules about single bodies, `K` of clients' requests and `F`, `M`, `O`, `V`, `G`, `T` of responses. The bodies are judged where they are
decoded (`pipeline/decode/flaw_finders.py`), so these rules cost next to nothing where nothing is wrong.
"""

from __future__ import annotations

from klamm.pipeline.lake.windows import keys
from klamm.pipeline.rules.record import Rule, Severity, messages_of
from klamm.protocol.apis import ApiKey


def of_bodies(
    name: str, severity: Severity, statement: str, source: str, direction: int, *apis: ApiKey, where: str = "true"
) -> Rule:
    """A rule about the bodies of these APIs: of requests (`direction` is 0) or of responses (1). `where` is of frames and of violations.
    Warnings name the client."""
    told = "concat('client ', coalesce(client_id, ''), ': ', detail)" if severity == "warn" else "detail"
    judged = f"""
SELECT run_id, node_id, conn_id, seq, {told} AS detail, array_compact(array(cause_seq, seq)) AS evidence
FROM flaws WHERE rule = '{name}' AND {where}"""
    return Rule(
        name, severity, statement, source, ("body_counts", "flaws"), judged, about="flaws",
        counts=f"dir = {direction} AND api_key IN ({keys(apis)}) AND {where}", needs=(messages_of(*apis),),
    )


OF_CLIENTS = "NOT is_broker"

RULES: tuple[Rule, ...] = (
    of_bodies(
        "K-04", "warn", "A Produce request of version 3 or later has one whole batch of magic 2 for each partition, and names none twice.",
        "KIP-98", 0, ApiKey.PRODUCE, where=OF_CLIENTS,
    ),
    of_bodies(
        "K-05", "warn", "A consumer fetches from an offset that is not negative, names no partition twice and no topic by id zero.",
        "KIP-516", 0, ApiKey.FETCH, where=OF_CLIENTS,
    ),
    of_bodies(
        "K-06", "warn", "The subscriptions and assignments of consumers decode in the version that they say.", "KIP-54, KIP-429, KIP-792",
        0, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, where=OF_CLIENTS,
    ),
    of_bodies(
        "K-07", "warn", "A committed offset is not negative, and its leader epoch is that of a record or -1.", "KIP-320",
        0, ApiKey.OFFSET_COMMIT, ApiKey.TXN_OFFSET_COMMIT, where=OF_CLIENTS,
    ),
    of_bodies(
        "K-13", "warn", "A member of a group of KIP-848 joins with its topics and rebalance timeout, and without partitions.", "KIP-848",
        0, ApiKey.CONSUMER_GROUP_HEARTBEAT, where=OF_CLIENTS,
    ),
    of_bodies(
        "F-01", "error", "A partition that is fetched without an error has a high watermark, a last stable offset and a log start offset.",
        "wire 12", 1, ApiKey.FETCH,
    ),
    of_bodies(
        "F-03", "error", "The offsets of a batch that a consumer gets are not negative.", "wire 12", 1, ApiKey.FETCH, where=OF_CLIENTS,
    ),
    of_bodies(
        "O-01", "error", "A partition that was produced to has a base offset if it has no error, and none if it has an error and was not "
        "written.", "wire 12", 1, ApiKey.PRODUCE,
    ),
    of_bodies(
        "O-02", "error", "ListOffsets has no offset with an error, and unknown offsets, times and leader epochs are -1.", "wire 12",
        1, ApiKey.LIST_OFFSETS,
    ),
    of_bodies(
        "O-04", "error", "OffsetFetch has -1 for an offset that is not there, without a leader epoch, and no offset with an error.",
        "wire 12", 1, ApiKey.OFFSET_FETCH,
    ),
    of_bodies(
        "M-01", "error", "A leader in Metadata is one of the brokers in the same response.", "controller 15", 1, ApiKey.METADATA,
    ),
    of_bodies(
        "M-02", "error", "A partition in Metadata has a leader if it has no error, and none with LEADER_NOT_AVAILABLE; an unknown leader "
        "epoch is -1.", "controller 15, KIP-320", 1, ApiKey.METADATA,
    ),
    of_bodies(
        "M-03", "error", "The partitions of a topic in Metadata are numbered from 0 without a gap.", "controller 15", 1, ApiKey.METADATA,
    ),
    of_bodies(
        "M-05", "error", "A broker in Metadata and DescribeCluster has an id, a host and a port, and is named once.",
        "controller 15", 1, ApiKey.METADATA, ApiKey.DESCRIBE_CLUSTER,
    ),
    of_bodies(
        "M-06", "error", "A topic in Metadata with an error has no partitions; one without has an id if others have.", "KIP-516",
        1, ApiKey.METADATA,
    ),
    of_bodies(
        "M-08", "error", "FindCoordinator names a broker with its address exactly if it has no error.", "controller 15",
        1, ApiKey.FIND_COORDINATOR,
    ),
    of_bodies(
        "V-01", "error", "ApiVersions names each API once, itself too, with a lowest version that is not above the highest.", "KIP-35",
        1, ApiKey.API_VERSIONS,
    ),
    of_bodies(
        "V-02", "error", "What is advertised can be used: a version that needs another API comes with the version of it that all releases "
        "of Apache Kafka have then.", "KIP-35", 1, ApiKey.API_VERSIONS,
    ),
    of_bodies(
        "V-03", "error", "The finalized versions of a feature are among the supported ones.", "KIP-584", 1, ApiKey.API_VERSIONS,
    ),
    of_bodies(
        "G-08", "error", "A member that joins gets a generation from 1 on and its id; the leader, if there is one, is told the members, "
        "each once, and nobody else is.", "wire 12", 1, ApiKey.JOIN_GROUP,
    ),
    of_bodies(
        "G-09", "error", "ConsumerGroupHeartbeat assigns a partition once, and nothing with an error, and asks for heartbeats.", "KIP-848",
        1, ApiKey.CONSUMER_GROUP_HEARTBEAT,
    ),
    of_bodies(
        "T-07", "error", "InitProducerId gives a producer id and an epoch exactly if it has no error.", "wire 13",
        1, ApiKey.INIT_PRODUCER_ID,
    ),
)
