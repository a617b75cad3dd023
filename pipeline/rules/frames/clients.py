"""Rules `K` about the requests of clients that need more than one frame: versions, metadata, leader epochs, features."""

from __future__ import annotations

from klamm.pipeline.lake.windows import keys
from klamm.pipeline.rules.frames.peers import SAME_LOG, of_one_log, of_one_topic
from klamm.pipeline.rules.record import Rows, Rule, View, messages_of
from klamm.pipeline.rules.traffic import CONNECTION, RANGE, TOLD
from klamm.protocol.apis import ONLY_OF_BROKERS, ApiKey

STORM = 100
"""Metadata requests of one client to one broker in one second."""

TRANSACTIONS_2 = f"api_key IN ({ApiKey.END_TXN}, {ApiKey.TXN_OFFSET_COMMIT}) AND api_version >= 5"
"""Requests of the second version of transactions (KIP-890)."""

_OF_CLIENTS = f"dir = 0 AND flags & 8 = 0 AND api_key NOT IN ({keys(sorted(ONLY_OF_BROKERS))})"

_DECODES = Rows(
    "traffic", f"{_OF_CLIENTS} AND flags & 2 = 0 AND NOT reason <=> 'unknown_version'",
    """if(reason IN ('truncated', 'malformed', 'bad_length'),
        concat('<api ', api_key, '> version ', api_version, ' of client ', coalesce(client_id, ''), ': ', coalesce(err, reason)), NULL)""",
    "array(seq)",
)

_SURPLUS = Rows(
    "traffic", f"{_OF_CLIENTS} AND bytes_left IS NOT NULL AND reason IS NULL",
    """if(bytes_left > 0, concat('<api ', api_key, '> version ', api_version, ' of client ', coalesce(client_id, ''), ': ', bytes_left,
        ' bytes over'), NULL)""",
    "array(seq)",
)

NEGOTIATED = View(
    "negotiated",
    ("headers",),
    f"""
SELECT {", ".join(CONNECTION)}, min(seq) AS told_seq FROM headers
WHERE api_key = {ApiKey.API_VERSIONS} AND dir = 1 AND error_code = 0 GROUP BY {", ".join(CONNECTION)}""",
)
"""The connections on which a broker said which versions it has, and since when."""

_ADVERTISED = f"""
SELECT run_id, node_id, conn_id, seq,
    CASE WHEN low IS NULL THEN concat('client ', coalesce(client_id, ''), ' sends <api ', api_key, '>, which is not advertised')
        WHEN api_version NOT BETWEEN low AND high
            THEN concat('client ', coalesce(client_id, ''), ' sends version ', api_version, ' of <api ', api_key, '>, advertised are ', low,
                ' to ', high)
    END AS detail,
    array(told_seq, seq) AS evidence
FROM (
    SELECT * FROM traffic JOIN negotiated USING ({", ".join(CONNECTION)})
    WHERE {_OF_CLIENTS} AND api_key <> {ApiKey.API_VERSIONS} AND seq > told_seq)
{TOLD.sql} {RANGE.sql}
WHERE told_run IS NOT NULL"""

_METADATA_STORM = f"""
SELECT t.run_id, t.node_id, CAST(NULL AS BIGINT) AS conn_id, max(t.seq) AS seq,
    if(count(*) > {STORM}, concat('client ', coalesce(t.client_id, ''), ' asks for metadata ', count(*), ' times in one second'), NULL)
        AS detail,
    array(min(t.seq), max(t.seq)) AS evidence
FROM rare_traffic t
JOIN clients c ON c.run_id = t.run_id AND c.client_id <=> t.client_id AND c.host = t.host
WHERE t.dir = 0 AND t.api_key = {ApiKey.METADATA}
GROUP BY t.run_id, t.node_id, t.client_id, c.host, t.ts_ns DIV 1000000000"""

