"""Rules `R`: reassignments step by step, and the throttles that requests set for them (KIP-455, KIP-179)."""

from __future__ import annotations

from klamm.pipeline.rules.record import Need, Rule, events_of

_PATHS = "('/admin/throttled_replicas_removal', '/admin/throttled_rates_removal')"
_PATH = "if(topic IS NOT NULL, '/admin/throttled_replicas_removal', '/admin/throttled_rates_removal')"
_THROTTLES = "array('leader.replication.throttled.rate', 'follower.replication.throttled.rate', " \
    "'leader.replication.throttled.replicas', 'follower.replication.throttled.replicas')"

PATIENCE_NS = 30_000_000_000
"""A controller that has gone on for so long after the last reassignment ended has had the time to remove throttles."""

R_01 = Rule(
    "R-01", "error", "when the last reassignment has ended the throttles that are named in the removal znodes go before their names do, "
    "and no others", "R179-16, R179-24, R179-25, R179-27", ("events", "reassign"),
    # The order of what controllers do is that of their epochs, then that of their rows. A throttle that a request removes is followed by
    # the row of its step, one that goes because all has ended by the write of the znode. Whether somebody else changed a throttle between
    # is seen by the notifications: there are more of them than changes of controllers.
    f"""
    WITH writes AS (
        SELECT run_id, node_id, seq, ts_ns, cause_seq, controller_epoch, get_json_object(input, '$.path') AS path,
            if(get_json_object(input, '$.op') = 'delete', CAST(array() AS ARRAY<STRING>),
                from_json(get_json_object(input, '$.names'), 'array<string>')) AS names, 'named' AS kind, CAST(NULL AS STRING) AS entity
        FROM events
        WHERE kind = 'zk_write' AND get_json_object(input, '$.path') IN {_PATHS} AND get_json_object(output, '$.outcome') = 'OK'),
    changes AS (
        SELECT run_id, node_id, seq, ts_ns, cause_seq, controller_epoch, {_PATH} AS path, CAST(NULL AS ARRAY<STRING>) AS names, kind,
            coalesce(topic, CAST(broker AS STRING)) AS entity
        FROM events WHERE kind IN ('throttle_set', 'throttle_removed') AND (topic IS NOT NULL OR broker IS NOT NULL)
        UNION ALL
        SELECT run_id, node_id, seq, ts_ns, cause_seq, controller_epoch, '/admin/throttled_replicas_removal', NULL, 'deleted', topic
        FROM events
        WHERE kind = 'zk_write' AND topic IS NOT NULL AND get_json_object(input, '$.path') = concat('/config/topics/', topic)
            AND get_json_object(input, '$.op') = 'delete' AND get_json_object(output, '$.outcome') = 'OK'),
    marks AS (
        SELECT run_id, node_id, seq, ts_ns, cause_seq, controller_epoch, CAST(NULL AS STRING) AS path, CAST(NULL AS ARRAY<STRING>) AS names,
            kind, CAST(NULL AS STRING) AS entity
        FROM events WHERE kind = 'throttle_step'),
    points AS (
        SELECT *, last_value(if(kind = 'named', struct(names, node_id, seq), NULL), true) OVER (PARTITION BY run_id, path
                ORDER BY controller_epoch, seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before,
            first_value(if(kind IN ('named', 'throttle_step'), struct(kind, path), NULL), true) OVER (
                PARTITION BY run_id, node_id, cause_seq ORDER BY seq ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING) AS next
        FROM (SELECT * FROM writes UNION ALL SELECT * FROM changes UNION ALL SELECT * FROM marks)),
    ends AS (SELECT run_id, node_id, max(seq) AS last, max(ts_ns) AS last_ts_ns FROM events GROUP BY run_id, node_id),
    failed AS (SELECT DISTINCT run_id, node_id, cause_seq FROM events WHERE kind IN ('event_failed', 'controller_resigned')),
    notified AS (
        SELECT run_id, entity, max(n) AS notifications FROM (
            SELECT run_id, node_id, get_json_object(input, '$.entity') AS entity, count(*) AS n FROM events
            WHERE kind = 'config_change' AND get_json_object(input, '$.entity_type') IN ('topics', 'brokers')
                AND arrays_overlap(from_json(get_json_object(output, '$.keys'), 'array<string>'), {_THROTTLES})
            GROUP BY ALL)
        GROUP BY run_id, entity),
    touched AS (
        SELECT run_id, entity FROM notified
        LEFT JOIN (SELECT run_id, entity, count(*) AS n FROM changes WHERE kind <> 'deleted' GROUP BY ALL) USING (run_id, entity)
        WHERE notifications > coalesce(n, 0)),
    dropped AS (
        SELECT run_id, node_id, seq, cause_seq, controller_epoch, path, explode_outer(array_except(before.names, names)) AS entity
        FROM points WHERE kind = 'named' AND before IS NOT NULL AND (size(names) > 0 OR next IS NULL OR next.kind <> 'throttle_step')),
    left_over AS (
        SELECT d.run_id, d.node_id, d.seq, d.path, d.entity,
            max_by(struct(c.kind, c.seq, c.node_id), struct(c.controller_epoch, c.seq)) AS last
        FROM dropped d JOIN changes c ON d.run_id = c.run_id AND d.path = c.path AND d.entity = c.entity
            AND struct(c.controller_epoch, c.seq) < struct(d.controller_epoch, d.seq)
        LEFT ANTI JOIN touched t ON d.run_id = t.run_id AND d.entity = t.entity GROUP BY ALL),
    terms AS (
        SELECT run_id, max(struct(controller_epoch, node_id, seq, ts_ns)) AS newest FROM events WHERE kind = 'controller_elected'
        GROUP BY run_id),
    ongoing AS (
        SELECT DISTINCT run_id FROM (
            SELECT r.run_id, r.topic, r.partition, max_by(size(r.adding) + size(r.removing), r.seq) AS moves, max(r.seq) AS seq
            FROM reassign r JOIN terms t ON r.run_id = t.run_id AND r.node_id = t.newest.node_id AND r.seq > t.newest.seq
            WHERE r.kind = 'assignment' GROUP BY ALL) a
        LEFT ANTI JOIN (SELECT e.run_id, e.topic, e.seq FROM events e JOIN terms t ON e.run_id = t.run_id AND e.node_id = t.newest.node_id
            WHERE e.kind = 'topic_removed') g ON a.run_id = g.run_id AND a.topic = g.topic AND g.seq > a.seq
        WHERE moves > 0
        UNION
        SELECT run_id FROM (
            SELECT e.run_id, max_by(get_json_object(e.input, '$.op'), e.seq) AS op
            FROM events e JOIN terms t ON e.run_id = t.run_id AND e.node_id = t.newest.node_id AND e.seq > t.newest.seq
            WHERE e.kind = 'zk_write' AND get_json_object(e.input, '$.path') = '/admin/reassign_partitions'
                AND get_json_object(e.output, '$.outcome') = 'OK' GROUP BY e.run_id)
        WHERE op = 'set'),
    standing AS (
        SELECT run_id, path, max_by(struct(node_id, seq, ts_ns, controller_epoch, names, next.kind AS next_kind),
            struct(controller_epoch, seq)) AS w
        FROM points WHERE kind = 'named' GROUP BY run_id, path),
    triggers AS (
        SELECT s.run_id, s.path, max(e.seq) AS seq, max(e.ts_ns) AS ts_ns, count_if(e.kind = 'event_failed') AS failures,
            count_if(e.kind = 'controller_resigned') AS resignations,
            count_if(e.kind = 'controller_elected' OR e.kind = 'reassign_phase' AND get_json_object(e.output, '$.phase') LIKE 'B%') AS n
        FROM standing s JOIN terms t ON s.run_id = t.run_id
        JOIN events e ON s.run_id = e.run_id AND e.node_id = t.newest.node_id AND e.seq >= t.newest.seq
            AND struct(e.controller_epoch, e.seq) > struct(s.w.controller_epoch, s.w.seq)
        WHERE e.kind IN ('controller_elected', 'reassign_phase', 'assignment', 'throttle_step', 'event_failed', 'controller_resigned')
        GROUP BY s.run_id, s.path)
    SELECT p.run_id, p.node_id, CAST(NULL AS BIGINT) AS conn_id, p.seq,
        if(l.entity IS NOT NULL, format_string('%s names %s no more, which is still throttled', p.path, l.entity), NULL) AS detail,
        array_compact(array(p.before.seq, if(l.last.node_id = p.node_id, l.last.seq, NULL), p.seq)) AS evidence
    FROM points p LEFT JOIN (SELECT * FROM left_over WHERE last.kind = 'throttle_set') l
        ON p.run_id = l.run_id AND p.node_id = l.node_id AND p.seq = l.seq AND p.path = l.path
    WHERE p.kind = 'named' AND p.before IS NOT NULL
    UNION ALL
    SELECT p.run_id, p.node_id, NULL, p.seq, CASE
        WHEN NOT array_contains(p.before.names, p.entity)
            THEN format_string('the throttle of %s is removed, and %s does not name it', p.entity, p.path)
        WHEN p.before IS NULL AND p.next IS NULL AND f.cause_seq IS NULL AND e.last_ts_ns > p.ts_ns + {PATIENCE_NS}
            THEN format_string('the throttle of %s is removed, and there is no %s', p.entity, p.path)
        END, array_compact(array(p.cause_seq, p.seq))
    FROM points p JOIN ends e ON p.run_id = e.run_id AND p.node_id = e.node_id
    LEFT JOIN failed f ON p.run_id = f.run_id AND p.node_id = f.node_id AND p.cause_seq = f.cause_seq
    WHERE p.kind = 'throttle_removed' AND (p.next IS NULL OR p.next.kind <> 'throttle_step')
    UNION ALL
    SELECT s.run_id, s.w.node_id, NULL, s.w.seq,
        if(o.run_id IS NULL AND g.n > 0 AND g.failures = 0 AND g.resignations = 0 AND e.last_ts_ns > g.ts_ns + {PATIENCE_NS},
            format_string('no reassignment is ongoing, and %s still names %s', s.path, array_join(s.w.names, ', ')), NULL),
        array(s.w.seq)
    FROM standing s JOIN triggers g ON s.run_id = g.run_id AND s.path = g.path
    JOIN terms t ON s.run_id = t.run_id JOIN ends e ON s.run_id = e.run_id AND e.node_id = t.newest.node_id
    LEFT JOIN ongoing o ON s.run_id = o.run_id
    WHERE size(s.w.names) > 0 AND s.w.next_kind = 'throttle_step'
    """,
    needs=(events_of("throttle_removed"), Need("events", "input", part="/admin/throttled_")),
)  # fmt: skip

