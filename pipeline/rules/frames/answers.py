"""Rules about responses that need more than one of them: leader epochs in Metadata, offsets by time, what was acknowledged or read, both
ends."""

from __future__ import annotations

from klamm.pipeline.lake.windows import keys
from klamm.pipeline.rules.frames.peers import SAME_LOG, of_one_log
from klamm.pipeline.rules.record import Rule, View, messages_of
from klamm.protocol.apis import OF_CONTROLLERS, ApiKey

_EPOCHS = f"""
SELECT run_id, node_id, conn_id, seq,
    if(leader_epoch < before.leader_epoch, concat(topic, '-', partition, ': leader epoch ', leader_epoch, ' in Metadata after ',
        before.leader_epoch), NULL) AS detail,
    array(before.seq, seq) AS evidence
FROM (
    SELECT run_id, node_id, conn_id, seq, topic, partition, leader_epoch,
        lag(struct(leader_epoch, seq)) OVER (PARTITION BY run_id, node_id, process, conn_id, topic_id, partition ORDER BY seq) AS before
    FROM partition_state
    WHERE api_key = {ApiKey.METADATA} AND dir = 1 AND topic_id IS NOT NULL AND leader_epoch >= 0)
WHERE before IS NOT NULL"""

_ONE_CLUSTER = """
WITH told AS (
    SELECT run_id, node_id, cluster_id, min(seq) AS seq, min(ts_ns) AS first_ts_ns, max(ts_ns) AS last_ts_ns,
        collect_set(concat(host, ':', port)) AS addresses
    FROM broker_state WHERE source = 'Metadata' AND dir = 1 AND cluster_id IS NOT NULL GROUP BY run_id, node_id, cluster_id),
-- A capture may have two clusters. Those with a broker in common, at the same time, are one.
others AS (
    SELECT t.run_id, t.node_id, t.cluster_id, min(struct(o.node_id, o.seq, o.cluster_id)) AS other
    FROM told t JOIN told o ON o.run_id = t.run_id AND o.cluster_id <> t.cluster_id AND arrays_overlap(o.addresses, t.addresses)
        AND o.first_ts_ns <= t.last_ts_ns AND t.first_ts_ns <= o.last_ts_ns
    WHERE struct(o.first_ts_ns, o.node_id, o.seq) < struct(t.first_ts_ns, t.node_id, t.seq)
    GROUP BY t.run_id, t.node_id, t.cluster_id)
SELECT t.run_id, t.node_id, CAST(NULL AS BIGINT) AS conn_id, t.seq,
    if(o.other IS NULL, NULL, concat('cluster id ', t.cluster_id, ', and broker ', o.other.node_id, ' says ', o.other.cluster_id))
        AS detail,
    array(struct(o.other.node_id AS node_id, o.other.seq AS seq), struct(t.node_id AS node_id, t.seq AS seq)) AS evidence
FROM told t LEFT JOIN others o ON o.run_id = t.run_id AND o.node_id = t.node_id AND o.cluster_id = t.cluster_id"""

_BY_TIME = f"""
WITH asked AS (
    SELECT run_id, node_id, seq, t.name AS topic, t.partitionIndex AS partition, t.timestamp
    FROM rare_fields LATERAL VIEW explode(times) AS t WHERE api_key = {ApiKey.LIST_OFFSETS} AND dir = 0),
told AS (
    SELECT run_id, node_id, conn_id, seq, cause_seq, topic, p.partitionIndex AS partition, p.errorCode AS error, p.offset,
        p.timestamp AS found
    FROM (
        SELECT run_id, node_id, conn_id, seq, cause_seq, t.name AS topic, t.partitions AS rows
        FROM rare_fields LATERAL VIEW explode(listed) AS t WHERE api_key = {ApiKey.LIST_OFFSETS} AND dir = 1)
    LATERAL VIEW explode(rows) AS p)
SELECT a.run_id, a.node_id, t.conn_id, t.seq,
    CASE WHEN t.offset >= 0 AND t.found < a.timestamp
            THEN concat(t.topic, '-', t.partition, ': offset ', t.offset, ' has time ', t.found, ', which is before ', a.timestamp)
        WHEN t.offset < 0 AND t.found >= 0 THEN concat(t.topic, '-', t.partition, ': time ', t.found, ' without an offset')
    END AS detail,
    array(a.seq, t.seq) AS evidence
FROM asked a JOIN told t ON t.run_id = a.run_id AND t.node_id = a.node_id AND t.cause_seq = a.seq AND t.topic = a.topic
    AND t.partition = a.partition
WHERE t.error = 0"""

