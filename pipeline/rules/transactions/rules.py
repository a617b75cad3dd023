"""Rules `T`: transactions, as frames between producers, their coordinator and the leaders of partitions show them."""

from __future__ import annotations

from klamm.pipeline.lake.windows import keys
from klamm.pipeline.rules.record import Rule, messages_of
from klamm.pipeline.rules.transactions.calls import ADDITIONS, CHANGES, REFUSED
from klamm.pipeline.rules.transactions.recoveries import T_06
from klamm.protocol.apis import ApiKey

_OUTCOME = f"""
WITH calls AS (
    SELECT run_id, node_id, seq, ts_ns, api_key, producer_id, producer_epoch, partitions, is_commit
    FROM txn_calls WHERE api_key IN ({keys(CHANGES)}) AND (code IS NULL OR code NOT IN ({REFUSED}))),
added AS (
    SELECT run_id, node_id, producer_id, producer_epoch, '__consumer_offsets' AS name, min(seq) AS seq
    FROM calls WHERE api_key = {ApiKey.ADD_OFFSETS_TO_TXN} GROUP BY run_id, node_id, producer_id, producer_epoch
    UNION ALL SELECT run_id, node_id, producer_id, producer_epoch, name, min(seq)
    FROM calls LATERAL VIEW explode(partitions) AS name WHERE api_key = {ApiKey.ADD_PARTITIONS_TO_TXN}
    GROUP BY run_id, node_id, producer_id, producer_epoch, name),
outcomes AS (
    SELECT run_id, node_id, producer_id, producer_epoch AS begun_epoch, producer_epoch, is_commit, false AS is_fence, min(seq) AS seq
    FROM calls WHERE api_key = {ApiKey.END_TXN} GROUP BY run_id, node_id, producer_id, producer_epoch, is_commit
    -- Who is fenced or too slow has the transaction aborted with the next epoch.
    UNION ALL SELECT run_id, node_id, producer_id, producer_epoch, producer_epoch + 1, false, true, min(seq)
    FROM calls WHERE api_key IN ({keys(ADDITIONS)}) GROUP BY run_id, node_id, producer_id, producer_epoch),
ends AS (
    SELECT run_id, producer_id, producer_epoch, max(struct(ts_ns, node_id, seq)) AS last
    FROM calls WHERE api_key = {ApiKey.END_TXN} GROUP BY run_id, producer_id, producer_epoch),
known AS (
    SELECT run_id, producer_id, producer_epoch, is_commit, collect_list(struct(node_id, seq, is_fence)) AS causes
    FROM outcomes GROUP BY run_id, producer_id, producer_epoch, is_commit),
inside AS (
    SELECT o.run_id, o.producer_id, o.producer_epoch, o.is_commit, a.name, collect_list(struct(a.node_id, a.seq)) AS additions
    FROM (SELECT DISTINCT run_id, producer_id, begun_epoch, producer_epoch, is_commit FROM outcomes) o
    JOIN added a ON a.run_id = o.run_id AND a.producer_id = o.producer_id AND a.producer_epoch = o.begun_epoch
    GROUP BY o.run_id, o.producer_id, o.producer_epoch, o.is_commit, a.name),
given AS (
    SELECT run_id, node_id, given_id, given_epoch, min(answer_seq) AS seq
    FROM txn_calls WHERE api_key = {ApiKey.INIT_PRODUCER_ID} AND code = 0 GROUP BY run_id, node_id, given_id, given_epoch),
-- Where a journal begins in the middle, what a producer did before is known only if its first epoch was given later.
producers AS (
    SELECT c.run_id, c.given_id AS producer_id FROM txn_calls c LEFT JOIN (SELECT DISTINCT run_id FROM midway) y ON y.run_id = c.run_id
    WHERE c.api_key = {ApiKey.INIT_PRODUCER_ID} AND c.code = 0 GROUP BY c.run_id, c.given_id, y.run_id
    HAVING y.run_id IS NULL OR min(c.given_epoch) = 0),
-- Who has a transaction, whatever else is known of it.
named AS (
    SELECT run_id, producer_id FROM txn_calls WHERE api_key IN ({keys(CHANGES)}) AND coalesce(code, 0) = 0
    UNION SELECT run_id, given_id FROM txn_calls WHERE api_key = {ApiKey.INIT_PRODUCER_ID} AND code = 0),
-- Where the transaction topic was created in the run, and all its leaders have whole journals, all ids that were given are known.
told AS (
    SELECT run_id, leader, api_key = {ApiKey.LEADER_AND_ISR} AND is_new AND leader_epoch = 0 AS is_begin FROM partition_state
    WHERE topic = '__transaction_state' AND leader >= 0),
unseen AS (
    SELECT run_id FROM gappy UNION SELECT run_id FROM midway
    UNION SELECT run_id FROM rare_fields WHERE api_key = {ApiKey.INIT_PRODUCER_ID} AND (NOT has_body OR flags & 2 <> 0)
    UNION SELECT run_id FROM txn_calls WHERE api_key = {ApiKey.INIT_PRODUCER_ID} AND code IS NULL
    UNION SELECT t.run_id FROM told t LEFT ANTI JOIN journals j ON j.run_id = t.run_id AND j.node_id = t.leader),
-- A recording of frames between brokers shows no producer.
asking AS (SELECT DISTINCT run_id FROM rare_fields WHERE api_key = {ApiKey.INIT_PRODUCER_ID} AND dir = 0),
seen AS (
    SELECT run_id FROM told LEFT ANTI JOIN unseen USING (run_id) LEFT SEMI JOIN asking USING (run_id)
    GROUP BY run_id HAVING bool_or(is_begin))
SELECT m.run_id, m.node_id, m.conn_id, m.seq,
    -- Rows of one journal have an order: what comes after a marker did not lead to it. A coordinator gives nobody the epoch of a fence.
    CASE WHEN p.producer_id IS NULL
            THEN concat('producer ', m.producer_id, ', epoch ', m.producer_epoch, ': a marker for ', m.topic, '-', m.partition,
                ', and no coordinator gave this producer id')
        WHEN NOT coalesce(exists(k.causes, each -> (each.node_id <> m.node_id OR each.seq < m.seq)
                AND NOT (each.is_fence AND coalesce(g.seq < m.seq, false))), false)
            THEN concat('producer ', m.producer_id, ', epoch ', m.producer_epoch, ': ', if(m.is_commit, 'a commit', 'an abort'),
                ' marker for ', m.topic, '-', m.partition, ' of a transaction that did not end so')
        WHEN NOT coalesce(exists(i.additions, each -> each.node_id <> m.node_id OR each.seq < m.seq), false)
            THEN concat('producer ', m.producer_id, ', epoch ', m.producer_epoch, ': a marker for ', m.topic, '-', m.partition,
                ', which is not in the transaction')
    END AS detail,
    array_compact(array(if(e.last IS NULL, NULL, struct(e.last.node_id AS node_id, e.last.seq AS seq)), struct(m.node_id, m.seq),
        if(m.answer_seq IS NULL, NULL, struct(m.node_id, m.answer_seq AS seq)))) AS evidence
FROM (SELECT *, if(topic = '__consumer_offsets', topic, concat(topic, '-', partition)) AS name FROM txn_markers) m
LEFT JOIN producers p ON p.run_id = m.run_id AND p.producer_id = m.producer_id
LEFT JOIN named n ON n.run_id = m.run_id AND n.producer_id = m.producer_id
LEFT JOIN seen s ON s.run_id = m.run_id
LEFT JOIN known k ON k.run_id = m.run_id AND k.producer_id = m.producer_id AND k.producer_epoch = m.producer_epoch
    AND k.is_commit = m.is_commit
LEFT JOIN inside i ON i.run_id = m.run_id AND i.producer_id = m.producer_id AND i.producer_epoch = m.producer_epoch
    AND i.is_commit = m.is_commit AND i.name = m.name
LEFT JOIN ends e ON e.run_id = m.run_id AND e.producer_id = m.producer_id AND e.producer_epoch = m.producer_epoch
LEFT JOIN given g ON g.run_id = m.run_id AND g.node_id = m.node_id AND g.given_id = m.producer_id AND g.given_epoch = m.producer_epoch
-- Administrators write markers too.
LEFT JOIN peers r ON r.run_id = m.run_id AND r.node_id = m.node_id AND r.process = m.process AND r.conn_id = m.conn_id
WHERE coalesce(r.is_broker, m.dir = 2) AND (p.producer_id IS NOT NULL OR n.producer_id IS NULL AND s.run_id IS NOT NULL)"""

