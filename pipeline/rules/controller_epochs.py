"""Rules `C` about states: leader epochs, partition epochs, ISRs and recovery marks, as brokers were told of them."""

from __future__ import annotations

from klamm.pipeline.rules.record import Need, Rule
from klamm.pipeline.rules.traffic import unless_gaps
from klamm.protocol.apis import ApiKey

C_01 = Rule(
    "C-01", "error", "the leader epoch of a partition never falls at a broker, in LeaderAndIsr and UpdateMetadata that it took",
    "controller 6, 11", ("states", "gappy"),
    unless_gaps("""
    SELECT run_id, node_id, conn_id, seq, CASE
        WHEN leader >= 0 AND leader_epoch BETWEEN -1000000 AND -1
            THEN format_string('%s-%s: leader %s in leader epoch %s', topic, partition, leader, leader_epoch)
        WHEN leader_epoch_before.deletions = deletions AND leader_epoch_before.answer_seq < seq
            AND CAST(leader_epoch_before.epoch AS BIGINT) - leader_epoch BETWEEN 1 AND 2147483647
            THEN format_string('%s-%s: leader epoch %s after %s', topic, partition, leader_epoch, leader_epoch_before.epoch)
        END AS detail, array_compact(array(leader_epoch_before.seq, seq)) AS evidence
    FROM states WHERE error = 0 AND leader <> -2
    """),
)

C_02 = Rule(
    "C-02", "error", "the leader is in the ISR, unless it asked to be left out, and the ISR in the replicas of the request or in the other "
    "ones told last", "controller 5.1, 8, 11.3", ("states", "alters", "gappy"),
    unless_gaps("""
    WITH looked AS (
        SELECT run_id, node_id, conn_id, seq, topic, topic_key, partition, leader, isr, replicas, others,
            leader >= 0 AND NOT array_contains(isr, leader) AS stray_leader,
            leader <> -2 AND size(array_except(isr, array_union(replicas, coalesce(others.replicas, replicas)))) > 0 AS stray_isr
        FROM states),
    first_sights AS (SELECT DISTINCT run_id, topic_key, partition FROM looked WHERE stray_isr AND others IS NULL),
    elsewhere AS (
        SELECT run_id, topic_key, partition, array_distinct(flatten(collect_set(replicas))) AS told_others
        FROM states LEFT SEMI JOIN first_sights USING (run_id, topic_key, partition) GROUP BY ALL),
    asked AS (
        SELECT DISTINCT l.run_id, l.topic_key, l.partition, l.leader, l.isr, true AS is_asked FROM looked l
        JOIN alters a ON a.run_id = l.run_id AND a.partition = l.partition AND a.topic_key IN (l.topic_key, l.topic)
        WHERE l.stray_leader AND size(l.isr) > 0 AND a.result.errorCode = 0 AND a.result.leaderId = l.leader AND a.result.isr = l.isr)
    SELECT run_id, node_id, conn_id, seq, CASE
        WHEN stray_leader AND is_asked IS NULL
            THEN format_string('%s-%s: leader %s is not in ISR %s', topic, partition, leader, to_json(isr))
        WHEN stray_isr AND (others IS NOT NULL OR size(array_except(isr, told_others)) > 0)
            THEN format_string('%s-%s: ISR %s is not in replicas %s', topic, partition, to_json(isr), to_json(replicas))
        END AS detail, array_compact(array(if(stray_isr, others.seq, NULL), seq)) AS evidence
    FROM looked LEFT JOIN elsewhere USING (run_id, topic_key, partition)
    LEFT JOIN asked USING (run_id, topic_key, partition, leader, isr)
    """),
)

C_05 = Rule(
    "C-05", "error", "a conditional write of a state makes the expected partition epoch one higher, a creation 0; it never falls",
    "controller 6.2, 14", ("events", "states", "gappy"),
    unless_gaps("""
    WITH writes AS (
        SELECT run_id, node_id, seq, topic, coalesce(topic_id, topic) AS topic_key, partition, get_json_object(input, '$.op') AS op,
            CAST(get_json_object(input, '$.version') AS INT) AS expected, CAST(get_json_object(output, '$.version') AS INT) AS version
        FROM events
        WHERE kind = 'zk_write' AND partition IS NOT NULL AND get_json_object(output, '$.outcome') = 'OK'
            AND get_json_object(input, '$.op') IN ('create', 'set') AND get_json_object(output, '$.version') IS NOT NULL),
    ordered AS (
        SELECT *, lag(version) OVER (PARTITION BY run_id, node_id, topic_key, partition ORDER BY seq) AS before,
            lag(seq) OVER (PARTITION BY run_id, node_id, topic_key, partition ORDER BY seq) AS seq_before
        FROM writes)
    SELECT run_id, node_id, CAST(NULL AS BIGINT) AS conn_id, seq, CASE
        WHEN op = 'create' AND version <> 0 THEN format_string('%s-%s: created with partition epoch %s', topic, partition, version)
        WHEN op = 'set' AND expected >= 0 AND version <> expected + 1
            THEN format_string('%s-%s: partition epoch %s written over %s', topic, partition, version, expected)
        WHEN op = 'set' AND before > version THEN format_string('%s-%s: partition epoch %s after %s', topic, partition, version, before)
        END AS detail, array_compact(array(seq_before, seq)) AS evidence
    FROM ordered
    UNION ALL
    SELECT run_id, node_id, conn_id, seq,
        if(partition_epoch_before.deletions = deletions AND partition_epoch_before.answer_seq < seq
            AND partition_epoch_before.epoch > partition_epoch,
            format_string('%s-%s: partition epoch %s after %s', topic, partition, partition_epoch, partition_epoch_before.epoch), NULL),
        array_compact(array(partition_epoch_before.seq, seq))
    FROM states WHERE error = 0 AND leader <> -2
    """),
)

