"""What the rules about groups and gold's tables of groups read: requests of members with their responses, in the order of the coordinator.

A coordinator is a process of a broker. It may stop being that of a group and be it again, with what the log says; so each row has a
`turn`, the number of times before it that a LeaderAndIsr request told the broker of another leader or leader epoch of a partition of
`__consumer_offsets`. A row whose response came in another turn than its request is in `turn` by its request, in `answer_turn` by its
response.

Journals that lack rows, or bodies of these requests, cannot say which generation was the current one. Brokers with such a journal are
left out.
"""

from __future__ import annotations

from klamm.pipeline.lake.windows import keys
from klamm.pipeline.rules.record import View, messages_of
from klamm.protocol.apis import ApiKey

OF_GROUP = "PARTITION BY run_id, node_id, process, group_id, turn"

MEMBER_APIS = (ApiKey.OFFSET_COMMIT, ApiKey.JOIN_GROUP, ApiKey.HEARTBEAT, ApiKey.SYNC_GROUP)
"""Requests that name a member."""

GROUP_APIS = (ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH, ApiKey.JOIN_GROUP, ApiKey.HEARTBEAT, ApiKey.SYNC_GROUP)

GROUP_KEYS = messages_of(*GROUP_APIS)

_UNSURE = """unsure AS (
    SELECT run_id, node_id FROM rare_fields WHERE api_key IN ({keys}) AND (NOT has_body OR flags & 2 <> 0)
    UNION SELECT run_id, node_id FROM ends WHERE NOT is_gapless)"""
"""Journals that do not show all of these requests."""

_MOVES = f"""told AS (
    SELECT run_id, node_id, process, seq, leader, leader_epoch,
        lag(leader) OVER w AS leader_before, lag(leader_epoch) OVER w AS leader_epoch_before
    FROM partition_state WHERE topic = '__consumer_offsets' AND api_key = {ApiKey.LEADER_AND_ISR} AND dir = 0
    WINDOW w AS (PARTITION BY run_id, node_id, process, partition ORDER BY seq)),
moves AS (
    SELECT run_id, node_id, process, collect_set(seq) AS moved FROM told
    WHERE leader_before IS NULL OR leader_before <> leader OR leader_epoch_before <> leader_epoch GROUP BY ALL)"""
"""When a broker was told of another leader or leader epoch of a partition of the offsets topic."""

GROUP_CALLS = View(
    "group_calls",
    ("rare_fields", "partition_state", "ends"),
    f"""
WITH {_UNSURE.format(keys=keys(GROUP_APIS))},
{_MOVES},
asked AS (SELECT * FROM rare_fields LEFT ANTI JOIN unsure USING (run_id, node_id) WHERE dir = 0 AND api_key IN ({keys(GROUP_APIS)})),
answers AS (
    SELECT run_id, node_id, cause_seq, seq AS answer_seq, ts_ns AS answer_ts_ns, error_code AS error, member_id, generation, leader,
        protocol_type, protocol, members, assignment, commits, fetched, fetched_groups, codes
    FROM rare_fields WHERE dir = 1 AND api_key IN ({keys(GROUP_APIS)}))
SELECT q.run_id, q.node_id, q.process, q.conn_id, q.seq, q.ts_ns, q.api_key, q.api_version, q.client_id, a.answer_seq, a.answer_ts_ns,
    a.error, q.protocol_type, q.session_timeout_ms, q.assignments, q.retention_ms, q.committed,
    if(a.answer_seq IS NULL, NULL, struct(a.member_id, a.generation, a.leader, a.protocol_type, a.protocol, a.members, a.assignment,
        a.commits, a.fetched, a.fetched_groups)) AS answer,
    coalesce(size(filter(m.moved, each -> each < q.seq)), 0) AS turn,
    coalesce(size(filter(m.moved, each -> each < a.answer_seq)), 0) AS answer_turn,
    q.group_id, q.member_id, q.instance_id, q.generation,
    if(q.api_key = {ApiKey.OFFSET_COMMIT}, a.codes, array(CAST(a.error AS INT))) AS codes
FROM asked q LEFT JOIN answers a ON a.run_id = q.run_id AND a.node_id = q.node_id AND a.cause_seq = q.seq
LEFT JOIN moves m ON m.run_id = q.run_id AND m.node_id = q.node_id AND m.process = q.process
""",
    needs=(GROUP_KEYS,),
)
"""OffsetCommit, OffsetFetch, JoinGroup, Heartbeat and SyncGroup requests that brokers received. `answer` and what begins like it are null
without a response; `codes` are the error codes of the response, of OffsetCommit one for each partition."""