_AS_READ = f"""
WITH asked AS (
    SELECT run_id, node_id, seq, t.name AS topic, t.partitionIndex AS partition, t.timestamp
    FROM rare_fields LATERAL VIEW explode(times) AS t WHERE api_key = {ApiKey.LIST_OFFSETS} AND dir = 0),
told AS (
    SELECT run_id, node_id, process, conn_id, seq, cause_seq, topic, p.partitionIndex AS partition, p.offset, p.timestamp AS found
    FROM (
        SELECT run_id, node_id, process, conn_id, seq, cause_seq, t.name AS topic, t.partitions AS rows
        FROM rare_fields LATERAL VIEW explode(listed) AS t WHERE api_key = {ApiKey.LIST_OFFSETS} AND dir = 1)
    LATERAL VIEW explode(rows) AS p WHERE p.errorCode = 0),
listed AS (
    SELECT t.*, a.timestamp FROM asked a JOIN told t ON t.run_id = a.run_id AND t.node_id = a.node_id AND t.cause_seq = a.seq
        AND t.topic = a.topic AND t.partition = a.partition),
-- Batches as they were. A consumer is told only of what is committed, and of what is stable; followers and others may read more.
batches AS (
    SELECT run_id, node_id, process, topic, partition, base_offset, last_offset, max_time, is_one_time, min(answer_seq) AS first_seq,
        min(if(last_offset < last_stable_offset, answer_seq, NULL)) AS stable_seq, max(seq) AS last_seq, max(answer_seq) AS last_answer_seq
    FROM fetched_batches
    GROUP BY run_id, node_id, process, topic, partition, base_offset, last_offset, max_time, is_one_time),
compared AS (
    SELECT l.*, b.last_offset, b.max_time, b.first_seq, if(b.last_seq > l.seq, b.last_answer_seq, NULL) AS again_seq,
        CASE WHEN l.offset BETWEEN b.base_offset AND b.last_offset AND (l.found > b.max_time OR b.is_one_time AND l.found <> b.max_time)
                THEN 'time'
            WHEN b.max_time >= l.timestamp AND b.stable_seq < l.cause_seq AND b.last_seq > l.seq
                AND (l.offset < 0 OR l.offset > b.last_offset) THEN 'later'
        END AS wrong
    FROM listed l JOIN batches b ON b.run_id = l.run_id AND b.node_id = l.node_id AND b.process = l.process AND b.topic = l.topic
        AND b.partition = l.partition AND b.first_seq < l.cause_seq)
SELECT run_id, node_id, conn_id, seq,
    CASE wrong WHEN 'time' THEN concat(topic, '-', partition, ': offset ', offset, ' has time ', found, ', and its batch ends at time ',
            max_time)
        WHEN 'later' THEN concat(topic, '-', partition, ': offset ', offset, ' is the first since time ', timestamp,
            ', and a batch that ends at offset ', last_offset, ' has time ', max_time)
    END AS detail,
    array_compact(array(first_seq, cause_seq, seq, again_seq)) AS evidence
FROM {of_one_log("compared")}"""

ACKNOWLEDGED = View(
    "acknowledged",
    ("fields", "log_changes", "gappy"),
    f"""
WITH asked AS (
    SELECT run_id, node_id, process, seq FROM fields LEFT ANTI JOIN gappy USING (run_id, node_id)
    LEFT ANTI JOIN (SELECT DISTINCT run_id FROM log_changes) USING (run_id)
    WHERE api_key = {ApiKey.PRODUCE} AND dir = 0 AND acks = -1)
SELECT run_id, node_id, process, seq, topic, r.index AS partition, r.baseOffset AS base_offset FROM (
    SELECT a.run_id, a.node_id, q.process, a.seq, t.name AS topic, t.partitionResponses AS rows
    FROM (SELECT * FROM fields LATERAL VIEW explode(offsets) AS t WHERE api_key = {ApiKey.PRODUCE} AND dir = 1) a
    JOIN asked q ON q.run_id = a.run_id AND q.node_id = a.node_id AND q.seq = a.cause_seq)
LATERAL VIEW explode(rows) AS r WHERE r.errorCode = 0 AND r.baseOffset >= 0""",
    needs=(messages_of(ApiKey.PRODUCE),),
)
"""Batches that were acknowledged by all in-sync replicas, of runs without the frames of a controller: rule L-03 judges the others."""

_READABLE = f"""
WITH asked AS (
    SELECT q.run_id, q.node_id, q.process, q.conn_id, q.seq, a.answer_seq, a.topic, a.p.partitionIndex AS partition, a.p.offset
    FROM (SELECT * FROM rare_fields WHERE api_key = {ApiKey.LIST_OFFSETS} AND dir = 0 AND latest IS NOT NULL) q
    JOIN (
        SELECT * FROM (
            SELECT run_id, node_id, cause_seq, seq AS answer_seq, t.name AS topic, t.partitions AS rows
            FROM rare_fields LATERAL VIEW explode(listed) AS t WHERE api_key = {ApiKey.LIST_OFFSETS} AND dir = 1)
        LATERAL VIEW explode(rows) AS p) a ON a.run_id = q.run_id AND a.node_id = q.node_id AND a.cause_seq = q.seq
    WHERE a.p.errorCode = 0 AND a.p.offset >= 0 AND array_contains(q.latest, concat(a.topic, '-', a.p.partitionIndex))),
before AS (
    SELECT *, max(if(base_offset IS NULL, NULL, struct(base_offset, seq))) OVER (
        PARTITION BY run_id, node_id, process, topic, partition ORDER BY seq ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS last
    FROM (
        SELECT run_id, node_id, process, conn_id, seq, answer_seq, topic, partition, offset, CAST(NULL AS BIGINT) AS base_offset FROM asked
        UNION ALL SELECT run_id, node_id, process, NULL, seq, NULL, topic, partition, NULL, base_offset FROM acknowledged))
SELECT run_id, node_id, conn_id, answer_seq AS seq,
    if(offset <= last.base_offset, concat(topic, '-', partition, ': ListOffsets says that the partition ends at ', offset, ', and offset ',
        last.base_offset, ' was acknowledged by all'), NULL) AS detail,
    array(last.seq, seq, answer_seq) AS evidence
FROM {of_one_log("before")}
WHERE answer_seq IS NOT NULL AND last IS NOT NULL"""

