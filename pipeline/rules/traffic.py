"""Views that the rules about frames share: frames in the order of their connections, what ended, what brokers advertised."""

from __future__ import annotations

from klamm.pipeline.lake.tables import FIELD_TABLE
from klamm.pipeline.lake.windows import keys
from klamm.pipeline.rules.record import Join, View
from klamm.protocol.apis import ApiKey
from klamm.protocol.messages import SASL_IDS

CONNECTION = ("conn_id", "run_id", "node_id", "process")
"""What names a connection: its number counts in one process. The number is first, because Spark sorts by eight bytes before all else."""

NO_RESPONSE_OR_TOKEN = "9"
"""`Flag.NO_RESPONSE | Flag.RAW_TOKEN`"""

ANSWERS = f"dir = 1 AND flags & {NO_RESPONSE_OR_TOKEN} = 0"

# After the last id below those of SASL clients start again.
NUMBERED = f"dir = 0 AND reason IS NULL AND flags & 8 = 0 AND correlation_id BETWEEN 0 AND {SASL_IDS.start - 1}"
"""SQL: requests whose correlation ids have to rise."""

OVERTAKING_KEYS = f"{ApiKey.METADATA}, {ApiKey.API_VERSIONS}, 71, 72"
"""71 and 72 are GetTelemetrySubscriptions and PushTelemetry. A client of Java numbers them when it sends them, and other requests
before they wait for the connection. Other clients may let Metadata wait too, for ApiVersions."""

HOST = "substring(peer, 1, length(peer) - length(substring_index(peer, ':', -1)) - 1)"
"""SQL: the peer without its port."""

PAIRED = f"(dir = 1 AND cause_seq IS NOT NULL OR dir = 0 AND flags & {NO_RESPONSE_OR_TOKEN} = 0 AND reason IS NULL)"
"""SQL: requests that get a response, and responses to them."""

FRAME_COUNTS = View(
    "frame_counts",
    ("headers",),
    f"""
SELECT * EXCEPT (peer), {HOST} AS host
FROM (
    SELECT run_id, node_id, process, conn_id, kind, client_id, client_sw, peer, dir, api_key, api_version, part, is_recent,
        count(*) AS frames, count_if(reason IS NOT NULL) AS undecoded, count_if(errors > 0) AS failed, count_if(bytes_left > 0) AS surplus,
        count_if(flags & 1 <> 0) AS unanswered, count_if(replica_id >= 0) AS follower_fetches, count_if({PAIRED}) AS paired,
        bit_xor(if({PAIRED}, xxhash64(if(dir = 0, seq, cause_seq)), NULL)) AS pairs,
        min(seq) AS first_seq, max(seq) AS last_seq, min(ts_ns) AS first_ts_ns, max(ts_ns) AS last_ts_ns
    FROM (SELECT *, :part AS part, :recent AS is_recent FROM headers)
    GROUP BY run_id, node_id, process, conn_id, kind, client_id, client_sw, peer, dir, api_key, api_version, part, is_recent)""",
)
"""How many frames there are of each kind on each connection: what sums up frames reads these few rows. `host` is the peer without its
port; `unanswered` get no response; `pairs` is the same for requests as for their responses; `part` is the part of gold that the frames are
in, null if they are not judged in this window; `follower_fetches` are those of brokers."""

TRAFFIC = View(
    "traffic",
    ("headers",),
    f"""
SELECT run_id, node_id, process, conn_id, seq, ts_ns, dir, listener, client_id, api_key, api_version, correlation_id, flags, cause_seq,
    frame_bytes, length_prefix, bytes_left, err, reason, error_code, errors, throttle_ms, peer_id,
    {HOST} AS host
FROM headers""",
    is_within=True,
)
"""All frames without their bodies. `host` is the peer without its port."""

ORDERED = View(
    "ordered_traffic",
    ("headers",),
    f"""
SELECT run_id, node_id, process, conn_id, seq, api_key, correlation_id, cause_seq, client_id, is_answer, is_numbered, is_overtaking,
    max(if(is_answer, cause_seq, NULL)) OVER before AS answered_before,
    max(if(is_numbered, struct(correlation_id, seq), NULL)) OVER before AS id_before,
    max(if(is_numbered AND (api_key = {ApiKey.METADATA} OR NOT is_overtaking), struct(correlation_id, seq), NULL)) OVER before
        AS metadata_id_before,
    max(if(is_numbered AND NOT is_overtaking, struct(correlation_id, seq), NULL)) OVER before AS other_id_before
FROM (
    SELECT run_id, node_id, process, conn_id, seq, api_key, correlation_id, cause_seq, client_id, {ANSWERS} AS is_answer,
        {NUMBERED} AS is_numbered, api_key IN ({OVERTAKING_KEYS}) AS is_overtaking
    FROM headers)
WHERE is_answer OR is_numbered
WINDOW before AS (PARTITION BY {", ".join(CONNECTION)} ORDER BY seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)""",
    is_within=True,
)
"""Requests with correlation ids that have to rise (`is_numbered`) and responses (`is_answer`), with what came before on their connection:
`answered_before` is the newest request that has a response; `id_before` is the highest correlation id of a request, with its `seq`, and
`other_id_before` the same without requests that may overtake others (`is_overtaking`), `metadata_id_before` with those of Metadata. It has
few columns, because all its rows are sorted."""

