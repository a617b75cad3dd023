"""Rules `E`: elections of leaders on request, and what a broker answers that is not the controller."""

from __future__ import annotations

from klamm.pipeline.lake.windows import keys
from klamm.pipeline.rules.record import Rule, View, messages_of
from klamm.pipeline.rules.traffic import unless_gaps
from klamm.protocol.apis import ApiKey

ELECTED = View(
    "elected",
    ("rare_fields",),
    f"""
WITH asked AS (
    SELECT run_id, node_id, seq, election_type, asks_all FROM rare_fields WHERE api_key = {ApiKey.ELECT_LEADERS} AND dir = 0 AND has_body),
answers AS (
    SELECT run_id, node_id, process, conn_id, seq, cause_seq, api_version, t.topic, p.partitionId AS partition, p.errorCode AS error_code,
        p.errorMessage AS message
    FROM rare_fields
    LATERAL VIEW explode(elected) AS t
    LATERAL VIEW explode(t.partitionResult) AS p
    WHERE api_key = {ApiKey.ELECT_LEADERS} AND dir = 1)
SELECT a.*, coalesce(q.election_type, 0) AS election_type, q.asks_all
FROM answers a JOIN asked q ON q.run_id = a.run_id AND q.node_id = a.node_id AND q.seq = a.cause_seq""",
    needs=(messages_of(ApiKey.ELECT_LEADERS),),
)
"""One row for each partition in an answer to ElectLeaders."""



def _preferred(state: str) -> str:
    """SQL: who is preferred in a state (R491-9): the head of its replicas, or with listed ones the first that can lead, those last."""
    order = f"array_union(array_except({state}.replicas, b.listed), {state}.replicas)"
    candidates = f"filter({order}, each -> array_contains({state}.isr, each) AND NOT array_contains({state}.offline, each))"
    return f"if(arrays_overlap({state}.replicas, coalesce(b.listed, array())), try_element_at({candidates}, 1), {state}.replicas[0])"