_WRITTEN = "0, 35, 43"
"""Codes after which a partition needs no marker any more."""

_MARKED = f"""
WITH deleted AS (SELECT DISTINCT run_id, topic FROM partition_state WHERE leader = -2),
unsure AS (
    SELECT run_id, node_id FROM rare_fields WHERE api_key = {ApiKey.WRITE_TXN_MARKERS} AND (NOT has_body OR flags & 2 <> 0)
    UNION SELECT run_id, node_id FROM ends WHERE NOT is_gapless
    UNION SELECT run_id, node_id FROM midway),
whole AS (SELECT DISTINCT run_id, node_id FROM journals LEFT ANTI JOIN unsure USING (run_id, node_id) WHERE decoded > 0),
led AS (
    SELECT DISTINCT run_id, concat(topic, '-', partition) AS name, topic, leader FROM partition_state
    WHERE leader >= 0 AND topic IS NOT NULL),
to_itself AS (
    SELECT DISTINCT run_id, node_id FROM txn_markers WHERE dir = 0 AND client_id = concat('broker-', node_id, '-txn-marker-sender')),
told AS (
    SELECT run_id, node_id, seq, leader, leader_epoch, lag(leader) OVER w AS leader_before, lag(leader_epoch) OVER w AS epoch_before
    FROM partition_state WHERE topic = '__transaction_state' AND api_key = {ApiKey.LEADER_AND_ISR} AND dir = 0
    WINDOW w AS (PARTITION BY run_id, node_id, process, partition ORDER BY seq)),
moves AS (
    SELECT run_id, node_id, collect_set(seq) AS moved FROM told
    WHERE leader_before IS NULL OR leader_before <> leader OR epoch_before <> leader_epoch GROUP BY run_id, node_id),
-- The next request of the id succeeds only when all markers are written. Another coordinator between may have written them.
ended AS (
    SELECT t.* FROM transactions_told t LEFT JOIN moves v ON v.run_id = t.run_id AND v.node_id = t.node_id
    WHERE t.is_commit IS NOT NULL AND t.next_seq > t.end_answer_seq
        AND NOT coalesce(exists(v.moved, each -> each > t.end_seq AND each < t.next_answer_seq), false)),
complete AS (
    SELECT run_id, node_id, process, producer_id, producer_epoch, is_commit, end_seq, next_seq, next_answer_seq, name
    FROM ended LATERAL VIEW explode(partitions) AS name),
-- Does the journal of the coordinator show its markers of a partition? A broker of Klamm writes those of its own partitions without a
-- request. The recording of a proxy shows what a broker of Apache Kafka sends to itself, and not what it sends to others.
needed AS (
    SELECT c.*, if(array_contains(l.leaders, c.node_id), i.node_id IS NOT NULL AND size(l.leaders) = 1, s.node_id IS NOT NULL) AS is_shown
    FROM complete c
    JOIN (SELECT run_id, name, collect_set(leader) AS leaders FROM led LEFT ANTI JOIN deleted USING (run_id, topic)
        GROUP BY run_id, name) l ON l.run_id = c.run_id AND l.name = c.name
    LEFT JOIN to_itself i ON i.run_id = c.run_id AND i.node_id = c.node_id
    LEFT JOIN (SELECT DISTINCT run_id, node_id, process FROM txn_markers WHERE dir = 2) s
        ON s.run_id = c.run_id AND s.node_id = c.node_id AND s.process = c.process),
-- If it does, a marker was sent after EndTxn, and its response came before that to the next request.
points AS (
    SELECT run_id, node_id, producer_id, producer_epoch, is_commit, name, next_answer_seq AS at, end_seq, next_seq, NULL AS marker_seq
    FROM needed WHERE is_shown
    UNION ALL SELECT run_id, node_id, producer_id, producer_epoch, is_commit, concat(topic, '-', partition), answer_seq, NULL, NULL, seq
    FROM txn_markers WHERE (dir = 2 OR client_id = concat('broker-', node_id, '-txn-marker-sender')) AND code IN ({_WRITTEN})),
placed AS (
    SELECT *, max(marker_seq) OVER (PARTITION BY run_id, node_id, producer_id, producer_epoch, is_commit, name ORDER BY at
        ROWS UNBOUNDED PRECEDING) AS last_marker FROM points),
-- If not, leaders have got as many markers as transactions of the epoch ended so. Not where one of the leaders has no journal, or none
-- that shows the markers of its own coordinator.
hidden AS (
    SELECT DISTINCT l.run_id, l.name, c.node_id
    FROM led l JOIN (SELECT DISTINCT run_id, node_id FROM complete) c ON c.run_id = l.run_id
    LEFT JOIN whole j ON j.run_id = l.run_id AND j.node_id = l.leader
    LEFT JOIN to_itself i ON i.run_id = l.run_id AND i.node_id = l.leader
    WHERE j.node_id IS NULL OR l.leader = c.node_id AND i.node_id IS NULL),
counted AS (
    SELECT run_id, node_id, producer_id, producer_epoch, is_commit, name, count(*) AS transactions, max(end_seq) AS seq,
        max(next_seq) AS next_seq
    FROM (SELECT * FROM needed WHERE NOT is_shown) LEFT ANTI JOIN hidden USING (run_id, name, node_id)
    -- A recording of clients alone has no marker at all.
    LEFT SEMI JOIN (SELECT DISTINCT run_id FROM txn_markers WHERE dir = 0) USING (run_id)
    GROUP BY run_id, node_id, producer_id, producer_epoch, is_commit, name),
written AS (
    SELECT run_id, producer_id, producer_epoch, is_commit, concat(topic, '-', partition) AS name, count(*) AS markers
    FROM txn_markers WHERE dir = 0 AND coalesce(code, 0) IN ({_WRITTEN}) GROUP BY ALL)
SELECT run_id, node_id, CAST(NULL AS bigint) AS conn_id, end_seq AS seq,
    if(coalesce(last_marker > end_seq, false), NULL, concat('producer ', producer_id, ', epoch ', producer_epoch, ': no ',
        if(is_commit, 'commit', 'abort'), ' marker in ', name, ' before the next request succeeds')) AS detail,
    array(end_seq, next_seq) AS evidence
FROM placed WHERE end_seq IS NOT NULL
UNION ALL
SELECT n.run_id, n.node_id, CAST(NULL AS bigint), n.seq,
    if(coalesce(w.markers, 0) >= n.transactions, NULL, concat('producer ', n.producer_id, ', epoch ', n.producer_epoch, ': ',
        coalesce(w.markers, 0), ' ', if(n.is_commit, 'commit', 'abort'), ' markers in ', n.name, ' for ', n.transactions, ' transactions')
    ),
    array(n.seq, n.next_seq)
FROM counted n LEFT JOIN written w ON w.run_id = n.run_id AND w.producer_id = n.producer_id AND w.producer_epoch = n.producer_epoch
    AND w.is_commit = n.is_commit AND w.name = n.name"""