R_02 = Rule(
    "R-02", "error", "the phases of a step are in the order U, A1, A2 or U, B1 to B9; the topic znode is not written after B6",
    "controller 11.3", ("reassign", "events"),
    """
    WITH phases AS (
        SELECT run_id, node_id, process, seq, controller_epoch, cause_seq, topic, partition, step, phase,
            CASE substring(phase, 1, 1) WHEN 'U' THEN 0 WHEN 'A' THEN CAST(substring(phase, 2) AS INT)
                ELSE 10 + CAST(substring(phase, 2) AS INT) END AS rank
        FROM reassign WHERE kind = 'reassign_phase' AND phase IS NOT NULL),
    ordered AS (
        SELECT *, lag(rank) OVER w AS rank_before, lag(phase) OVER w AS phase_before, lag(seq) OVER w AS seq_before FROM phases
        WINDOW w AS (PARTITION BY run_id, node_id, process, controller_epoch, topic, partition, step ORDER BY seq)),
    ends AS (
        SELECT run_id, node_id, cause_seq, topic, max(if(phase = 'B6', seq, NULL)) AS completed, max(if(phase = 'U', seq, NULL)) AS begun
        FROM phases GROUP BY ALL HAVING completed IS NOT NULL)
    SELECT run_id, node_id, CAST(NULL AS BIGINT) AS conn_id, seq,
        if(rank <= rank_before OR rank_before IN (1, 2) AND rank > 10,
            format_string('%s-%s: %s after %s', topic, partition, phase, phase_before), NULL) AS detail,
        array_compact(array(seq_before, seq)) AS evidence
    FROM ordered
    UNION ALL
    SELECT e.run_id, e.node_id, NULL, coalesce(w.seq, e.completed),
        if(w.seq IS NOT NULL, format_string('the znode of topic %s is written after B6', e.topic), NULL),
        array_compact(array(e.completed, w.seq))
    FROM ends e LEFT JOIN (SELECT * FROM events WHERE kind = 'zk_write' AND partition IS NULL) w
        ON e.run_id = w.run_id AND e.node_id = w.node_id AND e.cause_seq = w.cause_seq AND w.seq > e.completed
            AND get_json_object(w.input, '$.path') = concat('/brokers/topics/', e.topic) AND get_json_object(w.input, '$.op') = 'set'
            AND (e.begun IS NULL OR w.seq > e.begun)
    """,
    needs=(events_of("reassign_phase"),),
)  # fmt: skip