_LED = f"""
WITH won AS (SELECT * FROM elected WHERE error_code = 0),
told AS (
    SELECT s.run_id, s.node_id, s.process, s.seq, s.topic, s.partition, s.leader, s.leader_epoch, s.replicas,
        s.isr, coalesce(s.offline, array()) AS offline
    FROM partition_state s LEFT SEMI JOIN won w ON w.run_id = s.run_id AND w.node_id = s.node_id AND w.topic = s.topic
        AND w.partition = s.partition
    WHERE s.api_key = {ApiKey.UPDATE_METADATA} AND s.dir = 0),
shown AS (
    SELECT s.run_id, s.node_id, s.process, s.seq, s.topic, s.partition, s.leader_epoch
    FROM partition_state s LEFT SEMI JOIN won w ON w.run_id = s.run_id AND w.node_id = s.node_id AND w.topic = s.topic
        AND w.partition = s.partition
    WHERE s.api_key = {ApiKey.METADATA} AND s.leader_epoch >= 0),
outcomes AS (
    SELECT w.run_id, w.node_id, w.process, w.conn_id, w.seq, w.cause_seq, w.api_version, w.topic, w.partition, w.election_type,
        max_by(struct(t.leader, t.leader_epoch, t.replicas, t.isr, t.offline, t.seq), t.seq) FILTER (WHERE t.seq < w.cause_seq) AS before,
        max_by(struct(t.leader, t.leader_epoch, t.replicas, t.isr, t.offline, t.seq), t.leader_epoch)
            FILTER (WHERE t.seq > w.cause_seq AND t.seq < w.seq AND t.leader >= 0) AS within
    FROM won w LEFT JOIN told t ON t.run_id = w.run_id AND t.node_id = w.node_id AND t.process = w.process AND t.topic = w.topic
        AND t.partition = w.partition AND t.seq < w.seq
    GROUP BY ALL),
next AS (
    SELECT o.run_id, o.node_id, o.seq, o.topic, o.partition, min_by(struct(m.seq, m.leader_epoch), m.seq) AS metadata
    FROM outcomes o JOIN shown m ON m.run_id = o.run_id AND m.node_id = o.node_id AND m.process = o.process AND m.topic = o.topic
        AND m.partition = o.partition AND m.seq > o.seq
    GROUP BY ALL),
lists AS (
    SELECT run_id, node_id, seq,
        if(kind = 'config_change', from_json(get_json_object(output, '$.listed'), 'array<int>'), array()) AS listed
    FROM events
    WHERE kind = 'controller_elected' OR kind = 'config_change' AND get_json_object(output, '$.listed') IS NOT NULL),
blacklist AS (
    SELECT w.run_id, w.node_id, w.seq, max_by(l.listed, l.seq) AS listed, max(l.seq) AS listed_seq
    FROM (SELECT DISTINCT run_id, node_id, seq FROM won) w
    JOIN lists l ON l.run_id = w.run_id AND l.node_id = w.node_id AND l.seq < w.seq GROUP BY ALL)
SELECT o.run_id, o.node_id, o.conn_id, o.seq,
    -- Version 0 has no code for a leader that is preferred already. Where a journal begins late, nobody knows who led before.
    CASE WHEN o.within IS NULL AND o.api_version = 0 AND (o.before IS NULL OR o.before.leader = {_preferred("o.before")}) THEN NULL
        WHEN o.within IS NULL
            THEN concat(o.topic, '-', o.partition, ': NONE, but no UpdateMetadata between request and answer has its leader')
        WHEN o.before IS NOT NULL AND o.within.leader_epoch <= o.before.leader_epoch
            THEN concat(o.topic, '-', o.partition, ': NONE, but leader epoch ', o.before.leader_epoch, ' did not rise')
        -- A controller whose term began before the journal may know listed brokers.
        WHEN o.election_type = 0 AND b.listed IS NOT NULL AND o.within.leader <> {_preferred("o.within")}
            THEN concat(o.topic, '-', o.partition, ': NONE, but leader ', o.within.leader, ' is not preferred')
        WHEN n.metadata.leader_epoch < o.within.leader_epoch AND d.seq IS NULL
            THEN concat(o.topic, '-', o.partition, ': Metadata falls to leader epoch ', n.metadata.leader_epoch)
    END AS detail,
    array_compact(array(o.before.seq, if(arrays_overlap(o.within.replicas, b.listed), b.listed_seq, NULL), o.cause_seq, o.within.seq, o.seq,
        if(n.metadata.leader_epoch < o.within.leader_epoch, n.metadata.seq, NULL)))
        AS evidence
FROM outcomes o
LEFT JOIN next n ON n.run_id = o.run_id AND n.node_id = o.node_id AND n.seq = o.seq AND n.topic = o.topic AND n.partition = o.partition
LEFT JOIN blacklist b ON b.run_id = o.run_id AND b.node_id = o.node_id AND b.seq = o.seq
-- A topic that was deleted meanwhile starts again.
LEFT JOIN (
    SELECT run_id, node_id, topic, partition, max(seq) AS seq FROM told WHERE leader = -2 GROUP BY ALL) d
    ON d.run_id = o.run_id AND d.node_id = o.node_id AND d.topic = o.topic AND d.partition = o.partition AND d.seq > o.seq"""

_MESSAGES = """
SELECT run_id, node_id, conn_id, seq,
    CASE WHEN error_code = 0 AND message IS NOT NULL THEN concat(topic, '-', partition, ': a message beside NONE')
        WHEN error_code <> 0 AND message IS NULL AND error_code NOT IN (7, 31, 41) AND NOT (error_code = -1 AND election_type NOT IN (0, 1))
            THEN concat(topic, '-', partition, ': no message beside <error ', error_code, '>')
    END AS detail,
    array(cause_seq, seq) AS evidence
FROM elected"""

_DUPLICATES = """
SELECT run_id, node_id, conn_id, seq,
    CASE WHEN max(error_code) = -1 AND NOT any_value(election_type) IN (0, 1) THEN NULL
        WHEN count(*) > 1 THEN concat(topic, '-', partition, ' is answered ', count(*), ' times')
        WHEN any_value(asks_all) AND any_value(api_version) >= 1 AND max(error_code) = 84
            THEN concat(topic, '-', partition, ' needs no election and is answered, although all were asked for')
    END AS detail,
    array(any_value(cause_seq), seq) AS evidence
FROM elected GROUP BY run_id, node_id, process, conn_id, seq, topic, partition"""

_WITH_CODES = (ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS, ApiKey.CREATE_PARTITIONS, ApiKey.ELECT_LEADERS)
"""Calls for the controller that are answered with several codes."""

_FOR_CONTROLLER = (
    ApiKey.CONTROLLED_SHUTDOWN, *_WITH_CODES, ApiKey.ALTER_PARTITION_REASSIGNMENTS, ApiKey.LIST_PARTITION_REASSIGNMENTS,
    ApiKey.ALTER_PARTITION, ApiKey.ALLOCATE_PRODUCER_IDS,
)