C_06 = Rule(
    "C-06", "error", "a partition that recovers has one member in its ISR", "R704-9", ("states", "alters"),
    """
    SELECT run_id, node_id, conn_id, seq,
        if(size(isr) <> 1, format_string('%s-%s recovers with ISR %s', topic, partition, to_json(isr)), NULL) AS detail,
        array_compact(array(if(partition_epoch_before.deletions = deletions, partition_epoch_before.seq, NULL), seq)) AS evidence
    FROM states WHERE recovery = 1
    UNION ALL
    SELECT run_id, node_id, conn_id, answer_seq,
        if(size(result.isr) <> 1, format_string('%s-%s recovers with ISR %s', topic, partition, to_json(result.isr)), NULL),
        array(seq, answer_seq)
    FROM alters WHERE judged AND api_version >= 1 AND result.errorCode = 0 AND result.leaderRecoveryState = 1
    """,
)

C_07 = Rule(
    "C-07", "error", "an unclean election writes the mark (IBP 3.2), the leader as the only ISR member, and the next leader epoch",
    "R704-1", ("partition_epochs",),
    """
    SELECT run_id, first.node_id AS node_id, first.conn_id AS conn_id, first.seq AS seq,
        if(isr <> array(leader) OR leader_epoch <> leader_epoch_before + 1 OR recovery = 0,
            format_string('%s-%s: leader %s from outside ISR %s has ISR %s, leader epoch %s after %s, mark %s', topic, partition, leader,
                to_json(isr_before), to_json(isr), leader_epoch, leader_epoch_before, recovery), NULL) AS detail,
        array(struct(first_before.node_id AS node_id, first_before.seq AS seq),
            struct(first.node_id AS node_id, first.seq AS seq)) AS evidence
    FROM partition_epochs
    WHERE epoch_before = partition_epoch - 1 AND leader >= 0 AND leader <> leader_before AND NOT array_contains(isr_before, leader)
    """,
    is_across=True,
)

_SAME_PARTITION = "a.run_id = e.run_id AND a.partition = e.partition AND a.topic_key IN (e.topic_key, e.topic)"

C_08 = Rule(
    "C-08", "error", "only AlterPartition clears the recovery mark", "R704-3", ("partition_epochs", "alters", "journals", "gappy"),
    unless_gaps(f"""
    WITH marked AS (
        SELECT e.* FROM partition_epochs e
        JOIN (SELECT DISTINCT run_id, node_id FROM journals) j ON e.run_id = j.run_id AND e.controller_id = j.node_id
        WHERE recovery IS NOT NULL AND mark_before.recovery = 1),
    cleared AS (
        SELECT DISTINCT e.run_id, e.topic_key, e.partition, e.partition_epoch FROM marked e JOIN alters a ON {_SAME_PARTITION}
        WHERE a.answer_seq IS NULL AND a.partition_epoch < e.partition_epoch
            OR a.result.errorCode = 0 AND a.result.partitionEpoch > e.mark_before.partition_epoch
                AND a.result.partitionEpoch <= e.partition_epoch)
    SELECT e.run_id, e.first.node_id AS node_id, e.first.conn_id AS conn_id, e.first.seq AS seq,
        if(e.recovery = 0 AND c.partition_epoch IS NULL,
            format_string('%s-%s recovers no more in partition epoch %s without AlterPartition', e.topic, e.partition, e.partition_epoch),
            NULL) AS detail,
        array(struct(e.mark_before.first.node_id AS node_id, e.mark_before.first.seq AS seq),
            struct(e.first.node_id AS node_id, e.first.seq AS seq)) AS evidence
    FROM marked e LEFT JOIN cleared c ON c.run_id = e.run_id AND c.topic_key = e.topic_key AND c.partition = e.partition
        AND c.partition_epoch = e.partition_epoch
    """, of="run"),
    needs=(Need("partition_state", "recovery", frozenset({1})),), is_across=True,
)

