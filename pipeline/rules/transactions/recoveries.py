"""Rule T-06: the recovery of a leader after an unclean election (KIP-704) ends the transactions that are open in its log."""

from __future__ import annotations

from klamm.pipeline.rules.record import Rule, events_of
from klamm.pipeline.rules.traffic import unless_gaps

_RECOVERED = """
WITH phases AS (
    SELECT run_id, node_id, seq, get_json_object(input, '$.name') AS name, get_json_object(input, '$.topic') AS topic,
        CAST(get_json_object(input, '$.partition') AS INT) AS partition,
        CAST(get_json_object(input, '$.leader_epoch') AS INT) AS leader_epoch,
        CAST(get_json_object(input, '$.producer_id') AS BIGINT) AS producer_id,
        CAST(get_json_object(input, '$.producer_epoch') AS INT) AS producer_epoch, get_json_object(input, '$.outcome') AS outcome,
        CAST(get_json_object(input, '$.open_transactions') AS INT) AS left_open
    FROM events WHERE kind = 'coordinator_phase'),
recovered AS (SELECT * FROM phases WHERE name = 'PartitionRecovered'),
told AS (
    SELECT d.run_id, d.node_id, d.seq, d.topic, d.partition, d.leader_epoch, d.producer_id, d.outcome, min(e.seq) AS end_seq
    FROM phases d LEFT JOIN phases e ON e.run_id = d.run_id AND e.node_id = d.node_id AND e.topic = d.topic AND e.partition = d.partition
        AND e.leader_epoch = d.leader_epoch AND e.producer_id = d.producer_id AND e.outcome = d.outcome
        AND e.name = 'PendingTransactionEnded' AND e.seq > d.seq
    WHERE d.name = 'PendingTransactionDecided'
    GROUP BY d.run_id, d.node_id, d.seq, d.topic, d.partition, d.leader_epoch, d.producer_id, d.outcome),
-- An abort that fences has the epoch after that of the transaction.
decided AS (
    SELECT run_id, producer_id, producer_epoch, bool_or(outcome = 'commit') AS is_committed, min(struct(node_id, seq)) AS row FROM (
        SELECT run_id, node_id, seq, producer_id, producer_epoch, outcome FROM phases WHERE name = 'TransactionEndPrepared'
        UNION ALL SELECT run_id, node_id, seq, producer_id, producer_epoch - 1, outcome FROM phases
        WHERE name = 'TransactionEndPrepared' AND outcome = 'abort')
    GROUP BY run_id, producer_id, producer_epoch),
-- Of the epochs that begin in a journal all transactions are known.
begun AS (SELECT DISTINCT run_id, producer_id, producer_epoch FROM phases WHERE name = 'ProducerEpochStored')
SELECT run_id, node_id, CAST(NULL AS bigint) AS conn_id, seq,
    if(left_open = 0, NULL, concat(topic, '-', partition, ': ', left_open, ' transactions are open after the recovery in leader epoch ',
        leader_epoch)) AS detail,
    array_compact(array(if(unended_seq IS NULL, NULL, struct(node_id, unended_seq AS seq)), struct(node_id, seq))) AS evidence
FROM (
    SELECT r.run_id, r.node_id, r.seq, r.topic, r.partition, r.leader_epoch, r.left_open, min(t.seq) AS unended_seq
    FROM recovered r LEFT JOIN told t ON t.run_id = r.run_id AND t.node_id = r.node_id AND t.topic = r.topic AND t.partition = r.partition
        AND t.leader_epoch = r.leader_epoch AND t.seq < r.seq AND NOT coalesce(t.end_seq < r.seq, false)
    GROUP BY r.run_id, r.node_id, r.seq, r.topic, r.partition, r.leader_epoch, r.left_open)
UNION ALL
SELECT t.run_id, t.node_id, CAST(NULL AS bigint), t.seq,
    if(coalesce(t.end_seq < r.seq, false), NULL, concat(t.topic, '-', t.partition, ': the transaction of producer ', t.producer_id,
        ' has no marker to ', t.outcome, ' when leader epoch ', t.leader_epoch, ' has recovered')),
    array_compact(array(struct(t.node_id, t.seq), if(t.end_seq IS NULL, NULL, struct(t.node_id, t.end_seq AS seq)),
        struct(r.node_id, r.seq)))
FROM told t JOIN (SELECT run_id, node_id, topic, partition, leader_epoch, min(seq) AS seq FROM recovered
        GROUP BY run_id, node_id, topic, partition, leader_epoch) r
    ON r.run_id = t.run_id AND r.node_id = t.node_id AND r.topic = t.topic AND r.partition = t.partition
    AND r.leader_epoch = t.leader_epoch AND r.seq > t.seq
UNION ALL
SELECT e.run_id, e.node_id, CAST(NULL AS bigint), e.seq,
    if(b.run_id IS NULL OR coalesce(d.is_committed, true), NULL, concat(
        e.topic, '-', e.partition, ': the transaction of producer ', e.producer_id, ', epoch ', e.producer_epoch,
        ', is committed in a recovery, and its coordinator has aborted it')),
    array_compact(array(d.row, struct(e.node_id, e.seq)))
FROM phases e LEFT JOIN decided d ON d.run_id = e.run_id AND d.producer_id = e.producer_id AND d.producer_epoch = e.producer_epoch
LEFT JOIN begun b ON b.run_id = e.run_id AND b.producer_id = e.producer_id AND b.producer_epoch = e.producer_epoch
WHERE e.name = 'PendingTransactionEnded' AND e.outcome = 'commit'"""

T_06 = Rule(
    "T-06", "error", "After the recovery of an unclean election no transaction is open in the log of the leader. Each that was has got the "
    "marker that was decided, and is committed only if its coordinator has not aborted it.", "R704-20",
    ("events", "gappy"), unless_gaps(_RECOVERED), needs=(events_of("coordinator_phase"),),
    is_across=True,
)
