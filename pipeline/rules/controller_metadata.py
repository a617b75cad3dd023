"""Rules C-16, C-23 and C-24: what a broker says in Metadata, of brokers, topics and partitions, is what UpdateMetadata told it; so are
coordinators, and topics that it says are created.

A broker may apply a request at any moment between its arrival and the response to it. So a Metadata response is compared with the last
request that arrived before it, which is cheap and nearly always right; what differs is compared with every state that the broker may have
had between the Metadata request and its response.

Whether all partitions and topics are there is a matter of numbers: how many a broker knew is a sum over what was told. A response to a
request for all topics leaves out those that the client may not see. So a topic is missing only if the same client was shown it in another
response, and nobody changes ACLs.
"""

from __future__ import annotations

from klamm.pipeline.lake.windows import keys
from klamm.pipeline.rules.controller_views import ZERO_ID
from klamm.pipeline.rules.record import Rule, View, messages_of, rows_at
from klamm.pipeline.rules.traffic import unless_gaps
from klamm.protocol.apis import ApiKey

_AGREES = (
    "(m.leader = u.leader OR m.leader = -1 AND m.error_code IN (5, 72)) AND (m.leader_epoch IS NULL OR m.leader_epoch = u.leader_epoch) "
    "AND (m.api_version = 0 OR m.isr = u.isr AND m.replicas = u.replicas) "
    "AND (m.topic_id IS NULL OR u.topic_id IS NULL OR m.topic_id = u.topic_id) "
    "AND (m.offline IS NULL OR u.offline IS NULL OR m.offline = u.offline)"
)
_BROKER = "PARTITION BY run_id, node_id, process ORDER BY seq"
_PARTITION = "PARTITION BY run_id, node_id, process, topic, partition ORDER BY seq"

_CUT = (
    "SELECT DISTINCT run_id, node_id, process FROM rare_fields "
    f"WHERE dir = 0 AND api_key = {ApiKey.UPDATE_METADATA} AND (flags & 2 <> 0 OR NOT has_body)"
)
"""SQL: the processes whose journals do not have UpdateMetadata whole, or where one is too long to be kept decoded."""

_TOLD = f"""
    told AS (
        SELECT run_id, node_id, receiver_process AS process, topic, partition, seq, answer_seq, error, leader, leader_epoch, isr, replicas,
            offline, if(has_id, topic_key, NULL) AS topic_id,
            lead(if(error = 0, answer_seq, NULL)) IGNORE NULLS OVER (PARTITION BY run_id, node_id, receiver_process, topic, partition
                ORDER BY seq) AS replaced_seq
        FROM states WHERE api_key = {ApiKey.UPDATE_METADATA} AND source = -1 AND coalesce(error, 0) = 0)"""
"""What brokers took from UpdateMetadata, and when the next one replaced it."""

SHOWN_STATES = View(
    "shown_states",
    ("states", "partition_state"),
    f"""
    WITH {_TOLD},
    shown AS (
        SELECT run_id, node_id, process, topic, partition, seq, conn_id, request_seq, api_version, flags, error_code, leader, leader_epoch,
            isr, replicas, offline, nullif(topic_id, '{ZERO_ID}') AS topic_id
        FROM partition_state WHERE api_key = {ApiKey.METADATA} AND dir = 1),
    merged AS (
        SELECT *, struct(seq, leader, leader_epoch, isr, replicas, offline, topic_id) AS told,
            CAST(NULL AS STRUCT<conn_id: BIGINT, request_seq: BIGINT, api_version: SMALLINT, flags: INT, error_code: SMALLINT, leader: INT,
            leader_epoch: INT, isr: ARRAY<INT>, replicas: ARRAY<INT>, offline: ARRAY<INT>, topic_id: STRING>) AS m
        FROM (SELECT run_id, node_id, process, topic, partition, seq, leader, leader_epoch, isr, replicas, offline, topic_id FROM told)
        UNION ALL
        SELECT run_id, node_id, process, topic, partition, seq, leader, leader_epoch, isr, replicas, offline, topic_id, NULL,
            struct(conn_id, request_seq, api_version, CAST(flags AS INT) AS flags, error_code, leader, leader_epoch, isr, replicas, offline,
                topic_id)
        FROM shown)
    SELECT run_id, node_id, process, topic, partition, seq, m, u, coalesce({_AGREES}, false) AS agrees
        FROM (SELECT *, last_value(told, true) OVER ({_PARTITION} ROWS UNBOUNDED PRECEDING) AS u FROM merged) WHERE m IS NOT NULL
    """,
)
"""What Metadata responses say of partitions, beside the last UpdateMetadata that arrived before: `m` and `u`, and whether they agree."""

