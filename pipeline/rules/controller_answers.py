"""Rules C-23 and C-24: which coordinator a broker names, and when it says that a topic is created, follow from what UpdateMetadata told it.

A broker may apply a request at any moment between its arrival and the response to it, so what was told counts from its arrival until the
response to the next one that says otherwise.
"""

from __future__ import annotations

from klamm.pipeline.lake.api_keys import keys
from klamm.pipeline.rules.record import Rule, messages_of
from klamm.pipeline.rules.traffic import unless_gaps
from klamm.protocol.apis import ApiKey

_CUT = (
    f"SELECT DISTINCT run_id, node_id, process FROM rare_traffic WHERE dir = 0 AND api_key = {ApiKey.UPDATE_METADATA} AND flags & 2 <> 0"
)
"""SQL: the processes whose journals do not have UpdateMetadata whole."""

_TOLD = f"SELECT DISTINCT run_id, node_id, receiver_process AS process FROM states WHERE api_key = {ApiKey.UPDATE_METADATA} AND source = -1"
"""SQL: the processes that controllers told something."""

_MAKING = keys((ApiKey.CREATE_TOPICS, ApiKey.CREATE_PARTITIONS))

C_23 = Rule(
    "C-23", "error", "FindCoordinator names a broker that leads a partition of the topic of groups or of transactions, as UpdateMetadata "
    "told it, with host and port of the listener of the client", "controller 15",
    ("rare_fields", "rare_traffic", "states", "broker_state", "midway", "gappy"),
    unless_gaps(f"""
    WITH answers AS (
        SELECT a.run_id, a.node_id, a.process, a.conn_id, a.seq, a.listener, q.seq AS request_seq, c.nodeId AS broker_id, c.host AS host,
            c.port AS port, if(q.key_type = 1, '__transaction_state', '__consumer_offsets') AS topic
        FROM (SELECT * FROM rare_fields LATERAL VIEW explode(coordinators) AS c WHERE api_key = {ApiKey.FIND_COORDINATOR} AND dir = 1) a
        JOIN rare_fields q ON q.run_id = a.run_id AND q.node_id = a.node_id AND q.seq = a.cause_seq
        LEFT ANTI JOIN ({_CUT}) t ON t.run_id = a.run_id AND t.node_id = a.node_id AND t.process = a.process
        LEFT ANTI JOIN midway y ON y.run_id = a.run_id AND y.node_id = a.node_id AND y.process = a.process
        -- A recording without controllers does not say who leads.
        LEFT SEMI JOIN ({_TOLD}) s
            ON s.run_id = a.run_id AND s.node_id = a.node_id AND s.process = a.process
        WHERE q.dir = 0 AND q.api_key = {ApiKey.FIND_COORDINATOR} AND q.key_type IN (0, 1) AND c.errorCode = 0),
    told AS (
        SELECT run_id, node_id, receiver_process AS process, topic, leader, seq,
            lead(if(error = 0, answer_seq, NULL)) IGNORE NULLS OVER (PARTITION BY run_id, node_id, receiver_process, topic, partition
                ORDER BY seq) AS replaced_seq
        FROM states
        WHERE api_key = {ApiKey.UPDATE_METADATA} AND source = -1 AND coalesce(error, 0) = 0
            AND topic IN ('__consumer_offsets', '__transaction_state')),
    leads AS (
        SELECT a.run_id, a.node_id, a.seq, a.broker_id, a.topic, max(t.seq) AS told_seq
        FROM answers a JOIN told t ON t.run_id = a.run_id AND t.node_id = a.node_id AND t.process = a.process AND t.topic = a.topic
            AND t.leader = a.broker_id AND t.seq < a.seq AND (t.replaced_seq IS NULL OR t.replaced_seq > a.request_seq)
        GROUP BY a.run_id, a.node_id, a.seq, a.broker_id, a.topic),
    endpoints AS (
        SELECT run_id, node_id, process, seq, broker_id, place,
            lead(answer_seq) OVER (PARTITION BY run_id, node_id, process, broker_id, place.listener ORDER BY seq) AS replaced_seq
        FROM (
            SELECT b.run_id, b.node_id, b.process, b.seq, b.broker_id, r.answer_seq,
                from_json(b.endpoints, 'array<struct<listener: string, host: string, port: int>>') AS each
            FROM broker_state b
            LEFT JOIN (
                SELECT run_id, node_id, cause_seq, seq AS answer_seq FROM rare_traffic
                WHERE api_key = {ApiKey.UPDATE_METADATA} AND dir = 1) r
                ON r.run_id = b.run_id AND r.node_id = b.node_id AND r.cause_seq = b.seq
            WHERE b.source = 'UpdateMetadata' AND b.dir = 0 AND b.endpoints IS NOT NULL) LATERAL VIEW explode(each) AS place),
    listens AS (
        SELECT a.run_id, a.node_id, a.seq, a.broker_id, a.topic, max_by(e.place, e.seq) AS told,
            bool_or(e.place.host = a.host AND e.place.port = a.port) AS is_told
        FROM answers a JOIN endpoints e ON e.run_id = a.run_id AND e.node_id = a.node_id AND e.process = a.process
            AND e.broker_id = a.broker_id AND e.place.listener = a.listener AND e.seq < a.seq
            AND (e.replaced_seq IS NULL OR e.replaced_seq > a.request_seq)
        GROUP BY a.run_id, a.node_id, a.seq, a.broker_id, a.topic)
    SELECT DISTINCT a.run_id, a.node_id, a.conn_id, a.seq, CASE
        WHEN l.told_seq IS NULL THEN format_string('broker %s is named as coordinator, and leads no partition of %s', a.broker_id, a.topic)
        WHEN NOT e.is_told THEN format_string('coordinator %s at %s:%s, and %s:%s was told', a.broker_id, a.host, a.port, e.told.host,
            e.told.port)
        END AS detail, array_compact(array(l.told_seq, a.request_seq, a.seq)) AS evidence
    FROM answers a
    LEFT JOIN leads l ON l.run_id = a.run_id AND l.node_id = a.node_id AND l.seq = a.seq AND l.broker_id = a.broker_id AND l.topic = a.topic
    LEFT JOIN listens e ON e.run_id = a.run_id AND e.node_id = a.node_id AND e.seq = a.seq AND e.broker_id = a.broker_id
        AND e.topic = a.topic
    """),
    needs=(messages_of(ApiKey.FIND_COORDINATOR),),
)

