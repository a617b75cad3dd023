"""Rules `G`: consumer groups, as frames between members and their coordinator show them.

What a coordinator knows from the log only, a journal does not show. So a rule begins with what the coordinator told in the same turn
(`calls.py`), and leaves open what came before.
"""

from __future__ import annotations

from klamm.pipeline.lake.windows import keys
from klamm.pipeline.rules.groups.calls import MEMBER_APIS
from klamm.pipeline.rules.record import Rule, messages_of
from klamm.protocol.apis import ApiKey

KEPT_NS = 60_000_000_000
"""An offset lives at least so long: `offsets.retention.minutes` is 1 or more."""

_IN_LIFE = "PARTITION BY run_id, node_id, process, group_id, turn, life"
_IN_GENERATION = f"{_IN_LIFE}, generation"

_ONE_LEADER = f"""
WITH renamed AS (
    SELECT run_id, node_id, process, group_id, turn, life, generation, collect_set(member_id) AS ids FROM group_joins
    WHERE instance_id IS NOT NULL AND asked_as = '' GROUP BY ALL),
told AS (
    SELECT *, first_value(struct(leader, protocol, answer_seq AS seq)) OVER ({_IN_GENERATION} ORDER BY answer_seq) AS first
    FROM group_joins),
synced AS (
    SELECT run_id, node_id, process, group_id, turn, known.life AS life, generation, conn_id, seq, answer_seq, member_id, given,
        first_value(struct(given, answer_seq AS seq)) OVER (
            PARTITION BY run_id, node_id, process, group_id, turn, known.life, generation, member_id ORDER BY answer_seq) AS first
    FROM member_calls WHERE api_key = {ApiKey.SYNC_GROUP} AND array_contains(codes, 0) AND known.generation = generation)
SELECT t.run_id, t.node_id, t.conn_id, t.answer_seq AS seq,
    CASE WHEN t.leader <> t.first.leader AND NOT coalesce(array_contains(r.ids, t.leader), false)
            THEN concat('group ', t.group_id, ', generation ', t.generation, ': leader ', t.leader, ' and ', t.first.leader)
        WHEN t.protocol <> t.first.protocol
            THEN concat('group ', t.group_id, ', generation ', t.generation, ': protocol ', t.protocol, ' and ', t.first.protocol)
    END AS detail,
    array_distinct(array(t.first.seq, t.seq, t.answer_seq)) AS evidence
FROM told t LEFT JOIN renamed r ON r.run_id = t.run_id AND r.node_id = t.node_id AND r.process = t.process AND r.group_id = t.group_id
    AND r.turn = t.turn AND r.life = t.life AND r.generation = t.generation
UNION ALL
SELECT run_id, node_id, conn_id, answer_seq,
    if(given.size = first.given.size AND given.crc = first.given.crc, NULL,
        concat('group ', group_id, ', generation ', generation, ': member ', member_id, ' gets another assignment than before')),
    array_distinct(array(first.seq, seq, answer_seq))
FROM synced"""

_GROWS = f"""
WITH steps AS (
    SELECT *, max(generation) OVER (
            {_IN_LIFE} ORDER BY answer_seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before,
        lag(answer_seq) OVER ({_IN_LIFE} ORDER BY answer_seq) AS seq_before,
        lag(struct(generation, life, answer_seq AS seq)) OVER (
            PARTITION BY run_id, node_id, process, group_id, turn, member_id ORDER BY answer_seq) AS own
    FROM group_joins),
-- A generation whose members all failed to join is not seen.
failed AS (
    SELECT run_id, node_id, process, group_id, turn, seq, answer_seq FROM group_calls
    WHERE api_key = {ApiKey.JOIN_GROUP} AND (error IS NULL OR error NOT IN (0, 79))),
jumps AS (
    SELECT s.run_id, s.node_id, s.seq, count(f.seq) AS failures
    FROM steps s LEFT JOIN failed f ON f.run_id = s.run_id AND f.node_id = s.node_id AND f.process = s.process AND f.group_id = s.group_id
        AND f.seq < s.answer_seq AND (f.answer_seq IS NULL OR f.answer_seq > s.seq_before)
    WHERE s.generation > s.before + 1 GROUP BY ALL)
SELECT s.run_id, s.node_id, s.conn_id, s.answer_seq AS seq,
    CASE WHEN s.generation < s.before
            THEN concat('group ', s.group_id, ': generation ', s.generation, ' after ', s.before)
        WHEN s.own.life < s.life AND s.generation < s.own.generation
            THEN concat('group ', s.group_id, ': generation ', s.generation, ' for a member of generation ', s.own.generation)
        WHEN j.failures = 0 AND s.generation > s.before + if(s.own.generation = s.before, 1, 2)
            THEN concat('group ', s.group_id, ': generation ', s.generation, ' after ', s.before)
    END AS detail,
    array_distinct(array_compact(array(s.own.seq, s.seq_before, s.seq, s.answer_seq))) AS evidence
FROM steps s LEFT JOIN jumps j ON j.run_id = s.run_id AND j.node_id = s.node_id AND j.seq = s.seq"""