OVERTAKERS = View(
    "overtakers",
    ("headers",),
    f"""
SELECT {", ".join(CONNECTION)}, correlation_id, min(seq) AS seq
FROM headers WHERE {NUMBERED} AND api_key IN ({OVERTAKING_KEYS}) GROUP BY {", ".join(CONNECTION)}, correlation_id""",
)
"""The correlation ids of requests that may overtake others: an id is looked for here, because it may be below that of the last one before
it."""

FREQUENT_KEYS = keys([ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.API_VERSIONS])
"""Nearly all frames of a long journal may be theirs."""

RARE_TRAFFIC = View("rare_traffic", ("traffic",), f"SELECT * FROM traffic WHERE api_key NOT IN ({FREQUENT_KEYS})")
"""The frames of all other APIs, which are few in most journals."""

RARE_FIELDS = View(
    "rare_fields",
    ("fields",),
    f"""
SELECT * EXCEPT (produced, sequences, acks, offsets, isolation_level, records, advertised)
FROM fields
WHERE api_key NOT BETWEEN {min(FIELD_TABLE.frequent)} AND {max(FIELD_TABLE.frequent)} AND api_key NOT IN ({FREQUENT_KEYS})""",
)
"""The same of `fields`, without the columns that only these APIs have: they are the large ones, and would be read for all rows. The range
is there for Spark, which skips row groups that have no key outside of it."""

JOURNALS = View(
    "journals",
    ("frame_counts",),
    """
SELECT run_id, node_id, process, min(first_seq) AS low, max(last_seq) AS high, CAST(sum(frames) AS BIGINT) AS n,
    CAST(sum(frames - undecoded) AS BIGINT) AS decoded, max(last_ts_ns) AS ts_ns
FROM frame_counts WHERE is_recent GROUP BY run_id, node_id, process""",
)
"""The processes that journaled frames: their first and last row, their number, how many decode, and the time of the last."""

CLOSINGS = View(
    "closings",
    ("events",),
    "SELECT run_id, node_id, process, conn_id, max(seq) AS seq FROM events WHERE kind = 'conn_close' GROUP BY ALL",
)
"""The connections that ended."""

ENDS = View(
    "ends",
    ("events", "journals"),
    """
WITH parts AS (
    SELECT run_id, node_id, process, low, high, n, ts_ns FROM journals
    UNION ALL
    SELECT run_id, node_id, process, min(seq), max(seq), count(*), max(ts_ns) FROM events WHERE :recent GROUP BY ALL),
processes AS (
    SELECT run_id, node_id, process, min(low) AS low, max(high) AS high, sum(n) AS n, max(ts_ns) AS last_ts_ns FROM parts GROUP BY ALL)
SELECT run_id, node_id, process, last_ts_ns,
    sum(n) OVER node = max(high) OVER node - min(low) OVER node + 1 AS is_gapless
FROM processes WINDOW node AS (PARTITION BY run_id, node_id)""",
)
"""The processes: the time of the last row, and whether the broker's journal has all rows between its first and its last."""

RANGES = View(
    "ranges",
    ("events", "fields"),
    f"""
WITH told AS (
    SELECT run_id, node_id, process, get_json_object(input, '$.listener') AS listener, seq AS from_seq,
        lead(seq, 1, 9223372036854775807) OVER (
            PARTITION BY run_id, node_id, process, get_json_object(input, '$.listener') ORDER BY seq) AS until_seq,
        transform(from_json(output, 'apis array<array<int>>').apis, a -> struct(a[0] AS key, a[1] AS low, a[2] AS high)) AS apis
    FROM events WHERE kind = 'advertised'),
answered AS (
    SELECT DISTINCT run_id, node_id, process, listener, CAST(0 AS BIGINT) AS from_seq, 9223372036854775807 AS until_seq,
        advertised AS apis
    FROM fields LEFT ANTI JOIN told USING (run_id, node_id, process)
    WHERE api_key = {ApiKey.API_VERSIONS} AND dir = 1 AND error_code = 0),
listed AS (
    SELECT run_id, node_id, process, listener, from_seq, until_seq, api.key AS key, api.low AS low, api.high AS high
    FROM (SELECT * FROM told UNION ALL SELECT * FROM answered) LATERAL VIEW explode(apis) AS api)
SELECT run_id, node_id, process, listener, from_seq, until_seq, key, min(low) AS low, max(high) AS high
FROM (SELECT *, count(listener) OVER (PARTITION BY run_id, node_id, process) AS named FROM listed)
WHERE listener IS NOT NULL OR named = 0
GROUP BY run_id, node_id, process, listener, from_seq, until_seq, key""",
)
"""What each broker advertised, on which listener, from and until which rows of its journal. Without events that say it: what it answered
to ApiVersions, the widest range. A range without a listener is that of all frames, and is there if none has a listener: so a frame has one
range at most."""

