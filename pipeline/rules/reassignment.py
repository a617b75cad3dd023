"""Rules `R`: reassignments step by step, and the throttles that requests set for them (KIP-455, KIP-179)."""

from __future__ import annotations

from klamm.pipeline.rules.record import Need, Rule, View, events_of, rows_at
from klamm.pipeline.rules.traffic import unless_gaps
from klamm.protocol.apis import ApiKey

_PATHS = "('/admin/throttled_replicas_removal', '/admin/throttled_rates_removal')"
_THROTTLES = "array('leader.replication.throttled.rate', 'follower.replication.throttled.rate', " \
    "'leader.replication.throttled.replicas', 'follower.replication.throttled.replicas')"

PATIENCE_NS = 30_000_000_000
"""A controller that has gone on for so long after the last reassignment ended has had the time to remove throttles."""

THROTTLING = View(
    "throttling",
    ("events",),
    f"""
    WITH chosen AS (
        SELECT run_id, node_id, seq, ts_ns, cause_seq, controller_epoch, topic, broker, partition, kind AS event,
            get_json_object(input, '$.path') AS znode, get_json_object(input, '$.op') AS op, input, output
        FROM events
        WHERE kind IN ('throttle_set', 'throttle_removed', 'throttle_step', 'controller_elected', 'controller_resigned', 'event_failed',
                'topic_removed')
            OR kind = 'reassign_phase' AND get_json_object(output, '$.phase') LIKE 'B%'
            OR kind = 'assignment' AND (get_json_object(output, '$.adding') <> '[]' OR get_json_object(output, '$.removing') <> '[]')
            OR kind = 'config_change' AND get_json_object(input, '$.entity_type') IN ('topics', 'brokers')
                AND arrays_overlap(from_json(get_json_object(output, '$.keys'), 'array<string>'), {_THROTTLES})
            OR kind = 'zk_write' AND partition IS NULL AND get_json_object(output, '$.outcome') = 'OK'
                AND (get_json_object(input, '$.path') IN ('/admin/reassign_partitions', {_PATHS[1:-1]})
                    OR get_json_object(input, '$.op') = 'delete' AND get_json_object(input, '$.path') = concat('/config/topics/', topic))),
    points AS (
        SELECT run_id, node_id, seq, ts_ns, cause_seq, controller_epoch, topic, partition,
            CASE WHEN znode IN {_PATHS} THEN 'named' WHEN znode = '/admin/reassign_partitions' THEN 'moves'
                WHEN znode IS NOT NULL THEN 'deleted' ELSE event END AS kind,
            CASE WHEN znode IN {_PATHS} THEN znode
                WHEN event IN ('throttle_set', 'throttle_removed') AND topic IS NULL THEN '/admin/throttled_rates_removal'
                WHEN event IN ('throttle_set', 'throttle_removed') OR znode LIKE '/config/topics/%' THEN '/admin/throttled_replicas_removal'
            END AS path,
            CASE WHEN znode IN {_PATHS} THEN if(op = 'delete', CAST(array() AS ARRAY<STRING>),
                from_json(get_json_object(input, '$.names'), 'array<string>')) END AS names,
            if(event = 'config_change', get_json_object(input, '$.entity'), coalesce(topic, CAST(broker AS STRING))) AS entity,
            op = 'delete' AS is_deletion
        FROM chosen)
    SELECT *, last_value(if(kind = 'named', struct(names, node_id, seq), NULL), true) OVER (PARTITION BY run_id, path
            ORDER BY controller_epoch, seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before,
        first_value(if(kind IN ('named', 'throttle_step'), kind, NULL), true) OVER (PARTITION BY run_id, node_id, cause_seq
            ORDER BY seq ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING) AS next
    FROM points
    """,
)
"""What is to be known of throttles and of the end of reassignments. `kind`: `named` is a write of a removal znode, with `names`; `deleted`
that of a topic's config, `moves` that of /admin/reassign_partitions; else the kind of the event. `before` is the write of the same znode
that stands, `next` whether a step of a request or a write of a removal znode follows from the same event."""

