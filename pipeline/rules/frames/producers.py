"""Rules `P`: the sequence numbers of producers (KIP-98), as their requests and a broker's responses show them.

A partition is judged at the broker that got all batches of a producer epoch, because clocks of several brokers give requests no order.
"""

from __future__ import annotations

from klamm.pipeline.rules.record import Rule, View, messages_of
from klamm.protocol.apis import ApiKey

KEPT_BATCHES = 5
"""A broker knows this number of the last batches of a producer at a partition."""

_UNKNOWN = "7, 20"
"""Codes after which a batch may be written or not."""

_KEY = "run_id, topic, partition, producer_id, producer_epoch"

SEQUENCED = View(
    "sequenced",
    ("fields", "gappy", "moved"),
    f"""
WITH batches AS (
    SELECT run_id, node_id, process, conn_id, seq, acks, client_id, b.name AS topic, b.index AS partition, b.producerId AS producer_id,
        b.producerEpoch AS producer_epoch, b.baseSequence AS first, b.records, b.crc, b.content
    FROM fields LEFT ANTI JOIN gappy USING (run_id, node_id) LATERAL VIEW explode(sequences) AS b
    WHERE api_key = {ApiKey.PRODUCE} AND dir = 0 AND b.producerId IS NOT NULL),
answers AS (
    SELECT run_id, node_id, seq, cause_seq, topic, r.index AS partition, r.errorCode AS error, r.baseOffset AS base_offset FROM (
        SELECT run_id, node_id, seq, cause_seq, t.name AS topic, t.partitionResponses AS rows
        FROM fields LATERAL VIEW explode(offsets) AS t WHERE api_key = {ApiKey.PRODUCE} AND dir = 1)
    LATERAL VIEW explode(rows) AS r)
SELECT b.*, a.seq AS answer_seq, a.error, a.base_offset,
    m.run_id IS NULL AND min(struct(b.node_id, b.process)) OVER w = max(struct(b.node_id, b.process)) OVER w AS is_at_one
FROM batches b LEFT JOIN answers a ON a.run_id = b.run_id AND a.node_id = b.node_id AND a.cause_seq = b.seq AND a.topic = b.topic
    AND a.partition = b.partition
LEFT JOIN (SELECT * FROM moved WHERE is_unseen) m ON m.run_id = b.run_id AND m.topic = b.topic AND m.partition = b.partition
WINDOW w AS (PARTITION BY b.run_id, b.topic, b.partition, b.producer_id, b.producer_epoch)""",
    needs=(messages_of(ApiKey.PRODUCE),),
)
"""Batches with a producer id and what was answered; `is_at_one`: one process of a broker got all batches of this producer epoch at the
partition, as far as is known: no leader of it is without a journal."""

ORDERED_BATCHES = View(
    "ordered_batches",
    ("sequenced",),
    f"""
SELECT *, row_number() OVER w AS nth, max(struct(first + records AS next, seq)) OVER before AS furthest,
    count_if(error = 0) OVER before AS taken, count_if(error <> 0) OVER before AS refused
FROM sequenced WHERE is_at_one AND first >= 0 AND records > 0
WINDOW w AS (PARTITION BY {_KEY} ORDER BY seq),
    before AS (PARTITION BY {_KEY} ORDER BY seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)""",
    needs=(messages_of(ApiKey.PRODUCE),),
)
"""The batches of a producer epoch at a partition in order: `furthest` is the sequence number behind all before it."""

REPEATED = View(
    "repeated_batches",
    ("ordered_batches",),
    f"""
SELECT * FROM (
    SELECT *, lag(struct(seq, answer_seq, crc, error, base_offset, taken, acks, refused))
        OVER (PARTITION BY {_KEY}, first ORDER BY seq) AS same
    FROM ordered_batches)
WHERE same IS NOT NULL""",
    needs=(messages_of(ApiKey.PRODUCE),),
)
"""Batches whose sequence number was there before, `same` with what."""

_WHO = (
    "concat('client ', coalesce({0}client_id, ''), ', producer ', {0}producer_id, ', epoch ', {0}producer_epoch, ', ', {0}topic, '-', "
    "{0}partition, ': ')"
)
_NAMED = _WHO.format("")

_FIRST = f"""
WITH given AS (
    SELECT run_id, producer_id, producer_epoch, max_by(struct(node_id, seq), seq) AS told
    FROM rare_fields WHERE api_key = {ApiKey.INIT_PRODUCER_ID} AND dir = 1 AND error_code = 0
    GROUP BY run_id, producer_id, producer_epoch)
SELECT o.run_id, o.node_id, o.conn_id, o.seq,
    if(o.first <> 0, concat({_WHO.format("o.")}, 'the first batch has sequence number ', o.first), NULL) AS detail,
    array(struct(g.told.node_id AS node_id, g.told.seq AS seq), struct(o.node_id AS node_id, o.seq AS seq)) AS evidence
FROM ordered_batches o JOIN given g ON g.run_id = o.run_id AND g.producer_id = o.producer_id AND g.producer_epoch = o.producer_epoch
WHERE o.nth = 1"""