_EPOCHS = f"""
WITH given AS (SELECT * FROM txn_calls WHERE api_key = {ApiKey.INIT_PRODUCER_ID} AND code = 0),
before AS (
    SELECT g.run_id, g.node_id, g.seq, max(b.answer_seq) AS seq_before,
        max(if(b.given_id = g.given_id, b.given_epoch, NULL)) AS epoch, max_by(b.given_id, b.answer_seq) AS last_id
    FROM given g JOIN given b ON b.run_id = g.run_id AND b.node_id = g.node_id AND b.process = g.process
        AND b.transactional_id = g.transactional_id AND b.answer_seq < g.seq
    GROUP BY g.run_id, g.node_id, g.seq)
SELECT g.run_id, g.node_id, g.conn_id, g.answer_seq AS seq,
    CASE WHEN b.epoch IS NOT NULL AND b.last_id <> g.given_id
            THEN concat('transactional id ', g.transactional_id, ': producer id ', g.given_id, ' again, after ', b.last_id)
        -- Who names the epoch before may repeat the request.
        WHEN g.given_epoch < b.epoch OR g.given_epoch = b.epoch AND g.producer_id < 0
            THEN concat('transactional id ', g.transactional_id, ': epoch ', g.given_epoch, ' of producer ', g.given_id, ' after ', b.epoch)
    END AS detail,
    array_compact(array(b.seq_before, g.seq, g.answer_seq)) AS evidence
FROM given g LEFT JOIN before b ON b.run_id = g.run_id AND b.node_id = g.node_id AND b.seq = g.seq"""

