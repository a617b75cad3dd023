"""What the rules about transactions and gold's table of them read: requests of producers to their coordinator, markers, and what consumers
with `read_committed` got.

A transaction is known by its producer id and epoch; one epoch can have many transactions, which the coordinator's responses put in order.
Journals that lack rows, or bodies of these requests, cannot say what was added. Brokers with such a journal are left out, and so are runs
in which a broker leads a partition of `__transaction_state` and has no such journal.

A broker of Klamm that coordinates a transaction writes the markers of its own partitions without a request: a journal does not show them.
Apache Kafka sends a request to itself.
"""

from __future__ import annotations

from klamm.pipeline.lake.windows import keys
from klamm.pipeline.rules.record import BATCH_HEADER, View, messages_of
from klamm.protocol.apis import ApiKey

REFUSED = "42, 47, 48, 49, 53, 90"
"""Codes after which a request has changed nothing. After others, or without a response, it may have."""

OF_ID = "PARTITION BY run_id, node_id, process, transactional_id"

ADDITIONS = (ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN)
"""Calls that begin a transaction, or go on with it."""

CHANGES = (*ADDITIONS, ApiKey.END_TXN)

TRANSACTION_APIS = (ApiKey.INIT_PRODUCER_ID, *CHANGES)

TXN_CALLS = View(
    "txn_calls",
    ("rare_fields", "journals", "partition_state", "ends"),
    f"""
WITH unsure AS (
    SELECT run_id, node_id FROM rare_fields
    WHERE api_key IN ({keys(TRANSACTION_APIS)}, {ApiKey.WRITE_TXN_MARKERS}) AND (NOT has_body OR flags & 2 <> 0)
    UNION SELECT run_id, node_id FROM ends WHERE NOT is_gapless),
sure AS (SELECT DISTINCT run_id, node_id FROM journals LEFT ANTI JOIN unsure USING (run_id, node_id) WHERE decoded > 0),
leaders AS (SELECT DISTINCT run_id, leader AS node_id FROM partition_state WHERE topic = '__transaction_state' AND leader >= 0),
unseen AS (SELECT DISTINCT run_id FROM leaders LEFT ANTI JOIN sure USING (run_id, node_id)),
asked AS (
    SELECT * FROM rare_fields LEFT ANTI JOIN unsure USING (run_id, node_id) LEFT ANTI JOIN unseen USING (run_id)
    WHERE dir = 0 AND api_key IN ({keys(TRANSACTION_APIS)})),
answers AS (
    SELECT run_id, node_id, cause_seq, seq AS answer_seq, ts_ns AS answer_ts_ns, error_code AS error, producer_id, producer_epoch, added,
        added_of_ids
    FROM rare_fields WHERE dir = 1 AND api_key IN ({keys(TRANSACTION_APIS)})),
calls AS (
    SELECT run_id, node_id, process, conn_id, seq, ts_ns, api_key, client_id, transactional_id,
        coalesce(producer_id, -1) AS producer_id, coalesce(producer_epoch, -1) AS producer_epoch, txn_topics AS topics, is_commit
    FROM asked WHERE api_key <> {ApiKey.ADD_PARTITIONS_TO_TXN} OR api_version < 4
    UNION ALL
    SELECT run_id, node_id, process, conn_id, seq, ts_ns, api_key, client_id, one.transactionalId, one.producerId, one.producerEpoch,
        one.topics, NULL
    FROM asked LATERAL VIEW explode(transactions) AS one
    WHERE api_key = {ApiKey.ADD_PARTITIONS_TO_TXN} AND api_version >= 4 AND NOT one.verifyOnly),
answered AS (
    SELECT q.run_id, q.node_id, q.process, q.conn_id, q.seq, q.ts_ns, q.api_key, q.client_id, a.answer_seq, a.answer_ts_ns,
        q.transactional_id, q.producer_id, q.producer_epoch,
        flatten(transform(q.topics, t -> transform(t.partitions, p -> concat(t.name, '-', p)))) AS partitions, q.is_commit,
        a.producer_id AS given_id, a.producer_epoch AS given_epoch,
        nullif(CAST(a.error AS INT), 0) AS error,
        flatten(transform(coalesce(a.added, flatten(transform(
                filter(a.added_of_ids, r -> r.transactionalId = q.transactional_id), r -> r.topicResults))),
            t -> transform(t.resultsByPartition, p -> p.partitionErrorCode))) AS codes
    FROM calls q LEFT JOIN answers a ON a.run_id = q.run_id AND a.node_id = q.node_id AND a.cause_seq = q.seq)
SELECT * EXCEPT (codes, error),
    if(answer_seq IS NULL, NULL, coalesce(error, try_element_at(filter(codes, each -> each <> 0), 1), 0)) AS code
FROM answered WHERE transactional_id <> ''
""",
    needs=(messages_of(*TRANSACTION_APIS),),
)
"""InitProducerId with a transactional id, AddPartitionsToTxn that adds, AddOffsetsToTxn and EndTxn that brokers received. `partitions` are
those of AddPartitionsToTxn, as text; `given_id` and `given_epoch` are what InitProducerId gave. `code` is null without a response, and the
first code that is not 0 if there is one."""