GROUP_JOINS = View(
    "group_joins",
    ("group_calls",),
    f"""
WITH joined AS (
    SELECT run_id, node_id, process, conn_id, seq, ts_ns, answer_seq, answer_ts_ns, answer_turn AS turn, group_id, instance_id,
        member_id AS asked_as, answer.member_id AS member_id, answer.generation AS generation, answer.leader AS leader,
        coalesce(answer.protocol_type, protocol_type) AS protocol_type, answer.protocol AS protocol, answer.members AS members
    FROM group_calls WHERE api_key = {ApiKey.JOIN_GROUP} AND error = 0),
begun AS (
    SELECT *, if(generation = 1 AND row_number() OVER (
            PARTITION BY run_id, node_id, process, group_id, turn, coalesce(instance_id, member_id) ORDER BY answer_seq) = 1
        AND (lag(generation) OVER w > 1 OR lag(leader) OVER w <> leader AND NOT array_contains(members, lag(leader) OVER w)),
        1, 0) AS begins
    FROM joined WINDOW w AS ({OF_GROUP} ORDER BY answer_seq))
SELECT *, sum(begins) OVER ({OF_GROUP} ORDER BY answer_seq ROWS UNBOUNDED PRECEDING) AS life FROM begun
""",
    needs=(messages_of(ApiKey.JOIN_GROUP),),
)
"""JoinGroup responses without error. `life` counts how often the group began again with generation 1 and other members: a group without
members may be deleted, by request or because nothing of it is kept. `asked_as` is the member id of the request."""

LONGEST_SESSION_MS = 330_000
"""A session with a longer timeout is not said to have expired: the margin around a window of a run is about as long."""