_NOT_CONTROLLER = f"""
WITH processes AS (SELECT DISTINCT run_id, node_id, process FROM events WHERE kind IN ('broker_started', 'advertised')),
changes AS (
    SELECT run_id, node_id, process, seq, kind = 'controller_elected' AS is_elected
    FROM events WHERE kind IN ('controller_elected', 'controller_resigned')),
answers AS (
    SELECT m.run_id, m.node_id, m.process, m.conn_id, m.seq, m.cause_seq, m.api_key,
        if(m.api_key IN ({keys(_WITH_CODES)}), f.codes, array(CAST(m.error_code AS INT))) AS codes
    FROM rare_traffic m
    LEFT JOIN (SELECT run_id, node_id, seq, codes FROM rare_fields WHERE dir = 1 AND api_key IN ({keys(_WITH_CODES)})) f
        ON f.run_id = m.run_id AND f.node_id = m.node_id AND f.seq = m.seq
    JOIN processes p ON p.run_id = m.run_id AND p.node_id = m.node_id AND p.process = m.process
    WHERE m.dir = 1 AND m.reason IS NULL AND m.api_key IN ({keys(_FOR_CONTROLLER)}) AND m.cause_seq IS NOT NULL),
judged AS (
    SELECT a.run_id, a.node_id, a.process, a.conn_id, a.seq, a.cause_seq, a.api_key, any_value(a.codes) AS codes,
        coalesce(max_by(c.is_elected, c.seq) FILTER (WHERE c.seq < a.cause_seq), false) AS was_controller,
        max(c.seq) FILTER (WHERE c.seq < a.cause_seq) AS changed_seq,
        coalesce(bool_or(c.seq BETWEEN a.cause_seq AND a.seq), false) AS has_changed
    FROM answers a LEFT JOIN changes c ON c.run_id = a.run_id AND c.node_id = a.node_id AND c.process = a.process AND c.seq < a.seq
    GROUP BY a.run_id, a.node_id, a.process, a.conn_id, a.seq, a.cause_seq, a.api_key),
wrong AS (
    SELECT j.*, filter(codes, x -> NOT (x IN (29, 31) OR x = if(j.api_key = {ApiKey.CONTROLLED_SHUTDOWN}, 11, 41)
        OR (j.api_key = {ApiKey.ELECT_LEADERS} AND x = -1 AND NOT coalesce(t.election_type, 0) IN (0, 1)))) AS wrong
    FROM judged j LEFT JOIN (SELECT DISTINCT run_id, node_id, seq, election_type FROM elected) t
        ON t.run_id = j.run_id AND t.node_id = j.node_id AND t.seq = j.seq
    WHERE NOT was_controller AND NOT has_changed AND size(codes) > 0)
SELECT run_id, node_id, conn_id, seq,
    if(size(wrong) > 0,
        concat('<api ', api_key, '> is answered with <error ', wrong[0], '> by a broker that is not the controller'), NULL) AS detail,
    array_compact(array(changed_seq, cause_seq, seq)) AS evidence
FROM wrong"""

VIEWS = (ELECTED,)

RULES: tuple[Rule, ...] = (
    Rule(
        "E-01", "error",
        "ElectLeaders answers a partition with NONE only if, between request and answer, the broker took an UpdateMetadata with the "
        "elected leader and a higher leader epoch; its next Metadata shows that or something later. In version 0 NONE may also say that "
        "the leader was preferred already.", "R183-9, R183-16, R491-9", ("elected", "partition_state", "events", "gappy"),
        unless_gaps(_LED), about="elected",
    ),
    Rule(
        "E-02", "error",
        "The message of a partition in an answer of ElectLeaders is null exactly if its code is 0; beside 7, 31, 41 and an "
        "unknown election type it may be null.", "R183-10", ("elected",), _MESSAGES, about="elected",
    ),
    Rule(
        "E-03", "error",
        "ElectLeaders answers a partition once, however often it was named, unless the election type is unknown; when all are asked for, "
        "those that need no election are left out (version 1 and later).", "R183-3, R183-9", ("elected",), _DUPLICATES, about="elected",
    ),
    Rule(
        "E-04", "error",
        "A broker that is not the controller, by its own events, answers NOT_CONTROLLER: each element of CreateTopics, "
        "DeleteTopics, CreatePartitions and ElectLeaders; at the top of AlterPartitionReassignments, ListPartitionReassignments, "
        "AlterPartition and AllocateProducerIds; to ControlledShutdown STALE_CONTROLLER_EPOCH. Errors of authorization come first.",
        "wire 5, R183-5, ctl 10.4", ("elected", "rare_traffic", "rare_fields", "events", "gappy"), unless_gaps(_NOT_CONTROLLER),
    ),
)