TOLD = Join("ranges", """
LEFT JOIN (
    SELECT DISTINCT run_id AS told_run, node_id AS told_node, process AS told_process, listener AS told_listener, from_seq, until_seq
    FROM ranges)
ON told_run = run_id AND told_node = if(dir IN (0, 1), node_id, NULL) AND told_process = process
    AND (told_listener IS NULL OR told_listener <=> listener) AND seq BETWEEN from_seq AND until_seq""")
"""Whether it is known what the broker that got or answered a request advertised then: `told_run` is not null. Rows whose key is null are
not looked up, which is cheaper than a condition."""

RANGE = Join("ranges", """
LEFT JOIN (
    SELECT run_id AS range_run, node_id AS range_node, process AS range_process, listener AS range_listener, from_seq AS range_from,
        key, low, high
    FROM ranges)
ON range_run = run_id AND range_node = told_node AND range_process = process AND key = api_key AND range_listener <=> told_listener
    AND range_from = from_seq""")
"""After `TOLD`: what the broker advertised of the frame's API, `low` and `high`; null if nothing."""

JOURNALED = Join("ends", """
LEFT JOIN (SELECT DISTINCT run_id AS of_run, node_id AS journaled_id FROM ends)
ON run_id = of_run AND if(dir = 3, peer_id, NULL) = journaled_id""")
"""What a broker without a journal answers is in the journal of the broker that asked it: then `journaled_id` is null."""

NOTABLE = View(
    "notable",
    ("traffic", "ranges"),
    f"""
SELECT run_id, node_id, process, conn_id, seq, ts_ns, dir, api_key, api_version, client_id, host, flags, reason, err, errors,
    throttle_ms, told_run IS NOT NULL AS is_told, low, high, nullif(from_seq, 0) AS told_seq
FROM traffic {TOLD.sql} {RANGE.sql}
WHERE errors > 0 OR throttle_ms > 0 OR reason IS NOT NULL
    OR dir = 0 AND told_run IS NOT NULL AND (low IS NULL OR api_version NOT BETWEEN low AND high)""",
)
"""The frames that several rules look for, few in most journals: with error codes, that ask the client to wait, that do not decode, and
requests outside of what the broker advertised, which is `low` to `high` if `is_told`, by the event `told_seq` if there is one."""

MIDWAY = View(
    "midway",
    ("events", "journals"),
    """
SELECT run_id, node_id, min_by(process, low) AS process FROM (
    SELECT run_id, node_id, process, low FROM journals WHERE :from_begin
    UNION ALL SELECT run_id, node_id, process, min(seq) FROM events GROUP BY ALL)
GROUP BY run_id, node_id HAVING min(low) > 1""",
)
"""The processes whose journals begin in the middle, because older rows were removed: what their brokers were told before is not known."""

GAPPY = View("gappy", ("ends",), "SELECT run_id, node_id, true AS has_gaps FROM ends WHERE NOT is_gapless GROUP BY run_id, node_id")
"""Brokers whose journals lack rows between their first and their last: none where all is well."""


def unless_gaps(judged: str, *, of: str = "broker") -> str:
    """SQL: what a rule says where rows that are missing might explain it is no violation.

    With `broker` it says nothing against a broker whose own journal lacks rows, with `run` nothing in a run in which any journal does. The
    query reads the view `gappy`.
    """
    gaps = "gappy" if of == "broker" else "(SELECT DISTINCT run_id, has_gaps FROM gappy)"
    same = "g.run_id = j.run_id" + (" AND g.node_id = j.node_id" if of == "broker" else "")
    return f"""
    SELECT j.run_id, j.node_id, j.conn_id, j.seq, if(g.has_gaps, NULL, j.detail) AS detail, j.evidence
    FROM ({judged}) j LEFT JOIN {gaps} g ON {same}"""


VIEWS = (FRAME_COUNTS, TRAFFIC, ORDERED, OVERTAKERS, RARE_TRAFFIC, RARE_FIELDS, JOURNALS, CLOSINGS, ENDS, RANGES, NOTABLE, MIDWAY, GAPPY)