GROUP_ENDS = View(
    "group_ends",
    ("group_joins", "group_calls", "rare_fields", "journals"),
    f"""
WITH joined AS (
    SELECT run_id, node_id, process, group_id, turn, life, generation, min(answer_ts_ns) AS joined_ts_ns
    FROM group_joins GROUP BY run_id, node_id, process, group_id, turn, life, generation),
-- The leader is told of all members, also of those whose own response is not there.
named AS (
    SELECT run_id, node_id, process, group_id, turn, life, generation, member_id FROM group_joins
    UNION SELECT run_id, node_id, process, group_id, turn, life, generation, name FROM group_joins LATERAL VIEW explode(members) AS name),
members AS (SELECT * FROM joined JOIN named USING (run_id, node_id, process, group_id, turn, life, generation)),
instances AS (
    SELECT run_id, group_id, member_id, max(instance_id) AS instance_id FROM group_joins GROUP BY run_id, group_id, member_id),
leaves AS (
    SELECT run_id, group_id, node_id, seq, ts_ns, l.memberId AS member_id, l.groupInstanceId AS instance_id FROM (
        SELECT q.run_id, q.group_id, a.node_id, a.seq, a.ts_ns, coalesce(a.leaving, q.leaving) AS leaving
        FROM rare_fields q JOIN rare_fields a ON a.run_id = q.run_id AND a.node_id = q.node_id AND a.cause_seq = q.seq
        WHERE q.api_key = {ApiKey.LEAVE_GROUP} AND q.dir = 0 AND a.api_key = {ApiKey.LEAVE_GROUP} AND a.dir = 1 AND a.error_code = 0)
    LATERAL VIEW explode(leaving) AS l),
-- A request of a member that is known keeps its session; one that waits for a generation cannot expire.
signs AS (
    SELECT run_id, group_id, if(api_key = {ApiKey.JOIN_GROUP} AND answer_seq IS NOT NULL, answer.member_id, member_id) AS member_id,
        max(coalesce(answer_ts_ns, ts_ns)) AS heard_ts_ns, max_by(node_id, struct(coalesce(answer_ts_ns, ts_ns), seq)) AS heard_node,
        max_by(seq, struct(coalesce(answer_ts_ns, ts_ns), seq)) AS heard_seq, max(session_timeout_ms) AS session_ms,
        bool_or(api_key = {ApiKey.JOIN_GROUP} AND answer_seq IS NULL) AS is_waiting
    FROM group_calls
    WHERE api_key IN ({keys(MEMBER_APIS)}) AND (answer_seq IS NULL OR exists(codes, each -> each IN (0, 27)))
    GROUP BY ALL),
runs AS (SELECT run_id, max(ts_ns) AS last_ts_ns FROM journals GROUP BY run_id),
gone AS (
    SELECT m.run_id, m.node_id, m.process, m.group_id, m.turn, m.life, m.generation, m.member_id,
        min(if(l.seq IS NULL, NULL, struct(l.ts_ns AS ts_ns, l.node_id AS node_id, l.seq AS seq))) AS left,
        min(if(NOT s.is_waiting AND s.session_ms <= {LONGEST_SESSION_MS} AND s.heard_ts_ns + s.session_ms * 1000000L <= r.last_ts_ns,
            struct(s.heard_ts_ns + s.session_ms * 1000000L AS ts_ns, s.heard_node AS node_id, s.heard_seq AS seq), NULL)) AS expired
    FROM members m JOIN runs r ON r.run_id = m.run_id
    LEFT JOIN instances i ON i.run_id = m.run_id AND i.group_id = m.group_id AND i.member_id = m.member_id
    LEFT JOIN leaves l ON l.run_id = m.run_id AND l.group_id = m.group_id AND l.ts_ns >= m.joined_ts_ns
        AND (l.member_id = m.member_id OR coalesce(l.member_id, '') = '' AND l.instance_id = i.instance_id)
    LEFT JOIN signs s ON s.run_id = m.run_id AND s.group_id = m.group_id AND s.member_id = m.member_id
    GROUP BY m.run_id, m.node_id, m.process, m.group_id, m.turn, m.life, m.generation, m.member_id),
empty AS (
    SELECT run_id, node_id, process, group_id, turn, life, generation, max(coalesce(left, expired)) AS ended
    FROM gone GROUP BY run_id, node_id, process, group_id, turn, life, generation
    HAVING bool_and(left IS NOT NULL OR expired IS NOT NULL)),
deleted AS (
    SELECT j.run_id, j.node_id, j.process, j.group_id, j.turn, j.life, j.generation,
        min(struct(d.ts_ns AS ts_ns, d.node_id AS node_id, d.seq AS seq)) AS ended
    FROM joined j
    JOIN (SELECT * FROM rare_fields LATERAL VIEW explode(group_ids) AS deleted_id WHERE api_key = {ApiKey.DELETE_GROUPS} AND dir = 1) d
        ON d.run_id = j.run_id AND d.deleted_id = j.group_id AND d.ts_ns >= j.joined_ts_ns
    GROUP BY j.run_id, j.node_id, j.process, j.group_id, j.turn, j.life, j.generation)
SELECT run_id, node_id, process, group_id, turn, life, generation, ended.ts_ns AS ended_ts_ns, ended.node_id AS ended_node,
    ended.seq AS ended_seq
FROM (
    SELECT run_id, node_id, process, group_id, turn, life, generation, min(ended) AS ended
    FROM (SELECT * FROM empty UNION ALL SELECT * FROM deleted)
    GROUP BY run_id, node_id, process, group_id, turn, life, generation)
""",
    needs=(messages_of(ApiKey.JOIN_GROUP),),
)
"""Generations whose group had no members any more: the last one left, or its session expired, or the group was deleted. `ended_node` and
`ended_seq` are the row that ended it: the response, or the last request of the member whose session expired."""