TXN_MARKERS = View(
    "txn_markers",
    ("rare_fields",),
    f"""
WITH answers AS (
    SELECT run_id, node_id, cause_seq, seq AS answer_seq, marked AS written
    FROM rare_fields WHERE dir IN (1, 3) AND api_key = {ApiKey.WRITE_TXN_MARKERS}),
markers AS (
    SELECT q.run_id, q.node_id, q.process, q.conn_id, q.seq, q.dir, q.client_id, a.answer_seq, a.written, m
    FROM (SELECT * FROM rare_fields LATERAL VIEW explode(markers) AS m
        WHERE dir IN (0, 2) AND api_key = {ApiKey.WRITE_TXN_MARKERS}) q
    LEFT JOIN answers a ON a.run_id = q.run_id AND a.node_id = q.node_id AND a.cause_seq = q.seq),
topics AS (SELECT * EXCEPT (t), t.name AS topic, t.partitionIndexes AS indexes FROM markers LATERAL VIEW explode(m.topics) AS t),
rows AS (SELECT * FROM topics LATERAL VIEW explode(indexes) AS partition)
SELECT run_id, node_id, process, conn_id, seq, dir, client_id, answer_seq, m.producerId AS producer_id, m.producerEpoch AS producer_epoch,
    m.transactionResult AS is_commit, m.coordinatorEpoch AS coordinator_epoch, topic, partition,
    try_element_at(flatten(transform(filter(written, w -> w.producerId = m.producerId),
        w -> flatten(transform(filter(w.topics, t -> t.name = topic),
            t -> transform(filter(t.partitions, p -> p.partitionIndex = partition), p -> p.errorCode))))), 1) AS code
FROM rows
""",
    needs=(messages_of(ApiKey.WRITE_TXN_MARKERS),),
)
"""Partitions in WriteTxnMarkers requests that brokers received (`dir` 0) or sent (`dir` 2); `code` is null without a response."""

TRANSACTIONS_TOLD = View(
    "transactions_told",
    ("txn_calls",),
    f"""
WITH good AS (
    SELECT *,
        coalesce(sum(if(api_key = {ApiKey.END_TXN}, 1, 0)) OVER ({OF_ID} ORDER BY seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0)
            AS number,
        lead(seq) OVER ({OF_ID} ORDER BY seq) AS next_seq, lead(answer_seq) OVER ({OF_ID} ORDER BY seq) AS next_answer_seq
    FROM txn_calls WHERE code = 0),
added AS (
    SELECT run_id, node_id, process, transactional_id, producer_id, producer_epoch, number,
        array_sort(array_distinct(flatten(collect_list(partitions)))) AS partitions,
        count_if(api_key = {ApiKey.ADD_OFFSETS_TO_TXN}) AS groups,
        min(seq) AS seq, min(ts_ns) AS from_ts_ns, max(answer_ts_ns) AS used_ts_ns
    FROM good WHERE api_key IN ({keys(ADDITIONS)}) GROUP BY ALL),
ended AS (
    SELECT run_id, node_id, process, transactional_id, producer_id, producer_epoch, number, is_commit, seq AS end_seq,
        answer_seq AS end_answer_seq, answer_ts_ns AS end_ts_ns, next_seq, next_answer_seq
    FROM good WHERE api_key = {ApiKey.END_TXN}),
fenced AS (
    SELECT a.run_id, a.node_id, a.seq, a.transactional_id, min(g.seq) AS init_seq, min(g.answer_seq) AS init_answer_seq,
        min(g.answer_ts_ns) AS init_ts_ns
    FROM added a JOIN good g ON g.run_id = a.run_id AND g.node_id = a.node_id AND g.process = a.process
        AND g.transactional_id = a.transactional_id AND g.api_key = {ApiKey.INIT_PRODUCER_ID} AND g.seq > a.seq
    GROUP BY a.run_id, a.node_id, a.seq, a.transactional_id)
SELECT a.*, e.is_commit, e.end_seq, e.end_answer_seq, e.end_ts_ns, e.next_seq, e.next_answer_seq, f.init_seq, f.init_answer_seq,
    f.init_ts_ns
FROM added a LEFT JOIN ended e ON e.run_id = a.run_id AND e.node_id = a.node_id AND e.process = a.process
    AND e.transactional_id = a.transactional_id AND e.producer_id = a.producer_id AND e.producer_epoch = a.producer_epoch
    AND e.number = a.number
LEFT JOIN fenced f ON f.run_id = a.run_id AND f.node_id = a.node_id AND f.seq = a.seq AND f.transactional_id = a.transactional_id
""",
    needs=(messages_of(*ADDITIONS),),
)
"""Transactions as one coordinator told them: `partitions` that were added, how often offsets of a group were, and the EndTxn that
succeeded. `next_seq` is the next request of the transactional id that succeeded after it, `next_answer_seq` the response to that, and
`init_seq` the next InitProducerId after the beginning, `init_answer_seq` the response to it."""

