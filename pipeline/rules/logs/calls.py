"""What the rules about logs read: batches that were written, and where leaders say that a partition ends.

Offsets may fall where a log was truncated. A leader truncates nothing, so offsets are compared only while nothing changed for the
partition: between two requests that told the broker of another leader, leader epoch or topic id, or that the topic is being deleted. A
journal without requests of controllers does not show these changes, and a broker with such a journal is not judged, nor is one whose
journal lacks rows or parts of such requests, nor one that moved logs between its directories.
"""

from __future__ import annotations

from klamm.pipeline.lake.windows import keys
from klamm.pipeline.rules.record import View, messages_of
from klamm.protocol.apis import OF_CONTROLLERS, ApiKey

OF_LOG = "PARTITION BY run_id, node_id, process, topic, partition"

LOG_CHANGES = View(
    "log_changes",
    ("states", "rare_fields"),
    f"""
WITH unseen AS (
    SELECT DISTINCT run_id, node_id FROM rare_fields
    WHERE api_key IN ({keys(OF_CONTROLLERS)}) AND dir = 0 AND (NOT has_body OR flags & 2 <> 0)),
told AS (
    SELECT run_id, node_id, receiver_process AS process, topic, partition, seq, leader, struct(leader, leader_epoch, topic_key) AS what,
        lag(struct(leader, leader_epoch, topic_key)) OVER (
            PARTITION BY run_id, node_id, receiver_process, topic, partition ORDER BY seq) AS before
    FROM states LEFT ANTI JOIN unseen USING (run_id, node_id) WHERE source = -1 AND coalesce(error, 0) = 0)
SELECT run_id, node_id, process, topic, partition, seq, leader FROM told WHERE before IS NULL OR before <> what
""",
    needs=(messages_of(*OF_CONTROLLERS),),
)
"""The requests that told a broker of another leader, leader epoch or topic id of a partition; none of a broker whose journal lacks a part
of such requests."""

WRITTEN = View(
    "written",
    ("fields", "log_changes", "gappy"),
    f"""
WITH judged AS (SELECT DISTINCT run_id, node_id FROM log_changes LEFT ANTI JOIN gappy USING (run_id, node_id)),
asked AS (
    SELECT run_id, node_id, seq, acks, sequences, NOT has_body AS is_hidden, flags & 2 <> 0 AS is_cut, names
    FROM fields LEFT SEMI JOIN judged USING (run_id, node_id) WHERE api_key = {ApiKey.PRODUCE} AND dir = 0),
answers AS (
    SELECT run_id, node_id, process, conn_id, cause_seq AS seq, seq AS answer_seq, t.name AS topic, t.partitionResponses AS rows
    FROM fields LATERAL VIEW explode(offsets) AS t WHERE api_key = {ApiKey.PRODUCE} AND dir = 1),
rows AS (SELECT * EXCEPT (rows, p), p.index AS partition, p.errorCode AS error, p.baseOffset AS base_offset
    FROM answers LATERAL VIEW explode(rows) AS p),
placed AS (
    SELECT r.*, q.acks, try_element_at(filter(q.sequences, s -> s.name = r.topic AND s.index = r.partition), 1) AS batch,
        q.is_hidden OR q.is_cut AND NOT coalesce(array_contains(q.names, concat(r.topic, '-', r.partition)), false) AS is_hidden
    FROM rows r JOIN asked q ON q.run_id = r.run_id AND q.node_id = r.node_id AND q.seq = r.seq)
SELECT run_id, node_id, process, conn_id, seq, answer_seq, topic, partition, acks, error, base_offset,
    is_hidden OR batch IS NOT NULL AND batch.producerId IS NULL AS is_unknown,
    batch.producerId AS producer_id, batch.producerEpoch AS producer_epoch, batch.baseSequence AS sequence
FROM placed
""",
    needs=(messages_of(ApiKey.PRODUCE),),
)
"""Partitions in Produce responses. The batch has a producer id, or none, or that is not known (`is_unknown`)."""

