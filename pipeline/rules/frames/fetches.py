"""Rules about fetch sessions (KIP-227), reads with `read_committed`, and what batches that were read say of the log."""

from __future__ import annotations

from klamm.pipeline.rules.frames.peers import SAME_LOG, of_one_log
from klamm.pipeline.rules.record import BATCH_HEADER, Rule, View, errors_of, messages_of
from klamm.pipeline.rules.traffic import CONNECTION
from klamm.protocol.apis import ApiKey

_LAST = 2_147_483_647
"""The epoch of a session after which 1 comes."""


def _number(first: int, digits: int) -> str:
    """SQL: a number in the header of a batch, which is in hex digits."""
    return f"try_cast(conv(substring(header, {first}, {digits}), 16, 10) AS BIGINT)"


FETCH_CALLS = View(
    "fetch_calls",
    ("headers", "gappy"),
    f"""
SELECT q.run_id, q.node_id, q.process, q.conn_id, q.seq, q.client_id, q.session_id, q.session_epoch, a.seq AS answer_seq,
    a.error_code AS error, a.session_id AS told_id
FROM (
    SELECT * FROM headers LEFT ANTI JOIN gappy USING (run_id, node_id)
    WHERE api_key = {ApiKey.FETCH} AND dir = 0 AND session_epoch IS NOT NULL AND api_version >= 7) q
LEFT JOIN (SELECT * FROM headers WHERE api_key = {ApiKey.FETCH} AND dir = 1) a
    ON a.run_id = q.run_id AND a.node_id = q.node_id AND a.cause_seq = q.seq""",
    needs=(messages_of(ApiKey.FETCH),),
)
"""Fetch requests of versions that have sessions, with what was answered, where no rows are missing."""

SESSION_STEPS = View(
    "session_steps",
    ("fetch_calls",),
    """
SELECT * FROM (
    SELECT *, lag(session_epoch) OVER w AS epoch_before, lag(seq) OVER w AS seq_before, lag(coalesce(error, -1)) OVER w AS error_before
    FROM (
        SELECT *, if(session_epoch = 0, told_id, session_id) AS session FROM fetch_calls)
    WHERE session <> 0 AND session_epoch >= 0
    WINDOW w AS (PARTITION BY run_id, node_id, process, session ORDER BY seq))
WHERE session_epoch > 0""",
    needs=(messages_of(ApiKey.FETCH),),
)
"""Requests that go on with a session, with the one before them in it."""

_NEXT = f"if(epoch_before = {_LAST}, 1, epoch_before + 1)"

_STEPS = f"""
SELECT run_id, node_id, conn_id, seq,
    if(session_epoch <> {_NEXT}, concat('client ', coalesce(client_id, ''), ' has epoch ', session_epoch, ' in session ', session,
        ' after ', epoch_before), NULL) AS detail,
    array(seq_before, seq) AS evidence
FROM session_steps WHERE epoch_before IS NOT NULL"""

_ACCEPTED = f"""
SELECT run_id, node_id, conn_id, answer_seq AS seq,
    CASE WHEN error = 0 AND session_epoch <> {_NEXT}
            THEN concat('epoch ', session_epoch, ' of session ', session, ' is taken after ', epoch_before)
        WHEN error = 71 AND session_epoch = {_NEXT} THEN concat('epoch ', session_epoch, ' of session ', session, ' is refused after ',
            epoch_before)
    END AS detail,
    array(seq_before, seq, answer_seq) AS evidence
FROM session_steps WHERE epoch_before IS NOT NULL AND answer_seq IS NOT NULL AND error_before = 0"""

_TOLD = """
SELECT run_id, node_id, conn_id, answer_seq AS seq,
    CASE WHEN session_epoch > 0 AND told_id NOT IN (session_id, 0)
            THEN concat('a request in session ', session_id, ' is answered with session ', told_id)
        WHEN session_epoch < 0 AND told_id <> 0 THEN concat('a request without a session is answered with session ', told_id)
    END AS detail,
    array(seq, answer_seq) AS evidence
FROM fetch_calls WHERE error = 0"""