R_01 = Rule(
    "R-01", "error", "when the last reassignment has ended the throttles that are named in the removal znodes go before their names do, "
    "and no others", "R179-16, R179-24, R179-25, R179-27", ("throttling", "ends", "gappy"),
    # The order of what controllers do is that of their epochs, then that of their rows. A throttle that a request removes is followed by
    # the row of its step, one that goes because all has ended by the write of the znode. Whether somebody else changed a throttle between
    # is seen by the notifications: there are more of them than changes of controllers.
    unless_gaps(f"""
    WITH lives AS (SELECT run_id, node_id, max(last_ts_ns) AS last_ts_ns FROM ends GROUP BY run_id, node_id),
    touched AS (
        SELECT run_id, entity FROM (
            SELECT run_id, entity, node_id, kind = 'config_change' AS is_notified, count(*) AS n FROM throttling
            WHERE kind IN ('config_change', 'throttle_set', 'throttle_removed') GROUP BY ALL)
        GROUP BY run_id, entity
        HAVING max(if(is_notified, n, 0)) > coalesce(sum(if(is_notified, NULL, n)), 0)),
    left_over AS (
        SELECT d.run_id, d.node_id, d.seq, d.path, d.entity,
            max_by(struct(c.kind, c.seq, c.node_id), struct(c.controller_epoch, c.seq)) AS last
        FROM (
            SELECT run_id, node_id, seq, controller_epoch, path, explode(array_except(before.names, names)) AS entity
            FROM throttling WHERE kind = 'named' AND (size(names) > 0 OR next IS NULL OR next <> 'throttle_step')) d
        JOIN throttling c ON d.run_id = c.run_id AND d.path = c.path AND d.entity = c.entity AND c.kind <> 'named'
            AND struct(c.controller_epoch, c.seq) < struct(d.controller_epoch, d.seq)
        LEFT ANTI JOIN touched t ON d.run_id = t.run_id AND d.entity = t.entity GROUP BY ALL),
    failed AS (
        SELECT DISTINCT run_id, node_id, cause_seq, true AS has_failed FROM throttling
        WHERE kind IN ('event_failed', 'controller_resigned')),
    terms AS (
        SELECT run_id, max(struct(controller_epoch, node_id, seq)) AS newest FROM throttling WHERE kind = 'controller_elected'
        GROUP BY run_id),
    since AS (
        SELECT p.* FROM throttling p JOIN terms t ON p.run_id = t.run_id AND p.node_id = t.newest.node_id AND p.seq >= t.newest.seq),
    ongoing AS (
        SELECT DISTINCT a.run_id FROM since a
        LEFT JOIN since b ON a.run_id = b.run_id AND b.seq > a.seq AND (b.kind = 'topic_removed' AND a.topic = b.topic
            OR b.kind = 'reassign_phase' AND a.topic = b.topic AND a.partition = b.partition
            OR b.kind = 'moves' AND a.kind = 'moves')
        WHERE (a.kind = 'assignment' OR a.kind = 'moves' AND NOT a.is_deletion) AND b.seq IS NULL),
    standing AS (
        SELECT run_id, path, max_by(struct(node_id, seq, controller_epoch, names, next), struct(controller_epoch, seq)) AS w
        FROM throttling WHERE kind = 'named' GROUP BY run_id, path),
    later AS (
        SELECT s.run_id, s.path, s.w, e.node_id, e.seq, e.ts_ns, e.kind, e.kind IN ('event_failed', 'controller_resigned') AS is_end
        FROM standing s JOIN since e ON s.run_id = e.run_id AND struct(e.controller_epoch, e.seq) > struct(s.w.controller_epoch, s.w.seq)
        WHERE size(s.w.names) > 0 AND s.w.next = 'throttle_step' AND e.kind IN ('controller_elected', 'reassign_phase', 'assignment',
            'throttle_step', 'event_failed', 'controller_resigned')),
    timed AS (SELECT *, max(if(is_end, NULL, ts_ns)) OVER (PARTITION BY run_id, path) AS last_ns FROM later),
    -- A controller that ended, or whose event failed, has had no time to remove them; one that ends long after has.
    triggers AS (
        SELECT run_id, path, w, any_value(node_id) AS controller_id, max(last_ns) AS ts_ns,
            max(if(kind IN ('controller_elected', 'reassign_phase'), struct(ts_ns, node_id, seq), NULL)) AS ended,
            count_if(is_end AND ts_ns <= last_ns + {PATIENCE_NS}) AS ends, count_if(kind IN ('controller_elected', 'reassign_phase')) AS n
        FROM timed GROUP BY run_id, path, w)
    SELECT p.run_id, p.node_id, CAST(NULL AS BIGINT) AS conn_id, p.seq, CASE
        WHEN p.kind = 'named' AND l.last.kind = 'throttle_set'
            THEN format_string('%s names %s no more, which is still throttled', p.path, l.entity)
        WHEN p.kind = 'throttle_removed' AND NOT array_contains(p.before.names, p.entity)
            THEN format_string('the throttle of %s is removed, and %s does not name it', p.entity, p.path)
        WHEN p.kind = 'throttle_removed' AND p.before IS NULL AND p.next IS NULL AND has_failed IS NULL
                AND e.last_ts_ns > p.ts_ns + {PATIENCE_NS}
            THEN format_string('the throttle of %s is removed, and there is no %s', p.entity, p.path)
        END AS detail,
        {rows_at(("p.before.node_id", "p.before.seq"), "if(p.kind = 'named', NULL, p.cause_seq)", ("l.last.node_id", "l.last.seq"),
            "p.seq", node="p.node_id")} AS evidence
    FROM throttling p JOIN lives e ON p.run_id = e.run_id AND p.node_id = e.node_id
    LEFT JOIN left_over l ON p.run_id = l.run_id AND p.node_id = l.node_id AND p.seq = l.seq
    LEFT JOIN failed f ON p.run_id = f.run_id AND p.node_id = f.node_id AND p.cause_seq = f.cause_seq
    WHERE p.kind = 'named' AND p.before IS NOT NULL
        OR p.kind = 'throttle_removed' AND (p.next IS NULL OR p.next <> 'throttle_step')
    UNION ALL
    SELECT g.run_id, g.w.node_id, NULL, g.w.seq,
        if(o.run_id IS NULL AND g.n > 0 AND g.ends = 0 AND e.last_ts_ns > g.ts_ns + {PATIENCE_NS},
            format_string('no reassignment is ongoing, and %s still names %s', g.path, array_join(g.w.names, ', ')), NULL),
        {rows_at(("g.w.node_id", "g.w.seq"), ("g.ended.node_id", "g.ended.seq"))}
    FROM triggers g JOIN lives e ON g.run_id = e.run_id AND e.node_id = g.controller_id
    LEFT JOIN ongoing o ON g.run_id = o.run_id
    """, of="run"),
    needs=(events_of("throttle_removed"), Need("events", "input", part="/admin/throttled_")), is_across=True,
)

