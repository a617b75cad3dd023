"""Rule W-11: an answer names what its request named. The names of a body are one list of texts, whatever the API calls them."""

from __future__ import annotations

from klamm.pipeline.rules.record import Rule, View
from klamm.protocol.apis import ApiKey

NAMED = View(
    "named",
    ("fields",),
    f"""
SELECT run_id, node_id, conn_id, seq, dir, peer_id, api_key, api_version, cause_seq, flags, error_code, names,
    -- Metadata may ask by id: then the answer has a name that the request has not, and is looked for by its id.
    ids, coalesce(is_odd, false) AS is_odd
FROM fields
WHERE names IS NOT NULL AND (dir IN (0, 1) OR api_key IN ({ApiKey.LEADER_AND_ISR}, {ApiKey.STOP_REPLICA}) AND peer_id IS NOT NULL)""",
)
"""What requests and responses of some APIs name, as lists of texts: topics, or topic-partition."""


def _some(names: str) -> str:
    """SQL: the first of these names as a text. Topics may be named by ids, which have 22 characters: those that are known have names."""
    known = "try_element_at(topics, each), concat(try_element_at(topics, substring(each, 1, 22)), substring(each, 23))"
    return f"array_join(transform(slice({names}, 1, 5), each -> coalesce({known}, each)), ', ')"


_SAME = f"""
WITH journaled AS (SELECT DISTINCT run_id, node_id FROM ends),
pairs AS (
    SELECT a.run_id, a.node_id, a.conn_id, a.seq, a.cause_seq, a.api_key, q.flags & 2 <> 0 AS is_cut,
        -- The last name of a request that was cut may lack its end.
        if(q.flags & 2 <> 0, slice(q.names, 1, greatest(size(q.names) - 1, 0)), q.names) AS asked, a.names AS answered, a.ids
    FROM named a
    JOIN named q ON q.run_id = a.run_id AND q.node_id = a.node_id AND q.seq = a.cause_seq AND q.api_key = a.api_key
    LEFT JOIN journaled j ON j.run_id = a.run_id AND j.node_id = a.peer_id
    WHERE a.dir IN (1, 3) AND q.dir IN (0, 2) AND (a.dir = 1 OR j.node_id IS NULL) AND q.names IS NOT NULL AND a.names IS NOT NULL
        AND a.flags & 2 = 0 AND NOT q.is_odd AND (a.api_key NOT IN ({ApiKey.LEADER_AND_ISR}, {ApiKey.STOP_REPLICA}) OR a.error_code = 0)
        AND NOT (q.flags & 2 <> 0 AND a.api_key = {ApiKey.DELETE_TOPICS})),
compared AS (
    SELECT *,
        CASE WHEN api_key = {ApiKey.DELETE_TOPICS} THEN NULL
            WHEN api_key = {ApiKey.METADATA} THEN array_except(array_except(asked, answered), ids)
            ELSE array_except(asked, answered) END AS missing,
        CASE WHEN api_key = {ApiKey.DELETE_TOPICS} OR is_cut THEN NULL
            WHEN api_key = {ApiKey.METADATA} THEN transform(filter(sequence(0, size(answered)), i -> i < size(answered)
                AND NOT array_contains(asked, coalesce(answered[i], '')) AND NOT coalesce(array_contains(asked, ids[i]), false)),
                i -> coalesce(answered[i], ids[i]))
            ELSE array_except(answered, asked) END AS surplus,
        -- What is named twice may be answered once or twice, each API in its way. Metadata of ids that it refuses has no names.
        NOT is_cut AND size(array_distinct(asked)) = size(asked) AND NOT exists(answered, x -> x IS NULL)
            AND size(array_distinct(answered)) < size(answered)
            AND (ids IS NULL OR size(array_distinct(arrays_zip(answered, ids))) < size(answered)) AS is_repeated
    FROM pairs),
known AS (SELECT run_id, map_from_entries(collect_list(struct(named_key, topic_name))) AS topics FROM topic_names GROUP BY run_id)
SELECT run_id, node_id, conn_id, seq,
    CASE WHEN api_key = {ApiKey.DELETE_TOPICS} AND size(asked) <> size(answered)
            THEN concat('<api ', api_key, '>: ', size(asked), ' topics are named, ', size(answered), ' are answered')
        WHEN size(missing) > 0 THEN concat('<api ', api_key, '> does not answer ', {_some("missing")})
        WHEN size(surplus) > 0
            THEN concat('<api ', api_key, '> answers ', size(surplus), ' that the request does not name: ',
                {_some("surplus")})
        WHEN is_repeated THEN concat('<api ', api_key, '> answers twice what the request names once: ',
            {_some("filter(array_distinct(answered), x -> size(filter(answered, y -> y = x)) > 1)")})
    END AS detail,
    array(cause_seq, seq) AS evidence
FROM compared LEFT JOIN known USING (run_id)"""

VIEWS = (NAMED,)

RULES: tuple[Rule, ...] = (
    Rule(
        "W-11", "error",
        "An answer names the topics and partitions that its request names and no others: Produce, ListOffsets, OffsetCommit, "
        "CreateTopics, CreatePartitions; Metadata and ElectLeaders with a list; LeaderAndIsr and StopReplica without an error at the top. "
        "DeleteTopics has as many elements. What is named once is answered once.", "ctl 5.3, 5.5, 12.1, 15",
        ("named", "ends", "topic_names"), _SAME,
    ),
)