MEMBER_CALLS = View(
    "member_calls",
    ("group_calls", "group_joins"),
    f"""
WITH points AS (
    SELECT run_id, node_id, process, group_id, turn, answer_seq AS place,
        struct(generation, leader, protocol_type, life, answer_seq AS seq) AS joined, NULL AS request
    FROM group_joins
    UNION ALL
    SELECT run_id, node_id, process, group_id, turn, seq, NULL,
        struct(conn_id, seq, ts_ns, api_key, member_id, instance_id, generation, answer_seq, answer_ts_ns, codes,
            assignments AS sent, answer.assignment AS given)
    FROM group_calls WHERE api_key IN ({ApiKey.OFFSET_COMMIT}, {ApiKey.SYNC_GROUP}) AND generation >= 0)
SELECT run_id, node_id, process, group_id, turn, request.*, known FROM (
    SELECT *, last_value(joined, true) OVER ({OF_GROUP} ORDER BY place ROWS UNBOUNDED PRECEDING) AS known FROM points)
WHERE request IS NOT NULL AND known IS NOT NULL
""",
    needs=(messages_of(ApiKey.OFFSET_COMMIT, ApiKey.SYNC_GROUP),),
)
"""OffsetCommit and SyncGroup requests that name a generation, beside the one that the coordinator had told last (`known`). Of SyncGroup
`sent` are the assignments of the request, and `given` is that of the response."""

COMMITS = View(
    "commits",
    ("group_calls",),
    f"""
WITH topics AS (
    SELECT * EXCEPT (assignments, committed, protocol_type, answer, codes), answer.commits AS results
    FROM group_calls LATERAL VIEW explode(committed) AS t
    WHERE api_key = {ApiKey.OFFSET_COMMIT}),
asked AS (
    SELECT * EXCEPT (t, p, results, error), t.name AS topic, p.partitionIndex AS partition, p.committedOffset AS committed_offset,
        transform(flatten(transform(filter(results, r -> r.name = t.name),
            r -> filter(r.partitions, each -> each.partitionIndex = p.partitionIndex))), each -> each.errorCode) AS codes
    FROM topics LATERAL VIEW explode(t.partitions) AS p)
SELECT * EXCEPT (codes), try_element_at(codes, 1) AS error_code FROM asked
""",
    needs=(messages_of(ApiKey.OFFSET_COMMIT),),
)
"""Partitions in OffsetCommit requests; `error_code` is null without a response."""

FETCHED = View(
    "fetched_offsets",
    ("group_calls",),
    f"""
WITH answers AS (
    SELECT run_id, node_id, process, conn_id, seq, ts_ns, answer_seq, turn, answer_turn, one.groupId AS group_id, one.topics AS topics
    FROM group_calls LATERAL VIEW explode(answer.fetched_groups) AS one
    WHERE api_key = {ApiKey.OFFSET_FETCH} AND api_version >= 8 AND one.errorCode = 0
    UNION ALL
    SELECT run_id, node_id, process, conn_id, seq, ts_ns, answer_seq, turn, answer_turn, group_id, answer.fetched
    FROM group_calls WHERE api_key = {ApiKey.OFFSET_FETCH} AND api_version BETWEEN 1 AND 7 AND coalesce(error, 0) = 0),
topics AS (SELECT * EXCEPT (topics, t), t.name AS topic, t.partitions AS partitions FROM answers LATERAL VIEW explode(topics) AS t)
SELECT * EXCEPT (partitions, p), p.partitionIndex AS partition, p.committedOffset AS committed_offset
FROM topics LATERAL VIEW explode(partitions) AS p WHERE p.errorCode = 0
""",
    needs=(messages_of(ApiKey.OFFSET_FETCH),),
)
"""Partitions in OffsetFetch responses without error; -1 is no offset. Version 0 reads ZooKeeper and is left out."""