_REPLACED = f"""
WITH given AS (SELECT * FROM txn_calls WHERE api_key = {ApiKey.INIT_PRODUCER_ID} AND code = 0),
before AS (
    SELECT c.run_id, c.node_id, c.seq, c.transactional_id, max(g.answer_seq) AS seq_before,
        max_by(struct(g.given_id, g.given_epoch), g.answer_seq) AS last
    FROM txn_calls c JOIN given g ON g.run_id = c.run_id AND g.node_id = c.node_id AND g.process = c.process
        AND g.transactional_id = c.transactional_id AND g.answer_seq < c.seq
    WHERE c.api_key IN ({keys(CHANGES)}) AND c.code = 0 GROUP BY c.run_id, c.node_id, c.seq, c.transactional_id)
SELECT c.run_id, c.node_id, c.conn_id, c.answer_seq AS seq,
    if(c.producer_id = b.last.given_id AND c.producer_epoch >= b.last.given_epoch OR n.seq IS NOT NULL, NULL,
        concat('transactional id ', c.transactional_id, ': a request of producer ', c.producer_id, ', epoch ', c.producer_epoch,
            ' succeeds after producer ', b.last.given_id, ', epoch ', b.last.given_epoch)) AS detail,
    array(b.seq_before, c.seq, c.answer_seq) AS evidence
FROM before b JOIN txn_calls c ON c.run_id = b.run_id AND c.node_id = b.node_id AND c.seq = b.seq
    AND c.transactional_id = b.transactional_id
-- Another coordinator gave it a newer epoch meanwhile.
LEFT JOIN (
    SELECT c.run_id, c.producer_id, c.producer_epoch, min(g.seq) AS seq FROM txn_calls c JOIN given g ON g.run_id = c.run_id
        AND g.node_id <> c.node_id AND g.given_id = c.producer_id AND g.given_epoch = c.producer_epoch
    GROUP BY c.run_id, c.producer_id, c.producer_epoch) n
    ON n.run_id = c.run_id AND n.producer_id = c.producer_id AND n.producer_epoch = c.producer_epoch"""