LOG_ENDS = View(
    "log_ends",
    ("fields", "written", "log_changes", "topic_names", "gappy", "rare_traffic"),
    f"""
WITH unsure AS (
    SELECT run_id, node_id FROM gappy
    UNION SELECT run_id, node_id FROM rare_traffic WHERE api_key = {ApiKey.ALTER_REPLICA_LOG_DIRS} AND dir = 0),
judged AS (SELECT DISTINCT run_id, node_id FROM log_changes LEFT ANTI JOIN unsure USING (run_id, node_id)),
fetched AS (
    SELECT f.run_id, f.node_id, f.process, f.conn_id, f.cause_seq AS seq, f.seq AS answer_seq, coalesce(f.topic, n.topic_name) AS topic,
        f.p.partitionIndex AS partition, f.p.highWatermark AS high_watermark, {ApiKey.FETCH} AS api_key
    FROM (
        SELECT * FROM (
            SELECT run_id, node_id, process, conn_id, cause_seq, seq, t.topic AS topic, t.topicId AS topic_id, t.partitions AS rows
            FROM fields LEFT SEMI JOIN judged USING (run_id, node_id) LATERAL VIEW explode(records) AS t
            WHERE api_key = {ApiKey.FETCH} AND dir = 1)
        LATERAL VIEW explode(rows) AS p) f
    LEFT JOIN topic_names n ON n.run_id = f.run_id AND n.named_key = f.topic_id
    WHERE f.p.errorCode = 0),
listed AS (
    SELECT q.run_id, q.node_id, q.process, q.conn_id, q.seq, a.answer_seq, a.topic, a.p.partitionIndex AS partition,
        a.p.offset AS high_watermark, {ApiKey.LIST_OFFSETS} AS api_key
    FROM (
        SELECT * FROM fields LEFT SEMI JOIN judged USING (run_id, node_id)
        WHERE api_key = {ApiKey.LIST_OFFSETS} AND dir = 0 AND latest IS NOT NULL) q
    JOIN (
        SELECT * FROM (
            SELECT run_id, node_id, cause_seq, seq AS answer_seq, t.name AS topic, t.partitions AS rows
            FROM fields LATERAL VIEW explode(listed) AS t WHERE api_key = {ApiKey.LIST_OFFSETS} AND dir = 1)
        LATERAL VIEW explode(rows) AS p) a ON a.run_id = q.run_id AND a.node_id = q.node_id AND a.cause_seq = q.seq
    WHERE a.p.errorCode = 0 AND array_contains(q.latest, concat(a.topic, '-', a.p.partitionIndex))),
told AS (
    SELECT * FROM (SELECT * FROM fetched UNION ALL SELECT * FROM listed) WHERE high_watermark >= 0 AND topic IS NOT NULL),
points AS (
    SELECT run_id, node_id, process, topic, partition, seq AS at, seq, leader, true AS is_change, NULL AS told, NULL AS asked,
        CAST(NULL AS BIGINT) AS acknowledged
    FROM log_changes
    UNION ALL
    -- At the response it says something, at the request it may be compared.
    SELECT run_id, node_id, process, topic, partition, if(is_answer, answer_seq, seq), seq, NULL, false,
        if(is_answer, struct(high_watermark, seq, answer_seq), NULL),
        if(is_answer, NULL, struct(conn_id, answer_seq, high_watermark, api_key)), NULL
    FROM told LATERAL VIEW explode(array(true, false)) AS is_answer
    UNION ALL
    SELECT run_id, node_id, process, topic, partition, answer_seq, seq, NULL, false,
        struct(base_offset + 1 AS high_watermark, seq, answer_seq), NULL, base_offset
    FROM written WHERE acks = -1 AND error = 0 AND base_offset >= 0),
numbered AS (
    SELECT *, max(if(is_change, at, NULL)) OVER before AS changed_seq, last_value(leader, true) OVER before AS leads,
        min(if(is_change, at, NULL)) OVER ({OF_LOG} ORDER BY at ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) AS next_change
    FROM points WINDOW before AS ({OF_LOG} ORDER BY at ROWS UNBOUNDED PRECEDING)),
compared AS (
    SELECT *, max(if(acknowledged IS NULL AND seq > changed_seq, told, NULL)) OVER before AS told_before,
        max(if(acknowledged IS NOT NULL AND seq > changed_seq, told, NULL)) OVER before AS acknowledged_before
    FROM numbered
    WINDOW before AS (PARTITION BY run_id, node_id, process, topic, partition, changed_seq ORDER BY at
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING))
SELECT run_id, node_id, process, asked.conn_id AS conn_id, seq, asked.answer_seq AS answer_seq, topic, partition,
    asked.high_watermark AS high_watermark, asked.api_key AS api_key, told_before, acknowledged_before
FROM compared
WHERE asked IS NOT NULL AND leads = node_id AND (next_change IS NULL OR next_change > asked.answer_seq)
""",
    needs=(messages_of(ApiKey.FETCH, ApiKey.LIST_OFFSETS),),
)
"""The high watermarks that leaders told in Fetch responses with records and, to consumers with `read_uncommitted`, as the end of a
partition in ListOffsets responses. `told_before` has the highest one that was answered before the request, `acknowledged_before` the
lowest one that the batches acknowledged with acks=all allow."""

VIEWS = (LOG_CHANGES, WRITTEN, LOG_ENDS)