R_03 = Rule(
    "R-03", "error", "a request that sets throttles does its steps in order, each after the end of the one before; one that moves "
    "partitions leaves out none, but 2 and 4 without remove_throttle, or all before 6 without a throttle", "R179-5, R179-6, R179-7",
    ("reassign",),
    """
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
    """,
    needs=(events_of("throttle_step"),),
)  # fmt: skip

R_04 = Rule(
    "R-04", "error", "replicas are the target and then the rest of the origin while replicas are added or removed", "controller 1",
    ("states", "reassign"),
    """
    WITH moving AS (
        SELECT run_id, node_id, conn_id, seq, topic, partition, replicas, adding, removing FROM states
        WHERE api_key = 4 AND (size(adding) > 0 OR size(removing) > 0)
        UNION ALL
        SELECT run_id, node_id, NULL, seq, topic, partition, replicas, adding, removing FROM reassign
        WHERE kind = 'assignment' AND (size(adding) > 0 OR size(removing) > 0))
    SELECT run_id, node_id, CAST(conn_id AS BIGINT) AS conn_id, seq,
        if(replicas <> array_union(array_except(replicas, removing), array_except(replicas, adding)),
            format_string('%s-%s: replicas %s with %s added and %s removed', topic, partition, to_json(replicas), to_json(adding),
                to_json(removing)), NULL) AS detail, array(seq) AS evidence
    FROM moving
    """,
)  # fmt: skip

RULES: tuple[Rule, ...] = (R_01, R_02, R_03, R_04)