C_24 = Rule(
    "C-24", "error", "CreateTopics and CreatePartitions answer NONE only if, between request and answer, UpdateMetadata told the broker of "
    "a leader of each new partition; unless nothing was to be made", "controller 5.1",
    ("rare_fields", "rare_traffic", "states", "gappy"),
    unless_gaps(f"""
    WITH made AS (
        SELECT a.run_id, a.node_id, a.process, a.conn_id, a.seq, a.cause_seq, a.api_key, n.name AS topic,
            if(a.api_key = {ApiKey.CREATE_TOPICS}, n.size, try_element_at(q.sizes, CAST(array_position(q.names, n.name) AS INT))) AS size
        FROM (
            SELECT * FROM rare_fields LATERAL VIEW explode(
                transform(filter(sequence(0, size(names)), i -> i < size(names)),
                    i -> struct(names[i] AS name, codes[i] AS code, sizes[i] AS size))) AS n
            WHERE api_key IN ({_MAKING}) AND dir = 1) a
        JOIN rare_fields q ON q.run_id = a.run_id AND q.node_id = a.node_id AND q.seq = a.cause_seq
        WHERE q.dir = 0 AND q.has_body AND q.flags & 2 = 0 AND NOT coalesce(q.is_validated, false) AND n.code = 0),
    told AS (
        SELECT m.run_id, m.node_id, m.seq, m.topic, max(s.partition) AS last, max(s.seq) AS told_seq
        FROM made m JOIN states s ON s.run_id = m.run_id AND s.node_id = m.node_id AND s.receiver_process = m.process AND s.topic = m.topic
        WHERE s.api_key = {ApiKey.UPDATE_METADATA} AND s.source = -1 AND coalesce(s.error, 0) = 0 AND s.leader >= 0
            AND s.seq > m.cause_seq AND s.seq < m.seq
        GROUP BY m.run_id, m.node_id, m.seq, m.topic)
    SELECT m.run_id, m.node_id, m.conn_id, m.seq, CASE
        WHEN t.last IS NULL
            THEN format_string('%s: <api %s> answers NONE, and no UpdateMetadata told this broker of a leader', m.topic, m.api_key)
        WHEN t.last + 1 < m.size
            THEN format_string('%s: <api %s> answers NONE for %s partitions, and UpdateMetadata told of %s', m.topic, m.api_key, m.size,
                t.last + 1)
        END AS detail, array_compact(array(m.cause_seq, t.told_seq, m.seq)) AS evidence
    FROM made m LEFT JOIN told t ON t.run_id = m.run_id AND t.node_id = m.node_id AND t.seq = m.seq AND t.topic = m.topic
    -- A recording without controllers shows no leaders.
    LEFT SEMI JOIN ({_TOLD}) s
        ON s.run_id = m.run_id AND s.node_id = m.node_id AND s.process = m.process
    LEFT ANTI JOIN ({_CUT}) c ON c.run_id = m.run_id AND c.node_id = m.node_id AND c.process = m.process
    """),
    needs=(messages_of(ApiKey.CREATE_TOPICS, ApiKey.CREATE_PARTITIONS),),
)

ANSWER_RULES = (C_23, C_24)