COMMITTED_EPOCHS = View(
    "committed_epochs",
    ("rare_fields",),
    f"""
SELECT run_id, node_id, conn_id, seq, ts_ns, client_id, topic, p.partitionIndex AS partition, p.committedOffset AS committed_offset,
    p.committedLeaderEpoch AS leader_epoch
FROM (
    SELECT run_id, node_id, conn_id, seq, ts_ns, client_id, t.name AS topic, t.partitions AS rows
    FROM rare_fields LATERAL VIEW explode(committed) AS t
    WHERE dir = 0 AND api_key IN ({ApiKey.OFFSET_COMMIT}, {ApiKey.TXN_OFFSET_COMMIT}))
LATERAL VIEW explode(rows) AS p WHERE p.committedLeaderEpoch >= 0""",
    needs=(messages_of(ApiKey.OFFSET_COMMIT, ApiKey.TXN_OFFSET_COMMIT),),
)
"""The partitions whose offsets were committed with a leader epoch."""

_COMMITTED = f"""
WITH told AS (
    SELECT run_id, topic, partition, max(leader_epoch) AS highest, max_by(struct(node_id, seq), leader_epoch) AS last,
        collect_set(node_id) AS brokers
    FROM partition_state WHERE api_key = {ApiKey.LEADER_AND_ISR} AND dir = 0 AND topic IS NOT NULL AND leader_epoch IS NOT NULL
    GROUP BY run_id, topic, partition),
-- A leader whose journal is not there, or not whole, may have been told of a higher one.
unseen AS (
    SELECT DISTINCT s.run_id, s.topic, s.partition FROM partition_state s
    JOIN told k ON k.run_id = s.run_id AND k.topic = s.topic AND k.partition = s.partition
    LEFT JOIN gappy g ON g.run_id = s.run_id AND g.node_id = s.leader
    WHERE s.leader >= 0 AND (g.node_id IS NOT NULL OR NOT array_contains(k.brokers, s.leader))),
controlled AS (SELECT * FROM told LEFT ANTI JOIN unseen USING (run_id, topic, partition)),
-- Leader epochs never fall from one record to the next. What Metadata says may be old.
furthest AS (
    SELECT run_id, topic, partition, leader_epoch, max(struct(base_offset, node_id, answer_seq AS seq)) AS last
    FROM {of_one_log("fetched_batches")} WHERE leader_epoch < 2147483648 GROUP BY run_id, topic, partition, leader_epoch),
read AS (
    SELECT c.run_id, c.node_id, c.seq, c.topic, c.partition,
        min(struct(b.leader_epoch, b.last.node_id AS node_id, b.last.seq AS seq)) AS behind
    FROM committed_epochs c LEFT ANTI JOIN controlled k ON k.run_id = c.run_id AND k.topic = c.topic AND k.partition = c.partition
    JOIN furthest b ON b.run_id = c.run_id AND b.topic = c.topic AND b.partition = c.partition AND b.last.base_offset >= c.committed_offset
    GROUP BY c.run_id, c.node_id, c.seq, c.topic, c.partition),
known AS (
    SELECT c.*, coalesce(k.highest, r.behind.leader_epoch) AS highest, if(k.run_id IS NULL, r.behind.node_id, k.last.node_id) AS last_node,
        if(k.run_id IS NULL, r.behind.seq, k.last.seq) AS last_seq
    FROM committed_epochs c LEFT JOIN controlled k ON k.run_id = c.run_id AND k.topic = c.topic AND k.partition = c.partition
    LEFT JOIN read r ON r.run_id = c.run_id AND r.node_id = c.node_id AND r.seq = c.seq AND r.topic = c.topic
        AND r.partition = c.partition)
SELECT run_id, node_id, conn_id, seq,
    if(leader_epoch > highest, concat('client ', coalesce(client_id, ''), ' commits offset ', committed_offset, ' of ', topic, '-',
        partition, ' with leader epoch ', leader_epoch, ', and the highest one is ', highest), NULL) AS detail,
    array(struct(node_id, seq), struct(last_node AS node_id, last_seq AS seq)) AS evidence
FROM known LEFT ANTI JOIN gappy USING (run_id, node_id) WHERE highest IS NOT NULL
UNION ALL
SELECT run_id, node_id, conn_id, seq,
    if(leader_epoch < before.leader_epoch, concat('client ', client_id, ' commits offset ', committed_offset, ' of ', topic, '-', partition,
        ' with leader epoch ', leader_epoch, ', and has read a batch before it of leader epoch ', before.leader_epoch), NULL),
    array(struct(node_id, before.seq), struct(node_id, seq))
FROM (
    SELECT c.run_id, c.node_id, c.conn_id, c.seq, c.client_id, c.topic, c.partition, c.committed_offset, c.leader_epoch,
        max(struct(b.leader_epoch, b.first.seq AS seq)) AS before
    FROM (SELECT * FROM {of_one_topic("committed_epochs")}) c JOIN (
        -- What a client read first of each leader epoch: of all that it read there may be millions.
        SELECT b.run_id, b.node_id, b.topic, b.partition, f.client_id, b.leader_epoch,
            min(struct(b.answer_seq AS seq, b.last_offset)) AS first
        FROM fetched_batches b
        JOIN (SELECT run_id, node_id, seq, client_id FROM fields WHERE api_key = {ApiKey.FETCH} AND dir = 1) f ON f.run_id = b.run_id
            AND f.node_id = b.node_id AND f.seq = b.answer_seq
        WHERE b.leader_epoch < 2147483648
        GROUP BY b.run_id, b.node_id, b.topic, b.partition, f.client_id, b.leader_epoch) b
        ON b.run_id = c.run_id AND b.node_id = c.node_id AND b.topic = c.topic AND b.partition = c.partition
        AND b.client_id = c.client_id AND b.first.last_offset < c.committed_offset AND b.first.seq < c.seq
    GROUP BY ALL)"""