_NUMBERS = f"""
    -- The number of partitions that a broker knows of a topic, at each change of it.
    steps AS (
        SELECT run_id, node_id, process, topic, seq, answer_seq, if(leader = -2, 0, 1) AS is_there,
            lag(if(leader = -2, 0, 1), 1, 0) OVER (PARTITION BY run_id, node_id, process, topic, partition ORDER BY seq) AS was_there
        FROM told LEFT ANTI JOIN cut USING (run_id, node_id, process)),
    sizes AS (
        SELECT run_id, node_id, process, topic, seq, answer_seq, sum(change) OVER (
            PARTITION BY run_id, node_id, process, topic ORDER BY seq ROWS UNBOUNDED PRECEDING) AS n
        FROM (
            SELECT run_id, node_id, process, topic, seq, answer_seq, sum(is_there - was_there) AS change FROM steps
            WHERE is_there <> was_there GROUP BY run_id, node_id, process, topic, seq, answer_seq)),
    counted AS (
        SELECT run_id, node_id, process, topic, seq, m.conn_id AS conn_id, m.request_seq AS request_seq, count(*) AS shown
        FROM shown_states WHERE m.flags & 2 = 0 GROUP BY run_id, node_id, process, topic, seq, m.conn_id, m.request_seq),
    partitions AS (
        SELECT run_id, node_id, conn_id, seq, request_seq, topic, shown, known FROM (
            SELECT *, last_value(size, true) OVER (
                PARTITION BY run_id, node_id, process, topic ORDER BY seq ROWS UNBOUNDED PRECEDING) AS known
            FROM (
                SELECT run_id, node_id, process, topic, seq, conn_id, request_seq, shown,
                    CAST(NULL AS STRUCT<n: BIGINT, seq: BIGINT, answer_seq: BIGINT>) AS size FROM counted
                UNION ALL
                SELECT run_id, node_id, process, topic, seq, NULL, NULL, NULL, struct(n, seq, answer_seq) FROM sizes))
        WHERE shown IS NOT NULL AND known.answer_seq < request_seq),
    -- The same of all topics.
    numbers AS (
        SELECT run_id, node_id, process, seq, answer_seq,
            sum(change) OVER (PARTITION BY run_id, node_id, process ORDER BY seq ROWS UNBOUNDED PRECEDING) AS n
        FROM (
            SELECT run_id, node_id, process, seq, answer_seq, sum(if(n > 0, 1, 0) - if(before > 0, 1, 0)) AS change
            FROM (SELECT *, lag(n, 1, 0) OVER (PARTITION BY run_id, node_id, process, topic ORDER BY seq) AS before FROM sizes)
            GROUP BY run_id, node_id, process, seq, answer_seq)),
    lists AS (
        SELECT a.run_id, a.node_id, a.process, a.seq, a.conn_id, q.seq AS request_seq, a.client_id, a.names
        FROM rare_fields q JOIN rare_fields a ON a.run_id = q.run_id AND a.node_id = q.node_id AND a.cause_seq = q.seq
        WHERE q.api_key = {ApiKey.METADATA} AND q.dir = 0 AND q.has_body AND q.flags & 2 = 0 AND q.names IS NULL
            AND NOT coalesce(q.is_odd, false)
            AND a.api_key = {ApiKey.METADATA} AND a.dir = 1 AND a.names IS NOT NULL AND a.flags & 2 = 0),
    all_topics AS (
        SELECT run_id, node_id, process, conn_id, seq, request_seq, client_id, names, known FROM (
            SELECT *, last_value(size, true) OVER ({_BROKER} ROWS UNBOUNDED PRECEDING) AS known
            FROM (
                SELECT run_id, node_id, process, seq, conn_id, request_seq, client_id, names,
                    CAST(NULL AS STRUCT<n: BIGINT, seq: BIGINT, answer_seq: BIGINT>) AS size FROM lists
                UNION ALL
                SELECT run_id, node_id, process, seq, NULL, NULL, NULL, NULL, struct(n, seq, answer_seq) FROM numbers))
        WHERE names IS NOT NULL AND known.answer_seq < request_seq),
    short AS (SELECT run_id, node_id, process, seq, client_id, names FROM all_topics WHERE size(names) < known.n),
    absences AS (
        SELECT a.run_id, a.node_id, a.seq, a.client_id, s.topic, max_by(struct(s.n, s.seq), s.seq) AS last
        FROM short a JOIN sizes s ON s.run_id = a.run_id AND s.node_id = a.node_id AND s.process = a.process AND s.seq < a.seq
        WHERE NOT array_contains(a.names, s.topic) GROUP BY a.run_id, a.node_id, a.seq, a.client_id, s.topic),
    left_out_topics AS (
        SELECT a.run_id, a.node_id, a.seq, min(struct(a.topic, a.last.seq AS seq)) AS one
        FROM absences a
        JOIN rare_fields f ON f.run_id = a.run_id AND f.client_id <=> a.client_id AND array_contains(f.names, a.topic)
        LEFT ANTI JOIN (
            SELECT DISTINCT run_id FROM rare_traffic
            WHERE dir = 1 AND api_key IN ({ApiKey.CREATE_ACLS}, {ApiKey.DELETE_ACLS}) AND errors = 0) p
            ON p.run_id = a.run_id
        WHERE a.last.n > 0 AND f.api_key = {ApiKey.METADATA} AND f.dir = 1 GROUP BY a.run_id, a.node_id, a.seq)"""