C_17 = Rule(
    "C-17", "error", "a new partition has leader epoch 0, its online replicas in order as ISR, and the first of them as leader",
    "controller 5.1", ("states",),
    f"""
    WITH created AS (
        SELECT *, next_update.partition_epoch = 0 AND next_update.controller_epoch = controller_epoch
            AND next_update.broker_epoch = broker_epoch AND next_update.offline IS NOT NULL AS is_known,
            filter(replicas, each -> NOT array_contains(next_update.offline, each)) AS online
        FROM states WHERE api_key = {ApiKey.LEADER_AND_ISR} AND is_new AND partition_epoch = 0)
    SELECT run_id, node_id, conn_id, seq, CASE
        WHEN leader_epoch <> 0 THEN format_string('%s-%s is new with leader epoch %s', topic, partition, leader_epoch)
        WHEN is_known AND (isr <> online OR leader <> try_element_at(online, 1))
            THEN format_string('%s-%s is new with leader %s and ISR %s, and %s are online', topic, partition, leader, to_json(isr),
                to_json(online))
        END AS detail, array_compact(array(seq, next_update.seq)) AS evidence
    FROM created
    """,
)

_LATER = "if(least.ts_ns > most.ts_ns, least.{0}, most.{0})"
_PLACE = ", ".join(f"if(differs, {_LATER.format(name)}, first.{name}) AS {name}" for name in ("node_id", "conn_id", "seq"))
"""SQL: where frames disagree about one thing, the place of the later of the two, else that of the first frame."""

C_18 = Rule(
    "C-18", "error", "a partition has one leader in a leader epoch", "controller 6.2, 8", ("partition_epochs",),
    f"""
    SELECT run_id, {_PLACE},
        if(differs,
            format_string('%s-%s: leader %s by seq %s of broker %s, and leader %s by seq %s of broker %s, in leader epoch %s', topic,
                partition, least.leader, least.seq, least.node_id, most.leader, most.seq, most.node_id, leader_epoch), NULL) AS detail,
        array(struct(least.node_id AS node_id, least.seq AS seq), struct(most.node_id AS node_id, most.seq AS seq)) AS evidence
    FROM (
        SELECT *, least.leader <> most.leader AS differs FROM (
            SELECT run_id, topic_key, partition, leader_epoch, any_value(topic) AS topic, max(first) AS first,
                min(struct(least.leader AS leader, least.ts_ns, least.node_id, least.seq, least.conn_id)) AS least,
                max(struct(most.leader AS leader, most.ts_ns, most.node_id, most.seq, most.conn_id)) AS most
            FROM partition_epochs GROUP BY run_id, topic_key, partition, leader_epoch))
    """,
    is_across=True,
)

C_19 = Rule(
    "C-19", "error", "a partition epoch means one state; with the next one the leader epoch rises by one, or AlterPartition was there",
    "controller 6.2, 8, 14", ("partition_epochs", "alters", "journals", "gappy"),
    unless_gaps(f"""
    WITH looked AS (
        SELECT e.*, leader <> leader_most OR leader_epoch <> leader_epoch_most OR isr <> isr_most OR recovery <> recovery_most AS differs,
            partition_epoch - epoch_before AS writes, CAST(leader_epoch AS BIGINT) - leader_epoch_before AS elections,
            j.node_id IS NOT NULL AND lowest_version >= 5 AS alters_are_journaled
        FROM partition_epochs e
        LEFT JOIN (SELECT DISTINCT run_id, node_id FROM journals) j ON e.run_id = j.run_id AND e.controller_id = j.node_id),
    unexplained AS (SELECT * FROM looked WHERE writes = 1 AND elections = 0 AND alters_are_journaled),
    explained AS (
        SELECT DISTINCT e.run_id, e.topic_key, e.partition, e.partition_epoch FROM unexplained e JOIN alters a ON {_SAME_PARTITION}
        WHERE a.answer_seq IS NULL OR a.result.errorCode = 0 AND a.result.partitionEpoch = e.partition_epoch)
    SELECT l.run_id, {_PLACE}, CASE
        WHEN differs
            THEN concat(format_string('%s-%s: leader, leader epoch, ISR and mark are %s, %s, %s, %s by seq %s of broker %s', topic,
                l.partition, least.leader, least.leader_epoch, to_json(least.isr), least.recovery, least.seq, least.node_id),
                format_string(' and %s, %s, %s, %s by seq %s of broker %s, in partition epoch %s', most.leader, most.leader_epoch,
                to_json(most.isr), most.recovery, most.seq, most.node_id, l.partition_epoch))
        WHEN elections > writes OR elections < 0 AND elections > -2147483648
            THEN format_string('%s-%s: leader epoch %s after %s, partition epoch %s after %s', topic, l.partition, leader_epoch,
                leader_epoch_before, l.partition_epoch, epoch_before)
        WHEN writes = 1 AND elections = 0 AND alters_are_journaled AND x.partition_epoch IS NULL
            THEN format_string('%s-%s: partition epoch %s with the same leader epoch, without AlterPartition', topic, l.partition,
                l.partition_epoch)
        END AS detail, array_compact(if(differs,
            array(struct(least.node_id AS node_id, least.seq AS seq), struct(most.node_id AS node_id, most.seq AS seq)),
            array(if(l.first_before IS NULL, NULL, struct(l.first_before.node_id AS node_id, l.first_before.seq AS seq)),
                struct(l.first.node_id AS node_id, l.first.seq AS seq)))) AS evidence
    FROM looked l LEFT JOIN explained x ON l.run_id = x.run_id AND l.topic_key = x.topic_key AND l.partition = x.partition
        AND l.partition_epoch = x.partition_epoch
    """, of="run"),
    is_across=True,
)