_AFTER_REFUSAL = f"""
WITH refused AS (SELECT * FROM fetch_calls WHERE error IN (70, 71)),
next AS (
    SELECT r.run_id, r.node_id, r.conn_id, r.answer_seq, r.error, min_by(struct(f.seq, f.session_epoch, f.client_id), f.seq) AS next
    FROM refused r JOIN fetch_calls f ON {" AND ".join(f"f.{name} = r.{name}" for name in CONNECTION)} AND f.seq > r.answer_seq
    GROUP BY r.run_id, r.node_id, r.conn_id, r.answer_seq, r.error)
SELECT run_id, node_id, conn_id, next.seq AS seq,
    if(next.session_epoch > 0, concat('client ', coalesce(next.client_id, ''), ' goes on with epoch ', next.session_epoch, ' after <error ',
        error, '>'), NULL) AS detail,
    array(answer_seq, next.seq) AS evidence
FROM next"""

_ABORTED = f"""
SELECT f.run_id, f.node_id, f.conn_id, f.seq, if(q.seq IS NULL, f.detail, NULL) AS detail, array(f.cause_seq, f.seq) AS evidence
FROM flaws f
JOIN messages m ON m.run_id = f.run_id AND m.node_id = f.node_id AND m.seq = f.cause_seq AND m.bytes_left IS NOT NULL
LEFT JOIN (SELECT run_id, node_id, seq FROM fields WHERE api_key = {ApiKey.FETCH} AND dir = 0 AND isolation_level = 1) q
    ON q.run_id = f.run_id AND q.node_id = f.node_id AND q.seq = f.cause_seq
WHERE f.rule = 'F-02'"""

FETCHED_BATCHES = View(
    "fetched_batches",
    ("fields", "peers", "topic_names", "gappy"),
    f"""
WITH topics AS (
    SELECT run_id, node_id, process, conn_id, cause_seq, seq, t
    FROM fields LEFT ANTI JOIN gappy USING (run_id, node_id) LATERAL VIEW explode(records) AS t
    WHERE api_key = {ApiKey.FETCH} AND dir = 1 AND cause_seq IS NOT NULL),
rows AS (
    SELECT s.run_id, s.node_id, s.process, s.conn_id, s.cause_seq AS seq, s.seq AS answer_seq, coalesce(s.t.topic, n.topic_name) AS topic,
        s.t.partitions AS rows, coalesce(p.is_broker, false) AS is_broker
    FROM topics s LEFT JOIN topic_names n ON n.run_id = s.run_id AND n.named_key = s.t.topicId
    LEFT JOIN peers p ON {" AND ".join(f"p.{name} = s.{name}" for name in CONNECTION)}),
heads AS (
    SELECT * EXCEPT (rows, p), p.partitionIndex AS partition, p.highWatermark AS high_watermark, p.lastStableOffset AS last_stable_offset,
        {BATCH_HEADER.format("p.records.head")} AS header
    FROM rows LATERAL VIEW explode(rows) AS p WHERE p.errorCode = 0 AND topic IS NOT NULL),
numbers AS (
    SELECT * EXCEPT (header), {_number(1, 16)} AS base_offset, {_number(25, 8)} AS leader_epoch, {_number(43, 4)} AS attributes,
        {_number(47, 8)} AS last_delta, {_number(55, 16)} AS base_time, {_number(71, 16)} AS max_time
    FROM heads WHERE length(header) = 122 AND substring(header, 33, 2) = '02')
SELECT * EXCEPT (attributes, last_delta, base_time), base_offset + last_delta AS last_offset,
    last_delta = 0 AND base_time = max_time OR attributes & 8 <> 0 AS is_one_time
FROM numbers WHERE last_delta < 2147483648""",
    needs=(messages_of(ApiKey.FETCH),),
)
"""The first batch of each partition in Fetch responses, with the offsets that the response has, where no rows are missing; `is_one_time`:
`max_time` is the time of all its records."""