"""How many partitions and topics Metadata responses have, and how many the broker knew."""

C_16 = Rule(
    "C-16", "error", "Metadata has leader, leader epoch, ISR, replicas, offline replicas and topic id of the last UpdateMetadata that the "
    "broker took, all partitions of a topic, and, if it is asked for them, all topics; no leader that is not among its live brokers; all "
    "live brokers with the listener and no others, with host and port of the listener; its controller; one cluster id. Before the first "
    "UpdateMetadata it has no brokers", "controller 15",
    ("shown_states", "states", "controller_requests", "broker_state", "rare_fields", "rare_traffic", "midway", "gappy"),
    unless_gaps(f"""
    WITH {_TOLD},
    cut AS ({_CUT}),
    {_NUMBERS},
    live_lists AS (
        SELECT run_id, node_id, process, seq, struct(answer_seq, live, seq, controller_id) AS listed, CAST(NULL AS BIGINT) AS request_seq,
            CAST(NULL AS BIGINT) AS conn_id, CAST(NULL AS STRING) AS listener
        FROM controller_requests WHERE dir = 0 AND api_key = {ApiKey.UPDATE_METADATA} AND coalesce(error, 0) = 0
        UNION ALL
        SELECT run_id, node_id, process, seq, NULL, cause_seq, conn_id, listener FROM rare_traffic
        WHERE api_key = {ApiKey.METADATA} AND dir = 1 AND reason IS NULL AND cause_seq IS NOT NULL),
    frames AS (
        SELECT run_id, node_id, process, seq, conn_id, listener, request_seq, last_listed AS listed,
            last_listed.answer_seq < request_seq AS is_settled
        FROM (SELECT *, last_value(listed, true) OVER ({_BROKER} ROWS UNBOUNDED PRECEDING) AS last_listed FROM live_lists)
        WHERE request_seq IS NOT NULL),
    excused AS (
        SELECT DISTINCT c.run_id, c.node_id, c.seq, c.topic, c.partition FROM shown_states c
        JOIN told u ON c.run_id = u.run_id AND c.node_id = u.node_id AND c.process = u.process AND c.topic = u.topic
            AND c.partition = u.partition AND u.seq < c.seq
        WHERE NOT c.agrees AND (u.error IS NULL OR u.replaced_seq IS NULL OR u.replaced_seq > c.m.request_seq)
            AND {_AGREES.replace("m.", "c.m.")}),
    judged AS (
        SELECT c.*, f.listed, f.is_settled, x.seq IS NOT NULL OR c.u IS NULL AND y.process IS NOT NULL AS is_excused
        FROM shown_states c JOIN frames f ON c.run_id = f.run_id AND c.node_id = f.node_id AND c.seq = f.seq
        LEFT JOIN excused x ON c.run_id = x.run_id AND c.node_id = x.node_id AND c.seq = x.seq AND c.topic = x.topic
            AND c.partition = x.partition
        LEFT JOIN midway y ON c.run_id = y.run_id AND c.node_id = y.node_id AND c.process = y.process),
    shown_brokers AS (
        SELECT run_id, node_id, seq, collect_set(broker_id) AS brokers, max(controller_id) AS controller_id, max(cluster_id) AS cluster_id
        FROM broker_state WHERE source = 'Metadata' AND dir = 1 GROUP BY ALL),
    compared AS (
        SELECT f.*, e.seq IS NOT NULL AS has_brokers, e.brokers, e.controller_id, e.cluster_id,
            if(is_settled, array_except(f.listed.live, e.brokers), NULL) AS absent
        FROM frames f LEFT JOIN shown_brokers e ON f.run_id = e.run_id AND f.node_id = e.node_id AND f.seq = e.seq
        LEFT JOIN midway y ON f.run_id = y.run_id AND f.node_id = y.node_id AND f.process = y.process
        WHERE f.listed IS NULL AND y.process IS NULL OR is_settled),
    -- A broker without the listener that the client is connected to has no place in its Metadata.
    left_out AS (
        SELECT c.run_id, c.node_id, c.seq, min(b.broker_id) AS broker_id
        FROM compared c JOIN broker_state b ON b.run_id = c.run_id AND b.node_id = c.node_id AND b.seq = c.listed.seq
        WHERE size(c.absent) > 0 AND array_contains(c.absent, b.broker_id) AND b.endpoints LIKE concat('%"listener":"', c.listener, '"%')
        GROUP BY c.run_id, c.node_id, c.seq),
    endpoints AS (
        SELECT run_id, node_id, seq, broker_id, e FROM (
            SELECT run_id, node_id, seq, broker_id, from_json(endpoints, 'array<struct<listener: string, host: string, port: int>>') AS each
            FROM broker_state WHERE source = 'UpdateMetadata' AND dir = 0 AND endpoints IS NOT NULL) LATERAL VIEW explode(each) AS e),
    moved AS (
        SELECT c.run_id, c.node_id, c.seq, min(struct(b.broker_id, b.host, b.port, e.e.host AS told_host, e.e.port AS told_port)) AS one
        FROM compared c JOIN broker_state b ON b.run_id = c.run_id AND b.node_id = c.node_id AND b.seq = c.seq
        JOIN endpoints e ON e.run_id = c.run_id AND e.node_id = c.node_id AND e.seq = c.listed.seq AND e.broker_id = b.broker_id
            AND e.e.listener = c.listener
        WHERE b.source = 'Metadata' AND b.dir = 1 AND (b.host <> e.e.host OR b.port <> e.e.port)
        GROUP BY c.run_id, c.node_id, c.seq),
    clusters AS (
        SELECT run_id, max_by(struct(cluster_id, first), n) AS usual FROM (
            SELECT run_id, cluster_id, count(*) AS n, min(struct(node_id, seq)) AS first FROM shown_brokers
            WHERE cluster_id IS NOT NULL GROUP BY run_id, cluster_id)
        GROUP BY run_id)
    SELECT run_id, node_id, m.conn_id AS conn_id, seq, CASE
        WHEN u IS NULL AND NOT is_excused THEN format_string('%s-%s was never told to this broker', topic, partition)
        WHEN NOT agrees AND NOT is_excused AND m.replicas <> u.replicas
            THEN format_string('%s-%s: replicas %s, and %s was told', topic, partition, to_json(m.replicas), to_json(u.replicas))
        WHEN NOT agrees AND NOT is_excused AND m.topic_id <> u.topic_id
            THEN format_string('%s-%s: topic id %s, and %s was told', topic, partition, m.topic_id, u.topic_id)
        WHEN NOT agrees AND NOT is_excused AND m.offline <> u.offline AND m.leader = u.leader AND m.isr = u.isr
            THEN format_string('%s-%s: offline replicas %s, and %s was told', topic, partition, to_json(m.offline), to_json(u.offline))
        WHEN NOT agrees AND NOT is_excused THEN format_string('%s-%s: leader %s, leader epoch %s, ISR %s, and %s, %s, %s was told', topic,
            partition, m.leader, m.leader_epoch, to_json(m.isr), u.leader, u.leader_epoch, to_json(u.isr))
        WHEN is_settled AND m.leader >= 0 AND NOT array_contains(listed.live, m.leader)
            THEN format_string('%s-%s: leader %s is not among the live brokers %s', topic, partition, m.leader, to_json(listed.live))
        WHEN is_settled AND agrees AND m.leader = -1 AND m.error_code = 5 AND m.api_version >= 6 AND array_contains(listed.live, u.leader)
            THEN format_string('%s-%s: leader %s lives and is not shown', topic, partition, u.leader)
        END AS detail, {rows_at("u.seq", "if(agrees OR is_excused, listed.seq, NULL)", "m.request_seq", "seq")} AS evidence
    FROM judged
    UNION ALL
    SELECT c.run_id, c.node_id, c.conn_id, c.seq, CASE
        WHEN c.listed IS NULL AND c.has_brokers THEN 'brokers are shown before the first UpdateMetadata'
        WHEN size(array_except(c.brokers, c.listed.live)) > 0
            THEN format_string('brokers %s are shown, and the live brokers are %s', to_json(array_sort(c.brokers)), to_json(c.listed.live))
        WHEN l.broker_id IS NOT NULL
            THEN format_string('broker %s is left out of %s, and lives', l.broker_id, to_json(array_sort(c.brokers)))
        WHEN d.one IS NOT NULL
            THEN format_string('broker %s at %s:%s, and %s:%s was told', d.one.broker_id, d.one.host, d.one.port, d.one.told_host,
                d.one.told_port)
        WHEN c.controller_id <> greatest(c.listed.controller_id, -1)
            THEN format_string('controller %s, and %s was told', c.controller_id, c.listed.controller_id)
        WHEN c.cluster_id <> k.usual.cluster_id
            THEN format_string('cluster id %s, and other answers have %s', c.cluster_id, k.usual.cluster_id)
        END,
        {rows_at(("k.usual.first.node_id", "if(c.cluster_id <> k.usual.cluster_id, k.usual.first.seq, NULL)"), "c.listed.seq",
            "c.request_seq", "c.seq", node="c.node_id")}
    FROM compared c LEFT JOIN left_out l ON l.run_id = c.run_id AND l.node_id = c.node_id AND l.seq = c.seq
    LEFT JOIN moved d ON d.run_id = c.run_id AND d.node_id = c.node_id AND d.seq = c.seq
    LEFT JOIN clusters k ON k.run_id = c.run_id
    UNION ALL
    SELECT run_id, node_id, conn_id, seq,
        if(shown < known.n, format_string('%s has %s partitions, and %s were told', topic, shown, known.n), NULL),
        {rows_at("known.seq", "request_seq", "seq")}
    FROM partitions
    UNION ALL
    SELECT a.run_id, a.node_id, a.conn_id, a.seq,
        if(l.one IS NULL, NULL, format_string('all topics are asked for, and %s is left out', l.one.topic)),
        {rows_at("coalesce(l.one.seq, a.known.seq)", "a.request_seq", "a.seq", node="a.node_id")}
    FROM all_topics a LEFT JOIN left_out_topics l ON l.run_id = a.run_id AND l.node_id = a.node_id AND l.seq = a.seq
    """),
    is_across=True,
)