_READ = f"""
WITH coordinated AS (SELECT DISTINCT run_id, node_id, producer_id FROM txn_calls WHERE api_key = {ApiKey.END_TXN}),
to_itself AS (
    SELECT DISTINCT run_id, node_id FROM txn_markers WHERE dir = 0 AND client_id = concat('broker-', node_id, '-txn-marker-sender')),
-- A broker of Klamm writes markers of its own coordinator without a request.
batches AS (
    SELECT b.* FROM txn_batches b
    LEFT JOIN coordinated c ON c.run_id = b.run_id AND c.node_id = b.node_id AND c.producer_id = b.producer_id
    LEFT JOIN to_itself i ON i.run_id = b.run_id AND i.node_id = b.node_id
    WHERE b.marker.code = 0 AND (c.producer_id IS NULL OR i.node_id IS NOT NULL)),
reads AS (
    SELECT r.*, b.seq AS produced_seq, b.marker,
        -- What has ended by the same answer, or by a marker before the request.
        coalesce(try_element_at(filter(r.markers, m -> m.producerId = r.producer_id AND m.offset > r.base_offset), 1).isCommit,
            if(r.seq > b.marker.answer_seq, b.marker.is_commit, NULL)) AS is_commit,
        -- The marker of an aborted transaction ends it for what comes behind.
        exists(r.aborted, each -> each.producerId = r.producer_id AND each.firstOffset <= r.base_offset
            AND NOT coalesce(exists(r.markers, m -> m.producerId = r.producer_id AND m.offset > each.firstOffset
                AND m.offset < r.base_offset), false)) AS is_aborted
    FROM committed_reads r LEFT JOIN batches b ON b.run_id = r.run_id AND b.node_id = r.node_id AND b.process = r.process
        AND b.topic = r.topic AND b.partition = r.partition AND b.base_offset = r.base_offset AND b.producer_id = r.producer_id)
SELECT run_id, node_id, conn_id, answer_seq AS seq,
    CASE WHEN base_offset >= last_stable_offset
            THEN concat(topic, '-', partition, ': offset ', base_offset, ' is read, and the last stable offset is ', last_stable_offset)
        WHEN answer_seq < marker.seq AND produced_seq < seq
            THEN concat(topic, '-', partition, ': offset ', base_offset, ' is read before the transaction of producer ', producer_id,
                ' has ended')
        WHEN is_commit AND is_aborted
            THEN concat(topic, '-', partition, ': offset ', base_offset, ' of producer ', producer_id, ' is committed and named as aborted')
        WHEN NOT is_commit AND NOT is_aborted
            THEN concat(topic, '-', partition, ': offset ', base_offset, ' of producer ', producer_id, ' is aborted and not named as such')
    END AS detail,
    array_compact(array(produced_seq, marker.seq, seq, answer_seq)) AS evidence
FROM reads"""

