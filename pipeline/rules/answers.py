"""Rule W-11: an answer names what its request named. The names of a body become one list of texts, whatever the API calls them."""

from __future__ import annotations

from klamm.pipeline.rules.record import Rule, View


def _pairs(topics: str, inner: str, of_element: str, topic: str = "t.name") -> str:
    """Texts `topic-partition` of a list of topics with a list inside each."""
    return (
        f"flatten(transform(try_variant_get(body, '$.{topics}', 'array<struct<name string, topic string, topicName string, topicId string, "
        f"{inner} array<{of_element}>>>'), t -> transform(t.{inner}, p -> concat({topic}, '-', {{}}))))"
    )


def _of(topics: str, inner: str, index: str, topic: str = "t.name") -> str:
    return _pairs(topics, inner, f"struct<{index} int>", topic).format(f"p.{index}")


def _names(topics: str, name: str = "t.name") -> str:
    return f"transform(try_variant_get(body, '$.{topics}', 'array<struct<name string, topicId string>>'), t -> {name})"


def _flat(partitions: str) -> str:
    """Texts of a list of partitions, each with its topic."""
    kind = "array<struct<topicName string, partitionIndex int>>"
    return f"transform(try_variant_get(body, '$.{partitions}', '{kind}'), t -> concat(t.topicName, '-', t.partitionIndex))"


_BY_NAME_OR_ID = "coalesce(t.name, t.topicId)"
NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"

# Where an element of a Metadata request of version 12 has an id, names do not count, nor do elements without an id.
_IDS = f"""transform(filter(try_variant_get(body, '$.topics', 'array<struct<name string, topicId string>>'),
    t -> t.topicId <> '{NO_ID}'), t -> t.topicId)"""

_REQUEST = f"""CASE api_key
    WHEN 0 THEN {_of("topicData", "partitionData", "index")}
    WHEN 2 THEN {_of("topics", "partitions", "partitionIndex")}
    WHEN 8 THEN {_of("topics", "partitions", "partitionIndex")}
    WHEN 19 THEN {_names("topics")}
    WHEN 37 THEN {_names("topics")}
    WHEN 3 THEN if(api_version = 0 AND size(try_variant_get(body, '$.topics', 'array<variant>')) = 0, NULL,
        if(api_version >= 12 AND size({_IDS}) > 0, {_IDS}, {_names("topics", _BY_NAME_OR_ID)}))
    WHEN 4 THEN CASE
        WHEN api_version >= 5 THEN {_of("topicStates", "partitionStates", "partitionIndex", "t.topicId")}
        WHEN api_version >= 2 THEN {_of("topicStates", "partitionStates", "partitionIndex", "t.topicName")}
        ELSE {_flat("ungroupedPartitionStates")} END
    WHEN 5 THEN CASE
        WHEN api_version >= 3 THEN {_of("topicStates", "partitionStates", "partitionIndex", "t.topicName")}
        WHEN api_version >= 1 THEN {_pairs("topics", "partitionIndexes", "int").format("p")}
        ELSE {_flat("ungroupedPartitions")} END
    WHEN 20 THEN if(api_version >= 6, {_names("topics", _BY_NAME_OR_ID)}, try_variant_get(body, '$.topicNames', 'array<string>'))
    WHEN 43 THEN {_pairs("topicPartitions", "partitions", "int", "t.topic").format("p")}
END"""

_RESPONSE = f"""CASE api_key
    WHEN 0 THEN {_of("responses", "partitionResponses", "index")}
    WHEN 2 THEN {_of("topics", "partitions", "partitionIndex")}
    WHEN 8 THEN {_of("topics", "partitions", "partitionIndex")}
    WHEN 19 THEN {_names("topics")}
    WHEN 37 THEN {_names("results")}
    WHEN 3 THEN {_names("topics")}
    WHEN 4 THEN if(api_version >= 5, {_of("topics", "partitionErrors", "partitionIndex", "t.topicId")},
        {_flat("partitionErrors")})
    WHEN 5 THEN {_flat("partitionErrors")}
    WHEN 20 THEN {_names("responses", _BY_NAME_OR_ID)}
    WHEN 43 THEN {_of("replicaElectionResults", "partitionResult", "partitionId", "t.topic")}
END"""