TXN_COMMITS = View(
    "txn_commits",
    ("rare_fields", "partition_state", "ends", "txn_markers"),
    f"""
WITH {_UNSURE.format(keys=keys([ApiKey.TXN_OFFSET_COMMIT]))},
{_MOVES},
answers AS (
    SELECT run_id, node_id, cause_seq, seq AS answer_seq, commits AS results
    FROM rare_fields WHERE dir = 1 AND api_key = {ApiKey.TXN_OFFSET_COMMIT}),
topics AS (
    SELECT q.run_id, q.node_id, q.process, q.seq, q.ts_ns, a.answer_seq, a.results, t, q.group_id, q.producer_id,
        q.producer_epoch
    FROM (SELECT * FROM rare_fields LATERAL VIEW explode(committed) AS t
        WHERE dir = 0 AND api_key = {ApiKey.TXN_OFFSET_COMMIT}) q
    LEFT JOIN answers a ON a.run_id = q.run_id AND a.node_id = q.node_id AND a.cause_seq = q.seq),
rows AS (SELECT * EXCEPT (t), t.name AS topic FROM topics LATERAL VIEW explode(t.partitions) AS p),
coded AS (
    SELECT * EXCEPT (p, results), p.partitionIndex AS partition, p.committedOffset AS committed_offset,
        try_element_at(transform(flatten(transform(filter(results, r -> r.name = topic),
            r -> filter(r.partitions, each -> each.partitionIndex = p.partitionIndex))), each -> each.errorCode), 1) AS error_code
    FROM rows LEFT ANTI JOIN unsure USING (run_id, node_id)),
to_itself AS (
    SELECT DISTINCT run_id, node_id FROM txn_markers WHERE dir = 0 AND client_id = concat('broker-', node_id, '-txn-marker-sender')),
own AS (
    SELECT DISTINCT run_id, node_id, producer_id
    FROM rare_fields LEFT ANTI JOIN to_itself USING (run_id, node_id) WHERE api_key = {ApiKey.END_TXN} AND dir = 0),
-- One marker of a producer may be for the offsets of another group.
single AS (
    SELECT run_id, node_id, producer_id FROM coded LEFT ANTI JOIN own USING (run_id, node_id, producer_id)
    GROUP BY run_id, node_id, producer_id HAVING count(DISTINCT group_id) = 1),
ended AS (
    SELECT c.run_id, c.node_id, c.process, c.seq, min(struct(m.seq, m.answer_seq, m.is_commit, m.code, m.producer_epoch)) AS marker
    FROM coded c JOIN single s ON s.run_id = c.run_id AND s.node_id = c.node_id AND s.producer_id = c.producer_id
    JOIN txn_markers m ON m.run_id = c.run_id AND m.node_id = c.node_id AND m.process = c.process AND m.dir = 0
        AND m.topic = '__consumer_offsets' AND m.producer_id = c.producer_id AND m.seq > c.answer_seq
    GROUP BY c.run_id, c.node_id, c.process, c.seq)
SELECT c.*, if(e.marker.code = 0, e.marker.is_commit, NULL) AS is_commit, if(e.marker.code = 0, e.marker.answer_seq, NULL) AS marker_seq,
    coalesce(size(filter(v.moved, each -> each < c.seq)), 0) AS turn,
    coalesce(size(filter(v.moved, each -> each < coalesce(e.marker.answer_seq, c.answer_seq))), 0) AS marker_turn
FROM coded c LEFT JOIN ended e ON e.run_id = c.run_id AND e.node_id = c.node_id AND e.process = c.process AND e.seq = c.seq
LEFT JOIN moves v ON v.run_id = c.run_id AND v.node_id = c.node_id AND v.process = c.process
""",
    needs=(messages_of(ApiKey.TXN_OFFSET_COMMIT),),
)
"""Partitions in TxnOffsetCommit requests that brokers received. `is_commit` is the outcome in the next marker of the producer for the
offsets topic, and `marker_seq` the response to it; both are null where no journal shows it: a broker of Klamm that coordinates the
transaction too writes the marker without a request."""

VIEWS = (GROUP_CALLS, GROUP_JOINS, GROUP_ENDS, MEMBER_CALLS, COMMITS, FETCHED, TXN_COMMITS)