_TOLD_BY = (
    f"SELECT DISTINCT run_id, node_id, receiver_process AS process FROM states WHERE api_key = {ApiKey.UPDATE_METADATA} AND source = -1"
)
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
        LEFT SEMI JOIN ({_TOLD_BY}) s
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
        SELECT a.run_id, a.node_id, a.seq, a.broker_id, a.topic, max(if(t.leader = a.broker_id, t.seq, NULL)) AS told_seq,
            max(t.seq) AS last_seq
        FROM answers a JOIN told t ON t.run_id = a.run_id AND t.node_id = a.node_id AND t.process = a.process AND t.topic = a.topic
            AND t.seq < a.seq AND (t.replaced_seq IS NULL OR t.replaced_seq > a.request_seq)
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
        END AS detail, array_compact(array(coalesce(l.told_seq, l.last_seq), a.request_seq, a.seq)) AS evidence
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
    ("rare_fields", "states", "gappy"),
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
    LEFT SEMI JOIN ({_TOLD_BY}) s
        ON s.run_id = m.run_id AND s.node_id = m.node_id AND s.process = m.process
    LEFT ANTI JOIN ({_CUT}) c ON c.run_id = m.run_id AND c.node_id = m.node_id AND c.process = m.process
    """),
    needs=(messages_of(ApiKey.CREATE_TOPICS, ApiKey.CREATE_PARTITIONS),),
)

METADATA_RULES = (C_16, C_23, C_24)