NAMED = View(
    "named",
    ("messages",),
    f"""
SELECT * FROM (
SELECT run_id, node_id, conn_id, seq, dir, peer_id, api_key, api_version, cause_seq, flags, error_code,
    if(dir IN (0, 2), {_REQUEST}, {_RESPONSE}) AS names,
    -- Metadata may ask by id: then the answer has a name that the request has not, and is looked for by its id.
    if(api_key = 3 AND dir = 1, {_names("topics", "t.topicId")}, NULL) AS ids,
    if(api_key = 3 AND dir = 0, exists(try_variant_get(body, '$.topics', 'array<struct<name string, topicId string>>'),
        t -> t.name IS NULL AND t.topicId = '{NO_ID}'), false) AS is_odd
FROM messages
WHERE api_key IN (0, 2, 3, 4, 5, 8, 19, 20, 37, 43) AND body IS NOT NULL AND (dir IN (0, 1) OR api_key IN (4, 5) AND peer_id IS NOT NULL))
WHERE names IS NOT NULL""",
)
"""What requests and responses of some APIs name, as lists of texts: topics, or topic-partition."""

_SAME = """
WITH journaled AS (SELECT DISTINCT run_id, node_id FROM ends),
pairs AS (
    SELECT a.run_id, a.node_id, a.conn_id, a.seq, a.cause_seq, a.api_key, q.flags & 2 <> 0 AS is_cut,
        -- The last name of a request that was cut may lack its end.
        if(q.flags & 2 <> 0, slice(q.names, 1, greatest(size(q.names) - 1, 0)), q.names) AS asked, a.names AS answered, a.ids
    FROM named a
    JOIN named q ON q.run_id = a.run_id AND q.node_id = a.node_id AND q.seq = a.cause_seq AND q.api_key = a.api_key
    LEFT JOIN journaled j ON j.run_id = a.run_id AND j.node_id = a.peer_id
    WHERE a.dir IN (1, 3) AND q.dir IN (0, 2) AND (a.dir = 1 OR j.node_id IS NULL) AND q.names IS NOT NULL AND a.names IS NOT NULL
        AND a.flags & 2 = 0 AND NOT q.is_odd AND (a.api_key NOT IN (4, 5) OR a.error_code = 0)
        AND NOT (q.flags & 2 <> 0 AND a.api_key = 20)),
compared AS (
    SELECT *,
        CASE WHEN api_key = 20 THEN NULL
            WHEN api_key = 3 THEN array_except(array_except(asked, answered), ids)
            ELSE array_except(asked, answered) END AS missing,
        CASE WHEN api_key = 20 OR is_cut THEN NULL
            WHEN api_key = 3 THEN filter(sequence(0, size(answered)), i -> i < size(answered)
                AND NOT array_contains(asked, coalesce(answered[i], '')) AND NOT coalesce(array_contains(asked, ids[i]), false))
            ELSE transform(array_except(answered, asked), x -> 0) END AS surplus,
        -- What is named twice may be answered once or twice, each API in its way. Metadata of ids that it refuses has no names.
        NOT is_cut AND size(array_distinct(asked)) = size(asked) AND NOT exists(answered, x -> x IS NULL)
            AND size(array_distinct(answered)) < size(answered)
            AND (ids IS NULL OR size(array_distinct(arrays_zip(answered, ids))) < size(answered)) AS is_repeated
    FROM pairs)
SELECT run_id, node_id, conn_id, seq,
    CASE WHEN api_key = 20 AND size(asked) <> size(answered)
            THEN concat(size(asked), ' topics are named, ', size(answered), ' are answered')
        WHEN size(missing) > 0 THEN concat('API ', api_key, ' does not answer ', array_join(slice(missing, 1, 5), ', '))
        WHEN size(surplus) > 0 THEN concat('API ', api_key, ' answers ', size(surplus), ' that the request does not name')
        WHEN is_repeated THEN concat('API ', api_key, ' answers twice what the request names once')
    END AS detail,
    array(cause_seq, seq) AS evidence
FROM compared"""

VIEWS = (NAMED,)

RULES: tuple[Rule, ...] = (
    Rule(
        "W-11", "error",
        "An answer names the topics and partitions that its request names and no others: Produce, ListOffsets, OffsetCommit, "
        "CreateTopics, CreatePartitions; Metadata and ElectLeaders with a list; LeaderAndIsr and StopReplica without an error at the top. "
        "DeleteTopics has as many elements. What is named once is answered once.", "ctl 5.3, 5.5, 12.1, 15", ("named", "ends"), _SAME,
    ),
)
