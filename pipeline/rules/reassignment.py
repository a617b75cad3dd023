"""Rules `R`: reassignments step by step, and the throttles that requests set for them (KIP-455, KIP-179)."""

from __future__ import annotations

from klamm.pipeline.rules.record import Rule

_PATHS = "('/admin/throttled_replicas_removal', '/admin/throttled_rates_removal')"
_PATH = "if(topic IS NOT NULL, '/admin/throttled_replicas_removal', '/admin/throttled_rates_removal')"
_REQUESTS = "('ReassignPartitions', 'AlterInterbrokerThrottledRates', 'AlterInterbrokerThrottledReplicas')"

R_01 = Rule(
    "R-01", "error", "when the last reassignment has ended the throttles named in the removal znodes go, and no others", "R179-24, R179-27",
    ("events",),
    f"""
    WITH named AS (
        SELECT run_id, node_id, seq, get_json_object(input, '$.op') AS op, get_json_object(input, '$.path') AS path,
            from_json(get_json_object(input, '$.names'), 'array<string>') AS names
        FROM events
        WHERE kind = 'zk_write' AND get_json_object(input, '$.path') IN {_PATHS} AND get_json_object(output, '$.outcome') = 'OK'),
    ever_named AS (
        SELECT run_id, path, array_distinct(flatten(collect_list(names))) AS names FROM named WHERE names IS NOT NULL GROUP BY ALL),
    changes AS (
        SELECT run_id, node_id, seq, cause_seq, kind, {_PATH} AS path, coalesce(topic, CAST(broker AS STRING)) AS entity
        FROM events WHERE kind IN ('throttle_set', 'throttle_removed') AND (topic IS NOT NULL OR broker IS NOT NULL)),
    by_request AS (
        SELECT run_id, node_id, seq AS cause_seq FROM events
        WHERE kind = 'controller_event' AND get_json_object(input, '$.name') IN {_REQUESTS}),
    deletions AS (
        SELECT d.run_id, d.node_id, d.seq, d.path, max_by(w.names, w.seq) AS names
        FROM named d JOIN named w ON d.run_id = w.run_id AND d.node_id = w.node_id AND d.path = w.path AND w.seq < d.seq
            AND w.names IS NOT NULL
        WHERE d.op = 'delete' GROUP BY d.run_id, d.node_id, d.seq, d.path),
    left_over AS (
        SELECT d.run_id, d.node_id, d.seq, d.path, c.entity, max_by(c.kind, c.seq) AS last, max(c.seq) AS set_seq
        FROM deletions d JOIN changes c ON d.run_id = c.run_id AND d.node_id = c.node_id AND d.path = c.path AND c.seq < d.seq
        WHERE array_contains(d.names, c.entity) GROUP BY d.run_id, d.node_id, d.seq, d.path, c.entity)
    SELECT d.run_id, d.node_id, CAST(NULL AS BIGINT) AS conn_id, d.seq,
        if(l.entity IS NOT NULL, format_string('%s is deleted, and %s is still throttled', d.path, l.entity), NULL) AS detail,
        array_compact(array(l.set_seq, d.seq)) AS evidence
    FROM deletions d LEFT JOIN (SELECT * FROM left_over WHERE last = 'throttle_set') l
        ON d.run_id = l.run_id AND d.node_id = l.node_id AND d.seq = l.seq
    UNION ALL
    SELECT c.run_id, c.node_id, NULL, c.seq,
        if(NOT array_contains(n.names, c.entity), format_string('the throttle of %s is removed, and %s does not name it', c.entity,
            c.path), NULL),
        array_compact(array(c.cause_seq, c.seq))
    FROM changes c LEFT ANTI JOIN by_request r ON c.run_id = r.run_id AND c.node_id = r.node_id AND c.cause_seq = r.cause_seq
    JOIN ever_named n ON c.run_id = n.run_id AND c.path = n.path
    WHERE c.kind = 'throttle_removed'
    """,
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
)  # fmt: skip

R_03 = Rule(
    "R-03", "error", "a request that sets throttles does its steps in order, each after the end of the one before", "R179-6, R179-7",
    ("reassign",),
    """
    WITH steps AS (
        SELECT run_id, node_id, process, controller_epoch, request, CAST(get_json_object(output, '$.step') AS INT) AS step,
            min(seq) AS first, max(seq) AS last
        FROM reassign WHERE kind = 'throttle_step' GROUP BY ALL),
    ordered AS (
        SELECT *, lag(last) OVER w AS last_before, lag(step) OVER w AS step_before FROM steps
        WINDOW w AS (PARTITION BY run_id, node_id, process, controller_epoch, request ORDER BY step))
    SELECT run_id, node_id, CAST(NULL AS BIGINT) AS conn_id, first AS seq,
        if(last_before > first, format_string('step %s of request %s before step %s has ended', step, request,
            step_before), NULL) AS detail,
        array(last_before, first) AS evidence
    FROM ordered WHERE last_before IS NOT NULL
    """,
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
