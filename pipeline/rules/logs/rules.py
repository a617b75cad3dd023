"""Rules `L`: the log of a partition, as producers and consumers see it at its leader."""

from __future__ import annotations

from klamm.pipeline.rules.logs.calls import OF_LOG
from klamm.pipeline.rules.record import Rule, messages_of
from klamm.protocol.apis import ApiKey

_RISING = f"""
WITH points AS (
    SELECT run_id, node_id, process, topic, partition, seq AS at, seq AS changed_seq, NULL AS batch FROM log_changes
    UNION ALL
    SELECT run_id, node_id, process, topic, partition, answer_seq, NULL, struct(conn_id, seq, answer_seq, error, base_offset, is_unknown,
        producer_id, producer_epoch, sequence)
    FROM written),
placed AS (
    SELECT run_id, node_id, process, topic, partition, batch.*, coalesce(changed, 0) AS changed_seq FROM (
        SELECT *, max(changed_seq) OVER ({OF_LOG} ORDER BY at ROWS UNBOUNDED PRECEDING) AS changed FROM points)
    WHERE batch IS NOT NULL),
-- A batch without a producer id is behind all that came before it, one with a producer id behind those with a lower sequence number. A
-- duplicate gets the offset of what it repeats.
ordered AS (
    SELECT *, count_if(error <> 0) OVER connection AS errors,
        last_value(if(error = 0 AND base_offset >= 0, struct(seq, answer_seq, base_offset, sequence), NULL), true) OVER connection AS last,
        last_value(if(error = 0 AND base_offset >= 0, struct(seq, answer_seq, base_offset, sequence), NULL), true) OVER producer AS same
    FROM placed
    WINDOW connection AS (PARTITION BY conn_id, run_id, node_id, process, topic, partition ORDER BY seq
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING),
        producer AS (PARTITION BY conn_id, run_id, node_id, process, topic, partition, producer_id, producer_epoch ORDER BY seq
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)),
compared AS (
    SELECT *, CASE WHEN is_unknown THEN NULL WHEN producer_id IS NULL THEN last WHEN same.sequence < sequence THEN same END AS before
    FROM ordered WHERE error = 0 AND base_offset >= 0 AND errors = 0)
SELECT run_id, node_id, conn_id, answer_seq AS seq,
    if(base_offset <= before.base_offset, concat(topic, '-', partition, ': base offset ', base_offset, ' after ', before.base_offset,
        ' for the request before'), NULL) AS detail,
    array(before.seq, before.answer_seq, seq, answer_seq) AS evidence
FROM compared WHERE before IS NOT NULL AND changed_seq < before.seq"""

_FALLING = """
SELECT run_id, node_id, conn_id, answer_seq AS seq,
    if(high_watermark < told_before.high_watermark, concat(topic, '-', partition, ': high watermark ', high_watermark, ' in <api ', api_key,
        '> after ', told_before.high_watermark), NULL) AS detail,
    array(told_before.answer_seq, seq, answer_seq) AS evidence
FROM log_ends WHERE told_before IS NOT NULL"""

_ACKNOWLEDGED = """
SELECT run_id, node_id, conn_id, answer_seq AS seq,
    if(high_watermark < acknowledged_before.high_watermark, concat(topic, '-', partition, ': <api ', api_key, '> says that the partition ',
        'ends at ', high_watermark, ', and offset ', acknowledged_before.high_watermark - 1, ' was acknowledged by all'), NULL) AS detail,
    array(acknowledged_before.seq, acknowledged_before.answer_seq, seq, answer_seq) AS evidence
FROM log_ends WHERE acknowledged_before IS NOT NULL"""

RULES: tuple[Rule, ...] = (
    Rule(
        "L-01", "error", "The batches of a connection to a partition get rising base offsets, in the order of their requests. A batch that "
        "repeats another one gets the offset of that.", "wire 12", ("written", "log_changes"), _RISING, about="written",
        needs=(messages_of(ApiKey.PRODUCE),),
    ),
    Rule(
        "L-02", "error", "The high watermark of a partition never falls at its leader in a leader epoch, in Fetch and ListOffsets.",
        "wire 12", ("log_ends",), _FALLING, about="log_ends", needs=(messages_of(ApiKey.FETCH, ApiKey.LIST_OFFSETS),),
    ),
    Rule(
        "L-03", "error", "A batch that was acknowledged with acks=all is below the high watermark that its leader tells afterwards, in "
        "Fetch and ListOffsets.", "wire 12", ("log_ends",), _ACKNOWLEDGED, about="log_ends", needs=(messages_of(ApiKey.PRODUCE),),
    ),
)