_HIGHEST = f"""
WITH led AS (
    SELECT run_id, topic, partition, max(leader) AS leader FROM partition_state WHERE leader >= 0 AND topic IS NOT NULL
    GROUP BY run_id, topic, partition),
-- A follower takes the high watermark of its leader, also a lower one, and a log that was moved to another directory may be behind.
told AS (
    SELECT b.*, greatest(b.last_stable_offset, if(b.is_broker, -1, b.last_offset + 1)) AS bound
    FROM (SELECT * FROM fetched_batches LEFT ANTI JOIN (
        SELECT run_id, node_id FROM rare_traffic WHERE api_key = {ApiKey.ALTER_REPLICA_LOG_DIRS} AND dir = 0) USING (run_id, node_id)) b
    LEFT JOIN led l ON l.run_id = b.run_id AND l.topic = b.topic AND l.partition = b.partition
    WHERE b.high_watermark >= 0 AND coalesce(l.leader, b.node_id) = b.node_id),
points AS (
    SELECT run_id, node_id, process, conn_id, topic, partition, seq, answer_seq, high_watermark, is_answer,
        if(is_answer, answer_seq, seq) AS at, if(is_answer, struct(bound, answer_seq), NULL) AS told
    FROM told LATERAL VIEW explode(array(true, false)) AS is_answer),
compared AS (
    SELECT *, max(told) OVER (PARTITION BY run_id, node_id, process, topic, partition ORDER BY at
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before FROM points)
SELECT run_id, node_id, conn_id, answer_seq AS seq,
    if(high_watermark < before.bound, concat(topic, '-', partition, ': high watermark ', high_watermark, ' after offset ', before.bound - 1,
        ' was read or stable'), NULL) AS detail,
    array(before.answer_seq, seq, answer_seq) AS evidence
FROM {of_one_log("compared")} WHERE NOT is_answer AND before IS NOT NULL"""

VIEWS = (FETCH_CALLS, SESSION_STEPS, FETCHED_BATCHES)

_FETCHES = (messages_of(ApiKey.FETCH),)

RULES: tuple[Rule, ...] = (
    Rule(
        "F-02", "error", "Aborted transactions are told to consumers with `read_committed` alone.", "KIP-98",
        ("flaws", "fields", "messages"), _ABORTED, about="flaws", needs=_FETCHES,
    ),
    Rule(
        "F-04", "error", "A fetch in a session is answered with its id, or with 0 if nothing is left in it; one without a session with 0.",
        "KIP-227", ("fetch_calls",), _TOLD, about="fetch_calls", needs=_FETCHES,
    ),
    Rule(
        "F-05", "error", "A broker takes the next epoch of a fetch session and no other one.", "KIP-227", ("session_steps",), _ACCEPTED,
        about="session_steps", needs=_FETCHES,
    ),
    Rule(
        "F-06", "error", "What a consumer has read, and each last stable offset, is below the high watermark that the same broker tells in "
        "response to a later request; a last stable offset may be the same.", "wire 12",
        ("fetched_batches", "partition_state", "rare_traffic", *SAME_LOG), _HIGHEST, about="fetched_batches", needs=_FETCHES,
    ),
    Rule(
        "K-10", "warn", "The epochs of a fetch session rise by one.", "KIP-227", ("session_steps",), _STEPS, about="session_steps",
        needs=_FETCHES,
    ),
    Rule(
        "K-11", "warn", "After FETCH_SESSION_ID_NOT_FOUND or INVALID_FETCH_SESSION_EPOCH a client fetches all its partitions.", "KIP-227",
        ("fetch_calls",), _AFTER_REFUSAL, about="fetch_calls", needs=(errors_of(70, 71),),
    ),
)