RULES: tuple[Rule, ...] = (
    Rule(
        "T-01", "error", "A marker of a coordinator ends its transaction as the producer asked with EndTxn, or aborts it with the next "
        "epoch; and its partition was added to the transaction. In a run that created the transaction topic a coordinator gave the "
        "producer id.", "wire 13",
        ("txn_markers", "txn_calls", "midway", "gappy", "journals", "rare_fields", "partition_state", "peers"), _OUTCOME,
        about="txn_markers", needs=(messages_of(ApiKey.WRITE_TXN_MARKERS),), is_across=True,
    ),
    Rule(
        "T-02", "error", "When a transactional id is used again after EndTxn, each partition of the transaction has got its marker.",
        "wire 13", ("transactions_told", "txn_markers", "partition_state", "journals", "rare_fields", "ends", "midway"), _MARKED,
        about="transactions_told",
        needs=(messages_of(ApiKey.WRITE_TXN_MARKERS),),
    ),
    Rule(
        "T-03", "error", "The epochs that a coordinator gives to the producer id of a transactional id only grow, but for a repeated "
        "request, and a producer id that was replaced does not come back.", "wire 13", ("txn_calls",), _EPOCHS, about="txn_calls",
        needs=(messages_of(ApiKey.INIT_PRODUCER_ID),),
    ),
    Rule(
        "T-04", "error", "A producer that was replaced by a newer epoch or another producer id adds nothing to a transaction and ends "
        "none.", "wire 13", ("txn_calls",), _REPLACED, about="txn_calls", needs=(messages_of(*CHANGES),),
    ),
    Rule(
        "T-05", "error", "With `read_committed` records below the last stable offset are read: nothing of a transaction before it has "
        "ended, and an aborted one is named as such, a committed one not.", "wire 13",
        ("committed_reads", "txn_batches", "txn_markers", "txn_calls"), _READ, about="committed_reads",
        needs=(messages_of(ApiKey.WRITE_TXN_MARKERS),),
    ),
    T_06,
)