_GAP = f"""
SELECT run_id, node_id, conn_id, seq,
    if(first > furthest.next, concat({_NAMED}, 'sequence number ', first, ' after ', furthest.next - 1), NULL) AS detail,
    array(furthest.seq, seq) AS evidence
FROM ordered_batches WHERE nth > 1"""

_REFUSED_GAP = f"""
SELECT run_id, node_id, conn_id, answer_seq AS seq,
    if(error = 0, concat({_NAMED}, 'sequence number ', first, ' is taken after ', furthest.next - 1), NULL) AS detail,
    array(furthest.seq, seq, answer_seq) AS evidence
FROM ordered_batches WHERE nth > 1 AND first > furthest.next AND answer_seq IS NOT NULL AND taken > 0"""

_ONE_CONTENT = f"""
SELECT run_id, node_id, conn_id, seq,
    if(crc <> same.crc AND refused = same.refused AND (same.answer_seq IS NULL OR same.answer_seq > seq OR same.error = 0),
        concat({_NAMED}, 'sequence number ', first, ' has other records than before'), NULL) AS detail,
    array_compact(array(same.seq, same.answer_seq, seq)) AS evidence
FROM repeated_batches"""

_DUPLICATE = f"""
SELECT run_id, node_id, conn_id, answer_seq AS seq,
    CASE WHEN error = 45 THEN concat({_NAMED}, 'sequence number ', first, ' was written, and its repetition gets <error 45>')
        WHEN error = 0 AND base_offset >= 0 AND base_offset <> same.base_offset
            THEN concat({_NAMED}, 'sequence number ', first, ' is written twice, at ', same.base_offset, ' and ', base_offset)
    END AS detail,
    array(same.seq, same.answer_seq, seq, answer_seq) AS evidence
FROM repeated_batches
WHERE crc = same.crc AND same.error = 0 AND same.base_offset >= 0 AND same.answer_seq < seq AND answer_seq IS NOT NULL AND refused = 0
    AND acks = -1 AND same.acks = -1 AND taken - same.taken <= {KEPT_BATCHES}"""

_TWO_EPOCHS = f"""
WITH open AS (
    SELECT * FROM (
        SELECT *, count_if(error NOT IN ({_UNKNOWN})) OVER (PARTITION BY {_KEY}, first, crc) AS known FROM sequenced)
    WHERE known = 0 AND (answer_seq IS NULL AND acks <> 0 OR error IN ({_UNKNOWN})))
SELECT l.run_id, l.node_id, l.conn_id, l.seq,
    concat({_WHO.format("l.")}, 'has the records of sequence number ', e.first, ' of epoch ', e.producer_epoch, ', and it is not known ',
        'whether they were written') AS detail,
    array_compact(array(if(e.seq IS NULL, NULL, struct(e.node_id AS node_id, e.seq AS seq)),
        if(e.answer_seq IS NULL, NULL, struct(e.node_id AS node_id, e.answer_seq AS seq)), struct(l.node_id AS node_id, l.seq AS seq)))
        AS evidence
FROM sequenced l JOIN open e ON e.run_id = l.run_id AND e.topic = l.topic AND e.partition = l.partition
    AND e.producer_id = l.producer_id AND e.content = l.content AND e.producer_epoch < l.producer_epoch
UNION ALL
SELECT run_id, node_id, conn_id, seq, NULL, NULL FROM sequenced WHERE producer_epoch > 0"""

VIEWS = (SEQUENCED, ORDERED_BATCHES, REPEATED)

_PRODUCES = (messages_of(ApiKey.PRODUCE),)

RULES: tuple[Rule, ...] = (
    Rule(
        "P-01", "warn", "The first batch of a producer epoch at a partition has sequence number 0.", "KIP-98, KIP-360",
        ("ordered_batches", "rare_fields"), _FIRST, about="ordered_batches", needs=(messages_of(ApiKey.INIT_PRODUCER_ID),), is_across=True,
    ),
    Rule(
        "P-02", "warn", "A producer leaves out no sequence number.", "KIP-98", ("ordered_batches",), _GAP, about="ordered_batches",
        needs=_PRODUCES,
    ),
    Rule(
        "P-03", "warn", "A sequence number has the same records whenever it is sent, unless a batch was refused in between.", "KIP-98",
        ("repeated_batches",), _ONE_CONTENT, about="repeated_batches", needs=_PRODUCES,
    ),
    Rule(
        "P-04", "warn", "Records are not sent in another producer epoch while nobody knows whether they were written.", "KIP-360",
        ("sequenced",), _TWO_EPOCHS, about="sequenced", needs=_PRODUCES, is_across=True,
    ),
    Rule(
        "P-05", "error", f"A repetition of one of the last {KEPT_BATCHES} batches that were acknowledged by all gets the same base offset.",
        "KIP-98", ("repeated_batches",), _DUPLICATE, about="repeated_batches", needs=_PRODUCES,
    ),
    Rule(
        "P-06", "error", "A batch behind a gap in the sequence numbers is refused.", "KIP-98", ("ordered_batches",), _REFUSED_GAP,
        about="ordered_batches", needs=_PRODUCES,
    ),
)