_BOTH_ENDS = f"""
WITH journaled AS (
    SELECT run_id, node_id, process, min(first_ts_ns) AS first_ts_ns, max(last_ts_ns) AS last_ts_ns
    FROM frame_counts LEFT ANTI JOIN gappy USING (run_id, node_id) GROUP BY run_id, node_id, process),
sent AS (
    SELECT q.run_id, q.node_id, q.conn_id, q.seq, q.peer_id, q.client_id, q.api_key, q.correlation_id, q.length_prefix, a.seq AS answer_seq
    FROM (SELECT * FROM headers WHERE dir = 2 AND peer_id IS NOT NULL AND flags & 8 = 0 AND api_key NOT IN ({keys(OF_CONTROLLERS)})) q
    JOIN headers a ON a.run_id = q.run_id AND a.node_id = q.node_id AND a.cause_seq = q.seq AND a.dir = 3
    -- A broker that began later, or was killed with rows that it had not written, has no journal of this time.
    JOIN journaled j ON j.run_id = q.run_id AND j.node_id = q.peer_id AND q.ts_ns >= j.first_ts_ns AND a.ts_ns <= j.last_ts_ns
    -- What a broker does not journal at all is not missing.
    JOIN (SELECT DISTINCT run_id, node_id, client_id, api_key FROM headers WHERE dir = 0) k
        ON k.run_id = q.run_id AND k.node_id = q.peer_id AND k.client_id = q.client_id AND k.api_key = q.api_key),
got AS (
    SELECT DISTINCT run_id, node_id, client_id, api_key, correlation_id, length_prefix, true AS is_there FROM headers WHERE dir = 0)
SELECT s.run_id, s.node_id, s.conn_id, s.seq,
    if(g.is_there IS NULL, concat('<api ', s.api_key, '> of ', s.length_prefix, ' bytes was sent to broker ', s.peer_id,
        ' and answered, and is not in its journal'), NULL) AS detail,
    array(s.seq, s.answer_seq) AS evidence
FROM sent s LEFT JOIN got g ON g.run_id = s.run_id AND g.node_id = s.peer_id AND g.client_id <=> s.client_id AND g.api_key = s.api_key
    AND g.correlation_id = s.correlation_id AND g.length_prefix = s.length_prefix"""

VIEWS = (ACKNOWLEDGED,)

RULES: tuple[Rule, ...] = (
    Rule(
        "M-04", "error", "The leader epoch of a partition never falls from one Metadata response to the next on a connection.",
        "KIP-320", ("partition_state",), _EPOCHS, about="partition_state", needs=(messages_of(ApiKey.METADATA),),
    ),
    Rule(
        "M-07", "error", "Metadata responses of the same time that have a broker in common name one cluster id.", "KIP-78",
        ("broker_state",), _ONE_CLUSTER, about="broker_state", needs=(messages_of(ApiKey.METADATA),), is_across=True,
    ),
    Rule(
        "O-03", "error", "The record that ListOffsets finds for a time is not older than that time.", "KIP-79", ("rare_fields",), _BY_TIME,
        needs=(messages_of(ApiKey.LIST_OFFSETS),),
    ),
    Rule(
        "O-05", "error", "The offset that ListOffsets finds for a time agrees with batches that were read: its time is one of its batch, "
        "and no batch before it has that time or a later one. A batch counts that was read before the request; if it should have been "
        "found, it was also stable then, and was read after the response too.", "KIP-79", ("rare_fields", "fetched_batches", *SAME_LOG),
        _AS_READ, about="fetched_batches", needs=(messages_of(ApiKey.LIST_OFFSETS),),
    ),
    Rule(
        "L-04", "error", "What was acknowledged by all in-sync replicas stays: the end of the partition in ListOffsets is behind it. "
        "Topics that are deleted in the run, and partitions whose leader changes in it, are not judged.", "KIP-207",
        ("acknowledged", "rare_fields", *SAME_LOG), _READABLE, about="acknowledged",
        needs=(messages_of(ApiKey.LIST_OFFSETS),),
    ),
    Rule(
        "W-13", "error", "A request between brokers that was answered is in the journal of the broker that got it, with the same length.",
        "wire 1", ("headers", "frame_counts", "gappy"), _BOTH_ENDS,
    ),
)