_FEATURES = f"""
WITH told AS (
    SELECT run_id, node_id, process, max(seq) AS told_seq,
        max(coalesce(try_element_at(filter(features, f -> f.name = 'transaction.version'), 1).level, 0)) AS level
    FROM fields WHERE api_key = {ApiKey.API_VERSIONS} AND dir = 1 AND error_code = 0 AND api_version >= 3
    GROUP BY run_id, node_id, process)
SELECT t.run_id, t.node_id, t.conn_id, t.seq,
    if(k.level < 2, concat('client ', coalesce(t.client_id, ''), ' sends version ', t.api_version, ' of <api ', t.api_key,
        '>, and transaction.version is ', k.level), NULL) AS detail,
    array(k.told_seq, t.seq) AS evidence
FROM rare_traffic t JOIN told k ON k.run_id = t.run_id AND k.node_id = t.node_id AND k.process = t.process
WHERE t.dir = 0 AND {TRANSACTIONS_2}"""

VIEWS = (NEGOTIATED, COMMITTED_EPOCHS)

RULES: tuple[Rule, ...] = (
    Rule(
        "K-01", "warn", "A request of a client decodes: nothing is null that must not be, and nothing is cut short.", "wire 3",
        rows=_DECODES,
    ),
    Rule(
        "K-02", "warn", "After ApiVersions a client sends only APIs and versions that the broker advertised.", "KIP-35",
        ("traffic", "negotiated", "ranges"), _ADVERTISED, about="negotiated", needs=(messages_of(ApiKey.API_VERSIONS),),
    ),
    Rule("K-03", "warn", "A request of a client has no bytes behind its body. Kafka ignores them.", "wire 3", rows=_SURPLUS),
    Rule(
        "K-08", "warn", f"A client asks a broker for metadata at most {STORM} times in a second.", "advice", ("rare_traffic", "clients"),
        _METADATA_STORM,
    ),
    Rule(
        "K-09", "warn", "The leader epoch of a committed offset is not above all that controllers told of the partition, nor above that "
        "of a batch from that offset on, nor below that of a batch before it that the client has read.", "KIP-320",
        ("committed_epochs", "partition_state", "gappy", "fetched_batches", "fields", *SAME_LOG), _COMMITTED, about="committed_epochs",
        is_across=True, needs=(messages_of(ApiKey.OFFSET_COMMIT, ApiKey.TXN_OFFSET_COMMIT),),
    ),
    Rule(
        "K-12", "warn", "A client uses version 5 and later of EndTxn and TxnOffsetCommit only if transaction.version is 2 or more.",
        "KIP-890", ("rare_traffic", "fields"), _FEATURES,
        needs=(messages_of(ApiKey.API_VERSIONS),),  # requests of versions that the decoder lacks are in quarantine
    ),
)