R_02 = Rule(
    "R-02", "error", "the phases of a step are in the order U, A1, A2 or U, B1 to B9, and none is left out behind A1 or B1; the topic "
    "znode is not written after B6", "controller 11.3", ("reassign", "events", "gappy"),
    unless_gaps("""
    WITH phases AS (
        SELECT run_id, node_id, process, seq, controller_epoch, cause_seq, topic, partition, step, phase,
            CASE substring(phase, 1, 1) WHEN 'U' THEN 0 WHEN 'A' THEN CAST(substring(phase, 2) AS INT)
                ELSE 10 + CAST(substring(phase, 2) AS INT) END AS rank
        FROM reassign WHERE kind = 'reassign_phase' AND phase IS NOT NULL),
    ordered AS (
        SELECT *, lag(rank) OVER w AS rank_before, lag(phase) OVER w AS phase_before, lag(seq) OVER w AS seq_before,
            lag(rank) OVER t AS rank_in_term, lag(phase) OVER t AS phase_in_term, lag(seq) OVER t AS seq_in_term
        FROM phases
        WINDOW w AS (PARTITION BY run_id, node_id, process, controller_epoch, topic, partition, step ORDER BY seq),
            t AS (PARTITION BY run_id, node_id, process, controller_epoch, topic, partition ORDER BY seq)),
    ends AS (
        SELECT run_id, node_id, cause_seq, topic, max(if(phase = 'B6', seq, NULL)) AS completed, max(if(phase = 'U', seq, NULL)) AS begun
        FROM phases GROUP BY ALL HAVING completed IS NOT NULL)
    SELECT run_id, node_id, CAST(NULL AS BIGINT) AS conn_id, seq, CASE
        WHEN rank <= rank_before OR rank_before IN (1, 2) AND rank > 10
            THEN format_string('%s-%s: %s after %s', topic, partition, phase, phase_before)
        -- A step that was held goes on in a later one, where it was.
        WHEN (rank = 2 OR rank > 11) AND rank_in_term <> rank - 1
            THEN format_string('%s-%s: %s after %s', topic, partition, phase, phase_in_term)
        END AS detail,
        array_compact(array(coalesce(seq_before, seq_in_term), seq)) AS evidence
    FROM ordered
    UNION ALL
    SELECT e.run_id, e.node_id, NULL, coalesce(w.seq, e.completed),
        if(w.seq IS NOT NULL, format_string('the znode of topic %s is written after B6', e.topic), NULL),
        array_compact(array(e.completed, w.seq))
    FROM ends e LEFT JOIN (SELECT * FROM events WHERE kind = 'zk_write' AND partition IS NULL) w
        ON e.run_id = w.run_id AND e.node_id = w.node_id AND e.cause_seq = w.cause_seq AND w.seq > e.completed
            AND get_json_object(w.input, '$.path') = concat('/brokers/topics/', e.topic) AND get_json_object(w.input, '$.op') = 'set'
            AND (e.begun IS NULL OR w.seq > e.begun)
    """),
    needs=(events_of("reassign_phase"),),
)

