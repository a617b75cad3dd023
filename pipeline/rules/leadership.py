"""Rules `B`: the preferred leader blacklist (KIP-491)."""

from __future__ import annotations

from klamm.pipeline.rules.record import Rule, events_of
from klamm.pipeline.rules.traffic import unless_gaps

B_01 = Rule(
    "B-01", "error", "a change of preferred_leader_blacklist alone elects nobody and writes no state", "R491-6", ("events",),
    """
    WITH caused AS (
        SELECT run_id, node_id, cause_seq, min(struct(seq, kind)) AS effect FROM events
        WHERE kind IN ('batch', 'decision') OR kind = 'zk_write' AND partition IS NOT NULL GROUP BY ALL),
    changes AS (
        SELECT c.run_id, c.node_id, c.seq, c.cause_seq FROM events c
        JOIN events e ON c.run_id = e.run_id AND c.node_id = e.node_id AND c.cause_seq = e.seq AND e.kind = 'controller_event'
        WHERE c.kind = 'config_change' AND get_json_object(c.output, '$.listed') IS NOT NULL
            AND get_json_object(e.input, '$.name') IN ('ConfigsChanged', 'OptionsChanged'))
    SELECT c.run_id, c.node_id, CAST(NULL AS BIGINT) AS conn_id, coalesce(x.effect.seq, c.seq) AS seq,
        if(x.effect IS NOT NULL, format_string('%s because the blacklist changed', x.effect.kind), NULL) AS detail,
        array_compact(array(c.cause_seq, c.seq, x.effect.seq)) AS evidence
    FROM changes c LEFT JOIN caused x ON c.run_id = x.run_id AND c.node_id = x.node_id AND c.cause_seq = x.cause_seq
    """,
    needs=(events_of("config_change"),),
)

B_02 = Rule(
    "B-02", "error", "the automatic rebalance never gives leadership to a broker on the blacklist", "R491-10", ("events", "gappy"),
    unless_gaps("""
    WITH points AS (
        SELECT run_id, node_id, seq, CAST(NULL AS BIGINT) AS cause_seq,
            from_json(get_json_object(output, '$.listed'), 'array<int>') AS listed,
            CAST(NULL AS INT) AS leader, topic, partition
        FROM events WHERE kind = 'config_change' AND get_json_object(output, '$.listed') IS NOT NULL
        UNION ALL
        -- A new controller knows none; those that it reads have a row.
        SELECT run_id, node_id, seq, NULL, array(), NULL, NULL, NULL FROM events WHERE kind = 'controller_elected'
        UNION ALL
        SELECT w.run_id, w.node_id, w.seq, w.cause_seq, NULL, CAST(get_json_object(w.input, '$.leader') AS INT), w.topic, w.partition
        FROM events w JOIN events e ON w.run_id = e.run_id AND w.node_id = e.node_id AND w.cause_seq = e.seq
        WHERE w.kind = 'zk_write' AND w.partition IS NOT NULL AND get_json_object(w.output, '$.outcome') = 'OK'
            AND e.kind = 'controller_event'
            AND get_json_object(e.input, '$.name') IN ('AutoPreferredReplicaLeaderElection', 'AutoRebalance')),
    known AS (
        SELECT *, last_value(listed, true) OVER w AS listed_then, last_value(if(listed IS NULL, NULL, seq), true) OVER w AS listed_seq
        FROM points WINDOW w AS (PARTITION BY run_id, node_id ORDER BY seq ROWS UNBOUNDED PRECEDING))
    SELECT run_id, node_id, CAST(NULL AS BIGINT) AS conn_id, seq,
        if(array_contains(listed_then, leader), format_string('%s-%s: broker %s is listed and gets the lead', topic, partition,
            leader), NULL) AS detail, array_compact(array(listed_seq, cause_seq, seq)) AS evidence
    FROM known WHERE leader IS NOT NULL AND size(listed_then) > 0
    """),
    needs=(events_of("config_change"),),
)

RULES: tuple[Rule, ...] = (B_01, B_02)