_FROM_LEADER = f"""
WITH leaders AS (
    SELECT DISTINCT run_id, node_id, process, group_id, turn, life, generation, leader FROM group_joins),
sends AS (
    SELECT s.run_id, s.node_id, s.process, s.group_id, s.turn, l.life, l.generation, min(s.seq) AS seq,
        flatten(collect_list(s.sent)) AS sent, transform(min_by(s.sent, s.seq), each -> each.memberId) AS first_members
    FROM member_calls s JOIN leaders l ON l.run_id = s.run_id AND l.node_id = s.node_id AND l.process = s.process
        AND l.group_id = s.group_id AND l.turn = s.turn AND l.life = s.known.life AND l.generation = s.generation AND l.leader = s.member_id
    -- A static leader that came back may send nothing: the assignment before counts.
    WHERE s.api_key = {ApiKey.SYNC_GROUP} AND (size(s.sent) > 0 OR s.instance_id IS NULL) GROUP BY ALL),
synced AS (
    SELECT m.*, s.seq AS sent_seq, filter(s.sent, each -> each.memberId = m.member_id) AS own,
        array_contains(s.first_members, m.member_id) AS is_known
    FROM member_calls m JOIN sends s ON s.run_id = m.run_id AND s.node_id = m.node_id AND s.process = m.process
        AND s.group_id = m.group_id AND s.turn = m.turn AND s.life = m.known.life AND s.generation = m.generation
    WHERE m.api_key = {ApiKey.SYNC_GROUP} AND array_contains(m.codes, 0) AND m.answer_seq > s.seq)
SELECT run_id, node_id, conn_id, answer_seq AS seq,
    CASE WHEN size(own) = 0 AND given.size > 0
            THEN concat('group ', group_id, ', generation ', generation, ': member ', member_id, ' gets what the leader did not send')
        WHEN size(own) > 0 AND NOT exists(own, each -> each.assignment.size = given.size AND each.assignment.crc = given.crc)
            THEN concat('group ', group_id, ', generation ', generation, ': member ', member_id, ' gets ', given.size,
                ' bytes that the leader did not send')
    END AS detail,
    array_distinct(array(sent_seq, seq, answer_seq)) AS evidence
-- A static member that came back has the assignment of its former id, whatever it sends itself.
FROM synced WHERE is_known OR instance_id IS NULL"""

_COMMITTED = f"""
SELECT run_id, node_id, conn_id, answer_seq AS seq,
    if(generation <> known.generation,
        concat('group ', group_id, ': a commit of generation ', generation, ' succeeds in generation ', known.generation), NULL) AS detail,
    array(known.seq, seq, answer_seq) AS evidence
FROM member_calls WHERE api_key = {ApiKey.OFFSET_COMMIT} AND array_contains(codes, 0)"""

_MEMBERS = f"""
WITH named AS (
    SELECT run_id, node_id, process, group_id, turn, life, generation, member_id FROM group_joins
    UNION SELECT run_id, node_id, process, group_id, turn, life, generation, name FROM group_joins LATERAL VIEW explode(members) AS name),
-- The leader is told of all members.
whole AS (SELECT DISTINCT run_id, node_id, process, group_id, turn, life, generation FROM group_joins WHERE size(members) > 0)
SELECT m.run_id, m.node_id, m.conn_id, m.answer_seq AS seq,
    if(n.member_id IS NULL, concat('group ', m.group_id, ': a commit of member ', m.member_id, ' succeeds, who did not join generation ',
        m.generation), NULL) AS detail,
    array(m.known.seq, m.seq, m.answer_seq) AS evidence
FROM member_calls m
JOIN whole w ON w.run_id = m.run_id AND w.node_id = m.node_id AND w.process = m.process AND w.group_id = m.group_id AND w.turn = m.turn
    AND w.life = m.known.life AND w.generation = m.generation
LEFT JOIN named n ON n.run_id = m.run_id AND n.node_id = m.node_id AND n.process = m.process AND n.group_id = m.group_id
    AND n.turn = m.turn AND n.life = m.known.life AND n.generation = m.generation AND n.member_id = m.member_id
WHERE m.api_key = {ApiKey.OFFSET_COMMIT} AND array_contains(m.codes, 0) AND m.generation = m.known.generation"""