R_03 = Rule(
    "R-03", "error", "a request that sets throttles does its steps in order, each after the end of the one before; one that moves "
    "partitions leaves out none, but 2 and 4 without remove_throttle, or all before 6 without a throttle", "R179-5, R179-6, R179-7",
    ("reassign", "gappy"),
    unless_gaps("""
    WITH steps AS (
        SELECT run_id, node_id, process, controller_epoch, request, CAST(get_json_object(output, '$.step') AS INT) AS step,
            get_json_object(output, '$.of') = 'ReassignPartitions' AS moves, min(seq) AS first, max(seq) AS last
        FROM reassign WHERE kind = 'throttle_step' GROUP BY ALL),
    ordered AS (
        SELECT *, lag(last) OVER w AS last_before, lag(step) OVER w AS step_before FROM steps
        WINDOW w AS (PARTITION BY run_id, node_id, process, controller_epoch, request ORDER BY step))
    SELECT run_id, node_id, CAST(NULL AS BIGINT) AS conn_id, first AS seq,
        if(last_before > first, format_string('step %s of request %s before step %s has ended', step, request,
            step_before), NULL) AS detail,
        array(last_before, first) AS evidence
    FROM ordered WHERE last_before IS NOT NULL
    UNION ALL
    SELECT run_id, node_id, NULL, max(last),
        if(array_sort(collect_set(step)) NOT IN (array(6), array(3, 5, 6), array(2, 3, 4, 5, 6)),
            format_string('request %s moves partitions after the steps %s alone', request, to_json(array_sort(collect_set(step)))), NULL),
        array_sort(collect_set(last))
    FROM steps WHERE moves GROUP BY run_id, node_id, process, controller_epoch, request HAVING max(step) = 6
    """),
    needs=(events_of("throttle_step"),),
)

R_04 = Rule(
    "R-04", "error", "replicas are the target and then the rest of the origin while replicas are added or removed, and have all of these",
    "controller 1",
    ("states", "reassign"),
    f"""
    WITH moving AS (
        SELECT run_id, node_id, conn_id, seq, topic, partition, replicas, adding, removing, others.seq AS others_seq FROM states
        WHERE api_key = {ApiKey.LEADER_AND_ISR} AND (size(adding) > 0 OR size(removing) > 0)
        UNION ALL
        SELECT * FROM (
            SELECT run_id, node_id, NULL, seq, topic, partition, replicas, adding, removing,
                lag(seq) OVER (PARTITION BY run_id, node_id, topic, partition ORDER BY seq)
            FROM reassign WHERE kind = 'assignment')
        WHERE size(adding) > 0 OR size(removing) > 0)
    SELECT run_id, node_id, CAST(conn_id AS BIGINT) AS conn_id, seq,
        if(replicas <> array_union(array_except(replicas, removing), array_except(replicas, adding))
                OR size(array_except(array_union(adding, removing), replicas)) > 0,
            format_string('%s-%s: replicas %s with %s added and %s removed', topic, partition, to_json(replicas), to_json(adding),
                to_json(removing)), NULL) AS detail, array_compact(array(others_seq, seq)) AS evidence
    FROM moving
    """,
)

VIEWS = (THROTTLING,)

RULES: tuple[Rule, ...] = (R_01, R_02, R_03, R_04)