C_21 = Rule(
    "C-21", "error", "AlterPartition accepted: the sender leads with leader epoch and ISR of its request, and the partition epoch is the "
    "next one, or the present one where nothing changed; refused: zeros", "controller 14", ("alters", "events", "gappy"),
    # Where a write followed from the request its journal says what was written: without one the present state may be any later one.
    unless_gaps("""
    WITH taken AS (
        SELECT run_id, node_id, seq AS event_seq, cause_seq AS seq FROM events
        WHERE kind = 'controller_event' AND cause_seq IS NOT NULL AND get_json_object(input, '$.name') LIKE 'AlterPartition%'),
    wrote AS (
        SELECT t.run_id, t.node_id, t.seq, coalesce(w.topic_id, w.topic) AS topic_key, w.partition, max(w.partition_epoch) AS written,
            max(w.seq) AS written_seq
        FROM taken t JOIN events w ON w.run_id = t.run_id AND w.node_id = t.node_id AND w.cause_seq = t.event_seq
        WHERE w.kind = 'zk_write' AND w.partition IS NOT NULL AND get_json_object(w.output, '$.outcome') = 'OK'
            OR w.kind = 'reassign_phase'
        -- A reassignment that completes in the same event writes more.
        GROUP BY ALL HAVING NOT bool_or(w.kind = 'reassign_phase')),
    compared AS (
        SELECT *, result.errorCode = 0 AND (written <> result.partitionEpoch OR written <> partition_epoch + 1) AS differs
        FROM alters LEFT JOIN wrote USING (run_id, node_id, seq, topic_key, partition) WHERE judged AND result IS NOT NULL),
    -- An event may answer several requests: then it wrote what one of them asked for.
    shared AS (
        SELECT DISTINCT c.run_id, c.node_id, c.seq, c.topic_key, c.partition, true AS is_shared FROM compared c
        JOIN alters o ON o.run_id = c.run_id AND o.node_id = c.node_id AND o.topic_key = c.topic_key AND o.partition = c.partition
        WHERE c.differs AND o.seq <> c.seq AND o.seq < c.answer_seq AND coalesce(o.answer_seq, c.answer_seq) > c.seq)
    SELECT run_id, node_id, conn_id, answer_seq AS seq, CASE
        WHEN result.errorCode <> 0
                AND (result.leaderId <> 0 OR result.leaderEpoch <> 0 OR result.partitionEpoch <> 0 OR size(result.isr) > 0)
            THEN format_string('%s-%s is refused with <error %s> and has a state', topic, partition, result.errorCode)
        WHEN result.errorCode = 0 AND (result.leaderId <> broker_id OR result.leaderEpoch <> leader_epoch OR result.isr <> isr)
            THEN format_string('%s-%s: leader %s, leader epoch %s, ISR %s in response to %s, %s, %s', topic, partition, result.leaderId,
                result.leaderEpoch, to_json(result.isr), broker_id, leader_epoch, to_json(isr))
        WHEN result.errorCode = 0 AND result.partitionEpoch < partition_epoch
            THEN format_string('%s-%s: partition epoch %s in response to %s', topic, partition, result.partitionEpoch, partition_epoch)
        WHEN differs AND is_shared IS NULL
            THEN format_string('%s-%s: partition epoch %s in response to %s, and %s was written', topic, partition,
                result.partitionEpoch, partition_epoch, written)
        END AS detail, array_compact(array(seq, if(differs, written_seq, NULL), answer_seq)) AS evidence
    FROM compared LEFT JOIN shared USING (run_id, node_id, seq, topic_key, partition)
    """),
    about="alters",
)

EPOCH_RULES: tuple[Rule, ...] = (C_01, C_02, C_05, C_06, C_07, C_08, C_17, C_18, C_19, C_21)