_LAST_COMMIT = f"""
WITH groups_of_others AS (
    SELECT DISTINCT run_id, group_id FROM (
        SELECT run_id, group_id FROM rare_fields WHERE api_key = {ApiKey.OFFSET_DELETE} AND dir = 0
        UNION ALL
        SELECT run_id, explode(group_ids) FROM rare_fields WHERE api_key = {ApiKey.DELETE_GROUPS} AND dir = 0)),
deleted AS (SELECT DISTINCT run_id, topic FROM partition_state WHERE leader = -2),
-- `known_seq` is when a commit was known to count: its response, or that to the marker of its transaction.
known AS (
    SELECT run_id, node_id, process, group_id, turn, answer_turn, topic, partition, seq, ts_ns, answer_seq, committed_offset, error_code,
        answer_seq AS known_seq, coalesce(retention_ms, -1) >= 0 AS may_expire
    FROM commits LEFT ANTI JOIN groups_of_others USING (run_id, group_id) LEFT ANTI JOIN deleted USING (run_id, topic)
    WHERE api_version >= 1 AND coalesce(error_code, -1) IN (-1, 0, 7, 14, 15, 16)
    UNION ALL
    SELECT run_id, node_id, process, group_id, turn, marker_turn, topic, partition, seq, ts_ns, answer_seq, committed_offset,
        if(is_commit, error_code, -1), if(is_commit, marker_seq, NULL), false
    FROM txn_commits LEFT ANTI JOIN groups_of_others USING (run_id, group_id) LEFT ANTI JOIN deleted USING (run_id, topic)
    WHERE coalesce(error_code, -1) IN (-1, 0, 7, 14, 15, 16) AND coalesce(is_commit, true)),
done AS (
    SELECT f.run_id, f.node_id, f.seq, f.group_id, f.topic, f.partition, max(k.seq) AS last_seq, max(k.ts_ns) AS last_ts_ns
    FROM fetched_offsets f JOIN known k ON k.run_id = f.run_id AND k.node_id = f.node_id AND k.process = f.process
        AND k.group_id = f.group_id AND k.topic = f.topic AND k.partition = f.partition
    WHERE f.turn = f.answer_turn AND k.turn = f.turn AND k.answer_turn = f.turn AND k.error_code = 0 AND k.known_seq < f.seq
    GROUP BY ALL),
-- A commit that began after the response to another one has taken its place.
possible AS (
    SELECT f.run_id, f.node_id, f.conn_id, f.seq, f.ts_ns, f.answer_seq, f.group_id, f.topic, f.partition, f.committed_offset,
        d.last_seq, d.last_ts_ns, collect_set(k.committed_offset) AS offsets, bool_or(k.may_expire) AS may_expire
    FROM fetched_offsets f
    JOIN done d ON d.run_id = f.run_id AND d.node_id = f.node_id AND d.seq = f.seq AND d.group_id = f.group_id AND d.topic = f.topic
        AND d.partition = f.partition
    JOIN known k ON k.run_id = f.run_id AND k.node_id = f.node_id AND k.process = f.process AND k.group_id = f.group_id
        AND k.topic = f.topic AND k.partition = f.partition
    WHERE k.seq < f.answer_seq AND (k.answer_seq IS NULL OR k.answer_seq > d.last_seq)
    GROUP BY ALL)
SELECT run_id, node_id, conn_id, answer_seq AS seq,
    if(array_contains(offsets, committed_offset), NULL, concat('group ', group_id, ', ', topic, '-', partition, ': offset ',
        committed_offset, ' after a commit of ', array_join(transform(array_sort(offsets), each -> CAST(each AS STRING)), ' or ')
    )) AS detail,
    array(last_seq, seq, answer_seq) AS evidence
FROM possible WHERE committed_offset >= 0 OR ts_ns - last_ts_ns < {KEPT_NS} AND NOT may_expire"""