PRODUCED = View(
    "txn_batches",
    ("fields", "txn_markers"),
    f"""
WITH answers AS (
    SELECT run_id, node_id, cause_seq, seq AS answer_seq, offsets AS written
    FROM fields WHERE dir = 1 AND api_key = {ApiKey.PRODUCE}),
topics AS (
    SELECT run_id, node_id, process, seq, t FROM fields LATERAL VIEW explode(produced) AS t
    WHERE dir = 0 AND api_key = {ApiKey.PRODUCE} AND transactional_id IS NOT NULL),
rows AS (SELECT run_id, node_id, process, seq, t.name AS topic, p FROM topics LATERAL VIEW explode(t.partitionData) AS p),
batches AS (
    SELECT run_id, node_id, process, seq, topic, p.index AS partition, {BATCH_HEADER.format('p.records.head')} AS header FROM rows),
placed AS (
    SELECT b.run_id, b.node_id, b.process, b.seq, a.answer_seq, b.topic, b.partition,
        try_cast(conv(substring(b.header, 87, 16), 16, 10) AS BIGINT) AS producer_id,
        try_element_at(flatten(transform(filter(a.written, w -> w.name = b.topic),
            w -> transform(filter(w.partitionResponses, r -> r.index = b.partition AND r.errorCode = 0), r -> r.baseOffset))), 1)
            AS base_offset
    FROM batches b JOIN answers a ON a.run_id = b.run_id AND a.node_id = b.node_id AND a.cause_seq = b.seq
    WHERE length(b.header) = 122 AND substring(b.header, 33, 2) = '02')
SELECT p.run_id, p.node_id, p.process, p.seq, p.topic, p.partition, p.producer_id, p.base_offset,
    min(struct(m.seq, m.answer_seq, m.is_commit, m.code)) AS marker
FROM placed p JOIN txn_markers m ON m.run_id = p.run_id AND m.node_id = p.node_id AND m.process = p.process AND m.dir = 0
    AND m.topic = p.topic AND m.partition = p.partition AND m.producer_id = p.producer_id AND m.seq > p.seq
WHERE p.base_offset >= 0 GROUP BY p.run_id, p.node_id, p.process, p.seq, p.topic, p.partition, p.producer_id, p.base_offset
""",
    needs=(messages_of(ApiKey.WRITE_TXN_MARKERS),),
)
"""First batches of transactional Produce requests that succeeded, with the next marker of their producer in the same partition."""

COMMITTED_READS = View(
    "committed_reads",
    ("fields", "partition_state"),
    f"""
WITH asked AS (
    SELECT run_id, node_id, process, conn_id, seq FROM fields WHERE dir = 0 AND api_key = {ApiKey.FETCH} AND isolation_level = 1),
names AS (SELECT DISTINCT run_id, topic_id, topic AS topic_name FROM partition_state WHERE topic_id IS NOT NULL AND topic IS NOT NULL),
topics AS (
    SELECT q.*, a.seq AS answer_seq, a.t AS t
    FROM asked q JOIN (
        SELECT run_id, node_id, cause_seq, seq, t FROM fields LATERAL VIEW explode(records) AS t
        WHERE dir = 1 AND api_key = {ApiKey.FETCH}) a ON a.run_id = q.run_id AND a.node_id = q.node_id AND a.cause_seq = q.seq),
named AS (
    SELECT s.*, coalesce(s.t.topic, n.topic_name) AS topic
    FROM topics s LEFT JOIN names n ON n.run_id = s.run_id AND n.topic_id = s.t.topicId),
rows AS (SELECT * EXCEPT (t) FROM named LATERAL VIEW explode(t.partitions) AS p),
headers AS (SELECT *, {BATCH_HEADER.format('p.records.head')} AS header FROM rows WHERE p.errorCode = 0 AND p.records.size >= 61)
SELECT run_id, node_id, process, conn_id, seq, answer_seq, topic, p.partitionIndex AS partition, p.lastStableOffset AS last_stable_offset,
    coalesce(p.abortedTransactions, array()) AS aborted, p.records.markers AS markers, batch.offset AS base_offset,
    batch.producerId AS producer_id
FROM (
    SELECT *, coalesce(p.records.batches, array(struct(
        try_cast(conv(substring(header, 1, 16), 16, 10) AS BIGINT) AS offset,
        try_cast(conv(substring(header, 87, 16), 16, 10) AS BIGINT) AS producerId))) AS batches
    FROM headers WHERE length(header) = 122 AND substring(header, 33, 2) = '02')
LATERAL VIEW explode(batches) AS batch
""",
    needs=(messages_of(ApiKey.WRITE_TXN_MARKERS),),
)
"""Batches in Fetch responses to consumers with `read_committed`. Only where the run has markers at all."""

VIEWS = (TXN_CALLS, TXN_MARKERS, TRANSACTIONS_TOLD, PRODUCED, COMMITTED_READS)