_FENCED = f"""
WITH joined AS (
    SELECT run_id, node_id, process, group_id, turn, member_id, max(answer_seq) AS seq FROM group_joins GROUP BY ALL),
-- A member that was given its id is unknown until it joins.
told AS (
    SELECT c.run_id, c.node_id, c.process, c.group_id, c.turn, c.member_id, c.instance_id,
        min(struct(c.answer_seq AS seq, c.conn_id)) AS first, bool_or(array_contains(c.codes, 82)) AS is_fenced
    FROM group_calls c LEFT JOIN joined j ON j.run_id = c.run_id AND j.node_id = c.node_id AND j.process = c.process
        AND j.group_id = c.group_id AND j.turn = c.turn AND j.member_id = c.member_id
    WHERE c.api_key IN ({keys(MEMBER_APIS)}) AND c.member_id <> '' AND c.turn = c.answer_turn
        AND (array_contains(c.codes, 25) OR array_contains(c.codes, 82)) AND c.answer_seq > coalesce(j.seq, 0)
    GROUP BY c.run_id, c.node_id, c.process, c.group_id, c.turn, c.member_id, c.instance_id),
beats AS (
    SELECT t.run_id, t.node_id, t.process, t.group_id, t.turn, t.member_id, t.instance_id, min(c.answer_seq) AS seq
    FROM told t JOIN group_calls c ON c.run_id = t.run_id AND c.node_id = t.node_id AND c.process = t.process AND c.group_id = t.group_id
        AND c.turn = t.turn AND c.answer_turn = t.turn AND c.member_id = t.member_id AND c.instance_id <=> t.instance_id
    WHERE c.api_key = {ApiKey.HEARTBEAT} AND c.error = 0 AND c.seq > t.first.seq GROUP BY ALL)
SELECT t.run_id, t.node_id, t.first.conn_id AS conn_id, coalesce(b.seq, t.first.seq) AS seq,
    if(b.seq IS NULL, NULL, concat('group ', t.group_id, ': a heartbeat of member ', t.member_id, ' succeeds after ',
        if(t.is_fenced, 'FENCED_INSTANCE_ID', 'UNKNOWN_MEMBER_ID'))) AS detail,
    array_compact(array(t.first.seq, b.seq)) AS evidence
FROM told t LEFT JOIN beats b ON b.run_id = t.run_id AND b.node_id = t.node_id AND b.process = t.process AND b.group_id = t.group_id
    AND b.turn = t.turn AND b.member_id = t.member_id AND b.instance_id <=> t.instance_id"""

_JOINS, _SYNCS = (messages_of(ApiKey.JOIN_GROUP),), (messages_of(ApiKey.SYNC_GROUP),)

RULES: tuple[Rule, ...] = (
    Rule(
        "G-01", "error", "A generation of a group has one leader and one protocol, and a member that syncs again gets the same assignment. "
        "A static leader that comes back has a new id.", "wire 12", ("group_joins", "member_calls"), _ONE_LEADER, about="group_joins",
        needs=_JOINS,
    ),
    Rule(
        "G-02", "error", "Under one coordinator the generation of a group grows by one and never goes back, but a group without members "
        "may begin again with 1. A generation without members is not seen.", "wire 12", ("group_joins", "group_calls"), _GROWS,
        about="group_joins", needs=_JOINS,
    ),
    Rule(
        "G-03", "error", "A member that syncs gets the assignment that the leader of its generation sent for it, or none if it sent none.",
        "wire 12", ("group_joins", "member_calls"), _FROM_LEADER, about="member_calls", needs=_SYNCS,
    ),
    Rule(
        "G-04", "error", "A commit of a member that succeeds has the current generation of the group.", "wire 12", ("member_calls",),
        _COMMITTED, about="member_calls", needs=(messages_of(ApiKey.OFFSET_COMMIT),),
    ),
    Rule(
        "G-05", "error", "OffsetFetch returns the offset that was committed last, where the order is known and nothing is deleted or "
        "expires. Offsets of a transaction count from its marker on, and not if it is aborted.", "wire 12",
        ("fetched_offsets", "commits", "txn_commits", "rare_fields", "partition_state"), _LAST_COMMIT,
        about="fetched_offsets", needs=(messages_of(ApiKey.OFFSET_FETCH),),
    ),
    Rule(
        "G-06", "error", "A member that was told UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID has no successful heartbeat after it. Before it "
        "joins, a member with an id is unknown.", "wire 12", ("group_calls", "group_joins"), _FENCED, about="group_calls",
        needs=(messages_of(*MEMBER_APIS),),
    ),
    Rule(
        "G-07", "error", "A commit that names the current generation succeeds only if its member has joined that generation.", "wire 12",
        ("member_calls", "group_joins"), _MEMBERS, about="member_calls", needs=(messages_of(ApiKey.OFFSET_COMMIT),),
    ),
)
